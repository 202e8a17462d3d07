"""Spilling at scale: bounds from prices and the complete search, against brute force."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import pytest

from npu_memplan.planners import plan
from npu_memplan.planners.model import Model
from npu_memplan.planners.registry import Context
from npu_memplan.planners.spill import Assigner, branch, relax
from npu_memplan.problem import AliasGroup, AllowedOverlap, Buffer, Lifetime, Pool, Problem
from npu_memplan.verify import verify


def pool(name: str, size: int | None, rate: float, latency: int = 0) -> Pool:
    return Pool(
        name,
        size,
        read_bandwidth_bytes_per_cycle=rate,
        write_bandwidth_bytes_per_cycle=rate,
        read_latency_cycles=latency,
    )


TWO = (pool("sram", 150, 16.0), pool("dram", None, 4.0, 50))
THREE = (pool("sram", 150, 16.0), pool("flash", 75, 8.0, 10), pool("dram", None, 4.0, 50))


def problem_of(count: int, seed: int, pools: tuple[Pool, ...], length: int | None = None) -> Problem:
    random = Random(seed)
    buffers = []
    for k in range(count):
        at = random.randint(0, length or count // 2)
        lives = (Lifetime(at, at + 1 + int(random.expovariate(0.2))),)
        buffers.append(Buffer(f"x{k}", random.randint(1, 60), lives, 1, read_bytes=random.randint(1, 4000)))
    return Problem(tuple(buffers), pools)


def least_cost(problem: Problem) -> float:
    """Oracle: every assignment, cheapest first, the first that `Assigner` packs."""
    model = Model(problem)
    assigner = Assigner(Context(model))
    choices = sorted(product(*[item.pools for item in model.items]), key=lambda pools: (model.cost_of(pools), pools))
    pools = next(pools for pools in choices if assigner.layout(pools) is not None)
    return model.cost_of(pools)


def special(seed: int) -> Problem:
    """Seven buffers in three pools, two of them views of one place, two allowed in place, one with a gap."""
    base = problem_of(7, seed, THREE, 3)
    buffers = list(base.buffers)
    buffers[1] = replace(buffers[1], size_bytes=max(1, buffers[0].size_bytes // 2))
    buffers[4] = replace(buffers[4], lifetimes=(Lifetime(0, 1), Lifetime(3, 5)))
    return replace(
        base,
        buffers=tuple(buffers),
        aliases=(AliasGroup("g", (("x0", 0), ("x1", 0))),),
        overlaps=(AllowedOverlap("x2", "x3", 0, 0),),
    )


@pytest.mark.parametrize("seed", range(12))
def test_three_pools_are_of_least_cost(seed: int) -> None:
    for problem in (problem_of(7, seed, THREE, 2), special(seed)):
        answer = plan(problem)
        assert verify(problem, answer) == ()
        model = Model(problem)
        assert model.cost_of(model.layout(answer.placements)[0]) == pytest.approx(least_cost(problem))


@pytest.mark.parametrize("seed", range(6))
def test_the_bound_holds_and_the_tree_is_complete(seed: int) -> None:
    model = Model(problem_of(16, seed, THREE) if seed % 2 else problem_of(24, seed, TWO))
    assigner = Assigner(Context(model))
    flexible = [item.index for item in model.items]
    relaxation = relax(assigner, model.cost_of([item.pools[-1] for item in model.items]))
    grown, complete = branch(assigner, relaxation, flexible, None)
    assert complete
    assert grown is not None
    assert 0 < relaxation.bound <= grown.cost
    # the bound holds for every assignment with its `extra`, here for the best one
    extra = sum(relaxation.extra[i][model.items[i].pools.index(grown.pools[i])] for i in flexible)
    assert relaxation.bound + extra <= grown.cost + 1e-6
    # with that cost in hand, there is nothing below it, and what was cut was no better
    again, complete = branch(assigner, relaxation, flexible, grown)
    assert complete
    assert again is grown


def test_a_tree_that_is_too_wide_says_so() -> None:
    """Dozens live at once in three pools: more choices than are looked at, and no proof."""
    model = Model(problem_of(60, 1, THREE, 4))
    assigner = Assigner(Context(model))
    assert branch(assigner, relax(assigner, 1e9), list(range(60)), None)[1] is False


def test_many_are_near_the_bound() -> None:
    """200 buffers: within 20 % of what any plan costs, and far below first fit."""
    problem = problem_of(200, 1, (pool("sram", 200, 16.0), TWO[1]))
    answer = plan(problem, node_budget=60_000)
    assert verify(problem, answer) == ()
    model = Model(problem)
    cost = model.cost_of(model.layout(answer.placements)[0])
    bound = relax(Assigner(Context(model)), cost).bound
    first_fit = model.cost_of(model.layout(plan(problem, "first-fit").placements)[0])
    assert 0 < bound <= cost <= min(1.2 * bound, 0.6 * first_fit)
