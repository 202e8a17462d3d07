"""One operation as a function of output rows: which input rows they need, and the operation that makes them alone.

Invariant: stripes that cover all rows of an operation compute, together, exactly its result: the same weights,
scales and block; only bases, heights and the padding above and below follow the rows. Row y of a rolling buffer of n
rows is stored in its row y modulo n.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...program.featuremap import FeatureMap
from ...program.kernel import Kernel
from ...program.program import BufferRole, NpuOperation, NpuProgram
from ...program.slices import is_indivisible
from ...stream.isa import Op, PoolMode, Upscale
from ...stream.isa import Register as R

Rows = tuple[int, int]  # half-open
Many = NDArray[np.int64]  # first rows, or rows after the last, one a turn


@dataclass(frozen=True, slots=True)
class Map:
    """A feature map in a buffer, row by row."""

    view: str  # "IFM", "IFM2" or "OFM"
    buffer: str
    offset: int  # bytes from the start of the buffer to row 0
    height: int
    stride: int  # bytes from row to row
    row_bytes: int  # from the first to the last byte of a row

    def span(self, rows: Rows) -> Rows:
        """Bytes of the buffer from the first to the last of `rows`, half-open."""
        return self.offset + rows[0] * self.stride, self.offset + (rows[1] - 1) * self.stride + self.row_bytes

    def spans(self, starts: Many, stops: Many) -> tuple[Many, Many]:
        """`span` of many rows at a time."""
        return self.offset + starts * self.stride, self.offset + (stops - 1) * self.stride + self.row_bytes

    @property
    def fills_rows(self) -> bool:
        """Whether the buffer begins with row 0 and rows do not reach into each other, so that it may become a rolling
        buffer.
        """
        return self.offset + self.row_bytes <= self.stride


@dataclass(frozen=True, slots=True)
class Sliced:
    """An operation whose rows can be made apart from each other."""

    index: int  # in the program
    operation: NpuOperation
    output: Map
    inputs: tuple[Map, ...]  # in memory; constants are left out
    window: Kernel | None  # None: output row y needs input row y

    def needs(self, source: Map, rows: Rows) -> Rows:
        """Rows of input `source` that output `rows` are made of."""
        if source.height == 1 and self.window is None:
            return 0, 1  # the same for every row
        if self.window is None:
            return rows
        first, stop = self._reach(rows)
        return max(first, 0), min(stop, source.height)

    def starts(self, source: Map, starts: Many) -> Many:
        """`needs` of many rows at a time: where they start."""
        if self.window is None:
            return starts * 0 if source.height == 1 else starts
        return np.maximum(starts * self.window.stride_y - self.window.pad_top, 0)

    def stops(self, source: Map, stops: Many) -> Many:
        """`needs` of many rows at a time: where they stop."""
        if self.window is None:
            return stops * 0 + 1 if source.height == 1 else stops
        reach = (stops - 1) * self.window.stride_y - self.window.pad_top + self.window.height
        return np.minimum(reach, source.height)

    def reading_of(self, written: Mapping[str, Map]) -> Sliced:
        """The same layer over whole maps: windows may leave the last rows of a map that was `written` unread.

        Rows of another length are other rows: a buffer may be written as one map and read as another.
        """
        if self.window is None:
            return self
        source = self.inputs[0]
        whole = written.get(source.buffer, source)
        unread = whole.height - source.height if whole.stride == source.stride else 0
        if unread <= 0 or not source.fills_rows:
            return self
        window = replace(self.window, pad_bottom=self.window.pad_bottom - unread)
        return replace(self, inputs=(replace(source, height=source.height + unread),), window=window)

    def _reach(self, rows: Rows) -> Rows:
        assert self.window is not None
        step, top = self.window.stride_y, self.window.pad_top
        return rows[0] * step - top, (rows[1] - 1) * step - top + self.window.height

    def upside_down(self, sizes: Mapping[str, int]) -> Sliced:
        """The same layer with rows and bytes counted from the ends of its maps and buffers, for planning upwards.

        `sizes` are the bytes of the buffers. Such a layer has no parts: its operation still counts from the start.
        """

        def flipped(view: Map) -> Map:
            return replace(view, offset=sizes[view.buffer] - view.span((0, view.height))[1])

        window = self.window and replace(self.window, pad_top=self.window.pad_bottom, pad_bottom=self.window.pad_top)
        return replace(
            self, output=flipped(self.output), inputs=tuple(flipped(source) for source in self.inputs), window=window
        )

    def part(self, rows: Rows, rolling_buffers: Mapping[str, int]) -> NpuOperation:
        """The operation that makes `rows` alone; `rolling buffers` are heights of buffers that hold their last rows
        only.
        """
        registers, addresses = dict(self.operation.registers), dict(self.operation.addresses)
        registers[R.OFM_HEIGHT_M1] = rows[1] - rows[0] - 1
        if self.window is not None:
            first, stop = self._reach(rows)
            registers[R.IFM_PAD_TOP] = max(-first, 0)
            registers[R.IFM_PAD_BOTTOM] = max(stop - self.inputs[0].height, 0)
        for source in (self.output, *self.inputs):
            start, stop = rows if source is self.output else self.needs(source, rows)
            rolling_buffer = rolling_buffers.get(source.buffer)
            slot, upper = start, stop - start
            if rolling_buffer is not None:
                slot = start % rolling_buffer
                if slot + upper > rolling_buffer:  # the rest begins at row 0 of the rolling buffer: tile 2
                    upper = rolling_buffer - slot
                    addresses[R[f"{source.view}_BASE2"]] = (source.buffer, source.offset)
            addresses[R[f"{source.view}_BASE0"]] = (source.buffer, source.offset + slot * source.stride)
            registers[R[f"{source.view}_HEIGHT0_M1"]] = registers[R[f"{source.view}_HEIGHT1_M1"]] = upper - 1
        return replace(self.operation, registers=registers, addresses=addresses)


def sliced(program: NpuProgram, index: int) -> Sliced | None:
    """Operation `index` row by row; None when its rows cannot be made apart."""
    operation = program.operations[index]
    if operation.op is Op.DMA_START or operation.registers.get(R.IFM_UPSCALE, 0) != Upscale.NONE:
        return None
    placed = program.at_zero(index)
    if is_indivisible(placed):
        return None
    output, source, second = FeatureMap.ofm(placed), FeatureMap.ifm(placed), FeatureMap.ifm2(placed)
    window = None if operation.op is Op.ELEMENTWISE else Kernel.of(placed)
    if output.height < 2 or (window is not None and not _rows_apart(operation, window, source)):
        return None
    views = [v for v in (source, second) if v is not None and v.base_register(0) in operation.addresses]  # no scalars
    if window is None and any(view.height not in (1, output.height) for view in views):
        return None
    if any(len(view.tiles(view.height, view.width)) != 1 for view in (output, *views)):
        return None
    maps = [_map(operation, view) for view in views]
    inputs = tuple(m for m in maps if program.buffer(m.buffer).role is not BufferRole.CONSTANTS)
    target = _map(operation, output)
    if any(m.height > 1 or window is not None for m in maps if m not in inputs):
        return None  # rows of a constant
    if any(m.buffer == target.buffer for m in inputs):
        return None  # parts of one buffer: they would have to keep their distance
    return Sliced(index, operation, target, inputs, window)


def _rows_apart(operation: NpuOperation, window: Kernel, source: FeatureMap) -> bool:
    if operation.op is Op.POOL and operation.parameter == PoolMode.AVERAGE:
        # with padding the NPU divides by what is inside; a stripe without padding would not know
        return not (window.pad_top or window.pad_bottom or window.pad_left or window.pad_right)
    # every output row reads at least one row that is there
    return source.height > 0 and window.pad_top < window.height and window.pad_bottom < window.height


def _map(operation: NpuOperation, view: FeatureMap) -> Map:
    buffer, offset = operation.addresses[view.base_register(0)]
    low, high = replace(view, height=1).span()
    return Map(view.name, buffer, offset, view.height, view.stride_y, high - low)
