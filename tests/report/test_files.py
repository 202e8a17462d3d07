"""The files beside report.html: each says what plan.json says."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from npu_memplan.artifact import Artifact
from npu_memplan.cli import cli
from npu_memplan.files.paths import OutputError, write_whole
from npu_memplan.report.files import buffers_csv, summary_csv, write_reports
from npu_memplan.report.page.html import html_report
from npu_memplan.verify import VerificationError
from tests.support.entry import invoke


def test_buffers_csv(small: Artifact) -> None:
    rows = list(csv.DictReader(io.StringIO(buffers_csv(small))))
    placed = {p.buffer: p for p in small.plan.placements}
    assert [r["name"] for r in rows] == [b.name for b in small.problem.buffers]
    for row, b in zip(rows, small.problem.buffers, strict=True):
        assert (row["pool"], int(row["offset_bytes"])) == (placed[b.name].pool, placed[b.name].offset_bytes)
        assert int(row["size_bytes"]) == b.size_bytes
        assert row["kind"] == b.kind.value
    assert rows[1]["lifetimes"] == "0-2 3-4"
    assert rows[1]["consumers"] == "0:net.1 0:net.3"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_is_a_formula(small: Artifact, start: str) -> None:
    name = f"{start}HYPERLINK(A1)"
    buffers = tuple(replace(b, name=name) if i == 0 else b for i, b in enumerate(small.problem.buffers))
    old = small.problem.buffers[0].name
    placements = tuple(replace(p, buffer=name) if p.buffer == old else p for p in small.plan.placements)
    odd = replace(
        small,
        name=name,
        problem=replace(small.problem, buffers=buffers),
        plan=replace(small.plan, placements=placements),
    )
    for text in (buffers_csv(odd), summary_csv(odd)):
        cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
        assert f"'{name}" in cells
        assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]


def test_a_plans_csv_keeps_its_names(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("id,lower,upper,size\n=1+1,0,2,64\n")
    invoke("plan", tmp_path / "p.csv", "-o", tmp_path / "q.csv")
    assert (tmp_path / "q.csv").read_text() == "id,lower,upper,size,offset\n=1+1,0,2,64,0\n"


def test_summary_csv_uses_velas_names_and_units(small: Artifact) -> None:
    (row,) = csv.DictReader(io.StringIO(summary_csv(small)))
    assert row["network"] == "small"
    assert row["accelerator_configuration"] == "Ethos_U55_128"
    assert float(row["sram_memory_used"]) == 13.0  # KiB, as in Vela's file
    assert row["sram_used_bytes"] == "13312"
    assert row["sram_capacity_bytes"] == "16384"
    assert row["dram_capacity_bytes"] == ""
    assert row["vela_sram_bytes"] == "14000"
    assert (row["estimated_cycles"], row["npu_macs"]) == ("2000", "73728")
    assert row["status"] == "feasible"


def test_no_name_can_leave_the_data_element(small: Artifact) -> None:
    import dataclasses

    page = html_report(dataclasses.replace(small, name="</script><script>alert(1)</script>"))
    assert "<script>alert" not in page
    assert page.count("</script>") == html_report(small).count("</script>")


def test_report_command_writes_all_files_and_nothing_else(small: Artifact, tmp_path: Path) -> None:
    small.save(tmp_path)
    result = invoke("report", tmp_path, "--json")
    files = json.loads(result.stdout)["files"]
    names = {"report.html", "memory.txt", "buffers.csv", "summary.csv", "trace.json"}
    assert {Path(p).name for p in files.values()} == names
    assert {p.name for p in tmp_path.iterdir()} == names | {"plan.json"}
    again = write_reports(small, tmp_path)
    assert again["html"].read_text(encoding="utf-8") == html_report(small)


def test_a_report_that_cannot_be_written_leaves_nothing(small: Artifact, tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    with pytest.raises(OutputError, match="cannot write"):
        write_whole(tmp_path / "report.html", b"x")
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_report_of_a_problem_and_its_plan(tmp_path: Path) -> None:
    (tmp_path / "chain.csv").write_text("id,lower,upper,size\na,0,2,64\nb,1,3,32\n", encoding="utf-8")
    problem, plan = str(tmp_path / "chain.csv"), str(tmp_path / "plan.csv")
    run = CliRunner().invoke
    assert run(cli, ["plan", problem, "-o", plan]).exit_code == 0
    result = run(cli, ["report", problem, "--plan", plan, "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    (tmp_path / "plan.csv").write_text("id,offset\na,0\nb,16\n", encoding="utf-8")
    broken = run(cli, ["report", problem, "--plan", plan, "-o", str(tmp_path / "out2")])
    assert isinstance(broken.exception, VerificationError)
    assert not (tmp_path / "out2").exists()
    assert "--plan PLAN" in str(run(cli, ["report", problem]).exception)
