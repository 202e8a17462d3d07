"""`Problem` and `Plan` as plain JSON values, with the name of their schema in them.

Invariant: `problem_from_json(problem_to_json(p)) == p`, and the same for plans; a value of
the wrong type is reported with its path in the document, never a traceback.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeVar

from .problem import (
    Agent,
    AliasGroup,
    AllowedOverlap,
    Buffer,
    BufferKind,
    Lifetime,
    Placement,
    Plan,
    PlanStatus,
    Pool,
    PoolUsage,
    Problem,
    ProblemError,
)

PROBLEM_SCHEMA = "npu_memplan.problem/1"
PLAN_SCHEMA = "npu_memplan.plan/1"

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


def problem_to_json(problem: Problem) -> dict[str, Any]:
    """A JSON object that says everything `problem` says."""
    return {
        "schema": PROBLEM_SCHEMA,
        "name": problem.name,
        "points": list(problem.points),
        "pools": [pool_to_json(p) for p in problem.pools],
        "buffers": [buffer_to_json(b) for b in problem.buffers],
        "conflicts": [list(pair) for pair in problem.conflicts],
        "aliases": [{"name": g.name, "members": [list(m) for m in g.members]} for g in problem.aliases],
        "overlaps": [
            {"first": o.first, "second": o.second, "lowest": o.lowest, "highest": o.highest, "reason": o.reason}
            for o in problem.overlaps
        ],
    }


def pool_to_json(p: Pool) -> dict[str, Any]:
    """One pool as a JSON object."""
    return {
        "name": p.name,
        "size_bytes": p.size_bytes,
        "alignment": p.alignment,
        "agents": sorted(a.value for a in p.agents),
        "read_only": p.read_only,
        "clock_hz": p.clock_hz,
        "read_bandwidth_bytes_per_cycle": p.read_bandwidth_bytes_per_cycle,
        "write_bandwidth_bytes_per_cycle": p.write_bandwidth_bytes_per_cycle,
        "read_latency_cycles": p.read_latency_cycles,
        "write_latency_cycles": p.write_latency_cycles,
        "burst_bytes": dict(p.burst_bytes),
        **({"targets": list(p.targets)} if p.targets else {}),
    }


def buffer_to_json(b: Buffer) -> dict[str, Any]:
    """One buffer as a JSON object."""
    return {
        "name": b.name,
        "size_bytes": b.size_bytes,
        "lifetimes": [[life.first, life.last] for life in b.lifetimes],
        "alignment": b.alignment,
        "pools": list(b.pools),
        "agents": sorted(a.value for a in b.agents),
        "kind": b.kind.value,
        "fixed": None if b.fixed is None else list(b.fixed),
        "read_bytes": b.read_bytes,
        "write_bytes": b.write_bytes,
        "producer": b.producer,
        "consumers": list(b.consumers),
    }


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """A JSON object that says everything `plan` says."""
    return {
        "schema": PLAN_SCHEMA,
        "planner": plan.planner,
        "status": plan.status.value,
        "seed": plan.seed,
        "budget": plan.budget,
        "stopped_early": plan.stopped_early,
        "usage": [
            {"pool": u.pool, "used_bytes": u.used_bytes, "lower_bound_bytes": u.lower_bound_bytes} for u in plan.usage
        ],
        "placements": [{"buffer": p.buffer, "pool": p.pool, "offset_bytes": p.offset_bytes} for p in plan.placements],
    }


class _Reader:
    """A JSON value and where it stands, with typed access."""

    def __init__(self, value: object, path: str) -> None:
        self.value = value
        self.path = path

    def wrong(self, wanted: str) -> ProblemError:
        return ProblemError(f"{self.path or 'the document'} is {str(self.value)[:40]!r}; give {wanted}")

    def as_object(self) -> Mapping[str, object]:
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return self.value

    def get(self, key: str) -> _Reader:
        entries = self.as_object()
        if key not in entries:
            raise ProblemError(f"{self.path or 'the document'} has no {key!r}")
        return _Reader(entries[key], f"{self.path}.{key}".lstrip("."))

    def maybe(self, key: str, read: Callable[[_Reader], T], default: T) -> T:
        """The entry `key` read by `read`, `default` when it is absent."""
        return read(self.get(key)) if key in self.as_object() else default

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.wrong("a string")
        return self.value

    def whole(self) -> int:
        if type(self.value) is not int:
            raise self.wrong("a whole number")
        return self.value

    def whole_or_none(self) -> int | None:
        return None if self.value is None else self.whole()

    def number_or_none(self) -> float | None:
        if self.value is None:
            return None
        if type(self.value) not in (int, float):
            raise self.wrong("a number or null")
        assert isinstance(self.value, (int, float))
        return self.value

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.wrong("true or false")
        return self.value

    def each(self, read: Callable[[_Reader], T]) -> tuple[T, ...]:
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        return tuple(read(_Reader(v, f"{self.path}[{k}]")) for k, v in enumerate(self.value))

    def pair(self, first: Callable[[_Reader], T], second: Callable[[_Reader], Any]) -> tuple[T, Any]:
        if not isinstance(self.value, list) or len(self.value) != 2:
            raise self.wrong("a list of two")
        return first(_Reader(self.value[0], f"{self.path}[0]")), second(_Reader(self.value[1], f"{self.path}[1]"))

    def choice(self, kind: type[E]) -> E:
        try:
            return kind(self.value)
        except ValueError:
            raise self.wrong("one of " + ", ".join(repr(k.value) for k in kind)) from None


def _texts(r: _Reader) -> tuple[str, ...]:
    return r.each(_Reader.text)


def _agents(r: _Reader) -> frozenset[Agent]:
    return frozenset(r.each(lambda a: a.choice(Agent)))


def _schema(r: _Reader, wanted: str) -> None:
    found = r.get("schema").text()
    if found != wanted:
        raise ProblemError(f"the document has schema {found!r}; this version reads {wanted!r}")


def _pool(r: _Reader) -> Pool:
    nothing: dict[str, int] = {}
    burst = r.maybe("burst_bytes", lambda b: {k: b.get(k).whole() for k in b.as_object()}, nothing)
    return Pool(
        r.get("name").text(),
        r.maybe("size_bytes", _Reader.whole_or_none, None),
        r.maybe("alignment", _Reader.whole, 16),
        r.maybe("agents", _agents, frozenset((Agent.HOST, Agent.NPU))),
        r.maybe("read_only", _Reader.flag, False),
        r.maybe("clock_hz", _Reader.whole_or_none, None),
        r.maybe("read_bandwidth_bytes_per_cycle", _Reader.number_or_none, None),
        r.maybe("write_bandwidth_bytes_per_cycle", _Reader.number_or_none, None),
        r.maybe("read_latency_cycles", _Reader.whole, 0),
        r.maybe("write_latency_cycles", _Reader.whole, 0),
        burst,
        r.maybe("targets", _texts, ()),
    )


def _buffer(r: _Reader) -> Buffer:
    return Buffer(
        r.get("name").text(),
        r.get("size_bytes").whole(),
        r.maybe("lifetimes", lambda v: v.each(lambda s: Lifetime(*s.pair(_Reader.whole, _Reader.whole))), ()),
        r.maybe("alignment", _Reader.whole, 16),
        r.maybe("pools", _texts, ()),
        r.maybe("agents", _agents, frozenset((Agent.HOST,))),
        r.maybe("kind", lambda v: v.choice(BufferKind), BufferKind.TENSOR),
        r.maybe("fixed", lambda v: None if v.value is None else v.pair(_Reader.text, _Reader.whole), None),
        r.maybe("read_bytes", _Reader.whole, 0),
        r.maybe("write_bytes", _Reader.whole, 0),
        r.maybe("producer", _Reader.text, ""),
        r.maybe("consumers", _texts, ()),
    )


def _alias(r: _Reader) -> AliasGroup:
    return AliasGroup(r.get("name").text(), r.get("members").each(lambda m: m.pair(_Reader.text, _Reader.whole)))


def _overlap(r: _Reader) -> AllowedOverlap:
    return AllowedOverlap(
        r.get("first").text(),
        r.get("second").text(),
        r.maybe("lowest", _Reader.whole_or_none, None),
        r.maybe("highest", _Reader.whole_or_none, None),
        r.maybe("reason", _Reader.text, ""),
    )


def problem_from_json(value: object) -> Problem:
    """The problem in a parsed JSON document; `ProblemError` says what is wrong with it and where."""
    r = _Reader(value, "")
    _schema(r, PROBLEM_SCHEMA)
    return Problem(
        r.get("buffers").each(_buffer),
        r.get("pools").each(_pool),
        r.maybe("conflicts", lambda v: v.each(lambda p: p.pair(_Reader.text, _Reader.text)), ()),
        r.maybe("aliases", lambda v: v.each(_alias), ()),
        r.maybe("overlaps", lambda v: v.each(_overlap), ()),
        r.maybe("points", _texts, ()),
        r.maybe("name", _Reader.text, ""),
    )


def plan_from_json(value: object) -> Plan:
    """The plan in a parsed JSON document; `ProblemError` says what is wrong with it and where."""
    r = _Reader(value, "")
    _schema(r, PLAN_SCHEMA)
    return Plan(
        r.get("placements").each(
            lambda p: Placement(p.get("buffer").text(), p.get("pool").text(), p.get("offset_bytes").whole())
        ),
        r.get("usage").each(
            lambda u: PoolUsage(u.get("pool").text(), u.get("used_bytes").whole(), u.get("lower_bound_bytes").whole())
        ),
        r.get("status").choice(PlanStatus),
        r.get("planner").text(),
        r.maybe("seed", _Reader.whole, 0),
        r.maybe("budget", _Reader.text, ""),
        r.maybe("stopped_early", _Reader.flag, False),
    )
