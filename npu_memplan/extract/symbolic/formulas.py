"""Offsets as formulas: the greatest of sums of sizes, right for every value of the symbols.

Invariant: of two buffers that may not share bytes, one is below the other, always: its offset plus its size is a term
of the other's offset, which is the greatest of its terms. So no comparison has to be proven for a plan to be right;
what is proven only keeps formulas short. Which one is below is taken from a plan for certain values of the symbols.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter

from ...problem import Buffer, Plan, Problem
from .extents import Extents

Term = tuple[int, int]  # formula, size: their sum
ZERO = 0  # the formula 0


class Formulas:
    """Formulas by number; equal ones are one. Formula `i` is the greatest of the sums `terms[i]`, and at least 0."""

    def __init__(self, extents: Extents) -> None:
        self.extents = extents
        self.terms: list[tuple[Term, ...]] = [()]
        self._known: dict[tuple[Term, ...], int] = {(): ZERO}
        self._covers: dict[tuple[Term, Term], bool] = {}
        self.nothing = extents.constant(0)

    def highest(self, terms: Iterable[Term]) -> int:
        """The formula for the greatest of `terms`; those that another one always covers are left out."""
        kept: list[Term] = []
        for term in sorted(set(terms)):
            if not any(self.covers(k, term) for k in kept):
                kept = [k for k in kept if not self.covers(term, k)] + [term]
        if kept == [(ZERO, self.nothing)]:
            return ZERO
        if len(kept) == 1 and kept[0][1] == self.nothing:
            return kept[0][0]
        key = tuple(sorted(kept))
        if key not in self._known:
            self._known[key] = len(self.terms)
            self.terms.append(key)
        return self._known[key]

    def covers(self, a: Term, b: Term) -> bool:
        """Whether the sum `a` is known to be at least the sum `b` for all values."""
        key = (a, b)
        if key not in self._covers:
            below = self.extents.at_least(a[1], self.nothing) and any(self.covers(t, b) for t in self.terms[a[0]])
            self._covers[key] = below or (b[0] in (a[0], ZERO) and self.extents.at_least(a[1], b[1]))
        return self._covers[key]

    def values(self, size: Callable[[int], int]) -> list[int]:
        """The value of every formula, given those of the sizes."""
        found: list[int] = []
        for terms in self.terms:  # a formula's terms come before it
            found.append(max((0, *(found[f] + size(s) for f, s in terms))))
        return found


def orient(
    formulas: Formulas,
    problem: Problem,
    plan: Plan,
    sizes: Mapping[str, int],
    distances: Mapping[tuple[str, str], int],
    tops: Mapping[str, int],
    pools: Sequence[str],
) -> tuple[dict[str, int], dict[str, int]]:
    """Formulas of the offsets of all buffers that `plan` puts into `pools`, and of those pools' heights.

    `sizes` are numbers of the buffers' sizes, `tops` of what a pool must have of them, `distances` of how far below the
    first the second buffer of an allowed overlap must be. Raises `CycleError` for overlaps of the plan that no order of
    its buffers expresses.
    """
    at = {p.buffer: p.offset_bytes for p in plan.placements if p.pool in pools}
    home = {p.buffer: p.pool for p in plan.placements}
    group = {name: g.name for g in problem.aliases for name, _ in g.members}
    buffers = {b.name: b for b in problem.buffers if b.name in at}
    below: dict[str, set[tuple[str, int]]] = {
        group.get(n, n): set() for n in buffers
    }  # what must be below, by how much
    for first, second in _conflicts(problem, buffers):
        a, b = group.get(first, first), group.get(second, second)
        if a != b and home[first] == home[second]:
            low, high, distance = _order(first, second, at, buffers, sizes, distances)
            below[group.get(high, high)].add((group.get(low, low), distance))
    offsets: dict[str, int] = {}
    start = {group.get(n, n): at[n] for n in sorted(at)}
    for name in _sorted(below, start):
        offsets[name] = formulas.highest((offsets[other], distance) for other, distance in below[name])
    placed = {n: offsets[group.get(n, n)] for n in buffers}
    heights = {
        pool: formulas.highest((placed[n], tops[n]) for n in sorted(buffers) if home[n] == pool) for pool in pools
    }
    return placed, heights


def _order(
    first: str,
    second: str,
    at: Mapping[str, int],
    buffers: Mapping[str, Buffer],
    sizes: Mapping[str, int],
    distances: Mapping[tuple[str, str], int],
) -> tuple[str, str, int]:
    """(lower, higher, least distance): what keeps two buffers as far apart as they must be."""
    if at[first] + buffers[first].size_bytes <= at[second]:
        return first, second, sizes[first]
    if at[second] + buffers[second].size_bytes <= at[first]:
        return second, first, sizes[second]
    if (first, second) not in distances:
        first, second = second, first
    return second, first, distances[first, second]


def _conflicts(problem: Problem, buffers: Mapping[str, Buffer]) -> Iterator[tuple[str, str]]:
    """Pairs of `buffers` that live together or must not share bytes."""
    yield from ((a, b) for a, b in problem.conflicts if a in buffers and b in buffers)
    starts = sorted((life.first, life.last, b.name) for b in buffers.values() for life in b.lifetimes)
    active: list[tuple[int, str]] = []
    for first, last, name in starts:
        active = [(end, other) for end, other in active if end > first]
        yield from ((other, name) for _, other in active if other != name)
        active.append((last, name))


def _sorted(below: Mapping[str, set[tuple[str, int]]], at: Mapping[str, int]) -> list[str]:
    """Names so that what is below another comes before it; `CycleError` where that is impossible."""
    sorter = TopologicalSorter({name: {other for other, _ in others} for name, others in below.items()})
    sorter.prepare()
    ready: list[tuple[int, str]] = []
    found = []
    while sorter.is_active():
        for name in sorter.get_ready():
            heapq.heappush(ready, (at[name], name))
        _, lowest = heapq.heappop(ready)
        sorter.done(lowest)
        found.append(lowest)
    return found
