"""Which operations to make in stripes so that the fewest bytes are alive at once, at the fewest cycles.

Invariant: the groups are disjoint and in program order; operations in no group are made at once, and at the limit
that was found no cheaper choice among the groups looked at is known.
"""

from __future__ import annotations

from .groups import Group, Groups

_LONGEST = 12  # operations of a group: longer ones keep ever more rows between their layers
_HEIGHTS = (64, 32, 16, 8, 4, 2, 1)  # rows of the last layer at a time, cheapest first


def least_bytes(groups: Groups) -> int:
    """The fewest bytes that any choice of groups keeps alive at its worst operation."""
    best = [0]  # of the first k operations
    for last in range(len(groups.layers)):
        reached = max(best[last], groups.whole_bytes[last])
        starts = range(max(0, last + 1 - _LONGEST), last + 1)
        bounds = sorted((max(best[first], groups.least_bytes(first, last)), -first) for first in starts)
        for bound, first in bounds:
            if bound >= reached:
                break
            layers = groups.chain(-first, last)
            if layers is not None:
                reached = min(reached, max(best[-first], groups.even(layers, 1).size_bytes))
        best.append(reached)
    return best[-1]


def choose(groups: Groups, limit_bytes: int) -> tuple[Group, ...]:
    """The cheapest groups with which at most `limit_bytes` are alive; what cannot be helped stays whole."""
    count = len(groups.layers)
    best: list[tuple[int, int, tuple[Group, ...]]] = [(0, 0, ())]  # (operations above the limit, cycles, groups)
    options: list[list[Group]] = [[] for _ in range(count + 1)]  # by the operation behind the group
    for first in range(count):
        for last in range(first, min(first + _LONGEST, count)):
            if max(groups.whole_bytes[first : last + 1]) <= limit_bytes:
                continue
            if groups.least_bytes(first, last) <= limit_bytes:
                found = _cheapest(groups, first, last, limit_bytes)
                if found is not None:
                    options[last + 1].append(found)
    for stop in range(1, count + 1):
        above, cycles, chosen = best[stop - 1]
        over = groups.whole_bytes[stop - 1] > limit_bytes
        candidates = [(above + over, cycles + groups.whole_cycles(stop - 1), chosen)]
        for group in options[stop]:
            above, cycles, chosen = best[group.first]
            candidates.append((above, cycles + group.cycles, (*chosen, group)))
        best.append(min(candidates, key=lambda c: c[:2]))
    return best[count][2]


def _cheapest(groups: Groups, first: int, last: int, limit_bytes: int) -> Group | None:
    """The operations in turn, in the highest stripes that keep the limit."""
    layers = groups.chain(first, last)
    if layers is None:
        return None
    if first == last:
        return groups.fitting(layers[0], limit_bytes)
    for rows in _HEIGHTS:
        if rows < layers[-1].output.height:
            group = groups.even(layers, rows)
            if group.size_bytes <= limit_bytes:
                return group
    return None
