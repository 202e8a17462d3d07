"""A plan in almost no time: each item on top of the highest that is already there in its time.

Invariant: a layout is valid, whatever the problem says; no hole is ever filled, no pair of items is ever looked at, but
for conflicts beyond time. Time is looked at in `SPANS` spans at most, so the cost of an item is bounded.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from ..model import Item, Model
from .layout import Layout, fixed_first

SPANS = 256
QUICK = "the time was over before the planner had a plan; this one reuses no holes"


def quick_layout(model: Model, limit: Sequence[int | None] | None = None) -> Layout | int:
    """The layout, or the index of the item that found no place in its pools.

    `limit` are heights not to exceed, by pool; the pools' hard sizes unless given.
    """
    limit = model.capacity if limit is None else limit
    points = sorted({span[0] for item in model.items for span in item.lifetimes})
    points = points[:: 1 + len(points) // SPANS]  # each stands for those up to the next
    tops = [[0] * len(points) for _ in model.capacity]
    layout = Layout([-1] * len(model.items), [-1] * len(model.items), [0] * len(model.capacity))
    largest_area = sorted(model.items, key=lambda item: (-item.size * (item.last - item.first), item.index))
    for i in fixed_first(model, (item.index for item in largest_area)):
        item = model.items[i]
        # the spans that the hull of its lifetimes meets
        first, last = max(0, bisect_right(points, item.first) - 1), bisect_left(points, item.last)
        for pool in item.pools:
            at = _top(model, layout, item, pool, tops[pool][first:last])
            end, room = at + item.size, limit[pool]
            if room is None or end <= room:
                break
        else:
            return i
        layout.pools[i], layout.origins[i] = pool, at
        layout.heights[pool] = max(layout.heights[pool], end)
        if pool != item.pools[0]:
            layout.cost += model.spill_cost(i, pool)
        if item.size:
            raised = tops[pool][first:last]
            tops[pool][first:last] = (
                [max(end, top) for top in raised] if item.fixed is not None else [end] * len(raised)
            )
    return layout


def _top(model: Model, layout: Layout, item: Item, pool: int, tops: list[int]) -> int:
    """Its fixed origin; else the least one above what is live in its time or conflicts with it otherwise."""
    if item.fixed is not None or not item.size:
        return item.home
    others = [j for j in model.extra.get(item.index, ()) if layout.pools[j] == pool]
    above = max((layout.origins[j] + model.items[j].size for j in others), default=0)
    return item.align(max(above, max(tops, default=0)))
