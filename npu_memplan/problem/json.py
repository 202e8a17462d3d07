"""`Problem` and `Plan` as plain JSON values, with the name of their schema in them.

Invariant: `plan_from_json(plan_to_json(p)) == p`, and the same for rows of problems. The fields of `Problem` and `Plan`
are the schema (`schemas`); `schema` reads them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..files.schema import check_schema, from_values
from .model import Buffer, Plan, Pool, Problem, ProblemError

PROBLEM_SCHEMA = "npu_memplan.problem/1"
PLAN_SCHEMA = "npu_memplan.plan/1"


def row_to_json(value: Buffer | Pool) -> dict[str, Any]:
    """One buffer or pool as a JSON object."""
    row: dict[str, Any] = msgspec.to_builtins(value, enc_hook=str)  # names may be strings of TVM's own
    row["agents"].sort()
    if not row.get("targets", True):
        del row["targets"]
    return row


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """A JSON object that says everything `plan` says."""
    row = msgspec.to_builtins(plan, enc_hook=str)
    keys = ("planner", "status", "seed", "budget", "stopped_early", "note", "usage", "placements")
    return {"schema": PLAN_SCHEMA, **{key: row[key] for key in keys if key != "note" or plan.note}}


def problem_from_json(value: object, where: str = "") -> Problem:
    """The problem in a parsed JSON document; `ProblemError` says what is wrong with it and where."""
    check_schema(value, PROBLEM_SCHEMA, where, ProblemError)
    return from_values(value, Problem, where, ProblemError)


def plan_from_json(value: object, where: str = "") -> Plan:
    """The plan in a parsed JSON document; `ProblemError` says what is wrong with it and where."""
    check_schema(value, PLAN_SCHEMA, where, ProblemError)
    return from_values(value, Plan, where, ProblemError)
