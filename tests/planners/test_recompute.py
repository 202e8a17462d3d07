"""Schedules that run tasks again, against the definition of live bytes and against every schedule there is."""

from __future__ import annotations

import itertools
import random

import pytest

import npu_memplan.planners.recompute as searches
from npu_memplan.planners.recompute import (
    Task,
    TaskGraph,
    evict,
    extra_cost,
    least_live_bytes,
    live_bytes,
    recompute,
)


def training_like(seed: int, most: int) -> TaskGraph:
    """A chain forward, and one backward that reads what the forward one made."""
    generator = random.Random(seed)
    count = generator.randint(4, most)
    half = count // 2
    tasks = []
    for i in range(count):
        reads = {i - 1} if i else set()
        if i >= half:
            reads.add(max(0, 2 * half - 1 - i))
        if i > 1 and generator.random() < 0.4:
            reads.add(generator.randrange(i))
        scratch, cost = generator.choice([0, 0, 3]), generator.randint(1, 9)
        tasks.append(Task(tuple(sorted(reads)), (i,), scratch, cost, generator.random() < 0.9))
    kept = frozenset({count - 1}) if generator.random() < 0.5 else frozenset()
    return TaskGraph(tuple(tasks), tuple(generator.randint(1, 10) for _ in range(count)), kept)


def bytes_by_definition(graph: TaskGraph, schedule: tuple[int, ...]) -> list[int]:
    """Bytes live at each position: a value counts where it is made or read, or was made before and is read later."""
    made = graph.producers
    found = []
    for at, index in enumerate(schedule):
        total = graph.tasks[index].scratch_bytes
        for value, producer in made.items():
            before = [i for i in range(at + 1) if schedule[i] == producer]
            later = [i for i in range(at, len(schedule)) if value in graph.tasks[schedule[i]].reads]
            again = [i for i in range(at + 1, len(schedule)) if schedule[i] == producer]
            stays = value in graph.kept and not again
            read = later and (not again or later[0] <= again[0])
            if before and (stays or read or before[-1] == at):
                total += graph.sizes_bytes[value]
        found.append(total)
    return found


def cheapest_by_enumeration(graph: TaskGraph, limit: int, again: int) -> float | None:
    """Least extra cost of all schedules that run at most so many tasks again."""
    best = None
    for count in range(again + 1):
        for chosen in itertools.combinations_with_replacement(range(len(graph.tasks)), count):
            if not all(graph.tasks[t].repeatable for t in chosen):
                continue
            cost = sum(graph.tasks[t].cost for t in chosen)
            if best is not None and cost >= best:
                continue
            if any(max(bytes_by_definition(graph, s)) <= limit for s in _insertions(graph.order, chosen)):
                best = cost
    return best


def _insertions(order: tuple[int, ...], tasks: tuple[int, ...]) -> set[tuple[int, ...]]:
    """All schedules with `tasks` put behind their first time."""
    found = {order}
    for task in tasks:
        found = {
            (*s[:at], task, *s[at:]) for s in found for at in range(s.index(task) + 1, len(s) + 1) if s[at - 1] != task
        }
    return found


@pytest.mark.parametrize("seed", range(12))
def test_live_bytes_are_those_of_the_definition(seed):
    graph = training_like(seed, 8)
    generator = random.Random(seed)
    schedule = list(graph.order)
    for _ in range(4):
        task = generator.randrange(len(graph.tasks))
        schedule.insert(generator.randint(schedule.index(task) + 1, len(schedule)), task)
    assert live_bytes(graph, schedule) == bytes_by_definition(graph, tuple(schedule))


def test_schedules_keep_the_limit_and_are_near_the_cheapest():
    ratios, missed = [], 0
    for seed in range(30):
        graph = training_like(seed, 8)
        cost = sum(task.cost for task in graph.tasks)
        for percent in (95, 90, 80, 70):
            limit = max(live_bytes(graph, graph.order)) * percent // 100
            cheapest, found = cheapest_by_enumeration(graph, limit, 2), evict(graph, limit)
            if found is None:
                missed += cheapest is not None
                continue
            assert max(bytes_by_definition(graph, found)) <= limit
            if cheapest is not None:
                again = len(found) - len(graph.tasks)
                assert again > 2 or extra_cost(graph, found) >= cheapest
                ratios.append((cost + extra_cost(graph, found)) / (cost + cheapest))
    assert len(ratios) > 20
    assert missed <= len(ratios) // 20
    assert sum(ratios) / len(ratios) < 1.02


def chain(layers: int) -> TaskGraph:
    """A layer's backward task reads what its forward task made; all values have one byte."""
    forward = [Task((i - 1,) if i else (), (i,)) for i in range(layers)]
    backward = [Task((layers + i - 1, layers - 1 - i), (layers + i,)) for i in range(layers)]
    return TaskGraph((*forward, *backward), (1,) * (2 * layers))


def test_a_long_chain_fits_in_few_bytes_at_less_than_twice_the_forward_cost():
    graph = chain(64)
    assert max(live_bytes(graph, graph.order)) == 65
    found = recompute(graph, 20)  # checkpoints every eighth layer: 8 and 8 and some
    assert found is not None
    assert found.peak_bytes <= 20
    assert found.extra_cost <= 2 * 64
    assert recompute(chain(5), 2) is None


def test_no_schedule_is_below_the_least_bytes():
    for seed in range(40):
        graph = training_like(seed, 9)
        least = least_live_bytes(graph)
        assert evict(graph, least - 1) is None


def test_a_search_ends_after_the_moves_that_it_may_look_at(monkeypatch):
    graph = training_like(38, 10)
    limit = max(live_bytes(graph, graph.order)) * 9 // 10
    assert evict(graph, limit) is not None
    monkeypatch.setattr(searches, "LOOKS", 0)
    assert evict(graph, limit) is None
