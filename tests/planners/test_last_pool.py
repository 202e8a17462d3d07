"""The last pool of several, when it has no size, is made low too."""

from __future__ import annotations

import random

from npu_memplan import planners, verify
from npu_memplan.planners import prefetch
from npu_memplan.problem import Buffer, Lifetime, Plan, PlanStatus, Pool, Problem


def height(plan: Plan, pool: str) -> int:
    return next(u.used_bytes for u in plan.usage if u.pool == pool)


def random_problem(seed: int) -> Problem:
    generator = random.Random(seed)
    buffers = []
    for i in range(30):
        first = generator.randint(0, 15)
        life = Lifetime(first, first + generator.randint(1, 8))
        size = generator.randint(1, 60) * 16
        traffic = generator.randint(0, 9) * size
        buffers.append(Buffer(f"b{i}", size, (life,), read_bytes=traffic, write_bytes=size))
    return Problem(tuple(buffers), (Pool("sram", 600), Pool("dram")))


def test_a_poor_plan_becomes_a_good_one_and_the_first_pool_keeps_what_it_holds():
    improved = 0
    for seed in range(8):
        problem = random_problem(seed)
        poor = planners.plan(problem, "first-fit")
        good = prefetch.lower_last_pool(problem, poor, "dram")
        verify.check(problem, good)
        alone = planners.plan(Problem(problem.buffers, (Pool("dram"),)))
        assert height(good, "dram") <= min(height(poor, "dram"), height(alone, "dram"))
        assert [p for p in good.placements if p.pool == "sram"] == [p for p in poor.placements if p.pool == "sram"]
        improved += height(good, "dram") < height(poor, "dram")
    assert improved >= 4


def test_what_is_planned_is_never_worse():
    problem = random_problem(3)
    before, after = planners.plan(problem), prefetch.plan_last_pool(problem, "auto", 0)
    verify.check(problem, after)
    assert height(after, "dram") <= height(before, "dram")


def test_one_pool_and_named_planners_are_left_alone():
    problem = random_problem(3)
    assert prefetch.plan_last_pool(problem, "first-fit", 0) == planners.plan(problem, "first-fit")
    one = Problem(problem.buffers, (Pool("dram"),))
    assert prefetch.plan_last_pool(one, "auto", 0).status is PlanStatus.OPTIMAL
