"""Boards, read from the data in `targets/boards`.

Invariant: nothing about a board is known to code: a board is a TOML file, shipped or the
user's own, and everything in it has been checked when a `Board` exists. Addresses are the
CPU's, sizes are bytes.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field

from ..files.schema import from_values
from ..problem import Agent, Count
from .tables import (
    TargetDataError,
    load_memory_mode,
    memory_mode_names,
    near_names,
    plain_name,
    read_toml,
    targets_folder,
)

_TO_RUN = ("npu", "uart", "firmware")  # tables without which no firmware can be linked
Address = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]  # of a Cortex-M; sizes and numbers of interrupts too


class MemorySpeed(Struct, frozen=True, forbid_unknown_fields=True):
    """A memory as the NPU sees it; the figures are those of `targets/systems.toml`, in the NPU's cycles."""

    port: Literal[0, 1]
    clock_scale: Annotated[float, Meta(gt=0, le=4)]  # of a port's bytes a cycle; above 1: of several ports together
    read_latency: Count
    write_latency: Count = 0
    max_reads: Count = 0  # requests that may be unfinished at once; 0: not known, so no limit
    max_writes: Count = 0
    burst_bytes: Count = 0  # what Vela's configuration says a request has at least; 0: not known, so Arm's figure
    source: str = ""


_END = r"(?![\s\S])"  # `$` is also before the end of the last line
_NAME = Meta(pattern=rf"^[A-Za-z0-9][A-Za-z0-9_.-]{{0,63}}{_END}")  # they are part of C and of linker scripts
_MEMORY_NAME = Meta(pattern=rf"^[A-Za-z_][A-Za-z0-9_]{{0,63}}{_END}")
_CPU = Meta(pattern=rf"^[a-z0-9][a-z0-9.+-]{{0,63}}{_END}")  # it is part of CMake's files
_COMMENT = Meta(pattern=rf"^((?!\*/)[^\x00-\x1f\x7f])*{_END}")  # of C and of linker scripts


class BoardMemory(Struct, frozen=True, forbid_unknown_fields=True, rename={"agents": "reach"}):
    """One memory of a board: CPU bytes `[base, base + size_bytes)` and what reaches them."""

    name: Annotated[str, _MEMORY_NAME]
    base: Address
    size_bytes: Address
    agents: frozenset[Agent]
    aliases: tuple[Address, ...] = ()  # other base addresses of the same bytes
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


_Memories = Annotated[tuple[str, ...], Meta(min_length=1)]


class MemoryPlacement(Struct, frozen=True, forbid_unknown_fields=True):
    """Candidates, best first, for each planned pool and for the constants in one memory mode."""

    pools: Mapping[str, _Memories]  # pool name -> names of board memories
    constants: _Memories


class TimingAdapter(Struct, frozen=True, forbid_unknown_fields=True):
    """Registers of an FVP's timing adapter: it gives the memories behind one AXI port their speed."""

    port: Literal[0, 1]
    base: Address


class QemuMemory(Struct, frozen=True, forbid_unknown_fields=True):
    """Memory that QEMU's machine lacks and a plugin adds: its own from `first_word`, or an alias of `like`."""

    base: Address
    size_bytes: Address
    like: Address = 0
    first_word: Address = 0


class QemuData(Struct, frozen=True, forbid_unknown_fields=True):
    """How QEMU models the board: machine, and the input line that is the NPU's interrupt.

    Where the machine has its vectors elsewhere than the board, these are copied from `program_vectors`, where programs
    for the board have them, or from the start of the firmware's code to `machine_vectors`.
    """

    machine: str
    irq_object: str
    irq_name: str
    irq_line: int
    options: tuple[str, ...] = ()  # more of QEMU's command line
    program_vectors: Address = 0
    machine_vectors: Address = 0
    memories: tuple[QemuMemory, ...] = ()


class FvpData(Struct, frozen=True, forbid_unknown_fields=True):
    """Arm's model of the board: binary and parameters; `{elf}`, `{macs}`, `{timeout_s}` are filled in.

    `macs` are the multipliers of its NPU where no parameter says. Binaries of the same board with another NPU are
    `others`: their accelerators by name, the one that the binary has by itself first.
    """

    binary: str
    macs: int = 0
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    parameters: Mapping[str, str | int | float] = field(default_factory=dict)
    fast_parameters: Mapping[str, str | int | float] = field(default_factory=dict)


class NpuPlace(Struct, frozen=True, forbid_unknown_fields=True):
    """The NPU's registers and interrupt."""

    base: Address
    irq: Address
    size_bytes: Address = 0x1000
    aliases: tuple[Address, ...] = ()


class Uart(Struct, frozen=True, forbid_unknown_fields=True):
    base: Address
    baud_divisor: Address = 217


class Vectors(Struct, frozen=True, forbid_unknown_fields=True):
    irq_count: Address = 96


class FirmwarePlace(Struct, frozen=True, forbid_unknown_fields=True):
    """The memories that hold firmware, by name."""

    code: str
    data: str
    io: str
    stack_bytes: Address = 0x4000


class BoardClock(Struct, frozen=True, forbid_unknown_fields=True):
    npu_hz: Annotated[float, Meta(ge=0)] = 0.0  # 0: that of the system configuration
    cpu_hz: Annotated[float, Meta(ge=0)] = 0.0  # 0: not known


_TABLES = {"memories": "memory", "placements": "placement", "timing_adapters": "timing_adapter"}


class BoardFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename=_TABLES):
    """A board's TOML file; what has no default has to be there."""

    name: Annotated[str, _NAME]
    cpu: Annotated[str, _CPU]  # GCC's -mcpu
    accelerators: Annotated[tuple[str, ...], Meta(min_length=1)]
    memories: Annotated[tuple[BoardMemory, ...], Meta(min_length=1)]
    npu: NpuPlace = NpuPlace(0, 0)  # without it, [uart] and [firmware] a board is there to fit and to time
    uart: Uart = Uart(0)
    firmware: FirmwarePlace = FirmwarePlace("", "", "", 0)
    clock: BoardClock = BoardClock()
    system_config: str = ""  # the source of speeds and clock that are not here; empty: the accelerator's
    memory_mode: str = ""  # empty: the accelerator's
    sources: tuple[str, ...] = ()  # of the data here
    unknown: tuple[str, ...] = ()  # what no public text was found for, and what is assumed
    placements: Mapping[str, MemoryPlacement] = field(default_factory=dict)
    vectors: Vectors = Vectors()
    timing_adapters: tuple[TimingAdapter, ...] = ()  # of an FVP or FPGA
    aliases: tuple[str, ...] = ()  # product names: of the chip, of kits that carry it
    beside: tuple[str, ...] = ()  # boards that describe the other NPUs of this chip, as each of these sees its memories
    description: Annotated[str, _COMMENT] = ""
    state: str = "described"  # "emulated": run on emulators here; "described": never run; or a user's own word
    qemu: QemuData | None = None
    fvp: FvpData | None = None


class Board(BoardFile, frozen=True, kw_only=True):
    """Everything firmware, linker and runners need to know of one board."""

    path: Path

    @property
    def accelerator(self) -> str:
        """The NPU to compile for when none is named: its largest."""
        return self.accelerators[-1]

    def other_boards(self) -> tuple[Board, ...]:
        """The boards that describe the other NPUs of this chip; a file (.toml) is looked for next to this board's."""
        return tuple(load_board(self.path.parent / b if b.endswith(".toml") else b) for b in self.beside)

    @property
    def can_run(self) -> bool:
        """Whether firmware can be linked for it; else it is there to fit and to time."""
        return bool(self.firmware.code)

    def roomy_memory(self, names: Iterable[str], size_bytes: int) -> BoardMemory:
        """The first of the memories `names` that has `size_bytes`; the largest where none has."""
        found = [self.memory(name) for name in names]
        return next((m for m in found if m.size_bytes >= size_bytes), max(found, key=lambda m: m.size_bytes))

    def loading_of(self, memory: BoardMemory, size_bytes: int) -> str:
        """The program's task at each start where `memory` does not keep constants of `size_bytes` without power; empty
        where it does, and for emulators and FVPs, which load it with the program.
        """
        if memory.read_only or self.qemu is not None or self.fvp is not None:
            return ""
        kept = next((m.name for m in self.memories if m.read_only and m.size_bytes >= size_bytes), "")
        source = f"from {kept}" if kept else "no memory here keeps them"
        return f"{memory.name} is empty at power-on: load {size_bytes:,} bytes of constants at start ({source})"

    def memory(self, name: str) -> BoardMemory:
        """The memory called `name`; `TargetDataError` lists the board's memories."""
        for memory in self.memories:
            if memory.name == name:
                return memory
        known = ", ".join(m.name for m in self.memories)
        raise TargetDataError(f"board {self.name!r} has no memory {name!r}; it has: {known}")

    def memory_placement(self, memory_mode: str) -> MemoryPlacement:
        """The memories of pools and constants in `memory_mode`, or in the mode it is like."""
        like = load_memory_mode(memory_mode).like if memory_mode in memory_mode_names() else ""
        for name in (memory_mode, like):
            if name in self.placements:
                return self.placements[name]
        raise TargetDataError(
            f"board {self.name!r} does not say where pools go in memory mode {memory_mode!r}; "
            f"it has: {', '.join(self.placements)}; name one of these with --memory-mode, or give a copy of its file "
            f"with [placement.{memory_mode}] as --board FILE.toml"
        )


def read_board(path: Path) -> Board:
    """Read and check one board file; `TargetDataError` names file, key and what is wrong."""
    values = read_toml(path)
    row = from_values(values, BoardFile, str(path), TargetDataError)
    missing = [f"[{name}]" for name in _TO_RUN if name not in values]
    if missing and len(missing) < len(_TO_RUN):
        raise TargetDataError(
            f"{path} lacks {' and '.join(missing)}: to run firmware a board needs [npu], [uart] and [firmware]; "
            "without all three it is there to fit and to time"
        )
    for memory, other in itertools.combinations(row.memories, 2):
        if memory.name == other.name:
            raise TargetDataError(f"{path}: two memories are called {memory.name}; give each a name of its own")
        if memory.base < other.base + other.size_bytes and other.base < memory.base + memory.size_bytes:
            raise TargetDataError(f"{path}: memories {memory.name} and {other.name} overlap at {other.base:#010x}")
    board = Board(**msgspec.structs.asdict(row), path=path)
    named = {board.firmware.code, board.firmware.data, board.firmware.io} if board.can_run else set()
    for placement in board.placements.values():
        named |= {*placement.constants, *(m for names in placement.pools.values() for m in names)}
    for name in sorted(named):
        board.memory(name)
    for mode in board.placements:
        _check_placement(board, mode)
    if board.npu.irq >= board.vectors.irq_count:
        raise TargetDataError(
            f"{path}: npu.irq {board.npu.irq} is not below vectors.irq_count {board.vectors.irq_count}"
        )
    return board


def _check_placement(board: Board, mode: str) -> None:
    """`TargetDataError` where a pool has no memory that the NPU can write, or a pool of `mode` none at all."""
    pools = board.placements[mode].pools
    for pool in load_memory_mode(mode).pools if mode in memory_mode_names() else ():
        if pool not in pools:
            raise TargetDataError(f"{board.path}: [placement.{mode}] does not say where pool {pool!r} goes")
    for pool, names in pools.items():
        for memory in map(board.memory, names):
            if memory.read_only or Agent.NPU not in memory.agents:
                why = "is read only" if memory.read_only else "is none that the NPU reaches"
                raise TargetDataError(
                    f"{board.path}: [placement.{mode}] puts pool {pool!r} in memory {memory.name}, which {why}"
                )


def board_names() -> tuple[str, ...]:
    """Names of the boards that come with npu_memplan."""
    return tuple(sorted(path.stem for path in (targets_folder() / "boards").glob("*.toml")))


def load_board(name: str | Path) -> Board:
    """A shipped board by its name or a product's, in letters of any size, or the user's own by its file (.toml)."""
    if isinstance(name, Path) or str(name).endswith(".toml"):
        return read_board(Path(name))
    if name in board_names():
        return read_board(targets_folder() / "boards" / f"{name}.toml")
    called = _boards_by_any_name()
    if plain_name(name) in called:
        return called[plain_name(name)]
    file = f"did you mean the file {name}.toml? " if os.path.isfile(f"{name}.toml") else ""
    raise TargetDataError(
        f"unknown board {name!r}; {file or near_names(name, called, lambda key: called[key].name)}known: "
        f"{', '.join(board_names())}, or the path of your own board file (.toml)"
    )


def _boards_by_any_name() -> dict[str, Board]:
    """The shipped boards by the plain form of their names and aliases."""
    boards = [read_board(targets_folder() / "boards" / f"{name}.toml") for name in board_names()]
    return {plain_name(name): board for board in boards for name in (board.name, *board.aliases)}
