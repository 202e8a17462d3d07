"""What explain says of a buffer's place is true of the plan, whatever the planner."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from npu_memplan.artifact import Artifact
from npu_memplan.options import CompileOptions
from npu_memplan.planners import plan
from npu_memplan.problem import Buffer, Lifetime, Pool, Problem
from npu_memplan.report.text.explain import explain_name

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
