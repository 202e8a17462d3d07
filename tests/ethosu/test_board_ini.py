"""What Vela is told of a board: the board's own memories and clock, in every compile that names the board."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.stream.decode import decode
from npu_memplan.ethosu.time import SystemDataError, estimate, load_system
from npu_memplan.frontend.start import vela_options
from npu_memplan.options import CompileOptions, usual_accelerator
from npu_memplan.target_data import board_names, load_board
from npu_memplan.vela.compiler import compile_tflite
from npu_memplan.vela.worker import VelaError, VelaOptions, resolve_configuration
from tests.support.real_data import REPOSITORY, Models

HELLO = REPOSITORY / "tests" / "models" / "hello_world_int8.tflite"
CASES = [(name, mode) for name in board_names() for mode in load_board(name).placements]


def on(board: str, **options: str) -> CompileOptions:
    return CompileOptions(usual_accelerator(board), board=board, **options).resolve_defaults()


def cycles(model: bytes, vela: VelaOptions, options: CompileOptions) -> int:
    memory_map = options.memory_map()
    assert memory_map is not None
    calls = compile_tflite(model, vela).parsed.npu_calls
    return sum(estimate(decode(c.words, c.accelerator.language), c.accelerator, memory_map).total for c in calls)


def test_vela_gets_renesas_figures() -> None:
    assert vela_options(on("renesas-ra8p1")).sections == (
        "[System_Config.Board]\ncore_clock=500000000\naxi0_port=Sram\naxi1_port=OffChipFlash\n"
        "Sram_clock_scale=0.5\nSram_ports_used=1\nSram_burst_length=128\nSram_read_latency=8\nSram_write_latency=8\n"
        "OffChipFlash_clock_scale=0.5\nOffChipFlash_ports_used=1\nOffChipFlash_burst_length=128\n"
        "OffChipFlash_read_latency=8\nOffChipFlash_write_latency=8\n"
        "[Memory_Mode.Shared_Sram]\nconst_mem_area=Axi1\narena_mem_area=Axi0\ncache_mem_area=Axi0\n"
        "arena_cache_size=1916928\n"
    )


@pytest.mark.parametrize(("board", "mode"), CASES)
def test_vela_reads_the_figures_that_the_estimate_uses(board: str, mode: str, tmp_path: Path) -> None:
    """Read back as a vela.ini, the text describes the memories of the board's own map."""
    options = on(board, memory_mode=mode)
    memory_map, told = options.memory_map(), vela_options(options)
    assert memory_map is not None
    ini = tmp_path / "vela.ini"
    ini.write_text(told.sections)
    system = load_system(told.system_config or "", ini)
    assert system.clock_hz == memory_map.clock_hz
    for memory in {
        memory_map.regions[0].name: memory_map.regions[0],
        memory_map.regions[1].name: memory_map.regions[1],
    }.values():
        read = system.behind(memory.port)
        figures = (memory.clock_scale, memory.read, memory.write)
        assert (read.clock_scale, read.read, read.write) == pytest.approx(figures), memory.name
    name, used, size = resolve_configuration(accelerator(options.accelerator), told)
    assert (name, used) == ("Board", mode)
    assert size == options.planned_pools()[-1].size_bytes


def test_vela_makes_a_faster_stream_for_a_board_that_it_knows(shared_model: Models) -> None:
    """Renesas measured 54,000 cycles of kws with its own vela.ini; for Vela's generic speeds it takes a third more."""
    options, model = on("renesas-ra8p1"), shared_model("kws_ref_model").read_bytes()
    told = vela_options(options)
    generic = replace(told, sections="", system_config=options.system_config)
    ours, before = cycles(model, told, options), cycles(model, generic, options)
    assert ours < 0.8 * before
    assert ours == pytest.approx(54_000, rel=0.08)


@pytest.mark.parametrize("board", ["corstone-300-u55", "corstone-300-u65", "corstone-320"])
def test_a_board_without_speeds_of_its_own_changes_nothing(board: str) -> None:
    options, model = on(board), HELLO.read_bytes()
    told = vela_options(options)
    generic = replace(told, sections="", system_config=options.system_config)
    assert compile_tflite(model, told).network == compile_tflite(model, generic).network


def test_both_cores_take_a_board() -> None:
    for name in ("renesas-ra8p1", "nxp-imx93"):
        told = vela_options(on(name))
        for core in ("legacy", "regor"):  # the legacy core checks which memory may hold what
            assert compile_tflite(HELLO.read_bytes(), replace(told, core=core)).core == core


def test_a_vela_ini_of_the_users_own_speaks_for_itself(tmp_path: Path) -> None:
    ini = tmp_path / "vela.ini"
    ini.write_text(
        "[System_Config.Mine]\ncore_clock=1e8\naxi0_port=Sram\naxi1_port=OffChipFlash\nSram_clock_scale=1\n"
        "OffChipFlash_clock_scale=0.25\n"
    )
    told = vela_options(on("renesas-ra8p1", vela_ini=str(ini), system_config="Mine"))
    assert (told.sections, told.system_config, told.ini) == ("", "Mine", str(ini))


# -- A vela.ini of the user's own: sections that inherit, and files that change


_SYSTEM = """[System_Config.Mine]
core_clock={clock}
axi0_port=Sram
axi1_port=OffChipFlash
Sram_clock_scale=1.0
OffChipFlash_clock_scale=0.125
"""


def test_sections_that_inherit_each_other_are_an_error(tmp_path: Path) -> None:
    ini = tmp_path / "vela.ini"
    ini.write_text("[System_Config.A]\ninherit=System_Config.B\n[System_Config.B]\ninherit=System_Config.A\n")
    with pytest.raises(SystemDataError, match=r"\[System_Config.A\] inherits 'System_Config.A', which inherits it"):
        load_system("A", ini)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[Memory_Mode.A]\ninherit=Memory_Mode.B\n[Memory_Mode.B]\ninherit=Memory_Mode.A\n", "which inherits it"),
        ("[Memory_Mode.A]\ninherit=Memory_Mode.None\n", "inherits 'Memory_Mode.None', which the file does not have"),
    ],
)
def test_memory_modes_that_inherit_nothing_good(tmp_path: Path, text: str, message: str) -> None:
    ini = tmp_path / "vela.ini"
    ini.write_text(text)
    with pytest.raises(VelaError, match=message):
        resolve_configuration(accelerator("ethos-u55-256"), VelaOptions(memory_mode="A", ini=str(ini)))


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    ini = tmp_path / "vela.ini"
    for clock in (100e6, 200e6):
        ini.write_text(_SYSTEM.format(clock=clock))
        assert load_system("Mine", ini).clock_hz == clock
