"""Every fallback is told, and stands in the list of docs/reference.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.compiled import library
from npu_memplan.process.incidents import Fallback

REPOSITORY = Path(__file__).resolve().parents[2]
MODEL = REPOSITORY / "tests" / "models" / "hello_world_int8.tflite"


def fallbacks_in(folder: Path) -> list[str]:
    """The first argument of every call of `fall_back`, as it is written."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py"))]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [ast.unparse(c.args[0]) for c in calls if ast.unparse(c.func).split(".")[-1] == "fall_back"]


def test_the_list_of_the_reference_is_that_of_the_code() -> None:
    text = (REPOSITORY / "docs" / "reference.md").read_text(encoding="utf-8")
    section = text.partition("\n### Fallbacks\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert listed == [kind.value for kind in Fallback]
    found = [*fallbacks_in(REPOSITORY / "npu_memplan"), *fallbacks_in(REPOSITORY / "fvp_runner")]
    assert set(found) == {f"Fallback.{kind.name}" for kind in Fallback}


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(library, "compiler_command", lambda: None)
    library.c_library.cache_clear()
    yield
    library.c_library.cache_clear()


def test_searches_in_python_are_reported(no_compiler: None, cli: Callable[..., Any], tmp_path: Path) -> None:
    made = cli.ok("compile", MODEL, "--accelerator", "none", "-q", "-o", tmp_path / "made", "--planner", "optimal")
    (line,) = made.err.splitlines()
    assert line.startswith("npu-memplan: the compiled searches are not available: ")


def test_a_time_limit_ends_the_comparison_of_programs(cli: Callable[..., Any], tmp_path: Path) -> None:
    made = cli.ok("compile", MODEL, "--pool", "sram=16KiB", "--effort", "1e-6", "-q", "-o", tmp_path / "made")
    line = "--effort ended the search for the fastest program: the best so far was taken"
    assert made.err == f"npu-memplan: {line}\n"
    assert line in Artifact.load(tmp_path / "made").notes
