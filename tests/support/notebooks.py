"""Jupyter notebooks run cell by cell, as a kernel would, without Jupyter: what they print, and what they show."""

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
