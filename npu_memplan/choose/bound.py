"""Cycles that no choice of copies goes below, for the operations of a program as they are.

Invariant: a bound, never an estimate: each constant that is read crosses its port once, and no kernel is faster than
with its constants in the fastest memory.
"""

from __future__ import annotations

from ..ethosu.program.program import NpuProgram
from ..ethosu.schedule.copies.course import Course
from ..ethosu.schedule.copies.reads import in_place, pieces
from ..ethosu.schedule.copies.search import without_copies
from ..ethosu.time import MemoryMap
from ..stages import Planned
from .placed import npu_calls
from .ranking import Ranking
from .travel import fast_pool


def port_bound(planned: Planned, where: MemoryMap) -> int:
    """Cycles of the constants' port, each constant once: what no program of the same constants goes below."""
    return sum(_port(in_place(call.program), where) for call in npu_calls(planned.posed.program))


def bound_of(planned: Planned, rank: Ranking) -> int:
    """Cycles of all NPU calls: the port's for all constants once, or the kernels' with copies of them."""
    problem, plan, where = planned.posed.problem, planned.plan, rank.where
    fast = fast_pool(problem.pools, where)
    total = 0
    for call in npu_calls(planned.posed.program):
        program = in_place(call.program)
        kernels = 0
        if fast is not None:
            places = call.places(problem, plan)
            course = Course(program, pieces(program), places.__getitem__, rank.fitted(program.accelerator), fast + 1)
            kernels = without_copies(course.with_all_copied()).cycles
        total += max(_port(program, where), kernels)
    return total


def _port(program: NpuProgram, where: MemoryMap) -> int:
    beats = sum(parcel.size_bytes for parcel in pieces(program)) / program.accelerator.port_bytes
    return round(beats / where.regions[0].clock_scale)
