"""The table of a sweep: a row for each network on each target, as CSV, JSON and a page.

Invariant: rows are in the order in which cases were given, and nothing in them is of the machine that computed them;
the same table gives the same bytes of CSV and JSON, and the page has its numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..files.csv_text import csv_text
from ..report.page.tables import PageTable, Plot, tables_page
from ..sizes import count_text, milliseconds_text
from .case import Outcome, Result

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
    def range_milliseconds(self) -> tuple[float, float] | None:
        """The least and the most of it, by how memories are shared; None where it is unknown."""
        result, nominal = self.result, self.milliseconds
        if nominal is None:
            return None
        every = [cycles for cycles in (result.least_cycles, result.cycles, result.most_cycles) if cycles is not None]
        npu, *ends = (_milliseconds(c, result.clock_hz) or 0.0 for c in (result.cycles, min(every), max(every)))
        return (round(nominal + ends[0] - npu, 6), round(nominal + ends[1] - npu, 6))

    @property
    def range_text(self) -> str:
        """The range as text; "-" where it is unknown."""
        found = self.range_milliseconds
        return "-" if found is None else milliseconds_text(found).removesuffix(" ms")

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

    def values(self) -> dict[str, object]:
        """A row of CSV and JSON: column -> value."""
        result, runs = self.result, self.result.runs
        least, most = self.range_milliseconds or (None, None)
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
            "total_ms_least": least,
            "total_ms_most": most,
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
        }


def _milliseconds(cycles: int | None, clock_hz: float) -> float | None:
    return round(1000 * cycles / clock_hz, 6) if cycles is not None and clock_hz else None


@dataclass(frozen=True, slots=True)
class Table:
    """The rows, and what they were made with: name -> version."""

    rows: tuple[TableRow, ...]
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def networks(self) -> list[str]:
        return list(dict.fromkeys(row.label.network for row in self.rows))

    @property
    def targets(self) -> list[str]:
        return list(dict.fromkeys(row.label.target for row in self.rows))

    @property
    def not_run(self) -> int:
        """Rows that fit and whose results are claims alone."""
        return sum(row.fits and row.result.runs is None for row in self.rows)


def table_of(cases: Sequence[CaseLabel], results: Mapping[str, Result], versions: Mapping[str, str]) -> Table:
    """The table of `cases`; one without a result was not tried yet."""
    rows = [
        TableRow(case, results.get(case.key) or Result(case.key, Outcome.NOT_TRIED, "not computed yet"))
        for case in cases
    ]
    return Table(tuple(rows), versions)


def csv_of(table: Table) -> str:
    """The rows as CSV; names of files are no formulas of a spreadsheet."""
    columns = TableRow(CaseLabel("", "", "", "", ""), Result("", Outcome.NOT_TRIED)).values()
    return csv_text(tuple(columns), (tuple(row.values().values()) for row in table.rows), for_spreadsheets=True)


def json_of(table: Table) -> str:
    """The rows, each with the bytes of its pools, and what they were made with."""
    document = {
        "schema": SCHEMA,
        "versions": dict(table.versions),
        "networks": table.networks,
        "targets": table.targets,
        "results": [{**row.values(), "pools": dict(row.result.pools)} for row in table.rows],
    }
    return json.dumps(document, indent=1) + "\n"


def html_page(table: Table) -> str:
    """The text of sweep.html."""
    results = PageTable(
        "Results",
        ("network", "target", "outcome", "SRAM bytes", "RAM bytes", "flash bytes", "NPU cycles", "ms of both",
         "least to most", "host ms, rough", "host calls", "plan", "exactness", "reason"),
        [(row.label.network, row.label.target, row.result.outcome.value, row.sram_bytes, row.ram_bytes,
          row.flash_bytes, row.result.cycles, row.milliseconds, row.range_text,
          row.host_milliseconds, row.result.host_operations if row.fits else None, row.result.plan, row.exactness,
          "; ".join(filter(None, (row.result.reason, *row.result.incidents))))
         for row in table.rows],
    )  # fmt: skip
    marks = [
        (row.sram_bytes, row.milliseconds, "point", "", f"{row.label.network} on {row.label.target}")
        for row in table.rows
        if row.fits and row.sram_bytes and row.milliseconds
    ]
    return tables_page(
        title=f"Sweep: {count_text(len(table.networks), 'network')}, {count_text(len(table.targets), 'target')}",
        subtitle=", ".join(f"{name} {version}" for name, version in table.versions.items()),
        plots=[Plot("Memory and time", "SRAM bytes", "estimated ms, NPU and CPU", marks)] if marks else [],
        tables=[results],
        footer="Sizes are bytes; cycles and milliseconds are estimates, to compare with, not a prediction.",
    )
