"""Least height of one pool: an interleaved portfolio of complete searches between bound and best.

Invariant: `low` is a proven bound, `best` the height of a placement in hand; every call
of the kernel narrows one of them or spends its share of nodes. The order of calls is
fixed by the seed, so only a time limit can make two runs differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import lcm
from random import Random
from typing import Any

from .model import Item, Model
from .portfolio import LOOSE, ORDERS, TIGHT, Order, Portfolio
from .registry import Context
from .sections import Sections, build, usable
from .subsets import irreducible

LARGEST_SUM = 1 << 61  # bytes of all items; the kernel counts in 64 bits
MEMO_BITS = 19
SLICE_S = 0.25  # of one call, under a time limit
SHARES = (500, 500, 1000, 2000)  # choices of one call
# heights aimed at, from the bound (0) to just below the best (1): a tight ceiling is not always harder, and the
# nearer to the best, the likelier a small step
AIMS = (0.0, 0.0, 0.5, 0.75, 0.875, 0.95)
AIM_AGAIN = 2 / 3  # of an order that has just found a placement
LOOSELY = 25  # the opening aims at the bound, and at 1/25 above it
FOLLOW_SPREAD = 4.0  # scores from top to bottom of the best placement; chance is added to them


@dataclass(slots=True)
class Search:
    """The search in one pool. `offsets` are those of `best`, by position in `sections.items`."""

    sections: Sections
    low: int
    best: int | None = None
    offsets: list[int] = field(default_factory=list)
    nodes: int = 0
    reached: float = 0.0  # share of the items that were placed at once at most in the last call
    arrays: Any = None
    improved: Callable[[Search], None] | None = None
    calls: int = 0

    def prepare(self) -> None:
        """Build the kernel's arrays (imports numpy and numba)."""
        import numpy as np

        sections = self.sections
        count = len(sections.sizes)
        cover_at = np.zeros(count + 1, np.int64)
        np.cumsum([len(c) for c in sections.covers], out=cover_at[1:])
        member_at = np.zeros(len(sections.members) + 1, np.int64)
        np.cumsum([len(m) for m in sections.members], out=member_at[1:])
        twin = np.full(count, -1, np.int64)
        last: dict[tuple[object, ...], int] = {}
        for k in range(count):
            kind = (sections.sizes[k], sections.aligns[k], tuple(sections.covers[k]))
            twin[k] = last.get(kind, -1)
            last[kind] = k
        size = np.array(sections.sizes, np.int64)
        self.arrays = {
            "graph": (
                size,
                np.array(sections.aligns, np.int64),
                cover_at,
                np.array([s for c in sections.covers for s in c], np.int64),
                member_at,
                np.array([k for m in sections.members for k in m], np.int64),
                twin,
            ),
            "log_duration": np.log(np.array([len(c) for c in sections.covers], np.float64)),
            "log_size": np.log(size.astype(np.float64)),
            "weight": np.ones(len(sections.members)),
            "memo": np.zeros((2, 1 << MEMO_BITS), np.uint64),
            "offset": np.zeros(count, np.int64),
            "counts": np.zeros(2, np.int64),
        }

    def fill(self, ceiling: int, nodes: int, order: Order, noise: float, seed: int) -> int:
        """One call of the kernel; takes over what it found or proved."""
        import numpy as np

        from .kernel import FOUND, INFEASIBLE, fill
        from .kernel_parts import chances

        if self.arrays is None:
            self.prepare()
        a = self.arrays
        a["weight"][:] = 1.0
        a["counts"][:] = 0
        state = chances(seed)
        if order.follow:
            score = np.array(self.offsets, np.float64) * (-FOLLOW_SPREAD / (self.best or 1))
        else:
            score = order.duration * a["log_duration"] + order.size * a["log_size"]
        rest = (nodes, score, noise, order.rule, a["weight"], state, a["memo"], a["offset"], a["counts"])
        result = int(fill(*a["graph"], ceiling, ceiling % lcm(*set(self.sections.aligns)), *rest))
        self.nodes += int(a["counts"][0])
        self.reached = float(a["counts"][1]) / max(1, len(self.sections.sizes))
        self.calls += 1
        if result == FOUND:
            offsets = [int(x) for x in a["offset"]]
            height = max((at + size for at, size in zip(offsets, self.sections.sizes, strict=True)), default=0)
            if self.best is None or height < self.best:
                self.best, self.offsets = height, offsets
                if self.improved is not None:
                    self.improved(self)
        elif result == INFEASIBLE:
            grain = self.sections.grain
            self.low = max(self.low, (ceiling // grain + 1) * grain)
        return result


def search_for(model: Model, items: Sequence[Item], low: int) -> Search | None:
    """A search over `items`, or None where sections can not say everything about them."""
    inside = [item for item in items if item.size]
    if not usable(model, inside) or sum(item.size for item in inside) >= LARGEST_SUM:
        return None
    if any(item.modulus > LARGEST_SUM for item in inside):
        return None
    sections = build(model, inside)
    grain = sections.grain
    return Search(sections, -(-max(low, sections.bound) // grain) * grain)


def run(search: Search, context: Context, ceiling: int | None = None, enough: int | None = None) -> None:
    """Narrow `search` until bound and best meet, `best <= enough`, or the budget is spent.

    `ceiling` is a height that must be met for a placement to be of any use (a hard pool).
    """
    random = Random(context.seed)
    portfolio = Portfolio(random)
    grain = search.sections.grain
    started = time.monotonic()
    count = len(search.sections.sizes)
    opening = TIGHT + LOOSE if enough is not None else tuple(chain(*zip(LOOSE, TIGHT, strict=True)))
    attempt = 0
    again: tuple[Order, float, int] | None = None  # what has just found a placement, to be tried lower
    while not context.exhausted():
        if search.best is not None and (search.best <= search.low or (enough is not None and search.best <= enough)):
            return
        if ceiling is not None and search.low > ceiling:
            return
        top = ceiling if search.best is None else search.best - grain
        if top is None:
            top = max(search.low, sum(search.sections.sizes))
        opens = attempt < len(opening)
        if enough is not None:
            target = min(top, max(search.low, enough))
        elif again is not None or not opens:
            aim = random.choice(AIMS) if again is None else AIM_AGAIN
            target = search.low + int((top - search.low) * aim) // grain * grain
        else:
            above = 0 if opening[attempt] in TIGHT else search.low // LOOSELY // grain * grain
            target = min(top, search.low + above)
        tight = target == search.low
        if again is not None:
            order, noise, chance = again
        else:
            order, noise, chance = opening[attempt] if opens else ORDERS[0], 0.0, random.getrandbits(32)
            if not opens:
                follow = enough is None and search.best is not None
                order, noise = portfolio.choose(attempt - len(opening), tight, follow)
            attempt += 1
        # a descent without a wrong turn takes one choice an item, and some for raised floors
        share = max(800, 3 * count) if opens else max(random.choice(SHARES), count * 3 // 2)
        # the longer it takes, the longer the runs, so that proofs come within reach
        if random.random() < 0.2:
            share <<= min(attempt // 150, 12)
        if context.nodes is not None:
            share = min(share, max(1, context.nodes))
        elapsed = time.monotonic() - started
        if context.deadline is not None and search.nodes:
            # a call looks at no clock: keep each to a fraction of a second
            share = min(share, max(200, int(search.nodes / max(elapsed, 1e-3) * SLICE_S)))
        before = search.nodes
        found = search.fill(target, share, order, noise, chance) > 0
        context.spend(max(1, search.nodes - before))
        portfolio.learn(order, tight, search.reached)
        again = (order, noise, chance) if found else None


def infeasible_subset(search: Search, ceiling: int, context: Context, nodes: int = 3000) -> list[int]:
    """Positions of a set of items that cannot be together under `ceiling`, none of which can be left out.

    Call it after the kernel proved `ceiling` infeasible. Where leaving an item out can not be
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

    return irreducible(len(search.sections.sizes), infeasible, context.exhausted)


def restrict(sections: Sections, keep: Sequence[int]) -> Sections:
    """`sections` with only the items at positions `keep`."""
    position = {k: p for p, k in enumerate(keep)}
    members = [[position[k] for k in section if k in position] for section in sections.members]
    members = [section for section in members if section]
    covers: list[list[int]] = [[] for _ in keep]
    for s, section in enumerate(members):
        for k in section:
            covers[k].append(s)
    return Sections(
        [sections.items[k] for k in keep],
        [sections.sizes[k] for k in keep],
        [sections.aligns[k] for k in keep],
        members,
        covers,
        sections.grain,
    )
