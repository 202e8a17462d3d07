"""Problems that are right but odd: nothing in them, markup in their names, time that is long, early or empty."""

from __future__ import annotations

from pathlib import Path

import pytest

from npu_memplan.artifact.files import read_problem, write_plan
from npu_memplan.commands.report import bare_artifact
from npu_memplan.planners import plan
from npu_memplan.report.files import write_reports

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
    written = write_reports(artifact, tmp_path, png=True)
    assert sum(file.stat().st_size for file in written.values()) < 200_000
    assert ("[/nope]" in written["table"].read_text()) == (name == "markup.csv")
    assert artifact.notes == (("point 0 here is point -7 of the problem",) if name == "early.csv" else ())
