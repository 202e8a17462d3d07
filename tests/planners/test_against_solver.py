"""Every claim of the planner on random problems of every feature, held against OR-tools and a checker of our own."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

pytest.importorskip("ortools", reason="the independent solver is in the `test` extra")

from npu_memplan.planners import Context, plan, register, registry
from npu_memplan.problem import Buffer, Lifetime, Placement, PlanStatus, Pool, Problem
from tests.support.claims import false_claims, outcome
from tests.support.random_problems import random_problem
from tests.support.solver import Exact, Unknown, broken, in_one_pool


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


def test_a_planner_that_lies_is_caught() -> None:
    """The checks above can fail: a bound too high, a plan with room for less, and bytes that are shared."""

    @register("liar")
    def liar(problem: Problem, context: Context) -> list[Placement]:
        context.bounds[0] = 1 << 20
        return list(plan(problem, "linear").placements)

    problem = Problem(tuple(Buffer(f"b{k}", 8, (Lifetime(k, k + 2),)) for k in range(5)), (Pool("m"),))
    try:
        answer = plan(problem, "liar")
    finally:
        del registry._PLANNERS["liar"]
    assert answer.status is PlanStatus.OPTIMAL
    assert list(false_claims(problem, answer, Counter())) == [
        "a bound of 72 bytes, 24 are enough",
        "72 bytes are called optimal, 24 are enough",
    ]
    on_each_other = replace(answer, placements=tuple(replace(p, offset_bytes=0) for p in answer.placements))
    assert broken(problem, on_each_other.placements) == [f"b{k} and b{k + 1} share bytes" for k in range(4)]
