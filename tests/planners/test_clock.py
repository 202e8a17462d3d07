"""The clock of time limits never goes back, and quiet blocks of several threads end together."""

from __future__ import annotations

import gc
import threading

import pytest

from npu_memplan import clock
from npu_memplan.planners import Context, gc_paused, plan, registry
from npu_memplan.problem import Buffer, Lifetime, Placement, Pool, Problem


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
