"""Boards, read from the data in `targets/boards`.

Invariant: nothing about a board is known to code: a board is a TOML file, shipped or the
user's own, and everything in it has been checked when a `Board` exists. Addresses are the
CPU's, sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from ..files.schema import from_values
from ..problem import Agent, Count
from .tables import TargetDataError, load_memory_mode, memory_mode_names, read_toml, targets_folder

Address = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]  # of a Cortex-M; sizes and numbers of interrupts too


@dataclass(frozen=True, slots=True)
class MemorySpeed:
    """A memory as the NPU sees it; the figures are those of `targets/systems.toml`, in the NPU's cycles."""

    port: Literal[0, 1]
    clock_scale: Annotated[float, Meta(gt=0, le=1)]  # of the port's bytes a cycle
    read_latency: Count
    write_latency: Count = 0
    max_reads: Count = 0  # requests that may be unfinished at once; 0: not known, so no limit
    max_writes: Count = 0
    source: str = ""


@dataclass(frozen=True, slots=True)
class BoardMemory:
    """One memory of a board: CPU bytes `[base, base + size_bytes)` and who reaches them."""

    name: str
    base: int
    size_bytes: int
    agents: frozenset[Agent]
    aliases: tuple[int, ...] = ()  # other base addresses of the same bytes
    read_only: bool = False  # flash: holds constants, no pools
    dma: bool | None = None  # whether the system's DMA reaches it; None: not known
    speed: MemorySpeed | None = None  # None: as fast as `like`
    like: str = ""  # a memory of the system configuration; empty: the one that the memory mode has there
    source: str = ""  # of address and size

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
    npu_hz: float = 0.0  # 0: that of the system configuration
    cpu_hz: float = 0.0  # 0: not known
    system_config: str = ""  # what Vela is told; empty: the accelerator's
    memory_mode: str = ""  # empty: the accelerator's
    sources: tuple[str, ...] = ()  # of what is said here
    unknown: tuple[str, ...] = ()  # what no public text was found for, and what stands in its place

    @property
    def accelerator(self) -> str:
        """The NPU to compile for when nobody names one: its largest."""
        return self.accelerators[-1]

    @property
    def runs(self) -> bool:
        """Whether firmware can be linked for it; else it is there to fit and to time."""
        return bool(self.code)

    def room(self, names: Iterable[str], size_bytes: int) -> BoardMemory:
        """The first of the memories `names` that has `size_bytes`; the largest where none has."""
        found = [self.memory(name) for name in names]
        return next((m for m in found if m.size_bytes >= size_bytes), max(found, key=lambda m: m.size_bytes))

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
    dma: bool | None = None
    speed: MemorySpeed | None = None
    like: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class _Clock:
    npu_hz: Annotated[float, Meta(ge=0)] = 0.0
    cpu_hz: Annotated[float, Meta(ge=0)] = 0.0


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
    accelerators: Annotated[tuple[str, ...], Meta(min_length=1)]
    memory: Annotated[tuple[_Memory, ...], Meta(min_length=1)]
    npu: _Npu | None = None  # without it, [uart] and [firmware] a board is there to fit and to time
    uart: _Uart | None = None
    firmware: _Firmware | None = None
    clock: _Clock = _Clock()
    system_config: str = ""
    memory_mode: str = ""
    sources: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    placement: Mapping[str, MemoryPlacement] = field(default_factory=dict)
    vectors: _Vectors = _Vectors()
    description: str = ""
    state: str = "described"
    qemu: QemuData | None = None
    fvp: _Fvp | None = None


def _memories(path: Path, rows: Iterable[_Memory]) -> tuple[BoardMemory, ...]:
    found: list[BoardMemory] = []
    for row in rows:
        memory = BoardMemory(
            row.name,
            row.base,
            row.size_bytes,
            row.reach,
            row.aliases,
            row.read_only,
            row.dma,
            row.speed,
            row.like,
            row.source,
        )
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
    parts = {"npu": row.npu, "uart": row.uart, "firmware": row.firmware}
    missing = [f"[{name}]" for name, part in parts.items() if part is None]
    if missing and len(missing) < len(parts):
        raise TargetDataError(
            f"{path} lacks {' and '.join(missing)}: to run firmware a board needs [npu], [uart] and [firmware]; "
            "without all three it is there to fit and to time"
        )
    npu, uart = row.npu or _Npu(0, 0), row.uart or _Uart(0)
    firmware = row.firmware or _Firmware("", "", "", 0)
    board = Board(
        name=row.name,
        description=row.description,
        state=row.state,
        cpu=row.cpu,
        accelerators=row.accelerators,
        npu_base=npu.base,
        npu_size_bytes=npu.size_bytes,
        npu_irq=npu.irq,
        npu_aliases=npu.aliases,
        uart_base=uart.base,
        uart_baud_divisor=uart.baud_divisor,
        irq_count=row.vectors.irq_count,
        memories=_memories(path, row.memory),
        code=firmware.code,
        data=firmware.data,
        io=firmware.io,
        stack_bytes=firmware.stack_bytes,
        placements=row.placement,
        qemu=row.qemu,
        fvp=_fvp(row.fvp),
        path=path,
        npu_hz=row.clock.npu_hz,
        cpu_hz=row.clock.cpu_hz,
        system_config=row.system_config,
        memory_mode=row.memory_mode,
        sources=row.sources,
        unknown=row.unknown,
    )
    named = {board.code, board.data, board.io} if board.runs else set()
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
