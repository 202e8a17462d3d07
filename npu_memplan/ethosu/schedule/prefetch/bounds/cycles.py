"""Cycles that no schedule of copies goes below, for one order of operations and one plan of maps.

Invariant: a bound of `course`'s clock, never an estimate, whether kernels run in their own blocks or in the best for
where their constants are. It is the most of four, each of which holds by itself:
the constants' port, each constant once; the kernels as if constants came from wherever they can sooner, and those that
can be copied kept no memory busy; all memories at once, since what a copy spares one it writes to another; and what
the port must still bring when an operation ends, because only what the maps leave free can be there already.
Constants that have no room are read in place (`staying`), and as many of those that are read again as cannot all be
kept (`capacity_windows`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from ....time.cost import ResourceUse
from ..timed_program import TimedProgram, TimedRun
from .capacity import CapacityWindow, capacity_windows, delay, put_off
from .needs import with_least_needs
from .work import port_cycles

_WEIGHTS = 8  # steps between counting one memory and counting the other
_UNFINISHED = 2  # operations before a copy that may have begun and not ended: at most, `greedy.Copy`


def least_cycles(timed: TimedProgram, free_bytes: Sequence[int], in_slices: bool = False) -> int:
    """The bound. `free_bytes`: of the pool of copies while each operation runs, copies not counted. `in_slices`: about
    what no slices of the operations go below, for which copies have room where those of the whole have none.
    """
    stays = frozenset[int]() if in_slices else staying(timed, free_bytes)
    windows = () if in_slices else tuple(capacity_windows(timed, free_bytes, stays))
    begins, put_offs = {window.first: window for window in windows}, dict[int, float]()
    ends, run = [], TimedRun(with_least_needs(timed, stays))
    for index in range(len(timed)):
        if index in begins:
            put_offs[begins[index].last] = delay(timed, begins[index], run.clock, stays)
        run.step(index, False)
        if index in put_offs:
            put_off(run.clock, run.timed.step(index).slow, put_offs[index])
        ends.append(run.clock.engines.end)
    late = _brought_late(timed, *_least_brought(timed, stays, windows), ends, free_bytes)
    return int(max(run.cycles, _memories(timed, stays), late))


def staying(timed: TimedProgram, free_bytes: Sequence[int]) -> frozenset[int]:
    sizes = enumerate(constant.size_bytes for constant in timed.constants)
    spans = [slice(constant.readers[0], constant.readers[-1] + 1) for constant in timed.constants]
    return frozenset(k for k, size in sizes if size > min(free_bytes[spans[k]]))


def _least_brought(
    timed: TimedProgram, stays: Collection[int], windows: Sequence[CapacityWindow]
) -> tuple[list[float], list[float]]:
    """Of each operation, cycles of the constants' memory for what it reads first and may be copied before, and for
    what it certainly reads in place. More may be copied than is read: up to the grain, or of small operands.
    """
    count, far = len(timed), timed.memory_map.regions[0].name
    copied, in_place, again = [0.0] * count, [0.0] * count, dict[int, float]()
    for k, constant in enumerate(timed.constants):
        for i in constant.readers:
            in_place[i] += min(needs.traffic.cycles_of(far) for needs in timed.forms(i)[0])
        if k not in stays:
            port = port_cycles(constant.size_bytes, timed.program.accelerator, timed.memory_map)
            read = sum(in_place[i] for i in constant.readers)
            copied[constant.readers[0]] += min(port, read)
            again[k] = max(0.0, read - port)
            for i in constant.readers:
                in_place[i] = 0.0
    for window in windows:
        in_place[window.first] += window.least(again, [constant.size_bytes for constant in timed.constants])
    return copied, in_place


def _memories(timed: TimedProgram, stays: Collection[int]) -> float:
    """No memory's busy time is above the total, so no mean of them is; each constant is copied or not, as is less, but
    for those that stay.
    """
    names = sorted({load.memory.name for index in range(len(timed)) for load in timed.step(index).slow.loads})
    far = timed.memory_map.regions[0].name
    parts = [
        [part / _WEIGHTS if name == far else (1 - part / _WEIGHTS) * (name == near) for name in names]
        for near in names
        if near != far
        for part in range(_WEIGHTS + 1)
    ]
    weights = np.array(parts or [[1.0]]).T

    def weighed(forms: Iterable[Sequence[ResourceUse]]) -> NDArray[np.float64]:
        """Of each operation and for each mean, in the form in which it is least."""
        busy = [[[needs.traffic.cycles_of(name) for name in names] for needs in (one[0], one[-1])] for one in forms]
        least: NDArray[np.float64] = (np.array(busy) @ weights).min(axis=1)
        return least

    reads = np.array([timed.reads.get(index, len(timed.constants)) for index in range(len(timed))])
    in_place, near_by = (np.zeros((len(timed.constants) + 1, weights.shape[1])) for _ in range(2))
    np.add.at(in_place, reads, weighed(timed.forms(index)[0] for index in range(len(timed))))
    np.add.at(near_by, reads, weighed(timed.forms(index)[1] for index in range(len(timed))))
    sent = [(k, stop - start) for k, constant in enumerate(timed.constants) for start, stop in constant.spans]
    if sent:
        np.add.at(near_by, [k for k, _ in sent], weighed([timed.transfer(size)] for _, size in sent))
    near_by[sorted(stays)] = np.inf
    return float(np.minimum(in_place, near_by).sum(axis=0).max())


def _brought_late(
    timed: TimedProgram,
    copied: Sequence[float],
    in_place: Sequence[float],
    ends: Sequence[float],
    free_bytes: Sequence[int],
) -> float:
    """When a kernel ends, at most the free bytes hold constants of later ones; the port brings the others then.

    Loads that begin at or after a time keep their memory busy from then on for as long as all of them take, and the
    clock does not end before. (Kernels after the last that is brought add nothing: which of two that share a memory is
    later depends on the schedule.)
    No load has begun, when a kernel ends, of what is read in place by kernels that cannot be in flight with it, nor of
    copies that hold no bytes while it runs: one that holds bytes from `_UNFINISHED` operations before it on waits for
    all kernels before those; a transfer among those operations is none, so that it waits for one kernel less.
    """
    accelerator, count = timed.program.accelerator, len(timed)
    later = [*accumulate(reversed(copied), initial=0.0)][::-1]  # from an operation on
    read = [*accumulate(reversed(in_place), initial=0.0)][::-1]
    transfers = [timed.step(i).slow.is_transfer for i in range(count)]
    kernels = [i for i in range(count) if not transfers[i]]
    most, ended = later[0] + read[0], 0
    for k in range(count):
        ended += not transfers[k]
        over = ended - sum(transfers[k + 1 : k + 1 + _UNFINISHED])
        begins = over + accelerator.max_outstanding_kernels - 1
        if over > 0 and begins < len(kernels):
            first = kernels[begins]
            there = port_cycles(free_bytes[k], accelerator, timed.memory_map)
            most = max(most, ends[kernels[over - 1]] + read[first] + max(0.0, later[first] - there))
    return most
