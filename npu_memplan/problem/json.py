"""`Problem` and `Plan` as plain JSON values, with the name of their schema in them.

Invariant: `problem_from_json(problem_to_json(p)) == p`, and the same for plans. The fields of `Problem` and `Plan`
are the schema (`schemas/problem.json`, `schemas/plan.json`); `schema` reads them.
"""

from __future__ import annotations

from typing import Any

from ..files.schema import check_schema, from_values
from .model import Buffer, Plan, Pool, Problem, ProblemError

PROBLEM_SCHEMA = "npu_memplan.problem/1"
PLAN_SCHEMA = "npu_memplan.plan/1"


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
        **({"note": plan.note} if plan.note else {}),
        "usage": [
            {"pool": u.pool, "used_bytes": u.used_bytes, "lower_bound_bytes": u.lower_bound_bytes} for u in plan.usage
        ],
        "placements": [{"buffer": p.buffer, "pool": p.pool, "offset_bytes": p.offset_bytes} for p in plan.placements],
    }


def problem_from_json(value: object, where: str = "") -> Problem:
    """The problem in a parsed JSON document; `ProblemError` says what is wrong with it and where."""
    check_schema(value, PROBLEM_SCHEMA, where, ProblemError)
    return from_values(value, Problem, where, ProblemError)


def plan_from_json(value: object, where: str = "") -> Plan:
    """The plan in a parsed JSON document; `ProblemError` says what is wrong with it and where."""
    check_schema(value, PLAN_SCHEMA, where, ProblemError)
    return from_values(value, Plan, where, ProblemError)
