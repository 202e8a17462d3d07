"""The NPU's fixed tanh and sigmoid, and look-up tables.

Invariant: integer arithmetic only, identical to TFLite's 16-bit reference functions. The 256-entry
table is generated: each entry is the sigmoid in steps of 1/24 as a Q16 number, lowered by half of what
linear interpolation would be too high in the middle between it and the next entry.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from .rescale import Int64

_STEPS = 24  # table entries per unit of the argument
_LAST = 255


@functools.cache
def sigmoid_table() -> Int64:
    """256 Q16 values of the sigmoid at 0, 1/24, 2/24, ..."""

    def sigmoid(step: float) -> float:
        return 1 / (1 + math.exp(-step / _STEPS))

    entries = []
    for i in range(_LAST):
        excess = (sigmoid(i) + sigmoid(i + 1)) / 2 - sigmoid(i + 0.5)
        entries.append(math.floor(65536 * (sigmoid(i) - excess / 2) + 0.5))
    return np.array([*entries, 65535], np.int64)


def _interpolate(magnitude: Int64, bits: int, saturated: int) -> Int64:
    table = sigmoid_table()
    index = np.minimum(magnitude >> bits, _LAST)
    low = table[index]
    high = table[np.minimum(index + 1, _LAST)]
    value = (low << bits) + (magnitude & ((1 << bits) - 1)) * (high - low)
    return np.where(index >= _LAST, saturated, value)


def sigmoid(value: Int64) -> Int64:
    """Sigmoid of `value` / (3 * 4096) as a Q15 number."""
    result = _interpolate(np.abs(value), 9, 0x7FFF << 10)
    return np.where(value >= 0, result + (1 << 9), (1 << 25) - result + (1 << 9) - 1) >> 10


def tanh(value: Int64) -> Int64:
    """Hyperbolic tangent of `value` / (3 * 4096) as a Q15 number."""
    result = _interpolate(np.abs(value), 8, 0xFFFF << 8)
    half, rounding = 1 << 23, 1 << 7
    return np.where(value >= 0, result - half + rounding, half - result + rounding - 1) >> 8


def lut16(table: Int64, value: Int64) -> Int64:
    """512 words `slope << 16 | base` (both signed), interpolated at a 16-bit `value`."""
    entry = table[(value + 32768) >> 7]
    base = ((entry & 0xFFFF) ^ 0x8000) - 0x8000
    result: Int64 = base + (((entry >> 16) * (value & 127) + 64) >> 7)
    return result
