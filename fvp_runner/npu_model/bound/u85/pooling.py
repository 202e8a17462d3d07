"""Ethos-U85's POOL: maximum, minimum, sum, average, places of maxima, and no pooling at all.

Invariant: padding never takes part; an average is divided by the number of elements that are inside the input, halves
away from zero, before the output is scaled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.stream.isa_u85 import PoolOperation

from ...arithmetic.ordered_weights import scale_table
from ...arithmetic.rescale import Int64, Scale
from ...arithmetic.weights import SCALE_BYTES
from ...errors import AccumulatorOverflowError
from ...spec.convolution import Span
from ...spec.registers import Registers
from ...spec.u85.kernels import SumSpec
from ..memory import RegionMemory
from ..output import OutputPath
from ..padded_input import PaddedInput
from ..pooling import average
from .accumulators import Accumulators

_EXTREMES = (PoolOperation.MAX, PoolOperation.MIN, PoolOperation.ARGMAX_X, PoolOperation.ARGMAX_Y)
# What comes of what was kept and what is new; of other pools: their sum.
_JOINED: dict[PoolOperation, Callable[[Int64, Int64], Int64]] = {
    PoolOperation.NONE: lambda kept, _: kept,
    PoolOperation.MAX: np.maximum,
    PoolOperation.MIN: np.minimum,
}


class U85Pooling:
    def __init__(self, spec: SumSpec, memory: RegionMemory, regs: Registers, checks: bool) -> None:
        assert spec.pool is not None
        self.spec, self.regs, self.checks, self.pool = spec, regs, checks, spec.pool
        self.output = OutputPath(spec.output, memory, regs)
        info = np.iinfo(spec.ifm.dtype)
        fill = int(info.max if self.pool is PoolOperation.MIN else info.min)
        fill = fill if self.pool in _EXTREMES else spec.ifm.zero_point
        self.input = PaddedInput(spec, memory, regs, np.int64, fill)
        self.accumulators = Accumulators(spec, memory, regs)
        first = None if spec.ignores_input else self.input.map
        self.maps = [found for found in (first, self.accumulators.loaded) if found is not None]
        self._tables = [memory.span(span, regs) for span in spec.scales]
        self._shadows = [memory.span_shadow(span) for span in spec.scales]

    def constants(self) -> list[tuple[Span, NDArray[np.bool_]]]:
        """The scale table, with the shadow of the bytes that are used."""
        count = self.spec.output.depth * SCALE_BYTES
        pairs = zip(self.spec.scales, self._shadows, strict=True)
        return [(span, shadow[:count]) for span, shadow in pairs if shadow is not None]

    def run(self) -> None:
        spec, output = self.spec, self.output
        sums = start = self.accumulators.begin()
        if start is None or not spec.ignores_input:
            self.input.load()
            sums = self._pooled()
            sums = sums if start is None else _JOINED.get(self.pool, np.add)(start, sums)
        assert sums is not None
        limit = 1 << (31 if spec.accumulator.value == 0 else 47)
        if self.checks and int(np.abs(sums).max(initial=0)) > limit:
            raise AccumulatorOverflowError(
                f"{self.regs.where}: a sum reaches {int(np.abs(sums).max())}, beyond the accumulator's {limit}; "
                "what hardware does then is not defined"
            )
        if self.accumulators.keeps:
            self.accumulators.keep(sums)
            return
        output.put(0, self._scaled(sums))
        output.finish()

    def _scaled(self, sums: Int64) -> Int64:
        scale = self.spec.scale
        if self._tables:
            wide = self.spec.accumulator.value != 0
            table = scale_table(self._tables[0], self.spec.output.depth, wide, f"{self.regs.where}, SCALE")
            sums, scale = sums + table.bias, Scale(table.scale, table.shift, scale.rounding)
        return scale.exact(sums)

    def _pooled(self) -> Int64:
        """What the windows give, without the input's zero point: [height, width, depth]."""
        padded, window, out = self.input.array, self.spec.window, self.spec.output
        zero = self.spec.ifm.zero_point
        if self.pool is PoolOperation.REDUCE_SUM:
            padded = (padded - zero).sum(axis=2, keepdims=True)
            return self._over_window(padded, np.add).reshape(out.height, out.width, -1)
        if self.pool.is_argmax:
            return self._places(padded)
        if self.pool in (PoolOperation.MAX, PoolOperation.MIN):
            return self._over_window(padded, np.maximum if self.pool is PoolOperation.MAX else np.minimum) - zero
        sums = self._over_window(padded - zero, np.add)
        if self.pool is not PoolOperation.AVERAGE:
            return sums
        inside = np.zeros((*padded.shape[:2], 1), np.int64)
        inside[window.inner] = 1
        count = np.maximum(self._over_window(inside, np.add), 1)
        return average(sums, count)

    def _over_window(self, padded: NDArray[Any], combine: np.ufunc) -> Int64:
        window, out = self.spec.window, self.spec.output
        rows, found = range(out.height), None
        for y, x in window.taps:
            part = window.tap(padded, y, x, rows, out.width)
            found = part.astype(np.int64) if found is None else combine(found, part, out=found)
        assert found is not None
        return found

    def _places(self, padded: NDArray[Any]) -> Int64:
        """The first place of each window's maximum, above 16 bits of the value: OFM_SCALE shifts the value out."""
        window, out = self.spec.window, self.spec.output
        values = np.stack([window.tap(padded, y, x, range(out.height), out.width) for y, x in window.taps])
        place = np.argmax(values, axis=0).astype(np.int64)
        value = np.take_along_axis(values, place[None], 0)[0]
        found: Int64 = (place << 16) | (value & 0xFFFF)
        return found
