"""Complete search for a placement under a height: calls of the compiled kernel, and what they found or proved.

Invariant: `low` is a proven bound, `best` the height of a placement in hand; a call of the kernel narrows one of them
or spends its share of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import lcm
from typing import Any

from .model import Item, Model
from .portfolio import TIGHT, Order
from .registry import Context
from .sections import Sections, build, usable
from .subsets import irreducible

MOST_ITEMS = 3_000  # that callers should hand over
LARGEST_SUM = 1 << 61  # bytes of all items; the kernel counts in 64 bits
MEMO_BITS = 19
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
    compiling_s: float = 0.0  # in which numba compiled, once on a machine

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
        from .kernel_parts import chances, compiling

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
        phase = ceiling % lcm(*set(self.sections.aligns))
        result, seconds = compiling(fill, *a["graph"], ceiling, phase, *rest)
        self.compiling_s += seconds
        self.nodes += int(a["counts"][0])
        self.reached = float(a["counts"][1]) / max(1, len(self.sections.sizes))
        if result == FOUND:
            self.take([int(x) for x in a["offset"]])
        elif result == INFEASIBLE:
            grain = self.sections.grain
            self.low = max(self.low, (ceiling // grain + 1) * grain)
        return int(result)

    def take(self, offsets: list[int]) -> int:
        """Keep these offsets if they are the best so far; their height."""
        height = max((at + size for at, size in zip(offsets, self.sections.sizes, strict=True)), default=0)
        if self.best is None or height < self.best:
            self.best, self.offsets = height, offsets
        return height


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
