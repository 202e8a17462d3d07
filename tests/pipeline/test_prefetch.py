"""Copies of weights run ahead: without a byte more where there is room, and with room made for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import npu_memplan
from npu_memplan import planners
from npu_memplan.planners import prefetch
from npu_memplan.problem import Buffer, BufferKind, Lifetime, Plan, PlanStatus, Pool, Problem
from npu_memplan.verify import verify
from tests.support.real_data import Models


def buffer(name: str, size: int, first: int, last: int, kind: BufferKind = BufferKind.TENSOR) -> Buffer:
    return Buffer(name, size, (Lifetime(first, last),), 1, kind=kind)


def layers(*weights: int, maps: tuple[int, ...]) -> Problem:
    """A chain: copy k at point 2k, its layer at 2k + 1 reads map k and makes map k + 1."""
    buffers = [buffer(f"w{k}", size, 2 * k, 2 * k + 2, BufferKind.WEIGHTS) for k, size in enumerate(weights)]
    for k, size in enumerate(maps):
        buffers.append(buffer(f"m{k}", size, max(0, 2 * k - 1), 2 * k + 2))
    return Problem(tuple(buffers), (Pool("sram"),))


def meet(problem: Problem, plan: Plan, first: str, second: str) -> bool:
    """Whether two buffers have a byte in common."""
    sizes = {b.name: b.size_bytes for b in problem.buffers}
    a, b = plan.placement(first).offset_bytes, plan.placement(second).offset_bytes
    return a < b + sizes[second] and b < a + sizes[first]


def test_a_copy_leaves_what_runs_alone_where_the_peak_has_room() -> None:
    problem = layers(10, 20, 10, maps=(60, 30, 10, 5))
    alone = planners.plan(problem)
    ahead = prefetch.run_ahead(problem, alone)
    assert verify(problem, ahead) == ()
    assert (ahead.usage, ahead.status) == (alone.usage, alone.status)
    assert alone.usage[0].used_bytes == 100  # w0, m0 and m1 at point 1
    assert not meet(problem, ahead, "w2", "w1")  # copied while layer 1 reads w1, m1 and writes m2
    assert not any(meet(problem, ahead, "w2", name) for name in ("m1", "m2"))
    assert meet(problem, ahead, "w1", "w0") or meet(problem, ahead, "w1", "m0") or meet(problem, ahead, "w1", "m1")


def test_a_plan_that_is_not_the_lowest_may_become_lower() -> None:
    problem = layers(10, 20, 10, maps=(60, 30, 10, 5))
    alone = planners.plan(problem)
    raised = tuple(replace(p, offset_bytes=p.offset_bytes + 50) for p in alone.placements)
    high = replace(
        alone, placements=raised, usage=(replace(alone.usage[0], used_bytes=150),), status=PlanStatus.FEASIBLE
    )
    ahead = prefetch.run_ahead(problem, high)
    assert verify(problem, ahead) == ()
    assert ahead.usage[0].used_bytes < 150


def test_nothing_changes_where_every_point_is_full() -> None:
    problem = layers(10, 10, 10, maps=(40, 50, 40, 50))
    alone = planners.plan(problem)
    assert prefetch.run_ahead(problem, alone) is alone
    roomy = planners.plan(prefetch.with_room(problem))
    assert verify(problem, roomy) == ()
    assert (alone.usage[0].used_bytes, roomy.usage[0].used_bytes) == (100, 110)


def sooner(problem: Problem, names: set[str]) -> Problem:
    """The buffers called `names` begin one point earlier."""
    moved = []
    for b in problem.buffers:
        (life,) = b.lifetimes
        moved.append(replace(b, lifetimes=(Lifetime(life.first - (b.name in names), life.last),)))
    return replace(problem, buffers=tuple(moved))


def test_where_bytes_suffice_but_places_do_not_the_larger_half_waits() -> None:
    sizes = (4, 4, 3, 3, 4, 3)
    copies = [buffer(f"w{k}", size, 2 * k, 2 * k + 2, BufferKind.WEIGHTS) for k, size in enumerate(sizes)]
    others = (buffer("m0", 4, 8, 10), buffer("m1", 1, 9, 13), buffer("m2", 2, 3, 8))
    problem = Problem((*copies, *others), (Pool("sram"),))
    alone = planners.plan(problem)
    assert alone.usage[0].used_bytes == 9
    wished = sooner(problem, {"w1", "w2", "w3", "w4"})  # 9 bytes at most live at once, 10 needed
    assert (planners.plan(wished).usage[0].used_bytes, planners.plan(wished).status) == (10, PlanStatus.OPTIMAL)
    ahead = prefetch.run_ahead(problem, alone)
    assert ahead.usage == alone.usage
    assert verify(sooner(problem, {"w2", "w3"}), ahead) == ()


def test_other_planners_are_taken_at_their_word() -> None:
    problem = layers(10, 20, 10, maps=(60, 30, 10, 5))
    assert prefetch.plan(problem, "greedy-by-size") == planners.plan(problem, "greedy-by-size")
    assert prefetch.plan(problem).planner == "auto"


@pytest.mark.slow
def test_a_real_model_waits_less(cli, tmp_path: Path, shared_model: Models) -> None:
    model = shared_model("kws_ref_model")
    made = {}
    options: dict[str, dict[str, Any]] = {
        "free": {"objective": "bytes", "effort": "quick"},
        "roomy": {"prefetch": True},
        "full": {"prefetch": True, "pools": {"sram": 20752}},
    }
    for name, given in options.items():
        artifact = npu_memplan.compile(model, tmp_path / name, **given)
        made[name] = (artifact.pool_bytes("sram"), artifact.estimated_cycles)
    assert made["full"][0] <= made["free"][0]
    assert made["full"][1] < 0.8 * made["free"][1]  # a size was given: the fewest cycles in it
    assert made["free"][0] == 20752 < made["roomy"][0] <= 22192
    assert made["roomy"][1] < made["free"][1]
    for name in ("free", "roomy"):
        cli.bit_exact(tmp_path / name, model, "--input", "random:2")
