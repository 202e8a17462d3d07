"""Conflicts as sections: sets of items that pairwise may not share a byte.

Invariant: two of the items conflict exactly when they have a section in common. For
lifetimes a section is a maximal set live at one point, in order of time; conflicts that
are no lifetimes add cliques. Planners that fill sections need no list of pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import gcd

from ..model import Item, Model, events


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
    """What every height of a placement pushed down as far as it goes is a multiple of.

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
