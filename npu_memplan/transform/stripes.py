"""NPU functions made in stripes, so that their buffers need fewer bytes.

Invariant: a function is changed only where a plan of its buffers, made by the ordinary planner, needs fewer bytes;
of several such choices the one with the least bytes squared times cycles, so that a per cent of bytes is worth two of
cycles: who asks for stripes asks for memory - or, when a pool has a size, the one of them that fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm

from .. import planners
from ..ethosu.program.primfunc import from_primfunc, to_primfunc
from ..ethosu.program.program import Overlap
from ..ethosu.schedule.stripes.apply import apply
from ..ethosu.schedule.stripes.choose import choose, least_bytes
from ..ethosu.schedule.stripes.groups import Group, Groups, Permission
from ..ethosu.time import MemoryMap
from ..problem import AllowedOverlap, Buffer, Lifetime, Placement, Pool, Problem
from ..vocabulary import is_npu

_STEP = 105  # per cent, from one limit to the next
_POOL = "arena"


@dataclass(frozen=True, slots=True)
class Choice:
    """Some groups of a program, what they need and what they cost; no groups: everything at once."""

    groups: tuple[Group, ...]
    size_bytes: int
    cycles: int


@dataclass(frozen=True, slots=True)
class StripeOptions:
    """For which memory stripes are made.

    `capacity_bytes` is what the pool of feature maps may hold; `io_in_pools`, `reuse_inputs`: whether inputs and
    outputs lie in it, and whether inputs may be overwritten; `where`: the memories around the NPU (None: its default
    system's).
    """

    capacity_bytes: int | None = None
    io_in_pools: bool = True
    reuse_inputs: bool = True
    where: MemoryMap | None = None


def stripe(module: Any, options: StripeOptions) -> Any:
    """`module` with the NPU functions in stripes."""
    functions = dict(module.functions.items())
    for variable, function in functions.items():
        if is_npu(function):
            program = from_primfunc(function)
            groups = Groups(
                program, io_in_pools=options.io_in_pools, reuse_inputs=options.reuse_inputs, where=options.where
            )
            chosen = best_choice(groups, options.capacity_bytes)
            if chosen.groups:
                made = to_primfunc(apply(program, chosen.groups, options.where))
                kept = {str(k): v for k, v in function.attrs.items() if str(k) not in made.attrs}
                functions[variable] = made.with_attr(kept) if kept else made
    return tvm.IRModule(functions, module.attrs)


def best_choice(groups: Groups, capacity_bytes: int | None = None) -> Choice:
    """The best of all choices along the limits from the least bytes to those of the whole program."""
    whole = best = _measured(groups, ())
    limit = least_bytes(groups)
    seen: set[tuple[Group, ...]] = {()}
    # beyond that, not even stripes at no cost would make up for the bytes
    while limit**2 * whole.cycles < best.size_bytes**2 * best.cycles:
        chosen = choose(groups, limit)
        if chosen not in seen:
            seen.add(chosen)
            best = min(best, _measured(groups, chosen), key=lambda c: _rank(c, capacity_bytes))
        limit = limit * _STEP // 100
    return best


def _rank(choice: Choice, capacity_bytes: int | None) -> tuple[int, int]:
    excess = 0 if capacity_bytes is None else max(0, choice.size_bytes - capacity_bytes)
    return excess, choice.size_bytes**2 * choice.cycles


def _measured(groups: Groups, chosen: Sequence[Group]) -> Choice:
    """`chosen` in the directions that a plan of both prefers, and the bytes of a plan of those."""
    both = [(group, groups.turned(group)) for group in chosen]
    problem = _problem(groups, chosen, [(*down.overlaps, *up.overlaps) for down, up in both])
    made = planners.plan(problem)
    placed = {p.buffer: p for p in made.placements}
    directed = tuple(min(pair, key=lambda group: _refused(group, placed, groups.sizes)) for pair in both)
    if any(group.upwards for group in directed):
        made = planners.plan(_problem(groups, directed, [group.overlaps for group in directed]))
    (usage,) = made.usage
    inside = {index for group in directed for index in range(group.first, group.last + 1)}
    cycles = sum(group.cycles for group in directed)
    cycles += sum(groups.whole_cycles(i) for i in range(len(groups.program.operations)) if i not in inside)
    return Choice(directed, usage.used_bytes, cycles)


def _refused(group: Group, placed: dict[str, Placement], sizes: dict[str, int]) -> int:
    """How many pairs share bytes in a plan at distances that `group` does not allow."""
    return sum(not _apart(o, placed, sizes) and not _allowed(o).permits(_distance(o, placed)) for o in group.overlaps)


def _allowed(o: Permission | Overlap) -> AllowedOverlap:
    return AllowedOverlap(o.first, o.second, o.lowest, o.highest)


def _distance(o: Permission, placed: dict[str, Placement]) -> int:
    return placed[o.second].offset_bytes - placed[o.first].offset_bytes


def _apart(o: Permission, placed: dict[str, Placement], sizes: dict[str, int]) -> bool:
    return not -sizes[o.second] < _distance(o, placed) < sizes[o.first]


def _problem(groups: Groups, chosen: Sequence[Group], overlaps: Sequence[Sequence[Permission]]) -> Problem:
    """The buffers of a program; a group is one point of time, as is every operation outside."""
    heads = {group.first: group for group in chosen}
    points: list[int] = []  # of each operation
    index, point = 0, 0
    while index < len(groups.program.operations):
        count = heads[index].last + 1 - index if index in heads else 1
        points += [point] * count
        index, point = index + count, point + 1
    sizes = dict(groups.sizes)
    for group in chosen:
        sizes |= group.ring_bytes
    buffers = [
        Buffer(name, sizes[name], (Lifetime(points[first], points[last] + 1),))
        for name, (first, last) in groups.live.items()
    ]
    inside = {index for group in chosen for index in range(group.first, group.last + 1)}
    allowed = [_allowed(o) for o in groups.whole_overlaps if o.last not in inside]
    allowed += [_allowed(o) for pair in overlaps for o in pair]
    return Problem(tuple(buffers), (Pool(_POOL),), overlaps=tuple(dict.fromkeys(allowed)))
