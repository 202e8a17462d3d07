"""Which buffers leave a pool that cannot hold them all: least cost first, then packing.

Invariant: a returned layout is complete and inside every hard pool; `context.cost_proven` is set only when no
assignment costs less.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..first_fit.layout import Layout
from ..model import Model
from ..registry import Context
from .assignment import Assigner
from .branch import Exchange, branch
from .prices import Relaxation, relax
from .sweep import sweep

EXACT_FLEXIBLE = 40  # items with a choice, up to which assignments are searched completely
MOST_ITEMS = 3_000
EVICTION_RULES = 3
SHORT = 10  # exchanges for each item with a choice, before the searches that can prove
LONG = 4_000  # exchanges after them


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
        if best is not None and (best.cost == 0 or context.exhausted()):
            break
        best = _better(best, _greedy(assigner, rule))
    if best is not None and best.cost == 0:
        return best
    best = _exchanged(assigner, best, relaxation, SHORT * len(flexible))
    best, proven = sweep(assigner, relaxation, flexible, best)
    if not proven and len(flexible) <= EXACT_FLEXIBLE:
        best, proven = branch(assigner, relaxation, flexible, best)
    context.cost_proven = proven
    return best if proven else _exchanged(assigner, best, relaxation, LONG)


def _exchanged(assigner: Assigner, best: Layout | None, relaxation: Relaxation, attempts: int) -> Layout | None:
    return best and Exchange(assigner, best, assigner.context.seed).search(best, relaxation.bound, attempts)


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
    return _settled(assigner, pools, loads, 0)


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
    return _settled(assigner, pools, loads, rule)


def _settled(assigner: Assigner, pools: list[int], loads: list[list[int]], rule: int) -> Layout | None:
    """Evict until all pools pack (loads alone say too little), then take back what fits."""
    model = assigner.model
    for _ in range(len(model.items)):
        if assigner.known and assigner.context.exhausted():
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
            if pool == pools[i] or assigner.context.exhausted():
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
