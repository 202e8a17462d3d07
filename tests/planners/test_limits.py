"""Limits: a planner that is late answers with what it has, or with something quick, and says so; errors name heights.

No test here looks at a clock: time is up because the limit is 0, and small problems are treated as if they were large.
"""

from __future__ import annotations

import gc
import threading
from dataclasses import replace
from random import Random

import pytest

from npu_memplan import clock
from npu_memplan.planners import Context, PlanningError, gc_paused, model, plan, registry
from npu_memplan.planners.first_fit import QUICK, quick_layout
from npu_memplan.planners.model import Model
from npu_memplan.problem import AllowedOverlap, Buffer, Lifetime, Placement, PlanStatus, Pool, Problem
from npu_memplan.verify import verify
from tests.support.claims import outcome
from tests.support.planner_cases import crowded, hard, related
from tests.support.random_problems import BUILT_IN, from_graph, random_problem


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is looked at before every pair, as it is now and then in large problems."""
    monkeypatch.setattr(model, "CHECK_EVERY", 0)


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("planner", [name for name in BUILT_IN if name != "linear"])
def test_every_planner_has_a_valid_plan_when_its_time_is_over(planner: str) -> None:
    for problem in (crowded(60, 1), crowded(60, 2, True), related(60, 3)):
        answer = plan(problem, planner, time_limit_s=0.0)
        assert verify(problem, answer) == ()
        assert answer.stopped_early
        assert answer.note == QUICK


@pytest.mark.usefixtures("late")
def test_out_of_time_is_a_plan_or_an_error_that_says_so_for_any_problem() -> None:
    planned = 0
    for seed in range(150):
        problem = random_problem(seed, 8)
        answer = outcome(problem, "auto", time_limit_s=0.0)
        if isinstance(answer, PlanningError):
            assert answer.excess_bytes > 0
            assert answer.proven or "the budget ended the search before it had a plan" in str(answer), seed
        elif answer is not None:
            assert verify(problem, answer) == ()
            planned += 1
    assert planned > 60


def test_thousands_of_items_begin_no_pairs_when_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixed places send them past the compiled passes, to first fit, which once listed every pair before it looked."""
    plain, taken = crowded(3_000, 1), 0
    buffers = []
    for number, buffer in enumerate(plain.buffers):
        at = -(-taken // buffer.alignment) * buffer.alignment
        if number % 50 == 0:
            buffer, taken = replace(buffer, fixed=("m", at)), at + buffer.size_bytes
        buffers.append(buffer)
    zones: list[int] = []
    monkeypatch.setattr(Model, "zones", lambda self, i, j: zones.append(i))
    looked: list[bool] = []
    monkeypatch.setattr(Model, "late", lambda self: looked.append(True) or True)
    answer = plan(replace(plain, buffers=tuple(buffers)), time_limit_s=0.0)
    assert (answer.note, zones, looked) == (QUICK, [], [True])


def test_a_quick_layout_is_valid_with_time_in_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer spans than points: what shares a span is kept apart, whether it meets or not."""
    monkeypatch.setattr("npu_memplan.planners.first_fit.SPANS", 5)
    for seed in range(40):
        problem = crowded(30, seed) if seed % 2 else related(30, seed)
        restated = Model(problem)
        layout = quick_layout(restated)
        assert not isinstance(layout, int)
        answer = replace(plan(problem, "linear"), placements=restated.placements(layout.pools, layout.origins))
        assert not [v for v in verify(problem, answer) if v.constraint.value == "overlap"]


@pytest.mark.usefixtures("late")
def test_a_plan_in_hand_is_kept_when_time_is_up_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Late only from the second pass of first fit on: the first one's layout stands."""
    looks = iter(range(10**9))
    monkeypatch.setattr(Model, "late", lambda self: next(looks) > 400)
    problem = crowded(60, 4)
    for planner in ("first-fit", "hill-climb", "auto"):
        looks = iter(range(10**9))
        answer = plan(problem, planner, time_limit_s=60.0)
        assert answer.note == ""
        assert answer.usage[0].used_bytes < plan(problem, "linear").usage[0].used_bytes / 2


def test_what_a_pool_requires_is_the_height_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that ends without a plan or a proof names first fit as what needs so much, not the least."""
    problem = hard(crowded(150, 0), 1.0)
    with pytest.raises(PlanningError) as caught:
        plan(problem, "fit", node_budget=0)
    error = caught.value
    loose = replace(problem, pools=(Pool("m"),))
    assert error.required_bytes == plan(loose, "greedy-by-size").usage[0].used_bytes
    assert f"required {error.required_bytes} bytes (by first fit), available" in str(error)
    assert "the budget ended the search before it had a plan, or a proof that there is none" in str(error)
    assert (error.proven, error.source) == (False, "by first fit")


def test_linear_needs_what_it_says_and_nothing_for_no_bytes() -> None:
    """Once: a buffer of no bytes behind a full pool "required 100 bytes, available 100, excess 0"."""
    full = Buffer("full", 100, (Lifetime(0, 1),), 1)
    empty = Buffer("empty", 0, (Lifetime(1, 2),), 16)
    assert plan(Problem((full, empty), (Pool("m", 100),)), "linear").usage[0].used_bytes == 100
    more = Buffer("more", 30, (Lifetime(1, 2),), 16)
    with pytest.raises(PlanningError) as caught:
        plan(Problem((full, empty, more), (Pool("m", 100),)), "linear")
    assert "required 142 bytes (without any reuse), available 100, excess 42" in str(caught.value)


def test_no_error_has_no_excess() -> None:
    # the last few once named a pool with room to spare
    for seed, most in [*((seed, 8) for seed in range(100)), (193, 8), (1357, 16), (1598, 40), (5757, 16)]:
        problem = random_problem(seed, most)
        for planner in BUILT_IN:
            error = outcome(problem, planner, node_budget=500)
            if isinstance(error, PlanningError):
                assert error.required_bytes - error.available_bytes == error.excess_bytes > 0, (seed, planner)


def test_a_bound_found_in_no_time_is_sound_and_proves_nothing_false(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npu_memplan.planners.bounds.CHECK_EVERY", 0)
    random = Random(0)
    edges = [(a, b) for a in range(40) for b in range(a) if random.random() < 0.5]
    graph = from_graph([random.randint(1, 9) for _ in range(40)], edges)
    trailing = replace(
        crowded(40, 2, True), overlaps=tuple(AllowedOverlap(f"b{k}", f"b{k + 1}", None, -16) for k in range(0, 39, 3))
    )
    for problem in (graph, trailing):
        full = plan(problem, node_budget=20_000)
        hurried = plan(problem, time_limit_s=0.0)
        assert hurried.usage[0].lower_bound_bytes <= full.usage[0].used_bytes
        assert hurried.status is PlanStatus.FEASIBLE or hurried.usage[0].used_bytes <= full.usage[0].used_bytes


# -- The clock of time limits never goes back, and quiet blocks of several threads end together


def test_nested_pauses_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 100.0
    monkeypatch.setattr(clock, "seconds", lambda: seconds)
    before = clock.clock_s()
    with clock.pause_clock():
        seconds += 1
        with clock.pause_clock():
            seconds += 1
            assert clock.clock_s() == before
        assert clock.clock_s() == before
    assert clock.clock_s() == before
    seconds += 1
    assert clock.clock_s() == before + 1


def test_a_limit_is_of_all_searches_inside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 100.0
    monkeypatch.setattr(clock, "seconds", lambda: seconds)
    assert clock.left_of(9) == 9
    with clock.limit_searches(5):
        assert clock.left_of(9) == 5
        seconds += 2
        assert (clock.left_of(9), clock.left_of(1), clock.is_over()) == (3, 1, False)
        with clock.limit_searches(None), clock.limit_searches(50):
            assert clock.left_of(9) == 3
            with clock.limit_searches(1):
                assert clock.left_of(9) == 1
        seconds += 4
        assert (clock.left_of(9), clock.is_over()) == (0, True)
    assert (clock.left_of(9), clock.is_over()) == (9, False)


def test_plans_share_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two searches that never end by themselves, on a clock that each look at moves on."""
    looks = 0

    def seconds() -> float:
        nonlocal looks
        looks += 1
        return looks / 100

    def endless(problem: Problem, context: Context) -> tuple[Placement, ...]:
        while not context.is_exhausted():
            pass
        return (Placement("a", "sram", 0),)

    monkeypatch.setattr(clock, "seconds", seconds)
    monkeypatch.setitem(registry._PLANNERS, "endless", endless)
    problem = Problem((Buffer("a", 16, (Lifetime(0, 1),)),), (Pool("sram"),))
    with clock.limit_searches(10):
        for _ in range(5):
            assert plan(problem, "endless", time_limit_s=10).budget == "10 s"
    assert 1000 <= looks < 1200


def test_no_thread_ends_the_quiet_of_another() -> None:
    entered, leave, seen = threading.Event(), threading.Event(), []

    def other() -> None:
        with gc_paused():
            entered.set()
            leave.wait(10)
            seen.append(gc.isenabled())

    assert gc.isenabled()
    thread = threading.Thread(target=other)
    with gc_paused():
        thread.start()
        assert entered.wait(10)
    leave.set()
    thread.join()
    assert seen == [False]
    assert gc.isenabled()
