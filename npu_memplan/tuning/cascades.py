"""NPU functions made in stripes, so that their buffers need fewer bytes.

Invariant: a function is changed only where a plan of its buffers, made by the ordinary planner, needs fewer bytes;
of several such choices, when a pool has a size, the one with the fewest cycles that fits; else the one with the least
bytes cubed times cycles, so that a per cent of bytes is worth three of cycles: stripes are for programs short of
memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from .. import planners
from ..ethosu.program.primfunc import from_primfunc, to_primfunc
from ..ethosu.program.program import BufferRole
from ..ethosu.schedule.regions import places
from ..ethosu.schedule.shram import round_up
from ..ethosu.schedule.stripes.apply import apply, copy_names
from ..ethosu.schedule.stripes.cascade_space import CascadeSpace
from ..ethosu.schedule.stripes.choose import choose, least_bytes
from ..ethosu.schedule.stripes.copies import cycles_with_copies
from ..ethosu.schedule.stripes.group import Group
from ..problem import AllowedOverlap, Buffer, Lifetime, Placement, Plan, Pool, Problem
from ..request import StripeOptions
from ..vocabulary import is_npu
from .placed import stream_cycles

_STEP = 105  # per cent, from one limit to the next
_FASTER = 0.998  # of the cycles of a choice with fewer bytes: others are not worth a plan
_BELOW = (90, 95)  # per cent
_FAR = 110  # per cent: what is planned for so much more hardly ever fits into less
_PLANNED = 3  # choices that are planned, best first, until one fits
_POOL = "arena"
_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class CascadeChoice:
    """Some groups of a program, what they need and what they cost; no groups: everything at once."""

    groups: tuple[Group, ...]
    size_bytes: int
    cycles: int


def stripe(module: Any, options: StripeOptions) -> Any:
    """`module` with the NPU functions in stripes."""
    import tvm

    functions = dict(module.functions.items())
    for variable, function in functions.items():
        if is_npu(function):
            program = from_primfunc(function)
            groups = CascadeSpace(
                program,
                io_in_pools=options.io_in_pools,
                reuse_inputs=options.reuse_inputs,
                memory_map=options.memory_map,
            )
            chosen = best_choice(groups, options.capacity_bytes)
            if chosen.groups:
                made = to_primfunc(apply(program, chosen.groups, groups.costs.blocks))
                kept = {str(k): v for k, v in function.attrs.items() if str(k) not in made.attrs}
                functions[variable] = made.with_attr(kept) if kept else made
    return tvm.IRModule(functions, module.attrs)


def best_choice(groups: CascadeSpace, capacity_bytes: int | None = None) -> CascadeChoice:
    """The choice with the fewest cycles that fits the capacity, or with the fewest bytes where none does; without one,
    that with the least bytes cubed times cycles. Everything at once is no choice where an input is streamed.
    """
    whole = _measured(groups, ())
    found = [] if groups.chains.streamed else [whole]
    least = least_bytes(groups)
    for limit, choice in _choices(groups, whole, least):
        found.append(choice)
        if capacity_bytes is None and limit**3 * whole.cycles >= min(map(_product, found)):
            break  # not even stripes at no cost would make up for the bytes
        if capacity_bytes is not None and limit > max(capacity_bytes, least) * _STEP // 100:
            break
    found = found or [whole]
    if capacity_bytes is None:
        return min(found, key=_product)
    fits = [choice for choice in found if choice.size_bytes <= capacity_bytes]
    if fits:
        return min(fits, key=lambda c: (c.cycles, c.size_bytes))
    return min(found, key=lambda c: (c.size_bytes, c.cycles))


def pareto_front(groups: CascadeSpace, limits: Sequence[int] = ()) -> tuple[CascadeChoice, ...]:
    """Choices from the least bytes to those of the whole program, each with fewer cycles than all that need less.

    The bytes are those of a plan of the program's own buffers; a pool of as many bytes makes the choice. Looked for
    at steps of five per cent, and at `limits`; where there are some, not far above or below all of them.
    """
    whole = _measured(groups, ())
    found = [whole, *(choice for _, choice in _choices(groups, whole, least_bytes(groups), limits))]
    best: list[CascadeChoice] = []
    for choice in sorted(found, key=lambda c: (c.size_bytes, c.cycles)):
        if not best or choice.cycles < best[-1].cycles:
            best.append(choice)
    return tuple(best)


def _product(choice: CascadeChoice) -> int:
    return choice.size_bytes**3 * choice.cycles


def at_limit(groups: CascadeSpace, limit_bytes: int, node_budget: int) -> CascadeChoice:
    """The choice with the fewest cycles by the sum of its operations among those that keep so many bytes alive, as a
    plan within so much work makes it.
    """
    return _measured(groups, choose(groups, limit_bytes), node_budget)


def beside_copies(near: CascadeSpace, far: CascadeSpace, limit_bytes: int, node_budget: int) -> CascadeChoice:
    """The choice with the fewest cycles by an estimate of copies of its constants in the bytes that it leaves; those of
    everything at once, if that is estimated best. Its cycles are that estimate. `near` has the constants beside the
    maps, `far` where they are.
    """
    estimated: dict[tuple[Group, ...], int] = {}
    for limit in (limit_bytes, *reversed(tuple(_limits(least_bytes(near), limit_bytes)))):
        chosen = choose(near, limit)
        if estimated and cycles_of(near, chosen) >= min(estimated.values()):
            break  # fewer bytes take more
        if chosen not in estimated:
            estimated[chosen] = cycles_with_copies(near, far, chosen, limit_bytes)
    found: list[CascadeChoice] = []
    fewest_bytes_first = reversed(estimated)
    for chosen in sorted(fewest_bytes_first, key=estimated.__getitem__)[:_PLANNED]:
        found.append(replace(_measured(near, chosen, node_budget), cycles=estimated[chosen]))
        if found[-1].size_bytes <= limit_bytes:
            break
    return min(found, key=lambda c: (max(0, c.size_bytes - limit_bytes), c.cycles))


def _choices(
    groups: CascadeSpace, whole: CascadeChoice, least: int, limits: Sequence[int] = ()
) -> Iterator[tuple[int, CascadeChoice]]:
    """Choices and the limits that they were made for, from the least bytes on; most are faster than all before."""
    fewest = inf
    seen: set[tuple[Group, ...]] = {()}
    looked_at = {*_limits(least, whole.size_bytes), *(n for n in limits if least < n < whole.size_bytes)}
    if limits:
        low, high = min(limits) * 100 // _FAR, max(limits) * _FAR // 100
        looked_at = {limit for limit in looked_at if low <= limit <= high or limit <= least}
    for limit in sorted(looked_at):
        chosen = choose(groups, limit)
        cycles = cycles_of(groups, chosen)
        if chosen not in seen and (limit <= least or cycles < fewest * _FASTER):
            fewest = cycles
            seen.add(chosen)
            yield limit, _measured(groups, chosen)


def _limits(least: int, most: int) -> Iterator[int]:
    """Bytes to look for groups at: a little below the least that groups alone can do, since a plan of all may."""
    yield from (least * below // 100 for below in _BELOW)
    while least < most:
        yield least
        least = least * _STEP // 100 + 1


def _measured(groups: CascadeSpace, chosen: tuple[Group, ...], node_budget: int | None = None) -> CascadeChoice:
    """`chosen` in the directions that a plan of both prefers, and the bytes of a plan of those."""
    requested = chosen, node_budget
    if requested not in groups.measured:
        groups.measured[requested] = _directed(groups, chosen, node_budget)
    known: CascadeChoice = groups.measured[requested]
    return known


def _directed(groups: CascadeSpace, chosen: Sequence[Group], node_budget: int | None) -> CascadeChoice:
    both = [(group, groups.turned(group)) for group in chosen]
    problem = _problem(groups, chosen, [(*down.overlaps, *up.overlaps) for down, up in both])
    made = _planned(groups, problem, node_budget)
    placed = {p.buffer: p for p in made.placements}
    directed = tuple(min(pair, key=lambda group: _refused(group, placed, groups.sizes)) for pair in both)
    if any(group.upwards for group in directed):
        problem = _problem(groups, directed, [group.overlaps for group in directed])
        made = _planned(groups, problem, node_budget)
    (usage,) = made.usage
    return CascadeChoice(directed, usage.used_bytes, _estimated(groups, directed, made))


def _planned(groups: CascadeSpace, problem: Problem, node_budget: int | None) -> Plan:
    """A plan; groups that differ inside may have the same buffers."""
    key = problem.buffers, problem.overlaps, node_budget
    if key not in groups.plans:
        groups.plans[key] = planners.plan(problem, node_budget=node_budget)
    known: Plan = groups.plans[key]
    return known


def _estimated(groups: CascadeSpace, chosen: Sequence[Group], made: Plan) -> int:
    """Cycles of the whole stream, with the waits of `made`."""
    memory_map = groups.costs.memory_map
    program = apply(groups.program, chosen, groups.costs.blocks, groups.slicer)
    placed = {p.buffer: p.offset_bytes for p in made.placements}
    beyond = max(usage.used_bytes for usage in made.usage)
    region_of = places(program, memory_map)
    at: dict[str, tuple[int, int]] = {}
    for buffer in program.buffers:
        region, base = region_of(buffer.name)
        if buffer.role is BufferRole.LUT:
            base = buffer.original_offset
        elif buffer.name in placed:
            base = placed[buffer.name]
        elif buffer.role is not BufferRole.CONSTANTS:  # it lies elsewhere
            base, beyond = round_up(beyond, _ALIGNMENT), round_up(beyond, _ALIGNMENT) + buffer.size_bytes
        at[buffer.name] = region, base
    return stream_cycles(program, at, memory_map, groups.costs.resource_uses)


def cycles_of(groups: CascadeSpace, chosen: Sequence[Group]) -> int:
    """Estimated cycles of all operations, those of no group made at once."""
    inside = {index for group in chosen for index in range(group.first, group.last + 1)}
    cycles = sum(group.cycles for group in chosen)
    return cycles + sum(groups.whole_cycles(i) for i in range(len(groups.program.operations)) if i not in inside)


def _refused(group: Group, placed: dict[str, Placement], sizes: dict[str, int]) -> int:
    """How many pairs share bytes in a plan at distances that `group` does not allow."""
    distances = [(o, placed[o.second].offset_bytes - placed[o.first].offset_bytes) for o in group.overlaps]
    return sum(-sizes[o.second] < d < sizes[o.first] and not o.permits(d) for o, d in distances)


def _problem(groups: CascadeSpace, chosen: Sequence[Group], overlaps: Sequence[Sequence[AllowedOverlap]]) -> Problem:
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
        sizes |= group.rolling_buffer_bytes
    buffers = [
        Buffer(name, sizes[name], (Lifetime(points[first], points[last] + 1),))
        for name, (first, last) in groups.live.items()
    ]
    names = copy_names(groups.program, chosen)
    for group in chosen:
        now = (Lifetime(points[group.first], points[group.first] + 1),)
        buffers += [Buffer(names[index], kept.size_bytes, now) for index, kept in group.kept.items()]
    inside = {index for group in chosen for index in range(group.first, group.last + 1)}
    allowed = [o.allowed for o in groups.chains.whole_overlaps if o.last not in inside]
    allowed += [o for pair in overlaps for o in pair]
    return Problem(tuple(buffers), (Pool(_POOL),), overlaps=tuple(dict.fromkeys(allowed)))
