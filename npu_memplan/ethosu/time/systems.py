"""Systems around an NPU by name: from `targets/systems.toml`, or from a vela.ini of the user's own.

Invariant: every figure is the file's; nothing is assumed of a memory that the file does not describe.
"""

from __future__ import annotations

import configparser
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...errors import NpuMemplanError
from ...files.paths import read_bytes, read_text
from ...target_data import accelerator_system, load_memory_mode, near_names, read_toml, targets_folder
from ..arch import Architecture
from .memory import Direction, Memory, MemoryMap, Pulse

_AREAS = {"Sram": "sram", "Dram": "dram", "OnChipFlash": "on_chip_flash", "OffChipFlash": "flash"}
_READ_ONLY = ("on_chip_flash", "flash")
_SECTION = "System_Config."


class SystemDataError(NpuMemplanError):
    """A system configuration is unknown, or its file is wrong."""


@dataclass(frozen=True, slots=True)
class System:
    """One system configuration."""

    name: str
    vela: str  # Vela's name for it
    clock_hz: float  # of the NPU
    memories: Mapping[str, Memory] = field(hash=False)

    def behind(self, port: int) -> Memory:
        """The memory behind AXI port 0 or 1."""
        for memory in self.memories.values():
            if memory.port == port:
                return memory
        raise SystemDataError(f"system configuration {self.name!r} has no memory behind AXI port {port}")

    def memory_map(self, memory_mode: str, regions: Mapping[int, str], constants: Iterable[str] = ()) -> MemoryMap:
        """The memory of each region: `regions` are pools by region, `constants` names of read-only pools.

        A pool or read-only pool with a memory's name is there; other constants and the command stream are where the
        memory mode has them, other pools in the first memory of the mode.
        """
        mode = load_memory_mode(memory_mode)
        fixed = self.behind(mode.constants_port)
        found = {region: self.memories.get(name, self.of_pool(name)) for region, name in regions.items()}
        found.setdefault(1, self.of_pool(mode.pools[0]))
        found[0] = next((self.memories[name] for name in constants if name in self.memories), fixed)
        return MemoryMap(found, fixed, self.clock_hz)

    def read_only_pools(self, pools: Iterable[str]) -> list[str]:
        """Those of a mode's `pools` whose memory cannot be written."""
        return [name for name in pools if self.of_pool(name).name in _READ_ONLY]

    def of_pool(self, name: str) -> Memory:
        """A mode's pool: `sram` is behind port 0, `dram` behind port 1."""
        return self.memories.get(name, self.behind(1 if name == "dram" else 0))


def fvp_system(accelerator: Architecture) -> str:
    """The configuration of Arm's FVPs, timing adapters included: for its default one, else for its product."""
    usual = accelerator_system(accelerator.name).system_config
    tables = read_toml(targets_folder() / "systems.toml")
    named = [name for name in tables if name.startswith(f"FVP_Ethos_{accelerator.product.name}_")]
    return next((name for name in named if tables[name].get("vela") == usual), named[0])


def writable_systems(accelerator: Architecture, pools: Iterable[str]) -> list[str]:
    """The configurations of an accelerator's product in which all of a mode's `pools` can be written."""
    start = f"Ethos_{accelerator.product.name}_"
    names = [name for name in read_toml(targets_folder() / "systems.toml") if name.startswith(start)]
    return [name for name in names if not load_system(name).read_only_pools(pools)]


def load_system(name: str, vela_ini: Path | None = None) -> System:
    """A configuration by name: of the user's `vela_ini` if it is there, else one that comes with npu_memplan."""
    content = None
    if vela_ini is not None:
        try:
            content = read_bytes(vela_ini)
        except OSError as error:
            raise SystemDataError(f"cannot read {vela_ini} as a vela.ini: {error.strerror or error}") from None
    return _load_system(name, vela_ini, content)


@lru_cache(maxsize=32)  # the file's bytes are part of the key
def _load_system(name: str, vela_ini: Path | None, _: bytes | None) -> System:
    """Read a system from the user's vela.ini, or else from `systems.toml`."""
    if vela_ini is not None:
        found = _from_ini(vela_ini, name)
        if found is not None:
            return found
    tables = read_toml(targets_folder() / "systems.toml")
    if name not in tables:
        own: list[str] = []
        if vela_ini is not None:
            own = [s.removeprefix(_SECTION) for s in _read_ini(vela_ini).sections() if s.startswith(_SECTION)]
        also = "" if vela_ini is None else f"; {vela_ini} has: {', '.join(own) or f'no [{_SECTION}NAME]'}"
        raise SystemDataError(
            f"system configuration {name!r} is unknown{also}; {near_names(name, tables)}known: {', '.join(tables)}; "
            "describe your own in a vela.ini and name it with --vela-ini"
        )
    table = tables[name]
    memories = {key: memory_of(key, values) for key, values in table["memory"].items()}
    return System(name, table.get("vela", name), float(table["clock_hz"]), memories)


def memory_of(name: str, values: Mapping[str, Any]) -> Memory:
    """The memory of a table of `targets/systems.toml`, or of one with the same keys."""
    pulse = None
    if "pulse_on" in values:
        pulse = Pulse(values["pulse_on"], values["pulse_off"], values["pulse_words"])
    return Memory(
        name=name,
        port=values["port"],
        clock_scale=values["clock_scale"],
        read=Direction(values["read_latency"], values["max_reads"]),
        write=Direction(values["write_latency"], values["max_writes"]),
        pulse=pulse,
        burst_bytes=values.get("burst_bytes", 0),
    )


def _read_ini(path: Path) -> configparser.ConfigParser:
    ini = configparser.ConfigParser()
    try:
        ini.read_string(read_text(path), str(path))
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise SystemDataError(f"cannot read {path} as a vela.ini: {reason}") from None
    return ini


def _section_of(path: Path, section: str) -> dict[str, str] | None:
    """The values of `[section]` of a vela.ini and of those that it inherits; None where it is not there."""
    ini = _read_ini(path)
    if not ini.has_section(section):
        return None
    values, seen = dict(ini[section]), {section}
    while "inherit" in values:
        base = values.pop("inherit")
        if base in seen:
            raise SystemDataError(f"{path}: [{section}] inherits {base!r}, which inherits it; correct the file")
        seen.add(base)
        if not ini.has_section(base):
            raise SystemDataError(f"{path}: [{section}] inherits {base!r}, which the file does not have")
        values = {**dict(ini[base]), **values}
    return values


def similar_memory_mode(path: Path, name: str) -> str:
    """The known memory mode with the areas of `[Memory_Mode.name]` of a vela.ini; empty where that is not there."""
    values = _section_of(path, f"Memory_Mode.{name}")
    if values is None:
        return ""
    constants, arena, cache = (values.get(f"{what}_mem_area", "").casefold() for what in ("const", "arena", "cache"))
    if arena != cache:
        return "Dedicated_Sram"
    return "Sram_Only" if constants == arena else "Shared_Sram"


def _from_ini(path: Path, name: str) -> System | None:
    values = _section_of(path, _SECTION + name)
    if values is None:
        return None
    memories: dict[str, Memory] = {}
    for port in (0, 1):
        area = values.get(f"axi{port}_port", "")
        if area not in _AREAS:
            raise SystemDataError(
                f"{path}: [{_SECTION}{name}] axi{port}_port is {area!r}; give one of {', '.join(_AREAS)}"
            )
        memories.setdefault(_AREAS[area], memory_of(_AREAS[area], _ini_memory(path, name, values, area, port)))
    return System(name, name, _number(path, name, values, "core_clock"), memories)


def _ini_memory(path: Path, name: str, values: Mapping[str, str], area: str, port: int) -> dict[str, Any]:
    area = area.lower()  # configparser's keys are

    def read_number(key: str) -> float:
        return _number(path, name, values, f"{area}_{key}", 0.0)

    ports = _number(path, name, values, f"{area}_ports_used", 1.0)
    return {
        "port": port,
        "clock_scale": _number(path, name, values, f"{area}_clock_scale") * ports,
        **{key: int(read_number(key)) for key in ("read_latency", "write_latency")},
        **{key: int(read_number(key) * ports) for key in ("max_reads", "max_writes")},
    }


def _number(path: Path, name: str, values: Mapping[str, str], key: str, default: float | None = None) -> float:
    text = values.get(key)
    if text is None and default is not None:
        return default
    try:
        number = float(text or "")
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf") or (number == 0 and default is None):
        raise SystemDataError(f"{path}: [{_SECTION}{name}] {key} is {text!r}; it must be a positive number")
    return number


def default_memory_map(accelerator: Architecture) -> MemoryMap:
    """The memories of an accelerator of which no more is known: its default system and memory mode."""
    system = accelerator_system(accelerator.name)
    pools = load_memory_mode(system.memory_mode).pools
    return load_system(system.system_config).memory_map(system.memory_mode, dict(enumerate(pools, start=1)))
