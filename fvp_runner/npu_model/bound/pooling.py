"""POOL: maximum, average, and sum over the input's depth.

Invariant: padding never takes part in a maximum; an average with any padding register set is divided by
the number of elements that are inside the input, halves away from zero, before the output is scaled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.stream.isa import AccFormat, PoolMode

from ..arithmetic.rescale import Int64, Scale
from ..errors import AccumulatorOverflowError
from ..spec.pooling import PoolingSpec
from ..spec.registers import Registers
from .memory import RegionMemory
from .output import OutputPath
from .padded_input import PaddedInput


class Pooling:
    def __init__(self, spec: PoolingSpec, memory: RegionMemory, regs: Registers, checks: bool) -> None:
        self.spec, self.regs = spec, regs
        self.output = OutputPath(spec.output, memory, regs)
        window, dtype = spec.window, spec.ifm.dtype
        zero = spec.ifm.zero_point
        largest = max(abs(int(np.iinfo(dtype).min)), int(np.iinfo(dtype).max)) + abs(zero)
        taps = window.height * window.width * (spec.ifm_depth if spec.mode is PoolMode.REDUCE_SUM else 1)
        kind: Any = np.float32 if largest * taps < 1 << 24 else np.float64 if largest * taps < 1 << 52 else np.int64
        fill = zero
        if spec.mode is PoolMode.MAX:
            kind, fill = dtype, int(np.iinfo(dtype).min)
        self.input = PaddedInput(spec, memory, regs, kind, fill)
        self.maps = [self.input.map]
        self.valid = self._valid() if window.is_padded and spec.mode is PoolMode.AVERAGE else None
        limit = 2**31 if spec.accumulator is AccFormat.INT32 else 2**39
        self._overflow = limit if checks and spec.mode is not PoolMode.MAX and largest * taps >= limit else 0
        if spec.mode is not PoolMode.MAX:
            reach = float(largest * taps)
            bias = np.array([-zero * taps], np.int64) if zero and self.valid is None else None
            self.output.rescale(Scale.of(*spec.scale, spec.output.rounding), bias, 2 * reach)

    def _valid(self) -> NDArray[np.int64]:
        """Elements inside the input for each output position: [height, width, 1]."""
        window, out = self.spec.window, self.spec.output
        inside = np.zeros((window.padded_height, window.padded_width, 1), np.int64)
        inside[window.inner] = 1
        counts: NDArray[np.int64] = np.maximum(self._reduce(inside, np.add), 1)
        return counts.reshape(out.height, out.width, 1)

    def _reduce(self, padded: NDArray[Any], combine: np.ufunc) -> NDArray[Any]:
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
        spec, output = self.spec, self.output
        self.input.load()
        padded = self.input.array
        if spec.mode is PoolMode.REDUCE_SUM:
            padded = padded.sum(axis=2, keepdims=True)
        sums = self._reduce(padded, np.maximum if spec.mode is PoolMode.MAX else np.add)
        if self._overflow:
            self._check(sums)
        if spec.mode is PoolMode.MAX:
            output.put(0, sums.astype(np.int64) - spec.ifm.zero_point)
        else:
            if self.valid is not None:
                total = sums.astype(np.int64) - spec.ifm.zero_point * spec.window.height * spec.window.width
                sums = average(total, self.valid)
            step = output.rows_per_block
            for first in range(0, spec.output.height, step):
                output.put(first, sums[first : first + step])
        output.finish()

    def _check(self, sums: NDArray[Any]) -> None:
        zero = self.spec.ifm.zero_point * self.spec.window.height * self.spec.window.width
        worst = int(np.abs(sums.astype(np.int64) - zero).max(initial=0))
        if worst >= self._overflow:
            raise AccumulatorOverflowError(
                f"{self.regs.where}: a sum reaches {worst}, beyond the accumulator's {self._overflow} "
                f"(ACC_FORMAT {self.spec.accumulator.name}); what hardware does then is not defined"
            )


def average(sums: Int64, count: Int64) -> Int64:
    """`sums` / `count`, halves away from zero."""
    half = count // 2
    return np.where(sums < 0, -((half - sums) // count), (sums + half) // count)
