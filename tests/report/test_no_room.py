"""The message of a model that does not fit, word by word, and the options that it and `explain` name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.knobs import ALL, SECOND_MEMORY, useful_knobs
from npu_memplan.options import CompileOptions
from npu_memplan.planners import PlanningError, plan
from npu_memplan.report.text.compile_result import does_not_fit
from npu_memplan.report.text.explain import explain_peak


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
    (peak, *_) = explain_peak(small).pools
    assert peak.knobs[0] == ("--pool sram=SIZE", "the fewest cycles that fit")


def test_every_option_says_what_it_does_in_one_line() -> None:
    assert all(0 < len(knob.does) < 60 for knob in ALL)
    strict = CompileOptions(npu_compiler="vela", reuse_inputs=False).resolve_defaults()
    able = useful_knobs(strict, 64, "m.tflite", searched=True)
    assert "(without --resident inputs)" in [knob.flag_text(strict, 64) for knob in able]


@pytest.mark.parametrize(
    ("options", "source", "absent"),
    [
        (CompileOptions(npu_compiler="tvm"), "m.onnx", "vela"),
        (CompileOptions("none"), "m.tflite", "--"),
        (CompileOptions(npu_compiler="tvm", stream_input="image"), "m.tflite", "--npu-compiler"),
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
