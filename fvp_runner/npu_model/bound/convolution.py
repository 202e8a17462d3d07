"""CONV and DEPTHWISE: weights in, sums of products out.

Invariant: the sums are exact. float32 is used where no partial sum can reach 2**24, otherwise the
products are cut into pieces for which that holds, or float64 is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.stream.isa import AccFormat, Register

from ..arithmetic import mlw
from ..arithmetic.rescale import Scale
from ..arithmetic.weights import SCALE_BYTES, ScaleTable
from ..errors import AccumulatorOverflowError
from ..spec.convolution import Span
from ..spec.registers import Registers
from .memory import RegionMemory
from .output import OutputPath
from .padded_input import PaddedInput

_FLOAT32 = 2.0**24
_PATCH_BYTES = 1 << 20  # of gathered input at once


@dataclass(frozen=True, slots=True, eq=False)
class DecodedConstants:
    """Weights and scales of one operation, decoded; `source` are the bytes they came from."""

    source: list[bytes]
    chunks: tuple[tuple[slice, NDArray[Any]], ...]  # CONV: rows of the weight matrix, [taps, channels] each
    taps: NDArray[Any]  # DEPTHWISE: [kernel height, kernel width, channels]
    bias: NDArray[np.int64]  # with the input's zero point taken in
    scale: Scale
    reach: float  # bounds |sum + bias|
    overflow: float  # a sum that reaches this does not fit the accumulator; 0: none can


class Convolution:
    """The bound operation; `run` executes it once. `memo` keeps what was decoded beyond this binding."""

    wide_bits = 39  # of the larger accumulators, without the sign

    def __init__(
        self, spec: Any, memory: RegionMemory, regs: Registers, checks: bool, memo: list[DecodedConstants]
    ) -> None:
        self.spec, self.regs, self.checks, self.memo = spec, regs, checks, memo
        self.output = OutputPath(spec.output, memory, regs)
        kind = np.float32 if spec.ifm.dtype.itemsize == 1 else np.float64
        self.input = PaddedInput(spec, memory, regs, kind, spec.ifm.zero_point)
        self.maps = [self.input.map]
        self._spans = [memory.span(span, regs) for span in spec.weights + spec.scales]
        self._shadows = [memory.span_shadow(span) for span in spec.weights + spec.scales]
        self._constants: DecodedConstants | None = None

    def constants(self) -> Iterator[tuple[Span, NDArray[np.bool_]]]:
        """Weight streams and scale tables, with the shadows of the bytes that are used; none without shadows."""
        used = [None] * len(self.spec.weights) + [channels * SCALE_BYTES for channels in self._table_channels()]
        for span, shadow, count in zip(self.spec.weights + self.spec.scales, self._shadows, used, strict=True):
            if shadow is not None:
                yield span, shadow[:count]

    def _table_channels(self) -> list[int]:
        return [order.ofm_depth for order in self.spec.orders]

    def _scale(self, table: ScaleTable) -> Scale:
        if self.spec.output.global_scale:
            return Scale.of(*self.regs.scale(Register.OFM_SCALE), self.spec.output.rounding)
        return Scale(table.scale, table.shift, self.spec.output.rounding)

    def _prepare(self) -> DecodedConstants:
        """Decode weights and scales, unless they are those of the last run."""
        source = [span.tobytes() for span in self._spans]
        if self._constants is None or source != self._constants.source:
            if not self.memo or source != self.memo[0].source:
                self.memo[:] = [self._decode(source)]
            self._constants = self.memo[0]
            self.output.rescale(self._constants.scale, self._constants.bias, self._constants.reach)
        return self._constants

    def _decode(self, source: list[bytes]) -> DecodedConstants:
        spec, cores = self.spec, len(self.spec.weights)
        shape = (spec.window.height, spec.window.width, spec.orders[0].ifm_depth, spec.output.depth)
        weights = np.zeros(shape, np.int64)
        tables = []
        for core, order in enumerate(spec.orders):
            if not order.ofm_depth:
                continue
            name = f"{self.regs.where}, {spec.weights[core].name}"
            weights[..., core::cores] = order.arrange([mlw.decode(source[core])], name)
            data = np.frombuffer(source[cores + core], np.uint8)
            tables.append(ScaleTable.parse(data, order.ofm_depth, f"{self.regs.where}, {spec.scales[core].name}"))
        return self._arranged(source, weights, ScaleTable.interleave(tables))

    def _arranged(self, source: list[bytes], weights: NDArray[np.int64], table: ScaleTable) -> DecodedConstants:
        spec, dtype = self.spec, self.input.array.dtype
        info = np.iinfo(spec.ifm.dtype)
        largest, zero = max(abs(int(info.min)), int(info.max)), spec.ifm.zero_point
        # sum((x - zp) * w) = sum(x * w) - zp * sum(w): the input is used as it is.
        bias = table.bias - zero * weights.sum(axis=(0, 1, 2))
        magnitude = int(np.abs(weights).sum(axis=(0, 1, 2)).max(initial=0))
        sums = magnitude * (largest + abs(zero))
        biggest_bias = int(np.abs(table.bias).max(initial=0))
        bits = 31 if spec.accumulator is AccFormat.INT32 else self.wide_bits
        scale = self._scale(table)
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
        reach = float(sums + biggest_bias + int(np.abs(bias).max(initial=0)))
        overflow = 2.0**bits if sums + biggest_bias >= 1 << bits else 0.0
        return DecodedConstants(source, tuple(chunks), taps, bias, scale, reach, overflow)

    def run(self) -> None:
        constants = self._prepare()
        self.input.load()
        if self.spec.depthwise:
            self._depthwise(constants)
        else:
            self._convolve(constants)
        self.output.finish()

    def _convolve(self, constants: DecodedConstants) -> None:
        spec, window, padded = self.spec, self.spec.window, self.input.array
        out, height, width = spec.output, spec.output.height, spec.output.width
        taps = window.height * window.width * spec.ifm_depth
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
            self._check(sums, constants)
            self._put(first, sums, constants)

    def _put(self, first: int, sums: NDArray[Any], constants: DecodedConstants) -> None:
        self.output.put(first, sums)

    def _depthwise(self, constants: DecodedConstants) -> None:
        window, out, padded = self.spec.window, self.spec.output, self.input.array
        taps = constants.taps
        for first in range(0, out.height, self.output.rows_per_block):
            rows = range(first, min(first + self.output.rows_per_block, out.height))
            sums = np.zeros((len(rows), out.width, out.depth), taps.dtype)
            product = np.empty_like(sums)
            for y, x in window.taps:
                np.multiply(window.tap(padded, y, x, rows, out.width), taps[y, x], out=product)
                np.add(sums, product, out=sums)
            self._check(sums, constants)
            self._put(first, sums, constants)

    def _check(self, sums: NDArray[Any], constants: DecodedConstants) -> None:
        if self.checks and constants.overflow:
            worst = float(np.abs(sums + constants.bias).max(initial=0))
            if worst >= constants.overflow:
                raise AccumulatorOverflowError(
                    f"{self.regs.where}: a sum reaches {worst:.0f}, beyond the accumulator's {constants.overflow:.0f} "
                    f"(ACC_FORMAT {self.spec.accumulator.name}); what hardware does then is not defined"
                )
