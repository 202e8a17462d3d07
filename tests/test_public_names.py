"""Names that the pages for users give stay importable: those pages are the list of them, nothing else is promised."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import npu_memplan

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
    """What the pages document (a list's "- `name`: ...") and what their Python imports."""
    found: dict[str, None] = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        found.update(dict.fromkeys(re.findall(rf"^- `((?:{'|'.join(PACKAGES)})\.[\w.]+)`: ", text, re.M)))
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


def first_sentence(thing: object) -> str:
    """Of a docstring, with a full stop."""
    text = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    return re.split(r"[.;](?= |$)", text)[0] + "."


def test_the_page_has_every_name_with_the_first_sentence_of_its_docstring() -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    said = dict(re.findall(r"^- `([\w.]+)`: (.*)$", text, re.M))
    assert set(dir(npu_memplan)) - {"__version__"} == {n.partition(".")[2] for n in said if n.count(".") == 1}
    assert said == {name: first_sentence(resolve(name)) for name in said}
