"""The published schemas are those that files are read with. `--update-golden` writes them."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

import npu_memplan
from npu_memplan.artifact.json import Document
from npu_memplan.artifact.parts import SCHEMA
from npu_memplan.problem import Plan, Problem
from npu_memplan.problem.json import PLAN_SCHEMA, PROBLEM_SCHEMA
from npu_memplan.target_data import BoardFile

FOLDER = Path(npu_memplan.__file__).parent / "schemas"


def published(kind: type, name: str = "") -> str:
    """The JSON Schema of documents (with `"schema": name`, where there is one) that hold a `kind`, as text."""
    (top,), definitions = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    top = definitions.pop(top["$ref"].rpartition("/")[2])
    for node in [top, *definitions.values()]:
        for field in node.get("properties", {}).values():
            if field.get("uniqueItems") and "default" in field:
                field["default"].sort()  # of a set, which has no order
    if name:
        top["properties"] = {"schema": {"const": name}, **top["properties"]}
        top["required"] = ["schema", *top["required"]]
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **top, "$defs": definitions}
    return json.dumps(document, indent=1) + "\n"


@pytest.mark.parametrize(
    ("file", "kind", "name"),
    [
        ("problem.json", Problem, PROBLEM_SCHEMA),
        ("plan.json", Plan, PLAN_SCHEMA),
        ("artifact.json", Document, SCHEMA),
        ("board.json", BoardFile, ""),
    ],
)
def test_the_published_schema_is_the_one_that_files_are_held_to(
    file: str, kind: type, name: str, request: pytest.FixtureRequest
) -> None:
    text = published(kind, name)
    if request.config.getoption("--update-golden"):
        (FOLDER / file).write_text(text, encoding="utf-8")
    assert (FOLDER / file).read_text(encoding="utf-8") == text


def test_there_is_no_schema_that_nothing_reads() -> None:
    assert sorted(p.name for p in FOLDER.iterdir()) == ["artifact.json", "board.json", "plan.json", "problem.json"]
