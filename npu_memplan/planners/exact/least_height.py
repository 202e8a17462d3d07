"""Least height of one pool: a complete and a local search in turns, between a proven bound and the best placement.

Invariant: `low` of the search is a proven bound, `best` the height of a placement in hand; every call narrows one of
them or spends its share of nodes. The order of calls depends on the seed and on nodes spent, so only a time limit can
make two runs differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from random import Random

from ...clock import now
from ..local.ejection import Ejection
from ..registry import Context
from .portfolio import LOOSE, ORDERS, TIGHT, Order, Portfolio
from .search import Search

SLICE_S = 0.25  # of one call, under a time limit
# the complete search
SHARES = (500, 1000, 1000, 2000)  # choices of one call
# heights aimed at, from the bound (0) to just below the best (1): a tight ceiling is not always harder, and small steps
# are left to the local search
AIMS = (0.0, 0.0, 0.25, 0.25)
AIM_AGAIN = 2 / 3  # of an order that has just found a placement
LOOSELY = 25  # the opening aims at the bound, and at 1/25 above it
# the local search
AIM_LOCALLY = 0.95  # as above: a little below the best, again and again
CHOICES = 2000  # of one call
# their turns
PART = 0.1  # of the nodes, for the search that does not lead
PATIENCE = 150_000  # nodes without a gain, after which the other one leads
TRIAL = 75  # the same for each item, of a local search that never gained: where it is of use at all, it gains soon


@dataclass(slots=True)
class Alternation:
    """Which search is next: mostly the one that gained last, while it has not been fruitless for long."""

    local_leads: bool
    trial: int  # nodes of a local search that never gained
    spent: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})  # under this leader; local, complete
    fruitless: int = 0  # nodes of the leader
    total: int = 0  # nodes
    local_led: bool = field(init=False)
    local_gained: bool = False

    def __post_init__(self) -> None:
        self.local_led = self.local_leads

    def local_is_next(self) -> bool:
        """Whether the local search is, not the complete one."""
        other = self.spent[not self.local_leads]
        return self.local_led and self.local_leads != (other < PART * sum(self.spent.values()))

    def note(self, local: bool, nodes: int, gained: bool) -> None:
        """A call of the local or the complete search is over."""
        self.spent[local] += nodes
        self.total += nodes
        self.local_gained |= local and gained
        if local == self.local_leads:
            self.fruitless = 0 if gained else self.fruitless + nodes
            over = self.fruitless > self._patience()
        else:
            over = gained
        if over:
            self.local_leads = not self.local_leads
            self.local_led = True  # it leads now, or did until now
            self.spent, self.fruitless = {True: 0, False: 0}, 0

    def _patience(self) -> int:
        """Nodes without a gain after which the other search leads."""
        if self.local_leads and not self.local_gained:
            return max(self.trial, self.total // 16)
        return max(PATIENCE, self.total // 4)


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


class Local:
    """Calls of the local search, which goes on from the best placement and from what it left out of it."""

    def __init__(self, search: Search, seed: int, enough: int | None) -> None:
        self.search, self.enough, self.seed = search, enough, seed
        self.ejection: Ejection | None = None
        self.from_height: int | None = None

    def call(self, top: int, most: int) -> bool:
        """Search under a height of at most `top` bytes with at most `most` choices; whether a placement was found."""
        search = self.search
        if self.ejection is None:
            self.ejection = Ejection(search.sections, search.graph, self.seed)
        if search.best is not None and search.best != self.from_height:
            self.ejection.start_from(search.offsets)
            self.from_height = search.best
        towards = _towards(search, top, AIM_LOCALLY)
        target = towards if self.enough is None else min(top, max(search.low, self.enough))
        offsets, choices = self.ejection.below(target, min(CHOICES, most))
        search.nodes += choices
        if offsets is not None:
            self.from_height = search.take(offsets)
        return offsets is not None


def run(search: Search, context: Context, ceiling: int | None = None, enough: int | None = None) -> None:
    """Narrow `search` until bound and best meet, `best <= enough`, or the budget is spent.

    `ceiling` is a height that must be met for a placement to be of any use (a hard pool).
    """
    complete, turns = (
        Complete(search, context.seed, enough),
        Alternation(enough is None, TRIAL * len(search.sections.sizes)),
    )
    local = Local(search, context.seed, enough) if Ejection.usable(search.sections) else None
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
        opened = not complete.opens  # what the opening settles needs no second compiled search
        if local is not None and opened and turns.local_is_next():
            who: Complete | Local = local
        else:
            who = complete
        found = who.call(top, most)
        nodes = max(1, search.nodes - before - spent)
        context.spend(nodes)
        if opened:
            turns.note(who is local, nodes, found)
