"""Tables, map, explain and diff, word by word."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

import npu_memplan
from npu_memplan.artifact import Artifact
from npu_memplan.cli import cli
from npu_memplan.knobs import SECOND_MEMORY, useful_knobs
from npu_memplan.options import CompileOptions
from npu_memplan.planners import PlanningError, plan
from npu_memplan.problem import Agent, Placement, PoolUsage
from npu_memplan.report.facts.dearest import dearest_lines, operator_times
from npu_memplan.report.facts.memory import memory_view
from npu_memplan.report.text.compile_result import does_not_fit
from npu_memplan.report.text.diff import compare_plans
from npu_memplan.report.text.explain import ExplainError, explain_name, explain_peak
from npu_memplan.report.text.memory_txt import ascii_map, memory_text, print_memory
from tests.support.entry import invoke
from tests.support.real_data import REPOSITORY

Golden = Callable[[str, str], None]


@pytest.fixture
def built(small: Artifact, tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    small.save(folder)
    return folder


def test_memory_txt(small: Artifact, golden: Golden) -> None:
    text = memory_text(small)
    assert max(map(len, text.splitlines())) <= 80
    golden("report/memory.txt", text)


def test_long_names_take_no_figure_out_of_memory_txt(built: Path) -> None:
    plan = built / "plan.json"
    plan.write_text(plan.read_text(encoding="utf-8").replace('"image"', f'"{"image_" * 12}"'), encoding="utf-8")
    rows = memory_text(Artifact.load(built)).partition("Peak of")[2].splitlines()
    assert rows[1].split() == ["buffer", "kind", "bytes", "KiB", "offset"]
    assert all(re.search(r" [\d,]+ +\d+\.\d\d +[\d,]+$", row) for row in rows[3 : rows.index("")])


def test_map_is_ascii_and_fits(small: Artifact) -> None:
    view = memory_view(small.problem, small.plan)
    for width in (40, 80):
        lines = ascii_map(small.problem, view, view.pool("sram"), width)
        assert max(map(len, lines)) <= width
        assert all(line.isascii() for line in lines)
    rows = ascii_map(small.problem, view, view.pool("sram"), 80, rows=13)
    # 13 rows of 1 KiB and 7 points of 9 columns: the lowest row is image, image, -, -, pool, pool/view, view
    lowest = rows[12].split("|")[1]
    assert lowest == "I" * 18 + "." * 18 + "T" * 27
    assert rows[8].split("|")[1] == "w" * 18 + "." * 9 + "w" * 9 + "." * 27


def test_colour_only_where_it_is_wanted(small: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    sink = io.StringIO()
    print_memory(small, Console(file=sink, force_terminal=True, color_system="truecolor", width=80))
    assert "\x1b[" in sink.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    sink = io.StringIO()
    print_memory(small, Console(file=sink, force_terminal=True, color_system="truecolor", width=80))
    assert "\x1b[38" not in sink.getvalue()  # no colours; bold is not a colour
    sink = io.StringIO()
    print_memory(small, Console(file=sink))
    assert "\x1b" not in sink.getvalue()


def test_explain_peak(small: Artifact, golden: Golden) -> None:
    golden("report/explain_peak.txt", explain_peak(small).to_text())


@pytest.mark.parametrize(
    "name", ["image", "weights", "conv", "relu", "view", "scores", "archive", "net", "softmax", "conv_out", "topk"]
)
def test_explain_name(small: Artifact, golden: Golden, name: str) -> None:
    golden(f"report/explain_{name}.txt", explain_name(small, name).to_text())


def test_explain_unknown_name(small: Artifact) -> None:
    with pytest.raises(ExplainError) as error:
        explain_name(small, "weihgts")
    assert str(error.value) == (
        "small has no buffer, operator or call named 'weihgts'; close: weights; "
        "all names are in buffers.csv and in report.html (npu-memplan report)"
    )


def test_explain_says_what_a_gap_costs(small: Artifact) -> None:
    moved = tuple(Placement("scratch", "sram", 14336) if p.buffer == "scratch" else p for p in small.plan.placements)
    usage = (PoolUsage("sram", 14848, 13312), small.plan.usage[1])
    worse = dataclasses.replace(small, plan=dataclasses.replace(small.plan, placements=moved, usage=usage))
    text = explain_peak(worse).to_text()
    assert "The proven bound is 13,312 bytes (13.00 KiB): the plan is 1,536 bytes (11.5 %) above it." in text
    assert "1,536 bytes (1.50 KiB): a better placement of the same buffers" in text
    scratch = explain_name(worse, "scratch").to_text()
    assert "10,230 bytes below it are free while it lives; scores ends at 4,106" in scratch


def test_copies_that_no_operator_asked_for_are_listed(small: Artifact) -> None:
    call = dataclasses.replace(small.calls[1], function="transpose_1")
    text = explain_peak(dataclasses.replace(small, calls=(small.calls[0], call))).to_text()
    assert "Copies that the model did not ask for:\n  1 x  host call transpose  10 bytes\n" in text
    assert "did not ask for" not in explain_peak(small).to_text()


def test_operators_answer_to_kind_and_number_and_to_a_part(small: Artifact) -> None:
    again = dataclasses.replace(small.operators[0], name="second_conv")
    more = dataclasses.replace(small, operators=(*small.operators, again))
    assert explain_name(more, "conv_2d_1").to_text().splitlines()[1] == "makes      second_conv"
    assert explain_name(more, "conv2d_1").name == explain_name(more, "CONV_2D_1").name == "second_conv"
    assert explain_name(more, "SECOND").name == "second_conv"
    with pytest.raises(ExplainError, match="close: conv, conv_out, second_conv, conv_2d, conv_2d_1"):
        explain_name(more, "con")


def test_diff(small: Artifact, golden: Golden) -> None:
    assert compare_plans(small, small).to_text() == "small -> small\nThe plans are the same.\n"
    buffers = tuple(
        dataclasses.replace(b, size_bytes=4096) if b.name == "conv" else b
        for b in small.problem.buffers
        if b.name != "scratch"
    )
    placements = tuple(
        dataclasses.replace(p, offset_bytes=2048) if p.buffer == "scores" else p
        for p in small.plan.placements
        if p.buffer != "scratch"
    )
    other = dataclasses.replace(
        small,
        name="smaller",
        target=dataclasses.replace(
            small.target, optimise="Size", arena_cache_size_bytes=8192, host_ops=("SOFTMAX", "TOPK_V2")
        ),
        problem=dataclasses.replace(small.problem, buffers=buffers),
        plan=dataclasses.replace(
            small.plan, placements=placements, usage=(PoolUsage("sram", 13312 - 4096, 9216), small.plan.usage[1])
        ),
        stream_bytes=700,
    )
    golden("report/diff.txt", compare_plans(small, other).to_text())
    assert not compare_plans(small, other).is_same


def test_commands_print_the_same_as_json(built: Path, small: Artifact) -> None:
    run = CliRunner().invoke
    text = run(cli, ["explain", str(built)])
    assert text.exit_code == 0
    assert text.output.startswith(f"{explain_peak(small).to_text()}\nMap of sram\n")
    assert "Map of dram\n" in text.output
    peak = json.loads(run(cli, ["explain", str(built), "--json"]).output)
    assert peak["pools"][0]["live_bytes"] == 13312
    assert [c["buffer"] for c in peak["pools"][0]["contributors"]] == ["conv", "image", "weights"]
    one = json.loads(run(cli, ["explain", str(built), "relu", "--json"]).output)
    assert (one["what"], one["offset_bytes"], one["lifetimes"]) == ("buffer", 5120, [[3, 5]])
    same = run(cli, ["diff", str(built), str(built), "--exit-code"])
    assert same.exit_code == 0
    assert json.loads(run(cli, ["diff", str(built), str(built), "--json"]).output)["same"] is True
    table = run(cli, ["report", str(built), "--table"])
    assert table.output.split() == memory_text(small).split()


def test_diff_can_fail_a_build(built: Path, small: Artifact, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    dataclasses.replace(small, stream_bytes=1).save(other)
    invoke("diff", built, other)
    invoke("diff", built, other, "--exit-code", code=1)


def test_an_absent_artifact_is_a_user_error(tmp_path: Path) -> None:
    result = invoke("explain", tmp_path / "none", code=None)
    assert "is no compiled model" in str(result.exception)
    assert "npu-memplan compile MODEL.tflite" in str(result.exception)


# -- Which operators take the time: every cycle of the estimate is an operator's, on the NPU or on the CPU


MODEL = REPOSITORY / "examples" / "digits" / "digits.tflite"


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network with one operator left to the CPU."""
    folder = tmp_path_factory.mktemp("mixed") / "out"
    npu_memplan.compile(MODEL, folder, effort="quick", host_ops="SOFTMAX", board="alif-e7-hp")
    return folder


def test_the_rows_are_the_estimate(mixed: Path) -> None:
    artifact = Artifact.load(mixed)
    times = operator_times(artifact)
    assert sum(row.cycles for row in times if row.agent is Agent.NPU) == artifact.estimated_cycles
    assert sum(row.cycles for row in times if row.agent is Agent.HOST) == artifact.host_cycles
    assert sum(row.share for row in times) == pytest.approx(1)
    assert [row.share for row in times] == sorted((row.share for row in times), reverse=True)


def test_cycles_of_the_cpu_count_by_its_own_clock(mixed: Path) -> None:
    artifact = Artifact.load(mixed)
    assert artifact.timing is not None
    host = next(row for row in operator_times(artifact) if row.agent is Agent.HOST)
    npu_s, host_s = (artifact.estimated_cycles or 0) / artifact.timing.clock_hz, host.cycles / artifact.host_clock_hz
    assert host.share == pytest.approx(host_s / (npu_s + host_s))
    slower = replace(artifact, timing=replace(artifact.timing, clock_hz=artifact.timing.clock_hz / 4))
    later = next(row for row in operator_times(slower) if row.agent is Agent.HOST)
    assert later.share < host.share


def test_the_table_names_what_explain_knows(mixed: Path) -> None:
    artifact = Artifact.load(mixed)
    heading, *rows = dearest_lines(artifact)
    assert heading.split() == ["operator", "on", "cycles", "share"]
    name = rows[0].split()[0]
    said = invoke("explain", mixed, name, code=None).output
    assert f"about {operator_times(artifact)[0].cycles:,} cycles" in said
    assert "\n".join(rows) in invoke("explain", mixed, code=None).output
    assert "\n".join(rows) in (mixed / "memory.txt").read_text(encoding="utf-8")


def test_an_artifact_without_times_has_no_table(mixed: Path) -> None:
    assert dearest_lines(replace(Artifact.load(mixed), layers=(), host_layers=())) == []


# -- The message of a model that does not fit, word by word, and the options that it and `explain` name


def test_message_has_the_numbers_the_peak_and_the_next_step(
    small: Artifact, golden: Callable[[str, str], None]
) -> None:
    sram = dataclasses.replace(small.problem.pools[0], size_bytes=12288)
    buffers = tuple(dataclasses.replace(b, pools=("sram",)) for b in small.problem.buffers if b.name != "archive")
    problem = dataclasses.replace(small.problem, pools=(sram,), buffers=buffers)
    with pytest.raises(PlanningError) as caught:
        plan(problem)
    error = does_not_fit(caught.value, problem, "models/small.tflite", small.target)
    assert (error.required_bytes, error.available_bytes, error.excess_bytes) == (13312, 12288, 1024)
    assert error.point == 1
    golden("report/no_room.txt", str(error) + "\n")


def test_an_unproven_requirement_is_not_sold_as_one(small: Artifact) -> None:
    error = PlanningError(
        "", pool="sram", required_bytes=300, available_bytes=200, largest=(("conv", 250),), source="by first fit"
    )
    alone = dataclasses.replace(small.target, npu_compiler="vela")
    text = str(does_not_fit(error, small.problem, "a.tflite", alone))
    assert "required   300 bytes (0.29 KiB) (by first fit; a smaller plan is not excluded)" in text
    assert "--planner optimal  " in text
    assert "\n  --effort SECONDS, for a longer search" in text


def test_explain_and_the_error_name_the_same_options(small: Artifact) -> None:
    budget = 12288
    requested = dataclasses.replace(small.target, npu_compiler="vela")
    able = useful_knobs(requested, budget, "small.tflite", searched=False)
    named = [knob.flag_text(requested, budget) for knob in able]
    assert named == [
        "--objective bytes (without --npu-compiler vela)",
        "--planner optimal",
        "--npu-compiler vela,arena=12288",
        "--npu-compiler vela,arena=9216",
        "--npu-compiler vela,Size",
        "--npu-compiler tvm",
        "--npu-compiler tvm --stripes",
        "--accelerator none",
    ]
    error = PlanningError("", pool="sram", required_bytes=20000, available_bytes=budget)
    text = str(does_not_fit(error, small.problem, "small.tflite", requested))
    assert [flags for flags in named if f"\n  {flags}  " in text] == named
    (peak, *_) = explain_peak(dataclasses.replace(small, target=requested)).pools
    assert {"--npu-compiler tvm --stripes", "--accelerator none"} <= {flags for flags, _ in peak.knobs}
    assert [peak for peak in explain_peak(dataclasses.replace(small, operators=())).pools if peak.knobs] == []


def test_a_compile_of_all_backends_names_none_of_them(small: Artifact) -> None:
    error = PlanningError(
        "", pool="sram", required_bytes=300, available_bytes=200, by_backend=(("one", 300), ("another", 1400))
    )
    text = str(does_not_fit(error, small.problem, "a.tflite", small.target))
    assert "\nwhat a program of each backend needs:\n  one        300 bytes  (0.29 KiB)\n" in text
    assert "\n  another  1,400 bytes  (1.37 KiB)\n" in text
    assert not any(flags in text for flags in ("--npu-compiler", "--accelerator", "--stripes"))
    assert "--planner" not in text
    assert "\n  --effort max, for a longer search" in text
    hardest = dataclasses.replace(small.target, effort="max")
    assert "--effort" not in str(does_not_fit(error, small.problem, "a.tflite", hardest))
    (peak, *_) = explain_peak(small).pools
    assert peak.knobs[0] == ("--pool sram=SIZE", "the fewest cycles that fit")
    (peak, *_) = explain_peak(dataclasses.replace(small, npu_operations=0)).pools
    assert [flags for flags, _ in peak.knobs[1:]] == ["--objective bytes"], "nothing of the NPU's helps the CPU"


@pytest.mark.parametrize(
    ("options", "source", "absent"),
    [
        (CompileOptions(npu_compiler="tvm"), "m.onnx", "vela"),
        (CompileOptions("none", objective="bytes"), "m.tflite", "--"),
        (CompileOptions("none", pools={"sram": 64}), "m.tflite", "--"),  # which tries it itself
    ],
)
def test_what_cannot_be_is_not_named(options: CompileOptions, source: str, absent: str) -> None:
    options = options.resolve_defaults()
    able = useful_knobs(options, 4096, source, searched=True)
    assert not any(absent in knob.flag_text(options, 4096) for knob in able)


def test_a_second_memory_is_named_where_the_system_has_one() -> None:
    shared = CompileOptions("ethos-u65-256", memory_mode="Shared_Sram").resolve_defaults()
    assert SECOND_MEMORY in useful_knobs(shared, 64, "m.tflite", searched=True)
    assert SECOND_MEMORY not in useful_knobs(CompileOptions().resolve_defaults(), 64, "m.tflite", searched=True)
