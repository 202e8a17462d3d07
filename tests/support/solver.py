"""What a planning problem allows, asked of OR-tools' CP-SAT and of a checker: written from the definition alone.

Invariant: nothing here comes from the planners or from `verify`. The model has an offset and a choice of pool for
every buffer, and for each pair that conflicts in a pool: one above the other, the other above the one, or an allowed
overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import lcm

from ortools.sat.python import cp_model

from npu_memplan.problem import Buffer, Placement, Pool, Problem


class Unknown(Exception):
    """The solver ran out of its time."""


def candidates(problem: Problem, buffer: Buffer) -> tuple[str, ...]:
    """Names of the pools that `buffer` may live in, best first; for a member of an alias group those of all members."""
    mine = _own(problem, buffer)
    for group in problem.aliases:
        members = [problem.buffer(name) for name, _ in group.members]
        if buffer in members:
            leader = next((b for b in members if b.fixed is not None), members[0])
            mine = tuple(p for p in _own(problem, leader) if all(p in _own(problem, b) for b in members))
    return mine


def _own(problem: Problem, buffer: Buffer) -> tuple[str, ...]:
    if buffer.fixed is not None:
        return (buffer.fixed[0],)
    names = buffer.pools or tuple(p.name for p in problem.pools if not p.read_only)
    return tuple(n for n in names if buffer.agents <= problem.pool(n).agents)


def cost(problem: Problem, buffer: Buffer, pool: str) -> int:
    """Bytes moved times the pool's rank, where pools state no bandwidth."""
    reads = buffer.read_bytes or (0 if buffer.write_bytes else buffer.size_bytes)
    writes = buffer.write_bytes or (0 if buffer.read_bytes else buffer.size_bytes)
    return (reads + writes) * candidates(problem, buffer).index(pool)


def conflicting(problem: Problem) -> Iterator[tuple[Buffer, Buffer]]:
    """Pairs that may not share a byte, but for allowed overlaps."""
    groups = [{name for name, _ in group.members} for group in problem.aliases]
    listed = {frozenset(pair) for pair in problem.conflicts}
    for a, b in combinations(problem.buffers, 2):
        meet = any(x.first < y.last and y.first < x.last for x in a.lifetimes for y in b.lifetimes)
        together = any({a.name, b.name} <= group for group in groups)
        if a.size_bytes and b.size_bytes and not together and (meet or frozenset((a.name, b.name)) in listed):
            yield a, b


def broken(problem: Problem, placements: Sequence[Placement]) -> list[str]:
    """What a plan does that the problem forbids, in words."""
    at = {p.buffer: p for p in placements}
    if {*at} != {b.name for b in problem.buffers} or len(at) != len(placements):
        return ["not every buffer is placed once"]
    found = []
    for b in problem.buffers:
        place, size = at[b.name], problem.pool(at[b.name].pool).size_bytes
        if place.offset_bytes < 0 or place.offset_bytes % b.alignment:
            found.append(f"{b.name} is misaligned")
        if size is not None and place.offset_bytes + b.size_bytes > size:
            found.append(f"{b.name} is outside its pool")
        if place.pool not in _own(problem, b) or (b.fixed is not None and place.offset_bytes != b.fixed[1]):
            found.append(f"{b.name} may not be there")
    for group in problem.aliases:
        if len({(at[name].pool, at[name].offset_bytes - inner) for name, inner in group.members}) > 1:
            found.append(f"group {group.name} is torn")
    for a, b in conflicting(problem):
        x, y = at[a.name], at[b.name]
        apart = x.offset_bytes + a.size_bytes <= y.offset_bytes or y.offset_bytes + b.size_bytes <= x.offset_bytes
        if (
            x.pool == y.pool
            and not apart
            and not any(
                o.permits(at[o.second].offset_bytes - at[o.first].offset_bytes)
                for o in problem.overlaps
                if {o.first, o.second} == {a.name, b.name}
            )
        ):
            found.append(f"{a.name} and {b.name} share bytes")
    return found


class Exact:
    """The problem as CP-SAT sees it; with `assigned`, each buffer's pool is given."""

    def __init__(self, problem: Problem, assigned: Mapping[str, str] | None = None, limit_s: float = 10.0) -> None:
        self.problem, self.limit_s = problem, limit_s
        self.model = model = cp_model.CpModel()
        step = lcm(*(b.alignment for b in problem.buffers), 1)
        self.horizon = sum(b.size_bytes + step for b in problem.buffers) + step
        self.horizon += sum(abs(inner) for group in problem.aliases for _, inner in group.members)
        self.horizon += max((b.fixed[1] for b in problem.buffers if b.fixed is not None), default=0)
        self.offset = {b.name: model.new_int_var(0, self.horizon, b.name) for b in problem.buffers}
        self.inside = {
            (b.name, p): model.new_bool_var(f"{b.name} in {p}")
            for b in problem.buffers
            for p in (candidates(problem, b) if assigned is None else (assigned[b.name],))
        }
        self.height = {p.name: model.new_int_var(0, 2 * self.horizon, p.name) for p in problem.pools}
        for b in problem.buffers:
            self._place(b)
        for group in problem.aliases:
            self._group(group.members)
        for a, b in conflicting(problem):
            self._separate(a, b)

    def _pools(self, b: Buffer) -> list[str]:
        return [p for name, p in self.inside if name == b.name]

    def _place(self, b: Buffer) -> None:
        model, at = self.model, self.offset[b.name]
        model.add_exactly_one(self.inside[b.name, p] for p in self._pools(b))
        model.add_modulo_equality(0, at, b.alignment)
        if b.fixed is not None:
            model.add(at == b.fixed[1])
        for p in self._pools(b):
            size = self.problem.pool(p).size_bytes
            model.add(self.height[p] >= at + b.size_bytes).only_enforce_if(self.inside[b.name, p])
            if size is not None:
                model.add(at + b.size_bytes <= size).only_enforce_if(self.inside[b.name, p])

    def _group(self, members: Sequence[tuple[str, int]]) -> None:
        for (a, x), (b, y) in combinations(members, 2):
            self.model.add(self.offset[a] - x == self.offset[b] - y)
            for pool in self.height:
                if (a, pool) in self.inside:
                    self.model.add(self.inside[a, pool] == self.inside[b, pool])

    def _separate(self, a: Buffer, b: Buffer) -> None:
        model = self.model
        ways = [model.new_bool_var("") for _ in range(2)]
        model.add(self.offset[a.name] + a.size_bytes <= self.offset[b.name]).only_enforce_if(ways[0])
        model.add(self.offset[b.name] + b.size_bytes <= self.offset[a.name]).only_enforce_if(ways[1])
        for o in self.problem.overlaps:
            if {o.first, o.second} == {a.name, b.name}:
                ways.append(model.new_bool_var(""))
                distance = self.offset[o.second] - self.offset[o.first]
                if o.lowest is not None:
                    model.add(distance >= o.lowest).only_enforce_if(ways[-1])
                if o.highest is not None:
                    model.add(distance <= o.highest).only_enforce_if(ways[-1])
        for p in {*self._pools(a)} & {*self._pools(b)}:
            elsewhere = [self.inside[a.name, p].negated(), self.inside[b.name, p].negated()]
            model.add_bool_or([*ways, *elsewhere])

    def least(self, pools: Iterable[str] = (), costs: bool = False) -> int | None:
        """The least sum of the heights of `pools`, or the least cost of an assignment; None when nothing fits."""
        goal = [self.height[p] for p in pools]
        if costs:
            goal = [cost(self.problem, self.problem.buffer(n), p) * var for (n, p), var in self.inside.items()]
        self.model.minimize(sum(goal))
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_deterministic_time = self.limit_s  # about seconds, whatever else the machine does
        status = solver.solve(self.model)
        if status == cp_model.INFEASIBLE:
            return None
        if status != cp_model.OPTIMAL:
            raise Unknown
        return round(solver.objective_value)


def only(problem: Problem, names: Iterable[str], pool: str) -> Problem:
    """The buffers called `names` alone, all in `pool`."""
    kept = {*names}
    return replace(
        problem,
        buffers=tuple(replace(b, pools=(pool,)) for b in problem.buffers if b.name in kept),
        pools=tuple(p for p in problem.pools if p.name == pool),
        conflicts=tuple(c for c in problem.conflicts if {*c} <= kept),
        aliases=tuple(
            replace(g, members=tuple(m for m in g.members if m[0] in kept))
            for g in problem.aliases
            if any(name in kept for name, _ in g.members)
        ),
        overlaps=tuple(o for o in problem.overlaps if {o.first, o.second} <= kept),
    )


def unlimited(problem: Problem) -> Problem:
    """The same in pools without a size."""
    return replace(problem, pools=tuple(replace(p, size_bytes=None) for p in problem.pools))


def in_one_pool(problem: Problem, size_bytes: int | None = None) -> Problem:
    """The same in one pool."""
    buffers = tuple(replace(b, pools=(), fixed=b.fixed and ("m", b.fixed[1])) for b in problem.buffers)
    return replace(problem, buffers=buffers, pools=(Pool("m", size_bytes),))
