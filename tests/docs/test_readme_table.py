"""The bytes in the table of docs/reference.md are those of a compile, column by column; README quotes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.arena_bytes import COLUMNS
from npu_memplan.compiler import plan_model
from tests.support.real_data import REPOSITORY

FILES = {"mobilenet_v2": "mobilenet_v2_pt2tflite_int8"}


def rows() -> list[tuple[str, dict[str, str]]]:
    """(model, column -> text) of the table in docs/reference.md."""
    lines = (REPOSITORY / "docs" / "reference.md").read_text(encoding="utf-8").splitlines()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    start = next(i for i, row in enumerate(cells) if row[0] == "model" and "Vela 5.2" in row)
    found = []
    for row in cells[start + 2 :]:
        if len(row) != len(cells[start]):
            break
        found.append((row[0], dict(zip(cells[start], row, strict=True))))
    return found


def test_the_table_is_found() -> None:
    assert len(rows()) >= 9
    assert all(set(COLUMNS) < set(row) for _, row in rows())


def test_readme_quotes_its_bytes() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    table = dict(rows())
    quoted = re.findall(r"^\| (\w+[^|]*) \| ([\d,]+) B, .* \| ([\d,]+) B, [\d,]+ \|$", readme, re.M)
    assert [(model, vela, least) for model, vela, least in quoted] == [
        (model, table[model]["Vela 5.2"], table[model]["in stripes"]) for model, _, _ in quoted
    ]
    assert len(quoted) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("model", "row"), rows(), ids=[model for model, _ in rows()])
def test_its_bytes_are_those_of_a_compile(model: str, row: dict[str, str], shared_model: Callable[[str], Path]) -> None:
    name = re.sub(r" .*", "", model)
    path = shared_model(FILES.get(name, name))
    got = {c: sum(u.used_bytes for u in plan_model(path, o).artifact.plan.usage) for c, o in COLUMNS.items()}
    assert got == {column: int(row[column].replace(",", "")) for column in COLUMNS}
