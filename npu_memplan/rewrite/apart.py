"""Calls whose storages share no byte: their kernels may be told so, and then need no checks for it when they run.

Invariant: said only of what holds for every value of the shape symbols: each two storages of a call lie in different
pools, or at known bytes that do not meet, or conflict in the planning problem, with no overlap that a formula uses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import combinations

from ..extract.program import Invoke
from ..extract.sizes import static_extent
from ..problem import Problem
from .pools import PoolSlot
from .primfunc import storages_of


class Apart:
    """Which calls have all their storages apart, in a plan of `problem` at `slots`.

    The sizes of `dynamic` storages depend on shape symbols; those in the problem are of one sample. `sharing` are the
    pairs whose formulas use an allowed overlap.
    """

    def __init__(
        self,
        problem: Problem,
        slots: Mapping[str, PoolSlot],
        dynamic: Collection[str] = (),
        sharing: Iterable[tuple[str, str]] = (),
    ) -> None:
        self.slots = slots
        self.buffers = {b.name: b for b in problem.buffers}
        self.dynamic = frozenset(dynamic)
        self.sharing = {frozenset(pair) for pair in sharing}
        self.sharing.update(
            frozenset(pair) for group in problem.aliases for pair in combinations([n for n, _ in group.members], 2)
        )

    def call(self, call: Invoke) -> bool:
        """Whether no two storages of `call` share a byte."""
        names = dict.fromkeys(name for name in storages_of(call) if name in self.slots)
        return all(self._pair(first, second) for first, second in combinations(names, 2))

    def _pair(self, first: str, second: str) -> bool:
        if self.slots[first].pool != self.slots[second].pool:
            return True
        if not {first, second} & self.dynamic:
            starts = [static_extent(self.slots[name].offset) for name in (first, second)]
            if starts[0] is not None and starts[1] is not None:
                sizes = [self.buffers[name].size_bytes for name in (first, second)]
                return starts[0] + sizes[0] <= starts[1] or starts[1] + sizes[1] <= starts[0]
        pair = frozenset((first, second))
        return pair not in self.sharing and self.buffers[first].meets(self.buffers[second])
