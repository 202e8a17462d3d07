"""The output path of every kernel: rescale, zero point, clamp, activation, element type.

Invariant: blocks of accumulator sums go in, in any order, and the output feature map comes out; nothing
of a kernel's arithmetic is in here, and nothing of the output path anywhere else.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.stream.isa_u85 import TableKind

from ..arithmetic import tables
from ..arithmetic.rescale import Clamped, Int64, Scale
from ..spec.output import Activation, OutputSpec
from ..spec.registers import Registers
from .memory import FeatureMapAccess, RegionMemory

BLOCK_ELEMENTS = 1 << 15  # sums handled at once: a float64 block of these stays in a level-2 cache


class OutputPath:
    """The bound output of one kernel. `put` takes sums; `finish` writes what is not yet in memory."""

    def __init__(self, spec: OutputSpec, memory: RegionMemory, regs: Registers) -> None:
        self.spec = spec
        self.shape = (spec.height, spec.width, spec.depth)
        self.map = FeatureMapAccess(memory, regs, spec.layout, spec.stored, is_write=True)
        self.target = self.map.array.transpose(np.argsort(spec.axes))  # in the order in which results come
        if spec.reverse >= 0:
            self.target = np.flip(self.target, spec.reverse)
        self._row = spec.width * spec.depth
        self.rows_per_block = max(1, min(spec.height, BLOCK_ELEMENTS // self._row))
        self._work: NDArray[np.float64] = np.empty(0)
        self.rescale(Scale.of(1, 0), None, math.inf)
        self._lut: NDArray[np.uint8] | None = None
        if spec.activation is Activation.LUT:
            start = memory.accelerator.lut_address + 256 * spec.lut_slot
            self._lut = memory.shram[start : start + spec.lut_bytes]

    def rescale(self, scale: Scale, bias: Int64 | None, reach: float) -> None:
        """Set how sums become values, which they are without it; `reach` bounds |sum + bias|."""
        spec = self.spec
        low, high, zero = spec.low, spec.high, spec.zero_point
        if spec.activation in (Activation.TANH, Activation.SIGMOID):
            low, high, zero = -(1 << 31), (1 << 31) - 1, 0  # these functions take the value before it is narrowed
        if spec.wraps:
            low, high, reach = -(1 << 63), (1 << 63) - 1, math.inf
        clamp = Clamped(scale, bias, zero, low, high, reach)
        # Short rows of channels make numpy loop in small steps: handle a row of pixels as one.
        times = spec.width if clamp.exact and spec.depth < 64 and spec.width * spec.depth <= 4096 else 1
        self._clamp = clamp.tiled(times)
        self._rows = (times * spec.depth,)
        if clamp.exact:
            self._work = np.empty(self.rows_per_block * self._row)

    def put(self, first: int, sums: NDArray[Any]) -> None:
        """Sums of rows [first, first + n): [n, width, depth] or any shape with as many elements, channels last."""
        spec = self.spec
        count = sums.size // self._row
        flat = sums.reshape(-1, *self._rows)
        values = self._clamp(flat, self._work[: sums.size].reshape(flat.shape) if self._clamp.exact else None)
        values = values.reshape(count, spec.width, spec.depth)
        target = self.target[first : first + count]
        if spec.activation is Activation.NONE:
            np.copyto(target, values, casting="unsafe")
        else:
            target[...] = self._activate(values.astype(np.int64))

    def _activate(self, values: Int64) -> Int64:
        spec = self.spec
        if spec.activation is Activation.LUT:
            assert self._lut is not None
            if spec.table is not TableKind.NONE:
                return tables.look_up(spec.table, self._lut, values)
            if spec.dtype.itemsize == 2:
                return tables.lut16(self._lut.view("<i4").astype(np.int64), np.clip(values, -32768, 32767))
            index = values if spec.dtype == np.uint8 else values + 128
            table = self._lut.view(spec.dtype)
            return table[np.clip(index, 0, len(table) - 1)].astype(np.int64)
        result = tables.tanh(values) if spec.activation is Activation.TANH else tables.sigmoid(values)
        return np.clip(result + spec.zero_point, spec.low, spec.high)

    def finish(self) -> None:
        self.map.store()
