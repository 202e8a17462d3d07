"""The joint statement of schedule, prefetching and places: a bound of the clock, and copies that can be made."""

from __future__ import annotations

import random
from functools import lru_cache
from itertools import combinations

import pytest

from benchmarks.exact_prefetch import planned_in_place, programs
from npu_memplan.ethosu.schedule.prefetch.copies import Choice, DmaSchedule, FreeCapacity, FreeRanges, OccupiedRange
from npu_memplan.ethosu.schedule.prefetch.search import WORK, CopySearch
from npu_memplan.ethosu.schedule.prefetch.timed_program import TimedProgram
from npu_memplan.options import CompileOptions
from tests.support.joint_prefetch import JointSchedule, solve_jointly
from tests.support.prefetch_oracle import Greedy, Room, replayed
from tests.tuning.conftest import MODELS

pytest.importorskip("ortools", reason="the solver is in the extra `exact`")
NETWORKS = [("micro_speech_quantized", "tvm", 7_000), ("kws_ref_model", "vela", 22_192)]


@lru_cache(4)
def stated(name: str, compiler: str, limit_bytes: int) -> tuple[TimedProgram, FreeCapacity]:
    options = CompileOptions(npu_compiler=compiler, objective="cycles").resolve_defaults()
    (found,) = programs(planned_in_place(MODELS / f"{name}.tflite", options), limit_bytes)
    return found


@lru_cache(4)
def solved(name: str, compiler: str, limit_bytes: int) -> JointSchedule:
    return solve_jointly(*stated(name, compiler, limit_bytes), grain_cycles=64, seconds=2)


def drawn(timed: TimedProgram, space: FreeCapacity, seed: int) -> DmaSchedule:
    """What the greedy rule makes of a choice by chance."""
    chance, constants = random.Random(seed), range(len(timed.constants))
    kept = frozenset(k for k in constants if chance.random() < chance.choice((0.0, 0.3, 0.8)))
    leads = {k: chance.choice((1, 2, 4, 9)) for k in constants if chance.random() < 0.5}
    return Greedy(timed, space, Choice(kept, leads, fifo=chance.random() < 0.5)).made


@pytest.mark.parametrize("network", NETWORKS, ids=[name for name, _, _ in NETWORKS])
def test_no_schedule_takes_fewer_cycles_than_the_bound(network: tuple[str, str, int]) -> None:
    timed, space = stated(*network)
    joint = solved(*network)
    for seed in range(40):
        assert drawn(timed, space, seed).cycles >= joint.bound_cycles
    assert joint.bound_cycles <= joint.model_cycles
    assert joint.schedule.cycles >= joint.bound_cycles > 0
    assert joint.schedule.cycles < replayed(timed, ()).cycles  # its copies are worth something


@pytest.mark.parametrize("network", NETWORKS, ids=[name for name, _, _ in NETWORKS])
def test_the_search_finds_no_slower_copies_than_the_solver(network: tuple[str, str, int]) -> None:
    search = CopySearch(*stated(*network))
    search.search_on(WORK // 2)
    assert solved(*network).bound_cycles <= search.best.cycles <= solved(*network).schedule.cycles


@pytest.mark.parametrize("network", NETWORKS, ids=[name for name, _, _ in NETWORKS])
def test_the_copies_fit_and_take_what_the_clock_says(network: tuple[str, str, int]) -> None:
    timed, space = stated(*network)
    schedule, room = solved(*network).schedule, Room(space)
    for copy in schedule.copies:
        constant = timed.constants[copy.constant]
        assert copy.before <= constant.readers[0]
        first, last = max(0, copy.before - copy.unfinished), constant.readers[-1]
        assert room.full_at(constant.size_bytes, first, last) < 0
        room.take(constant.size_bytes, first, last, copy.at)
    assert replayed(timed, schedule.copies) == schedule


def test_copies_lie_beside_the_maps_and_each_other() -> None:
    timed, space = stated(*NETWORKS[1])
    maps = [OccupiedRange(0, len(timed) // 2, 4_096, 8_192), OccupiedRange(8, len(timed) - 1, 12_000, 16_000)]
    room = FreeRanges(maps, space.limit_bytes, len(timed))
    copies = solve_jointly(timed, room, 128, 2).schedule.copies
    lies = [
        OccupiedRange(
            max(0, copy.before - copy.unfinished),
            timed.constants[copy.constant].readers[-1],
            copy.at,
            copy.at + timed.constants[copy.constant].size_bytes,
        )
        for copy in copies
    ]
    assert lies
    assert max(one.stop for one in lies) <= space.limit_bytes
    for one, other in [*combinations(lies, 2), *((one, there) for one in lies for there in maps)]:
        apart = one.last < other.first or other.last < one.first
        assert apart or one.stop <= other.start or other.stop <= one.start
