"""Least height of one pool: calls of the complete search between a proven bound and the best placement.

Invariant: `low` of the search is a proven bound, `best` the height of a placement in hand; every call narrows one of
them or spends its share of nodes. The order of calls depends on the seed and on nodes spent, so only a time limit can
make two runs differ.
"""

from __future__ import annotations

from itertools import chain
from random import Random

from ...clock import now
from ..registry import Context
from .portfolio import LOOSE, ORDERS, TIGHT, Order, Portfolio
from .search import Search

SLICE_S = 0.25  # of one call, under a time limit
SHARES = (500, 1000, 1000, 2000)  # choices of one call
# heights aimed at, from the bound (0) to just below the best (1): a tight ceiling is not always harder
AIMS = (0.0, 0.0, 0.25, 0.25)
AIM_AGAIN = 2 / 3  # of an order that has just found a placement
LOOSELY = 25  # the opening aims at the bound, and at 1/25 above it


def _towards(search: Search, top: int, aim: float) -> int:
    """The height at a share `aim` of the way from the bound up to `top`, in steps of the grain."""
    grain = search.sections.grain
    return search.low + int((top - search.low) * aim) // grain * grain


class Complete:
    """Calls of the complete search: an opening, then orders that promise most; what found a plan is tried lower."""

    def __init__(self, search: Search, seed: int, enough: int | None) -> None:
        self.search, self.enough = search, enough
        self.random = Random(seed)
        self.portfolio = Portfolio(self.random)
        self.opening = TIGHT + LOOSE if enough is not None else tuple(chain(*zip(LOOSE, TIGHT, strict=True)))
        self.attempt = 0
        self.again: tuple[Order, float, int] | None = None  # what has just found a placement

    @property
    def opens(self) -> bool:
        """Whether the opening is still to be ended."""
        return self.attempt < len(self.opening)

    def call(self, top: int, most: int) -> bool:
        """Search under a height of at most `top` bytes with at most `most` nodes; whether a placement was found."""
        search, random, opens = self.search, self.random, self.opens
        count = len(search.sections.sizes)
        if self.enough is not None:
            target = min(top, max(search.low, self.enough))
        elif self.again is not None or not opens:
            aim = random.choice(AIMS) if self.again is None else AIM_AGAIN
            target = _towards(search, top, aim)
        else:
            grain = search.sections.grain
            above = 0 if self.opening[self.attempt] in TIGHT else search.low // LOOSELY // grain * grain
            target = min(top, search.low + above)
        tight = target == search.low
        if self.again is not None:
            order, noise, chance = self.again
        else:
            order, noise, chance = self.opening[self.attempt] if opens else ORDERS[0], 0.0, random.getrandbits(32)
            if not opens:
                follow = self.enough is None and search.best is not None
                order, noise = self.portfolio.choose(tight, follow)
            self.attempt += 1
        # a descent without a wrong turn takes one choice an item, and some for raised floors
        share = max(800, 3 * count) if opens else max(random.choice(SHARES), count * 3 // 2)
        # the longer it takes, the longer the runs, so that proofs come within reach
        if random.random() < 0.2:
            share <<= min(self.attempt // 150, 12)
        found = search.fill(target, min(share, most), order, noise, chance) > 0
        self.portfolio.learn(order, tight, noise, search.reached)
        self.again = (order, noise, chance) if found else None
        return found


def run(search: Search, context: Context, ceiling: int | None = None, enough: int | None = None) -> None:
    """Narrow `search` until bound and best meet, `best <= enough`, or the budget is spent.

    `ceiling` is a height that must be met for a placement to be of any use (a hard pool).
    """
    complete = Complete(search, context.seed, enough)
    started, before = now(), search.nodes
    while not context.exhausted():
        if search.best is not None and (search.best <= search.low or (enough is not None and search.best <= enough)):
            return
        if ceiling is not None and search.low > ceiling:
            return
        top = ceiling if search.best is None else search.best - search.sections.grain
        if top is None:
            top = max(search.low, sum(search.sections.sizes))
        spent = search.nodes - before
        most = 1 << 40 if context.nodes is None else max(1, context.nodes)
        if context.deadline is not None and spent:
            # a call looks at no clock: keep each to a fraction of a second
            most = min(most, max(200, int(spent / max(now() - started, 1e-3) * SLICE_S)))
        complete.call(top, most)
        context.spend(max(1, search.nodes - before - spent))
