"""Problems and plans as files: MiniMalloc's CSV, and JSON with a schema name, plan.json of compiled models too.

Invariant: reading what was written gives an equal object (JSON: everything; CSV: what its columns can say). Files
appear whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ..files.paths import read_text
from ..files.schema import json_values
from ..files.whole_file import write_whole
from ..problem.csv import ProblemFileError, plan_csv, plan_from_csv, problem_from_csv
from ..problem.json import plan_from_json, plan_to_json, problem_from_json
from ..problem.model import Plan, Problem, ProblemError
from ..problem.validation import validate
from ..sizes import parse_named_size, parse_size
from . import Artifact
from .parts import SCHEMA as ARTIFACT_SCHEMA


def read_problem(path: str | Path, capacity_bytes: int | None = None) -> Problem:
    """The problem in `path` (`.json`, else CSV); `capacity_bytes` bounds its first pool."""
    path = Path(path)
    text = _text(path)
    if path.suffix.lower() == ".json":
        document = _document(path, text)
        problem = document.problem if isinstance(document, Artifact) else problem_from_json(document, str(path))
    else:
        problem = problem_from_csv(path, text)
    if capacity_bytes is not None and problem.pools:
        problem = with_capacity(problem, problem.pools[0].name, capacity_bytes)
    validate(problem)
    return problem


def with_capacity(problem: Problem, pool: str, capacity_bytes: int) -> Problem:
    """`problem` with another hard size for one pool."""
    problem.pool(pool)
    pools = tuple(replace(p, size_bytes=capacity_bytes) if p.name == pool else p for p in problem.pools)
    return replace(problem, pools=pools)


def with_capacities(problem: Problem, texts: Iterable[str]) -> Problem:
    """`problem` with the sizes of `texts`: `"96KiB"` for its first pool, `"sram=96KiB"` for a named one."""
    for text in texts:
        if "=" not in text and not problem.pools:
            raise ProblemError(f"problem {problem.name!r} has no pool that could have capacity {text!r}")
        name, size = parse_named_size(text) if "=" in text else (problem.pools[0].name, parse_size(text))
        problem = with_capacity(problem, name, size)
    return problem


def read_plan(path: str | Path, problem: Problem) -> Plan:
    """The plan in `path` (`.json`, else CSV with columns id, offset and, with several pools, pool)."""
    path = Path(path)
    text = _text(path)
    if path.suffix.lower() == ".json":
        document = _document(path, text)
        return document.plan if isinstance(document, Artifact) else plan_from_json(document, str(path))
    return plan_from_csv(path, text, problem)


def write_plan(path: str | Path, problem: Problem, plan: Plan) -> None:
    """Write `plan` to `path`: JSON with everything, or MiniMalloc's CSV with a column `offset`."""
    path = Path(path)
    as_json = path.suffix.lower() == ".json"
    text = json.dumps(plan_to_json(plan), indent=1) + "\n" if as_json else plan_csv(problem, plan)
    write_whole(path, text.encode())


def _document(path: Path, text: str) -> object:
    """The JSON values; of the plan.json of a compiled model, which has both a problem and its plan, an `Artifact`."""
    document = json_values(text, str(path), ProblemFileError)
    compiled = isinstance(document, dict) and document.get("schema") == ARTIFACT_SCHEMA
    return Artifact.from_json(text, str(path)) if compiled else document


def _text(path: Path) -> str:
    try:
        return read_text(path, encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ProblemFileError(f"cannot read {path}: {reason}; give a .csv or .json file") from None
