"""Small buffers of a kernel side by side, as one buffer of a problem whose sizes depend on symbols.

Invariant: a plan of the problem with blocks, once `split`, is one of the problem without. A block costs at most the
bytes of its buffers; it saves a formula, and a parameter of the kernel, for all but one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..problem import Buffer, Lifetime, Plan, Problem

SMALL = 1024
"""Bytes of a buffer that a kernel has on its stack when nothing is planned, at most."""


@dataclass(frozen=True, slots=True)
class JoinedBuffers:
    """A problem with blocks; `inner` has the buffers in them: name -> (name of the block, first byte in it)."""

    problem: Problem
    inner: Mapping[str, tuple[str, int]]

    def share(self, first: str, second: str) -> bool:
        """Whether two buffers lie side by side in one block."""
        return first != second and {first, second} <= self.inner.keys() and self.of(first) == self.of(second)

    def of(self, name: str) -> str:
        """The block of a buffer, or the buffer itself."""
        return self.inner.get(name, (name, 0))[0]

    def split(self, plan: Plan, problem: Problem) -> Plan:
        """A plan of `problem`, the one without blocks."""
        homes = {p.buffer: p for p in plan.placements}
        placements = []
        for buffer in problem.buffers:
            block, start = self.inner.get(buffer.name, (buffer.name, 0))
            placements.append(replace(homes[block], buffer=buffer.name, offset_bytes=homes[block].offset_bytes + start))
        return replace(plan, placements=tuple(placements))


def join_small_buffers(
    problem: Problem, kernels: Iterable[Sequence[str]], changing: Collection[str], unit: int
) -> JoinedBuffers:
    """`problem` with one buffer for the small ones of each of `kernels`, which are named, from multiples of `unit`.

    Sizes of buffers that are `changing` are not known. Nothing is side by side where a pool has a size to be kept.
    """
    buffers = {b.name: b for b in problem.buffers}
    related = {name for pair in problem.conflicts for name in pair}
    related.update(name for group in problem.aliases for name, _ in group.members)
    inner: dict[str, tuple[str, int]] = {}
    for names in kernels if all(pool.size_bytes is None for pool in problem.pools) else ():
        own = [buffers[n] for n in names if n in buffers and n not in changing and n not in related]
        small = [b for b in own if b.size_bytes <= SMALL and b.pools == own[0].pools and b.fixed is None]
        if len(small) > 1:
            inner |= _put_side_by_side(buffers, small, unit)
    found = JoinedBuffers(problem, inner)
    kept = tuple(b for name, b in buffers.items() if found.of(name) == name)
    overlaps = tuple(o for o in problem.overlaps if o.first not in inner and o.second not in inner)
    return replace(found, problem=replace(problem, buffers=kept, overlaps=overlaps, accesses=()))


def _put_side_by_side(buffers: dict[str, Buffer], members: Sequence[Buffer], unit: int) -> dict[str, tuple[str, int]]:
    """Makes the first of `members` a block of all; where each begins in it."""
    starts, size = {}, 0
    for member in members:
        starts[member.name] = (members[0].name, size)
        size += -(-member.size_bytes // unit) * unit
    lives = [life for member in members for life in member.lifetimes]
    life = Lifetime(min(life.first for life in lives), max(life.last for life in lives))
    alignment = max(member.alignment for member in members)
    buffers[members[0].name] = replace(members[0], size_bytes=size, lifetimes=(life,), alignment=alignment)
    return starts
