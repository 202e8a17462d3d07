"""Reports of real models, from the compiler to the page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_memplan.artifact import Artifact
from npu_memplan.ethosu.stream.isa import Op, Register
from npu_memplan.options import CompileOptions
from npu_memplan.planners import PlanningError, plan
from npu_memplan.problem import Agent, Buffer, Lifetime, Pool, Problem
from npu_memplan.report.facts.memory import memory_view
from npu_memplan.report.facts.npu_work import npu_findings, npu_labels, stream_operations
from npu_memplan.report.text.explain import explain_name, explain_peak
from npu_memplan.report.text.memory_txt import memory_text
from tests.support.entry import invoke
from tests.support.real_data import Models

Compiled = Callable[..., tuple[Artifact, Path]]


def test_streams_and_points_belong_together(compiled: Compiled) -> None:
    artifact, folder = compiled("vww_96_int8")
    found = list(stream_operations(artifact, folder))
    assert len(found) == artifact.npu_operations
    points = [p for p, _ in found]
    assert points == sorted(set(points))
    npu = [c for c in artifact.calls if c.agent is Agent.NPU]
    assert all(any(c.points[0] <= p < c.points[1] for c in npu) for p in points)
    # every NPU operation writes a buffer that lives at its point: otherwise labels would be off by some
    low = {p.buffer: p.offset_bytes for p in artifact.plan.placements}
    for point, op in found:
        if op.op is Op.DMA_START and op[Register.DMA0_DST_REGION] == 1:
            target = op[Register.DMA0_DST]
            assert any(
                low[b.name] <= target < low[b.name] + b.size_bytes
                and any(t.first <= point < t.last for t in b.lifetimes)
                for b in artifact.problem.buffers
            )
    assert npu_labels(artifact, folder)[points[5]] == "convolution to 48x48x16"


def test_brick_padding_is_what_the_channels_say(compiled: Compiled) -> None:
    """vww's first two layers have 8 channels at 48x48: half of each 16-channel brick is lost."""
    artifact, folder = compiled("vww_96_int8")
    first, second = npu_findings(artifact, folder).paddings[:2]
    assert (first.channels, first.stored_channels) == (second.channels, second.stored_channels) == (8, 16)
    for padding in (first, second):
        assert padding.size_bytes - padding.lost_bytes == 48 * 48 * 8
    kinds = {c.what for c in npu_findings(artifact, folder).copies}
    assert "weights brought to RAM by DMA" in kinds


def test_explain_of_a_real_model_adds_up(compiled: Compiled) -> None:
    artifact, folder = compiled("vww_96_int8")
    peak = explain_peak(artifact, folder).pools[0]
    usage = artifact.plan.usage[0]
    assert peak.used_bytes == usage.used_bytes
    assert peak.live_bytes == memory_view(artifact.problem, artifact.plan).pools[0].curve.peak[1]
    assert peak.live_bytes <= sum(c.size_bytes for c in peak.contributors)
    assert not peak.contributors[0].idle
    assert (folder / "memory.txt").read_text(encoding="utf-8") == memory_text(artifact)


def test_too_small_a_pool_is_reported_in_full(shared_model: Models, tmp_path: Path) -> None:
    model = shared_model("vww_96_int8")
    result = invoke(
        "compile", model, "-o", tmp_path / "out", "--pool", "sram=64KiB", "--npu-compiler", "vela", code=None
    )
    error = result.exception
    assert isinstance(error, PlanningError)
    assert error.available_bytes == 65536
    assert error.excess_bytes == error.required_bytes - 65536 > 0
    lines = str(error).splitlines()
    assert lines[0] == "vww_96_int8 does not fit pool sram:"
    assert lines[1].startswith(f"  required   {error.required_bytes:,} bytes (")
    assert lines[2] == "  available  65,536 bytes (64.00 KiB)"
    assert lines[3].startswith(f"  excess     {error.excess_bytes:,} bytes (")
    assert lines[4].startswith(f"the peak is at point {error.point}, 0:")
    assert 2 <= len(error.largest) <= 5
    for name, size in error.largest:
        assert any(line.split()[0] == name and f"{size:,} bytes" in line for line in lines[5:10])
    assert "  (without --npu-compiler vela) " in str(error)
    assert list(tmp_path.iterdir()) == []  # nothing half-written


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), [("kws_ref_model", 12 << 10), ("pretrainedResnet_quant", 32 << 10)])
def test_a_small_pool_gets_a_plan_that_runs_bit_exactly(
    shared_model: Models, tmp_path: Path, name: str, size: int
) -> None:
    """Neither fits as Vela's stream: stripes and the host alone do."""
    from fvp_runner.base import RunOptions
    from fvp_runner.references.interpreters import Reference
    from fvp_runner.runner import create

    model, out = shared_model(name), tmp_path / "small"
    options = ("--pool", f"sram={size}", "--effort", "quick", "--no-check", "--json")
    result = invoke("compile", model, "-o", out, *options)
    answer = json.loads(result.stdout)
    assert answer["pools"][0]["used_bytes"] <= answer["pools"][0]["capacity_bytes"] == size
    ran = create("local", out, RunOptions(checks=True))
    (slot,) = Artifact.load(out).inputs
    data = np.random.default_rng(1).integers(-128, 128, slot.shape).astype(np.int8)
    (output,) = ran.run([data]).outputs
    np.testing.assert_array_equal(output, Reference(model.read_bytes()).run([data])[0])


# -- What explain says of a buffer's place is true of the plan, whatever the planner


ROWS = st.lists(
    st.tuples(st.integers(0, 8), st.integers(1, 5), st.integers(1, 200), st.sampled_from([1, 16, 32])),
    min_size=2,
    max_size=9,
)


def number(text: str) -> int:
    return int(text.replace(",", ""))


@settings(max_examples=60, deadline=None)
@given(ROWS, st.sampled_from(["first-fit", "linear", "greedy-by-conflicts"]))
def test_why_there(rows: list[tuple[int, int, int, int]], planner: str) -> None:
    buffers = tuple(Buffer(f"b{i}", size, (Lifetime(t, t + n),), align) for i, (t, n, size, align) in enumerate(rows))
    problem = Problem(buffers, (Pool("sram"),), name="random")
    answer = plan(problem, planner)
    artifact = Artifact("random", "random", "0" * 64, CompileOptions("none", "", ""), problem, answer, (1,), (), ())
    low = {p.buffer: p.offset_bytes for p in answer.placements}
    high = {b.name: low[b.name] + b.size_bytes for b in buffers}
    for b in buffers:
        facts = explain_name(artifact, b.name).facts
        below = [o for o in buffers if o is not b and o.meets(b) and high[o.name] <= low[b.name]]
        (reason,) = facts["why"][1:]
        if low[b.name] == 0:
            assert reason == "it lies at the bottom of the pool"
        elif not below:
            assert reason.startswith("nothing that lives at the same time lies below it")
        elif rest := re.match(
            r"it rests on (\w+) \[([\d,]+), ([\d,]+)\), which lives with it at points? (\d+)", reason
        ):
            other = problem.buffer(rest[1])
            assert (number(rest[2]), number(rest[3])) == (low[other.name], high[other.name])
            assert 0 <= low[b.name] - high[other.name] < b.alignment
            assert other.lifetimes[0].first <= int(rest[4]) < other.lifetimes[0].last
            assert b.lifetimes[0].first <= int(rest[4]) < b.lifetimes[0].last
        else:
            gap = re.match(r"([\d,]+) bytes below it are free while it lives; (\w+) ends at ([\d,]+)", reason)
            assert gap is not None, reason
            assert number(gap[3]) == high[gap[2]] == max(high[o.name] for o in below)
            assert number(gap[1]) == low[b.name] - high[gap[2]] > 0
        for line in facts["reuse"]:
            for name in re.findall(r"\bb\d+", line):
                other = problem.buffer(name)
                assert not other.meets(b)
                assert low[name] < high[b.name]
                assert low[b.name] < high[name]
