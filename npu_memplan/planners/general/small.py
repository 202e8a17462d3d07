"""Exact branch and bound for anything: overlaps, alias offsets, fixed places, any conflict graph.

Invariant: complete within its budget of choices and work. Meant for a few dozen items, which `small.c` proves in
milliseconds, so it looks at no clock.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...compiled import FOUND, INFEASIBLE, compiled, int64s, structure, verdict
from ..model import Item, Model, Zones
from ..registry import Context
from ..subsets import irreducible
from .network import fits_c, network_of

_Task = structure("planners/general/distances.h", "SmallTask")


@dataclass(slots=True)
class SmallSearch:
    """Branch and bound over the items of one pool."""

    items: list[Item]
    pairs: list[tuple[int, int, Zones]]  # positions a and b, and what `origin[a] - origin[b]` must not be in
    nodes: int  # choices left to make
    work: int = 3_000_000  # looks at pairs left, some milliseconds
    origins: list[int] = field(default_factory=list)  # of the last placement found

    @staticmethod
    def over(model: Model, items: Sequence[Item], nodes: int) -> SmallSearch:
        """The search over `items` (zero-size ones left out by the caller) with a budget of choices."""
        inside = list(items)
        pairs = sorted(model.pairs(inside), key=lambda p: (-min(inside[p[0]].size, inside[p[1]].size), p[0], p[1]))
        return SmallSearch(inside, pairs, nodes)

    def below(self, ceiling: int) -> bool | None:
        """True: placed with every end <= `ceiling`; False: proven impossible; None: the budget is spent.

        None too without the compiled searches, or for ends that they cannot count to.
        """
        if any(item.home + item.size > ceiling for item in self.items):
            return False
        functions = compiled().functions
        if functions is None or not fits_c(self.items, ceiling):
            return None
        origin = int64s([0]) * len(self.items)
        task = _Task(ceiling=ceiling, nodes=self.nodes, work=self.work, origin=origin)
        network = network_of(self.items, self.pairs)
        answer = verdict(functions.npu_memplan_small(ctypes.byref(network), ctypes.byref(task)))
        self.nodes, self.work = task.nodes, task.work
        if answer == FOUND:
            self.origins = list(origin)
        return {FOUND: True, INFEASIBLE: False}.get(answer)


def small_subset(context: Context, items: Sequence[Item], capacity: int, nodes: int) -> list[Item]:
    """Those of `items` that cannot be together in `capacity` bytes, each proof within `nodes`; none can be left out."""

    def infeasible(trial: Sequence[Item]) -> bool:
        return SmallSearch.over(context.model, trial, nodes).below(capacity) is False

    return irreducible(items, infeasible, context.exhausted)
