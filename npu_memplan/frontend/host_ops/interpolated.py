"""int16 LOGISTIC, TANH, SOFTMAX, EXP and LOG: tables of the reference, and interpolation between their entries.

Invariant: the tables are the reference's own, computed here: 256 values of the sigmoid with 16 fraction bits, each
lowered by half the error of linear interpolation around it; 513 of exp, log and 1 / (1 + x), in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ...fixed_point.interpolation import SOFTMAX_UNIT, interpolation_table, softmax_tables
from ...fixed_point.multiplier import f32, quantise_multiplier
from ...models.tensor import Tensor
from .common import require_rows, require_same_shape, require_same_type
from .fixed_tir import leading_zeros, multiply_by_quantised
from .operator import Lowering, require
from .tir import Buffer, Expr, Function, cast, clamp, const, largest, load, row_indices, select, smallest


def sigmoid_table() -> npt.NDArray[np.uint16]:
    """sigmoid(i / 24), i = 0..255, with 16 fraction bits."""

    def sigmoid(x: float) -> float:
        return 1.0 / (1.0 + math.exp(-x))

    values = []
    for i in range(255):
        chord = (sigmoid((i - 0.5) / 24) + sigmoid((i + 0.5) / 24)) / 2
        error = (chord - sigmoid(i / 24)) * 65536
        values.append(math.floor(65536 * sigmoid(i / 24) - error / 2 + 0.5))
    return np.array([*values, 65535], np.uint16)


def store_sigmoid16(work: Lowering, data: Tensor, output: Tensor, is_tanh: bool) -> None:
    """Statements of one int16 operator; the input is brought to units of 1 / (3 x 4096)."""
    require(data.zero_point == output.zero_point == 0, "int16 needs zero points of 0")
    require_same_shape(data, output)
    right = output.scale == 2.0**-15
    require(right, f"its int16 output has scale {output.scale}; the reference demands 1/32768")
    multiplier, shift = _input_scale(data.scale, is_tanh)
    source, table = work.read(0, "input"), work.table("sigmoid", sigmoid_table())

    def result(place: list[Expr]) -> Expr:
        x = load(source, *place) * const(multiplier)
        if shift:
            x = (x + const(1 << (shift - 1))) >> const(shift)
        return sigmoid16(work.function, table, x, is_tanh)

    work.fill(result)


def sigmoid16(function: Function, table: Buffer, x: Expr, is_tanh: bool) -> Expr:
    """sigmoid or tanh with 15 fraction bits of x / (3 x 4096), by interpolation in `sigmoid_table`."""
    bits = 8 if is_tanh else 9
    x = function.bind(x, "x")
    size = function.bind(select(x < 0, const(0) - x, x), "size")
    index = function.bind(smallest(size >> const(bits), const(254)), "index")
    lower = function.bind(load(table, index), "lower")
    between = (size & const((1 << bits) - 1)) * (load(table, index + const(1)) - lower)
    saturated = const(0xFFFF << 8 if is_tanh else 0x7FFF << 10)
    inside = (lower << const(bits)) + between
    y = function.bind(select((size >> const(bits)) >= 255, saturated, inside), "y")
    if is_tanh:
        one, half = 1 << 23, 1 << 7
        return select(x >= 0, y + const(half - one), const(one + half - 1) - y) >> const(8)
    half = 1 << 9
    return select(x >= 0, y + const(half), const((1 << 25) + half - 1) - y) >> const(10)


def _input_scale(scale: float, is_tanh: bool) -> tuple[int, int]:
    """(multiplier, right shift) from the input's units to 1 / (3 x 4096)."""
    mantissa, exponent = math.frexp(scale)
    if mantissa == 0.5:  # a power of two: 2^(exponent - 1)
        left = 12 + exponent - 1
        if left == 0 or (is_tanh and left == 1):
            return 3 << left, 0
    multiplier, shift = scale * 4096.0 * 3.0, 0
    while multiplier <= 32767.0 / 2.0 and shift <= 30:
        shift += 1
        multiplier *= 2.0
    return int(multiplier), shift


def store_softmax16(work: Lowering, data: Tensor, output: Tensor, beta: float) -> None:
    """Statements of the operator."""
    require_same_type((data, output), ("int16",))
    right = data.zero_point == output.zero_point == 0 and math.isclose(output.scale, 1 / 32768, rel_tol=1e-3)
    require(right, "int16 needs zero points of 0 and an output scale of 1/32768")
    multiplier, shift = quantise_multiplier(data.scale * beta / SOFTMAX_UNIT)
    require_rows(data, output)
    depth = data.shape[-1]
    rows = math.prod(data.shape) // depth
    function = work.function
    source = work.read(0, "input")
    exponential, inverse = softmax_tables()
    exp_table, inverse_table = work.table("exp_table", exponential), work.table("inverse_table", inverse)
    target = work.write()
    exponents = function.scratch("exponents", (depth,), "int16")
    peak, total = function.local("peak"), function.local("total")
    with function.loop(rows, "row") as row:
        peak.set(const(-32768))
        with function.loop(depth, "c") as c:
            peak.set(largest(peak.get(), load(source, *row_indices(row, c, data.shape))))
        total.set(const(0))
        with function.loop(depth, "c") as c:
            difference = load(source, *row_indices(row, c, data.shape)) - peak.get()
            scaled = multiply_by_quantised(function, difference, multiplier, shift)
            power = function.bind(_look_up(function, exp_table, scaled + const(32767)), "power")
            function.store(exponents, power, c)
            total.add(power)
        zeros = leading_zeros(function, total.get())
        shifted = (cast(total.get(), "int64") << cast(zeros - const(1), "int64")) + const(1 << 13, "int64")
        place = cast(shifted >> const(14, "int64"), "int32") - const((1 << 15) + (1 << 16))
        reciprocal = function.bind(_look_up(function, inverse_table, place), "inverse")
        right = function.bind(const(31) - zeros, "right")
        half = function.bind(const(1) << (right - const(1)), "half")
        with function.loop(depth, "c") as c:
            product = cast(load(exponents, c), "int64") * cast(reciprocal, "int64") + cast(half, "int64")
            result = cast(product >> cast(right, "int64"), "int32")
            function.store(target, clamp(result, 0, 32767), *row_indices(row, c, output.shape))


def store_function16(work: Lowering, data: Tensor, output: Tensor, curve: Callable[[float], float]) -> None:
    """Statements of one int16 operator that is `curve`; LiteRT's slopes and results have 16 bits, and wrap."""
    require(data.zero_point == output.zero_point == 0, "int16 needs zero points of 0")
    require_same_shape(data, output)
    source = work.read(0, "input")
    table = work.table("table", interpolation_table(curve, f32(data.scale), 0, f32(output.scale)))
    work.fill(lambda place: _wrapped(_look_up(work.function, table, load(source, *place), _wrapped)))


def _wrapped(value: Expr) -> Expr:
    """The 16 bits of a number, with their sign."""
    return ((value + const(32768)) & const(65535)) - const(32768)


def _look_up(
    function: Function, table: Buffer, value: Expr, slope_of: Callable[[Expr], Expr] = lambda difference: difference
) -> Expr:
    """A table of 512 steps over the int16 range, interpolated; `value` is limited to int16 first."""
    value = function.bind(clamp(value, -32768, 32767), "place")
    index = function.bind((value >> const(7)) + const(256), "index")
    base = function.bind(load(table, index), "base")
    slope = slope_of(load(table, index + const(1)) - base)
    return base + ((slope * (value & const(127)) + const(64)) >> const(7))
