"""int16 LOGISTIC and TANH: a table of the sigmoid and interpolation.

Invariant: the table is TFLite's own 256 values with 16 fraction bits, reproduced from the
sigmoid: each entry is lowered by half the error of linear interpolation around it.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ...models.tensor import Tensor
from .operator import Lowering, require
from .tir import Buffer, Expr, Function, const, load, select, smallest


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
