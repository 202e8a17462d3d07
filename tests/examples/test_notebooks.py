"""The notebooks of examples/ run from the first cell to the last and give the outputs that they are kept with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.notebooks import executed, write

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    assert {path.stem for path in NOTEBOOKS} == {"planner", "relax", "exploration"}


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_what_the_cells_give(
    path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FOLDER)
    text = path.read_text(encoding="utf-8")
    made = executed(text)
    assert any(cell.get("outputs") for cell in made["cells"])
    if request.config.getoption("--update-golden"):
        write(path, made)
        return
    assert made == json.loads(text), f"{path.name}: run pytest --update-golden and look at the difference"


def test_an_output_that_differs_would_be_found() -> None:
    cell = {"cell_type": "code", "source": ["x = 2\n", "print(x)\n", "x + 1"], "outputs": [], "execution_count": None}
    (made,) = executed(json.dumps({"cells": [cell]}))["cells"]
    printed, value = made["outputs"]
    assert (printed["text"], value["data"]["text/plain"], made["execution_count"]) == (["2\n"], ["3"], 1)
    wrong = {**cell, "source": ["1 / 0"]}
    with pytest.raises(ZeroDivisionError):
        executed(json.dumps({"cells": [wrong]}))
