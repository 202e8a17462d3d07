"""Problems and plans as files: MiniMalloc's CSV, and JSON with a schema name, plan.json of compiled models too.

Invariant: reading what was written gives an equal object (JSON: everything; CSV: what its
columns can say, and writing refuses the rest rather than drop it). Files appear whole
or not at all.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from .artifact import Artifact
from .artifact_parts import SCHEMA as ARTIFACT_SCHEMA
from .csv_text import csv_text
from .problem import (
    Lifetime,
    Placement,
    Plan,
    PlanStatus,
    Pool,
    PoolUsage,
    Problem,
    ProblemError,
    used_bytes,
    validate,
)
from .problem_json import plan_from_json, plan_to_json, problem_from_json, problem_to_json
from .problem_rows import Row, problem_parts, row_from, rows_of, with_windows
from .schema import json_values
from .sizes import parse_named_size, parse_size
from .whole_file import write_whole

PROBLEM_COLUMNS = ("id", "lower", "upper", "size", "alignment", "gaps")
CSV_POOL = "memory"  # name of the one pool of a CSV problem


class ProblemFileError(ProblemError):
    """A problem or plan file cannot be read or written; the message has file and line."""


def read_problem(path: str | Path, capacity_bytes: int | None = None) -> Problem:
    """The problem in `path` (`.json`, else CSV); `capacity_bytes` bounds its first pool."""
    path = Path(path)
    text = _text(path)
    problem = _json_problem(path, text) if path.suffix.lower() == ".json" else _csv_problem(path, text)
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


def write_problem(path: str | Path, problem: Problem) -> None:
    """Write `problem` to `path` (`.json`, else CSV)."""
    path = Path(path)
    if path.suffix.lower() == ".json":
        write_whole(path, (json.dumps(problem_to_json(problem), indent=1) + "\n").encode())
    else:
        write_whole(path, _problem_csv(problem).encode())


def read_plan(path: str | Path, problem: Problem) -> Plan:
    """The plan in `path` (`.json`, else CSV with columns id, offset and, with several pools, pool)."""
    path = Path(path)
    text = _text(path)
    if path.suffix.lower() == ".json":
        document = json_values(text, str(path), ProblemFileError)
        if _is_artifact(document):
            return Artifact.from_json(text, str(path)).plan
        return plan_from_json(document, str(path))
    placements = []
    default = problem.pools[0].name if problem.pools else CSV_POOL
    for where, row in _rows(path, text, ("id", "offset"), (*PROBLEM_COLUMNS, "offset", "pool")):
        offset = _whole(where, "offset", row["offset"])
        placements.append(Placement(row["id"], row.get("pool") or default, offset))
    placements = list(with_windows(problem, placements))
    names = {b.name for b in problem.buffers}
    heights = used_bytes(problem, [p for p in placements if p.buffer in names])
    usage = tuple(PoolUsage(pool.name, heights[pool.name], 0) for pool in problem.pools)
    return Plan(tuple(placements), usage, PlanStatus.FEASIBLE, path.name)


def write_plan(path: str | Path, problem: Problem, plan: Plan) -> None:
    """Write `plan` to `path`: JSON with everything, or MiniMalloc's CSV with a column `offset`."""
    path = Path(path)
    if path.suffix.lower() == ".json":
        write_whole(path, (json.dumps(plan_to_json(plan), indent=1) + "\n").encode())
        return
    at = {p.buffer: p for p in plan.placements}
    several = len(problem.pools) > 1
    rows = rows_of(problem)
    columns, cells = _csv_rows(rows)
    extra = ["offset", *(["pool"] if several else [])]
    places = [at[row.whole.name] for row in rows]
    body = [
        row + [str(place.offset_bytes)] + ([place.pool] if several else [])
        for row, place in zip(cells, places, strict=True)
    ]
    write_whole(path, csv_text([*columns, *extra], body).encode())


# -- CSV -------------------------------------------------------------------


def _csv_problem(path: Path, text: str) -> Problem:
    rows = []
    for where, row in _rows(path, text, PROBLEM_COLUMNS[:4], (*PROBLEM_COLUMNS, "offset", "pool")):
        lower, upper = (_whole(where, c, row[c]) for c in ("lower", "upper"))
        size = _whole(where, "size", row["size"])
        alignment = _whole(where, "alignment", row["alignment"]) if row.get("alignment") else 1
        try:
            rows.append(row_from(row["id"], lower, upper, size, alignment, row.get("gaps") or ""))
        except ProblemError as error:
            raise ProblemFileError(f"{where}: {error}") from None
    buffers, aliases = problem_parts(rows)
    return Problem(buffers, (Pool(CSV_POOL),), aliases=aliases, name=path.stem)


def _rows(path: Path, text: str, needed: Iterable[str], known: Iterable[str]) -> Iterable[tuple[str, dict[str, str]]]:
    """("file:line", row) of every row, after the header was checked."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [cell.strip() for cell in next(reader, [])]
        missing = [c for c in needed if c not in header]
        if missing:
            raise ProblemFileError(
                f"{path}:1: no column {', '.join(missing)}; the first line must name the columns, "
                f"{','.join(needed)} among them (found: {','.join(header) or 'nothing'})"
            )
        odd = [c for c in header if c not in set(known)]
        if odd or len(set(header)) != len(header):
            raise ProblemFileError(f"{path}:1: unknown or repeated column {', '.join(odd) or ','.join(header)}")
        for cells in reader:
            if not cells:
                continue
            where = f"{path}:{reader.line_num}"
            if len(cells) != len(header):
                raise ProblemFileError(f"{where}: {len(cells)} values for {len(header)} columns")
            yield where, {c: v.strip() for c, v in zip(header, cells, strict=True)}
    except csv.Error as error:
        raise ProblemFileError(f"{path}:{reader.line_num}: not CSV: {error}") from None


def _whole(where: str, column: str, text: str) -> int:
    if not re.fullmatch(r"[+-]?\d{1,19}", text, re.ASCII):
        raise ProblemFileError(f"{where}: {column} is {text!r}; give a whole number")
    return int(text)


def _csv_rows(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Columns and cells of `rows` as far as MiniMalloc's CSV can say them."""
    aligned = any(row.whole.alignment != 1 for row in rows)
    gaps = [row.gaps() for row in rows]
    columns = [*PROBLEM_COLUMNS[:4], *(["alignment"] if aligned else []), *(["gaps"] if any(gaps) else [])]
    cells = []
    for row, gap in zip(rows, gaps, strict=True):
        spans = [life for life, _ in row.spans()] or [Lifetime(0, 0)]
        cells.append([row.whole.name, str(spans[0].first), str(spans[-1].last), str(row.whole.size_bytes)])
        if aligned:
            cells[-1].append(str(row.whole.alignment))
        if any(gaps):
            cells[-1].append(gap)
    return columns, cells


def _problem_csv(problem: Problem) -> str:
    rows = rows_of(problem)
    lost = [
        what
        for what, there in (
            ("conflicts", problem.conflicts),
            ("alias groups", len(problem.aliases) > sum(bool(row.windows) for row in rows)),
            ("allowed overlaps", problem.overlaps),
            ("several pools", len(problem.pools) > 1),
            ("fixed buffers", any(b.fixed is not None for b in problem.buffers)),
            ("buffers without lifetimes", any(not row.spans() for row in rows)),
        )
        if there
    ]
    if lost:
        raise ProblemFileError(f"CSV cannot say {', '.join(lost)} of problem {problem.name!r}; write .json instead")
    return csv_text(*_csv_rows(rows))


# -- files -----------------------------------------------------------------


def _json_problem(path: Path, text: str) -> Problem:
    document = json_values(text, str(path), ProblemFileError)
    return (
        Artifact.from_json(text, str(path)).problem
        if _is_artifact(document)
        else problem_from_json(document, str(path))
    )


def _is_artifact(document: object) -> bool:
    """Whether this is the plan.json of a compiled model, which has both a problem and its plan."""
    return isinstance(document, dict) and document.get("schema") == ARTIFACT_SCHEMA


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ProblemFileError(f"cannot read {path}: {reason}; give a .csv or .json file") from None
