"""Exact: a complete search for one pool whose conflicts are sets of items live together.

The idea. A *section* is a maximal set of items live at one point of time (or a clique of other conflicts). Each section
has a *floor*: nothing that is still to be placed in it can lie lower. Fill sections from below, under a ceiling: pick a
section whose candidates lie flat on its floor, and either place one of them there or raise the floor to where one could
next begin. Placements that leave gaps for no reason are never looked at, and a search that ends without a placement
proves that there is none under this ceiling.

Why it is fast enough for hundreds of items:

* floors rise to the least start of an item that still covers them, until nothing moves; a section whose floor and
  remaining bytes pass the ceiling ends the branch;
* where no remaining item crosses a point the state splits, and the parts are solved one after the other; one that fails
  returns to the choice made before the split;
* states that failed are remembered by the *headroom* above each floor, so one nogood holds for every ceiling (of equal
  phase under the alignments) and across restarts;
* of equal items only the first unplaced one is tried.

No order of items, and no rule for the next section, suits all problems. So `Portfolio` interleaves short runs over
many, learns which placed most of the items on this very problem, and lets those come again with a little chance:
with little, a run meets what earlier ones refuted, and gets further. `run` chooses the ceilings (at the
bound, or a quarter of the way up to the best: tight ones prune more; what found a plan is tried again lower).

`fill.c` and its steps are the search itself; the classes here give it conflicts as sections, and say what it proved.

Invariant: the search is complete within its budget. Every placement it returns is valid; a ceiling without one is a
proven bound. The order of calls is fixed by the seed, so only a time limit can make two runs differ.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain
from math import gcd, lcm, log
from random import Random
from typing import Any

from ...clock import clock_s
from ...compiled import (
    FOUND,
    INFEASIBLE,
    Struct,
    c_library,
    check_verdict,
    float_array,
    header_structure,
    int32s,
    int64s,
    random_state,
)
from ..model import Item, Model, events
from ..registry import Context, irreducible


@dataclass(frozen=True, slots=True)
class Order:
    """The order of a search: which section is filled next, and which of its items is tried first.

    An item's score is `duration * log(sections it covers) + size * log(bytes)`, high ones first; with
    `follow` items come as they are in the best placement so far, lowest first.
    """

    rule: int  # of `section_key` in choices.c
    duration: float = 0.0
    size: float = 0.0
    follow: bool = False


def _order(rule: int, size: float) -> Order:
    """The order whose weights are in the ratio 1 to `size`, as a vector of length 1."""
    length = (1.0 + size * size) ** 0.5
    return Order(rule, 1.0 / length, size / length)


RULES = (1, 5, 4, 3, 0, 2)  # of `section_key`, the most useful first
# what settles most instances within a few hundred choices: at heights known to be possible, and a little above a bound
TIGHT = (_order(2, 0.0), _order(4, 0.0), _order(2, -0.5))
LOOSE = (_order(4, 2.0), _order(0, 0.3), _order(3, 0.3))
ORDERS = tuple(_order(rule, size) for size in (4.0, 1.0, 0.6, 2.0, 64.0, 0.3, 0.0, -0.5) for rule in RULES)
FOLLOWING = tuple(Order(rule, follow=True) for rule in RULES)
NOISES = (0.1, 0.3, 0.6)  # amplitudes of chance added to scores; with little chance, the same nogoods are met again
ENTRANTS = 24  # orders and amplitudes drawn, of which the best so far is taken
EXPLORE = 0.5  # share of tries for an order not yet tried, while there is one
OPEN = 0.2  # later, share of tries in which any order may come
ANY = -1.0  # stands for all amplitudes together


@dataclass(slots=True)
class Portfolio:
    """The progress of each order: how far it got, at the bound and above it apart, and with which chance."""

    random: Random
    reached: dict[tuple[Order, bool, float], float] = field(default_factory=dict)  # largest share of items placed

    def choose(self, tight: bool, follow: bool) -> tuple[Order, float]:
        """The order to try, and the amplitude of chance, for a height that is `tight`, or a best one to `follow`."""
        orders = ORDERS + FOLLOWING if follow else ORDERS
        noise = self.random.choice(NOISES)
        tried = [order for order in orders if (order, tight, ANY) in self.reached]
        if len(tried) < len(orders):
            if not tried or self.random.random() < EXPLORE:
                return next(order for order in orders if (order, tight, ANY) not in self.reached), noise
        elif self.random.random() < OPEN:
            return self.random.choice(orders), noise
        entrants = [(self.random.choice(tried), self.random.choice(NOISES)) for _ in range(ENTRANTS)]
        known = self.reached  # with this chance if that was tried
        return max(entrants, key=lambda of: known.get((of[0], tight, of[1]), known[of[0], tight, ANY]))

    def learn(self, order: Order, tight: bool, noise: float, reached: float) -> None:
        """`order` placed at most this share of the items at once."""
        for key in ((order, tight, noise), (order, tight, ANY)):
            self.reached[key] = max(self.reached.get(key, 0.0), reached)


@dataclass(slots=True)
class Sections:
    """`members[s]` are the items of section s, by position; `covers[k]` the sections of item k."""

    sizes: list[int]  # bytes
    aligns: list[int]  # bytes
    members: list[list[int]]
    grain: int  # every height is a multiple of it
    covers: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.covers = [[] for _ in self.sizes]
        for s, section in enumerate(self.members):
            for k in section:
                self.covers[k].append(s)

    @property
    def bound(self) -> int:
        """Most bytes in one section."""
        return max((sum(self.sizes[k] for k in section) for section in self.members), default=0)


def usable(model: Model, items: Sequence[Item]) -> bool:
    """Whether sections say everything about `items`: nothing fixed, no partial overlaps, aligned at 0."""
    return all(item.fixed is None and item.residue == 0 and item.index not in model.special for item in items)


def build(model: Model, items: Sequence[Item]) -> Sections:
    """The sections of `items` (those of one pool; zero-size items must be left out)."""
    position = {item.index: k for k, item in enumerate(items)}
    members = _live_sets(items, position)
    if model.extra:
        members += _cliques(model, items, position, members)
    met = set(chain.from_iterable(members))
    members += [[k] for k in range(len(items)) if k not in met]  # without a conflict: a section of its own
    sizes = [item.size for item in items]
    aligns = [item.modulus for item in items]
    return Sections(sizes, aligns, members, _grain(sizes, aligns))


def _grain(sizes: Sequence[int], aligns: Sequence[int]) -> int:
    """A divisor of every height of a placement pushed down as far as it goes.

    Such offsets are sums of sizes, rounded up to an alignment here and there: that is no change where the
    alignment divides the grain, and gives a multiple of the grain where the grain divides the alignment.
    """
    grain = gcd(*sizes) or 1
    kinds = sorted(set(aligns))
    while unlike := [align for align in kinds if grain % align and align % grain]:
        grain = gcd(grain, unlike[0])
    return grain


def _live_sets(items: Sequence[Item], position: Mapping[int, int]) -> list[list[int]]:
    """Maximal sets of items live at one point, in order of time."""
    sets: list[list[int]] = []
    live: set[int] = set()
    grew = False
    for _, begins, index in events(items):
        if begins:
            live.add(position[index])
            grew = True
        else:
            if grew:
                sets.append(sorted(live))
                grew = False
            live.discard(position[index])
    return sets


def _cliques(
    model: Model, items: Sequence[Item], position: Mapping[int, int], members: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Cliques that cover the conflicts which no common point explains, grown greedily."""
    together = {(a, b) for section in members for a in section for b in section if a < b} if members else set()
    neighbours = [{position[j] for j in model.neighbours[item.index] if j in position} for item in items]
    cliques: list[list[int]] = []
    for a in range(len(items)):
        model.look(len(neighbours[a]))
        for b in sorted(neighbours[a]):
            if b <= a or (a, b) in together:
                continue
            clique = [a, b]
            common = neighbours[a] & neighbours[b]
            model.look(len(common) ** 2)
            while common:
                # prefer a member that covers new pairs
                best = min(common, key=lambda c: (-sum((min(c, d), max(c, d)) not in together for d in clique), c))
                clique.append(best)
                common &= neighbours[best]
            clique.sort()
            together.update((c, d) for c in clique for d in clique if c < d)
            cliques.append(clique)
    return cliques


MOST_ITEMS = 3_000  # the largest problem that callers should pass
LARGEST_SUM = 1 << 61  # bytes of all items; C counts in 64 bits
MEMO_BITS = 19
FOLLOW_SPREAD = 4.0  # scores from top to bottom of the best placement; chance is added to them


_Graph = header_structure("planners/exact/fill.h", "Graph")
_Call = header_structure("planners/exact/fill.h", "Call")


@dataclass
class Search:
    """The search in one pool. `offsets` are those of `best`, by position in `sections`."""

    sections: Sections
    low: int
    best: int | None = None
    offsets: list[int] = field(default_factory=list)
    nodes: int = 0
    reached: float = 0.0  # share of the items that were placed at once at most in the last call

    @cached_property
    def graph(self) -> Struct:
        """The sections as the compiled searches see them."""
        sections = self.sections
        return _Graph(
            items=len(sections.sizes),
            sections=len(sections.members),
            size=int64s(sections.sizes),
            align=int64s(sections.aligns),
            cover_at=int32s(accumulate(map(len, sections.covers), initial=0)),
            cover=int32s(chain.from_iterable(sections.covers)),
            member_at=int32s(accumulate(map(len, sections.members), initial=0)),
            member=int32s(chain.from_iterable(sections.members)),
            twin=int32s(_twins(sections)),
        )

    @cached_property
    def _memo(self) -> Any:
        """The memory of what failed, kept from call to call."""
        return (ctypes.c_uint64 * (2 << MEMO_BITS))()

    @cached_property
    def _logs(self) -> list[tuple[float, float]]:
        """Logarithms of the number of sections that an item covers, and of its bytes."""
        sections = self.sections
        return [(log(len(cover)), log(size)) for cover, size in zip(sections.covers, sections.sizes, strict=True)]

    def fill(self, ceiling: int, nodes: int, order: Order, noise: float, seed: int) -> int:
        """One call of the compiled search; takes over what it found or proved."""
        if order.follow:
            step = -FOLLOW_SPREAD / (self.best or 1)
            score = float_array(at * step for at in self.offsets)
        else:
            score = float_array(order.duration * duration + order.size * size for duration, size in self._logs)
        offset = int64s([0]) * len(self.sections.sizes)
        call = _Call(
            ceiling=ceiling,
            phase=ceiling % lcm(*set(self.sections.aligns)),
            nodes=nodes,
            rule=order.rule,
            memo_mask=(1 << MEMO_BITS) - 1,
            noise=noise,
            score=score,
            weight=float_array([1.0]) * len(self.sections.members),
            chance=random_state(seed),
            memo=self._memo,
            offset=offset,
        )
        result = check_verdict(c_library().functions.npu_memplan_fill(ctypes.byref(self.graph), ctypes.byref(call)))
        self.nodes += call.choices
        self.reached = call.most_placed / max(1, len(self.sections.sizes))
        if result == FOUND:
            self.take(list(offset))
        elif result == INFEASIBLE:
            grain = self.sections.grain
            self.low = max(self.low, (ceiling // grain + 1) * grain)
        return result

    def take(self, offsets: list[int]) -> int:
        """Keep these offsets if they are the best so far; their height."""
        height = max((at + size for at, size in zip(offsets, self.sections.sizes, strict=True)), default=0)
        if self.best is None or height < self.best:
            self.best, self.offsets = height, offsets
        return height


def _twins(sections: Sections) -> Iterable[int]:
    """The last equal item before each item, -1 where there is none."""
    last: dict[tuple[object, ...], int] = {}
    for k, kind in enumerate(zip(sections.sizes, sections.aligns, map(tuple, sections.covers), strict=True)):
        yield last.get(kind, -1)
        last[kind] = k


def search_for(model: Model, items: Sequence[Item], low: int) -> Search | None:
    """A search over `items`, which have bytes, or None where sections can not say everything about them."""
    if not usable(model, items) or sum(item.size for item in items) >= LARGEST_SUM:
        return None
    if any(item.modulus > LARGEST_SUM for item in items):
        return None
    sections = build(model, items)
    grain = sections.grain
    return Search(sections, -(-max(low, sections.bound) // grain) * grain)


def infeasible_subset(search: Search, ceiling: int, context: Context, nodes: int = 3000) -> list[int]:
    """Positions of a set of items that cannot be together under `ceiling`, none of which can be left out.

    Call it after a search proved `ceiling` infeasible. Where leaving an item out can not be
    decided within `nodes`, the item stays, so the set is then infeasible but maybe not least.
    """

    def infeasible(trial: Sequence[int]) -> bool:
        part = restrict(search.sections, trial)
        if part.bound > ceiling:
            return True
        probe = Search(part, 0)
        proven = bool(trial) and probe.fill(ceiling, nodes, TIGHT[0], 0.0, 1) == 0
        context.spend(probe.nodes)
        return proven

    return irreducible(range(len(search.sections.sizes)), infeasible, context.is_exhausted)


def restrict(sections: Sections, keep: Sequence[int]) -> Sections:
    """`sections` with only the items at positions `keep`."""
    position = {k: p for p, k in enumerate(keep)}
    members = [[position[k] for k in section if k in position] for section in sections.members]
    sizes, aligns = [sections.sizes[k] for k in keep], [sections.aligns[k] for k in keep]
    return Sections(sizes, aligns, [section for section in members if section], sections.grain)


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
    """Narrow `search` until `best <= enough`, the bound, or the budget's end; `ceiling`: a hard pool's height."""
    complete = Complete(search, context.seed, enough)
    started, before = clock_s(), search.nodes
    while not context.is_exhausted():
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
            most = min(most, max(200, int(spent / max(clock_s() - started, 1e-3) * SLICE_S)))
        complete.call(top, most)
        context.spend(max(1, search.nodes - before - spent))
