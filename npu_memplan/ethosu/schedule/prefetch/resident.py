"""Which constants save most cycles when they are in faster memory for good, and a program that reads them there.

Invariant: a program with resident constants computes what it computed without; no transfer is added. All resident
constants of a program are one buffer, a parameter, whose bytes are the constants one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from ...program.program import BufferRole, NpuBuffer, NpuProgram
from .insert import with_constant_read
from .reads import GRAIN
from .timed_program import TimedProgram, TimedRun

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
