"""The published schemas are those that files are read with. `--update-golden` writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

import npu_memplan
from npu_memplan.artifact.json import Document
from npu_memplan.artifact.parts import SCHEMA
from npu_memplan.files.schema import published
from npu_memplan.problem import Plan, Problem
from npu_memplan.problem.json import PLAN_SCHEMA, PROBLEM_SCHEMA
from npu_memplan.target_data import BoardFile

FOLDER = Path(npu_memplan.__file__).parent / "schemas"


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
