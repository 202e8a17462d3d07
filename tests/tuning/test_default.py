"""The default compile: never above Vela's bytes or cycles, by the same estimate for both."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pytest

from npu_memplan import verify
from npu_memplan.artifact import Artifact
from npu_memplan.commands.compile import summary
from npu_memplan.compiler import plan_model
from npu_memplan.options import CompileOptions, OptionError
from npu_memplan.tuning.candidate import BUDGETS
from tests.support.real_data import real_model

NETWORKS = ("kws_ref_model", "micro_speech_quantized", "keyword_scrambled_8bit", "hello_world_int8")


@lru_cache
def compiled(name: str, effort: str, objective: str) -> Artifact:
    return plan_model(real_model(name), CompileOptions(effort=effort, objective=objective)).artifact


@pytest.mark.parametrize("effort", ["quick", "normal"])
@pytest.mark.parametrize("name", NETWORKS)
def test_bytes_and_cycles_are_at_most_velas(name: str, effort: str) -> None:
    made = compiled(name, effort, "auto")
    verify.check(made.problem, made.plan)
    assert made.timing is not None
    assert (made.estimated_cycles or 0) <= sum(made.timing.vela_stream_bounds.values())
    for pool, arena in made.vela_arena_bytes.items():
        assert made.pool_bytes(pool) <= arena
    assert made.pool_bytes("sram") <= made.limit_bytes["sram"]
    assert made.limit_bytes == (
        made.vela_arena_bytes or made.limit_bytes
    )  # one has host operators, whose scratch counts
    assert Artifact.from_json(made.to_json()) == made
    assert all(pool.size_bytes is None for pool in made.problem.pools if pool.name == "sram")  # no size was requested


def test_the_fewest_bytes_are_still_to_be_had() -> None:
    fast = compiled("kws_ref_model", "normal", "auto")
    small = plan_model(real_model("kws_ref_model"), CompileOptions(objective="bytes", stripes=True)).artifact
    assert small.pool_bytes("sram") < fast.pool_bytes("sram")
    assert (fast.estimated_cycles or 0) < 0.85 * (small.estimated_cycles or 0)


def test_the_form_taken_is_searched_in_fewer_bytes() -> None:
    fast, usual = compiled("kws_ref_model", "normal", "cycles"), compiled("kws_ref_model", "normal", "auto")
    assert usual.pool_bytes("sram") < 0.97 * fast.pool_bytes("sram")
    assert (usual.estimated_cycles or 0) <= 1.01 * (fast.estimated_cycles or 0)


def test_the_limit_of_a_pool_is_its_size() -> None:
    sizes = {"sram": 8192}
    made = plan_model(real_model("micro_speech_quantized"), CompileOptions(effort="quick", pools=sizes)).artifact
    assert made.limit_bytes == sizes
    assert summary(made)["limits"] == sizes
    assert summary(made)["objective"] == "auto"


def test_the_same_input_gives_the_same_program() -> None:
    name, options = "micro_speech_quantized", CompileOptions(effort="quick")
    one, other = compiled(name, "quick", "auto"), plan_model(real_model(name), options).artifact
    assert one.to_json() == other.to_json()


@pytest.mark.parametrize("npu", ["ethos-u55-256", "ethos-u85-256"])
def test_the_quickest_search_makes_stripes_where_nothing_else_fits(npu: str) -> None:
    options = CompileOptions(npu, memory_mode="Shared_Sram", effort="quick", pools={"sram": 4480})
    made = plan_model(real_model("str_ww_ref_model"), options).artifact
    assert made.pool_bytes("sram") <= 4480
    assert any("native lowering in stripes" in note for note in made.notes)


def test_an_effort_has_a_name() -> None:
    assert set(BUDGETS) == {"quick", "normal", "max"}
    with pytest.raises(OptionError, match="--effort 'huge' is unknown; choose one of: quick, normal, max"):
        replace(CompileOptions(), effort="huge").resolve_defaults()
