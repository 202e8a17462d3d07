"""The planning problem and its answer, as pure data.

Invariant: everything a planner may use is in a `Problem`, everything it decides is in a
`Plan`. Sizes and offsets are bytes; times are points of one total order over the whole
program; every interval is half-open. This module imports neither TVM, Vela nor numpy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, NamedTuple

from msgspec import Meta

from .errors import NpuMemplanError

LARGEST_BYTES = (
    1 << 60
)  # sizes, offsets and points stay below it, so sums of millions fit 128 bits and floats order them
# What a file may say (`schema.py` holds it to these); `validate` says the same of problems made in Python.
Count = Annotated[int, Meta(ge=0, le=LARGEST_BYTES - 1)]
Alignment = Annotated[int, Meta(ge=1, le=LARGEST_BYTES - 1)]
Point = Annotated[int, Meta(ge=1 - LARGEST_BYTES, le=LARGEST_BYTES - 1)]
Distance = Point  # bytes, in either direction
Rate = Annotated[float, Meta(gt=0)]


class ProblemError(NpuMemplanError):
    """A planning problem contradicts itself (unknown name, empty lifetime, size < 0, ...)."""


class Agent(Enum):
    """Who reads and writes memory; a pool lists the agents that can reach it."""

    HOST = "host"
    NPU = "npu"


class BufferKind(Enum):
    """What a buffer is for; planners ignore it, reports colour by it."""

    INPUT = "input"
    OUTPUT = "output"
    STATE = "state"
    TENSOR = "tensor"  # between two calls of main
    NPU_INTERNAL = "npu_internal"  # a feature map inside an NPU PrimFunc
    ROLLING = "rolling"  # the rolling buffer of a cascade
    WEIGHTS = "weights"  # weights or scales copied to faster memory
    HOST_SCRATCH = "host_scratch"  # an allocation inside a host PrimFunc
    CONSTANT = "constant"


class PlanStatus(Enum):
    """What is known of a plan: `OPTIMAL` only when a proven bound is met."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"


class Lifetime(NamedTuple):
    """Half-open interval of points `[first, last)` in which the bytes must be kept; `[first, last]` in JSON."""

    first: Point
    last: Point

    def meets(self, other: Lifetime) -> bool:
        """True when the two intervals share a point."""
        return self.first < other.last and other.first < self.last


@dataclass(frozen=True, slots=True)
class Buffer:
    """One thing to place.

    `lifetimes` are disjoint and ascending; between two of them the content is dead. None at
    all means that only `Problem.conflicts` says what may not share its bytes.
    `pools` are the candidate pools in order of preference; empty means every writable pool that
    all of `agents` can reach, in the problem's order. Only constants may name a read-only pool.
    """

    name: str
    size_bytes: Count
    lifetimes: tuple[Lifetime, ...] = ()
    alignment: Alignment = 16  # bytes; the offset is a multiple of it
    pools: tuple[str, ...] = ()
    agents: frozenset[Agent] = frozenset((Agent.HOST,))
    kind: BufferKind = BufferKind.TENSOR
    fixed: tuple[str, Count] | None = None  # (pool, offset in bytes) the plan must keep
    read_bytes: Count = 0  # bytes read over one inference, for spilling by cost
    write_bytes: Count = 0  # bytes written over one inference
    producer: str = ""  # label of the operation that first writes it (constants: the model), for reports
    consumers: tuple[str, ...] = ()  # labels of the operations that read it

    def meets(self, other: Buffer) -> bool:
        """True when the two are live at a common point (aliases and overlaps aside)."""
        return any(a.meets(b) for a in self.lifetimes for b in other.lifetimes)


@dataclass(frozen=True, slots=True)
class Pool:
    """A named memory. `size_bytes` None means unbounded; a given size is hard.

    Bandwidth is in bytes per cycle and latency in cycles, of the memory as seen by its
    fastest agent; they only serve to weigh spilling.
    """

    name: str
    size_bytes: Count | None = None
    alignment: Alignment = 16  # of the base address
    agents: frozenset[Agent] = frozenset((Agent.HOST, Agent.NPU))
    read_only: bool = False
    clock_hz: Count | None = None
    read_bandwidth_bytes_per_cycle: Rate | None = None
    write_bandwidth_bytes_per_cycle: Rate | None = None
    read_latency_cycles: Count = 0
    write_latency_cycles: Count = 0
    burst_bytes: Mapping[str, Count] = field(default_factory=dict)  # agent or target name -> bytes
    targets: tuple[str, ...] = ()  # devices of a Relax module, by kind ("llvm") or one ("llvm:1"); empty: every one


@dataclass(frozen=True, slots=True)
class AliasGroup:
    """Buffers with one placement: `members` are (buffer name, inner offset in bytes).

    The members' bytes coincide on purpose, so they never conflict with each other.
    """

    name: str
    members: tuple[tuple[str, Distance], ...]


@dataclass(frozen=True, slots=True)
class AllowedOverlap:
    """Two buffers that meet in time but may still share bytes at proven distances.

    Allowed when both are in different pools, or do not overlap, or
    `lowest <= offset(second) - offset(first) <= highest` (None: no limit on that side).
    In-place is `lowest == highest == 0`; an output that trails the consumed part of its
    input by d bytes is `highest = -d`.
    """

    first: str
    second: str
    lowest: Distance | None = None
    highest: Distance | None = None
    reason: str = ""

    def permits(self, distance_bytes: int) -> bool:
        """Whether offset(second) - offset(first) == `distance_bytes` is proven safe."""
        return (self.lowest is None or self.lowest <= distance_bytes) and (
            self.highest is None or distance_bytes <= self.highest
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """Everything to be placed, and where it may go. Pools are in order of preference.

    Two buffers conflict when their lifetimes meet or when `conflicts` names the pair
    (agents that may run at the same time), unless they are members of one alias group;
    an `AllowedOverlap` relaxes a conflict to certain distances.
    `points[t]` is the label of point t, for messages; it may be empty.
    """

    buffers: tuple[Buffer, ...]
    pools: tuple[Pool, ...]
    conflicts: tuple[tuple[str, str], ...] = ()
    aliases: tuple[AliasGroup, ...] = ()
    overlaps: tuple[AllowedOverlap, ...] = ()
    points: tuple[str, ...] = ()
    name: str = ""

    def buffer(self, name: str) -> Buffer:
        """The buffer called `name`; `ProblemError` when there is none."""
        for candidate in self.buffers:
            if candidate.name == name:
                return candidate
        raise ProblemError(f"no buffer is called {name!r} in problem {self.name!r}")

    def pool(self, name: str) -> Pool:
        """The pool called `name`; `ProblemError` when there is none."""
        for candidate in self.pools:
            if candidate.name == name:
                return candidate
        known = ", ".join(p.name for p in self.pools) or "none"
        raise ProblemError(f"no pool is called {name!r}; the problem has: {known}")

    def candidates(self, buffer: Buffer) -> tuple[Pool, ...]:
        """The pools `buffer` may live in, best first."""
        named = [self.pool(n) for n in buffer.pools] or [p for p in self.pools if not p.read_only]
        return tuple(p for p in named if buffer.agents <= p.agents)


@dataclass(frozen=True, slots=True, order=True)
class Placement:
    """Where a buffer lies: bytes `[offset_bytes, offset_bytes + size)` of `pool`."""

    buffer: str
    pool: str
    offset_bytes: Count


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """Height of one pool under a plan, and the height no plan of it can go below."""

    pool: str
    used_bytes: Count
    lower_bound_bytes: Count


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer: a placement for every buffer, in the problem's buffer order."""

    placements: tuple[Placement, ...]
    usage: tuple[PoolUsage, ...]
    status: PlanStatus
    planner: str
    seed: int = 0
    budget: str = ""  # what bounded the search ("200000 nodes", "2.0 s"), if anything did
    stopped_early: bool = False  # the budget, not the search, ended it
    note: str = ""  # why the plan may be worse than it need be, where more than the budget is to blame

    def placement(self, name: str) -> Placement:
        """The placement of the buffer called `name`."""
        for candidate in self.placements:
            if candidate.buffer == name:
                return candidate
        raise ProblemError(f"the plan has no placement for buffer {name!r}")


def used_bytes(problem: Problem, placements: Iterable[Placement]) -> dict[str, int]:
    """Height of every pool: the highest end of the buffers placed in it."""
    sizes = {b.name: b.size_bytes for b in problem.buffers}
    heights = {pool.name: 0 for pool in problem.pools}
    for p in placements:
        heights[p.pool] = max(heights.get(p.pool, 0), p.offset_bytes + sizes[p.buffer])
    return heights


def _is_count(value: object) -> bool:
    """Whether `value` is an int in `[0, LARGEST_BYTES)`; bool, float, NaN and infinity are not."""
    return type(value) is int and 0 <= value < LARGEST_BYTES


def validate(problem: Problem) -> None:
    """Raise `ProblemError` at the first contradiction in `problem`; planners call this first.

    Checked: unique names, known names, whole and finite numbers, ascending disjoint
    lifetimes, positive alignments, a reachable pool for every buffer, fixed places that
    exist, alias groups that do not share members and can be aligned, and overlap ranges
    that are not empty.
    """
    pools = _validate_pools(problem)
    buffers: dict[str, Buffer] = {}
    reachable: dict[tuple[tuple[str, ...], frozenset[Agent]], bool] = {}
    for buffer in problem.buffers:
        if buffer.name in buffers:
            raise ProblemError(f"two buffers are called {buffer.name!r}; names must be unique")
        buffers[buffer.name] = buffer
        _validate_buffer(buffer, pools)
        key = (buffer.pools, buffer.agents)
        if buffer.fixed is None and key not in reachable:
            reachable[key] = bool(problem.candidates(buffer))
        if buffer.fixed is None and not reachable[key]:
            agents = ", ".join(sorted(a.value for a in buffer.agents)) or "nobody"
            among = ", ".join(buffer.pools or tuple(pools)) or "no pools at all"
            reached = "reached" if buffer.kind is BufferKind.CONSTANT else "writable and reached"
            raise ProblemError(
                f"buffer {buffer.name!r} has no pool to live in: none of {among} is {reached} by {agents}; "
                "add a pool or widen a pool's agents"
            )
    _validate_relations(problem, buffers)


def _validate_pools(problem: Problem) -> dict[str, Pool]:
    pools: dict[str, Pool] = {}
    for pool in problem.pools:
        if pool.name in pools:
            raise ProblemError(f"two pools are called {pool.name!r}; names must be unique")
        pools[pool.name] = pool
        if pool.size_bytes is not None and not _is_count(pool.size_bytes):
            raise ProblemError(f"pool {pool.name!r} has size {pool.size_bytes!r}; give whole bytes >= 0, or None")
        if not _is_count(pool.alignment) or pool.alignment == 0:
            raise ProblemError(f"pool {pool.name!r} has alignment {pool.alignment!r}; give whole bytes >= 1")
        for what, rate in (
            ("read bandwidth", pool.read_bandwidth_bytes_per_cycle),
            ("write bandwidth", pool.write_bandwidth_bytes_per_cycle),
        ):
            if rate is not None and not 0 < rate < float("inf"):
                raise ProblemError(f"pool {pool.name!r} has {what} {rate!r}; give bytes per cycle > 0, or None")
        for what, cycles in (
            ("read latency", pool.read_latency_cycles),
            ("write latency", pool.write_latency_cycles),
        ):
            if not _is_count(cycles):
                raise ProblemError(f"pool {pool.name!r} has {what} {cycles!r}; give whole cycles >= 0")
    return pools


def _validate_buffer(buffer: Buffer, pools: Mapping[str, Pool]) -> None:
    name = buffer.name
    for what, value in (
        ("size", buffer.size_bytes),
        ("bytes read", buffer.read_bytes),
        ("bytes written", buffer.write_bytes),
    ):
        if not _is_count(value):
            raise ProblemError(f"buffer {name!r} has {what} {value!r}; give whole bytes in [0, 2**60)")
    if not _is_count(buffer.alignment) or buffer.alignment == 0:
        raise ProblemError(f"buffer {name!r} has alignment {buffer.alignment!r}; give whole bytes >= 1")
    last = -LARGEST_BYTES
    for life in buffer.lifetimes:
        if type(life.first) is not int or type(life.last) is not int or life.last >= LARGEST_BYTES:
            raise ProblemError(f"buffer {name!r} lives in [{life.first!r}, {life.last!r}); points are whole numbers")
        if life.first >= life.last:
            raise ProblemError(
                f"buffer {name!r} lives in [{life.first}, {life.last}), which is empty; last is exclusive"
            )
        if life.first < last:
            raise ProblemError(
                f"buffer {name!r} lives in [{life.first}, {life.last}) before its earlier lifetime ends at {last}; "
                "lifetimes must be disjoint and ascending"
            )
        last = life.last
    for pool in buffer.pools:
        if pool not in pools:
            known = ", ".join(pools) or "none"
            raise ProblemError(f"buffer {name!r} names pool {pool!r}; the problem has: {known}")
        if pools[pool].read_only and buffer.kind is not BufferKind.CONSTANT:
            raise ProblemError(
                f"buffer {name!r} of kind {buffer.kind.value} names pool {pool!r}, which is read-only: only constants"
                " can lie there; name a writable pool"
            )
    if buffer.fixed is not None:
        pool, offset = buffer.fixed
        if pool not in pools:
            known = ", ".join(pools) or "none"
            raise ProblemError(f"buffer {name!r} is fixed in pool {pool!r}; the problem has: {known}")
        if not _is_count(offset) or offset % buffer.alignment:
            raise ProblemError(
                f"buffer {name!r} is fixed at offset {offset!r}; give whole bytes that are a multiple of its "
                f"alignment {buffer.alignment}"
            )
        size = pools[pool].size_bytes
        if size is not None and offset + buffer.size_bytes > size:
            raise ProblemError(
                f"buffer {name!r} is fixed at bytes [{offset}, {offset + buffer.size_bytes}) of pool {pool!r}, "
                f"which has {size}; enlarge the pool by {offset + buffer.size_bytes - size} bytes or move the buffer"
            )
        if not buffer.agents <= pools[pool].agents:
            raise ProblemError(f"buffer {name!r} is fixed in pool {pool!r}, which not all of its agents can reach")


def _validate_relations(problem: Problem, buffers: Mapping[str, Buffer]) -> None:
    def known(name: str, where: str) -> None:
        if name not in buffers:
            raise ProblemError(f"{where} names buffer {name!r}, which the problem does not have")

    for first, second in problem.conflicts:
        known(first, "a conflict")
        known(second, "a conflict")
        if first == second:
            raise ProblemError(f"buffer {first!r} is said to conflict with itself")
    group_of: dict[str, str] = {}
    for group in problem.aliases:
        for name, inner in group.members:
            known(name, f"alias group {group.name!r}")
            if name in group_of:
                raise ProblemError(
                    f"buffer {name!r} is in alias groups {group_of[name]!r} and {group.name!r}; merge them into one"
                )
            group_of[name] = group.name
            if type(inner) is not int or abs(inner) >= LARGEST_BYTES:
                raise ProblemError(
                    f"alias group {group.name!r} has {name!r} at inner offset {inner!r}; give whole bytes"
                )
    for overlap in problem.overlaps:
        where = f"an allowed overlap ({overlap.reason or 'no reason given'})"
        known(overlap.first, where)
        known(overlap.second, where)
        if overlap.first == overlap.second:
            raise ProblemError(f"{where} relates buffer {overlap.first!r} to itself")
        for bound in (overlap.lowest, overlap.highest):
            if bound is not None and (type(bound) is not int or abs(bound) >= LARGEST_BYTES):
                raise ProblemError(f"{where} between {overlap.first!r} and {overlap.second!r} has limit {bound!r}")
        if overlap.lowest is not None and overlap.highest is not None and overlap.lowest > overlap.highest:
            raise ProblemError(
                f"{where} between {overlap.first!r} and {overlap.second!r} allows distances "
                f"{overlap.lowest}..{overlap.highest}, which is none"
            )
