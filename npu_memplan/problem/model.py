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

from ..errors import NpuMemplanError

# sizes, offsets and points stay below it, so sums of millions fit 128 bits and floats order them
LARGEST_BYTES = 1 << 60
POISON = 0xA5  # what a run fills its pools with first, so that a byte that was never written shows
# What a file may say (`files/schema.py` holds it to these); `validate` says the same of problems made in Python.
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
    """The purpose of a buffer; planners ignore it, reports colour by it."""

    INPUT = "input"
    OUTPUT = "output"
    STATE = "state"
    TENSOR = "tensor"  # between two calls of main
    NPU_INTERNAL = "npu_internal"  # a feature map inside an NPU PrimFunc
    ROLLING = "rolling"  # the rolling buffer of a cascade
    WEIGHTS = "weights"  # weights or scales copied to faster memory
    HOST_SCRATCH = "host_scratch"  # an allocation inside a host PrimFunc
    CONSTANT = "constant"
    RESIDENT = "resident"  # constants in a writable pool, put there once before the first run


class PlanStatus(Enum):
    """The proof that a plan has: `OPTIMAL` only when a proven bound is met."""

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

    def with_size(self, size_bytes: int) -> Buffer:
        """The same buffer of another size; `replace` takes twice as long, and thousands are made."""
        behind = (self.lifetimes, self.alignment, self.pools, self.agents, self.kind, self.fixed)
        traffic = (self.read_bytes, self.write_bytes, self.producer, self.consumers)
        return Buffer(self.name, size_bytes, *behind, *traffic)

    def lives_at(self, point: int) -> bool:
        """True when its bytes must be kept at `point`."""
        return any(life.first <= point < life.last for life in self.lifetimes)

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

    def __post_init__(self) -> None:
        if isinstance(self.size_bytes, str):  # nothing else would say so before a plan is made
            raise ProblemError(
                f"pool {self.name!r} has size {self.size_bytes!r}; give whole bytes, e.g. 1 << 20 for 1 MiB"
            )


@dataclass(frozen=True, slots=True)
class AliasGroup:
    """Buffers with one placement, which never conflict: `members` are (buffer name, inner offset in bytes)."""

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


class ByteRun(NamedTuple):
    """Pieces of `size` bytes, each of which begins `stride` bytes behind the last; `[start, size, ...]` in JSON."""

    start: Count
    size: Alignment
    pieces: Alignment = 1
    stride: Count = 0


class BufferAccess(NamedTuple):
    """Bytes of a buffer that are read, or written, at a point; `[point, runs]` in JSON."""

    point: Point
    runs: tuple[ByteRun, ...] = ()  # ascending and disjoint; none: all of the buffer


@dataclass(frozen=True, slots=True)
class AccessHistory:
    """The accesses to one buffer, reads of a point before its writes: certain reads, and possible writes."""

    buffer: str
    reads: tuple[BufferAccess, ...] = ()
    writes: tuple[BufferAccess, ...] = ()


@dataclass(frozen=True, slots=True)
class BranchPoints:
    """An `if`: either the points `[first, middle)` or the points `[middle, last)` are executed."""

    first: Point
    middle: Point
    last: Point


@dataclass(frozen=True, slots=True)
class Problem:
    """Everything to be placed, and where it may go. Pools are in order of preference.

    Two buffers conflict when their lifetimes meet or when `conflicts` names the pair
    (agents that may run at the same time), unless they are members of one alias group;
    an `AllowedOverlap` relaxes a conflict to certain distances.
    `points[t]` is the label of point t, for messages; it may be empty. `accesses` are in the buffers' order, as far as
    they are known, and `branches` in the order of their first points, outer ones first; planners ignore both.
    """

    buffers: tuple[Buffer, ...]
    pools: tuple[Pool, ...]
    conflicts: tuple[tuple[str, str], ...] = ()
    aliases: tuple[AliasGroup, ...] = ()
    overlaps: tuple[AllowedOverlap, ...] = ()
    points: tuple[str, ...] = ()
    name: str = ""
    accesses: tuple[AccessHistory, ...] = ()
    branches: tuple[BranchPoints, ...] = ()

    def buffer(self, name: str) -> Buffer:
        """The buffer called `name`; `ProblemError` when there is none."""
        if (found := next((b for b in self.buffers if b.name == name), None)) is not None:
            return found
        raise ProblemError(f"no buffer is called {name!r} in problem {self.name!r}")

    def pool(self, name: str) -> Pool:
        """The pool called `name`; `ProblemError` when there is none."""
        if (found := next((p for p in self.pools if p.name == name), None)) is not None:
            return found
        known = ", ".join(p.name for p in self.pools) or "none"
        raise ProblemError(f"no pool is called {name!r}; the problem has: {known}")

    def candidates(self, buffer: Buffer) -> tuple[Pool, ...]:
        """The pools `buffer` may live in, best first."""
        named = [self.pool(n) for n in buffer.pools] or [p for p in self.pools if not p.read_only]
        return tuple(p for p in named if buffer.agents <= p.agents)


@dataclass(frozen=True, slots=True, order=True)
class Placement:
    """The place of a buffer: bytes `[offset_bytes, offset_bytes + size)` of `pool`."""

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
        if (found := next((p for p in self.placements if p.buffer == name), None)) is not None:
            return found
        raise ProblemError(f"the plan has no placement for buffer {name!r}")


def used_bytes(problem: Problem, placements: Iterable[Placement]) -> dict[str, int]:
    """Height of every pool: the highest end of the buffers placed in it."""
    sizes = {b.name: b.size_bytes for b in problem.buffers}
    heights = {pool.name: 0 for pool in problem.pools}
    for p in placements:
        heights[p.pool] = max(heights.get(p.pool, 0), p.offset_bytes + sizes[p.buffer])
    return heights
