"""Orders in which first fit places items, and the best of several.

Invariant: an order is every item once; fixed ones come first, so that nothing takes their place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..bounds import load_peak
from ..errors import OutOfTime
from ..explain import Limits, Place
from ..model import Model
from ..registry import Context
from .layout import Layout, first_fit, fixed_first
from .quick import quick_layout

Order = Callable[[Model], list[int]]


def _by(key: Callable[[Model, int], int]) -> Order:
    """Items of least `key` first; of equal ones the largest, which come first in a model."""
    return lambda model: sorted(range(len(model.items)), key=lambda i: (key(model, i), i))


def _duration(model: Model, i: int) -> int:
    return model.items[i].last - model.items[i].first


def _bytes_around(model: Model, i: int) -> int:
    return model.items[i].size + sum(model.items[j].size for j in model.neighbours[i])


by_size = _by(lambda model, i: i)
by_start = _by(lambda model, i: model.items[i].first)
by_conflicts = _by(lambda model, i: -len(model.neighbours[i]))
ORDERS = (
    by_size,
    _by(lambda model, i: -model.items[i].size * len(model.neighbours[i])),
    _by(lambda model, i: -model.items[i].size * _duration(model, i)),
    _by(lambda model, i: -_duration(model, i)),
    by_conflicts,
    _by(lambda model, i: -_bytes_around(model, i)),  # the peak decides, so what is live there gets the lowest places
    by_start,
    _by(lambda model, i: -model.items[i].last),
)


def best_first_fit(context: Context, orders: Sequence[Order] = ORDERS) -> Layout | int:
    """The best layout over several orders, stopping at the bound; else the item that failed first."""
    model = context.model
    best: Layout | None = None
    failed = -1
    bound = sum(load_peak(model, pool).bytes for pool in range(len(model.pool_names)))
    for order in orders:
        if best is not None and context.exhausted():
            break
        try:
            result = first_fit(model, fixed_first(model, order(model)))
        except OutOfTime:
            if best is None:
                raise
            break
        context.spend(len(model.items))
        if isinstance(result, int):
            failed = result if failed < 0 else failed
        elif best is None or result.key < best.key:
            best = result
            if best.key <= (0.0, bound):
                break
    return failed if best is None else best


def placing(model: Model, order: Order = by_size) -> Place:
    """Heights of first fit in `order`, under other limits, for the message of a plan that does not fit."""

    def place(limits: Limits) -> tuple[Sequence[int], str] | None:
        try:
            layout, source = first_fit(model, fixed_first(model, order(model)), limits), "by first fit"
        except OutOfTime:
            layout, source = quick_layout(model, limits), "without reuse of holes"
        return None if isinstance(layout, int) else (layout.heights, source)

    return place
