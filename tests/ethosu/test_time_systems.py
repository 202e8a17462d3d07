"""Systems around the NPU: the shipped figures are vela.ini's, a user's file is read, what is wrong is said."""

from __future__ import annotations

import configparser
from importlib.util import find_spec
from pathlib import Path

import pytest

from npu_memplan.ethosu.time import SystemDataError, load_system
from npu_memplan.options import CompileOptions, OptionError
from npu_memplan.request import request
from npu_memplan.target_data import read_toml, targets_folder
from tests.support.saving import save

AREAS = {"sram": "Sram", "dram": "Dram", "flash": "OffChipFlash"}
FIGURES = ("read_latency", "write_latency", "max_reads", "max_writes")


def velas() -> tuple[Path, configparser.ConfigParser]:
    found = find_spec("ethosu")
    assert found is not None
    path = Path(next(iter(found.submodule_search_locations or ()))) / "config_files" / "Arm" / "vela.ini"
    ini = configparser.ConfigParser()
    ini.read(path)
    return path, ini


TABLES = read_toml(targets_folder() / "systems.toml")
VELAS = {name for name, table in TABLES.items() if "vela" not in table}  # the others say which of these Vela is told


@pytest.mark.parametrize("name", sorted(VELAS))
def test_shipped_figures_are_those_of_vela_ini(name: str) -> None:
    path, ini = velas()
    section, table = ini[f"System_Config.{name}"], TABLES[name]
    assert table["clock_hz"] == float(section["core_clock"])
    for memory, values in table["memory"].items():
        area = AREAS[memory]
        assert section[f"axi{values['port']}_port"] == area
        ports = float(section.get(f"{area}_ports_used", "1"))
        assert values["clock_scale"] == float(section[f"{area}_clock_scale"]) * ports
        known = {"max_reads": 8, "max_writes": 8} if (name, memory) == ("Ethos_U55_High_End_Embedded", "sram") else {}
        theirs = {k: int(section[f"{area}_{k}"]) * (ports if k.startswith("max") else 1) for k in FIGURES}
        assert {k: values[k] for k in FIGURES} == theirs | known
    assert load_system(name, path).clock_hz == load_system(name).clock_hz


def test_every_configuration_of_vela_is_shipped() -> None:
    _, ini = velas()
    theirs = {s.partition(".")[2] for s in ini.sections() if s.startswith("System_Config.")}
    assert theirs == VELAS


def test_a_configuration_of_our_own_names_the_one_that_vela_gets() -> None:
    names = tuple(read_toml(targets_folder() / "systems.toml"))
    assert len(VELAS) < len(names)
    for name in names:
        assert load_system(name).vela in VELAS
        assert (load_system(name).vela == name) is (name in VELAS)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (CompileOptions(), {0: "flash", 1: "sram"}),
        (CompileOptions(memory_mode="Sram_Only"), {0: "sram", 1: "sram"}),
        (CompileOptions("ethos-u65-512"), {0: "dram", 1: "dram", 2: "sram"}),
        (CompileOptions(constant_pools={"sram_constants": None, "sram": None}), {0: "sram", 1: "sram"}),
        (CompileOptions(constant_pools={"flash": 1024}), {0: "flash", 1: "sram"}),
    ],
)
def test_regions_lie_in_memories(options: CompileOptions, expected: dict[int, str]) -> None:
    found = options.memory_map()
    assert found is not None
    assert {region: memory.name for region, memory in found.regions.items()} == expected


def test_without_an_npu_there_is_no_memory_map() -> None:
    assert CompileOptions("none").memory_map() is None


OWN = """
[System_Config.base]
core_clock=400e6
axi0_port=Sram
axi1_port=OnChipFlash
Sram_clock_scale=1.0
Sram_read_latency=10
[System_Config.mine]
inherit=System_Config.base
OnChipFlash_clock_scale=0.5
OnChipFlash_read_latency=20
OnChipFlash_max_reads=2
"""


def test_a_users_file_is_read(tmp_path: Path) -> None:
    path = save(tmp_path / "vela.ini", OWN)
    system = load_system("mine", path)
    assert (system.clock_hz, sorted(system.memories)) == (400e6, ["on_chip_flash", "sram"])
    flash = system.memories["on_chip_flash"]
    assert (flash.port, flash.clock_scale, flash.read.latency, flash.read.outstanding) == (1, 0.5, 20, 2)
    assert load_system("Ethos_U65_Mid_End", path).name == "Ethos_U65_Mid_End", "what it lacks is among the shipped"


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("[x", "mine", "cannot read .*vela.ini as a vela.ini: "),
        (
            OWN,
            "other",
            r"system configuration 'other' is unknown; .*vela.ini has: base, mine; known: Ethos_U55_Deep_Embedded",
        ),
        (OWN.replace("=400e6", "=fast"), "mine", r"\[System_Config.mine\] core_clock is 'fast'; it must be a positive"),
        (OWN.replace("=0.5", "=0"), "mine", "onchipflash_clock_scale is '0'; it must be a positive number"),
        (OWN.replace("axi1_port=OnChipFlash", "axi1_port=Disk"), "mine", "axi1_port is 'Disk'; give one of Sram, Dram"),
        (OWN.replace("=System_Config.base", "=System_Config.bass"), "mine", "inherits 'System_Config.bass', which"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, name: str, message: str) -> None:
    path = save(tmp_path / "vela.ini", text)
    with pytest.raises(SystemDataError, match=message):
        load_system(name, path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemDataError, match=r"cannot read .*nowhere\.ini"):
        load_system("mine", tmp_path / "nowhere.ini")


@pytest.mark.parametrize(
    ("npu", "system", "others"),
    [
        ("ethos-u55-256", "", "describe your memories in --vela-ini"),
        ("ethos-u65-256", "Ethos_U65_Embedded", "--system-config Ethos_U65_Mid_End or Ethos_U65_High_End or "),
        ("ethos-u85-256", "Ethos_U85_SYS_Flash_High", "--system-config Ethos_U85_SYS_DRAM_Low or "),
    ],
)
def test_no_pool_lies_in_flash(npu: str, system: str, others: str) -> None:
    message = f"has pool dram in a memory that is flash, .*; give --memory-mode Shared_Sram, or {others}"
    for compiler in ("auto", "tvm", "vela"):
        wanted = CompileOptions(npu, system_config=system, memory_mode="Dedicated_Sram", npu_compiler=compiler)
        with pytest.raises(OptionError, match=message):
            request(wanted)
    assert request(CompileOptions(npu, system_config=system, memory_mode="Shared_Sram")).pools[0].name == "sram"
