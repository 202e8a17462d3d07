"""The clock of time limits never goes back, and quiet blocks of several threads end together."""

from __future__ import annotations

import gc
import threading

import pytest

from npu_memplan import clock
from npu_memplan.planners import gc_paused


def test_nested_pauses_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 100.0
    monkeypatch.setattr(clock, "seconds", lambda: seconds)
    before = clock.now()
    with clock.paused():
        seconds += 1
        with clock.paused():
            seconds += 1
            assert clock.now() == before
        assert clock.now() == before
    assert clock.now() == before
    seconds += 1
    assert clock.now() == before + 1


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
