"""CONV and DEPTHWISE: weights in, sums of products out.

Invariant: the sums are exact. float32 is used where no partial sum can reach 2**24, otherwise the
products are cut into pieces for which that holds, or float64 is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arithmetic import fast_weights, mlw
from ..arithmetic.rescale import Scale
from ..arithmetic.weights import ScaleTable
from ..spec.registers import Registers
from ..spec.sums import SumSpec
from .memory import RegionMemory
from .sums import WindowKernel

_FLOAT32 = 2.0**24
_PATCH_BYTES = 1 << 20  # of gathered input at once


@dataclass(frozen=True, slots=True, eq=False)
class DecodedConstants:
    """Weights and scales of one operation, decoded; `source` are the bytes they came from."""

    source: list[bytes]
    chunks: tuple[tuple[slice, NDArray[Any]], ...]  # CONV: rows of the weight matrix, [taps, channels] each
    taps: NDArray[Any]  # DEPTHWISE: [kernel height, kernel width, channels]
    bias: NDArray[np.int64]  # of the tables
    zeros: NDArray[np.int64]  # what the input's zero point adds to the sums
    scale: Scale
    reach: float  # bounds |sum + bias|
    may_overflow: bool


class Convolution(WindowKernel):
    """The bound operation; `run` executes it once. `memo` keeps what was decoded beyond this binding."""

    def __init__(
        self, spec: SumSpec, memory: RegionMemory, regs: Registers, checks: bool, memo: list[DecodedConstants]
    ) -> None:
        kind = np.float32 if spec.input.dtype.itemsize == 1 else np.float64
        super().__init__(spec, memory, regs, checks, kind, spec.input.zero_point)
        self.memo = memo
        self._constants: DecodedConstants | None = None

    def _prepare(self) -> DecodedConstants:
        """Decode weights and scales, unless they are those of the last run."""
        source = [span.tobytes() for span in self._spans]
        if self._matrix is not None:
            self._matrix.load()
            source.append(self._matrix.array.tobytes())
        if self._constants is None or source != self._constants.source:
            if not self.memo or source != self.memo[0].source:
                self.memo[:] = [self._decode(source)]
            found = self._constants = self.memo[0]
            if self.plain:
                self.output.rescale(found.scale, found.bias + found.zeros, found.reach)
            else:  # the zero point's part is in the sums
                self.output.rescale(found.scale, found.bias, math.inf)
        return self._constants

    def _decode(self, source: list[bytes]) -> DecodedConstants:
        spec, streams = self.spec, len(self.spec.weights)
        if self._matrix is not None:  # a row of input channels for each output channel
            assert spec.matrix is not None
            values = self._matrix.array[0].astype(np.int64) - spec.matrix.zero_point
            weights = np.ascontiguousarray(values.T)[None, None]
        else:
            shape = (spec.window.height, spec.window.width, spec.orders[0].ifm_depth, spec.output.depth)
            weights, cores = np.zeros(shape, np.int64), len(spec.orders)
            decoded = self._interleaved(source[0]) if spec.fast else [mlw.decode(stream) for stream in source[:streams]]
            for core, order in enumerate(spec.orders):
                name = f"{self.regs.where}, {spec.weights[core].name}"
                weights[..., core::cores] = order.arrange(decoded[core::cores], name)
        return self._arranged(source, weights, self._table(source[streams : streams + len(spec.scales)]))

    def _interleaved(self, stream: bytes) -> list[NDArray[np.int16]]:
        """The streams of all cores in one of the fast format."""
        order = self.spec.orders[0]
        whole = fast_weights.decode(stream, order.count * order.cores).reshape(-1, order.cores, order.interleaved)
        return [np.ascontiguousarray(whole[:, core]).reshape(-1) for core in range(order.cores)]

    def _arranged(self, source: list[bytes], weights: NDArray[np.int64], table: ScaleTable) -> DecodedConstants:
        spec, dtype = self.spec, self.padded.dtype
        info = np.iinfo(spec.input.dtype)
        largest, zero = max(abs(int(info.min)), int(info.max)), spec.input.zero_point
        # sum((x - zp) * w) = sum(x * w) - zp * sum(w): the input is used as it is.
        zeros = -zero * weights.sum(axis=(0, 1, 2))
        magnitude = int(np.abs(weights).sum(axis=(0, 1, 2)).max(initial=0))
        sums = magnitude * (largest + abs(zero))
        biggest_bias = int(np.abs(table.bias).max(initial=0))
        chunks: list[tuple[slice, NDArray[Any]]] = []
        taps: NDArray[Any] = np.empty(0)
        if spec.depthwise:
            exact = dtype == np.float64 or sums < _FLOAT32
            taps = weights[:, :, 0, :].astype(dtype if exact else np.float64)
        else:
            matrix = weights.reshape(-1, spec.output.depth)
            rows = step = len(matrix)
            if dtype == np.float32 and magnitude * largest >= _FLOAT32:
                step = int(_FLOAT32) // (largest * max(int(np.abs(matrix).max()), 1))
            for start in range(0, rows, step):
                part = slice(start, min(start + step, rows))
                chunks.append((part, np.ascontiguousarray(matrix[part], dtype)))
        reach = float(sums + biggest_bias + int(np.abs(table.bias + zeros).max(initial=0)))
        may_overflow = sums + biggest_bias >= self._limit
        return DecodedConstants(source, tuple(chunks), taps, table.bias, zeros, self._scale(table), reach, may_overflow)

    def run(self) -> None:
        constants = self._prepare()
        self._load()
        blocks = (self._depthwise if self.spec.depthwise else self._convolve)(constants)
        whole = np.zeros(self.spec.output.shape if not self.plain else 0, np.int64)
        for first, sums in blocks:
            if self.checks and constants.may_overflow:
                self._check(sums + (constants.bias + constants.zeros))
            if self.plain:
                self.output.put(first, sums)
            else:
                rows = sums.reshape(-1, *whole.shape[1:])
                whole[first : first + len(rows)] = rows
        if not self.plain:
            start = self._start()
            whole += constants.zeros
            self._put_all(whole if start is None else whole + start)
        self.output.finish()

    def _convolve(self, constants: DecodedConstants) -> Iterator[tuple[int, NDArray[Any]]]:
        """First row and sums of each block."""
        spec, window, padded = self.spec, self.spec.window, self.padded
        out, height, width = spec.output, spec.output.height, spec.output.width
        taps = window.height * window.width * spec.input.shape[2]
        rows = min(self.output.rows_per_block, max(1, _PATCH_BYTES // (width * taps * padded.itemsize)))
        patches = window.patches(padded, height, width)
        plain = window.height == window.width == window.stride_x == window.stride_y == 1 and not window.is_padded
        for first in range(0, height, rows):
            last = min(first + rows, height)
            matrix = (padded if plain else patches)[first:last].reshape(-1, taps)
            if len(constants.chunks) == 1:
                sums = matrix @ constants.chunks[0][1]
            else:
                sums = np.zeros((len(matrix), out.depth))
                for part, chunk in constants.chunks:
                    sums += matrix[:, part] @ chunk
            yield first, sums

    def _depthwise(self, constants: DecodedConstants) -> Iterator[tuple[int, NDArray[Any]]]:
        window, out, padded = self.spec.window, self.spec.output, self.padded
        taps = constants.taps
        for first in range(0, out.height, self.output.rows_per_block):
            rows = range(first, min(first + self.output.rows_per_block, out.height))
            sums = np.zeros((len(rows), out.width, out.depth), taps.dtype)
            product = np.empty_like(sums)
            for y, x in window.taps:
                np.multiply(window.tap(padded, y, x, rows, out.width), taps[y, x], out=product)
                np.add(sums, product, out=sums)
            yield first, sums
