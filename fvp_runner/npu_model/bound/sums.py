"""What convolutions and pools share: an input with its padding, accumulators, tables of scales, an output.

Invariant: accumulators that are kept are the sums themselves, with the input's zero point taken in, without any bias.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.stream.isa import Upscale
from npu_memplan.ethosu.stream.isa_u85 import AccumulatorInput

from ..arithmetic.rescale import Int64, Scale
from ..arithmetic.weights import SCALE_BYTES, ScaleTable
from ..errors import AccumulatorOverflowError
from ..spec.layout import InputSpec
from ..spec.registers import Registers
from ..spec.sums import Span, SumSpec
from .memory import FeatureMapAccess, RegionMemory
from .output import OutputPath


class WindowKernel:
    """A bound kernel over windows.

    `padded` is its input, [padded height, padded width, depth] of type `dtype`, with `fill` in what is padding or left
    out by upscaling.
    """

    def __init__(
        self, spec: SumSpec, memory: RegionMemory, regs: Registers, checks: bool, dtype: Any, fill: int
    ) -> None:
        self.spec, self.regs, self.checks, self._memory = spec, regs, checks, memory
        self.output = OutputPath(spec.output, memory, regs)
        self._input = FeatureMapAccess(memory, regs, spec.input.map, spec.input.shape, is_write=False)
        extents = (spec.window.padded_height, spec.window.padded_width, spec.input.shape[2])
        self.padded: NDArray[Any] = np.full(extents, fill, dtype)
        self._parts = list(self._unpadded())
        self.maps = [] if spec.ignores_input else [self._input]
        self._loaded, self._matrix = (self._second(found) for found in (spec.loaded, spec.matrix))
        self._spans = [memory.span(span, regs) for span in spec.weights + spec.scales]
        self._shadows = [memory.span_shadow(span) for span in spec.weights + spec.scales]
        self._continues = spec.start is AccumulatorInput.KEEP
        # Sums start from nothing and go to the output at once.
        self.plain = not (self._continues or spec.output.kept or spec.loaded)
        self._limit = 1 << (spec.accumulator_bits - 1)

    def _unpadded(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Parts of the padded input that are in memory, and where: neither padding nor left out by upscaling."""
        window, inner = self.spec.window, self.padded[self.spec.window.inner]
        if window.upscale is Upscale.NONE:
            yield inner, self._input.array
            return
        phases = (0, 1) if window.upscale is Upscale.NEAREST else (0,)
        for dy, dx in product(phases, phases):
            target = inner[dy::2, dx::2]
            if target.size:
                yield target, self._input.array[: target.shape[0], : target.shape[1]]

    def _load(self) -> None:
        """Bring the input from memory; what is not there never changes."""
        self._input.load()
        for target, source in self._parts:
            np.copyto(target, source, casting="unsafe")

    def _second(self, found: InputSpec | None) -> FeatureMapAccess | None:
        """IFM2, if it is this."""
        if found is None:
            return None
        self.maps.append(FeatureMapAccess(self._memory, self.regs, found.map, found.shape, is_write=False))
        return self.maps[-1]

    def constants(self) -> Iterator[tuple[Span, NDArray[np.bool_]]]:
        """Weight streams and scale tables, with the shadows of the bytes that are used; none without shadows."""
        used = [None] * len(self.spec.weights) + [count * SCALE_BYTES for count in self._table_channels()]
        for span, shadow, count in zip(self.spec.weights + self.spec.scales, self._shadows, used, strict=True):
            if shadow is not None:
                yield span, shadow[:count]

    def _table_channels(self) -> list[int]:
        """Channels of each scale table."""
        count = len(self.spec.scales)
        return [-(-(self.spec.output.depth - table) // count) for table in range(count)]

    def _table(self, source: list[bytes]) -> ScaleTable:
        """Biases and scales of all channels, in the bytes of the tables."""
        spec = self.spec
        if not spec.scales:
            return ScaleTable(*(np.zeros(spec.output.depth, np.int64) for _ in range(3)))
        parts = zip(source, self._table_channels(), spec.scales, strict=True)
        return ScaleTable.interleave([
            ScaleTable.parse(np.frombuffer(data, np.uint8), channels, f"{self.regs.where}, {span.name}", *spec.record)
            for data, channels, span in parts
        ])  # fmt: skip

    def _scale(self, table: ScaleTable) -> Scale:
        whole, for_all = self.spec.scale, self.spec.output.global_scale or not self.spec.scales
        return whole if for_all else Scale(table.scale, table.shift, whole.rounding)

    def _start(self) -> Int64 | None:
        """What the sums start from; None: zero."""
        if self._loaded is not None:
            self._loaded.load()
            return self._loaded.array.astype(np.int64)
        if not self._continues:
            return None
        found = self._memory.accumulators
        if found is None or found.shape != self.spec.output.shape:
            self.regs.illegal("ACC_FORMAT keeps the accumulators, but no operation before left them in this shape")
        return found

    def _put_all(self, sums: NDArray[Any]) -> None:
        """All rows of sums to where they go."""
        if self.spec.output.kept:
            self._memory.accumulators = sums.astype(np.int64)
            return
        for row in range(0, len(sums), self.output.rows_per_block):
            self.output.put(row, sums[row : row + self.output.rows_per_block])

    def _check(self, sums: NDArray[Any]) -> None:
        """`AccumulatorOverflowError` for a sum, zero points and bias taken in, that an accumulator cannot hold."""
        low, high = int(sums.min(initial=0)), int(sums.max(initial=0))
        if low < -self._limit or high >= self._limit:
            raise AccumulatorOverflowError(
                f"{self.regs.where}: a sum reaches {max(-low, high)}, beyond the accumulator's {self._limit} "
                f"(ACC_FORMAT INT{self.spec.accumulator_bits}); what hardware does then is not defined"
            )
