"""Search over orders of first fit: bring forward what is at the top.

Invariant: the best layout so far is kept, so the answer is never worse than the best
single order; the walk depends on the seed and the node budget only.
"""

from __future__ import annotations

from random import Random

from ...problem import Placement, Problem
from ..bounds import load_peak
from ..errors import OutOfTime
from ..explain import does_not_fit
from ..registry import Context, register
from .layout import Layout, first_fit, fixed_first
from .orders import ORDERS, best_first_fit, by_size, placing

ROUNDS = 2_000  # orders tried when nothing else limits the search


def hill_climb(context: Context, start: Layout | None = None, rounds: int = ROUNDS) -> Layout | None:
    """The best layout of up to `rounds` orders; None when not one of them fits the pools."""
    model = context.model
    random = Random(context.seed)
    bound = sum(load_peak(model, pool).bytes for pool in range(len(model.pool_names)))
    best = start
    if best is not None and best.key <= (0.0, bound):
        return best
    order = fixed_first(model, by_size(model))
    fixed = sum(item.fixed is not None for item in model.items)
    current: tuple[float, int] | None = None
    current_order = order
    for _ in range(rounds):
        if context.exhausted():
            break
        try:
            result = first_fit(model, order)
        except OutOfTime:
            if best is None:
                raise
            break
        context.spend(len(model.items))
        if isinstance(result, int):
            blamed = result  # what found no place goes first
            if current is None:
                current_order = order
        else:
            if best is None or result.key < best.key:
                best = result
                if best.key <= (0.0, bound):
                    break
            # equal steps are taken too: plateaus are wide; a worse one now and then
            if current is None or result.key <= current or random.random() < 0.02:
                current, current_order = result.key, order
            tops = [
                i
                for i, pool in enumerate(result.pools)
                if result.origins[i] + model.items[i].size == result.heights[pool] and model.items[i].fixed is None
            ]
            blamed = random.choice(tops) if tops else random.randrange(len(order))
        order = list(current_order)
        place = order.index(blamed)
        if place > fixed and model.items[blamed].fixed is None:
            # swap the blamed item with an earlier neighbour, or pull it to a random earlier place
            neighbours = set(model.neighbours[blamed])
            earlier = [k for k in range(fixed, place) if order[k] in neighbours]
            if earlier and random.random() < 0.6:
                other = random.choice(earlier)
                order[place], order[other] = order[other], order[place]
            else:
                order.insert(random.randrange(fixed, place), order.pop(place))
        if len(order) - fixed >= 2 and random.random() < 0.5:
            a, b = random.randrange(fixed, len(order)), random.randrange(fixed, len(order))
            order[a], order[b] = order[b], order[a]
    return best


@register("hill-climb")
def plan_hill_climb(problem: Problem, context: Context) -> tuple[Placement, ...]:
    """First fit improved by exchanging places in the order."""
    result = best_first_fit(context, ORDERS[:3])
    best = hill_climb(context, None if isinstance(result, int) else result)
    if best is None:
        assert isinstance(result, int), "a layout that first fit found is kept"
        raise does_not_fit(context, result, placing(context.model))
    return context.model.placements(best.pools, best.origins)
