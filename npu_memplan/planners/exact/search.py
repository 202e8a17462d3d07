"""Complete search for a placement under a height: calls of `fill.c`, and what they found or proved.

Invariant: `low` is a proven bound, `best` the height of a placement in hand; a call narrows one of them or spends its
share of nodes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain
from math import lcm, log
from typing import Any

from ...compiled import FOUND, INFEASIBLE, Struct, chances, compiled, floats, int32s, int64s, structure, verdict
from ..model import Item, Model
from ..registry import Context
from ..subsets import irreducible
from .portfolio import TIGHT, Order
from .sections import Sections, build, usable

MOST_ITEMS = 3_000  # the largest problem that callers should pass
LARGEST_SUM = 1 << 61  # bytes of all items; C counts in 64 bits
MEMO_BITS = 19
FOLLOW_SPREAD = 4.0  # scores from top to bottom of the best placement; chance is added to them


_Graph = structure("planners/exact/fill.h", "Graph")
_Call = structure("planners/exact/fill.h", "Call")


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
        """What failed, kept from call to call."""
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
            score = floats(at * step for at in self.offsets)
        else:
            score = floats(order.duration * duration + order.size * size for duration, size in self._logs)
        offset = int64s([0]) * len(self.sections.sizes)
        call = _Call(
            ceiling=ceiling,
            phase=ceiling % lcm(*set(self.sections.aligns)),
            nodes=nodes,
            rule=order.rule,
            memo_mask=(1 << MEMO_BITS) - 1,
            noise=noise,
            score=score,
            weight=floats([1.0]) * len(self.sections.members),
            chance=chances(seed),
            memo=self._memo,
            offset=offset,
        )
        result = verdict(compiled().functions.npu_memplan_fill(ctypes.byref(self.graph), ctypes.byref(call)))
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
    """For each item the last equal one before it, -1 where there is none."""
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

    return irreducible(range(len(search.sections.sizes)), infeasible, context.exhausted)


def restrict(sections: Sections, keep: Sequence[int]) -> Sections:
    """`sections` with only the items at positions `keep`."""
    position = {k: p for p, k in enumerate(keep)}
    members = [[position[k] for k in section if k in position] for section in sections.members]
    sizes, aligns = [sections.sizes[k] for k in keep], [sections.aligns[k] for k in keep]
    return Sections(sizes, aligns, [section for section in members if section], sections.grain)
