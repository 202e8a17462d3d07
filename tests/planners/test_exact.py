"""The compiled search: instances that defeat every heuristic, proofs, and infeasible subsets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from npu_memplan.artifact.files import read_problem
from npu_memplan.planners import PlanningError, exact, plan
from npu_memplan.planners.general import SmallSearch
from npu_memplan.planners.model import Model
from npu_memplan.planners.registry import Context
from npu_memplan.problem import PlanStatus, Pool, Problem
from npu_memplan.verify import verify
from tests.support.random_problems import brute_force, from_graph, random_intervals

MIB = 1 << 20


def searched(problem: Problem, seed: int = 0) -> exact.Search:
    """The compiled search alone, run to the end."""
    model = Model(problem)
    search = exact.search_for(model, model.items, 0)
    assert search is not None
    exact.run(search, Context(model, seed, 500_000))
    return search


@pytest.mark.parametrize("block", range(2))
def test_compiled_and_small_search_equal_brute_force(block: int) -> None:
    for seed in range(25 * block, 25 * block + 25):
        problem = random_intervals(seed, 5)
        least = brute_force(problem)
        search = searched(problem)
        assert search.best == search.low == least, seed
        model = Model(problem)
        small = SmallSearch.over(model, model.items, 100_000)
        assert least is not None
        assert small.below(least) is True
        assert small.below(least - 1) is False
        assert plan(replace(problem, pools=(Pool("m", least),)), "auto").usage[0].used_bytes == least


def test_the_answer_depends_on_seed_and_nodes_only() -> None:
    problem = random_intervals(3, 40)
    assert searched(problem, 7).offsets == searched(problem, 7).offsets


@pytest.mark.slow
@pytest.mark.parametrize("name", list("ABFHIK"))
def test_challenging_instances_are_solved_at_their_bound(name: str, shared_instances: Callable[[str], Path]) -> None:
    """No search over permutations came within 6 % of these; here within thousands of nodes."""
    problem = read_problem(shared_instances("minimalloc_challenging") / f"{name}.{MIB}.csv", MIB)
    answer = plan(problem, "fit", node_budget=60_000)
    assert verify(problem, answer) == ()
    assert (answer.usage[0].used_bytes, answer.status) == (MIB, PlanStatus.OPTIMAL)


@pytest.mark.slow
def test_c_is_proven_optimal_below_its_capacity(shared_instances: Callable[[str], Path]) -> None:
    problem = read_problem(shared_instances("minimalloc_challenging") / f"C.{MIB}.csv")
    answer = plan(problem, node_budget=60_000)
    assert (answer.usage[0].used_bytes, answer.status) == (1039360, PlanStatus.OPTIMAL)


def wheel(capacity: int | None, others: int = 50) -> Problem:
    """A ring of five in each other's way, among many that are not in the way of much."""
    edges = [(k, (k + 1) % 5) for k in range(5)] + [(k, k + 1) for k in range(5, others + 4)]
    return from_graph([1] * (others + 5), edges, capacity=capacity)


def test_infeasible_subset_is_irreducible() -> None:
    assert plan(wheel(None)).usage[0].lower_bound_bytes == 3
    with pytest.raises(PlanningError) as caught:
        plan(wheel(2))
    error = caught.value
    assert (error.subset, error.proven, error.required_bytes) == (("n0", "n1", "n2", "n3", "n4"), True, 3)
    problem = wheel(2)
    for left_out in error.subset:
        kept = [b for b in problem.buffers if b.name in error.subset and b.name != left_out]
        names = {b.name for b in kept}
        rest = replace(problem, buffers=tuple(kept), conflicts=tuple(c for c in problem.conflicts if {*c} <= names))
        assert plan(rest).usage[0].used_bytes == 2
