"""Every claim of the planner on random problems of every feature, held against OR-tools and a checker of our own."""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("ortools", reason="the independent solver is in the `test` extra")

from tests.support.claims import false_claims, outcome
from tests.support.random_problems import random_problem
from tests.support.solver import Exact, Unknown, in_one_pool


def test_what_is_called_optimal_or_infeasible_is() -> None:
    seen: Counter[str] = Counter()
    for seed in range(120):
        problem = random_problem(seed, 7)
        answer = outcome(problem, node_budget=20_000)
        assert list(false_claims(problem, answer, seen)) == [], seed
    assert seen["optimal, confirmed"] > 60
    assert seen["infeasible, confirmed"] > 2


def test_one_byte_less_than_the_least_is_infeasible_and_the_least_is_not() -> None:
    seen: Counter[str] = Counter()
    for seed in range(60):
        problem = in_one_pool(random_problem(seed, 7))
        if outcome(problem) is None:
            continue
        try:
            least = Exact(problem).least(["m"])
        except Unknown:
            continue
        assert least is not None, seed
        for size in (least - 1, least):
            tight = in_one_pool(problem, size)
            answer = outcome(tight, "fit", node_budget=20_000)
            assert list(false_claims(tight, answer, seen)) == [], (seed, size)
    assert seen["infeasible, confirmed"] > 30
    assert seen["optimal, confirmed"] > 30
