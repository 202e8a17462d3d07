"""Estimates as what they lie between."""

from __future__ import annotations

import pytest

from benchmarks.time_cells import around, measured
from npu_memplan.compiler import plan_model
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.time import (
    MODELS,
    counts_around,
    cycles_by_model,
    estimate,
    milliseconds_between,
    models_text,
    printed_cycles,
)
from npu_memplan.ethosu.time.assumptions import LEFT_OUT
from npu_memplan.options import CompileOptions
from tests.ethosu.test_time_windows import WHERE, rounds
from tests.pipeline.test_selection import MODELS as FOLDER


def test_text_has_one_figure_where_models_agree_to_its_last_digit() -> None:
    assert milliseconds_between((46_500, 52_000, 50_000), 500e6) == "0.093 to 0.104 ms"
    assert milliseconds_between((46_500, 46_501), 500e6) == "0.093 ms"
    assert models_text({"one": 42_020, "other": 9}) == "one: 42,020; other: 9"
    assert models_text({"one": 100, **counts_around(100, [accelerator("ethos-u55-256")])}).endswith(": 96 to 105")


def test_the_first_model_is_the_estimate_and_streams_add_up() -> None:
    npu, stream = accelerator("ethos-u55-256"), tuple(rounds(copies=True))
    one, two = (cycles_by_model([(stream, npu)] * count, WHERE) for count in (1, 2))
    assert list(one) == [model.name for model in MODELS]
    assert next(iter(one.values())) == estimate(stream, npu, WHERE).total
    assert two == {name: 2 * cycles for name, cycles in one.items()}
    assert max(one.values()) > min(one.values())


@pytest.mark.parametrize(("npu", "more"), [("u55-256", 0), ("u65-512", 0), ("u85-256", 1), ("u85-2048", 0)])
def test_a_printed_range_has_what_the_buffers_of_one_port_leave_open(npu: str, more: int) -> None:
    target = accelerator(f"ethos-{npu}")
    memory_map = around(target, "Shared_Sram" if npu.startswith("u55") else "Dedicated_Sram")
    stream = measured("rnnoise_INT8", target), target
    compared, printed = cycles_by_model([stream], memory_map), printed_cycles([stream], memory_map)
    assert list(printed.items())[:3] == list(compared.items())
    *buffers, least, most = list(printed.values())[3:]
    assert (least, most) == tuple(round(bound * printed["shared by halves"]) for bound in LEFT_OUT[target.product])
    assert len(buffers) == more
    if buffers:  # nominal is 0.8 of them
        assert printed["shared by halves"] > buffers[0]


def test_a_compile_prints_it() -> None:
    made = plan_model(FOLDER / "hello_world_int8.tflite", CompileOptions("ethos-u85-256", effort="quick"))
    assert made.artifact.timing is not None
    names = list(made.artifact.timing.by_model)
    assert names[3:-2] == ["all of buffers under way"]
