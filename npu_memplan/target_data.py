"""Boards, accelerators' default systems and memory modes, read from the data in `targets/`.

Invariant: nothing about a board is known to code: a board is a TOML file, shipped or the
user's own, and everything in it has been checked when a `Board` exists. Addresses are the
CPU's, sizes are bytes. The data lies in `targets/` of the repository and in
`npu_memplan/targets` of an installed wheel.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from .errors import NpuMemplanError
from .files.schema import from_values
from .problem import Agent, Count

_toml: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


Address = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]  # of a Cortex-M; sizes and numbers of interrupts too


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

    pools: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # pool name -> names of board memories
    constants: tuple[str, ...] = ()


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
    capacity_bytes: Mapping[str, Count] = field(default_factory=dict, hash=False)
    constants_port: int = 1  # AXI port of the memory that constants and command streams lie in


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


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; `TargetDataError` when it cannot be read or is none."""
    try:
        values: dict[str, Any] = _toml.loads(path.read_text(encoding="utf-8"))
        return values
    except OSError as error:
        raise TargetDataError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:  # not TOML, not text, a number of 5,000 digits, endless nesting
        raise TargetDataError(f"{path} is not TOML: {error}") from None


# -- a board file, table by table; what has no default has to be there


@dataclass(frozen=True, slots=True)
class _Npu:
    base: Address
    irq: Address
    size_bytes: Address = 0x1000
    aliases: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class _Uart:
    base: Address
    baud_divisor: Address = 217


@dataclass(frozen=True, slots=True)
class _Vectors:
    irq_count: Address = 96


@dataclass(frozen=True, slots=True)
class _Firmware:
    code: str
    data: str
    io: str
    stack_bytes: Address = 0x4000


@dataclass(frozen=True, slots=True)
class _Memory:
    name: str
    base: Address
    size_bytes: Address
    reach: frozenset[Agent]
    aliases: tuple[Address, ...] = ()
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class _Fvp:
    binary: str
    arguments: tuple[str, ...] = ()
    parameters: Mapping[str, str | int | float] = field(default_factory=dict)
    fast_parameters: Mapping[str, str | int | float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BoardFile:
    """A board's TOML file."""

    name: str
    cpu: str
    accelerators: tuple[str, ...]
    npu: _Npu
    uart: _Uart
    firmware: _Firmware
    memory: Annotated[tuple[_Memory, ...], Meta(min_length=1)]
    placement: Mapping[str, MemoryPlacement] = field(default_factory=dict)
    vectors: _Vectors = _Vectors()
    description: str = ""
    state: str = "described"
    qemu: QemuData | None = None
    fvp: _Fvp | None = None


def _memories(path: Path, rows: Iterable[_Memory]) -> tuple[BoardMemory, ...]:
    found: list[BoardMemory] = []
    for row in rows:
        memory = BoardMemory(row.name, row.base, row.size_bytes, row.reach, row.aliases, row.read_only)
        for other in found:
            if memory.base < other.base + other.size_bytes and other.base < memory.base + memory.size_bytes:
                raise TargetDataError(f"{path}: memories {other.name} and {memory.name} overlap at {memory.base:#010x}")
        found.append(memory)
    return tuple(found)


def _fvp(row: _Fvp | None) -> FvpData | None:
    """The parameters as the FVP's command line wants them."""
    if row is None:
        return None
    parameters, fast = ({k: str(v) for k, v in values.items()} for values in (row.parameters, row.fast_parameters))
    return FvpData(row.binary, row.arguments, parameters, fast)


def read_board(path: Path) -> Board:
    """Read and check one board file; `TargetDataError` names file, key and what is wrong."""
    row = from_values(read_toml(path), BoardFile, str(path), TargetDataError)
    board = Board(
        name=row.name,
        description=row.description,
        state=row.state,
        cpu=row.cpu,
        accelerators=row.accelerators,
        npu_base=row.npu.base,
        npu_size_bytes=row.npu.size_bytes,
        npu_irq=row.npu.irq,
        npu_aliases=row.npu.aliases,
        uart_base=row.uart.base,
        uart_baud_divisor=row.uart.baud_divisor,
        irq_count=row.vectors.irq_count,
        memories=_memories(path, row.memory),
        code=row.firmware.code,
        data=row.firmware.data,
        io=row.firmware.io,
        stack_bytes=row.firmware.stack_bytes,
        placements=row.placement,
        qemu=row.qemu,
        fvp=_fvp(row.fvp),
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
    return tuple(read_toml(targets_folder() / "memory_modes.toml"))


def load_memory_mode(name: str) -> MemoryMode:
    """A memory mode by name; `TargetDataError` lists the known ones."""
    path = targets_folder() / "memory_modes.toml"
    modes = read_toml(path)
    if name not in modes:
        raise TargetDataError(f"unknown memory mode {name!r}; known: {', '.join(modes)}")
    return from_values({"name": name, **modes[name]}, MemoryMode, f"{path}: {name}", TargetDataError)


def accelerator_system(accelerator: str) -> AcceleratorSystem:
    """Default system configuration, memory mode and board of an accelerator."""
    path = targets_folder() / "accelerators.toml"
    systems = read_toml(path)
    if accelerator not in systems:
        raise TargetDataError(f"unknown accelerator {accelerator!r}; known: {', '.join(systems)}")
    row = {"accelerator": accelerator, **systems[accelerator]}
    return from_values(row, AcceleratorSystem, f"{path}: {accelerator}", TargetDataError)
