"""A memory that several NPUs share: bytes of one take as long as those of all, one after the other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.time import Direction, Memory, Pulse, Requester, Traffic, served_in_turn

SRAM = Memory("sram", 0, 1.0, Direction(32), Direction(32))
SMALL, LARGE = accelerator("ethos-u55-128"), accelerator("ethos-u55-256")  # 8 bytes a beat, 64 a request


def own(memory: Memory = SRAM, clock_hz: float = 400e6) -> Requester:
    return Requester(LARGE, clock_hz, memory)


@pytest.mark.parametrize(
    ("other_hz", "count", "times", "wait"),
    [
        (400e6, 1, 2.0, 8),  # each gets half; a request of the other takes 64 / 8 cycles
        (400e6, 2, 3.0, 16),
        (100e6, 1, 2.0, 8),  # a slow port keeps the memory no longer than a fast one
        (800e6, 1, 1.5, 4),  # the memory is faster than we see it: of 3 parts of its time we need 2
    ],
)
def test_every_npu_has_its_turn(other_hz: float, count: int, times: float, wait: int) -> None:
    shared = served_in_turn(own(), [Requester(SMALL, other_hz, SRAM)] * count)
    moved = Traffic(8000, 1000, 125)
    assert shared.busy(moved) == pytest.approx(times * SRAM.busy(moved))
    assert shared.read.latency == shared.write.latency == 32 + wait


def test_alone_nothing_changes() -> None:
    assert served_in_turn(own(), []) == SRAM


@pytest.mark.parametrize("words", [0, 8, 50])
def test_a_timing_adapter_lets_one_npu_pass_at_a_time(words: int) -> None:
    adapted = replace(SRAM, pulse=Pulse(40, 60, words))
    shared = served_in_turn(own(adapted), [Requester(LARGE, 400e6, adapted)])
    moved = Traffic(6400, 800, 100)
    assert shared.busy(moved) == pytest.approx(2 * adapted.busy(moved))
