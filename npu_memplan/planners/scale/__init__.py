"""Scale: thousands to millions of plain buffers, by many quick passes that learn.

The idea. With so many items nothing may grow with the number of conflicting pairs; a pass of first fit, compiled, is
affordable, a search is not. So the passes are improved instead:

* items live where memory is fullest come first, so the peak is packed before anything can stand in its way;
* what ends above the bound in one pass moves to the front for the next;
* several orders alternate, each with what it learned; later ones with some chance;
* the *core*, the items live at nearly peak load, is settled by the exact search, and the rest is placed around it.

Three passes, from quick to good. `stack.c` puts each item on top of the highest in its time, by a tree over time: O(n
log n), no holes filled, and with items in the right order it is near the bound all the same. `scan.c` fills holes by
scanning what is placed in order of offset, in linked blocks; `pairs.c` does so from a list of pairs that meet, while
there are few enough of these pairs to be listed.

`place_large` chooses orders and passes and keeps the best; it sorts with numpy (some 0.1 s to import), from
`LARGE_ITEMS` on.

Invariant: memory and time of a pass grow with the buffers and with what is live at one time, never with all conflicting
pairs (those are listed only while they are few). Every pass is a valid placement; the best is kept.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np

from ...compiled import Struct, c_library, check_verdict, header_structure
from .. import exact
from ..bounds import load_peak
from ..first_fit import Layout
from ..model import Item, Model
from ..registry import Context

MOST_PAIRS = 80_000_000  # pairs that are listed at most (4 bytes each)
MOST_SCANNED = 30_000  # items up to which scanning all placed ones is quick
SCAN_STEPS = 2_000_000_000  # of one pass over more items
SCAN_RATE = 300_000_000  # steps a second, about: a pass looks at no clock
NEARLY = 200  # a dense million is left at 1/200 above the bound when no time limit says to go on
PASSES = 24  # of one pool, when nothing else limits them
FIRST_PASSES = 8  # where a search over all items can follow
# now and then a pass goes around a settled core: items live where the load is at least a share of the bound
CORES = (0.95, 0.85, 0.75, 0.65, 0.9, 0.7, 0.55, 0.8)
CORE_PASSES = 3  # of each of two orders around one core
CORE_ITEMS = 4_000
CORE_ENTRIES = 400_000  # starts of items that fall into lifetimes
CORE_WORK = 4_000_000  # choices x items
# (share of the peak from which items count as critical, order among them)
BASES = (
    (0.99, "size"),
    (2.0, "area"),
    (2.0, "size"),
    (0.99, "duration"),
    (2.0, "duration"),
    (0.95, "duration"),
    (0.99, "area"),
    (2.0, "magnitude"),
)


def usable(model: Model) -> bool:
    """Whether hull intervals and plain sizes say enough: nothing fixed, no conflicts beyond lifetimes."""
    return not model.special and not model.extra and all(i.fixed is None and i.residue == 0 for i in model.items)


def place_large(context: Context) -> Layout | None:
    """Everything in its first pool; None when a hard pool is too small for that, or the problem is not plain."""
    model = context.model
    if not usable(model):
        return None
    count = len(model.items)
    layout = Layout(list(model.usual), [0] * count, [0] * len(model.capacity))
    for pool, capacity in enumerate(model.capacity):
        inside = [item for item in model.items if item.pools[0] == pool and item.size and item.lifetimes]
        if not inside:
            continue
        if sum(item.size for item in inside) >= 1 << 61:
            return None
        bound = load_peak(model, pool).bytes
        height, offsets = _Pool(inside, bound, capacity).search(context)
        if capacity is not None and height > capacity:
            if len(model.capacity) == 1:
                context.least_found = height
            return None
        for item, at in zip(inside, offsets, strict=True):
            layout.origins[item.index] = at
        layout.heights[pool] = height
    return layout


_Items = header_structure("planners/scale/scale.h", "Items")


def _call(name: str, items: Struct, *arguments: Any) -> int:
    """The answer of a compiled function about `items`; numpy's arrays and whole numbers are handed on."""
    handed = [ctypes.c_int64(a) if isinstance(a, int) else ctypes.c_void_p(a.ctypes.data) for a in arguments]
    return check_verdict(getattr(c_library().functions, f"npu_memplan_{name}")(ctypes.byref(items), *handed))


class _Pool:
    """The items of one pool as arrays, sorted by start."""

    def __init__(self, items: Sequence[Item], bound: int, capacity: int | None) -> None:
        self.items = items
        self.bound = bound
        count = len(items)
        first = np.fromiter((item.first for item in items), np.int64, count)
        last = np.fromiter((item.last for item in items), np.int64, count)
        points = np.unique(np.concatenate((first, last)))
        self.points = len(points)
        first, last = np.searchsorted(points, first), np.searchsorted(points, last)
        self.by_start = np.lexsort((np.arange(count), first))
        self.first, self.last = first[self.by_start], last[self.by_start]
        self.size = np.fromiter((item.size for item in items), np.int64, count)[self.by_start]
        self.align = np.fromiter((item.modulus for item in items), np.int64, count)[self.by_start]
        change = np.zeros(self.points + 1, np.int64)
        np.add.at(change, self.first, self.size)
        np.add.at(change, self.last, -self.size)
        self.load = np.cumsum(change)[: self.points]
        self.arrays = _Items(
            count=count, points=self.points, first=self.first, last=self.last, size=self.size, align=self.align
        )
        self.lists: Any = None
        self.preset = np.full(count, -1, np.int64)  # offsets of a settled core
        self.best: int | None = None
        self.offsets: Any = None

    def search(self, context: Context) -> tuple[int, list[int]]:
        """(height, offsets in the items' own order) of the best pass."""
        count = len(self.size)
        pairs = _call("count_pairs", self.arrays, MOST_PAIRS)
        # scanning all placed items beats gathering neighbours once there are very many of those
        if pairs <= MOST_PAIRS and (pairs < 100 * count or count > MOST_SCANNED):
            self.lists = np.zeros(count + 1, np.int64), np.zeros(max(1, pairs), np.int32)
            _call("list_pairs", self.arrays, *self.lists)
        offset = np.zeros(count, np.int64)
        random = Random(context.seed)
        bases = [self._base(share, kind) for share, kind in BASES]
        boosts = [np.zeros(count, np.int64) for _ in bases]
        if self.lists is None:
            for base in bases:
                self._keep(_call("stack", self.arrays, self._order(base, None), offset), offset)
            close = self.best is not None and self.best <= self.bound + self.bound // NEARLY
            if count > MOST_SCANNED and close and context.deadline is None:
                context.stopped_early = True
                return self._answer()
        for attempt in range(PASSES if count > exact.MOST_ITEMS else FIRST_PASSES):
            if self.best is not None and (self.best <= self.bound or context.is_exhausted()):
                break
            which = _turn(attempt, len(bases))
            base = bases[which]
            if attempt >= 2 * len(bases):
                jitter = np.random.default_rng(random.getrandbits(32)).normal(0.0, count / 200.0, count)
                base = base + jitter
            if not self._learn(context, base, boosts[which]):
                break  # too many to scan; what was stacked stands
            if attempt % 2 == 1 and attempt // 2 < len(CORES) and self._pack_core(context, CORES[attempt // 2]):
                for base in bases[1:3]:
                    boost = np.zeros(count, np.int64)
                    for _ in range(CORE_PASSES):
                        self._learn(context, base, boost)
                self.preset[:] = -1
        return self._answer()

    def _answer(self) -> tuple[int, list[int]]:
        """Height and offsets of the best pass, in the items' own order."""
        assert self.best is not None
        answer = np.empty(len(self.size), np.int64)
        answer[self.by_start] = self.offsets
        return self.best, [int(x) for x in answer]

    def _learn(self, context: Context, base: Any, boost: Any) -> bool:
        """One pass in the order of `base`; what ends above the bound comes earlier next time. False: gave up."""
        if self.best is not None and (self.best <= self.bound or context.is_exhausted()):
            return True
        offset = np.zeros(len(base), np.int64)
        height = self._pass(self._order(base, boost), offset, context.remaining_s())
        context.spend(max(1, len(base) // 16) if self.lists is not None else len(base))
        if height >= 0:
            self._keep(height, offset)
            boost[offset + self.size > self.bound] += 1
        else:
            context.stopped_early = True
        return height >= 0

    def _keep(self, height: int, offset: Any) -> None:
        if self.best is None or height < self.best:
            self.best, self.offsets = height, offset.copy()

    def _pack_core(self, context: Context, share: float) -> bool:
        """Settle the items live where memory is nearly fullest by exact search; the others are placed around them."""
        critical = np.concatenate(([0], np.cumsum(self.load >= share * self.bound)))
        core = np.flatnonzero(critical[self.last] > critical[self.first])
        starts = np.unique(self.first[core])  # there are no more sections than these
        entries = int((np.searchsorted(starts, self.last[core]) - np.searchsorted(starts, self.first[core])).sum())
        if len(core) > CORE_ITEMS or entries > CORE_ENTRIES:
            return False
        items = [self.items[k] for k in self.by_start[core]]
        search = exact.search_for(context.model, items, 0)
        if search is None:
            return False
        # a choice costs time in proportion to the items it has to look at
        nodes = CORE_WORK // max(300, len(items)) + 3 * len(items)
        limited = Context(context.model, context.seed, nodes, context.deadline)
        exact.run(search, limited, self.bound, self.bound)
        context.spend(search.nodes * len(items) // 1_000 + 1)
        if search.best is None:
            return False
        self.preset[:] = -1
        self.preset[core] = search.offsets
        return True

    def _base(self, share: float, kind: str) -> Any:
        """Rank of every item under one order."""
        duration = self.last - self.first
        key = {
            "size": -self.size,
            "duration": -duration,
            "area": -self.size.astype(np.float64) * duration,
            "magnitude": -np.floor(np.log2(self.size)) * (1 << 32) - duration,
        }[kind]
        critical = np.concatenate(([0], np.cumsum(self.load >= share * self.bound)))
        touches = critical[self.last] > critical[self.first]
        order = np.lexsort((self.first, key, ~touches))
        rank = np.empty(len(order), np.float64)
        rank[order] = np.arange(len(order))
        return rank

    def _order(self, base: Any, boost: Any) -> Any:
        return np.lexsort((base,)) if boost is None else np.lexsort((base, -boost))

    def _pass(self, order: Any, offset: Any, remaining_s: float | None) -> int:
        if self.preset.max() >= 0:
            order = np.concatenate((np.flatnonzero(self.preset >= 0), order[self.preset[order] < 0]))
        if self.lists is not None:
            return _call("fit_pairs", self.arrays, order, *self.lists, self.preset, offset)
        steps = SCAN_STEPS if len(self.size) > MOST_SCANNED else 1 << 62
        if remaining_s is not None:
            steps = min(steps, int(remaining_s * SCAN_RATE))
        return _call("fit_scan", self.arrays, order, self.preset, offset, steps)


def _turn(attempt: int, count: int) -> int:
    """The number of the next order: the first ones twice in a row, since a second pass learns from the first."""
    return (0, 0, 1, 2, 3, 4, 1, 2)[attempt] if attempt < 8 else attempt // 2 % count
