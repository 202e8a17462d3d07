"""First fit: each item at the lowest place that what is placed already leaves it.

The idea. Go through the items in some order; put each one at the least origin without a conflict. Candidates are
the pool's start and the ends of forbidden zones, so holes are reused, and in-place and trailing overlaps are found by
the same rule as plain holes. One pass is cheap, always gives a complete and valid layout where the pools have no limit,
and every other planner begins with one.

The order decides everything. No single one is good for all problems: largest first packs well where sizes differ,
longest-lived first where lifetimes do, those live at the peak first where the peak is narrow. So `best_first_fit` tries
eight and keeps the best, stopping at a proven bound. `hill_climb` goes on from there: what is at the top of the
layout is to blame for its height, so it changes places with a neighbour that comes earlier in the order, or is pulled
forward; equal steps are taken too, since plateaus are wide, and now and then a worse one.

Under a time limit a pass that has no time left stops looking for holes and stacks what remains on top: the layout is
complete all the same.

`layout.py` one pass; `orders.py` the orders, and the best of them; `hill_climb.py` the search over orders;
`planners.py` what is registered: `first-fit`, `greedy-by-size`, `greedy-by-conflicts`, and `linear` (no reuse at all).
Pure Python, a few microseconds an item and neighbour.
"""
