"""Problems and plans as MiniMalloc's CSV: lifetimes with gaps, some of which keep a window of bytes.

Invariant: a row is one buffer; each window `c:d` of its gaps is one more buffer of `d - c` bytes, an alias `c` bytes
after it that lives during the gaps of that window. So one offset says where all of them are, and `rows_of` finds in a
problem the rows it was made from. Columns are named by the first line; what is known by another name is refused. A
problem's `offset` fixes its buffer, as MiniMalloc reads it, and an empty one does not; `hint` constrains nothing and is
not used.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from ..files.csv_text import csv_text
from .model import (
    AliasGroup,
    Buffer,
    Lifetime,
    Placement,
    Plan,
    PlanStatus,
    Pool,
    PoolUsage,
    Problem,
    ProblemError,
    used_bytes,
)

# a-b: nothing is kept during [a, b); a-b@c:d: only bytes [c, d) of the buffer are (MiniMalloc's Gap and Window)
_GAP = re.compile(r"(-?\d{1,19})-(-?\d{1,19})(?:@(\d{1,19}):(\d{1,19}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Row:
    """`whole` lives while all of its bytes are kept; each of `windows` is (its first byte, the buffer that lives)."""

    whole: Buffer
    windows: tuple[tuple[int, Buffer], ...] = ()

    @property
    def alias_group(self) -> AliasGroup | None:
        """The group that ties the windows to the buffer; None when there are none."""
        if not self.windows:
            return None
        return AliasGroup(self.whole.name, ((self.whole.name, 0), *((b.name, at) for at, b in self.windows)))

    def lifetime_spans(self) -> list[tuple[Lifetime, str]]:
        """Lifetimes in order of time, each with `""` or the `@c:d` of its window."""
        found = [(life, "") for life in self.whole.lifetimes]
        for at, window in self.windows:
            found += [(life, f"@{at}:{at + window.size_bytes}") for life in window.lifetimes]
        return sorted(found)

    def gaps_text(self) -> str:
        """The column `gaps`: what the row's first and last point do not say of `spans`."""
        ranges = []
        until: int | None = None
        for life, window in self.lifetime_spans():
            if until is not None and life.first > until:
                ranges.append(f"{until}-{life.first}")
            if window:
                ranges.append(f"{life.first}-{life.last}{window}")
            until = life.last
        return " ".join(ranges)


def row_from(
    name: str, lower: int, upper: int, size: int, alignment: int, gaps: str, fixed: tuple[str, int] | None = None
) -> Row:
    """The row of these columns; `ProblemError` names the gap that can not be read."""
    kept: list[Lifetime] = []
    windows: dict[tuple[int, int], list[Lifetime]] = {}
    at = lower
    for word in gaps.split():
        match = _GAP.fullmatch(word)
        if match is None:
            raise ProblemError(
                f"cannot read the gap {word!r}; write lower-upper, e.g. 4-7, or lower-upper@first:last, e.g. 4-7@0:16, "
                "where bytes [first, last) of the buffer are kept"
            )
        gap = Lifetime(int(match[1]), int(match[2]))
        if not at <= gap.first < gap.last <= upper:
            raise ProblemError(f"gap {word} is not inside [{at}, {upper}), ascending and not empty")
        if match[3] is not None:
            window = int(match[3]), int(match[4])
            if not window[0] < window[1] <= size:
                raise ProblemError(
                    f"gap {word} keeps bytes [{window[0]}, {window[1]}), which are no part of the buffer's {size}"
                )
            windows.setdefault(window, []).append(gap)
        if gap.first > at:
            kept.append(Lifetime(at, gap.first))
        at = gap.last
    if upper > at or not gaps.strip():
        kept.append(Lifetime(at, upper))
    return Row(
        Buffer(name, size, tuple(kept), alignment, fixed=fixed),
        tuple(
            (first, Buffer(f"{name}@{first}:{last}", last - first, tuple(lives), 1))
            for (first, last), lives in sorted(windows.items())
        ),
    )


def problem_parts(rows: Iterable[Row]) -> tuple[tuple[Buffer, ...], tuple[AliasGroup, ...]]:
    """Buffers and alias groups of a problem that says what `rows` say."""
    rows = tuple(rows)
    buffers = tuple(b for row in rows for b in (row.whole, *(b for _, b in row.windows)))
    return buffers, tuple(row.alias_group for row in rows if row.alias_group is not None)


def rows_of(problem: Problem) -> list[Row]:
    """The problem's buffers as rows; only alias groups that a row could have made are taken together."""
    buffers = {b.name: b for b in problem.buffers}
    windows = {}
    inner: set[str] = set()
    for group in problem.aliases:
        row = _group_row(group, buffers)
        if row is not None:
            windows[group.name] = row
            inner.update(b.name for _, b in row.windows)
    return [windows.get(b.name, Row(b)) for b in problem.buffers if b.name not in inner]


def _group_row(group: AliasGroup, buffers: dict[str, Buffer]) -> Row | None:
    """The row that `group` was made from, or None."""
    if not group.members:
        return None
    whole = buffers[group.members[0][0]]
    row = Row(whole, tuple((at, buffers[name]) for name, at in group.members[1:]))
    if row.alias_group != group:
        return None
    for at, window in row.windows:
        name = f"{whole.name}@{at}:{at + window.size_bytes}"
        lives = window.lifetimes
        same = replace(whole, name=name, size_bytes=window.size_bytes, lifetimes=lives, alignment=1, fixed=None)
        if window != same or at < 0 or not 0 < window.size_bytes <= whole.size_bytes - at:
            return None
    spans = [life for life, _ in row.lifetime_spans()]
    return None if any(b.first < a.last for a, b in pairwise(spans)) else row


def with_windows(problem: Problem, placements: Iterable[Placement]) -> Iterator[Placement]:
    """`placements`, and after each row's that of its windows unless they are there too."""
    given = tuple(placements)
    known = {p.buffer for p in given}
    rows = {row.whole.name: row for row in rows_of(problem)}
    for placement in given:
        yield placement
        if placement.buffer in rows:
            for at, window in rows[placement.buffer].windows:
                if window.name not in known:
                    yield Placement(window.name, placement.pool, placement.offset_bytes + at)


NEEDED_COLUMNS = ("id", "lower", "upper", "size")
ALL_COLUMNS = (*NEEDED_COLUMNS, "alignment", "hint", "gaps", "offset", "pool")
CSV_POOL = "memory"  # name of the one pool of a CSV problem


class ProblemFileError(ProblemError):
    """A problem or plan file cannot be read or written; the message has file and line."""


def problem_from_csv(path: Path, text: str) -> Problem:
    """The problem in the text of `path`, with one pool."""
    rows = []
    for where, row in _checked_rows(path, text, NEEDED_COLUMNS, ALL_COLUMNS):
        lower, upper = (_whole_number(where, c, row[c]) for c in ("lower", "upper"))
        size = _whole_number(where, "size", row["size"])
        alignment, offset, _ = (_optional_number(where, c, row) for c in ("alignment", "offset", "hint"))
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


def _checked_rows(
    path: Path, text: str, needed: Iterable[str], known: Iterable[str]
) -> Iterable[tuple[str, dict[str, str]]]:
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


def _whole_number(where: str, column: str, text: str) -> int:
    if not re.fullmatch(r"[+-]?\d{1,19}", text, re.ASCII):
        raise ProblemFileError(f"{where}: {column} is {text!r}; give a whole number")
    return int(text)


def _optional_number(where: str, column: str, row: dict[str, str]) -> int | None:
    """None where the column is not there, or empty."""
    return _whole_number(where, column, row[column]) if row.get(column) else None


def plan_from_csv(path: Path, text: str, problem: Problem) -> Plan:
    """The plan in the text of `path`: columns id, offset and, with several pools, pool."""
    placements = []
    default = problem.pools[0].name if problem.pools else CSV_POOL
    for where, row in _checked_rows(path, text, ("id", "offset"), ALL_COLUMNS):
        offset = _whole_number(where, "offset", row["offset"])
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
        spans = [life for life, _ in row.lifetime_spans()] or [Lifetime(0, 0)]
        rows.append(
            {
                "id": row.whole.name,
                "lower": spans[0].first,
                "upper": spans[-1].last,
                "size": row.whole.size_bytes,
                "alignment": row.whole.alignment,
                "gaps": row.gaps_text(),
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
