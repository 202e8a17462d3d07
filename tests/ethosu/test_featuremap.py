"""Byte ranges of feature maps against a set of bytes collected one element at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.program.access import (
    AccessError,
    FeatureMap,
    Role,
    accesses,
    strided_ranges,
)
from npu_memplan.ethosu.stream.decode import Operation
from npu_memplan.ethosu.stream.fields import IFM, OFM
from npu_memplan.ethosu.stream.isa import PoolMode, Register, Upscale
from npu_memplan.ethosu.stream.isa import Register as R
from npu_memplan.vela.lift import join_runs
from tests.support.hand_made import conv, dma, elementwise, lut_dma, pool, view
from tests.support.provenance import element_bytes, shapes

U55 = accelerator("ethos-u55-256")


def _bytes(ranges: Any) -> set[int]:
    return {b for start, stop in ranges.tolist() for b in range(start, stop)}


def _is_canonical(ranges: Any) -> bool:
    flat = ranges.ravel()
    return bool(np.all(flat[1:] > flat[:-1])) if len(flat) else True


_extents = st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 40))


@st.composite
def _views(draw: Any) -> tuple[Operation, tuple[int, int, int]]:
    shape = draw(_extents)
    bits = draw(st.sampled_from((8, 16, 32)))
    brick = draw(st.booleans())
    strides = None
    if draw(st.booleans()):
        strides = tuple(draw(st.integers(0, 300)) * bits // 8 for _ in range(3))
    splits = tuple(draw(st.integers(1, 6)) for _ in range(3))
    tiles = tuple(draw(st.integers(0, 50)) * 16 for _ in range(4))
    made = view("OFM", 0, shape, brick=brick, bits=bits, strides=strides, splits=splits, tiles=tiles)
    return Operation(elementwise({}, {}).op, 6, made), shape


@given(_views())
def test_ranges_are_the_bytes_of_every_element(made: tuple[Operation, tuple[int, int, int]]) -> None:
    op, shape = made
    expected = element_bytes(op, "OFM", *shape)
    fm = FeatureMap.ofm(op)
    assert (fm.height, fm.width, fm.depth) == shape
    assert _bytes(fm.ranges()) == set(expected.ravel().tolist())
    assert _is_canonical(fm.ranges())
    low, high = fm.span()
    assert low == expected.min()
    assert high >= expected.max() + 1


@given(_views(), st.data())
def test_boxes_are_the_bytes_of_their_elements(made: tuple[Operation, tuple[int, int, int]], data: Any) -> None:
    op, shape = made
    box = []
    for extent in shape:
        start = data.draw(st.integers(0, extent - 1))
        box.append((start, data.draw(st.integers(start + 1, extent))))
    fm = FeatureMap.ofm(op)
    inside = element_bytes(op, "OFM", *shape).reshape(*shape, -1)[tuple(slice(a, b) for a, b in box)]
    assert _bytes(fm.box_ranges(*box)) == set(inside.ravel().tolist())


@given(st.integers(0, 100), st.integers(0, 20), st.lists(st.tuples(st.integers(0, 4), st.integers(0, 40)), max_size=3))
def test_strided_ranges_are_all_their_runs(base: int, run: int, dimensions: list[tuple[int, int]]) -> None:
    starts = [base]
    for count, stride in dimensions:
        starts = [s + i * stride for s in starts for i in range(count)]
    expected = {b for s in starts for b in range(s, s + run)}
    assert _bytes(strided_ranges(base, run, dimensions)) == expected


@settings(max_examples=60)
@given(
    st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 20)),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.integers(1, 2),
    st.tuples(*(st.integers(0, 2),) * 4),
    st.booleans(),
)
def test_inputs_have_the_extent_that_their_window_needs(
    shape: tuple[int, int, int], kernel: tuple[int, int], stride: int, pads: tuple[int, int, int, int], brick: bool
) -> None:
    ofm = view("OFM", 0, shape)
    op = conv(view("IFM", 4096, (16, 16, 24), brick=brick), ofm, depth=24, kernel=kernel, stride=stride, pads=pads)
    wanted = shapes(op)["IFM"]
    if min(wanted[:2]) > 0:
        fm = FeatureMap.ifm(op)
        assert (fm.height, fm.width, fm.depth) == wanted
        assert _bytes(fm.ranges()) == set(element_bytes(op, "IFM", *wanted).ravel().tolist())


def test_accesses_of_a_convolution_with_two_cores_and_a_table() -> None:
    r = Register
    extra = {
        r.PARALLEL_MODE: 1, r.WEIGHT1_BASE: 512, r.WEIGHT1_LENGTH: 32, r.SCALE1_BASE: 600, r.SCALE1_LENGTH: 0,
        r.ACTIVATION: 16 + 2,
    }  # fmt: skip
    op = conv(view("IFM", 0, (2, 2, 8)), view("OFM", 64, (2, 2, 4)), depth=8, weights=(2, 128, 64), extra=extra)
    found = {a.role: (a.region, a.ranges.tolist(), a.is_write) for a in accesses(op, accelerator("ethos-u65-512"))}
    lut = accelerator("ethos-u65-512").lut_address
    assert found == {
        Role.IFM: (1, [[0, 32]], False),
        Role.WEIGHTS: (2, [[128, 192], [512, 544]], False),
        Role.SCALES: (0, [[64, 80]], False),  # core 1 has no channels: length 0
        Role.LUT: (0x103, [[lut + 512, lut + 768]], False),
        Role.OFM: (1, [[64, 80]], True),
    }


def test_broadcast_inputs_are_read_once() -> None:
    op = elementwise(
        view("IFM", 0, (2, 3, 4)), view("OFM", 100, (2, 3, 4)), view("IFM2", 50, (1, 3, 1)), broadcast=1 | 4
    )
    found = {a.role: a.ranges.tolist() for a in accesses(op, U55)}
    assert found[Role.IFM2] == [[50, 53]]
    scalar = elementwise(
        view("IFM", 0, (2, 3, 4)), view("OFM", 100, (2, 3, 4)), view("IFM2", 50, (1, 1, 1)), broadcast=128
    )
    assert Role.IFM2 not in {a.role for a in accesses(scalar, U55)}


def test_reduce_sum_reads_all_input_channels() -> None:
    op = pool(
        view("IFM", 0, (1, 1, 32), bits=32), view("OFM", 256, (1, 1, 1), bits=32), mode=PoolMode.REDUCE_SUM, depth=32
    )
    assert accesses(op, U55)[0].ranges.tolist() == [[0, 128]]


def test_transfers_into_the_npu_are_no_memory_region() -> None:
    source, target = accesses(lut_dma(16, 1), U55)
    assert (source.region, source.ranges.tolist(), source.is_write) == (0, [[16, 272]], False)
    assert (target.region, target.ranges.tolist(), target.is_write) == (
        0x103, [[U55.lut_address + 256, U55.lut_address + 512]], True)  # fmt: skip


def test_two_dimensional_transfers_are_refused() -> None:
    with pytest.raises(AccessError, match="DMA0_SRC_REGION = 0x200 selects a 2D/3D transfer"):
        accesses(dma((0x200, 0), (1, 0), 16), U55)


def test_a_register_that_was_never_set_is_named() -> None:
    op = elementwise(view("IFM", 0, (1, 1, 1)), view("OFM", 16, (1, 1, 1)))
    registers = dict(op.registers)
    del registers[Register.OFM_PRECISION]
    with pytest.raises(AccessError, match=r"ELEMENTWISE at stream offset .* needs register OFM_PRECISION"):
        accesses(Operation(op.op, op.parameter, registers), U55)


# -- Kernels that go on where the one before ended become one; anything else stays as it is


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
