"""The planning problem of several networks, and its plan taken apart.

Invariant: time is one network after the other, each between a point at which the caller writes its inputs and one at
which the caller reads its outputs. What a network keeps (states, resident constants) lives at all points, everything
else only at its network's own; so a plan of this problem is right for every order of runs. Networks that may run
together conflict as wholes. An output that another network reads is one with its input, and kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from ..artifact.application import named
from ..problem import (
    AccessHistory,
    AliasGroup,
    Buffer,
    BufferAccess,
    BufferKind,
    Lifetime,
    Placement,
    Plan,
    PlanStatus,
    Pool,
    PoolUsage,
    Problem,
    used_bytes,
)

KEPT = (BufferKind.STATE, BufferKind.RESIDENT)
"""Kinds of buffers that keep their content while other networks run."""

Connection = tuple[str, str]  # an output and the input of another network, which is given it, by their joint names


def join(
    name: str,
    networks: Mapping[str, Problem],
    together: Collection[tuple[str, str]] = (),
    connected: Collection[Connection] = (),
) -> Problem:
    """The problem of all `networks`; pairs of `together` may run at the same time."""
    parts, first = [], 0
    last = sum(_length(problem) for problem in networks.values())
    for network, problem in networks.items():
        parts.append(_shifted(network, problem, first, last))
        first += _length(problem)
    shared = {end for connection in connected for end in connection}
    always = (Lifetime(0, last),)
    return Problem(
        tuple(replace(b, lifetimes=always) if b.name in shared else b for part in parts for b in part.buffers),
        next(iter(networks.values())).pools,
        (*(pair for part in parts for pair in part.conflicts), *_conflicts(networks, together)),
        (*(a for part in parts for a in part.aliases), *_connections(connected)),
        tuple(o for part in parts for o in part.overlaps if not {o.first, o.second} & shared),
        tuple(p for part in parts for p in part.points),
        name,
        tuple(known for part in parts for known in part.accesses),
        tuple(b for part in parts for b in part.branches),
    )


def _connections(connected: Collection[Connection]) -> Iterator[AliasGroup]:
    """Each output with all inputs that read it."""
    outputs = dict.fromkeys(output for output, _ in connected)
    for output in outputs:
        inputs = [given for made, given in connected if made == output]
        yield AliasGroup(f"{output} connected", ((output, 0), *((given, 0) for given in inputs)))


def shift_of(networks: Mapping[str, Problem], network: str) -> int:
    """What is added to a point of `network`."""
    names = list(networks)
    return sum(_length(networks[name]) for name in names[: names.index(network)]) + 1


def take(network: str, problem: Problem, joint: Plan) -> Plan:
    """The part of a joint plan that places the buffers of `problem`, the one of `network`."""
    at = {p.buffer: p for p in joint.placements}
    placements = tuple(replace(at[named(network, b.name)], buffer=b.name) for b in problem.buffers)
    return plan_of(problem, placements, joint)


def plan_of(problem: Problem, placements: Sequence[Placement], like: Plan) -> Plan:
    """A plan with these placements, of which nothing is proven."""
    usage = tuple(PoolUsage(name, used, 0) for name, used in used_bytes(problem, placements).items())
    return Plan(tuple(placements), usage, PlanStatus.FEASIBLE, like.planner, like.seed)


def stack(networks: Mapping[str, tuple[Problem, Plan]], together: Collection[tuple[str, str]] = ()) -> list[Placement]:
    """Placements of the joint problem: each network's own plan, moved as a whole, with what is kept above all of them.

    Networks that run together are one above the other. What is fixed stays.
    """
    pools = next(iter(networks.values()))[0].pools
    bases: dict[str, dict[str, int]] = {}
    tops: dict[str, dict[str, int]] = {}
    for network, (problem, plan) in networks.items():
        partners = {
            other for pair in together if network in pair for other in pair if other != network and other in tops
        }
        bases[network] = {p.name: _aligned(max((tops[o][p.name] for o in partners), default=0), p) for p in pools}
        passing = [p for p in plan.placements if problem.buffer(p.buffer).kind not in KEPT]
        heights = used_bytes(problem, passing)
        tops[network] = {name: bases[network][name] + height for name, height in heights.items()}
    above = {p.name: max(top[p.name] for top in tops.values()) for p in pools}
    for problem, _ in networks.values():
        for buffer in problem.buffers:
            if buffer.fixed is not None:
                above[buffer.fixed[0]] = max(above[buffer.fixed[0]], buffer.fixed[1] + buffer.size_bytes)
    placements = []
    for network, (problem, plan) in networks.items():
        at = {p.buffer: p for p in plan.placements}
        for buffer in problem.buffers:
            place, name = at[buffer.name], named(network, buffer.name)
            if buffer.fixed is not None:
                offset = buffer.fixed[1]
            elif buffer.kind in KEPT:
                offset = above[place.pool] + -above[place.pool] % buffer.alignment
                above[place.pool] = offset + buffer.size_bytes
            else:
                offset = bases[network][place.pool] + place.offset_bytes
            placements.append(Placement(name, place.pool, offset))
    return placements


def _length(problem: Problem) -> int:
    """Points of a network: its own, and those of the caller before and after them."""
    return max(1, len(problem.points)) + 2


def _shifted(network: str, problem: Problem, first: int, last: int) -> Problem:
    own = max(1, len(problem.points))
    start, stop = first + 1, first + own + 1

    def rename(name: str) -> str:
        return named(network, name)

    read_last = {k.buffer for k in problem.accesses if any(access.point >= own for access in k.reads)}

    def lives(buffer: Buffer) -> tuple[Lifetime, ...]:
        if buffer.kind in KEPT:
            return (Lifetime(0, last),)
        found = [Lifetime(life.first + start, life.last + start) for life in buffer.lifetimes]
        if found and buffer.kind is BufferKind.INPUT and found[0].first == start:
            found[0] = Lifetime(first, found[0].last)
        if found and found[-1].last == stop and (buffer.kind is BufferKind.OUTPUT or buffer.name in read_last):
            found[-1] = Lifetime(found[-1].first, stop + 1)
        return tuple(found)

    def shifted(known: AccessHistory) -> AccessHistory:
        reads, writes = (tuple(a._replace(point=a.point + start) for a in part) for part in (known.reads, known.writes))
        if inputs.get(known.buffer):
            writes = (BufferAccess(first), *writes)
        return AccessHistory(rename(known.buffer), reads, writes)

    inputs = {b.name: b.kind is BufferKind.INPUT for b in problem.buffers}
    labels = tuple(f"{network}: {label}" for label in problem.points) or (f"{network}: return",)
    return replace(
        problem,
        buffers=tuple(
            replace(b, name=rename(b.name), lifetimes=lives(b), producer=b.producer and rename(b.producer),
                    consumers=tuple(map(rename, b.consumers))) for b in problem.buffers
        ),
        conflicts=tuple((rename(a), rename(b)) for a, b in problem.conflicts),
        aliases=tuple(
            replace(a, name=rename(a.name), members=tuple((rename(n), inner) for n, inner in a.members))
            for a in problem.aliases
        ),
        overlaps=tuple(replace(o, first=rename(o.first), second=rename(o.second)) for o in problem.overlaps),
        points=(f"{network}: inputs are written", *labels, f"{network}: outputs are read"),
        accesses=tuple(shifted(known) for known in problem.accesses),
        branches=tuple(replace(b, first=b.first + start, middle=b.middle + start, last=b.last + start)
                       for b in problem.branches),
    )  # fmt: skip


def _conflicts(networks: Mapping[str, Problem], together: Collection[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for one, other in together:
        for a in networks[one].buffers:
            for b in networks[other].buffers:
                yield named(one, a.name), named(other, b.name)


def _aligned(offset: int, pool: Pool) -> int:
    grain = max(pool.alignment, 64)
    return offset + -offset % grain
