"""In which order the rows of some layers are made, and how many rows of the maps between them must be kept.

Invariant: every row is made once, after the rows it needs and as late as possible: a layer goes on only when the
stripe of the last layer that is being made needs more of it, or, in step, when the rows of a later turn do.

Layers are interleaved, one turn a stripe of the last layer, or a few rows of every layer. `Done[k, i]` is how many rows
of layer i are there before turn k; in turn k layer i makes rows `Done[k, i]` to `Done[k + 1, i]`, if any, after the
layers before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...program.overlap import NOTHING
from .rows import Map, Rows, Sliced

Done = NDArray[np.int64]
RowOrder = tuple[Rows, ...] | int  # stripes of the last layer, or the most rows of every layer in a turn


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one layer, made by one operation."""

    member: int  # of the layers
    rows: Rows


def interleave(layers: Sequence[Sliced], turns: RowOrder, whole: frozenset[str]) -> Done:
    """The order; buffers in `whole` are made to their last row."""
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
    """Of each layer: inputs that layers before it make, and which do; several make some channels each."""
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


def rolling_buffer_rows(layers: Sequence[Sliced], done: Done, buffer: str) -> int:
    """Rows of `buffer` that must be kept at once: from the first still to be read to the last written."""
    unread = np.full(len(done) - 1, NOTHING[0])  # in or after each turn; a layer goes on where it stopped
    for position, layer in enumerate(layers):
        before = done[:-1, position]
        for source in layer.inputs:
            if source.buffer == buffer:
                first = np.where(before < done[-1, position], layer.starts(source, before), NOTHING[0])
                unread = np.minimum(unread, first)
    most = 0
    for position, layer in enumerate(layers):
        if layer.output.buffer == buffer:
            before, after = done[:-1, position], done[1:, position]
            kept = np.where(before < after, after - np.minimum(unread, before), 0)
            most = max(most, int(kept.max()))
    return most


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
    that writes. A row of two columns is a span, `NOTHING` for none. `rolling buffer`: what `second` is of its map.
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
