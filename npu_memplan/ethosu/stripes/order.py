"""In which order the rows of some layers are made, and how many rows of the maps between them must be kept.

Invariant: every row is made once, after the rows it needs and as late as possible: a layer goes on only when the
stripe of the last layer that is being made needs more of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .rows import Map, Rows, Sliced


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one layer, made by one operation."""

    member: int  # of the layers
    rows: Rows


def interleave(layers: Sequence[Sliced], cuts: Sequence[Rows], whole: frozenset[str]) -> tuple[Part, ...]:
    """The parts in order. `cuts` are the stripes of the last layer; buffers in `whole` are made to their last row."""
    makers: dict[str, list[int]] = {}  # several make some channels each
    for position, layer in enumerate(layers):
        makers.setdefault(layer.output.buffer, []).append(position)
    done = [0] * len(layers)
    parts: list[Part] = []
    for stripe in cuts:
        need = list(done)
        need[-1] = stripe[1]
        if stripe is cuts[-1]:
            need = [
                layer.output.height if layer.output.buffer in whole else n
                for layer, n in zip(layers, need, strict=True)
            ]
        for position in range(len(layers) - 1, -1, -1):
            if need[position] == done[position]:
                continue
            for source in layers[position].inputs:
                for maker in makers.get(source.buffer, ()):
                    stop = layers[position].needs(source, (done[position], need[position]))[1]
                    need[maker] = max(need[maker], stop)
        for position, (start, stop) in enumerate(zip(done, need, strict=True)):
            if start < stop:
                parts.append(Part(position, (start, stop)))
        done = need
    return tuple(parts)


def ring_rows(layers: Sequence[Sliced], parts: Sequence[Part], buffer: str) -> int:
    """Rows of `buffer` that must be kept at once: from the first still to be read to the last written."""
    unread, most = 1 << 62, 0
    for part in reversed(parts):
        layer = layers[part.member]
        for source in layer.inputs:
            if source.buffer == buffer:
                unread = min(unread, layer.needs(source, part.rows)[0])
        if layer.output.buffer == buffer:
            most = max(most, part.rows[1] - min(unread, part.rows[0]))
    return most


def spans(
    layers: Sequence[Sliced], parts: Sequence[Part], first: str, second: str
) -> list[tuple[Rows | None, Rows | None, int]]:
    """(bytes read of `first`, bytes written of `second`, layer) of each part, from the first that writes `second`."""
    found: list[tuple[Rows | None, Rows | None, int]] = []
    for part in parts:
        layer = layers[part.member]
        reads = [source.span(layer.needs(source, part.rows)) for source in layer.inputs if source.buffer == first]
        writes = layer.output.span(part.rows) if layer.output.buffer == second else None
        read = (min(r[0] for r in reads), max(r[1] for r in reads)) if reads else None
        if found or writes:
            found.append((read, writes, part.member))
    return found


def even_cuts(height: int, rows: int) -> tuple[Rows, ...]:
    """Stripes of `rows` rows; the last one may be lower."""
    return tuple((start, min(start + rows, height)) for start in range(0, height, rows))


def fewest_cuts(layer: Sliced, source: Map, distance: int) -> tuple[Rows, ...] | None:
    """The fewest stripes with which the output of `layer` may lie at `distance` bytes from `source`.

    Each stripe is as high as it can be without writing what it reads. None when even single rows cannot.
    """
    cuts: list[Rows] = []
    start, height = 0, layer.output.height
    while start < height:
        low = source.span(layer.needs(source, (start, start + 1)))[0]
        room = low - distance - layer.output.offset - layer.output.row_bytes  # below the first row that is read
        stop = min(room // layer.output.stride + 1, height) if room >= 0 else start
        if stop <= start:
            return None
        cuts.append((start, stop))
        start = stop
    return tuple(cuts)
