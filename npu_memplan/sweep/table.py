"""The table of a sweep: a row for each network on each target, fronts, the cheapest target for all, regressions, the
page.

Invariant: rows are in the order in which cases were given, and nothing in them is of the machine that computed them;
the same table gives the same bytes of CSV and JSON, and the page has its numbers. A regression is more bytes, cycles or
host calls, less exactness or a worse outcome, of the same network (its bytes) on the same target.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ethosu.arch import ACCELERATORS
from ..files.csv_text import csv_text
from ..files.paths import read_text
from ..files.schema import check_schema, json_values
from ..report.page.tables import PageTable, Plot, tables_page
from ..sizes import count_text
from .case import Outcome, Result, SweepError

if TYPE_CHECKING:
    from .case import Case


SCHEMA = "npu_memplan.sweep.table/1"


@dataclass(frozen=True, slots=True)
class CaseLabel:
    """A case as tables name it."""

    network: str
    target: str
    accelerator: str
    model_sha256: str
    key: str

    @classmethod
    def from_case(cls, case: Case) -> CaseLabel:
        return cls(case.network, case.target, case.options.accelerator, case.model.sha256, case.key)


@dataclass(frozen=True, slots=True)
class TableRow:
    """One network on one target. Sizes are bytes; figures are None unless it fits."""

    label: CaseLabel
    result: Result

    @property
    def fits(self) -> bool:
        return self.result.outcome is Outcome.FITS

    @property
    def multipliers(self) -> int:
        """The multipliers of the accelerator, a measure of its silicon. None: 0."""
        npu = ACCELERATORS.get(self.label.accelerator)
        return npu.macs if npu else 0

    @property
    def sram_bytes(self) -> int | None:
        """The bytes of the pool `sram`; of one that is too small, what it would need."""
        short = self.result.shortage
        if short is not None and short.pool == "sram":
            return short.required_bytes
        return self.result.pools.get("sram", 0) if self.fits else None

    @property
    def ram_bytes(self) -> int | None:
        """The bytes of all pools that are written to."""
        return sum(self.result.pools.values()) if self.fits else None

    @property
    def flash_bytes(self) -> int | None:
        """Weights, tables and command streams; the host's code is not counted."""
        return self.result.constants_bytes + self.result.stream_bytes if self.fits else None

    @property
    def milliseconds(self) -> float | None:
        """The time of one inference, NPU and CPU, estimated; None where it, or the CPU's clock, is unknown."""
        npu, host = self.npu_milliseconds, self.host_milliseconds
        if self.result.host_cycles is not None and host is None:
            return None
        return None if npu is None and host is None else round((npu or 0.0) + (host or 0.0), 6)

    @property
    def npu_milliseconds(self) -> float | None:
        """The NPU's; None where it has nothing to do."""
        return _milliseconds(self.result.cycles, self.result.clock_hz)

    @property
    def host_milliseconds(self) -> float | None:
        """The CPU's; None: no calls, or an unknown clock."""
        return _milliseconds(self.result.host_cycles, self.result.host_clock_hz)

    @property
    def inexact_operators(self) -> int:
        """Operators whose code is not proven exact."""
        return sum(count for level, count in self.result.operators.items() if level != "exact")

    @property
    def exact(self) -> bool | None:
        """Whether every run equalled its reference; None when nothing was run."""
        runs = self.result.runs
        return None if runs is None else runs.exact == runs.seeds and not runs.stopped

    @property
    def exactness(self) -> str:
        """The exactness in words; without a run, the claim of the operators' code."""
        if not self.fits:
            return ""
        runs = self.result.runs
        if runs is not None:
            if runs.stopped:
                return f"stopped on {runs.runner}"
            return (
                f"exact, {runs.seeds} runs" if self.exact else f"differs in {runs.seeds - runs.exact} of {runs.seeds}"
            )
        total = sum(self.result.operators.values())
        claim = f"{self.inexact_operators} of {total} not proven exact" if self.inexact_operators else "claimed exact"
        return f"{claim}, not run"

    @property
    def price(self) -> tuple[float, ...]:
        """The price that a front weighs: multipliers, SRAM, all RAM, milliseconds (unknown: worst), host calls."""
        time = math.inf if self.milliseconds is None else self.milliseconds
        return self.multipliers, self.sram_bytes or 0, self.ram_bytes or 0, time, self.result.host_operations

    def values(self) -> dict[str, object]:
        """A row of CSV and JSON: column -> value."""
        result, runs = self.result, self.result.runs
        return {
            "network": self.label.network,
            "target": self.label.target,
            "accelerator": self.label.accelerator,
            "outcome": result.outcome.value,
            "fits": self.fits,
            "sram_bytes": self.sram_bytes,
            "ram_bytes": self.ram_bytes,
            "flash_bytes": self.flash_bytes,
            "vela_ram_bytes": result.vela_bytes or None,
            "total_ms": self.milliseconds,
            "npu_ms": self.npu_milliseconds,
            "npu_ms_most": _milliseconds(result.most_cycles, result.clock_hz),
            "host_ms": self.host_milliseconds,
            "npu_cycles": result.cycles,
            "npu_operations": result.npu_operations if self.fits else None,
            "host_operations": result.host_operations if self.fits else None,
            "plan": result.plan,
            "inexact_operators": self.inexact_operators if self.fits else None,
            "runner": runs.runner if runs else "",
            "runs": runs.seeds if runs else 0,
            "exact_runs": runs.exact if runs else 0,
            "reason": result.reason or (runs.stopped if runs else ""),
            "incidents": "; ".join(result.incidents),
            "model_sha256": self.label.model_sha256,
            "key": self.label.key,
        }


def _milliseconds(cycles: int | None, clock_hz: float) -> float | None:
    return round(1000 * cycles / clock_hz, 6) if cycles is not None and clock_hz else None


@dataclass(frozen=True)
class Table:
    rows: tuple[TableRow, ...]
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def networks(self) -> tuple[str, ...]:
        return tuple(self.by_network)

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(self.by_target)

    @cached_property
    def by_network(self) -> dict[str, list[TableRow]]:
        return _group_rows(self.rows, "network")

    @cached_property
    def by_target(self) -> dict[str, list[TableRow]]:
        return _group_rows(self.rows, "target")

    @property
    def not_run(self) -> int:
        """Rows that fit and whose results are claims alone."""
        return sum(row.fits and row.result.runs is None for row in self.rows)

    @cached_property
    def fronts(self) -> dict[str, tuple[str, ...]]:
        """Network -> the targets of its front."""
        return {name: tuple(row.label.target for row in front(rows)) for name, rows in self.by_network.items()}


def table_of(cases: Sequence[CaseLabel], results: Mapping[str, Result], versions: Mapping[str, str]) -> Table:
    """The table of `cases`; one without a result was not tried yet."""
    rows = [
        TableRow(case, results.get(case.key) or Result(case.key, Outcome.NOT_TRIED, "not computed yet"))
        for case in cases
    ]
    return Table(tuple(rows), versions)


def front(rows: Iterable[TableRow]) -> list[TableRow]:
    """The rows that fit and that no other one beats (`TableRow.price`): as good in all and better in one."""
    found: list[TableRow] = []
    for row in sorted(
        (row for row in rows if row.fits), key=lambda row: row.price
    ):  # a row that beats another comes before it
        price = row.price
        if not any(
            other.price != price and all(a <= b for a, b in zip(other.price, price, strict=True)) for other in found
        ):
            found.append(row)
    return found


@dataclass(frozen=True, slots=True)
class FittingTarget:
    """A target on which every network fits: what it must have, and how long the slowest network takes."""

    target: str
    multipliers: int
    sram_bytes: int
    ram_bytes: int
    flash_bytes: int
    milliseconds: float | None  # None: of one network at least nothing is known
    host_operations: int  # the most of any network


def cheapest_targets(table: Table, deadline_ms: float | None = None) -> list[FittingTarget]:
    """The targets on which all networks fit, with a deadline those that are known to keep it; the cheapest first:
    fewest multipliers, then SRAM, then all RAM, then flash of all networks together, then time."""
    found = []
    for target, rows in table.by_target.items():
        if len(rows) == len(table.networks) and all(row.fits for row in rows):
            times = [row.milliseconds for row in rows]
            known = [time for time in times if time is not None]
            candidate = FittingTarget(
                target,
                max(row.multipliers for row in rows),
                max(row.sram_bytes or 0 for row in rows),
                max(row.ram_bytes or 0 for row in rows),
                sum(row.flash_bytes or 0 for row in rows),
                max(known) if len(known) == len(times) else None,
                max(row.result.host_operations for row in rows),
            )
            if deadline_ms is None or (candidate.milliseconds is not None and candidate.milliseconds <= deadline_ms):
                found.append(candidate)
    return sorted(found, key=_target_price)


def _target_price(c: FittingTarget) -> tuple[float | str, ...]:
    time = math.inf if c.milliseconds is None else c.milliseconds
    return c.multipliers, c.sram_bytes, c.ram_bytes, c.flash_bytes, time, c.target


def _group_rows(rows: Iterable[TableRow], name: str) -> dict[str, list[TableRow]]:
    """Rows by a field of the case."""
    groups: dict[str, list[TableRow]] = {}
    for row in rows:
        groups.setdefault(getattr(row.label, name), []).append(row)
    return groups


def csv_of(table: Table) -> str:
    """The rows as CSV; names of files are no formulas of a spreadsheet."""
    columns = TableRow(CaseLabel("", "", "", "", ""), Result("", Outcome.NOT_TRIED)).values()
    return csv_text(tuple(columns), (tuple(row.values().values()) for row in table.rows), for_spreadsheets=True)


def json_of(table: Table, changes: Sequence[Difference] | None = None, deadline_ms: float | None = None) -> str:
    """All of the table: results with pools and reasons, fronts, targets that fit all, differences."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "versions": dict(table.versions),
        "networks": list(table.networks),
        "targets": list(table.targets),
        "fronts": {name: list(targets) for name, targets in table.fronts.items()},
        "fits_all": [asdict(c) for c in cheapest_targets(table, deadline_ms)],
    }
    if changes is not None:
        document["against"] = [asdict(change) for change in changes]
    rows = (json.dumps({**row.values(), "pools": dict(row.result.pools)}) for row in table.rows)
    return json.dumps(document, indent=1)[:-2] + ',\n "results": [\n' + ",\n".join(rows) + "\n]}\n"


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of one row that has changed."""

    network: str
    target: str
    what: str
    before: str | float
    after: str | float
    worse: bool

    def to_text(self) -> str:
        """The difference as a line: `worse: kws on ethos-u55-128: sram_bytes 1,000 -> 1,100`."""
        before, after = (f"{v:,}" if isinstance(v, (int, float)) else v for v in (self.before, self.after))
        return (
            f"{'worse' if self.worse else 'better'}: {self.network} on {self.target}: {self.what} {before} -> {after}"
        )


_LESS_IS_BETTER = ("sram_bytes", "ram_bytes", "flash_bytes", "npu_cycles", "host_operations", "inexact_operators")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of an earlier sweep: its folder, or its sweep_table.json."""
    file = path / "sweep_table.json" if path.is_dir() else path
    try:
        text = read_text(file)
    except (OSError, UnicodeDecodeError) as error:
        raise SweepError(f"cannot read the earlier sweep {file}: {error}; give the folder of a sweep") from None
    document: Any = json_values(text, str(file), SweepError)
    check_schema(document, SCHEMA, str(file), SweepError)
    rows = document.get("results")
    needed = {"network", "target", "model_sha256", "outcome", "runs", "exact_runs", *_LESS_IS_BETTER}
    if not isinstance(rows, list) or not all(isinstance(row, dict) and needed <= row.keys() for row in rows):
        raise SweepError(f"{file} is no table of a sweep: a row lacks one of {', '.join(sorted(needed))}")
    return rows


def compare_rows(old: Iterable[Mapping[str, Any]], new: Table) -> list[Difference]:
    """The figures of `new` that differ from `old`, the worse ones first; other models and new targets are left out."""
    before = {(row["network"], row["target"], row["model_sha256"]): row for row in old}
    found: list[Difference] = []
    for row in new.rows:
        was = before.get((row.label.network, row.label.target, row.label.model_sha256))
        if was is not None and Outcome.NOT_TRIED.value not in (was["outcome"], row.result.outcome.value):
            found += _row_differences(was, row.values())
    return sorted(found, key=lambda change: not change.worse)


def _row_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    names = new["network"], new["target"]
    fits = Outcome.FITS.value
    if old["outcome"] != new["outcome"]:
        yield Difference(*names, "outcome", old["outcome"], new["outcome"], new["outcome"] != fits)
        return
    for column in _LESS_IS_BETTER:
        was, now = old[column] or 0, new[column] or 0
        if was != now:
            yield Difference(*names, column, was, now, now > was)
    if old["runs"] and new["runs"]:
        shares = [row["exact_runs"] / row["runs"] for row in (old, new)]
        if shares[0] != shares[1]:
            was, now = (f"{row['exact_runs']} of {row['runs']}" for row in (old, new))
            yield Difference(*names, "exact runs", was, now, shares[1] < shares[0])


def html_page(table: Table, changes: Sequence[Difference] | None = None, deadline_ms: float | None = None) -> str:
    """The text of sweep.html; `deadline_ms` is what the cheapest target has to keep."""
    within = "" if deadline_ms is None else f" at {deadline_ms:g} ms each"
    fits_all = PageTable(
        f"Targets that fit all networks{within}, the cheapest first",
        ("target", "multipliers", "SRAM bytes", "RAM bytes", "flash bytes", "slowest, ms", "host calls"),
        [(c.target, c.multipliers, c.sram_bytes, c.ram_bytes, c.flash_bytes, c.milliseconds, c.host_operations)
         for c in cheapest_targets(table, deadline_ms)],
    )  # fmt: skip
    results = PageTable(
        "Results",
        ("network", "target", "outcome", "on its front", "SRAM bytes", "RAM bytes", "flash bytes", "NPU cycles",
         "NPU ms", "host ms, rough", "host calls", "plan", "exactness", "reason"),
        [(row.label.network, row.label.target, row.result.outcome.value,
          "yes" if row.label.target in table.fronts[row.label.network] else "", row.sram_bytes, row.ram_bytes,
          row.flash_bytes, row.result.cycles, row.milliseconds, row.host_milliseconds,
          row.result.host_operations if row.fits else None, row.result.plan, row.exactness,
          "; ".join(filter(None, (row.result.reason, *row.result.incidents))))
         for row in table.rows],
    )  # fmt: skip
    against = PageTable(
        "Against the earlier sweep",
        ("network", "target", "figure", "before", "after", "is"),
        [(c.network, c.target, c.what, c.before, c.after, "worse" if c.worse else "better") for c in changes or ()],
    )
    marks = [
        (row.sram_bytes, row.milliseconds, "point", "", f"{row.label.network} on {row.label.target}")
        for row in table.rows
        if row.fits and row.sram_bytes and row.milliseconds
    ]
    return tables_page(
        title=f"Sweep: {count_text(len(table.networks), 'network')}, {count_text(len(table.targets), 'target')}",
        subtitle=", ".join(f"{name} {version}" for name, version in table.versions.items()),
        plots=[Plot("Memory and time", "SRAM bytes", "estimated NPU ms", marks)] if marks else [],
        tables=[*([against] if changes is not None else []), fits_all, results],
        footer="Sizes are bytes; cycles and milliseconds are estimates, to compare with, not a prediction. A front has "
        "the targets that no other one beats in multipliers, SRAM, all RAM, estimated time and host calls.",
    )
