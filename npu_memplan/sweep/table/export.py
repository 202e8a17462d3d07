"""The table as files for other programs: JSON, CSV, parquet.

Invariant: the same table gives the same bytes of JSON and CSV; a file is whole or as it was.
"""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from typing import Any

from ...files.csv_text import csv_text
from ..case import SweepError
from ..results import Outcome, Result
from .against import Comparison
from .rows import CaseLabel, Table, TableRow, cheapest

SCHEMA = "npu_memplan.sweep.table/1"


def columns() -> tuple[str, ...]:
    """Names of the columns of CSV and parquet."""
    return tuple(TableRow(CaseLabel("", "", "", "", ""), Result("", Outcome.NOT_TRIED)).values())


def csv_of(table: Table) -> str:
    return csv_text(columns(), (tuple(row.values().values()) for row in table.rows), for_spreadsheets=True)


def json_of(table: Table, changes: Comparison | None = None, deadline_ms: float | None = None) -> str:
    """Everything: results with pools and reasons, fronts, targets that fit all, differences."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "versions": dict(table.versions),
        "networks": list(table.networks),
        "targets": list(table.targets),
        "fronts": {name: list(targets) for name, targets in table.fronts.items()},
        "fits_all": [asdict(c) for c in cheapest(table, deadline_ms)],
    }
    if changes is not None:
        document["against"] = changes.to_dict()
    rows = (json.dumps({**row.values(), "pools": dict(row.result.pools)}) for row in table.rows)
    return json.dumps(document, indent=1)[:-2] + ',\n "results": [\n' + ",\n".join(rows) + "\n]}\n"


def parquet_of(table: Table) -> bytes:
    """The columns of the CSV, typed; needs pyarrow."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise SweepError(
            "parquet needs pyarrow, which is not installed; pip install 'npu_memplan[parquet]', or use the CSV"
        ) from None
    rows = [row.values() for row in table.rows]
    kinds = {name: _kind(pyarrow, name) for name in columns()}
    arrays = {name: pyarrow.array([row[name] for row in rows], kind) for name, kind in kinds.items()}
    sink = io.BytesIO()
    parquet.write_table(pyarrow.table(arrays), sink)
    return sink.getvalue()


def _kind(pyarrow: Any, name: str) -> Any:
    if name == "fits":
        return pyarrow.bool_()
    if name in ("npu_ms", "npu_ms_most", "host_ms_rough"):
        return pyarrow.float64()
    counts = ("npu_cycles", "npu_operations", "host_operations", "inexact_operators", "runs", "exact_runs")
    return pyarrow.int64() if name in counts or name.endswith("_bytes") else pyarrow.string()
