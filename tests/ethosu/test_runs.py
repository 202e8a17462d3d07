"""Kernels that go on where the one before ended become one; anything else stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npu_memplan.ethosu.program.access import FeatureMap
from npu_memplan.ethosu.stream.decode import Operation
from npu_memplan.ethosu.stream.fields import IFM, OFM
from npu_memplan.ethosu.stream.isa import Register as R
from npu_memplan.ethosu.stream.isa import Upscale
from npu_memplan.vela.lift import join_runs
from tests.support.hand_made import dma, pool, view

WIDTH, DEPTH = 3, 2
ROW = WIDTH * DEPTH


def rows(count: int, each: int = 4, source: int = 0, target: int = 1 << 20) -> list[Operation]:
    """Pools of `each` rows, one behind the other."""
    shape = (each, WIDTH, DEPTH)
    return [pool(view("IFM", source + at, shape), view("OFM", target + at, shape))
            for at in range(0, count * each * ROW, each * ROW)]  # fmt: skip


def touched(operations: list[Operation], of: Callable[[Operation], FeatureMap]) -> np.ndarray:
    return np.concatenate([np.arange(a, b) for o in operations for a, b in of(o).ranges().tolist()])


def test_a_run_is_one_kernel_over_the_same_bytes_in_the_same_order() -> None:
    run = rows(40)
    joined = join_runs(run)
    assert [o[R.OFM_HEIGHT_M1] for o in joined] == [159]
    assert joined[0].offset_bytes == run[0].offset_bytes
    for of in (FeatureMap.ifm, FeatureMap.ofm):
        np.testing.assert_array_equal(touched(joined, of), touched(run, of))


def test_what_stands_between_or_behind_stays() -> None:
    others = [dma((0, 0), (1, 64), 16), *rows(33, source=4000, target=1 << 21)]
    assert [o[R.OFM_HEIGHT_M1] for o in join_runs([*rows(50), *others]) if o.op != others[0].op] == [199, 131]


def test_a_short_run_is_a_choice_of_the_compiler() -> None:
    assert [len(join_runs(rows(count))) for count in (31, 32)] == [31, 1]


def test_registers_of_sixteen_bits_hold_no_more_than_65536_rows() -> None:
    assert [o[R.OFM_HEIGHT_M1] + 1 for o in join_runs(rows(20000))] == [65536, 80000 - 65536]


@pytest.mark.parametrize(
    "changes",
    [
        {R.IFM_BASE0: 4 * ROW + 1},
        {R.OFM_BASE0: (1 << 20) + 5 * ROW},
        {R.ACTIVATION_MAX: 100},
        {R.KERNEL_HEIGHT_M1: 1},
        {R.KERNEL_STRIDE: 2},
        {R.IFM_PAD_TOP: 1},
        {R.IFM_UPSCALE: Upscale.NEAREST},
        {IFM.height0: 1},
        {OFM.height1: 1},
        {R.IFM_REGION: 2},
    ],
)
def test_other_kernels_are_not_joined(changes: dict[Any, int]) -> None:
    half = rows(32)
    assert len(join_runs([*half[:16], *(o.with_registers(changes) for o in half[16:])])) == 32
    if R.IFM_BASE0 not in changes and R.OFM_BASE0 not in changes and R.ACTIVATION_MAX not in changes:
        alike = [o.with_registers(changes) for o in half]
        assert len(join_runs(alike)) == (1 if R.IFM_REGION in changes else 32)


def test_a_run_that_reads_what_it_writes_stays() -> None:
    """The second kernel reads what the first wrote, as the joined one would not."""
    assert len(join_runs(rows(40, source=0, target=4 * ROW))) == 40
    assert len(join_runs(rows(40, source=0, target=0))) == 40


def test_another_parameter_is_another_kernel() -> None:
    run = [replace(o, parameter=o.parameter ^ (place % 2)) for place, o in enumerate(rows(40))]
    assert len(join_runs(run)) == 40
