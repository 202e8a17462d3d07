"""Boards, accelerators' default systems and memory modes, read from the data in `targets/`.

Invariant: nothing about a board is known to code: a board is a TOML file, shipped or the
user's own, and everything in it has been checked when a `Board` exists. Addresses are the
CPU's, sizes are bytes. The data lies in `targets/` of the repository and in
`npu_memplan/targets` of an installed wheel.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from .errors import NpuMemplanError
from .problem import Agent

_toml: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


class TargetDataError(NpuMemplanError):
    """A board, accelerator or memory mode is unknown, or its file is wrong."""


@dataclass(frozen=True, slots=True)
class BoardMemory:
    """One memory of a board: CPU bytes `[base, base + size_bytes)` and who reaches them."""

    name: str
    base: int
    size_bytes: int
    agents: frozenset[Agent]
    aliases: tuple[int, ...] = ()  # other base addresses of the same bytes
    read_only: bool = False  # flash: holds constants, no pools

    def offset_of(self, address: int) -> int | None:
        """Byte of this memory that `address` names through any of its aliases, or None."""
        for base in (self.base, *self.aliases):
            if base <= address < base + self.size_bytes:
                return address - base
        return None


@dataclass(frozen=True, slots=True)
class MemoryPlacement:
    """Candidates, best first, for each planned pool and for the constants in one memory mode."""

    pools: Mapping[str, tuple[str, ...]]  # pool name -> names of board memories
    constants: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QemuData:
    """How QEMU models the board: machine, and the input line that is the NPU's interrupt."""

    machine: str
    irq_object: str
    irq_name: str
    irq_line: int


@dataclass(frozen=True, slots=True)
class FvpData:
    """Arm's model of the board: binary and parameters; `{elf}`, `{macs}`, `{timeout_s}` are filled in."""

    binary: str
    arguments: tuple[str, ...]
    parameters: Mapping[str, str]
    fast_parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Board:
    """Everything firmware, linker and runners need to know of one board."""

    name: str
    description: str
    state: str  # "emulated": run on emulators here; "described": never run; a user's own word otherwise
    cpu: str  # GCC's -mcpu
    accelerators: tuple[str, ...]
    npu_base: int
    npu_size_bytes: int
    npu_irq: int
    npu_aliases: tuple[int, ...]
    uart_base: int
    uart_baud_divisor: int
    irq_count: int
    memories: tuple[BoardMemory, ...]
    code: str
    data: str
    io: str
    stack_bytes: int
    placements: Mapping[str, MemoryPlacement] = field(hash=False)
    qemu: QemuData | None = None
    fvp: FvpData | None = None
    path: Path | None = None

    def memory(self, name: str) -> BoardMemory:
        """The memory called `name`; `TargetDataError` lists the board's memories."""
        for memory in self.memories:
            if memory.name == name:
                return memory
        known = ", ".join(m.name for m in self.memories)
        raise TargetDataError(f"board {self.name!r} has no memory {name!r}; it has: {known}")

    def placement(self, memory_mode: str) -> MemoryPlacement:
        """Where pools and constants go in `memory_mode`, or in the mode it is like."""
        like = load_memory_mode(memory_mode).like if memory_mode in memory_mode_names() else ""
        for name in (memory_mode, like):
            if name in self.placements:
                return self.placements[name]
        raise TargetDataError(
            f"board {self.name!r} does not say where pools go in memory mode {memory_mode!r}; "
            f"it has: {', '.join(self.placements)}. Add [placement.{memory_mode}] to {self.path}"
        )


@dataclass(frozen=True, slots=True)
class MemoryMode:
    """Planned pools in region order (the first is region 1), and hard sizes where the mode has them."""

    name: str
    description: str
    pools: tuple[str, ...]
    like: str = ""
    capacity_bytes: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class AcceleratorSystem:
    """Defaults for an accelerator: system configuration of vela.ini, memory mode, board."""

    accelerator: str
    system_config: str
    memory_mode: str
    board: str


@lru_cache(maxsize=1)
def targets_folder() -> Path:
    """Folder of the data files: `npu_memplan/targets` of a wheel, `targets/` of a checkout."""
    package = Path(__file__).resolve().parent
    for candidate in (package / "targets", package.parent / "targets"):
        if (candidate / "accelerators.toml").is_file():
            return candidate
    raise TargetDataError(f"the data folder 'targets' is missing beside {package}; install npu_memplan again")


def _read(path: Path) -> dict[str, Any]:
    try:
        values: dict[str, Any] = _toml.loads(path.read_text(encoding="utf-8"))
        return values
    except OSError as error:
        raise TargetDataError(f"cannot read {path}: {error.strerror or error}") from None
    except (_toml.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TargetDataError(f"{path} is not TOML: {error}") from None


class _Table:
    """A TOML table that names file and key when something is missing or of the wrong type."""

    def __init__(self, path: Path, where: str, values: object) -> None:
        if not isinstance(values, dict):
            raise TargetDataError(f"{path}: [{where}] must be a table")
        self._path, self._where, self._values = path, where, values

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        value = self._values.get(key, default)
        label = f"{self._where}.{key}" if self._where else key
        if value is None:
            raise TargetDataError(f"{self._path}: {label} is missing; it must be {kind.__name__}")
        if not isinstance(value, kind) or (
            isinstance(value, int) and kind is int and (isinstance(value, bool) or value < 0)
        ):
            raise TargetDataError(f"{self._path}: {label} is {value!r}; it must be {kind.__name__}")
        return value

    def names(self, key: str, default: list[str] | None = None) -> tuple[str, ...]:
        values = self.get(key, list, default)
        if not all(isinstance(v, str) for v in values):
            raise TargetDataError(f"{self._path}: {self._where}.{key} must be a list of names")
        return tuple(values)

    def numbers(self, key: str) -> tuple[int, ...]:
        values = self.get(key, list, [])
        if not all(isinstance(v, int) for v in values):
            raise TargetDataError(f"{self._path}: {self._where}.{key} must be a list of addresses")
        return tuple(values)

    def table(self, key: str) -> _Table:
        where = f"{self._where}.{key}" if self._where else key
        return _Table(self._path, where, self._values.get(key, {}))

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def texts(self, key: str) -> dict[str, str]:
        return {name: str(value) for name, value in self.table(key)._values.items()}


def _memories(path: Path, values: dict[str, Any]) -> tuple[BoardMemory, ...]:
    found: list[BoardMemory] = []
    for index, entry in enumerate(values.get("memory", [])):
        table = _Table(path, f"memory[{index}]", entry)
        try:
            agents = frozenset(Agent(name) for name in table.names("reach"))
        except ValueError as error:
            known = ", ".join(a.value for a in Agent)
            raise TargetDataError(f"{path}: memory[{index}].reach: {error}; known: {known}") from None
        memory = BoardMemory(
            name=table.get("name", str),
            base=table.get("base", int),
            size_bytes=table.get("size_bytes", int),
            agents=agents,
            aliases=table.numbers("aliases"),
            read_only=table.get("read_only", bool, False),
        )
        for other in found:
            if memory.base < other.base + other.size_bytes and other.base < memory.base + memory.size_bytes:
                raise TargetDataError(f"{path}: memories {other.name} and {memory.name} overlap at {memory.base:#010x}")
        found.append(memory)
    if not found:
        raise TargetDataError(f"{path}: a board needs at least one [[memory]]")
    return tuple(found)


def _placements(top: _Table) -> dict[str, MemoryPlacement]:
    result = {}
    modes = top.table("placement")
    for mode in modes:
        table = modes.table(mode)
        pools = table.table("pools")
        result[mode] = MemoryPlacement({name: pools.names(name) for name in pools}, table.names("constants"))
    return result


def read_board(path: Path) -> Board:
    """Read and check one board file; `TargetDataError` names file, key and what is wrong."""
    values = _read(path)
    top = _Table(path, "", values)
    npu, uart, vectors, firmware = (top.table(k) for k in ("npu", "uart", "vectors", "firmware"))
    qemu, fvp = top.table("qemu"), top.table("fvp")
    board = Board(
        name=top.get("name", str),
        description=top.get("description", str, ""),
        state=top.get("state", str, "described"),
        cpu=top.get("cpu", str),
        accelerators=top.names("accelerators"),
        npu_base=npu.get("base", int),
        npu_size_bytes=npu.get("size_bytes", int, 0x1000),
        npu_irq=npu.get("irq", int),
        npu_aliases=npu.numbers("aliases"),
        uart_base=uart.get("base", int),
        uart_baud_divisor=uart.get("baud_divisor", int, 217),
        irq_count=vectors.get("irq_count", int, 96),
        memories=_memories(path, values),
        code=firmware.get("code", str),
        data=firmware.get("data", str),
        io=firmware.get("io", str),
        stack_bytes=firmware.get("stack_bytes", int, 0x4000),
        placements=_placements(top),
        qemu=QemuData(
            qemu.get("machine", str), qemu.get("irq_object", str), qemu.get("irq_name", str), qemu.get("irq_line", int)
        )
        if "qemu" in values
        else None,
        fvp=FvpData(
            fvp.get("binary", str), fvp.names("arguments"), fvp.texts("parameters"), fvp.texts("fast_parameters")
        )
        if "fvp" in values
        else None,
        path=path,
    )
    named = {board.code, board.data, board.io}
    for placement in board.placements.values():
        named |= {*placement.constants, *(m for names in placement.pools.values() for m in names)}
    for name in sorted(named):
        board.memory(name)
    if board.npu_irq >= board.irq_count:
        raise TargetDataError(f"{path}: npu.irq {board.npu_irq} is not below vectors.irq_count {board.irq_count}")
    return board


def board_names() -> tuple[str, ...]:
    """Names of the boards that come with npu_memplan."""
    return tuple(sorted(path.stem for path in (targets_folder() / "boards").glob("*.toml")))


def load_board(name: str | Path) -> Board:
    """A shipped board by name, or the user's own by the path of its file (ends in .toml)."""
    if isinstance(name, Path) or str(name).endswith(".toml"):
        return read_board(Path(name))
    path = targets_folder() / "boards" / f"{name}.toml"
    if not path.is_file():
        raise TargetDataError(
            f"unknown board {name!r}; known: {', '.join(board_names())}, or the path of your own board file (.toml)"
        )
    return read_board(path)


def memory_mode_names() -> tuple[str, ...]:
    """Names of the memory modes, in the file's order."""
    return tuple(_read(targets_folder() / "memory_modes.toml"))


def load_memory_mode(name: str) -> MemoryMode:
    """A memory mode by name; `TargetDataError` lists the known ones."""
    path = targets_folder() / "memory_modes.toml"
    modes = _read(path)
    if name not in modes:
        raise TargetDataError(f"unknown memory mode {name!r}; known: {', '.join(modes)}")
    table = _Table(path, name, modes[name])
    capacity = table.table("capacity_bytes")
    return MemoryMode(
        name=name,
        description=table.get("description", str),
        pools=table.names("pools"),
        like=table.get("like", str, ""),
        capacity_bytes={pool: capacity.get(pool, int) for pool in capacity},
    )


def accelerator_system(accelerator: str) -> AcceleratorSystem:
    """Default system configuration, memory mode and board of an accelerator."""
    path = targets_folder() / "accelerators.toml"
    systems = _read(path)
    if accelerator not in systems:
        raise TargetDataError(f"unknown accelerator {accelerator!r}; known: {', '.join(systems)}")
    table = _Table(path, accelerator, systems[accelerator])
    return AcceleratorSystem(
        accelerator, table.get("system_config", str), table.get("memory_mode", str), table.get("board", str)
    )
