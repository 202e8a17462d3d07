"""Least height of one pool: an interleaved portfolio of complete searches between bound and best.

Invariant: `low` is a proven bound, `best` the height of a placement in hand; every call
of the kernel narrows one of them or spends its share of nodes. The order of calls is
fixed by the seed, so only a time limit can make two runs differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import lcm
from random import Random
from typing import Any

from .model import Item, Model
from .registry import Context
from .sections import Sections, build, usable
from .subsets import irreducible

LARGEST_SUM = 1 << 61  # bytes of all items; the kernel counts in 64 bits
MEMO_BITS = 19
SLICE_S = 0.25  # of one call, under a time limit
# (section rule, weight of log duration, weight of log size): one of these settles most
# instances within a few hundred nodes, and no two of them fail on the same ones
OPENING = (
    (0, 1.0, 1.0),
    (1, 4.0, 1.0),
    (2, 0.5, 0.3),
    (0, 0.5, 2.0),
    (3, 1.0, 0.0),
    (1, 0.5, 0.3),
    (3, 0.0, 1.0),
    (2, 1.0, 0.3),
    (0, 1.0, -0.5),
    (1, 0.0, 1.0),
    (3, 1.0, 2.0),
    (4, 2.0, 0.0),
)
# the order of the opening when the least height is wanted, every third at the bound, the others
# above it; -1 follows the best placement so far
EASY_OPENING = (4, 10, 6, 9, 11, 3, -1, 0, 1, -1, -1, 5)
RULES = (3, 3, 3, 0, 0, 1, 2, 4)
DURATION_WEIGHTS = (0.0, 0.5, 1.0, 2.0)
SIZE_WEIGHTS = (-0.5, 0.0, 0.3, 1.0, 2.0)
NEAR_BEST_SPREAD = 8.0  # scores from top to bottom of the best placement; noise is added to them
NEAR_BEST_NOISE = (0.2, 0.5, 1.0, 2.0, 4.0)


@dataclass(slots=True)
class Search:
    """The search in one pool. `offsets` are those of `best`, by position in `sections.items`."""

    sections: Sections
    low: int
    best: int | None = None
    offsets: list[int] = field(default_factory=list)
    nodes: int = 0
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
            "duration": np.log(np.array([len(c) for c in sections.covers], np.float64)),
            "log_size": np.log(size.astype(np.float64)),
            "weight": np.ones(len(sections.members)),
            "memo": np.zeros((2, 1 << MEMO_BITS), np.uint64),
            "offset": np.zeros(count, np.int64),
            "spent": np.zeros(1, np.int64),
        }

    def fill(
        self,
        ceiling: int,
        nodes: int,
        config: tuple[int, float, float],
        noise: float,
        seed: int,
        near_best: bool = False,
    ) -> int:
        """One call of the kernel; takes over what it found or proved.

        `near_best` orders items as they lie in the best placement, lowest first, not by the weights of `config`.
        """
        import numpy as np

        from .kernel import FOUND, INFEASIBLE, fill

        if self.arrays is None:
            self.prepare()
        a = self.arrays
        rule, duration, size = config
        a["weight"][:] = 1.0
        a["spent"][0] = 0
        state = np.array([(seed * 0x9E3779B97F4A7C15 + 0x1234567) & ((1 << 64) - 1) | 1], np.uint64)
        if near_best and self.best:
            score = np.array(self.offsets, np.float64) * (-NEAR_BEST_SPREAD / self.best)
        else:
            score = duration * a["duration"] + size * a["log_size"]
        rest = (nodes, score, noise, rule, a["weight"], state, a["memo"], a["offset"], a["spent"])
        result = int(fill(*a["graph"], ceiling, ceiling % lcm(*set(self.sections.aligns)), *rest))
        self.nodes += int(a["spent"][0])
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
    grain = search.sections.grain
    started = time.monotonic()
    ease = search.low // (32 if enough is not None else 20)  # how far above the bound the easier attempts aim
    attempt = 0
    # a descent without a wrong turn takes one node an item, and some for raised floors
    enough_nodes = len(search.sections.sizes) * 3 // 2
    while not context.exhausted():
        if search.best is not None and (search.best <= search.low or (enough is not None and search.best <= enough)):
            return
        if ceiling is not None and search.low > ceiling:
            return
        top = ceiling if search.best is None else search.best - grain
        if top is None:
            top = max(search.low, sum(search.sections.sizes))
        if enough is not None:
            target = min(top, max(search.low, enough))
        elif attempt % 3 == (2 if attempt < len(OPENING) else 1):
            target = search.low
        elif attempt % 6 == 5 and search.best is not None:
            target = top
        else:
            target = min(top, search.low + ease // grain * grain)
        near_best = False
        if attempt < len(OPENING):
            config, noise, share = (
                OPENING[attempt if enough is not None else EASY_OPENING[attempt]],
                0.0,
                max(700, enough_nodes),
            )
            if enough is None and EASY_OPENING[attempt] < 0 and search.best is not None:
                near_best, noise = True, random.choice(NEAR_BEST_NOISE)
        else:
            config = (random.choice(RULES), random.choice(DURATION_WEIGHTS), random.choice(SIZE_WEIGHTS))
            noise = random.choice((0.2, 0.5, 1.0, 2.0))
            share = random.choice((500, 500, 1000, 2000))
            share = max(share, enough_nodes)
            # the longer it takes, the longer the runs, so that proofs come within reach
            share = share * (1 << min(attempt // 150, 12)) if random.random() < 0.2 else share
            if enough is None and target > search.low and search.best is not None and random.random() < 0.4:
                near_best, noise = True, random.choice(NEAR_BEST_NOISE)
        if context.nodes is not None:
            share = min(share, max(1, context.nodes))
        elapsed = time.monotonic() - started
        if context.deadline is not None and search.nodes:
            # a call looks at no clock: keep each to a fraction of a second
            share = min(share, max(200, int(search.nodes / max(elapsed, 1e-3) * SLICE_S)))
        before = search.nodes
        found = search.fill(target, share, config, noise, random.getrandbits(32), near_best) > 0
        context.spend(max(1, search.nodes - before))
        if found and search.best is not None:
            ease = min(ease, (search.best - search.low) * 2 // 3)
        elif target > search.low and (enough is not None or attempt >= 3):
            ease = min(max(ease + ease // 5, grain), max(grain, (top - search.low) * 7 // 8))
        attempt += 1


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
        proven = bool(trial) and probe.fill(ceiling, nodes, OPENING[0], 0.0, 1) == 0
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
