"""The message of a model that does not fit, word by word."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.planners import PlanningError, plan
from npu_memplan.report.text.compile_result import does_not_fit


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
    text = str(does_not_fit(error, small.problem, "a.tflite", small.target))
    assert "required   300 bytes (0.29 KiB) (by first fit; a smaller plan is not excluded)" in text
    assert "--planner optimal  " in text
