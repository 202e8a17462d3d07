"""Constants that several operations read, of which not all can be kept from the first to the last.

Invariant: bounds. At any moment copies of no more than the free bytes are there, so constants of as many bytes as are
too many stay where they are, and all of their readers read them in place; the fewest cycles of these are what is added.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from ....time import TimingModel
from ....time.cost import ResourceUse
from ..timed_program import TimedProgram


@dataclass(frozen=True, slots=True)
class CapacityWindow:
    """Operations `[first, last]` within which the constants are read that some of them read again."""

    first: int
    last: int
    moments: tuple[tuple[int, tuple[int, ...]], ...]  # bytes that are too many, and the constants: one of them, or more

    def least(self, costs: Mapping[int, float], sizes: Sequence[int]) -> float:
        """The least that constants cost of which so many stay as must; of the moments, the one where that is most."""
        return max(
            _cover([(costs.get(k, 0.0), sizes[k]) for k in constants], excess_bytes)
            for excess_bytes, constants in self.moments
        )


def capacity_windows(
    timed: TimedProgram, free_bytes: Sequence[int], stays: Collection[int]
) -> Iterator[CapacityWindow]:
    """Crowds, each after the one before. `stays`: constants that are never copied."""
    constants = timed.constants
    kept = [k for k, constant in enumerate(constants) if len(constant.readers) > 1 and k not in stays]
    reach = [-1, *accumulate((constants[k].readers[-1] for k in kept), max)]
    starts = [i for i, k in enumerate(kept) if constants[k].readers[0] > reach[i]]
    for start, stop in pairwise([*starts, len(kept)]):
        moments = []
        for operation in (constants[k].readers[0] for k in kept[start:stop]):
            there = tuple(
                k for k in kept[start:stop] if constants[k].readers[0] <= operation <= constants[k].readers[-1]
            )
            excess_bytes = sum(constants[k].size_bytes for k in there) - free_bytes[operation]
            if excess_bytes > 0:
                moments.append((excess_bytes, there))
        if moments:
            yield CapacityWindow(constants[kept[start]].readers[0], reach[stop], tuple(moments))


def _cover(items: list[tuple[float, int]], excess_bytes: int) -> float:
    """The least cost of some (cost, bytes) that have so many bytes together: in parts, or as many as it takes of the
    largest.
    """
    largest = accumulate(sorted((size for _, size in items), reverse=True))
    count = 1 + sum(size < excess_bytes for size in largest)
    whole = sum(sorted(cost for cost, _ in items)[:count])
    parts, left = 0.0, excess_bytes
    for cost, size in sorted(items, key=lambda item: item[0] / item[1]):
        parts += cost * min(1.0, left / size)
        left -= min(left, size)
    return max(whole, parts)


def delay(timed: TimedProgram, window: CapacityWindow, clock: TimingModel, stays: Collection[int]) -> float:
    """Before the crowd: when, at least, the multipliers have done its last kernel.

    Each multiplies when the one before has put out, after what that multiplied; and is not done before its own
    weights are there, which it requests no sooner than that has multiplied.
    """
    multiplied, tail = clock.engines.multipliers, clock.engines.output - clock.engines.multipliers
    costs: dict[int, float] = {}
    for index in range(window.first, window.last + 1):
        in_place, copied = timed.forms(index)
        if in_place[0].is_transfer:
            continue
        forms, constant = (*in_place, *copied), timed.reads.get(index, -1)
        least = tail + min(needs.multipliers for needs in forms)
        brought = min(max((sum(load) for load in needs.traffic.weights), default=0.0) for needs in in_place)
        if constant in stays:
            least = max(least, brought)
        costs[constant] = costs.get(constant, 0.0) + max(0.0, brought - least)
        multiplied += least
        tail = min(needs.output / needs.blocks for needs in forms)
    return multiplied + window.least(costs, [constant.size_bytes for constant in timed.constants])


def put_off(clock: TimingModel, kernel: ResourceUse, multiplied: float) -> None:
    """The last kernel, which ran as `kernel`, has multiplied at that time, if not later."""
    engines = clock.engines
    late = max(0.0, multiplied + _tail(kernel) - engines.write)
    clock.engines = replace(
        engines,
        multipliers=max(engines.multipliers, multiplied),
        output=max(engines.output, multiplied + kernel.output / kernel.blocks),
        write=engines.write + late,
        end=engines.end + late,
        block=engines.block + late / kernel.blocks,
    )
    clock.kernels[-1] += late


def _tail(kernel: ResourceUse) -> float:
    """Cycles from a kernel's last multiplication to its last write: those of a block."""
    return (kernel.output + kernel.traffic.output_cycles) / kernel.blocks
