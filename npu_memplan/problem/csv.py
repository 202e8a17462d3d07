"""Problems and plans as MiniMalloc's CSV.

Invariant: columns are named by the first line; writing refuses what they cannot say rather than drop it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..files.csv_text import csv_text
from .model import Lifetime, Placement, Plan, PlanStatus, Pool, PoolUsage, Problem, ProblemError, used_bytes
from .rows import Row, problem_parts, row_from, rows_of, with_windows

PROBLEM_COLUMNS = ("id", "lower", "upper", "size", "alignment", "gaps")
CSV_POOL = "memory"  # name of the one pool of a CSV problem


class ProblemFileError(ProblemError):
    """A problem or plan file cannot be read or written; the message has file and line."""


def problem_from_csv(path: Path, text: str) -> Problem:
    """The problem in the text of `path`, with one pool."""
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


def problem_csv(problem: Problem) -> str:
    """`problem` as text; `ProblemFileError` names what CSV cannot say of it."""
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


def plan_from_csv(path: Path, text: str, problem: Problem) -> Plan:
    """The plan in the text of `path`: columns id, offset and, with several pools, pool."""
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


def plan_csv(problem: Problem, plan: Plan) -> str:
    """`plan` as text: the problem's columns and `offset`, and `pool` where there are several."""
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
    return csv_text([*columns, *extra], body)
