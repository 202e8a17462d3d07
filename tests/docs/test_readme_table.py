"""The bytes in the table of docs/reference.md, and all figures of README's, are those of a compile."""

from __future__ import annotations

import re

import pytest

from benchmarks.arena_bytes import COLUMNS
from npu_memplan.compiler import plan_model
from npu_memplan.options import CompileOptions
from tests.support.real_data import REPOSITORY, Models

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


README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
_CELL = r" ([\d,]+ B, [\d,]+) \|"
QUOTED = re.findall(rf"^\| (\w+[^|]*) \|{_CELL * 3}$", README, re.M)  # model; Vela, the default, in stripes


def test_readme_quotes_its_bytes() -> None:
    table = dict(rows())
    assert [(model, vela.split(" ")[0], least.split(" ")[0]) for model, vela, _, least in QUOTED] == [
        (model, table[model]["Vela 5.2"], table[model]["in stripes"]) for model, *_ in QUOTED
    ]
    assert len(QUOTED) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("model", "row"), rows(), ids=[model for model, _ in rows()])
def test_figures_are_those_of_a_compile(model: str, row: dict[str, str], real_network: Models) -> None:
    name = re.sub(r" .*", "", model)
    path = real_network(FILES.get(name, name))
    compiled = {column: plan_model(path, options).artifact for column, options in COLUMNS.items()}
    got = {column: sum(u.used_bytes for u in made.plan.usage) for column, made in compiled.items()}
    assert got == {column: int(row[column].replace(",", "")) for column in COLUMNS}
    for cells in (cells for quoted, *cells in QUOTED if quoted == model):
        default = plan_model(path, CompileOptions()).artifact
        assert default.timing is not None
        vela = f"{default.vela_arena_bytes['sram']:,} B, {sum(default.timing.vela_stream_bounds.values()):,}"
        ours = (f"{a.pool_bytes('sram'):,} B, {a.estimated_cycles:,}" for a in (default, compiled["in stripes"]))
        assert cells == [vela, *ours]
