"""The local search: what it hands on is a placement, as low as brute force where that can tell, and it repeats."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from npu_memplan.artifact.files import read_problem
from npu_memplan.planners import plan
from npu_memplan.planners.exact import search as exact
from npu_memplan.planners.exact.sections import Sections
from npu_memplan.planners.local.ejection import Ejection
from npu_memplan.planners.model import Model
from npu_memplan.problem import Problem
from tests.support.random_problems import brute_force, from_graph, random_graph, random_intervals

MIB = 1 << 20


def local(problem: Problem, seed: int = 0) -> tuple[Ejection, Sections]:
    """A local search with nothing placed yet."""
    model = Model(problem)
    search = exact.search_for(model, model.items, 0)
    assert search is not None
    return Ejection(search.sections, search.graph, seed), search.sections


def check(sections: Sections, offsets: list[int], ceiling: int) -> None:
    """Aligned, under the ceiling and without overlap; items at -1 are left out."""
    for at, size, align in zip(offsets, sections.sizes, sections.aligns, strict=True):
        assert at == -1 or (at >= 0 and at % align == 0 and at + size <= ceiling)
    for members in sections.members:
        spans = sorted((offsets[k], offsets[k] + sections.sizes[k]) for k in members if offsets[k] >= 0)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def test_it_reaches_what_brute_force_reaches_and_nothing_below() -> None:
    for seed in range(40):
        problem = random_intervals(seed, 5)
        least = brute_force(problem)
        assert least is not None
        search, sections = local(problem, seed)
        below, choices = search.below(least - 1, 300)
        assert (below, choices) == (None, 300), seed
        found, choices = search.below(least, 3000)
        assert found is not None, seed
        assert 0 < choices <= 3000
        check(sections, found, least)
        assert max(at + size for at, size in zip(found, sections.sizes, strict=True)) == least


def test_conflicts_that_are_no_lifetimes() -> None:
    for seed in range(30):
        problem = random_graph(seed)
        least = plan(problem).usage[0].used_bytes
        search, sections = local(problem, seed)
        found, _ = search.below(least, 5000)
        assert found is not None, seed
        check(sections, found, least)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_placed_when_the_choices_run_out_is_valid(seed: int) -> None:
    """Ceilings come down while they are met; also the last state, with items left out, violates no constraint."""
    problem = random_intervals(seed, 60, points=25, most=40)
    search, sections = local(problem, seed)
    ceiling = 3 * sections.bound
    while True:
        found, _ = search.below(ceiling, 400)
        state = [int(at) for at in search.low]
        check(sections, state, ceiling)
        assert (-1 not in state) == (found is not None)
        if found is None:
            break
        ceiling = max(at + size for at, size in zip(found, sections.sizes, strict=True)) - 1
    assert ceiling < 1.5 * sections.bound


def test_it_goes_on_from_a_placement_and_keeps_what_has_room() -> None:
    problem = from_graph([4, 4, 4, 4], [(0, 1), (1, 2), (2, 3)])
    search, _ = local(problem)
    search.start_from([0, 4, 8, 0])
    found, choices = search.below(12, 10)
    assert (found, choices) == ([0, 4, 8, 0], 0)
    found, choices = search.below(8, 10)
    assert found is not None
    assert max(found) + 4 == 8
    assert choices >= 1


def test_an_item_above_the_ceiling_finds_no_place() -> None:
    search, _ = local(from_graph([4, 9], [(0, 1)]))
    assert search.below(8, 50)[0] is None


def test_the_same_seed_gives_the_same_placement() -> None:
    answers = []
    for seed in (5, 5, 6):
        search, sections = local(random_intervals(1, 50, points=20, most=30), seed)
        answers.append(search.below(sections.bound * 5 // 4, 5000)[0])
    assert answers[0] is not None
    assert answers[0] == answers[1] != answers[2]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "most"), [("D", 1.02), ("J", 1.02)])
def test_the_hardest_instances_come_within_2_percent(
    name: str, most: float, shared_instances: Callable[[str], Path]
) -> None:
    """Nodes stand for the clock: some 150,000 a second."""
    problem = read_problem(shared_instances("minimalloc_challenging") / f"{name}.{MIB}.csv")
    usage = plan(problem, node_budget=150_000).usage[0]
    assert usage.used_bytes <= most * usage.lower_bound_bytes
