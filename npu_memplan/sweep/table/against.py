"""What changed from one sweep to a later one, and what of it is worse.

Invariant: only rows of the same network (its bytes) on the same target are compared; a regression is more bytes, more
cycles, more calls of the host, less exactness, or an end that was better before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ..results import Outcome
from .rows import Table, TableRow


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of one row."""

    network: str
    target: str
    what: str
    before: str | float
    after: str | float
    worse: bool

    def to_text(self) -> str:
        return f"{'worse' if self.worse else 'better'}: {self.network} on {self.target}: {self.what} {_change(self)}"


def _change(difference: Difference) -> str:
    before, after = difference.before, difference.after
    if isinstance(before, str) or isinstance(after, str):
        return f"{before} -> {after}"
    share = f" ({100 * (after - before) / before:+.1f} %)" if before else ""
    return f"{before:,} -> {after:,}{share}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A sweep against an earlier one."""

    differences: tuple[Difference, ...]
    compared: int  # rows
    other_models: tuple[str, ...]  # networks whose bytes changed: not compared
    added: int
    removed: int

    @property
    def regressions(self) -> tuple[Difference, ...]:
        return tuple(difference for difference in self.differences if difference.worse)

    def to_text(self) -> str:
        worse = self.regressions
        lines = [
            f"against the earlier sweep: {self.compared:,} results compared, "
            f"{len(self.differences) - len(worse):,} better, {len(worse):,} worse; "
            f"{self.added:,} new, {self.removed:,} gone"
        ]
        if self.other_models:
            lines.append(f"not compared, the model is another: {', '.join(self.other_models)}")
        lines += [f"  {difference.to_text()}" for difference in (*worse, *(d for d in self.differences if not d.worse))]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "regressions": len(self.regressions)}


def compare(old: Table, new: Table) -> Comparison:
    """What `new` has in place of `old`."""
    before = {(row.label.network, row.label.target): row for row in old.rows}
    differences: list[Difference] = []
    others: dict[str, None] = {}
    compared = added = 0
    for row in new.rows:
        earlier = before.pop((row.label.network, row.label.target), None)
        if earlier is None:
            added += 1
        elif earlier.label.model_sha256 != row.label.model_sha256:
            others[row.label.network] = None
        elif Outcome.NOT_TRIED not in (earlier.result.outcome, row.result.outcome):
            compared += 1
            differences += _differences(earlier, row)
    return Comparison(tuple(differences), compared, tuple(others), added, len(before))


def _differences(old: TableRow, new: TableRow) -> Iterator[Difference]:
    def difference(what: str, before: Any, after: Any, worse: bool) -> Difference:
        return Difference(new.label.network, new.label.target, what, before, after, worse)

    if not (old.fits and new.fits):
        if old.result.outcome is not new.result.outcome:
            yield difference("outcome", old.result.outcome.value, _end(new), worse=not new.fits)
        elif old.sram_bytes != new.sram_bytes:
            yield difference("bytes needed", old.sram_bytes, new.sram_bytes, _more(old.sram_bytes, new.sram_bytes))
        return
    for pool in dict.fromkeys((*old.result.pools, *new.result.pools)):
        sizes = (old.result.pools.get(pool, 0), new.result.pools.get(pool, 0))
        if sizes[0] != sizes[1]:
            yield difference(f"{pool} bytes", *sizes, _more(*sizes))
    figures = {
        "flash bytes": (old.flash_bytes, new.flash_bytes),
        "cycles": (old.result.cycles or 0, new.result.cycles or 0),
        "host calls": (old.result.host_operations, new.result.host_operations),
        "operators not proven exact": (old.inexact_operators, new.inexact_operators),
    }
    for what, (was, now) in figures.items():
        if was != now:
            yield difference(what, was, now, _more(was, now))
    if old.result.runs is not None and new.result.runs is not None and old.exact != new.exact:
        yield difference("runs", old.exactness, new.exactness, worse=not new.exact)


def _more(before: int | None, after: int | None) -> bool:
    return (after or 0) > (before or 0)


def _end(row: TableRow) -> str:
    return row.result.outcome.value + (f" ({row.result.reason})" if row.result.reason else "")
