"""The NPU's fixed tanh and sigmoid, and look-up tables.

Invariant: integer arithmetic only, identical to TFLite's 16-bit reference functions. The 256-entry
table is generated: each entry is the sigmoid in steps of 1/24 as a Q16 number, lowered by half of what
linear interpolation would be too high in the middle between it and the next entry.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.stream.isa_u85 import TableKind

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
    result: Int64 = (_line16(table, value) + 64) >> 7
    return result


def _line16(table: Int64, value: Int64) -> Int64:
    """The same with 7 bits of fraction: int32 results, as TOSA's TABLE of int16 has them."""
    entry = table[(value + 32768) >> 7]
    base = ((entry & 0xFFFF) ^ 0x8000) - 0x8000
    result: Int64 = (base << 7) + (entry >> 16) * (value & 127)
    return result


def look_up(kind: TableKind, table: NDArray[np.uint8], value: Int64) -> Int64:
    """What a table of Ethos-U85 holds for each value, which is in the range of its index already."""
    if kind is TableKind.U8_U8:
        return table[value].astype(np.int64)
    entries = _ENTRIES.get(kind)
    if entries is not None:
        found: Int64 = table.view(entries)[value + 128].astype(np.int64)
        return found
    words = table.view("<i4").astype(np.int64)
    if kind is TableKind.S16_S16:
        return lut16(words, value)
    if kind is TableKind.S16_S32:
        return _line16(words, value)
    return _curve(words, value, kind is TableKind.SIGMOID)


_ENTRIES: dict[TableKind, np.dtype[Any]] = {
    TableKind.S8_S8: np.dtype("i1"),
    TableKind.S8_S16: np.dtype("<i2"),
    TableKind.S8_S32: np.dtype("<i4"),
}


def _curve(words: Int64, value: Int64, is_sigmoid: bool) -> Int64:
    """Sigmoid or tanh from 512 words `slope << 16 | base`, steps of which are 2**9 or 2**8 wide; results in Q15."""
    bits = 9 if is_sigmoid else 8
    entry = words[np.clip(value >> bits, -256, 255) + 256]
    base = ((entry & 0xFFFF) ^ 0x8000) - 0x8000
    part = np.where(np.abs(value >> bits) > 256, 0, value & ((1 << bits) - 1))
    line = ((base + (0x8000 if is_sigmoid else 0)) << bits) + (entry >> 16) * part
    shift = bits + is_sigmoid
    downwards = (value < 0) & (value >> bits > -256)  # halves of what is not saturated
    result: Int64 = (line + (1 << (shift - 1)) - downwards) >> shift
    return np.clip(result, -32768, 32767)
