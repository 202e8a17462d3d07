"""The search for copies in C and in Python: the same schedules of the same choices, to the last bit of a double."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from npu_memplan.compiled import CFunctions, c_library
from npu_memplan.ethosu.arch import Architecture, Channel, accelerator
from npu_memplan.ethosu.program.access import Role
from npu_memplan.ethosu.schedule.constants import ConstantBlock
from npu_memplan.ethosu.schedule.prefetch import search as searching
from npu_memplan.ethosu.schedule.prefetch.copies import (
    Choice,
    DmaSchedule,
    Found,
    FreeCapacity,
    FreeRanges,
    OccupiedRange,
)
from npu_memplan.ethosu.schedule.prefetch.search import FEWEST_CYCLES, CopySearch, Goal, NativeSearch, without_copies
from npu_memplan.ethosu.schedule.prefetch.timed_program import TimedOp, TimedProgram, TimedRun
from npu_memplan.ethosu.stream.decode import Operation
from npu_memplan.ethosu.stream.isa import Op, Register
from npu_memplan.ethosu.time import MODELS, MemoryMap, ResourceUse, Traffic
from npu_memplan.ethosu.time.cost import Load
from npu_memplan.ethosu.time.memory import Direction, Memory, Pulse
from tests.support.prefetch_oracle import LocalSearch, Room

pytestmark = pytest.mark.skipif(bool(c_library().missing), reason="needs a C compiler")

U55 = accelerator("ethos-u55-256")
U65 = accelerator("ethos-u65-512")  # two transfers in flight
U85 = accelerator("ethos-u85-256")  # waits for commands, readers with buffers
OTHER = replace(U55, launch_cycles=7, awaits_response=True, max_outstanding_kernels=3)
NPUS = {"u55": U55, "u65": U65, "u85": U85, "other": OTHER}
NOMINAL, ONE_MODEL, DRAWN = 100, 120, 170  # then under the other models of memories, then under all


class Draws:
    """Courses, free bytes and choices that no compiler made."""

    def __init__(self, seed: int, npu: Architecture) -> None:
        self.seed, self.random, self.npu, self.halves = seed, Random(seed), npu, seed % 2 == 0
        latency = [Direction(self.random.randrange(90)) for _ in range(6)]
        flash, pulse = (
            Memory("flash", 1, 0.125, latency[0], latency[1]),
            Pulse(4000, 3000, 0) if seed % 4 == 1 else None,
        )
        sram, dram = Memory("sram", 0, 1.0, latency[2], latency[3]), Memory("dram", 1, 0.3, *latency[4:], pulse)
        stream, assumptions = self.random.choice([flash, dram]), MODELS[0 if seed < NOMINAL else 1 + seed % 2]
        self.memory_map = MemoryMap({0: flash, 1: sram, 2: dram}, stream, assumptions=assumptions)

    def timed_program(self) -> TimedProgram:
        count = self.random.randint(1, 30)
        timed = object.__new__(TimedProgram)
        timed.program = SimpleNamespace(accelerator=self.npu)  # type: ignore[assignment]
        timed.memory_map, timed._transfers, timed.constants = self.memory_map, {}, tuple(self._pieces(count))
        timed.reads = {i: k for k, constant in enumerate(timed.constants) for i in constant.readers}
        timed._demand_caches = SimpleNamespace(resource_uses=lambda copy: self._needs(Op.DMA_START))  # type: ignore[assignment]
        timed._fast_region = 1
        ops = [Op.CONV if i in timed.reads or self.random.random() < 0.7 else Op.DMA_START for i in range(count)]
        timed._steps = [self._step(i, ops) for i in range(count)]
        return timed

    def _pieces(self, count: int) -> Iterator[ConstantBlock]:
        readers = [i for i in range(count) if self.random.random() < 0.6]
        while readers:
            mine = sorted({readers[0], *(r for r in readers[1:] if self.random.random() < 0.1)})
            readers = [r for r in readers if r not in mine]
            sizes = [
                (16 if self.halves else 15) * self.random.randint(1, 60) for _ in range(self.random.choice((1, 1, 2)))
            ]
            yield ConstantBlock(
                "constants", tuple((4096 * i, 4096 * i + size) for i, size in enumerate(sizes)), tuple(mine)
            )

    def _step(self, index: int, ops: list[Op]) -> TimedOp:
        draw = self.random
        kernels = tuple(draw.randrange(3) for _ in range(draw.choice((0, 0, 1, 2))))
        behind = frozenset(i for i in range(index) if ops[i] is Op.DMA_START and draw.random() < 0.5)
        slow = self._needs(ops[index])
        return TimedOp(draw.randint(2, 40), slow, draw.choice((slow, self._needs(ops[index]))), kernels, behind)

    def _needs(self, op: Op) -> ResourceUse:
        draw = self.random
        roles = [(Role.IFM, False), (Role.IFM2, False), (Role.WEIGHTS, False), (Role.SCALES, False), (Role.OFM, True)]
        loads = []
        for role, writes in roles:
            if draw.random() < 0.7:
                cycles = draw.randrange(1, 1800) / 2 if self.halves else draw.uniform(0.5, 900)
                memory = self.memory_map.regions[draw.randrange(3)]
                asking = draw.choice((cycles, 1.5 * cycles))
                channel = draw.choice((None, *Channel)) if self.npu.in_flight_bytes and not writes else None
                loads.append(Load(role, memory, writes, Traffic(64, 8, 1), cycles, channel, asking))
        blocks = draw.randint(1, 9)
        operation = Operation(op, 0, {Register.BLOCKDEP: draw.randrange(4), Register.AB_START: draw.randrange(2)})
        work = (0, 0) if op is Op.DMA_START else (draw.randrange(2000), draw.randrange(900))
        return ResourceUse(operation, *work, tuple(loads), 0, blocks, blocks * draw.randint(1, 3))

    def space(self, timed: TimedProgram) -> FreeCapacity:
        draw, held, limit = self.random, [], self.random.randint(900, 4500)
        for _ in range(draw.randrange(12)):  # some holes are alike
            first, start = draw.randrange(len(timed)), 128 * draw.randrange(limit // 128)
            last, size = min(len(timed) - 1, first + draw.randrange(5)), draw.choice((100, 128, 384, 896))
            held.append(OccupiedRange(first, last, start, min(limit - limit % 16, start + size)))
        return draw.choice((FreeCapacity, FreeRanges))(held, limit, len(timed))

    def choice(self, timed: TimedProgram) -> Choice:
        draw, constants = self.random, range(len(timed.constants))
        max_lead = {k: draw.randrange(12) for k in constants if draw.random() < 0.5}
        kept = frozenset(k for k in constants if draw.random() < 0.2)
        return Choice(kept, max_lead, fifo=draw.random() < 0.4, from_top=draw.random() < 0.4)

    def goal(self, timed: TimedProgram) -> Goal:
        """The fewest cycles, or the least part of references under all models."""
        if self.seed < ONE_MODEL:
            return FEWEST_CYCLES
        others = []
        for model in MODELS:
            if model != self.memory_map.assumptions:
                others.append(copy(timed))
                others[-1].memory_map = replace(timed.memory_map, assumptions=model)
        references = tuple(self.random.uniform(2000, 3000) for _ in MODELS)
        if self.seed % 3:
            return Goal(tuple(others), references)
        alone = tuple(self.random.uniform(-0.05, 0.2) for _ in timed.constants)
        return Goal(tuple(others), references, alone, self.random.uniform(-0.1, 0.5))


@lru_cache
def drawn(seed: int, npu: str) -> tuple[TimedProgram, FreeCapacity, Choice, Goal, DmaSchedule, Found]:
    """A course, free bytes, a choice and a goal; and what Python makes of them: a schedule, and where a search goes."""
    draws = Draws(seed, NPUS[npu])
    timed = draws.timed_program()
    space, choice, goal = draws.space(timed), draws.choice(timed), draws.goal(timed)
    trials = LocalSearch(timed, space, seed, goal)
    made = trials.schedule(choice)
    return timed, space, choice, goal, made, trials.search_on(Found(choice, goal.cost(made), made), work(timed))


def work(timed: TimedProgram) -> int:
    return 4 * max(8, len(timed))


def differs(seed: int, npu: str) -> bool:
    timed, space, choice, goal, made, further = drawn(seed, npu)
    compiled_trials = NativeSearch(timed, space, seed, goal)
    if compiled_trials.schedule(choice) != made:
        return True
    return compiled_trials.search_on(Found(choice, goal.cost(made), made), work(timed)) != further


@pytest.mark.parametrize("npu", NPUS)
def test_c_makes_the_schedules_that_python_makes(npu: str) -> None:
    made = [drawn(seed, npu)[4] for seed in range(DRAWN)]
    assert sum(bool(one.copies) for one in made) > DRAWN // 2
    assert {copy.unfinished for one in made for copy in one.copies} == {0, 1, 2}
    assert not [seed for seed in range(DRAWN) if differs(seed, npu)]


def test_what_is_found_can_be_run() -> None:
    """Its cycles are those of the clock, and no byte is used twice."""
    for seed in range(DRAWN):
        timed, space = drawn(seed, "u65")[:2]
        search = CopySearch(timed, space)
        search.search_on(2000)
        run, left = TimedRun(timed), Room(space)
        sent = {copy.constant: copy for copy in search.best.copies}
        for index in range(len(timed)):
            for sent_now in (c for c in search.best.copies if c.before == index):
                constant = timed.constants[sent_now.constant]
                first = max(0, index - sent_now.unfinished)
                assert left.full_at(constant.size_bytes, first, constant.readers[-1]) < 0
                rows = left.held[(left.held[:, 0] <= constant.readers[-1]) & (left.held[:, 1] >= first)]
                assert not ((rows[:, 2] < sent_now.at + constant.size_bytes) & (rows[:, 3] > sent_now.at)).any()
                left.take(constant.size_bytes, first, constant.readers[-1], sent_now.at)
                run.copy(sent_now.constant, sent_now.unfinished)
            run.step(index, timed.reads.get(index) in sent)
        assert run.cycles == search.best.cycles


def test_where_c_cannot_be_built_no_copies_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = (drawn(seed, "u55")[:2] for seed in range(DRAWN))
    timed, space = next(both for both in programs if CopySearch(*both).best.copies)
    assert NativeSearch.usable(timed)
    monkeypatch.setattr(searching, "c_library", lambda: CFunctions(None, "no compiler"))
    assert not NativeSearch.usable(timed)
    search = CopySearch(timed, space)
    search.search_on(1000)
    search.try_out(Choice(fifo=True))
    assert search.best == without_copies(timed)


def test_a_missing_compiler_is_reported(tmp_path: Path) -> None:
    model = Path(__file__).resolve().parents[1] / "models" / "micro_speech_quantized.tflite"
    requested = ["compile", str(model), "-o", str(tmp_path / "made"), "--npu-compiler", "tvm", "--pool", "sram=8192"]
    environment = {
        **os.environ,
        "CC": "no-such-compiler",
        "NPU_MEMPLAN_CACHE": str(tmp_path / "cache"),
        "COLUMNS": "400",
    }
    done = subprocess.run(
        [sys.executable, "-m", "npu_memplan", *requested], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = " ".join((done.stdout + done.stderr).split())
    assert (
        "the compiled searches are not available, so no copies of constants were searched: no C compiler found" in said
    )
