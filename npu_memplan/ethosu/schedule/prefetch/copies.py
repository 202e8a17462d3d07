"""Copies of constants: the bytes that are free for them, their schedules, and the programs that make them.

The rule of a schedule (`greedy.c`): each constant is sent as soon as the port is idle and its bytes are free, the one
that is read first before the others. Invariant: a byte that something occupies at an operation is not free there. A
copy holds its bytes from the kernel before its transfer to its last reader; every reader of a constant that is copied
reads the copy, and all other operations stay what they are. What is to begin inside a chain begins before it. Constants
that are in faster memory for good are one buffer, a parameter, one after the other; no transfer is added for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ....names import Names
from ...program.program import BufferRole, NpuBuffer, NpuOperation, NpuProgram, chain_bounds
from ..constants import GRAIN
from .timed_program import TimedProgram, TimedRun


@dataclass(frozen=True, slots=True)
class OccupiedRange:
    """Bytes `[start, stop)` that are in use from operation `first` to `last`, both included."""

    first: int
    last: int
    start: int
    stop: int


class FreeCapacity:
    """How many bytes are free below `limit_bytes`, in multiples of `grain`, wherever they are: for copies that
    are planned together with everything else. `used`: bytes at each operation.
    """

    placed = False  # whether copies get addresses, around the ranges `held`

    def __init__(self, held: Sequence[OccupiedRange], limit_bytes: int, operations: int, grain: int = 16) -> None:
        self.limit_bytes, self.grain = limit_bytes - limit_bytes % grain, grain
        self.used: NDArray[np.int64] = np.zeros(operations, np.int64)
        reach = np.zeros(operations, np.int64)  # end of the ranges added up so far, at each operation
        ordered = sorted(held, key=lambda h: (h.start, h.stop))
        for h in ordered:
            alive = slice(h.first, h.last + 1)
            self.used[alive] += np.maximum(0, h.stop - np.maximum(h.start, reach[alive]))
            np.maximum(reach[alive], h.stop, out=reach[alive])
        rows = [[h.first, h.last, h.start, h.stop + -h.stop % grain] for h in ordered if self.placed]
        self.held: NDArray[np.int64] = np.array(rows, np.int64).reshape(-1, 4)


class FreeRanges(FreeCapacity):
    """The free ranges of addresses around the buffers `held`."""

    placed = True


@dataclass(frozen=True, slots=True)
class Copy:
    """A constant (by its index) is copied before operation `before` to byte `at` of the pool."""

    constant: int
    before: int
    at: int
    unfinished: int = 2  # its bytes are free once so many kernels before it, at most, have not ended


@dataclass(frozen=True, slots=True)
class DmaSchedule:
    """Copies in the order of the stream, and the cycles of the program with them."""

    cycles: int
    copies: tuple[Copy, ...] = ()
    others: tuple[int, ...] = ()  # cycles under other models of time than that which made it


@dataclass(frozen=True, slots=True)
class Choice:
    """Parameters of the greedy rule: constants that stay, and how many operations early others are sent at most."""

    kept: frozenset[int] = frozenset()
    max_lead: Mapping[int, int] = field(default_factory=dict)
    fifo: bool = False  # none is sent while one that is read before has no room
    from_top: bool = False  # copies lie as high in the pool as they can


@dataclass(frozen=True, slots=True)
class Found:
    """The state of a search: it stands at a choice that costs so much; `best` is the best it met."""

    choice: Choice
    cost: float
    best: DmaSchedule


def insert(
    timed: TimedProgram, copies: tuple[Copy, ...], region: int, reblocked: bool
) -> tuple[NpuProgram, dict[str, int]]:
    """The program with `copies` to NPU region `region`, and their places; `reblocked`: kernels in other blocks."""
    program = timed.program
    names = Names(b.name for b in program.buffers)
    places: dict[str, int] = {}
    copied: dict[int, tuple[str, int]] = {}
    buffers = list(program.buffers)
    before: dict[int, list[NpuOperation]] = {}
    chains = chain_bounds(program.operations)
    for copy in copies:
        constant = timed.constants[copy.constant]
        name = names.unique_name(f"weights{len(copied)}")
        copied[copy.constant] = name, 0
        places[name] = copy.at
        buffers.append(NpuBuffer(name, constant.size_bytes, BufferRole.WEIGHTS, original_region=region))
        operator = program.operations[constant.readers[0]].operator
        before.setdefault(chains[copy.before][0], []).extend(constant.transfers(name, operator))
    operations: list[NpuOperation] = []
    for index in range(len(program.operations)):
        operations += before.get(index, ())
        operations.append(with_constant_read(timed, index, copied, reblocked))
    if tuple(operations) == program.operations:
        return program, {}
    return replace(program, buffers=tuple(buffers), operations=tuple(operations)), places


def with_constant_read(
    timed: TimedProgram, index: int, copies: Mapping[int, tuple[str, int]], reblocked: bool
) -> NpuOperation:
    """Operation `index`, which reads its constant in a copy where `copies` has one: by constant, buffer and byte."""
    operation, read = timed.program.operations[index], timed.reads.get(index)
    copied = read is not None and read in copies
    if reblocked and (index, copied) in timed.blocks:
        operation = replace(operation, registers={**operation.registers, **timed.blocks[index, copied]})
    return timed.constants[read].read_by(operation, *copies[read]) if read is not None and copied else operation


_NAME = "resident"
Chosen = frozenset[int]  # constants of a program


def cycles_with(timed: TimedProgram, resident: Iterable[int]) -> int:
    """Cycles of the program with these of its constants resident."""
    run, chosen = TimedRun(timed), frozenset(resident)
    for index in range(len(timed)):
        run.step(index, timed.reads.get(index) in chosen)
    return run.cycles


def choose(programs: Sequence[TimedProgram], most_bytes: int, weights: Sequence[float] = ()) -> list[Chosen]:
    """The constants of each program that save most cycles within `most_bytes` together, by the timing model.

    `weights`: how often each runs; without them, once. Cycles saved are taken to add up; they are counted once from
    where nothing is resident and once from where everything is, and the better of both choices is taken.
    """
    items = [(p, k) for p, timed in enumerate(programs) for k in range(len(timed.constants))]
    sizes = [programs[p].constants[k].size_bytes for p, k in items]
    everything = [frozenset(range(len(timed.constants))) for timed in programs]
    if sum(sizes) <= most_bytes:
        return everything
    weights = weights or [1.0] * len(programs)
    nothing = [cycles_with(timed, ()) for timed in programs]
    whole = [cycles_with(timed, all_) for timed, all_ in zip(programs, everything, strict=True)]
    gains: tuple[Callable[[int, int], float], ...] = (
        lambda p, k: weights[p] * (nothing[p] - cycles_with(programs[p], (k,))),
        lambda p, k: weights[p] * (cycles_with(programs[p], everything[p] - {k}) - whole[p]),
    )
    best: tuple[float, list[Chosen]] | None = None
    for gain in gains:
        picked = _knapsack(sizes, [gain(p, k) for p, k in items], most_bytes)
        chosen = [frozenset(items[i][1] for i in picked if items[i][0] == p) for p in range(len(programs))]
        cycles = sum(w * cycles_with(timed, one) for w, timed, one in zip(weights, programs, chosen, strict=True))
        if best is None or cycles < best[0]:
            best = cycles, chosen
    assert best is not None
    return best[1]


def _knapsack(sizes: Sequence[int], gains: Sequence[float], most_bytes: int) -> list[int]:
    """The items that gain most together within `most_bytes`; the first of equal ones."""
    room = max(0, most_bytes) // GRAIN
    best = np.zeros(room + 1)
    taken: list[np.ndarray[tuple[int], np.dtype[np.bool_]]] = []
    for size, gain in zip(sizes, gains, strict=True):
        grains, better = -(-size // GRAIN), np.zeros(room + 1, np.bool_)
        if gain > 0 and grains <= room:
            other = best[: room + 1 - grains] + gain
            better[grains:] = other > best[grains:]
            best[grains:] = np.maximum(best[grains:], other)
        taken.append(better)
    found, left = [], room
    for index in reversed(range(len(sizes))):
        if taken[index][left]:
            found.append(index)
            left -= -(-sizes[index] // GRAIN)
    return found[::-1]


def with_resident(
    timed: TimedProgram, chosen: Chosen, data: bytes, region: int, reblocked: bool
) -> tuple[NpuProgram, bytes]:
    """The program with the `chosen` constants in one buffer for NPU region `region`, and that buffer's bytes.

    `data` are the bytes of the program's constants. `reblocked`: kernels in the best blocks for where they read their
    constants; else in their own.
    """
    program, made = timed.program, bytearray()
    copies: dict[int, tuple[str, int]] = {}
    for k in sorted(chosen):
        copies[k] = _NAME, len(made)
        for start, stop in timed.constants[k].spans:
            made += data[start:stop].ljust(stop - start, b"\0")
    operations = [with_constant_read(timed, index, copies, reblocked) for index in range(len(program.operations))]
    buffers: list[NpuBuffer] = []
    for buffer in program.buffers:
        buffers.append(buffer)
        if buffer.role is BufferRole.CONSTANTS:
            size = len(made)
            buffers.append(
                NpuBuffer(_NAME, size, BufferRole.RESIDENT, original_region=region, original_offset=0, shape=(size,))
            )
    return replace(program, buffers=tuple(buffers), operations=tuple(operations)), bytes(made)
