"""Searches for plans: the same bytes as ever, orders of networks with many branches, which orders of filling are tried,
and what is learned under one ceiling where alignments differ."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from benchmarks.branching import best_peak, graph_of
from npu_memplan.models.tflite import read_network
from npu_memplan.planners import exact
from npu_memplan.planners.exact import NOISES, ORDERS, Portfolio
from npu_memplan.planners.general import SmallSearch
from npu_memplan.planners.model import Model
from npu_memplan.planners.registry import Context
from npu_memplan.problem import Buffer, Lifetime, Pool, Problem
from tests.support.planner_cases import Case, digest, drawn, filed
from tests.support.random_networks.branching import KINDS, branching

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "planner_placements.json"


def compare(cases: list[Case], request: pytest.FixtureRequest) -> None:
    found = {name: digest(make(), planner, seed, nodes) for name, make, planner, seed, nodes in cases}
    known = json.loads(GOLDEN.read_text(encoding="utf-8"))
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(json.dumps({**known, **found}, indent=0) + "\n", encoding="utf-8")
        return
    assert found == {name: known[name] for name in found}


def test_random_problems_are_placed_as_ever(request: pytest.FixtureRequest) -> None:
    compare(list(drawn()), request)


def test_challenging_instances_are_placed_as_ever(
    request: pytest.FixtureRequest, shared_instances: Callable[[str], Path]
) -> None:
    compare(list(filed(shared_instances("minimalloc_challenging"))), request)


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("most", [12, 24])
def test_no_order_of_a_network_with_branches_has_a_lower_peak(kind: str, most: int) -> None:
    graph = graph_of(read_network(branching(kind, most, 7, 8).finish()))
    found, best = graph.best_order(), best_peak(graph)
    assert best is not None
    assert found.peak_bytes == best == graph.peak_bytes(found.operators)
    assert found.peak_bytes <= found.given_peak_bytes == graph.peak_bytes(range(len(graph.operators)))


def learned(best: int, tight: bool, portfolio: Portfolio) -> None:
    """Every order was tried with every chance; the one at `best` got furthest, with the second chance."""
    for k, order in enumerate(ORDERS):
        for noise in NOISES:
            portfolio.learn(order, tight, noise, 0.5 + 0.2 * (k == best) + 0.2 * (k == best and noise == NOISES[1]))


def mixed_alignments(seed: int) -> Model:
    """6 to 14 buffers of up to 20 bytes, aligned to 1, 4, 6 or 16."""
    random = Random(seed)
    count = random.randint(6, 14)
    buffers = []
    for k in range(count):
        at = random.randint(0, count // 2)
        lives = (Lifetime(at, at + random.randint(1, 5)),)
        buffers.append(Buffer(f"b{k}", random.randint(1, 20), lives, random.choice([1, 1, 4, 6, 16])))
    return Model(Problem(tuple(buffers), (Pool("m"),)))


def test_a_dead_end_of_one_ceiling_is_none_where_alignment_falls_otherwise() -> None:
    """66 bytes are too few; remembering that by headroom alone once made 67 look impossible too."""
    rows = ((20, 6, 2, 7), (17, 16, 0, 4), (15, 6, 0, 5), (13, 1, 0, 2), (6, 1, 3, 4), (5, 4, 2, 6))
    buffers = tuple(Buffer(f"b{k}", size, (Lifetime(a, b),), align) for k, (size, align, a, b) in enumerate(rows))
    model = Model(Problem(buffers, (Pool("m"),)))
    search = exact.search_for(model, model.items, 0)
    assert search is not None
    exact.run(search, Context(model, 43, 100_000))
    assert (search.low, search.best) == (67, 67)


@pytest.mark.parametrize("block", range(2))
def test_what_is_called_least_is_least(block: int) -> None:
    """Against the pure Python search, which has no memory of dead ends."""
    proven = 0
    for seed in range(50 * block, 50 * block + 50):
        model = mixed_alignments(seed)
        search = exact.search_for(model, model.items, 0)
        assert search is not None
        exact.run(search, Context(model, seed, 4_000))
        if search.best is not None and search.low >= search.best:
            assert not SmallSearch.over(model, model.items, 20_000).below(search.best - 1), seed
            proven += 1
    assert proven > 30
