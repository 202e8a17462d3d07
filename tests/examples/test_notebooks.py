"""The notebooks of examples/ run from the first cell to the last and give the outputs that they are kept with."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import linecache
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def executed(text: str) -> dict[str, Any]:
    """The notebook with the outputs of its cells; an exception of a cell is raised."""
    notebook: dict[str, Any] = json.loads(text)
    module = ModuleType("notebook")
    sys.modules[module.__name__] = module  # where classes look for their source
    count = 0
    try:
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                count += 1
                cell["execution_count"], cell["outputs"] = count, _outputs("".join(cell["source"]), module, count)
    finally:
        del sys.modules[module.__name__]
    return notebook


def _outputs(source: str, module: ModuleType, count: int) -> list[dict[str, Any]]:
    body, file = ast.parse(source).body, f"<cell {count}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)  # for what reads its own source
    module.__file__, names = file, module.__dict__
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), file, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), file, "eval"), names)
    found: list[dict[str, Any]] = []
    if printed.getvalue():
        found.append({"name": "stdout", "output_type": "stream", "text": printed.getvalue().splitlines(keepends=True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_svg_"):
            data = {"image/svg+xml": value._repr_svg_().splitlines(keepends=True), "text/plain": ["<picture>"]}
        found.append({"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    return found


def write(path: Path, notebook: dict[str, Any]) -> None:
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


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
