"""Which operations to make in stripes so that no more bytes than a limit are alive at once, at the fewest cycles.

Invariant: the groups are disjoint and in program order; operations in no group are made at once, and at the limit
that was found no cheaper choice among the groups looked at is known.
"""

from __future__ import annotations

from itertools import islice

from .cascade_space import CascadeSpace
from .group import Group, RowGroup
from .rows import Sliced

_LONGEST = 12  # operations of a group that may begin and end anywhere
_HEIGHTS = (64, 32, 16, 8, 4, 2, 1)  # rows of the last layer at a time
_FEWEST = 2  # ways to cut channels that are tried: the fewest parts that fit
_LOWER = (
    3  # heights that are tried where a higher one fits too: what they need less of rolling buffers may hold weights
)


def least_bytes(groups: CascadeSpace) -> int:
    """The fewest bytes that any choice of groups keeps alive at its worst operation."""
    best = [0]  # of the first k operations
    for last in range(len(groups.chains.layers)):
        reached = max(best[last], groups.chains.whole_bytes[last])
        starts = _starts(groups, last)
        bounds = sorted((max(best[first], groups.least_bytes(first, last)), -first) for first in starts)
        for bound, first in bounds:
            if bound >= reached:
                break
            layers = groups.chains.chain(-first, last)
            if layers is not None:
                reached = min(reached, max(best[-first], _lowest(groups, layers).size_bytes))
            channels = groups.by_channels and groups.by_channels.least_bytes(-first, last)
            if channels:
                reached = min(reached, max(best[-first], channels))
        best.append(reached)
    return best[-1]


def choose(groups: CascadeSpace, limit_bytes: int) -> tuple[Group, ...]:
    """The cheapest groups with which at most `limit_bytes` are alive, or as few more as can be."""
    count = len(groups.chains.layers)
    best: list[tuple[int, int, tuple[Group, ...]]] = [(0, 0, ())]  # (bytes above the limit, cycles, groups)
    options: list[list[Group]] = [[] for _ in range(count + 1)]  # by the operation after the group
    for last in range(count):
        for first in _starts(groups, last):
            if max(groups.chains.whole_bytes[first : last + 1]) > limit_bytes >= groups.least_bytes(first, last):
                layers = groups.chains.chain(first, last)
                key = first, last, limit_bytes
                if layers and key not in groups.cheapest:
                    groups.cheapest[key] = _cheapest(groups, layers, limit_bytes)
                if found := groups.cheapest.get(key):
                    options[last + 1].append(found)
                if groups.by_channels:
                    options[last + 1] += islice(groups.by_channels.fitting(first, last, limit_bytes), _FEWEST)
    for stop in range(1, count + 1):
        above, cycles, chosen = best[stop - 1]
        over = max(0, groups.chains.whole_bytes[stop - 1] - limit_bytes)
        candidates = [(max(above, over), cycles + groups.whole_cycles(stop - 1), chosen)]
        for group in options[stop]:
            above, cycles, chosen = best[group.first]
            over = max(0, group.size_bytes - limit_bytes)
            candidates.append((max(above, over), cycles + group.cycles, (*chosen, group)))
        best.append(min(candidates, key=lambda c: c[:2]))
    return best[count][2]


def _starts(groups: CascadeSpace, last: int) -> list[int]:
    """Where groups that end with operation `last` begin: the last few operations, and those of `long_ranges`."""
    nearest = max(0, last + 1 - _LONGEST)
    return [*(first for first in groups.chains.long_ranges[last] if first < nearest), *range(nearest, last + 1)]


def _lowest(groups: CascadeSpace, layers: tuple[Sliced, ...]) -> RowGroup:
    """The layers a row at a time: of the last layer, or, where that needs fewer bytes, of every layer."""
    even = groups.even(layers, 1)
    return min(even, groups.group(layers, 1), key=lambda g: g.size_bytes) if len(layers) > 1 else even


def _cheapest(groups: CascadeSpace, layers: tuple[Sliced, ...], limit_bytes: int) -> RowGroup | None:
    """The layers in turn, at the fewest cycles within the limit; where none fits, in the lowest stripes."""
    if len(layers) == 1:
        single = groups.fitting(layers[0], limit_bytes)
        return single and groups.keeping(single, limit_bytes - single.size_bytes)
    best: RowGroup | None = None
    lower = 0
    for rows in _HEIGHTS:
        if rows >= layers[-1].output.height:
            continue
        group = groups.within(layers, rows, limit_bytes)
        if group is None:
            if rows == 1 and best is None:
                return _lowest(groups, layers)
            continue
        lower += 1
        group = groups.keeping(group, limit_bytes - group.size_bytes)
        if best is None or group.cycles < best.cycles:
            best = group
        if lower > _LOWER or not groups.may_keep or not any(groups.costs.kept(layer.index) for layer in layers):
            break
    return best
