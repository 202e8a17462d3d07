"""A plan that is broken on purpose: verify must fail, and with verification off the run must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fvp_runner.base import RunCheckError, RunOptions
from fvp_runner.host import runner as host
from fvp_runner.npu_model.errors import NpuModelError
from fvp_runner.references.interpreters import Reference
from npu_memplan.errors import NpuMemplanError
from npu_memplan.options import CompileOptions
from npu_memplan.pipeline import build, extract_problem, lower, plan, read
from npu_memplan.problem import Buffer, Plan, Problem
from npu_memplan.report.files import write_artifact
from npu_memplan.request import request
from npu_memplan.stages import Planned
from npu_memplan.verify import VerificationError, check, verify

MODEL = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"
OPTIONS = CompileOptions(host_ops=("FULLY_CONNECTED", "SOFTMAX"), objective="bytes", effort="quick")


@pytest.fixture(scope="module")
def planned() -> Planned:
    return plan(extract_problem(lower(read(MODEL, request(OPTIONS)))))


def on_top(problem: Problem, plan: Plan, first: Buffer, second: Buffer) -> Plan:
    """`plan` with `second` moved onto `first`."""
    at = plan.placement(first.name)
    moved = tuple(replace(p, offset_bytes=at.offset_bytes) if p.buffer == second.name else p for p in plan.placements)
    heights = max(p.offset_bytes + problem.buffer(p.buffer).size_bytes for p in moved)
    return replace(plan, placements=moved, usage=tuple(replace(u, used_bytes=heights) for u in plan.usage))


def clashing_pairs(problem: Problem) -> list[tuple[Buffer, Buffer]]:
    """Pairs that are live together and must not start at one offset."""
    fine = {frozenset((o.first, o.second)) for o in problem.overlaps if o.permits(0)}
    return [
        (a, b)
        for i, a in enumerate(problem.buffers)
        for b in problem.buffers[i + 1 :]
        if a.meets(b) and frozenset((a.name, b.name)) not in fine
    ]


def notices(planned: Planned, folder: Path) -> bool:
    """Whether a run of the plan gives other outputs than the reference, or its checks complain."""
    folder.mkdir()
    write_artifact(build(planned), folder)
    runner = host.create(folder, RunOptions(verify=False))
    reference = Reference(MODEL.read_bytes())
    samples = np.load(MODEL.parent / "samples.npz")["images"]
    for image in samples[:3, None]:
        try:
            outputs = runner.run([image]).outputs
        except (NpuModelError, RunCheckError):
            return True
        if any(not np.array_equal(a, b) for a, b in zip(outputs, reference.run([image]), strict=True)):
            return True
    return False


def test_the_right_plan_passes(planned: Planned, tmp_path: Path) -> None:
    assert verify(planned.extracted.problem, planned.plan) == ()
    assert not notices(planned, tmp_path / "right")


def test_verify_names_both_buffers_of_every_broken_pair(planned: Planned) -> None:
    problem, plan = planned.extracted.problem, planned.plan
    pairs = clashing_pairs(problem)
    assert len(pairs) > 10
    for first, second in pairs:
        with pytest.raises(VerificationError) as error:
            check(problem, on_top(problem, plan, first, second))
        assert first.name in str(error.value)
        assert second.name in str(error.value)


def pair_of(kinds: tuple[str, str]) -> Callable[[list[tuple[Buffer, Buffer]]], tuple[Buffer, Buffer]]:
    def choose(pairs: list[tuple[Buffer, Buffer]]) -> tuple[Buffer, Buffer]:
        found = [p for p in pairs if {p[0].kind.value, p[1].kind.value} == set(kinds)]
        assert found, f"the example has no live pair of kinds {kinds}"
        return max(found, key=lambda p: p[0].size_bytes + p[1].size_bytes)

    return choose


@pytest.mark.parametrize(
    "kinds",
    [
        ("npu_internal", "npu_internal"),
        ("npu_internal", "input"),
        ("npu_internal", "weights"),
        ("npu_internal", "tensor"),
        ("tensor", "tensor"),
        ("tensor", "host_scratch"),
    ],
    ids="-".join,
)
def test_with_verification_off_the_run_notices(planned: Planned, tmp_path: Path, kinds: tuple[str, str]) -> None:
    problem = planned.extracted.problem
    first, second = pair_of(kinds)(clashing_pairs(problem))
    broken = replace(planned, plan=on_top(problem, planned.plan, first, second))
    assert notices(broken, tmp_path / "broken"), f"{first.name} and {second.name} share bytes unseen"


def test_errors_of_the_checks_are_errors_users_can_meet() -> None:
    assert issubclass(NpuModelError, NpuMemplanError)
