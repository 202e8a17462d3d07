"""Slices of other sizes for single operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from npu_memplan.ethosu.program.program import NpuProgram
from npu_memplan.ethosu.schedule.blocks import places
from npu_memplan.ethosu.schedule.constants import constant_blocks, weights_of
from npu_memplan.ethosu.schedule.prefetch.copies import FreeCapacity, OccupiedRange
from npu_memplan.ethosu.schedule.prefetch.search import WORK, stretch_ranges, tune_slices
from npu_memplan.ethosu.schedule.prefetch.timed_program import DemandCache, TimedProgram
from npu_memplan.options import CompileOptions
from npu_memplan.stages import Planned
from npu_memplan.tuning.candidate import slicers
from tests.support.prefetch_oracle import best_copies

LIMIT, MOST = 16_000, 4_096
# bytes of the pool, and of a slice where nothing else is said


class Sliced:
    """A model whose maps hold `tight` bytes of the pool all the time."""

    def __init__(self, planned: Planned, tight: int) -> None:
        (self.slicer,) = (slicer for _, slicer in slicers(planned.extracted, {}, {}).values())
        memory_map = CompileOptions(
            "ethos-u55-256", npu_compiler="tvm", memory_mode="Shared_Sram", objective="bytes"
        ).memory_map()
        assert memory_map is not None
        self.memory_map, program = memory_map, self.slicer.program
        self.held = [OccupiedRange(0, len(program.operations) - 1, 0, tight)]
        self.place, self.demand_cache = places(program, memory_map), DemandCache(program.accelerator, memory_map)

    def timed_program(self, program: NpuProgram) -> TimedProgram:
        return TimedProgram(program, constant_blocks(program), self.place, self.demand_cache, 2)

    def optimistic_cycles(self, others: Mapping[int, int]) -> int:
        """As copies are searched for slices of these sizes from the start."""
        program = self.slicer.slice_convolutions(MOST, others) or self.slicer.program
        timed = self.timed_program(program)
        space = FreeCapacity([OccupiedRange(0, len(timed) - 1, 0, self.held[0].stop)], LIMIT, len(timed))
        return best_copies(timed, space, WORK // 8).cycles

    def better(self, optimistic_cycles: int) -> Mapping[int, int]:
        return tune_slices(self.slicer, MOST, self.timed_program, self.held, LIMIT, optimistic_cycles)


@pytest.fixture
def sliced(planned: Callable[..., Planned]) -> Sliced:
    return Sliced(planned("kws_ref_model", "tvm"), 12_000)


def test_what_is_found_promises_less_and_is_found_again(sliced: Sliced) -> None:
    before = sliced.optimistic_cycles({})
    found = sliced.better(before)
    assert found
    assert sliced.optimistic_cycles(found) < before
    assert sliced.better(before) == found


def test_nothing_is_found_where_nothing_promises_less(sliced: Sliced) -> None:
    assert not sliced.better(0)


def test_who_reads_the_same_weights_has_the_same_slices(sliced: Sliced) -> None:
    found = sliced.better(1 << 40)
    operations = sliced.slicer.program.operations
    readers: dict[object, set[int | None]] = {}
    for index, operation in enumerate(operations):
        if sliced.slicer.weight_bytes(operation):
            readers.setdefault(weights_of(operation), set()).add(found.get(index))
    assert all(len(sizes) == 1 for sizes in readers.values())


def test_sizes_of_single_operations_are_kept(sliced: Sliced) -> None:
    slicer = sliced.slicer
    index = max(range(len(slicer.program.operations)), key=lambda i: slicer.weight_bytes(slicer.program.operations[i]))
    parts = slicer.parts(1 << 40, {index: 1_024})
    assert [i for i, made in enumerate(parts) if len(made) > 1] == [index]
    assert [slicer.weight_bytes(made) for made in parts[index]] == [1_040] * 4  # 16 channels of 64 each


@pytest.mark.parametrize(
    ("counts", "first", "last"),
    [((1, 1, 1, 1), 1, 2), ((1, 3, 2, 1), 1, 5), ((4, 1, 1, 2), 4, 5), ((2, 2, 2, 2), 2, 5)],
)
def test_maps_are_held_while_all_slices_run(counts: tuple[int, ...], first: int, last: int) -> None:
    assert list(stretch_ranges([OccupiedRange(1, 2, 16, 48)], counts)) == [OccupiedRange(first, last, 16, 48)]
