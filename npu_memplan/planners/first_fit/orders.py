"""Orders in which first fit places items, and the best of several.

Invariant: an order is every item once; fixed ones come first, so that nothing takes their place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..bounds import load_peak
from ..errors import OutOfTime
from ..explain import Limits
from ..model import Model
from ..registry import Context
from .layout import Layout, first_fit, fixed_first
from .quick import quick_layout


def by_size(model: Model) -> list[int]:
    """Largest first (the canonical order of items)."""
    return list(range(len(model.items)))


def by_conflicts(model: Model) -> list[int]:
    """Most neighbours first, then largest."""
    neighbours = model.neighbours
    return sorted(range(len(model.items)), key=lambda i: (-len(neighbours[i]), i))


def by_duration(model: Model) -> list[int]:
    """Longest-lived first, then largest."""
    return sorted(range(len(model.items)), key=lambda i: (model.items[i].first - model.items[i].last, i))


def by_area(model: Model) -> list[int]:
    """Largest bytes x points first."""
    return sorted(
        range(len(model.items)), key=lambda i: (-model.items[i].size * (model.items[i].last - model.items[i].first), i)
    )


def by_start(model: Model) -> list[int]:
    """In order of first use."""
    return sorted(range(len(model.items)), key=lambda i: (model.items[i].first, i))


def by_end(model: Model) -> list[int]:
    """In reverse order of last use."""
    return sorted(range(len(model.items)), key=lambda i: (-model.items[i].last, i))


def by_weight(model: Model) -> list[int]:
    """Largest size x conflicts first."""
    neighbours = model.neighbours
    return sorted(range(len(model.items)), key=lambda i: (-model.items[i].size * len(neighbours[i]), i))


def by_pressure(model: Model) -> list[int]:
    """Items live where memory is fullest first, then largest: the peak decides, so it gets the lowest places."""
    neighbours = model.neighbours
    items = model.items
    around = [items[i].size + sum(items[j].size for j in neighbours[i]) for i in range(len(items))]
    return sorted(range(len(items)), key=lambda i: (-around[i], i))


ORDERS: tuple[Callable[[Model], list[int]], ...] = (
    by_size,
    by_weight,
    by_area,
    by_duration,
    by_conflicts,
    by_pressure,
    by_start,
    by_end,
)


def best_first_fit(context: Context, orders: Sequence[Callable[[Model], list[int]]] = ORDERS) -> Layout | int:
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


def placing(
    model: Model, order: Callable[[Model], list[int]] = by_size
) -> Callable[[Limits], tuple[Sequence[int], str] | None]:
    """What `no_room` asks: heights of first fit in `order`, under other limits."""

    def place(limits: Limits) -> tuple[Sequence[int], str] | None:
        try:
            layout, source = first_fit(model, fixed_first(model, order(model)), limits), "by first fit"
        except OutOfTime:
            layout, source = quick_layout(model, limits), "without reuse of holes"
        return None if isinstance(layout, int) else (layout.heights, source)

    return place
