"""Rounding, tables, and the operations that compilers do not emit, against integers of any size."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fvp_runner.npu_model.arithmetic import rescale
from fvp_runner.npu_model.arithmetic.rescale import Clamped, Scale
from fvp_runner.npu_model.model import NpuModel
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.stream.isa import ElementwiseMode, Op, Rounding
from tests.support.assembler import Assembler, elementwise


def oracle(value: int, multiplier: int, shift: int, rounding: Rounding) -> int:
    """The description of each rounding mode, on fractions."""
    exact = Fraction(value * multiplier, 1 << shift)
    if rounding is Rounding.TRUNCATE:
        return math.trunc(exact)
    if rounding is Rounding.NATURAL or shift <= 31:
        return math.floor(exact + Fraction(1, 2)) if shift else value * multiplier
    first = math.floor(Fraction(value * multiplier, 1 << 31) + Fraction(1, 2))
    second = Fraction(abs(first), 1 << (shift - 31))
    magnitude = math.floor(second + Fraction(1, 2))
    return magnitude if first >= 0 else -magnitude


SCALES = st.tuples(st.integers(0, (1 << 32) - 1), st.integers(0, 63))


@settings(max_examples=300)
@given(st.integers(-(1 << 39), 1 << 39), SCALES, st.sampled_from(list(Rounding)))
def test_exact_rescaling(value: int, scale: tuple[int, int], rounding: Rounding) -> None:
    want = max(min(oracle(value, *scale, rounding), 1 << 62), -(1 << 62))
    assert int(Scale.single_scale(*scale, rounding).rescale_exact(np.array([value]))[0]) == want


@settings(max_examples=300)
@given(
    st.lists(st.integers(-(1 << 24), 1 << 24), min_size=1, max_size=30),
    st.lists(st.tuples(st.integers(1 << 29, (1 << 31) - 1), st.integers(20, 50)), min_size=1, max_size=4),
    st.integers(-(1 << 22), 1 << 22),
    st.integers(-128, 127),
    st.sampled_from(list(Rounding)),
)
def test_clamped_output_is_exact_whatever_way_it_is_computed(
    values: list[int], scales: list[tuple[int, int]], bias: int, zero: int, rounding: Rounding
) -> None:
    channels = len(scales)
    scale = Scale(np.array([m for m, _ in scales]), np.array([n for _, n in scales]), rounding)
    # Ties between two results are where rounding shows: look for them on purpose.
    values = [
        *values,
        *((1 << (n - 1)) // m - bias for m, n in scales),
        *(-(1 << (n - 1)) // m - bias for m, n in scales),
    ]
    sums = np.repeat(np.array(values)[:, None], channels, axis=1)
    biases = np.full(channels, bias, np.int64)
    reach = float(np.abs(sums).max() + 2 * abs(bias))
    for bound in (reach, 2.0**60):  # the second forces the path on integers or clamping alone
        clamp = Clamped(scale, biases, zero, -128, 127, bound)
        got = clamp(sums.astype(np.float64), np.empty(sums.shape))
        for row, value in enumerate(values):
            for channel, (m, n) in enumerate(scales):
                want = min(max(oracle(value + bias, m, n, rounding) + zero, -128), 127)
                assert got[row, channel] == want, (value + bias, m, n, rounding)
    tiled = Clamped(scale, biases, zero, -128, 127, reach)
    if tiled.exact:
        flat = sums.reshape(1, -1).astype(np.float64)
        again = tiled.repeat_pixels(len(values))(flat, np.empty(flat.shape))
        assert np.array_equal(again.reshape(sums.shape), tiled(sums.astype(np.float64), np.empty(sums.shape)))


def test_interpolated_look_up() -> None:
    base, slope = np.arange(512) * 3 - 700, np.arange(512) - 256
    table = (slope << 16) | (base & 0xFFFF)
    value = np.array([-32768, -32767, -1, 0, 64, 32767])
    index, rest = (value + 32768) >> 7, (value + 32768) & 127
    want = [
        b + math.floor(Fraction(int(s) * int(r), 128) + Fraction(1, 2))
        for b, s, r in zip(base[index], slope[index], rest, strict=True)
    ]
    assert rescale.look_up_16(table, value).tolist() == want


SHAPE = (2, 3, 4)


def int32(*values: int) -> np.ndarray:
    return np.resize(np.array(values, np.int64), SHAPE).astype(np.int32)


def test_count_leading_zeros() -> None:
    values = int32(0, 1, 2, 255, 256, (1 << 31) - 1, -1, -(1 << 31))
    out, _ = elementwise(ElementwiseMode.CLZ, values, None, "int32")
    want = [0 if v < 0 else 32 - int(v).bit_length() for v in values.reshape(-1).tolist()]
    assert out.reshape(-1).tolist() == want


@pytest.mark.parametrize("rounding", list(Rounding))
def test_shift_right_rounds_as_the_output_does(rounding: Rounding) -> None:
    a, b = int32(0, 1, -1, 5, -5, 6, -6, 7, 1 << 30, -(1 << 31)), int32(0, 1, 2, 3, 31, 1, 2)
    out, stats = elementwise(ElementwiseMode.SHR, a, b, "int32", OFM_PRECISION=5 | rounding << 14)

    def want(x: int, n: int) -> int:
        exact = Fraction(x, 1 << n)
        if rounding is Rounding.TRUNCATE:
            return math.floor(exact)
        if rounding is Rounding.NATURAL or x >= 0:
            return math.floor(exact + Fraction(1, 2))
        return -math.floor(-exact + Fraction(1, 2))

    pairs = zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True)
    assert out.reshape(-1).tolist() == [want(x, n) for x, n in pairs]
    assert bool(stats.messages) == (rounding is Rounding.TRUNCATE)


@pytest.mark.parametrize("rounding", list(Rounding))
@pytest.mark.parametrize("operand", [1, 2])
def test_the_scaled_operand_of_a_sum_is_rounded_as_ifm_precision_says(rounding: Rounding, operand: int) -> None:
    """Half of one operand, the other zero: what the rounding makes of halves is what comes out."""
    values = np.resize(np.arange(-12, 12), SHAPE).astype(np.int8)
    a, b = (values, values * 0) if operand == 1 else (values * 0, values)
    precision = 1 | operand << 8 | rounding << 14
    out, stats = elementwise(ElementwiseMode.ADD, a, b, "int8", IFM_PRECISION=precision, OPA_SCALE=1 | 1 << 32)
    want = [oracle(v << 20, 1, 21, rounding) for v in values.reshape(-1).tolist()]
    assert out.reshape(-1).tolist() == want
    assert bool(stats.messages) == (rounding is Rounding.TRUNCATE)


def test_shift_left_saturates() -> None:
    a, b = int32(1, -1, 3, 1 << 20, -(1 << 20)), int32(0, 31, 4, 15, 20)
    out, _ = elementwise(ElementwiseMode.SHL, a, b, "int32")
    want = [
        min(max(x << n, -(1 << 31)), (1 << 31) - 1)
        for x, n in zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True)
    ]
    assert out.reshape(-1).tolist() == want


def test_add_of_32_bits_saturates() -> None:
    a, b = int32((1 << 31) - 1, -(1 << 31), 5), int32((1 << 31) - 1, -(1 << 31), 6)
    out, _ = elementwise(ElementwiseMode.ADD, a, b, "int32")
    assert out.reshape(-1)[:3].tolist() == [(1 << 31) - 1, -(1 << 31), 11]


def test_leaky_relu_scales_negative_values_and_says_it_is_not_confirmed() -> None:
    values = np.resize(np.arange(-12, 12), SHAPE).astype(np.int8)
    out, stats = elementwise(ElementwiseMode.LRELU, values, None, "int8", OFM_SCALE=1 << 30 | 32 << 32)
    want = [v if v >= 0 else oracle(v, 1 << 30, 32, Rounding.TFL) for v in values.reshape(-1).tolist()]
    assert out.reshape(-1).tolist() == want
    assert stats.messages == (
        "LRELU is modelled from its description; no reference confirms it (first at operation 0 (ELEMENTWISE at "
        "stream offset 0xf0))",
    )


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_transfers_of_one_to_three_dimensions(dimensions: int) -> None:
    source, target = np.arange(256, dtype=np.uint8), np.zeros(256, np.uint8)
    s = Assembler().set(BLOCKDEP=0, DMA0_SRC_REGION=dimensions - 1 << 9, DMA0_SRC=3, DMA0_DST_REGION=1, DMA0_DST=8)
    s.set(DMA0_LEN=5, DMA0_SIZE0=3, DMA0_SIZE1=2, DMA0_SKIP0=4, DMA0_SKIP1=20)
    stats = NpuModel(accelerator("ethos-u65-256")).run(s.op(Op.DMA_START).stop(), [source, target])
    rows = [list(range(3, 8))]
    if dimensions > 1:
        rows = [list(range(3 + 9 * i, 8 + 9 * i)) for i in range(3)]
    if dimensions > 2:
        rows += [[v + 27 + 20 for v in row] for row in rows]
    want = [v for row in rows for v in row]
    assert target[8 : 8 + len(want)].tolist() == want
    assert not target[8 + len(want) :].any()
    assert bool(stats.messages) == (dimensions > 1)


def test_average_with_padding_divides_by_the_elements_inside() -> None:
    memory = np.zeros(0x200, np.uint8)
    image = np.arange(-8, 8, dtype=np.int8).reshape(4, 4, 1)
    memory[:16] = image.reshape(-1).view(np.uint8)
    s = (
        Assembler()
        .feature_map("IFM", (4, 4, 1), 0, zero_point=3)
        .feature_map("OFM", (4, 4, 1), 0x100, zero_point=3, more_precision=256)
    )
    s.kernel(3, 3, pads=(1, 1, 1, 1)).common().set(OFM_SCALE=1)
    NpuModel(accelerator("ethos-u55-256")).run(s.op(Op.POOL, 1).stop(), [None, memory])
    got = memory[0x100:0x110].view(np.int8).reshape(4, 4)
    for y in range(4):
        for x in range(4):
            window = image[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2].astype(int) - 3
            mean = Fraction(int(window.sum()), window.size)
            rounded = math.floor(abs(mean) + Fraction(1, 2)) * (1 if mean >= 0 else -1)
            assert got[y, x] == rounded + 3
