"""Programs are compared under several models of what no published count decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import pytest

from npu_memplan.ethosu.time import MODELS, SEARCHED
from npu_memplan.stages import Planned
from npu_memplan.tuning import weight_prefetch
from npu_memplan.tuning.candidate import BUDGETS, ProgramCandidate, cycles_by_model
from npu_memplan.tuning.ranking import Ranking
from npu_memplan.tuning.weight_prefetch import SearchResult, make_best, search_programs
from tests.tuning import conftest

KWS = conftest.MODELS / "kws_ref_model.tflite"


def ranking(planned: Planned) -> Ranking:
    memory_map = planned.extracted.loaded.request.options.memory_map()
    assert memory_map is not None
    return Ranking(memory_map)


def made(search: SearchResult, plain: Planned) -> Planned:
    return make_best(search, ranking(plain))[1]


@lru_cache(4)
def searched(name: str, npu_compiler: str, pool_bytes: int | None) -> SearchResult:
    """With the default's effort, under the nominal model of time."""
    plain = conftest.planned_model(name, npu_compiler, pool_bytes)
    return search_programs((plain,), ranking(plain), BUDGETS["normal"])


@pytest.mark.parametrize(
    ("name", "npu_compiler", "pool_bytes"), [("kws_ref_model", "vela", 22192), ("str_ww_ref_model", "vela", None)]
)
def test_what_is_taken_is_faster_under_every_model(
    planned: Callable[..., Planned], name: str, npu_compiler: str, pool_bytes: int | None
) -> None:
    plain = planned(name, npu_compiler, pool_bytes)
    search = searched(name, npu_compiler, pool_bytes)
    before = cycles_by_model(search.candidates[0], ranking(plain))
    assert all(after <= cycles for after, cycles in zip(search.cycles, before, strict=True))
    own = plain.extracted.loaded.vela_stream_cycles
    assert max(after / cycles for after, cycles in zip(search.cycles, own, strict=True)) == search.ratio
    for model, cycles in zip(MODELS, search.cycles, strict=True):  # what is made is what was compared
        memory_map = replace(ranking(plain).memory_map, assumptions=model)
        assert Ranking(memory_map)(made(search, plain))[0] == cycles


def test_copies_that_one_model_finds_slower_are_not_taken(
    planned: Callable[..., Planned], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = planned("kws_ref_model", "vela", 22192)
    assert made(searched("kws_ref_model", "vela", 22192), plain) is not plain

    def doubtful(candidate: ProgramCandidate, rank: Ranking) -> tuple[int, ...]:
        return candidate.rank[0], 100_000 + bool(candidate.moved), 100_000

    monkeypatch.setattr(weight_prefetch, "cycles_by_model", doubtful)
    assert made(search_programs((plain,), ranking(plain), BUDGETS["normal"]), plain) is plain


def test_models_differ_and_none_is_faster_than_sharing_without_cost() -> None:
    nominal, in_turn, contended = searched("kws_ref_model", "vela", 22192).cycles
    assert nominal < contended
    assert in_turn != nominal


def test_a_search_gains_most_under_the_model_that_decides(planned: Callable[..., Planned]) -> None:
    plain = planned("kws_ref_model", "vela", 22192)
    rank = ranking(plain).with_assumptions(SEARCHED)
    nominal, in_turn, contended = search_programs((plain,), rank, BUDGETS["quick"]).reference
    others = search_programs((plain,), rank, BUDGETS["quick"], (nominal, 2 * in_turn, contended))
    decides = search_programs((plain,), rank, BUDGETS["quick"], (nominal, in_turn // 2, contended))
    assert others.ratio <= 1 < decides.ratio
    assert decides.cycles[1] < others.cycles[1]
    assert max(others.cycles[0] / nominal, others.cycles[2] / contended) < max(
        decides.cycles[0] / nominal, decides.cycles[2] / contended
    )
