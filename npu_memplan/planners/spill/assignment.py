"""Which assignments of items to pools are possible: loads of the pools, and the packing of each.

Invariant: a packing that is returned is inside its pool; those neither found nor ruled out are `undecided`, so
so that a search that met them is not taken for a proof.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence

from ..errors import OutOfTime
from ..exact import least_height
from ..exact import search as exact
from ..first_fit.layout import Layout, first_fit, fixed_first
from ..first_fit.orders import ORDERS
from ..general import search as general
from ..general.small import SmallSearch
from ..model import Item
from ..registry import Context

PACK_SMALL = 40
PACK_NODES = 1_500
PACK_MOST = 1_000  # items


class Assigner:
    """Loads of the pools under an assignment, and the packing of single pools."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.model = model = context.model
        points = sorted({span[0] for item in model.items for span in item.lifetimes})
        rank = {point: k for k, point in enumerate(points)}
        self.width = len(points)
        # ranks of the points at which something begins: loads only peak there
        self.spans = [
            [(rank[first], bisect_left(points, last)) for first, last in item.lifetimes] for item in model.items
        ]
        self.ranks = [tuple(k for first, last in mine for k in range(first, last)) for mine in self.spans]
        self.rank_sets = [frozenset(mine) for mine in self.ranks]
        # bytes that an item surely needs: one with overlaps may need fewer than it has
        self.sure = [0 if item.index in model.special else item.size for item in model.items]
        self.packed: dict[tuple[int, tuple[int, ...]], list[int] | None] = {}
        self.known = False  # a layout is in hand, so that running out of budget may end the search for others
        self.undecided: set[tuple[int, tuple[int, ...]]] = set()  # packings neither found nor ruled out

    def loads(
        self, pools: Sequence[int], sizes: Sequence[int] | None = None, without: Collection[int] = ()
    ) -> list[list[int]]:
        """Bytes live in each pool at every ranked point; `sizes` are all bytes unless given."""
        sizes = sizes or self.model.sizes
        loads = [[0] * self.width for _ in self.model.capacity]
        for i, pool in enumerate(pools):
            if i not in without:
                for k in self.ranks[i]:
                    loads[pool][k] += sizes[i]
        return loads

    def pack(self, pool: int, pools: Sequence[int]) -> list[int] | None:
        """Origins of the items of `pool` (in item order) within its size, or None when none were found."""
        key = (pool, _inside(pools, pool))
        if key not in self.packed:
            self.packed[key] = self._pack(*key)
        return self.packed[key]

    def _pack(self, pool: int, inside: tuple[int, ...]) -> list[int] | None:
        model, context = self.model, self.context
        members = set(inside)
        forced = [pool if i in members else -1 for i in range(len(model.items))]
        for make in ORDERS:
            order = [i for i in fixed_first(model, make(model)) if i in members]
            context.spend(len(order) // 8 + 1)
            try:
                result = first_fit(model, order, forced=forced)
            except OutOfTime:
                self.undecided.add((pool, inside))
                return None
            if isinstance(result, Layout):
                return [result.origins[i] for i in inside]
            if len(members) > 200 and make is ORDERS[2]:
                break
        capacity = model.capacity[pool]
        if capacity is None:
            return None  # only fixed items in each other's way fail without a limit
        sized = [model.items[i] for i in inside if model.items[i].size]
        found, decided = self._search(sized, pool, capacity)
        if not decided:
            self.undecided.add((pool, inside))
        if found is None:
            return None
        origins = {i: model.items[i].home for i in inside}
        origins.update((item.index, at) for item, at in zip(sized, found, strict=True))
        return [origins[i] for i in inside]

    def _search(self, sized: list[Item], pool: int, capacity: int) -> tuple[list[int] | None, bool]:
        """Origins within `capacity`, or None; and whether that is settled."""
        context = self.context
        if len(sized) <= PACK_SMALL:
            small = SmallSearch.over(self.model, sized, PACK_NODES)
            result = small.below(capacity)
            context.spend(PACK_NODES - small.nodes)
            if result is not None:
                return (small.origins if result else None), True
        if len(sized) > PACK_MOST or not context.has_compiled():
            return None, False
        search = exact.search_for(self.model, sized, 0)
        limited = Context(self.model, context.seed, PACK_NODES * 4, context.deadline)
        if search is None:
            return self._pack_general(limited, sized, pool, capacity)
        if search.low <= capacity:
            least_height.run(search, limited, capacity, capacity)
        context.spend(search.nodes)
        found = search.offsets if search.best is not None else None
        return found, found is not None or search.low > capacity

    def _pack_general(
        self, limited: Context, sized: list[Item], pool: int, capacity: int
    ) -> tuple[list[int] | None, bool]:
        """The same where sections can not say everything."""
        search = general.within(limited, sized, pool, 0, capacity)
        if search is None:
            return None, False
        self.context.spend(search.nodes)
        found = search.origins if search.best <= capacity else None
        return found, found is not None or search.low > capacity

    def settled(self, pools: Sequence[int]) -> bool:
        """Whether it is known of every pool that it packs or that it can not; to be read after `layout`."""
        return not any((pool, _inside(pools, pool)) in self.undecided for pool in range(len(self.model.capacity)))

    def layout(self, pools: Sequence[int]) -> Layout | None:
        """The layout of an assignment, or None when a pool does not pack."""
        model = self.model
        origins = [0] * len(model.items)
        heights = [0] * len(model.capacity)
        for pool in range(len(model.capacity)):
            packed = self.pack(pool, pools)
            if packed is None:
                return None
            for i, at in zip(_inside(pools, pool), packed, strict=True):
                origins[i] = at
                heights[pool] = max(heights[pool], at + model.items[i].size)
        return Layout(list(pools), origins, heights, model.cost_of(pools))

    def move(self, pools: list[int], loads: Sequence[list[int]], i: int, pool: int) -> None:
        """Put item `i` into `pool`, in `pools` and in the loads."""
        size = self.model.items[i].size
        for k in self.ranks[i]:
            loads[pools[i]][k] -= size
            loads[pool][k] += size
        pools[i] = pool

    def fits(self, loads: Sequence[Sequence[int]], i: int, pool: int) -> bool:
        """Whether the load of `pool` leaves room for item `i` (whose overlaps, if any, may need less)."""
        capacity = self.model.capacity[pool]
        size = self.model.items[i].size
        return capacity is None or all(loads[pool][k] + size <= capacity for k in self.ranks[i])


def _inside(pools: Sequence[int], pool: int) -> tuple[int, ...]:
    """The items that are in `pool`."""
    return tuple(i for i, p in enumerate(pools) if p == pool)
