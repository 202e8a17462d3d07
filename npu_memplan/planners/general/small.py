"""Exact branch and bound for anything: overlaps, alias offsets, fixed places, any conflict graph.

Invariant: complete. A state is a set of difference constraints between origins, and its
least solution; a pair that is in each other's way there is branched on, one branch for
every range of distances that is allowed. Python, meant for a few dozen items: small problems are
proven in milliseconds. Once the compiled searches are loaded, `small.c` does the same,
choice by choice, but for a deadline, which only Python looks at.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ...clock import now
from ...compiled import FOUND, INFEASIBLE, int64s, loaded, structure, verdict
from ..model import Item, Model
from ..registry import Context
from ..subsets import irreducible
from .network import fits_c, network_of

FORCED_PAIRS = 1_000  # up to which every pair is looked at for ranges that are ruled out
DEEPEST = 400  # choices on top of each other: Python's stack is finite

Range = tuple[int | None, int | None]  # allowed distances, closed; None: no limit
_Task = structure("planners/general/distances.h", "SmallTask")


@dataclass(slots=True)
class _Pair:
    """Items a and b (local positions) and the distances `origin[a] - origin[b]` they may have."""

    a: int
    b: int
    zones: tuple[tuple[int, int], ...]
    ranges: list[Range]
    weight: int


@dataclass(slots=True)
class SmallSearch:
    """Branch and bound over the items of one pool."""

    items: list[Item]
    pairs: list[_Pair]
    nodes: int  # choices left to make
    work: int = 3_000_000  # looks at pairs left, about a second
    deadline: float | None = None  # of `clock.now`
    origins: list[int] = field(default_factory=list)  # of the last placement found

    @staticmethod
    def over(model: Model, items: Sequence[Item], nodes: int) -> SmallSearch:
        """The search over `items` (zero-size ones left out by the caller) with a budget of choices."""
        inside = list(items)
        pairs = []
        for a, b, zones in model.pairs(inside):
            ranges: list[Range] = [(None, zones[0][0])]
            ranges += [(left[1], right[0]) for left, right in pairwise(zones)]
            ranges.append((zones[-1][1], None))
            pairs.append(_Pair(a, b, zones, ranges, min(inside[a].size, inside[b].size)))
        pairs.sort(key=lambda p: (-p.weight, p.a, p.b))
        return SmallSearch(inside, pairs, nodes)

    def below(self, ceiling: int) -> bool | None:
        """True: placed with every end <= `ceiling`; False: proven impossible; None: the nodes are spent."""
        least = [item.home for item in self.items]
        most = [ceiling - item.size if item.fixed is None else item.fixed for item in self.items]
        if any(a + item.size > ceiling or a > m for a, m, item in zip(least, most, self.items, strict=True)):
            return False
        functions = loaded() if self.deadline is None else None
        if functions is not None and fits_c(self.items, ceiling):
            return self._compiled(functions, ceiling)
        edges: list[list[tuple[int, int]]] = [[] for _ in self.items]
        return self._descend(least, most, edges, list(range(len(self.pairs))), 0)

    def _compiled(self, functions: Any, ceiling: int) -> bool | None:
        """The same search, compiled."""
        network = network_of(self.items, [(pair.a, pair.b, pair.zones) for pair in self.pairs])
        origin = int64s([0]) * len(self.items)
        task = _Task(ceiling=ceiling, nodes=self.nodes, work=self.work, origin=origin)
        answer = verdict(functions.npu_memplan_small(ctypes.byref(network), ctypes.byref(task)))
        self.nodes, self.work = task.nodes, task.work
        if answer == FOUND:
            self.origins = list(origin)
        return {FOUND: True, INFEASIBLE: False}.get(answer)

    def _raise(
        self, least: list[int], most: list[int], edges: list[list[tuple[int, int]]], start: Sequence[int]
    ) -> bool:
        """Least solution of the constraints, in place; False when an origin passes its limit."""
        work = list(start)
        while work:
            i = work.pop()
            at = least[i]
            for j, distance in edges[i]:
                if at + distance > least[j]:
                    value = self.items[j].align(at + distance)
                    if value > most[j]:
                        return False
                    least[j] = value
                    work.append(j)
        return True

    def _options(self, pair: _Pair, least: list[int], most: list[int]) -> list[Range]:
        """Ranges of the pair that its limits do not already rule out."""
        a, b = pair.a, pair.b
        least_a, least_b, most_a, most_b = least[a], least[b], most[a], most[b]
        return [
            (low, high)
            for low, high in pair.ranges
            if (low is None or least_b + low <= most_a) and (high is None or least_a - high <= most_b)
        ]

    def _descend(
        self, least: list[int], most: list[int], edges: list[list[tuple[int, int]]], undecided: list[int], depth: int
    ) -> bool | None:
        while True:
            best: tuple[int, list[Range]] | None = None
            self.work -= len(undecided)
            if self.work < 0:
                return None
            few = len(undecided) <= FORCED_PAIRS
            for p in undecided:  # this is where the time goes: no calls for most pairs
                pair = self.pairs[p]
                at_a, at_b, zones = least[pair.a], least[pair.b], pair.zones
                low, high = zones[0]
                wrong = low < at_a - at_b < high
                if len(zones) > 1 and not wrong:
                    for low, high in zones:  # many: a generator would take longer
                        if low < at_a - at_b < high:
                            wrong = True
                            break
                # of very many pairs only those in each other's way are worth a closer look, and none of those of one
                # zone whose limits leave both ranges, as they do of most
                if not wrong and (
                    not few or (len(zones) == 1 and at_a - low <= most[pair.b] and at_b + high <= most[pair.a])
                ):
                    continue
                options = self._options(pair, least, most)
                if not options:
                    return False
                if (wrong or len(options) == 1) and (best is None or len(options) < len(best[1])):
                    best = p, options
                    if len(options) == 1:
                        break
            if best is None:
                self.origins = list(least)
                return True
            p, options = best
            undecided = [q for q in undecided if q != p]
            if len(options) > 1:
                break
            if not self._add(self.pairs[p], options[0], least, most, edges):
                return False
        pair = self.pairs[p]
        # the branch that moves an origin least comes first
        distance = least[pair.a] - least[pair.b]
        options.sort(key=lambda r: max(0 if r[0] is None else r[0] - distance, 0 if r[1] is None else distance - r[1]))
        for option in options:
            self.nodes -= 1
            if self.nodes < 0 or depth > DEEPEST:
                return None
            if self.deadline is not None and now() > self.deadline:
                return None
            least_below = list(least)
            edges_below = [list(e) for e in edges]
            if self._add(pair, option, least_below, most, edges_below):
                result = self._descend(least_below, most, edges_below, undecided, depth + 1)
                if result is not False:
                    return result
        return False

    def _add(
        self, pair: _Pair, option: Range, least: list[int], most: list[int], edges: list[list[tuple[int, int]]]
    ) -> bool:
        """Restrict the pair to `option`; False when that can not be."""
        low, high = option
        if low is not None:
            edges[pair.b].append((pair.a, low))
        if high is not None:
            edges[pair.a].append((pair.b, -high))
        return self._raise(least, most, edges, (pair.a, pair.b))


def small_subset(context: Context, items: Sequence[Item], capacity: int, nodes: int) -> list[Item]:
    """Those of `items` that cannot be together in `capacity` bytes, each proof within `nodes`; none can be left out."""

    def infeasible(trial: Sequence[Item]) -> bool:
        return SmallSearch.over(context.model, trial, nodes).below(capacity) is False

    return irreducible(items, infeasible, context.exhausted)
