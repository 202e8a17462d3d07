"""Whether a problem contradicts itself; checked before anything is planned.

Invariant: a problem that passes has whole, finite numbers, names that exist, and a pool for every buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .model import LARGEST_BYTES, Agent, Buffer, BufferAccess, BufferKind, Pool, Problem, ProblemError


def _is_count(value: object) -> bool:
    """Whether `value` is an int in `[0, LARGEST_BYTES)`; bool, float, NaN and infinity are not."""
    return type(value) is int and 0 <= value < LARGEST_BYTES


def _is_rate(value: float | None) -> bool:
    return value is None or 0 < value < float("inf")


_POOL_NUMBERS: tuple[tuple[str, str, Callable[[Any], bool], str], ...] = (
    ("size_bytes", "size", lambda value: value is None or _is_count(value), "whole bytes >= 0, or None"),
    ("alignment", "alignment", lambda value: _is_count(value) and value > 0, "whole bytes >= 1"),
    ("read_bandwidth_bytes_per_cycle", "read bandwidth", _is_rate, "bytes per cycle > 0, or None"),
    ("write_bandwidth_bytes_per_cycle", "write bandwidth", _is_rate, "bytes per cycle > 0, or None"),
    ("read_latency_cycles", "read latency", _is_count, "whole cycles >= 0"),
    ("write_latency_cycles", "write latency", _is_count, "whole cycles >= 0"),
)
"""Of a pool: the attribute, what it is, whether a value is allowed, and what to give instead."""


def validate(problem: Problem) -> None:
    """Raise `ProblemError` at the first contradiction in `problem`; planners call this first.

    Checked: unique names, known names, whole and finite numbers, ascending disjoint
    lifetimes, positive alignments, a reachable pool for every buffer, fixed places that
    exist, alias groups that do not share members and can be aligned, overlap ranges
    that are not empty, accesses inside their buffers, and branches that are inside or after one another.
    """
    pools = _validate_pools(problem)
    buffers: dict[str, Buffer] = {}
    reachable: dict[tuple[tuple[str, ...], frozenset[Agent]], bool] = {}
    for buffer in problem.buffers:
        _check_name("buffer", buffer.name)
        if buffer.name in buffers:
            raise ProblemError(f"two buffers are called {buffer.name!r}; names must be unique")
        buffers[buffer.name] = buffer
        _validate_buffer(buffer, pools)
        key = (buffer.pools, buffer.agents)
        if buffer.fixed is None and key not in reachable:
            reachable[key] = bool(problem.candidates(buffer))
        if buffer.fixed is None and not reachable[key]:
            agents = ", ".join(sorted(a.value for a in buffer.agents)) or "none"
            among = ", ".join(buffer.pools or tuple(pools)) or "no pools at all"
            reached = "reached" if buffer.kind is BufferKind.CONSTANT else "writable and reached"
            raise ProblemError(
                f"buffer {buffer.name!r} has no pool to live in: none of {among} is {reached} by {agents}; "
                "add a pool or widen a pool's agents"
            )
    _validate_relations(problem, buffers)
    _validate_accesses(problem, buffers)


def _check_name(what: str, name: str) -> None:
    if not name.isprintable():
        raise ProblemError(
            f"{what} {name[:60]!r} has a name with characters that a terminal obeys or hides; leave them out"
        )


def _validate_pools(problem: Problem) -> dict[str, Pool]:
    pools: dict[str, Pool] = {}
    for pool in problem.pools:
        _check_name("pool", pool.name)
        if pool.name in pools:
            raise ProblemError(f"two pools are called {pool.name!r}; names must be unique")
        pools[pool.name] = pool
        for attribute, what, allowed, give in _POOL_NUMBERS:
            value = getattr(pool, attribute)
            if not allowed(value):
                raise ProblemError(f"pool {pool.name!r} has {what} {value!r}; give {give}")
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
    def require_known(name: str, where: str) -> None:
        if name not in buffers:
            raise ProblemError(f"{where} names buffer {name!r}, which the problem does not have")

    for first, second in problem.conflicts:
        require_known(first, "a conflict")
        require_known(second, "a conflict")
        if first == second:
            raise ProblemError(f"buffer {first!r} is said to conflict with itself")
    group_of: dict[str, str] = {}
    for group in problem.aliases:
        for name, inner in group.members:
            require_known(name, f"alias group {group.name!r}")
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
        require_known(overlap.first, where)
        require_known(overlap.second, where)
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
        under, over = buffers[overlap.first], buffers[overlap.second]
        if under.kind is BufferKind.OUTPUT and under.lifetimes and over.lifetimes:
            end = max(life.last for buffer in problem.buffers for life in buffer.lifetimes)
            if max(life.last for life in under.lifetimes) == max(life.last for life in over.lifetimes) == end:
                raise ProblemError(
                    f"{where} lets {over.name!r} take bytes of the output {under.name!r} at the last point, but an"
                    " output outlasts it; leave the overlap out"
                )


def _validate_accesses(problem: Problem, buffers: Mapping[str, Buffer]) -> None:
    for found in problem.accesses:
        if found.buffer not in buffers:
            raise ProblemError(f"an access names buffer {found.buffer!r}, which the problem does not have")
        size = buffers[found.buffer].size_bytes
        for access in (*found.reads, *found.writes):
            if not _is_inside(access, size):
                raise ProblemError(
                    f"buffer {found.buffer!r} is accessed at point {access.point!r} in the runs "
                    f"{[tuple(run) for run in access.runs[:4]]}; give ascending, disjoint runs inside its {size} bytes"
                )
    ends: list[int] = []  # of the branches that are open, the inner one last
    begun = -LARGEST_BYTES
    for branch in problem.branches:
        first, middle, last = branch.first, branch.middle, branch.last
        while ends and ends[-1] <= first:
            ends.pop()
        if not begun <= first <= middle <= last <= (ends[-1] if ends else LARGEST_BYTES):
            raise ProblemError(
                f"a branch has the points [{first}, {middle}) and [{middle}, {last}); give ascending points, branches "
                "in the order of their first points, and each wholly inside one side of another or behind it"
            )
        begun = first
        ends += [last, middle]


def _is_inside(access: BufferAccess, size: int) -> bool:
    end = 0
    for start, piece, count, stride in access.runs:
        if start < end or piece < 1 or count < 1 or (count > 1 and stride < piece):
            return False
        end = start + (count - 1) * stride + piece
    return type(access.point) is int and end <= size
