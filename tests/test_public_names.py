"""Names that the pages for users give stay importable: those pages are the list of them, nothing else is promised."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = [
    *(DOCS / name for name in ("api.md", "relax.md", "executorch.md", "onnx-pytorch.md", "planners.md")),
    *sorted((DOCS / "howto").glob("*.md")),
]
PACKAGES = ("npu_memplan", "fvp_runner")


def imported_names(code: str) -> Iterator[str]:
    """`package.module.name` of every import of ours in `code`."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in PACKAGES)


def public_names() -> list[str]:
    """What the pages document (`::: name`) and what their Python imports."""
    found: dict[str, None] = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        found.update(dict.fromkeys(re.findall(r"^::: (\S+)", text, re.M)))
        for code in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S):
            found.update(dict.fromkeys(imported_names(code)))
    return sorted(found)


def resolve(name: str) -> object:
    """The object that a dotted name stands for: a module, or what is in one."""
    home, _, last = name.rpartition(".")
    if not home:
        return importlib.import_module(name)
    return getattr(importlib.import_module(home), last, None) or importlib.import_module(name)


def test_the_pages_give_names() -> None:
    assert {"npu_memplan.compile", "npu_memplan.relax.lower_for_ethosu", "npu_memplan.planners.plan"} <= set(
        public_names()
    )


@pytest.mark.parametrize("name", public_names())
def test_a_name_of_the_pages_can_be_imported(name: str) -> None:
    if "executorch_lowering" in name:
        pytest.importorskip("executorch.exir")
    assert resolve(name) is not None
