"""A sweep's folder: `sweep.json`, the cases given last, and `results/`, all that was ever computed for it.

Invariant: the table is of what `sweep.json` names; results of former cases stay, and are used when those are given
again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..files.schema import check_schema, from_values, json_values
from ..files.whole_file import write_whole
from ..versions import versions
from .case import Case, SweepError
from .results import CaseLimits
from .store import Store
from .table.rows import CaseLabel, Table, table_of

NAME = "sweep.json"
RESULTS = "results"
_SCHEMA = "npu_memplan.sweep/1"


@dataclass(frozen=True, slots=True)
class _Document:
    versions: Mapping[str, str]
    cases: tuple[CaseLabel, ...]


def write_request(folder: Path, cases: Sequence[Case]) -> None:
    """Let `folder` be a sweep of `cases`."""
    made_with = versions(any(case.verification.runner for case in cases))
    _write(folder, dict(made_with), [CaseLabel.of(case) for case in cases])


def _write(folder: Path, made_with: Mapping[str, str], cases: Sequence[CaseLabel]) -> None:
    names = CaseLabel.__slots__
    rows = [json.dumps({name: getattr(case, name) for name in names}) for case in cases]
    head = json.dumps({"schema": _SCHEMA, "versions": dict(made_with)})[:-1]
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / NAME, (head + ', "cases": [\n' + ",\n".join(rows) + "\n]}\n").encode())


def _read(folder: Path) -> _Document:
    path = folder / NAME
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise SweepError(
            f"{folder} is no sweep: cannot read {path} ({reason}); "
            f"make one with: npu-memplan sweep MODEL... -o {folder}"
        ) from None
    values: Any = json_values(text, str(path), SweepError)
    check_schema(values, _SCHEMA, str(path), SweepError)
    return from_values(values, _Document, str(path), SweepError)


def read_table(folder: Path, store: Path | None = None) -> Table:
    """The table of the sweep in `folder`; cases without a result are in it as not tried."""
    document = _read(folder)
    kept = Store(store or folder / RESULTS)
    table = table_of(document.cases, kept.read([case.key for case in document.cases]), document.versions)
    return replace(table, unreadable=kept.warning)


def merge(folders: Sequence[Path], output: Path) -> int:
    """One sweep of all cases of `folders` with all their results, in `output`; how many results are there.

    `SweepError` when one network and target is two cases: made by different versions, or of different models.
    """
    documents = {folder: _read(folder) for folder in folders}
    cases: dict[tuple[str, str], tuple[CaseLabel, Path]] = {}
    for folder, document in documents.items():
        for case in document.cases:
            known, first = cases.setdefault((case.network, case.target), (case, folder))
            if known.key != case.key:
                differ = [f"{n} {documents[first].versions.get(n)} and {v}" for n, v in document.versions.items()
                          if documents[first].versions.get(n) != v]  # fmt: skip
                why = f"they were made with {', '.join(differ)}" if differ else "model, options or runs differ"
                raise SweepError(
                    f"{first} and {folder} have different cases for {case.network} on {case.target}: {why}; "
                    "merge parts of one sweep, and compare two with: sweep report NEW --against OLD"
                )
    made_with = {name: version for document in documents.values() for name, version in document.versions.items()}
    kept = Store(output / RESULTS)
    there = kept.read()
    for folder in folders:
        for key, result in sorted(Store(folder / RESULTS).read().items()):
            if there.get(key) != result:
                kept.add(result)
                there[key] = result
    kept.close()
    _write(output, made_with, [case for case, _ in cases.values()])
    return len(kept.read([case.key for case, _ in cases.values()], CaseLimits()))
