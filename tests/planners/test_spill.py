"""Several pools: what leaves the fast one is what costs least, proven where small."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import pytest

from npu_memplan.planners import PlanningError, plan
from npu_memplan.planners.model import Model
from npu_memplan.problem import Buffer, Lifetime, Plan, Pool, Problem
from npu_memplan.verify import verify

FAST = Pool("sram", 100, read_bandwidth_bytes_per_cycle=16.0, write_bandwidth_bytes_per_cycle=16.0)
SLOW = Pool(
    "dram",
    None,
    read_bandwidth_bytes_per_cycle=4.0,
    write_bandwidth_bytes_per_cycle=4.0,
    read_latency_cycles=50,
    write_latency_cycles=25,
)
LIVE = (Lifetime(0, 1),)


def cost(problem: Problem, answer: Plan) -> float:
    model = Model(problem)
    pools, _ = model.layout(answer.placements)
    return sum(model.spill_cost(i, pool) for i, pool in enumerate(pools))


def test_candidates_are_taken_in_order_when_nothing_is_known_of_speed() -> None:
    pools = (Pool("a", 50), Pool("b", 50), Pool("c"))
    problem = Problem(tuple(Buffer(f"x{k}", 40, LIVE, 1) for k in range(3)), pools)
    assert sorted(p.pool for p in plan(problem).placements) == ["a", "b", "c"]
    choosy = replace(problem, buffers=tuple(replace(b, pools=("c", "a")) for b in problem.buffers))
    assert {p.pool for p in plan(choosy).placements} == {"c"}


def test_latency_and_clock_count() -> None:
    # the second pool has the same width but half the clock
    half = replace(FAST, name="half", size_bytes=None, clock_hz=500_000_000)
    full = replace(FAST, clock_hz=1_000_000_000)
    model = Model(Problem((Buffer("x", 16, LIVE, 1, read_bytes=160),), (full, half)))
    assert (model.access_cost(0, 0), model.access_cost(0, 1)) == (10.0, 20.0)
    late = Model(Problem((Buffer("x", 16, LIVE, 1, read_bytes=16, write_bytes=16),), (FAST, SLOW)))
    assert late.access_cost(0, 1) == 4 + 4 + 50 + 25


@pytest.mark.parametrize("seed", range(40))
def test_small_assignments_are_of_least_cost(seed: int) -> None:
    """Against every assignment, packed by the planner itself with the pools decided."""
    random = Random(seed)
    buffers = []
    for k in range(6):
        first = random.randint(0, 4)
        lives = (Lifetime(first, first + random.randint(1, 3)),)
        buffers.append(Buffer(f"x{k}", random.randint(10, 70), lives, 1, read_bytes=random.randint(1, 2000)))
    problem = Problem(tuple(buffers), (FAST, replace(SLOW, size_bytes=150)))
    model = Model(problem)
    least: float | None = None
    for pools in product(("sram", "dram"), repeat=6):
        decided = replace(problem, buffers=tuple(replace(b, pools=(p,)) for b, p in zip(buffers, pools, strict=True)))
        names = {b.name: p for b, p in zip(buffers, pools, strict=True)}
        total = sum(model.spill_cost(i.index, int(names[i.name] == "dram")) for i in model.items)
        if least is not None and total >= least:
            continue
        try:
            plan(decided)
        except PlanningError:
            continue
        least = total
    if least is None:
        with pytest.raises(PlanningError):
            plan(problem)
        return
    answer = plan(problem)
    assert verify(problem, answer) == ()
    assert cost(problem, answer) == pytest.approx(least)


def test_many_spill_near_the_relaxed_bound() -> None:
    """200 buffers: no more cost than greedy first fit, and every byte of the fast pool's peak used well."""
    random = Random(5)
    buffers = []
    for k in range(200):
        first = random.randint(0, 100)
        lives = (Lifetime(first, first + random.randint(1, 12)),)
        buffers.append(Buffer(f"x{k}", random.randint(1, 40), lives, 1, read_bytes=random.randint(1, 4000)))
    problem = Problem(tuple(buffers), (FAST, SLOW))
    answer, greedy = plan(problem), plan(problem, "first-fit")
    assert verify(problem, answer) == ()
    assert cost(problem, answer) < 0.7 * cost(problem, greedy)
