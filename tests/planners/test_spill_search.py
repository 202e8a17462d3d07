"""Spilling at scale: bounds from prices, the sweep over time, exchanges; each against the others and brute force."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import pytest

from npu_memplan.planners import plan
from npu_memplan.planners import spill as spill_sweep
from npu_memplan.planners.first_fit import Layout
from npu_memplan.planners.model import Model
from npu_memplan.planners.registry import Context
from npu_memplan.planners.spill import Assigner, Exchange, Sweep, branch, relax, sweep
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
def test_bound_sweep_and_tree_agree(seed: int) -> None:
    model = Model(problem_of(16, seed, THREE) if seed % 2 else problem_of(24, seed, TWO))
    assigner = Assigner(Context(model))
    flexible = [item.index for item in model.items]
    relaxation = relax(assigner, model.cost_of([item.pools[-1] for item in model.items]))
    swept, proven = sweep(assigner, relaxation, flexible, None)
    grown, complete = branch(assigner, relaxation, flexible, swept)
    assert swept is not None
    assert grown is not None
    assert proven
    assert complete
    assert grown.cost == swept.cost
    assert 0 < relaxation.bound <= swept.cost
    # the bound holds for every assignment with its `extra`, here for the best one
    extra = sum(relaxation.extra[i][model.items[i].pools.index(swept.pools[i])] for i in flexible)
    assert relaxation.bound + extra <= swept.cost + 1e-6


def test_assignments_come_up_in_order_of_cost() -> None:
    model = Model(problem_of(8, 3, TWO, 2))
    assigner = Assigner(Context(model))
    relaxation = relax(assigner, 1000.0)
    found = Sweep(assigner, relaxation, list(range(8)), None).cheapest_first([])
    swept = [(cost, tuple(chosen[i] for i in range(8))) for cost, chosen in found]
    fits = []
    for pools in product((0, 1), repeat=8):
        if max(assigner.loads(pools)[0]) <= 150:
            fits.append((model.cost_of(pools), pools))
    assert [cost for cost, _ in swept] == pytest.approx(sorted(cost for cost, _ in fits))
    assert {pools for _, pools in swept} == {pools for _, pools in fits}


@pytest.mark.parametrize("seed", [1, 2])
def test_sixty_buffers_are_of_least_cost(seed: int) -> None:
    problem = problem_of(60, seed, TWO)
    answer = plan(problem)
    assert verify(problem, answer) == ()
    model = Model(problem)
    pools, origins = model.layout(answer.placements)
    cost = model.cost_of(pools)
    assigner = Assigner(Context(model))
    dearer = Layout(pools, origins, [u.used_bytes for u in answer.usage], cost + 1)
    swept, proven = sweep(assigner, relax(assigner, cost), list(range(60)), dearer)
    assert proven
    assert swept is not None
    assert swept.cost == pytest.approx(cost)


def test_a_sweep_that_is_too_wide_says_so() -> None:
    """Dozens live at once in three pools: far more states than can be kept, and no proof."""
    model = Model(problem_of(60, 1, THREE, 4))
    assigner = Assigner(Context(model))
    layers = Sweep(assigner, relax(assigner, 1e9), list(range(60)), None)
    assert layers.wide
    assert sweep(assigner, relax(assigner, 1e9), list(range(60)), None)[1] is False


def test_a_sweep_that_visits_too_much_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way back ends with its allowance, without a proof; of equal costs the furthest goes on first."""
    same = tuple(Buffer(f"x{k}", 10, (Lifetime(k // 4, k // 4 + 1),), 1, read_bytes=100) for k in range(40))
    assigner = Assigner(Context(Model(Problem(same, (pool("sram", 20, 16.0), TWO[1])))))
    layers = Sweep(assigner, relax(assigner, 1e9), list(range(40)), None)
    assert not layers.wide
    monkeypatch.setattr(spill_sweep, "EXPANSIONS", 2 * len(layers.layers))
    assert next(layers.cheapest_first([]), None) is not None  # 6 ** 10 assignments cost the same
    assert not layers.wide
    nothing = [(p, frozenset({0})) for p in (0, 1)]
    assert list(layers.cheapest_first(nothing)) == []
    assert layers.wide


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


def test_exchanges_only_improve_and_keep_their_books() -> None:
    model = Model(problem_of(80, 2, THREE))
    assigner = Assigner(Context(model))
    start = assigner.layout([item.pools[-1] for item in model.items])
    assert start is not None
    exchange = Exchange(assigner, start, 0)
    found = exchange.search(start, 0.0, 200)
    assert found.cost < start.cost
    assert found.cost == pytest.approx(model.cost_of(found.pools))
    assert exchange.cost == pytest.approx(model.cost_of(exchange.pools))
    assert exchange.loads == assigner.loads(exchange.pools)
