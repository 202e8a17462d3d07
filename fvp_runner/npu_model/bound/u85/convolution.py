"""Ethos-U85's CONV and DEPTHWISE, with decoded weights or with a matrix from IFM2.

Invariant: as in the convolution it builds on; sums that are kept or continued are corrected before, not after.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arithmetic import fast_weights, mlw
from ...arithmetic.ordered_weights import scale_table
from ...arithmetic.rescale import Scale
from ...arithmetic.weights import ScaleTable
from ...spec.registers import Registers
from ...spec.u85.kernels import SumSpec
from ..convolution import Convolution, DecodedConstants
from ..memory import FeatureMapAccess, RegionMemory
from .accumulators import Accumulators


class U85Convolution(Convolution):
    wide_bits = 47

    def __init__(
        self, spec: SumSpec, memory: RegionMemory, regs: Registers, checks: bool, memo: list[DecodedConstants]
    ) -> None:
        super().__init__(spec, memory, regs, checks, memo)
        self.accumulators = Accumulators(spec, memory, regs)
        self.maps = [self.input.map] + [a for a in (self.accumulators.loaded,) if a is not None]
        self._matrix: FeatureMapAccess | None = None
        if spec.matrix is not None:
            assert spec.matrix.layout is not None
            self._matrix = FeatureMapAccess(memory, regs, spec.matrix.layout, spec.matrix.shape, is_write=False)
            self.maps.append(self._matrix)
        self._sums: NDArray[np.int64] = np.zeros(0, np.int64)

    def _table_channels(self) -> list[int]:
        return [self.spec.output.depth] * len(self.spec.scales)

    def _scale(self, table: ScaleTable) -> Scale:
        found: Scale = self.spec.scale
        return found if self.spec.output.global_scale else Scale(table.scale, table.shift, found.rounding)

    def _prepare(self) -> DecodedConstants:
        if self._matrix is None:
            constants = super()._prepare()
        else:
            constants = self._arranged([], self._matrix_weights(), self._table([]))
        if self._matrix is not None or not self.accumulators.plain:
            bias = constants.bias if self.accumulators.plain else self._table(constants.source).bias
            self.output.rescale(constants.scale, bias, 2.0**62 if not self.accumulators.plain else constants.reach)
        return constants

    def _matrix_weights(self) -> NDArray[np.int64]:
        """IFM2 holds a row of input channels for each output channel."""
        assert self._matrix is not None
        self._matrix.load()
        values = self._matrix.array[0].astype(np.int64) - self.spec.matrix.zero_point
        return np.ascontiguousarray(values.T)[None, None]

    def _table(self, source: list[bytes]) -> ScaleTable:
        depth = self.spec.output.depth
        if self.spec.output.global_scale or not source:
            return ScaleTable(*(np.zeros(depth, np.int64) for _ in range(3)))
        data = np.frombuffer(source[-1], np.uint8)
        wide = self.spec.accumulator.value != 0
        return scale_table(data, depth, wide, f"{self.regs.where}, SCALE")

    def _decode(self, source: list[bytes]) -> DecodedConstants:
        spec, where = self.spec, f"{self.regs.where}, WEIGHT"
        if spec.fast:
            order, count = spec.order, spec.order.count * spec.order.cores
            whole = fast_weights.decode(source[0], count).reshape(-1, order.cores, order.interleaved)
            streams = [np.ascontiguousarray(whole[:, core]).reshape(-1) for core in range(order.cores)]
        else:
            streams = [mlw.decode(stream) for stream in source[: len(spec.weights)]]
        weights = spec.order.arrange(streams, where).astype(np.int64)
        return self._arranged(source, weights, self._table(source))

    def run(self) -> None:
        spec = self.spec.output
        if not self.accumulators.plain:
            self._sums = np.zeros(spec.shape, np.int64)
        super().run()

    def _put(self, first: int, sums: NDArray[Any], constants: DecodedConstants) -> None:
        if self.accumulators.plain:
            self.output.put(first, sums)
            return
        spec = self.spec.output
        # The table's bias belongs to the output; what the zero point adds belongs to the sums.
        correction = constants.bias - self._table(constants.source).bias
        rows = sums.astype(np.int64).reshape(-1, spec.width, spec.depth) + correction
        self._sums[first : first + len(rows)] = rows
        if first + len(rows) < spec.height:
            return
        start = self.accumulators.begin()
        total = self._sums if start is None else self._sums + start
        if self.accumulators.keeps:
            self.accumulators.keep(total)
            return
        for row in range(0, spec.height, self.output.rows_per_block):
            self.output.put(row, total[row : row + self.output.rows_per_block])
