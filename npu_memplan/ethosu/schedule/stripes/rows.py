"""Rows of an operation's output, the operation that makes them alone, and in which order several layers make theirs.

Invariant: stripes that cover all rows of an operation compute, together, exactly its result: the same weights,
scales and block; only bases, heights and the padding above and below follow the rows. Row y of a rolling buffer of n
rows is stored in its row y modulo n. Every row is made once, after the rows it needs and as late as possible: a layer
goes on only when the stripe of the last layer that is being made needs more of it, or, in step, when the rows of a
later turn do.

Layers are interleaved, one turn a stripe of the last layer, or a few rows of every layer. `Done[k, i]` is how many rows
of layer i are there before turn k; in turn k layer i makes rows `Done[k, i]` to `Done[k + 1, i]`, if any, after the
layers before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...program.access import FeatureMap, Kernel, is_indivisible
from ...program.overlap import NOTHING
from ...program.program import BufferRole, NpuOperation, NpuProgram
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
    pixel_stride: int = 0  # bytes from element to element of a row; 0: not known, or in bricks
    pixel_bytes: int = 0  # of the channels of one element

    def meets(self, other: Map) -> bool:
        """Whether rows of two maps share bytes: of one buffer, and not different channels of the same elements."""
        ends = self.offset + self.row_bytes, other.offset + other.row_bytes
        if self.buffer != other.buffer or self.stride != other.stride:
            return self.buffer == other.buffer
        if self.offset >= ends[1] or other.offset >= ends[0]:
            return False
        step = self.pixel_stride
        if not step or step != other.pixel_stride:
            return True
        first, second = self.offset % step, other.offset % step
        return first < second + other.pixel_bytes and second < first + self.pixel_bytes

    def span(self, rows: Rows) -> Rows:
        """Bytes of the buffer from the first to the last of `rows`, half-open."""
        return self.offset + rows[0] * self.stride, self.offset + (rows[1] - 1) * self.stride + self.row_bytes

    def spans(self, starts: Many, stops: Many) -> tuple[Many, Many]:
        """`span` of many rows at a time."""
        return self.offset + starts * self.stride, self.offset + (stops - 1) * self.stride + self.row_bytes

    @property
    def fills_rows(self) -> bool:
        """Whether the buffer begins with row 0 and its rows do not interleave, so that it may become a rolling one."""
        return self.offset + self.row_bytes <= self.stride


MOST_STRIPES = 1024
"""Parts that one operation is cut into at most: each is an operation of the stream, which takes flash and time. Only
maps of more rows are concerned, such as those of a SOFTMAX over many vectors."""


@dataclass(frozen=True, slots=True)
class Sliced:
    """An operation whose rows can be made apart from each other."""

    index: int  # in the program
    operation: NpuOperation
    output: Map
    inputs: tuple[Map, ...]  # in memory; constants are left out
    window: Kernel | None  # None: output row y needs input row y
    upscale: Upscale = Upscale.NONE  # how the window sees each row of the input twice

    @property
    def grain(self) -> int:
        """Parts begin at multiples of so many rows, so that there are `MOST_STRIPES` of them at most."""
        rows = 2 if self.upscale is Upscale.NEAREST else 1
        return rows * -(-self.output.height // (rows * MOST_STRIPES))

    def needs(self, source: Map, rows: Rows) -> Rows:
        """Rows of input `source` that output `rows` are made of."""
        if source.height == 1 and self.window is None:
            return 0, 1  # the same for every row
        if self.window is None:
            return rows
        starts, stops = np.array([rows[0]]), np.array([rows[1]])
        return int(self.starts(source, starts)[0]), int(self.stops(source, stops)[0])

    def starts(self, source: Map, starts: Many) -> Many:
        """`needs` of many rows at a time: where they start."""
        if self.window is None:
            return starts * 0 if source.height == 1 else starts
        first = np.maximum(starts * self.window.stride_y - self.window.pad_top, 0)
        if self.upscale is Upscale.NONE:
            return first
        return first // 2 if self.upscale is Upscale.NEAREST else (first + 1) // 2

    def stops(self, source: Map, stops: Many) -> Many:
        """`needs` of many rows at a time: where they stop."""
        if self.window is None:
            return stops * 0 + 1 if source.height == 1 else stops
        reach = (stops - 1) * self.window.stride_y - self.window.pad_top + self.window.height
        if self.upscale is Upscale.NONE:
            return np.minimum(reach, source.height)
        return (np.minimum(reach, self._seen_rows) + 1) // 2

    def reading_of(self, written: Mapping[str, Map]) -> Sliced:
        """The same layer over whole maps: windows may leave the last rows of a `written` map unread."""
        if self.window is None or self.upscale is not Upscale.NONE:
            return self
        source = self.inputs[0]
        whole = written.get(source.buffer, source)
        unread = whole.height - source.height if whole.stride == source.stride else 0
        if unread <= 0 or not source.fills_rows:
            return self
        window = replace(self.window, pad_bottom=self.window.pad_bottom - unread)
        return replace(self, inputs=(replace(source, height=source.height + unread),), window=window)

    @property
    def _seen_rows(self) -> int:
        """Rows that the window goes over, padding left out."""
        assert self.window is not None
        first, stop = self._reach((0, self.output.height))
        return stop - max(-first, 0) - self.window.pad_bottom

    def _reach(self, rows: Rows) -> Rows:
        assert self.window is not None
        step, top = self.window.stride_y, self.window.pad_top
        return rows[0] * step - top, (rows[1] - 1) * step - top + self.window.height

    def upside_down(self, sizes: Mapping[str, int]) -> Sliced:
        """The same layer with rows and bytes counted from the ends of maps and buffers, for planning upwards."""

        def flip_view(view: Map) -> Map:
            return replace(view, offset=sizes[view.buffer] - view.span((0, view.height))[1])

        window = self.window and replace(self.window, pad_top=self.window.pad_bottom, pad_bottom=self.window.pad_top)
        return replace(
            self,
            output=flip_view(self.output),
            inputs=tuple(flip_view(source) for source in self.inputs),
            window=window,
        )

    def part(self, rows: Rows, rolling_buffers: Mapping[str, int]) -> NpuOperation:
        """The operation that makes `rows` alone; `rolling_buffers` are the heights of buffers that keep few rows."""
        registers, addresses = dict(self.operation.registers), dict(self.operation.addresses)
        registers[R.OFM_HEIGHT_M1] = rows[1] - rows[0] - 1
        if self.window is not None:
            first, stop = self._reach(rows)
            # a row of zeros between two rows of the input is as good as padding, and a part cannot begin with one
            odd = self.upscale is Upscale.TRANSPOSE and first > 0 and first % 2
            seen = self.inputs[0].height if self.upscale is Upscale.NONE else self._seen_rows
            registers[R.IFM_PAD_TOP] = 1 if odd else max(-first, 0)
            registers[R.IFM_PAD_BOTTOM] = max(stop - seen, 0)
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


def slice_rows(program: NpuProgram, index: int) -> Sliced | None:
    """Operation `index` row by row; None when its rows cannot be made apart."""
    operation = program.operations[index]
    if operation.op is Op.DMA_START:
        return None
    placed = program.at_zero(index)
    if is_indivisible(placed):
        return None
    output, source, second = FeatureMap.ofm(placed), FeatureMap.ifm(placed), FeatureMap.ifm2(placed)
    window = None if operation.op is Op.ELEMENTWISE else Kernel.from_registers(placed)
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
    if any(m.meets(target) for m in inputs):
        return None  # parts of one buffer: they would have to keep their distance
    found = Sliced(index, operation, target, inputs, window, Upscale(operation.registers.get(R.IFM_UPSCALE, 0)))
    return found if found.upscale is Upscale.NONE or _may_upscale(found) else None


def _rows_apart(operation: NpuOperation, window: Kernel, source: FeatureMap) -> bool:
    if operation.op is Op.POOL and operation.parameter == PoolMode.AVERAGE:
        # with padding the NPU divides by what is inside; a stripe without any would not know
        padded = window.pad_top or window.pad_bottom or window.pad_left or window.pad_right
        if padded and not (window.pad_left or window.pad_right):
            return False
    # every output row reads at least one row that is there
    return source.height > 0 and window.pad_top < window.height and window.pad_bottom < window.height


def _may_upscale(layer: Sliced) -> bool:
    """Whether every part of a layer that sees its rows twice can begin with a row that is there, and reads one."""
    window = layer.window
    if window is None or (window.pad_top % 2 and layer.upscale is Upscale.NEAREST):
        return False
    height = layer.output.height
    starts = np.arange(0, height, layer.grain)
    low = layer.starts(layer.inputs[0], starts)
    high = layer.stops(layer.inputs[0], np.minimum(starts + layer.grain, height))
    return bool(np.all(low < high)) and int(high[-1]) <= layer.inputs[0].height


def _map(operation: NpuOperation, view: FeatureMap) -> Map:
    buffer, offset = operation.addresses[view.base_register(0)]
    low, high = replace(view, height=1).span()
    pixel = (0, 0) if view.brick else (view.stride_x, view.depth * view.element_bytes)
    return Map(view.name, buffer, offset, view.height, view.stride_y, high - low, *pixel)


Done = NDArray[np.int64]
RowOrder = tuple[Rows, ...] | int  # stripes of the last layer, or the most rows of every layer in a turn


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one layer, made by one operation."""

    member: int  # of the layers
    rows: Rows


def interleave(layers: Sequence[Sliced], turns: RowOrder, whole: frozenset[str]) -> Done:
    """The rows of each layer before each of the `turns`; buffers in `whole` are made to their last row."""
    return _in_step(layers, turns, whole) if isinstance(turns, int) else _stripe_by_stripe(layers, turns, whole)


def _stripe_by_stripe(layers: Sequence[Sliced], cuts: Sequence[Rows], whole: frozenset[str]) -> Done:
    """A turn for each stripe of the last layer."""
    reads = read_from(layers)
    read = {producer for found in reads for _, producer in found}
    done = np.zeros((len(cuts) + 1, len(layers)), np.int64)
    done[1:, -1] = [stop for _, stop in cuts]
    last = layers[-1].output.height
    for position in range(len(layers) - 1, -1, -1):  # readers come after writers
        layer, made = layers[position], done[:, position]
        height = layer.output.height
        if layer.output.buffer in whole:
            if position not in read:  # it keeps step with the last one
                np.maximum(made, done[:, -1] * height // last, out=made)
            made[-1] = height
        if layer.grain > 1:
            np.minimum(-(-made // layer.grain) * layer.grain, height, out=made)
        for source, producer in reads[position]:
            needed = np.where(made > 0, layer.stops(source, made), 0)
            np.maximum(done[:, producer], needed, out=done[:, producer])
    return done


def read_from(layers: Sequence[Sliced]) -> list[list[tuple[Map, int]]]:
    """The inputs of each layer that layers before it make, and which do; several make some channels each."""
    producers: dict[str, list[int]] = {}
    found: list[list[tuple[Map, int]]] = []
    for position, layer in enumerate(layers):
        reads = [(source, i) for source in layer.inputs for i in producers.get(source.buffer, ())]
        found.append([(source, i) for source, i in reads if source.meets(layers[i].output)])
        producers.setdefault(layer.output.buffer, []).append(position)
    return found


def _in_step(layers: Sequence[Sliced], rows: int, whole: frozenset[str]) -> Done:
    """An order in which every layer makes at most `rows` rows: the last one as early as it can, the others as late as
    that lets them. So no map needs more rows at the start, at the end, or for a layer that reads many at a time.
    """
    every_row = ((0, layers[-1].output.height),)
    steps_of = [-(-rows // layer.grain) * layer.grain for layer in layers]
    made_rows = _stripe_by_stripe(layers, every_row, whole)[-1]
    ends = [np.minimum(np.arange(step, n + step, step), n) for n, step in zip(made_rows, steps_of, strict=True)]
    # a reader, whom it reads, and the last step it needs for each of its own
    read = [
        (reader, i, (layers[reader].stops(source, ends[reader]) - 1) // steps_of[i])
        for reader, found in enumerate(read_from(layers))
        for source, i in found
    ]
    awaited = {producer for _, producer, _ in read}
    turns: list[Done] = []  # of each layer's steps
    for position, made in enumerate(ends):
        ready = np.zeros(len(made), np.int64)
        for reader, producer, last in read:
            if reader == position:
                np.maximum(ready, turns[producer][last], out=ready)
        steps = np.arange(len(made))
        turns.append(np.maximum.accumulate(ready - steps) + steps)
    count = max(int(found[-1]) for found in turns if len(found)) + 1
    for position in range(len(layers) - 2, -1, -1):
        if position not in awaited:
            continue  # it is made as soon as it can be
        steps = np.arange(len(ends[position]))
        latest = np.full(len(steps), count - 1)
        for reader, producer, last in read:
            if producer == position:
                first = np.searchsorted(last, steps)  # step of the reader that needs it
                there = first < len(last)
                latest[there] = np.minimum(latest[there], turns[reader][first[there]])
        turns[position] = np.minimum.accumulate((latest - steps)[::-1])[::-1] + steps
    return np.stack([_done(made, found, count) for made, found in zip(ends, turns, strict=True)], axis=1)


def _done(ends: Done, turns: Done, count: int) -> Done:
    """Rows of a layer before each of `count` turns and after the last; its step i ends at row `ends[i]`."""
    steps = np.searchsorted(turns, np.arange(count + 1), side="left")
    return np.concatenate(([0], ends))[steps]


def parts(done: Done) -> Iterator[Part]:
    for before, after in zip(done[:-1].tolist(), done[1:].tolist(), strict=True):
        for member, rows in enumerate(zip(before, after, strict=True)):
            if rows[0] < rows[1]:
                yield Part(member, rows)


@dataclass(frozen=True, slots=True)
class KeptRows:
    """What must be kept of a buffer between layers."""

    rows: int  # at once: from the first still to be read to the last written
    members: Rows  # the layers from the first that writes it on to the last that reads it
    lasts: bool  # whether rows of one turn are read in a later one, so that it is needed at any time


def kept_rows(layers: Sequence[Sliced], done: Done, buffers: Collection[str]) -> dict[str, KeptRows]:
    """What must be kept of each of the buffers, all of which are made by some of the layers."""
    # the first row that is read in or after each turn, and after the last one; layers go on where they stopped
    unread = {name: np.full(len(done), NOTHING[0]) for name in buffers}
    ends: dict[str, int] = {}
    for position, layer in enumerate(layers):
        made = done[:, position]
        for source in layer.inputs:
            if source.buffer in unread:
                first = np.where(made < made[-1], layer.starts(source, made), NOTHING[0])
                np.minimum(unread[source.buffer], first, out=unread[source.buffer])
                ends[source.buffer] = position + 1
    found: dict[str, KeptRows] = {}
    for position, layer in enumerate(layers):
        name = layer.output.buffer
        if name in unread:
            before, after = done[:-1, position], done[1:, position]
            rows = int(np.where(before < after, after - np.minimum(unread[name][:-1], before), 0).max())
            lasts = bool(np.any(unread[name][1:] < after))
            known = found.get(name, KeptRows(0, (position, position + 1), False))
            last = max(ends.get(name, 0), position + 1)
            found[name] = KeptRows(max(known.rows, rows), (known.members[0], last), known.lasts or lasts)
    return found


@dataclass(frozen=True, slots=True)
class RollingBuffer:
    """The last `rows` rows of a map: row y is stored in row `(y - shift) % rows`."""

    rows: int
    shift: int = 0

    def spans(self, view: Map, starts: Done, stops: Done) -> tuple[Done, Done]:
        """`view.spans` of rows in their places; of all of the rolling buffer where they reach over its end."""
        slots = (starts - self.shift) % self.rows
        ends = slots + stops - starts
        around = ends > self.rows
        return view.spans(np.where(around, 0, slots), np.where(around, self.rows, ends))


def spans(
    layers: Sequence[Sliced], done: Done, first: str, second: str, rolling_buffer: RollingBuffer | None = None
) -> tuple[Done, Done, list[int]]:
    """Bytes read of `first` and written of `second` by each part that does either, and which writes, from the first
    that writes. A row of two columns is a span, `NOTHING` for none. `rolling_buffer`: the rows of its map that `second`
    holds; None: all of them.
    """
    members = [i for i, x in enumerate(layers) if x.output.buffer == second or any(s.buffer == first for s in x.inputs)]
    interleaved = len(done) - 1
    reads = np.empty((interleaved, len(members), 2), np.int64)
    reads[:] = NOTHING
    writes = reads.copy()
    there = np.empty((interleaved, len(members)), bool)
    for column, member in enumerate(members):
        layer, start, stop = layers[member], done[:-1, member], done[1:, member]
        there[:, column] = start < stop
        for source in layer.inputs:
            if source.buffer == first:
                low, high = source.spans(layer.starts(source, start), layer.stops(source, stop))
                np.minimum(reads[:, column, 0], low, out=reads[:, column, 0])
                np.maximum(reads[:, column, 1], high, out=reads[:, column, 1])
        if layer.output.buffer == second:
            rows = (
                layer.output.spans(start, stop)
                if rolling_buffer is None
                else rolling_buffer.spans(layer.output, start, stop)
            )
            writes[:, column, 0], writes[:, column, 1] = rows
    reads, writes = reads[there], writes[there]
    begin = int(np.argmax(writes[:, 1] > writes[:, 0]))
    return reads[begin:], writes[begin:], [i for i in members if layers[i].output.buffer == second and done[-1, i]]


@lru_cache(1024)
def even_cuts(height: int, rows: int) -> tuple[Rows, ...]:
    """Stripes of `rows` rows; the last one may be lower."""
    return tuple((start, min(start + rows, height)) for start in range(0, height, rows))


def fewest_cuts(layer: Sliced, source: Map, distance: int, grain: int) -> tuple[Rows, ...] | None:
    """The fewest stripes with which the output of `layer` may be at `distance` bytes from `source`.

    Each stripe is as high as it can be without writing what it reads, in multiples of `grain` rows where that many
    can be. None when even single rows cannot.
    """
    cuts: list[Rows] = []
    start, height = 0, layer.output.height
    while start < height:
        low = source.span(layer.needs(source, (start, start + 1)))[0]
        room = low - distance - layer.output.offset - layer.output.row_bytes  # below the first row that is read
        stop = min(room // layer.output.stride + 1, height) if room >= 0 else start
        stop -= stop % layer.grain if stop < height else 0
        if stop <= start:
            return None
        if stop < height and stop - start > grain and not grain % layer.grain:
            stop -= (stop - start) % grain
        cuts.append((start, stop))
        start = stop
    return tuple(cuts)
