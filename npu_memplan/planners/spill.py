"""Which buffers leave a pool that cannot hold them all: least cost first, then packing.

Invariant: a returned layout is complete and inside every hard pool. Small problems are
settled by branch and bound over assignments (`context.cost_proven`); larger ones by
greedy eviction under several rules, each repaired until it packs and then improved by
taking back what still fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from . import exact, general
from .first_fit import ORDERS, Layout, by_size, first_fit, fixed_first
from .general import General
from .model import Item, Model
from .registry import Context
from .small import SmallSearch

EXACT_FLEXIBLE = 22  # items with a choice, up to which assignments are enumerated
EXACT_CHOICES = 20_000
MOST_ITEMS = 3_000
PACK_SMALL = 40
PACK_NODES = 1_500
EVICTION_RULES = 3


class Assigner:
    """Loads of the pools under an assignment, and the packing of single pools."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.model = model = context.model
        points = sorted({span[0] for item in model.items for span in item.lifetimes})
        rank = {point: k for k, point in enumerate(points)}
        self.width = len(points)
        # ranks of the points at which something begins: loads only peak there
        self.ranks: list[tuple[int, ...]] = []
        for item in model.items:
            mine: list[int] = []
            for first, last in item.lifetimes:
                k = rank[first]
                while k < len(points) and points[k] < last:
                    mine.append(k)
                    k += 1
            self.ranks.append(tuple(mine))
        self.packed: dict[tuple[int, tuple[int, ...]], list[int] | None] = {}
        self.unsure = False  # a packing was neither found nor ruled out

    def load(self, pools: Sequence[int], pool: int) -> list[int]:
        """Bytes live in `pool` at every ranked point."""
        load = [0] * self.width
        for item in self.model.items:
            if pools[item.index] == pool:
                for k in self.ranks[item.index]:
                    load[k] += item.size
        return load

    def pack(self, pool: int, pools: Sequence[int]) -> list[int] | None:
        """Origins of the items of `pool` (in item order) within its size, or None when none were found."""
        inside = tuple(i for i, p in enumerate(pools) if p == pool)
        key = (pool, inside)
        if key not in self.packed:
            self.packed[key] = self._pack(pool, inside)
        return self.packed[key]

    def _pack(self, pool: int, inside: tuple[int, ...]) -> list[int] | None:
        model, context = self.model, self.context
        members = set(inside)
        forced = [pool if i in members else -1 for i in range(len(model.items))]
        for make in ORDERS:
            order = [i for i in fixed_first(model, make(model)) if i in members]
            context.spend(len(order) // 8 + 1)
            result = first_fit(model, order, forced=forced)
            if isinstance(result, Layout):
                return [result.origins[i] for i in inside]
            if len(members) > 200 and make is ORDERS[2]:
                break
        capacity = model.capacity[pool]
        if capacity is None:
            return None  # only fixed items in each other's way fail without a limit
        sized = [model.items[i] for i in inside if model.items[i].size]
        origins = {i: model.items[i].home for i in inside}
        found: Iterable[int] | None = None
        if len(sized) <= PACK_SMALL:
            small = SmallSearch.over(model, sized, PACK_NODES)
            result_small = small.below(capacity)
            context.spend(PACK_NODES - small.nodes)
            if result_small is None:
                self.unsure = True
            if result_small:
                found = small.origins
        elif len(sized) <= 1000:
            self.unsure = True
            search = exact.search_for(model, sized, 0)
            limited = Context(model, context.seed, PACK_NODES * 4, context.deadline)
            if search is None:
                found = self._pack_general(limited, sized, pool)
            elif search.low <= capacity:
                exact.run(search, limited, capacity, capacity)
                found = search.offsets if search.best is not None else None
            context.spend(PACK_NODES * 4 - (limited.nodes or 0))
        if found is None:
            return None
        origins.update((item.index, at) for item, at in zip(sized, found, strict=True))
        return [origins[i] for i in inside]

    def _pack_general(self, limited: Context, sized: list[Item], pool: int) -> list[int] | None:
        """The same where sections can not say everything, from a layout that is too high."""
        members = {item.index for item in sized}
        forced = [pool if i in members else -1 for i in range(len(self.model.items))]
        order = [i for i in fixed_first(self.model, by_size(self.model)) if i in members]
        loose = first_fit(self.model, order, [None] * len(self.model.capacity), forced)
        capacity = self.model.capacity[pool]
        if isinstance(loose, int) or capacity is None:
            return None
        search = General.over(self.model, sized, 0, [loose.origins[item.index] for item in sized])
        if search is None:
            return None
        general.run(search, limited, capacity)
        return search.origins if search.best <= capacity else None

    def layout(self, pools: Sequence[int]) -> Layout | None:
        """The layout of an assignment, or None when a pool does not pack."""
        model = self.model
        origins = [0] * len(model.items)
        heights = [0] * len(model.capacity)
        for pool in range(len(model.capacity)):
            packed = self.pack(pool, pools)
            if packed is None:
                return None
            inside = [i for i, p in enumerate(pools) if p == pool]
            for i, at in zip(inside, packed, strict=True):
                origins[i] = at
                heights[pool] = max(heights[pool], at + model.items[i].size)
        return Layout(list(pools), origins, heights, cost_of(model, pools))


def cost_of(model: Model, pools: Sequence[int]) -> float:
    """Cost of an assignment above everyone's first choice."""
    return sum(model.spill_cost(i, pool) for i, pool in enumerate(pools))


def assign(context: Context, start: Layout | None) -> Layout | None:
    """The cheapest layout found, `start` (a valid one) among them."""
    model = context.model
    if len(model.items) > MOST_ITEMS:
        return start
    assigner = Assigner(context)
    best = start
    for rule in range(EVICTION_RULES):
        if best is not None and (best.cost == 0 or context.exhausted()):
            break
        layout = _greedy(assigner, rule)
        if layout is not None and (best is None or layout.key < best.key):
            best = layout
    flexible = [item.index for item in model.items if len(item.pools) > 1 and item.size]
    if (best is None or best.cost > 0) and len(flexible) <= EXACT_FLEXIBLE:
        best = _branch(assigner, flexible, best)
    return best


def _greedy(assigner: Assigner, rule: int) -> Layout | None:
    """Evict from overloaded pools in their order, repair until all pack, then take back what fits."""
    model = assigner.model
    pools = [item.pools[0] for item in model.items]
    loads = [assigner.load(pools, pool) for pool in range(len(model.capacity))]
    for _ in range(4 * len(model.items) + 1):
        worst = _overload(model, loads)
        if worst is None:
            break
        pool, at = worst
        mover = _cheapest(assigner, pools, loads, pool, at, rule)
        if mover is None:
            return None
        _move(assigner, pools, loads, *mover)
    else:
        return None
    # loads are below the sizes now; fragmentation may still ask for more room
    for _ in range(len(model.items)):
        stuck = next((p for p in range(len(model.capacity)) if assigner.pack(p, pools) is None), None)
        if stuck is None:
            break
        fullest = max(range(assigner.width), key=lambda k: loads[stuck][k], default=0)
        mover = _cheapest(assigner, pools, loads, stuck, fullest, rule)
        if mover is None:
            return None
        _move(assigner, pools, loads, *mover)
    spilled = sorted(
        (i for i, p in enumerate(pools) if p != model.items[i].pools[0]),
        key=lambda i: (-model.spill_cost(i, pools[i]), i),
    )
    for i in spilled:
        for pool in model.items[i].pools:
            if pool == pools[i] or assigner.context.exhausted():
                break
            trial = list(pools)
            trial[i] = pool
            capacity = model.capacity[pool]
            fits = (
                capacity is None
                or i in model.special
                or all(loads[pool][k] + model.items[i].size <= capacity for k in assigner.ranks[i])
            )
            if fits and assigner.pack(pool, trial) is not None and assigner.pack(pools[i], trial) is not None:
                _move(assigner, pools, loads, i, pool)
                break
    return assigner.layout(pools)


def _overload(model: Model, loads: Sequence[Sequence[int]]) -> tuple[int, int] | None:
    """The pool and ranked point that is furthest over its size."""
    worst: tuple[int, int, int] | None = None
    for pool, load in enumerate(loads):
        capacity = model.capacity[pool]
        if capacity is None or not load:
            continue
        at = max(range(len(load)), key=load.__getitem__)
        over = load[at] - capacity
        if over > 0 and (worst is None or over > worst[0]):
            worst = (over, pool, at)
    return None if worst is None else worst[1:]


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
            room = model.capacity[other]
            if room is not None and any(loads[other][k] + item.size > room for k in assigner.ranks[i]):
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


def _move(assigner: Assigner, pools: list[int], loads: Sequence[list[int]], i: int, pool: int) -> None:
    size = assigner.model.items[i].size
    for k in assigner.ranks[i]:
        loads[pools[i]][k] -= size
        loads[pool][k] += size
    pools[i] = pool


def _branch(assigner: Assigner, flexible: Sequence[int], best: Layout | None) -> Layout | None:
    """Branch and bound over the pools of `flexible` items; sets `cost_proven` when it ends."""
    model, context = assigner.model, assigner.context
    # what costs most to spill is decided first; its first choice is tried first
    order = sorted(flexible, key=lambda i: (-model.spill_cost(i, model.items[i].pools[-1]), i))
    pools = [item.pools[0] for item in model.items]
    undecided = set(order)
    loads = [[0] * assigner.width for _ in model.capacity]
    for item in model.items:
        if item.index not in undecided and item.index not in model.special:
            for k in assigner.ranks[item.index]:
                loads[pools[item.index]][k] += item.size
    left = EXACT_CHOICES
    complete = True

    def descend(depth: int, cost: float) -> None:
        nonlocal best, left, complete
        if best is not None and cost >= best.cost:
            return
        left -= 1
        if left < 0 or context.exhausted():
            complete = False
            return
        context.spend(1)
        if depth == len(order):
            layout = assigner.layout(pools)
            if layout is not None and (best is None or layout.key < best.key):
                best = layout
            return
        i = order[depth]
        size = 0 if i in model.special else model.items[i].size
        for pool in model.items[i].pools:
            capacity = model.capacity[pool]
            load = loads[pool]
            if capacity is not None and any(load[k] + size > capacity for k in assigner.ranks[i]):
                continue
            pools[i] = pool
            for k in assigner.ranks[i]:
                load[k] += size
            descend(depth + 1, cost + model.spill_cost(i, pool))
            for k in assigner.ranks[i]:
                load[k] -= size
        pools[i] = model.items[i].pools[0]

    descend(0, 0.0)
    context.cost_proven = complete and not assigner.unsure and best is not None
    return best
