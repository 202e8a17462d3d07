"""Verification of a plan: every constraint of the problem checked against every placement.

Invariant: shares no code with the planners or the extraction; it reads `problem` and `plan` only, so a fault there
cannot hide here. No pair of buffers is compared unless both are live at one point and are in one pool, so a million
buffers are checked by a sweep over time.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from ..errors import InternalError, NpuMemplanError
from ..problem import Agent, AllowedOverlap, Buffer, BufferKind, Placement, Plan, Pool, Problem, used_bytes, validate
from .last_writers import stale_reads


class Constraint(Enum):
    """The constraints that a placement can break."""

    MISSING = "missing buffer"
    UNKNOWN = "unknown buffer or pool"
    DUPLICATE = "buffer placed twice"
    OUTSIDE = "outside pool"
    MISALIGNED = "misaligned"
    UNREACHABLE = "unreachable pool"
    MOVED = "moved fixed buffer"
    ALIAS = "alias group torn apart"
    OVERLAP = "overlap"
    RESIDENT = "resident constants not kept"
    UNWRITTEN = "unwritten bytes"
    USAGE = "wrong usage"


@dataclass(frozen=True, slots=True)
class Violation:
    """One violated constraint."""

    constraint: Constraint
    message: str
    buffer: str = ""
    other: str = ""  # the second buffer where there is one
    pool: str = ""
    start_bytes: int = 0  # half-open range at fault inside `pool`
    stop_bytes: int = 0
    point: int | None = None  # of time at which both are live; None where time plays no part, as with a conflict


class VerificationError(NpuMemplanError):
    """A plan violates a constraint; `violations` has them all."""

    def __init__(self, problem: Problem, plan: Plan, violations: tuple[Violation, ...]) -> None:
        self.violations = violations
        shown = "\n".join(f"  {v.constraint.value}: {v.message}" for v in violations[:5])
        more = f"\n  and {len(violations) - 5} more" if len(violations) > 5 else ""
        super().__init__(
            f"the plan of {plan.planner!r} for problem {problem.name!r} violates {len(violations)} "
            f"constraint{'s' if len(violations) != 1 else ''}:\n{shown}{more}\n"
            "plan again, or check that plan and problem belong together"
        )


def check(problem: Problem, plan: Plan) -> None:
    """Raise `VerificationError` with every violation unless `plan` is right."""
    violations = verify(problem, plan)
    if violations:
        raise VerificationError(problem, plan, violations)


def check_own(problem: Problem, plan: Plan) -> None:
    """`check` of a plan of ours: one that violates a constraint is an `InternalError`."""
    try:
        check(problem, plan)
    except VerificationError as error:
        raise InternalError(str(error)) from error


def verify(problem: Problem, plan: Plan) -> tuple[Violation, ...]:
    """All violations of `plan`, in a stable order; empty means the plan is right.

    Raises `ProblemError` when the problem itself is contradictory.
    """
    validate(problem)
    return violations_of(problem, plan)


def violations_of(problem: Problem, plan: Plan) -> tuple[Violation, ...]:
    """`verify` for a problem that is known to be valid: of a million buffers, that takes seconds to find out."""
    placed: dict[str, Placement] = {}
    found = [*_invalid_placements(problem, plan, placed)]
    pools = {pool.name: pool for pool in problem.pools}
    allowed: dict[tuple[tuple[str, ...], frozenset[Agent]], set[str]] = {}  # names of pools
    for buffer in problem.buffers:
        if (buffer.pools, buffer.agents) not in allowed:
            allowed[buffer.pools, buffer.agents] = {pool.name for pool in problem.candidates(buffer)}
        if buffer.name not in placed:
            found.append(Violation(Constraint.MISSING, f"{buffer.name!r} has no placement", buffer.name))
        else:
            at = placed[buffer.name]
            where = (buffer.name, "", at.pool, at.offset_bytes, at.offset_bytes + buffer.size_bytes)
            found += [
                Violation(constraint, text, *where)
                for constraint, text in _buffer_violations(
                    problem, buffer, at, pools[at.pool], allowed[buffer.pools, buffer.agents]
                )
            ]
    found.extend(_resident_violations(problem))
    found.extend(_group_violations(problem, placed))
    found.extend(_Overlaps(problem, placed).find_violations())
    if not found:
        found.extend(_stale_violations(problem, placed))
        found.extend(_usage_violations(problem, plan))
    return tuple(found)


def _invalid_placements(problem: Problem, plan: Plan, placed: dict[str, Placement]) -> Iterator[Violation]:
    """The placements that can be none of the problem's; the others are put into `placed`, by buffer."""
    buffers, pools = ({item.name for item in items} for items in (problem.buffers, problem.pools))
    for at in plan.placements:
        name = at.buffer
        if name not in buffers:
            yield Violation(Constraint.UNKNOWN, f"{name!r} is placed but not in the problem", name)
        elif type(at.offset_bytes) is not int:
            yield Violation(Constraint.UNKNOWN, f"{name!r} is at offset {at.offset_bytes!r}, no whole number", name)
        elif at.pool not in pools:
            yield Violation(Constraint.UNKNOWN, f"{name!r} is in pool {at.pool!r}, which does not exist", name)
        elif name in placed:
            yield Violation(Constraint.DUPLICATE, f"{name!r} has two placements", name, name, at.pool)
        else:
            placed[name] = at


def _buffer_violations(
    problem: Problem, buffer: Buffer, at: Placement, pool: Pool, allowed: Collection[str]
) -> Iterator[tuple[Constraint, str]]:
    """The broken constraints that concern one buffer and its pool, each in words."""
    name, start, stop = buffer.name, at.offset_bytes, at.offset_bytes + buffer.size_bytes
    if start < 0 or (pool.size_bytes is not None and stop > pool.size_bytes):
        size = "unbounded" if pool.size_bytes is None else f"{pool.size_bytes} bytes"
        yield Constraint.OUTSIDE, f"{name!r} takes bytes [{start}, {stop}) of pool {pool.name!r} ({size})"
    if start % buffer.alignment:
        lies = f"{name!r} lies at offset {start} of pool {pool.name!r}"
        yield Constraint.MISALIGNED, f"{lies}, not a multiple of {buffer.alignment}"
    if buffer.kind is BufferKind.RESIDENT:
        end = max(1, len(problem.points))
        lives = {point for life in buffer.lifetimes for point in range(*life)}
        if pool.read_only or not lives.issuperset(range(end)):
            kept = f"{name!r} is put into pool {pool.name!r} once, before the first run"
            yield Constraint.RESIDENT, f"{kept}, so it has to live in a writable pool at all points [0, {end})"
    if buffer.fixed is not None:
        if (at.pool, at.offset_bytes) != buffer.fixed:
            fixed = f"{name!r} is fixed at offset {buffer.fixed[1]} of pool {buffer.fixed[0]!r}"
            yield Constraint.MOVED, f"{fixed}, the plan has offset {start} of {pool.name!r}"
    elif pool.name not in allowed:
        agents = ", ".join(sorted(a.value for a in buffer.agents))
        yield Constraint.UNREACHABLE, f"{name!r} (used by {agents}) may not live in pool {pool.name!r}"


def _resident_violations(problem: Problem) -> Iterator[Violation]:
    """Nothing writes resident constants: the next run needs them."""
    resident = {buffer.name for buffer in problem.buffers if buffer.kind is BufferKind.RESIDENT}
    for known in problem.accesses:
        if known.buffer in resident and known.writes:
            point = known.writes[0].point
            text = f"{known.buffer!r} is put into its pool once, and written {_buffers_at(problem, point)}"
            yield Violation(Constraint.RESIDENT, text, known.buffer, point=point)


def _group_violations(problem: Problem, placed: dict[str, Placement]) -> Iterator[Violation]:
    """Members of an alias group share one pool and one origin."""
    for group in problem.aliases:
        members = [(name, inner) for name, inner in group.members if name in placed]
        if not members:
            continue
        leader, inner0 = members[0]
        origin = placed[leader].offset_bytes - inner0
        for name, inner in members[1:]:
            at = placed[name]
            if at.pool != placed[leader].pool or at.offset_bytes - inner != origin:
                text = (
                    f"{name!r} lies at offset {at.offset_bytes} of {at.pool!r}; alias group {group.name!r} with "
                    f"{leader!r} needs offset {origin + inner} of {placed[leader].pool!r}"
                )
                yield Violation(Constraint.ALIAS, text, name, leader, at.pool, at.offset_bytes, at.offset_bytes)


def _stale_violations(problem: Problem, placed: dict[str, Placement]) -> Iterator[Violation]:
    """Every byte that is read was written by its buffer, and by no other since then."""
    for read in stale_reads(problem, placed):
        start, stop, pool = read.start_bytes, read.stop_bytes, placed[read.buffer].pool
        first = start - placed[read.buffer].offset_bytes
        who = f"{read.writer!r} wrote last" if read.writer else "nothing has written"
        text = (
            f"bytes [{first}, {first + stop - start}) of {read.buffer!r} are read {_buffers_at(problem, read.point)}, "
            f"but {who} bytes [{start}, {stop}) of pool {pool!r}"
        )
        yield Violation(Constraint.UNWRITTEN, text, read.buffer, read.writer, pool, start, stop, read.point)


def _buffers_at(problem: Problem, point: int) -> str:
    named = 0 <= point < len(problem.points)
    return f"at point {point}" + (f" ({problem.points[point]})" if named else "")


def _usage_violations(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """The heights that the plan states are those of its placements."""
    heights = used_bytes(problem, plan.placements)
    stated = {u.pool: u.used_bytes for u in plan.usage}
    for pool, height in heights.items():
        if stated.get(pool, height) != height:
            text = f"the plan states {stated[pool]} bytes used of pool {pool!r}, its placements end at {height}"
            yield Violation(Constraint.USAGE, text, pool=pool, start_bytes=height, stop_bytes=stated[pool])


class _Overlaps:
    """Pairs that share bytes of a pool although they conflict."""

    def __init__(self, problem: Problem, placed: dict[str, Placement]) -> None:
        self.problem = problem
        self.placed = placed
        self.buffers = {b.name: b for b in problem.buffers}
        self.group = {name: group.name for group in problem.aliases for name, _ in group.members}
        self.allowed: dict[tuple[str, str], list[AllowedOverlap]] = {}
        for overlap in problem.overlaps:
            self.allowed.setdefault((overlap.first, overlap.second), []).append(overlap)
        self.reported: set[tuple[str, str]] = set()

    def find_violations(self) -> Iterator[Violation]:
        for pool in self.problem.pools:
            yield from self._sweep_time([n for n, at in self.placed.items() if at.pool == pool.name])
        for first, second in self.problem.conflicts:
            if first in self.placed and second in self.placed:
                yield from self._pair_violation(first, second, None)

    def _sweep_time(self, names: Iterable[str]) -> Iterator[Violation]:
        """Go through time with the live buffers, sorted by offset, in layers of disjoint byte ranges."""
        events: list[tuple[int, bool, str]] = []
        for name in names:
            if self.buffers[name].size_bytes:
                for life in self.buffers[name].lifetimes:
                    events.append((life.first, True, name))
                    events.append((life.last, False, name))
        events.sort()
        layers: list[list[tuple[int, int, str]]] = [[]]
        layer_of: dict[str, int] = {}
        for point, begins, name in events:
            start = self.placed[name].offset_bytes
            entry = (start, start + self.buffers[name].size_bytes, name)
            if not begins:
                layer = layers[layer_of.pop(name)]
                del layer[bisect_left(layer, entry)]
                continue
            free = -1
            for index, layer in enumerate(layers):
                # ranges of one layer are disjoint: at most one of them starts before `start` and reaches it
                low = bisect_left(layer, (start,))
                if low and layer[low - 1][1] > start:
                    low -= 1
                high = low
                while high < len(layer) and layer[high][0] < entry[1]:
                    yield from self._pair_violation(layer[high][2], name, point)
                    high += 1
                if high == low and free < 0:
                    free = index
            if free < 0:
                free = len(layers)
                layers.append([])
            insort(layers[free], entry)
            layer_of[name] = free

    def _pair_violation(self, first: str, second: str, point: int | None) -> Iterator[Violation]:
        """The violation of two conflicting buffers, if they share bytes and nothing permits it."""
        at, bt = self.placed[first], self.placed[second]
        start = max(at.offset_bytes, bt.offset_bytes)
        stop = min(p.offset_bytes + self.buffers[p.buffer].size_bytes for p in (at, bt))
        if at.pool != bt.pool or start >= stop:
            return
        if first in self.group and self.group[first] == self.group.get(second):
            return
        distance = bt.offset_bytes - at.offset_bytes
        for ordered, by in (((first, second), distance), ((second, first), -distance)):
            if any(o.permits(by) for o in self.allowed.get(ordered, ())):
                return
        pair = (min(first, second), max(first, second))
        if pair in self.reported:
            return
        self.reported.add(pair)
        when = "although the problem lists the pair as a conflict"
        if point is not None:
            when = _buffers_at(self.problem, point)
        text = f"{first!r} and {second!r} share bytes [{start}, {stop}) of pool {at.pool!r} {when}"
        yield Violation(Constraint.OVERLAP, text, first, second, at.pool, start, stop, point)
