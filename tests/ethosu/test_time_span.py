"""Estimates as what they lie between."""

from __future__ import annotations

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.time import MODELS, cycles_by_model, estimate, milliseconds_between, models_text
from tests.ethosu.test_time_windows import WHERE, rounds


def test_text_has_one_figure_where_models_agree_to_its_last_digit() -> None:
    assert milliseconds_between((46_500, 52_000, 50_000), 500e6) == "0.093 to 0.104 ms"
    assert milliseconds_between((46_500, 46_501), 500e6) == "0.093 ms"
    assert models_text({"one": 42_020, "other": 9}) == "one 42,020, other 9"


def test_the_first_model_is_the_estimate_and_streams_add_up() -> None:
    npu, stream = accelerator("ethos-u55-256"), tuple(rounds(copies=True))
    one, two = (cycles_by_model([(stream, npu)] * count, WHERE) for count in (1, 2))
    assert list(one) == [model.name for model in MODELS]
    assert next(iter(one.values())) == estimate(stream, npu, WHERE).total
    assert two == {name: 2 * cycles for name, cycles in one.items()}
    assert max(one.values()) > min(one.values())
