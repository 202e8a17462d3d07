"""Problems and plans as MiniMalloc's CSV.

Invariant: columns are named by the first line; what is known by another name is refused. A problem's `offset` fixes its
buffer, as MiniMalloc reads it, and an empty one does not; `hint` constrains nothing and is not used.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from pathlib import Path

from ..files.csv_text import csv_text
from .model import Lifetime, Placement, Plan, PlanStatus, Pool, PoolUsage, Problem, ProblemError, used_bytes
from .rows import problem_parts, row_from, rows_of, with_windows

NEEDED_COLUMNS = ("id", "lower", "upper", "size")
ALL_COLUMNS = (*NEEDED_COLUMNS, "alignment", "hint", "gaps", "offset", "pool")
CSV_POOL = "memory"  # name of the one pool of a CSV problem


class ProblemFileError(ProblemError):
    """A problem or plan file cannot be read or written; the message has file and line."""


def problem_from_csv(path: Path, text: str) -> Problem:
    """The problem in the text of `path`, with one pool."""
    rows = []
    for where, row in _rows(path, text, NEEDED_COLUMNS, ALL_COLUMNS):
        lower, upper = (_whole(where, c, row[c]) for c in ("lower", "upper"))
        size = _whole(where, "size", row["size"])
        alignment, offset, _ = (_optional(where, c, row) for c in ("alignment", "offset", "hint"))
        if row.get("pool"):
            raise ProblemFileError(f"{where}: a CSV problem has one pool; leave the column pool out, or write JSON")
        fixed = None if offset is None else (CSV_POOL, offset)
        alignment = 1 if alignment is None else alignment
        try:
            rows.append(row_from(row["id"], lower, upper, size, alignment, row.get("gaps") or "", fixed))
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


def _optional(where: str, column: str, row: dict[str, str]) -> int | None:
    """None where the column is not there, or empty."""
    return _whole(where, column, row[column]) if row.get(column) else None


def plan_from_csv(path: Path, text: str, problem: Problem) -> Plan:
    """The plan in the text of `path`: columns id, offset and, with several pools, pool."""
    placements = []
    default = problem.pools[0].name if problem.pools else CSV_POOL
    for where, row in _rows(path, text, ("id", "offset"), ALL_COLUMNS):
        offset = _whole(where, "offset", row["offset"])
        placements.append(Placement(row["id"], row.get("pool") or default, offset))
    placements = list(with_windows(problem, placements))
    names = {b.name for b in problem.buffers}
    heights = used_bytes(problem, [p for p in placements if p.buffer in names])
    usage = tuple(PoolUsage(pool.name, heights[pool.name], 0) for pool in problem.pools)
    return Plan(tuple(placements), usage, PlanStatus.FEASIBLE, path.name)


def plan_csv(problem: Problem, plan: Plan) -> str:
    """`plan` as text: the problem's columns and `offset`, and `pool` where there are several."""
    at = {p.buffer: p for p in plan.placements}
    rows: list[dict[str, object]] = []
    for row in rows_of(problem):
        spans = [life for life, _ in row.spans()] or [Lifetime(0, 0)]
        rows.append(
            {
                "id": row.whole.name,
                "lower": spans[0].first,
                "upper": spans[-1].last,
                "size": row.whole.size_bytes,
                "alignment": row.whole.alignment,
                "gaps": row.gaps(),
                "offset": at[row.whole.name].offset_bytes,
                "pool": at[row.whole.name].pool,
            }
        )
    optional = {
        "hint": False,
        "alignment": any(row["alignment"] != 1 for row in rows),
        "gaps": any(row["gaps"] for row in rows),
        "pool": len(problem.pools) > 1,
    }
    columns = [c for c in ALL_COLUMNS if optional.get(c, True)]
    return csv_text(columns, [[row[c] for c in columns] for row in rows])
