"""Spill: which items leave a pool that cannot hold them all, at the least cost.

The idea. Each item has a cost for each pool it may live in: bytes moved over bandwidth plus latency (bytes times rank
where pools state no speed). Choosing pools is a problem of its own; whether the chosen ones then pack is decided by the
other families. So the search is for assignments in order of cost, until one packs.

* Prices. Charge rent for bytes at every point of a pool, more where it is overfull; improved by
  subgradients. Everyone then takes its cheapest pool, and the total is a bound on the cost; it also says what any
  deviation adds to it.
* A first assignment comes from the prices, others from evicting what harms least at the most overloaded point, under
  several rules; each is repaired until it packs and then takes back what still fits (`assign`).
* For some dozens of items with a choice, a complete search below the bound (`branch`).

Invariant: a returned layout is complete and inside every hard pool; the cost is said to be least only when no
assignment costs less. Prices prove a bound whatever they are, as long as none is negative. Packings that were neither
found nor ruled out are `undecided`, so that a search that met one is not taken for a proof.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate

from . import exact
from . import general as general
from .first_fit import ORDERS, Layout, first_fit, fixed_first
from .general import SmallSearch
from .model import Item, Model, OutOfTime
from .registry import Context

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
        key = (pool, _items_in_pool(pools, pool))
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
            exact.run(search, limited, capacity, capacity)
        context.spend(search.nodes)
        found = search.offsets if search.best is not None else None
        return found, found is not None or search.low > capacity

    def _pack_general(
        self, limited: Context, sized: list[Item], pool: int, capacity: int
    ) -> tuple[list[int] | None, bool]:
        """`_search` for items that sections do not describe completely."""
        search = general.search_within(limited, sized, pool, 0, capacity)
        if search is None:
            return None, False
        self.context.spend(search.nodes)
        found = search.origins if search.best <= capacity else None
        return found, found is not None or search.low > capacity

    def is_settled(self, pools: Sequence[int]) -> bool:
        """Whether it is known of every pool that it packs or that it can not; to be read after `layout`."""
        return not any(
            (pool, _items_in_pool(pools, pool)) in self.undecided for pool in range(len(self.model.capacity))
        )

    def layout(self, pools: Sequence[int]) -> Layout | None:
        """The layout of an assignment, or None when a pool does not pack."""
        model = self.model
        origins = [0] * len(model.items)
        heights = [0] * len(model.capacity)
        for pool in range(len(model.capacity)):
            packed = self.pack(pool, pools)
            if packed is None:
                return None
            for i, at in zip(_items_in_pool(pools, pool), packed, strict=True):
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


def _items_in_pool(pools: Sequence[int], pool: int) -> tuple[int, ...]:
    """The items that are in `pool`."""
    return tuple(i for i, p in enumerate(pools) if p == pool)


ROUNDS = 300
WORK = 3_000_000  # looks at items and points, at most
STALL = 12  # rounds without a better bound before the step is shortened


@dataclass(frozen=True, slots=True)
class Relaxation:
    """`bound` is a cost no assignment can go below; `extra[i][k]` is what it grows by when item i takes its k-th
    pool; `rent[i][k]` what item i pays there."""

    bound: float
    extra: list[list[float]]
    rent: list[list[float]]


def relax(assigner: Assigner, best: float) -> Relaxation:
    """The bound at good prices; `best` is the cost of a known assignment (or a guess of it)."""
    model = assigner.model
    bounded = [pool for pool, capacity in enumerate(model.capacity) if capacity is not None]
    room = [capacity or 0 for capacity in model.capacity]
    costs = [[model.spill_cost(item.index, pool) for pool in item.pools] for item in model.items]
    sizes = assigner.sure
    prices = {pool: [0.0] * assigner.width for pool in bounded}
    found: Relaxation | None = None
    step, stalled = 1.0, 0
    rounds = min(ROUNDS, WORK // (len(sizes) + assigner.width * len(bounded) + 1) + 1)
    for _ in range(rounds):
        sums = {pool: [0.0, *accumulate(prices[pool])] for pool in bounded}
        rent = [
            [sizes[i] * _over(sums[pool], assigner.spans[i]) if pool in sums else 0.0 for pool in item.pools]
            for i, item in enumerate(model.items)
        ]
        totals = [[c + r for c, r in zip(costs[i], rent[i], strict=True)] for i in range(len(sizes))]
        least = [min(total) for total in totals]
        bound = sum(least) - sum(room[pool] * sums[pool][-1] for pool in bounded)
        if found is None or bound > found.bound:
            found = Relaxation(bound, [[t - m for t in total] for total, m in zip(totals, least, strict=True)], rent)
            stalled = 0
        else:
            stalled += 1
            if stalled == STALL:
                step, stalled = step * 0.6, 0
        over = {pool: [0] * (assigner.width + 1) for pool in bounded}
        for i, item in enumerate(model.items):
            pool = item.pools[totals[i].index(least[i])]
            if pool in over and sizes[i]:
                for first, last in assigner.spans[i]:
                    over[pool][first] += sizes[i]
                    over[pool][last] -= sizes[i]
        slope = {
            pool: [
                load - room[pool] if load > room[pool] or price > 0 else 0
                for load, price in zip(accumulate(over[pool]), prices[pool], strict=False)
            ]
            for pool in bounded
        }
        norm = sum(s * s for mine in slope.values() for s in mine)
        if not norm or assigner.context.is_exhausted():
            break
        length = step * max(best - bound, 1e-6 * max(1.0, best)) / norm
        for pool in bounded:
            prices[pool] = [max(0.0, p + length * s) for p, s in zip(prices[pool], slope[pool], strict=True)]
    assert found is not None, "there is at least one round"
    return found


def _over(sums: Sequence[float], spans: Sequence[tuple[int, int]]) -> float:
    return sum(sums[last] - sums[first] for first, last in spans)


CHOICES = 60_000
NEVER = 1e-9  # relative: what floats may be wrong by


def cheaper(cost: float, best: Layout | None) -> bool:
    """Whether `cost` is less than that of `best`, rounding aside."""
    return best is None or cost < best.cost - NEVER * max(1.0, best.cost)


def branch(
    assigner: Assigner, relaxation: Relaxation, flexible: Sequence[int], best: Layout | None
) -> tuple[Layout | None, bool]:
    """The cheapest layout, and whether none costs less; the bound of `relaxation` cuts the tree."""
    model, context = assigner.model, assigner.context
    # the item with the highest rent decides most about the rest
    order = sorted(flexible, key=lambda i: (-max(relaxation.rent[i]), i))
    pools = list(model.usual)
    size = assigner.sure
    loads = assigner.loads(pools, size, set(order))
    left = CHOICES
    complete = True
    doubtful = float("inf")  # cost of the cheapest assignment that could neither be packed nor ruled out

    def descend(depth: int, lower: float, cost: float) -> None:
        nonlocal best, left, complete, doubtful
        left -= 1
        if left < 0 or context.is_exhausted():
            complete = False
            return
        context.spend(1)
        if depth == len(order):
            layout = assigner.layout(pools) if cheaper(cost, best) else None
            if layout is not None:
                best = layout
            elif not assigner.is_settled(pools):
                doubtful = min(doubtful, cost)
            return
        i = order[depth]
        options = sorted(zip(relaxation.extra[i], model.items[i].pools, strict=True))
        for extra, pool in options:
            total = cost + model.spill_cost(i, pool)
            if not cheaper(max(lower + extra, total), best):
                continue
            capacity, load = model.capacity[pool], loads[pool]
            if capacity is not None and any(load[k] + size[i] > capacity for k in assigner.ranks[i]):
                continue
            pools[i] = pool
            for k in assigner.ranks[i]:
                load[k] += size[i]
            descend(depth + 1, lower + extra, total)
            for k in assigner.ranks[i]:
                load[k] -= size[i]
        pools[i] = model.items[i].pools[0]

    descend(0, relaxation.bound, 0.0)
    return best, complete and best is not None and not cheaper(doubtful, best)


EXACT_FLEXIBLE = 80  # items with a choice, up to which assignments are searched completely
MOST_ITEMS = 3_000
EVICTION_RULES = 3


def assign(context: Context, start: Layout | None) -> Layout | None:
    """The cheapest layout found, `start` (a valid one) among them."""
    model = context.model
    if len(model.items) > MOST_ITEMS:
        return start
    assigner = Assigner(context)
    best = start
    assigner.known = start is not None
    flexible = [item.index for item in model.items if len(item.pools) > 1 and item.size]
    worst = sum(model.spill_cost(i, model.items[i].pools[-1]) for i in flexible)
    relaxation = relax(assigner, worst if best is None else best.cost)
    best = _better(best, _by_price(assigner, flexible, relaxation))
    for rule in range(EVICTION_RULES):
        if best is not None and (best.cost == 0 or context.is_exhausted()):
            break
        best = _better(best, _greedy(assigner, rule))
    if best is not None and best.cost == 0:
        return best
    if len(flexible) <= EXACT_FLEXIBLE:
        best, context.cost_proven = branch(assigner, relaxation, flexible, best)
    return best


def _better(best: Layout | None, other: Layout | None) -> Layout | None:
    return other if other is not None and (best is None or other.key < best.key) else best


def _by_price(assigner: Assigner, flexible: Sequence[int], relaxation: Relaxation) -> Layout | None:
    """Items take their cheapest pool with room, those first whose stay is worth most for its rent."""
    model = assigner.model
    pools = list(model.usual)
    loads = assigner.loads(pools, without=set(flexible))
    for i in sorted(
        flexible, key=lambda i: (-model.spill_cost(i, model.items[i].pools[-1]) / max(1e-9, relaxation.rent[i][0]), i)
    ):
        pool = next((p for p in model.items[i].pools if assigner.fits(loads, i, p)), model.items[i].pools[-1])
        pools[i] = pool
        for k in assigner.ranks[i]:
            loads[pool][k] += model.items[i].size
    return _settle_pools(assigner, pools, loads, 0)


def _greedy(assigner: Assigner, rule: int) -> Layout | None:
    """Evict from overloaded pools in their order, repair until all pack, then take back what fits."""
    model = assigner.model
    pools = list(model.usual)
    loads = assigner.loads(pools)
    for _ in range(4 * len(model.items) + 1):
        worst = _overload(model, loads)
        if worst is None:
            break
        pool, at = worst
        mover = _cheapest(assigner, pools, loads, pool, at, rule)
        if mover is None:
            return None
        assigner.move(pools, loads, *mover)
    else:
        return None
    return _settle_pools(assigner, pools, loads, rule)


def _settle_pools(assigner: Assigner, pools: list[int], loads: list[list[int]], rule: int) -> Layout | None:
    """Evict until all pools pack (loads alone say too little), then take back what fits."""
    model = assigner.model
    for _ in range(len(model.items)):
        if assigner.known and assigner.context.is_exhausted():
            return None
        stuck = next((p for p in range(len(model.capacity)) if assigner.pack(p, pools) is None), None)
        if stuck is None:
            break
        fullest = max(range(assigner.width), key=lambda k: loads[stuck][k], default=0)
        mover = _cheapest(assigner, pools, loads, stuck, fullest, rule)
        if mover is None:
            return None
        assigner.move(pools, loads, *mover)
    spilled = sorted(
        (i for i, p in enumerate(pools) if p != model.items[i].pools[0]),
        key=lambda i: (-model.spill_cost(i, pools[i]), i),
    )
    for i in spilled:
        for pool in model.items[i].pools:
            if pool == pools[i] or assigner.context.is_exhausted():
                break
            trial = list(pools)
            trial[i] = pool
            fits = i in model.special or assigner.fits(loads, i, pool)
            if fits and assigner.pack(pool, trial) is not None and assigner.pack(pools[i], trial) is not None:
                assigner.move(pools, loads, i, pool)
                break
    return assigner.layout(pools)


def _overload(model: Model, loads: Sequence[Sequence[int]]) -> tuple[int, int] | None:
    """The pool and ranked point that is furthest over its size."""
    full = [(max(load, default=0), pool) for pool, load in enumerate(loads)]
    over = [(most - size, -pool) for most, pool in full if (size := model.capacity[pool]) is not None and most > size]
    if not over:
        return None
    pool = -max(over)[1]
    return pool, loads[pool].index(max(loads[pool]))


def _cheapest(
    assigner: Assigner, pools: Sequence[int], loads: Sequence[list[int]], pool: int, at: int, rule: int
) -> tuple[int, int] | None:
    """(item, other pool) to move away from `pool` at point `at`, by least harm under `rule`."""
    model = assigner.model
    capacity = model.capacity[pool] or 0
    best: tuple[float, int, int, int] | None = None
    for item in model.items:
        i = item.index
        if pools[i] != pool or not item.size or at not in assigner.ranks[i]:
            continue
        place = item.pools.index(pool)
        for other in item.pools[place + 1 :]:
            if not assigner.fits(loads, i, other):
                continue
            harm = model.access_cost(i, other) - model.access_cost(i, pool)
            if rule == 0:
                relief = sum(min(item.size, max(0, loads[pool][k] - capacity)) for k in assigner.ranks[i])
                harm /= max(1, relief)
            elif rule == 1:
                harm /= max(1, min(item.size, loads[pool][at] - capacity))
            key = (harm, -item.size, i, other)
            if best is None or key < best:
                best = key
            break
    return None if best is None else (best[2], best[3])
