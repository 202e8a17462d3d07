"""Values that no compile wrote are refused when plan.json is read, whatever command reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.artifact.files import read_problem, write_plan
from npu_memplan.artifact.model import ArtifactError
from npu_memplan.commands.report import bare_artifact
from npu_memplan.compiler import compile_model
from npu_memplan.options import CompileOptions
from npu_memplan.planners import plan
from npu_memplan.report.files import write_reports
from npu_memplan.report.page.html import html_report

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiled model."""
    out = tmp_path_factory.mktemp("plan") / "out"
    compile_model(EXAMPLE, CompileOptions(effort="quick"), out)
    return out


@pytest.fixture(scope="module")
def document(folder: Path) -> str:
    """plan.json of a compiled model, as text."""
    return (folder / "plan.json").read_text(encoding="utf-8")


def slot(**values: object) -> Callable[[Any], None]:
    return lambda d: d["inputs"][0].update(values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda d: d.update(schema="x/1"),
            "the document has schema 'x/1'; this version reads 'npu_memplan.artifact/1'",
        ),
        (lambda d: d.pop("buffers"), "object missing required field `buffers`"),
        (lambda d: d["calls"][0].update(points=[]), r"calls\[0\].points is \[\]: expected `array` of length 2"),
        (lambda d: d["calls"][0].update(points=[9, 2]), "lasts from point 9 to 2"),
        (lambda d: d["points"].pop(3), r"call '\w+' lasts to point \d+; there are \d+"),
        (lambda d: d["buffers"][0].update(offset_bytes="x"), r"buffers\[0\].offset_bytes is 'x': expected `int`"),
        (lambda d: d["buffers"][0].update(offset_bytes=-16), r"buffers\[0\].offset_bytes is -16: expected `int` >= 0"),
        (lambda d: d["buffers"][0].update(pool="nope"), "lies in pool 'nope'; there are: sram"),
        (lambda d: d["buffers"][0].update(pool=["sram"]), r"buffers\[0\].pool is \['sram'\]: expected `str`"),
        (lambda d: d["buffers"][0].update(alignment=0), r"alignment is 0: expected `int` >= 1"),
        (lambda d: d["pools"][0].update(alignment=(1 << 60) - 1), r"alignment 1152921504606846975; at most 65536"),
        (lambda d: d["pools"][0].update(region=300), r"pools\[0\].region is 300: expected `int` <= 7"),
        (
            lambda d: d.update(status="best"),
            "status is 'best': invalid enum value 'best'; give one of 'feasible', 'opt",
        ),
        (slot(dtype="int8\n"), r"the text 'int8\\n' has characters that a terminal obeys or hides"),
        (slot(dtype="object"), r"inputs\[0\].dtype is 'object': expected `str` matching"),
        (slot(shape=[1, 10**9, 5]), r"has 256 bytes, int8\[1, 1000000000, 5\] needs 5000000000"),
        (slot(shape=[1, -1]), r"inputs\[0\].shape\[1\] is -1: expected `int` >= 0"),
        (slot(pool="nope"), "pool 'nope', of which the plan uses nothing"),
        (slot(offset_bytes=1 << 40), r"lies at bytes \[1099511627776, 1099511628032\) of pool 'sram', of which"),
        (slot(zero_point=1 << 40), "zero_point is 1099511627776: expected `int` <= 2147483647"),
        (slot(scale=None), r"inputs\[0\].scale is None: expected `float`, got `null`"),
    ],
)
def test_a_value_is_named_with_its_place(document: str, change: Callable[[Any], None], message: str) -> None:
    damaged = json.loads(document)
    change(damaged)
    with pytest.raises(ArtifactError, match=message):
        Artifact.from_json(json.dumps(damaged))


@pytest.mark.parametrize(
    "value", ["NaN", "-Infinity", "9" * 5000, '"\\ud800"', "[" * 200_000, "[" * 200_000 + "]" * 200_000, "1e999"]
)
def test_what_json_cannot_hold(document: str, value: str) -> None:
    with pytest.raises(ArtifactError, match=r"plan.json: (not JSON|seed is|the document)"):
        Artifact.from_json(document.replace('"seed": 0', f'"seed": {value}'))


def test_a_call_with_fewer_points_than_its_stream_has_operations(folder: Path, document: str) -> None:
    damaged = json.loads(document)
    first, last = damaged["calls"][0]["points"]
    damaged["calls"][0]["points"] = [first, last - 1]
    with pytest.raises(
        ArtifactError, match=rf"has {last - first} operations, and its call in plan.json has {last - first - 1} points"
    ):
        html_report(Artifact.from_json(json.dumps(damaged)), folder)


# -- Problems that are right but odd: nothing in them, markup in their names, time that is long, early or empty


HEADER = "id,lower,upper,size\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no_buffer.csv", HEADER),
        ("no_pool.json", '{"schema": "npu_memplan.problem/1", "pools": [], "buffers": []}'),
        ("long.csv", HEADER + "a,0,200000000,100\nb,5,199999999,50\n"),
        ("early.csv", HEADER + "a,-7,3,100\nb,1,4,50\n"),
        ("markup.csv", HEADER + "[/nope],0,2,100\n[bold]x,1,3,4\n</script>&,2,3,4\n=1+1,0,1,1\n"),
        ("nothing.csv", HEADER + "a,0,9,0\n"),
        ("large.csv", HEADER + f"a,0,9,{(1 << 60) - 1}\nb,{(1 << 60) - 9},{(1 << 60) - 1},5\n"),
    ],
)
def test_it_is_planned_and_reported(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    problem = read_problem(path)
    write_plan(tmp_path / "plan.json", problem, plan(problem))
    artifact = bare_artifact(path, tmp_path / "plan.json")
    written = write_reports(artifact, tmp_path)
    assert sum(file.stat().st_size for file in written.values()) < 200_000
    assert ("[/nope]" in written["table"].read_text()) == (name == "markup.csv")
    assert artifact.notes == (("point 0 here is point -7 of the problem",) if name == "early.csv" else ())
