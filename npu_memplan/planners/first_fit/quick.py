"""A plan for those who have no time: each item on top of the highest that is already there in its time.

Invariant: a layout is valid, whatever the problem says; no hole is ever filled, no pair of items is ever looked at, but
for conflicts beyond time.
"""

from __future__ import annotations

from bisect import bisect_left

from ..model import Item, Model
from .layout import Layout
from .orders import by_area, fixed_first

QUICK = "the time was over before the planner had a plan; this one reuses no holes"


def quick_layout(model: Model) -> Layout | int:
    """The layout, or the index of the item that found no place in its pools."""
    points = sorted({span[0] for item in model.items for span in item.lifetimes})
    tops = [[0] * len(points) for _ in model.capacity]
    layout = Layout([-1] * len(model.items), [-1] * len(model.items), [0] * len(model.capacity))
    for i in fixed_first(model, by_area(model)):
        item = model.items[i]
        # the hull of its lifetimes, in ranks of the points at which something begins
        first, last = bisect_left(points, item.first), bisect_left(points, item.last)
        for pool in item.pools:
            at = _top(model, layout, item, pool, tops[pool][first:last])
            end, room = at + item.size, model.capacity[pool]
            if room is None or end <= room:
                break
        else:
            return i
        layout.pools[i], layout.origins[i] = pool, at
        layout.heights[pool] = max(layout.heights[pool], end)
        layout.cost += model.spill_cost(i, pool)
        if item.size:
            tops[pool][first:last] = [max(end, top) for top in tops[pool][first:last]]
    return layout


def _top(model: Model, layout: Layout, item: Item, pool: int, tops: list[int]) -> int:
    """Its fixed origin; else the least one above what is live in its time or conflicts with it otherwise."""
    if item.fixed is not None or not item.size:
        return item.home
    others = [j for j in model.extra.get(item.index, ()) if layout.pools[j] == pool]
    above = max((layout.origins[j] + model.items[j].size for j in others), default=0)
    return item.align(max(above, max(tops, default=0)))
