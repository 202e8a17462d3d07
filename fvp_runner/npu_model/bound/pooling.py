"""POOL: extremes and their places, sums, averages, sums over the input's depth, and no pooling at all.

Invariant: padding never takes part; an average is divided by the number of elements that are inside the input, halves
away from zero, before the output is scaled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.stream.isa import PoolMode

from ..arithmetic.rescale import Int64
from ..spec.registers import Registers
from ..spec.sums import SumSpec
from .memory import RegionMemory
from .sums import WindowKernel

_EXTREMES: dict[PoolMode, np.ufunc] = {PoolMode.MAX: np.maximum, PoolMode.MIN: np.minimum}
# What comes of what was kept and what is new; of other pools: their sum.
_JOINED: dict[PoolMode, Callable[[Any, Any], Any]] = {PoolMode.NONE: lambda kept, _: kept, **_EXTREMES}


class Pooling(WindowKernel):
    def __init__(self, spec: SumSpec, memory: RegionMemory, regs: Registers, checks: bool) -> None:
        assert spec.pool is not None
        self.pool = spec.pool
        info, zero = np.iinfo(spec.input.dtype), spec.input.zero_point
        largest = max(abs(int(info.min)), int(info.max)) + abs(zero)
        taps = spec.window.height * spec.window.width * (spec.input.shape[2] if spec.sums_channels else 1)
        if self.pool in _EXTREMES or self.pool.is_argmax:
            dtype: Any = spec.input.dtype
            fill = int(info.max if self.pool is PoolMode.MIN else info.min)
            largest, taps = (taps << 16, 1) if self.pool.is_argmax else (largest, 1)
        else:
            dtype = np.float32 if largest * taps < 1 << 24 else np.float64 if largest * taps < 1 << 52 else np.int64
            fill = zero
        super().__init__(spec, memory, regs, checks, dtype, fill)
        self._inside = self._counts() if self.pool is PoolMode.AVERAGE else None
        # What the input's zero point adds to all that the windows give.
        self._zeros = 0 if self.pool.is_argmax or self._inside is not None else zero * taps
        self._reach = 2.0 * largest * taps if self.plain else math.inf
        self._may_overflow = not self.plain or largest * taps >= self._limit
        if not spec.scales:
            self._rescale()

    def _rescale(self) -> None:
        table = self._table([span.tobytes() for span in self._spans])
        bias = table.bias - self._zeros if self.plain else table.bias
        reach = self._reach + float(np.abs(bias).max(initial=0))
        self.output.rescale(self._scale(table), bias if bias.any() else None, reach)

    def _counts(self) -> Int64:
        """Elements inside the input for each output position: [height, width, 1]."""
        window, out = self.spec.window, self.spec.output
        inside = np.zeros((window.padded_height, window.padded_width, 1), np.int64)
        inside[window.inner] = 1
        counts: Int64 = np.maximum(self._over_windows(inside, np.add), 1)
        return counts.reshape(out.height, out.width, 1)

    def _over_windows(self, padded: NDArray[Any], combine: np.ufunc) -> NDArray[Any]:
        """Combine the elements of each window: first along columns of the input, then along rows."""
        window, out = self.spec.window, self.spec.output
        rows = range(out.height)
        if out.height == out.width == 1 and window.dilation_y == window.dilation_x == 1:
            result: NDArray[Any] = combine.reduce(combine.reduce(padded, axis=0), axis=0)
            return result.reshape(1, 1, -1)
        columns = window.padded_width
        high = np.array(self._rows(padded, 0, rows, columns))
        for y in range(1, window.height):
            combine(high, self._rows(padded, y, rows, columns), out=high)
        stop = (out.width - 1) * window.stride_x + 1
        wide = np.array(high[:, 0 : stop : window.stride_x])
        for x in range(1, window.width):
            left = x * window.dilation_x
            combine(wide, high[:, left : left + stop : window.stride_x], out=wide)
        return wide

    def _rows(self, padded: NDArray[Any], y: int, rows: range, columns: int) -> NDArray[Any]:
        window = self.spec.window
        top = y * window.dilation_y
        return padded[top : top + (len(rows) - 1) * window.stride_y + 1 : window.stride_y, :columns]

    def run(self) -> None:
        sums = self._pooled() if self.plain else self._accumulated()
        if self.checks and self._may_overflow:
            self._check(sums.astype(np.int64) - self._zeros if self.plain else sums)
        if self.spec.scales and not self.spec.output.kept:
            self._rescale()
        self._put_all(sums)
        self.output.finish()

    def _accumulated(self) -> Int64:
        """Of what was kept and what is new, without the input's zero point."""
        start = self._start()
        if start is not None and self.spec.ignores_input:
            return start
        new = self._pooled().astype(np.int64) - self._zeros
        joined: Int64 = new if start is None else _JOINED.get(self.pool, np.add)(start, new)
        return joined

    def _pooled(self) -> NDArray[Any]:
        """What the windows give: [height, width, depth]."""
        self._load()
        padded, window = self.padded, self.spec.window
        if self.pool.is_argmax:
            return self._places(padded)
        if self.pool is PoolMode.REDUCE_SUM:
            padded = padded.sum(axis=2, keepdims=True)
        sums = self._over_windows(padded, _EXTREMES.get(self.pool, np.add))
        if self._inside is None:
            return sums
        return _average(sums.astype(np.int64) - self.spec.input.zero_point * window.height * window.width, self._inside)

    def _places(self, padded: NDArray[Any]) -> Int64:
        """The first place of each window's maximum, above 16 bits of the value: OFM_SCALE shifts the value out."""
        window, out = self.spec.window, self.spec.output
        values = np.stack([window.tap(padded, y, x, range(out.height), out.width) for y, x in window.taps])
        place = np.argmax(values, axis=0).astype(np.int64)
        value = np.take_along_axis(values, place[None], 0)[0].astype(np.int64)
        found: Int64 = (place << 16) | (value & 0xFFFF)
        return found


def _average(sums: Int64, count: Int64) -> Int64:
    """`sums` / `count`, halves away from zero."""
    half = count // 2
    return np.where(sums < 0, -((half - sums) // count), (sums + half) // count)
