"""What it costs, in bytes and cycles, to make some successive operations in stripes.

Invariant: bytes are those of all buffers of the program that are alive while the group runs, less the best single
overlap; the planner, which knows all of them and everything outside the program, has the last word.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ....problem import AllowedOverlap
from ...hazards.inplace import in_place_distances
from ...program.overlap import span_distances
from ...program.program import BufferRole, NpuProgram, Overlap
from ...time import MemoryMap, default_memory_map
from ..copies.slices import Slicer
from ..shram import round_up
from .by_channels import ChannelGroups
from .costs import Costs
from .group import Group, RowGroup
from .kept import Kept
from .order import Done, Ring, even_cuts, fewest_cuts, interleave, ring_rows, spans
from .rows import Map, Rows, Sliced, sliced
from .tables import may_lie_beside, transfers

_ALIGNMENT = 16
_BOUNDARY = (BufferRole.INPUT, BufferRole.OUTPUT)


@dataclass(frozen=True, slots=True)
class _Worth:
    """What keeping the weights of operation `index` takes and wins."""

    index: int
    kept: Kept
    size_bytes: int
    cycles: int


class Groups:
    """Groups of one program.

    `io_in_pools`: its inputs and outputs count; `reuse_inputs`: and their bytes may be reused once they were read;
    `where`: the memories, of which the last region's has the feature maps; `slicer`: of the program, without which it
    is cut by rows alone; `again`: from which memories come constants that parts read once more, if not from `where`.
    """

    def __init__(
        self,
        program: NpuProgram,
        *,
        io_in_pools: bool = True,
        reuse_inputs: bool = True,
        where: MemoryMap | None = None,
        slicer: Slicer | None = None,
        again: MemoryMap | None = None,
    ) -> None:
        self.program, self.slicer = program, slicer
        self._again = again and Costs(program, again)
        self.costs = Costs(program, where or default_memory_map(program.accelerator))
        self._reuse_inputs = reuse_inputs
        counted = (BufferRole.FEATURE_MAP, BufferRole.ROLLING, *(_BOUNDARY if io_in_pools else ()))
        self._true_sizes = {b.name: b.size_bytes for b in program.buffers}
        self.sizes = {b.name: round_up(b.size_bytes, _ALIGNMENT) for b in program.buffers if b.role in counted}
        self.live = self._lifetimes()
        self.by_channels = slicer and ChannelGroups(self.costs, self.sizes, self.live, slicer)
        self._worth: dict[RowGroup, list[_Worth]] = {}
        self._keeping: dict[tuple[RowGroup, frozenset[int]], RowGroup] = {}
        self._exact: dict[int, Mapping[Hashable, int]] = {}
        self._groups: dict[tuple[int, int, tuple[Rows, ...], bool], RowGroup] = {}
        self.cheapest: dict[tuple[int, int, int], RowGroup | None] = {}  # that were chosen: (first, last, limit)
        self.measured: dict[tuple[Group, ...], Any] = {}  # what was found of groups that were chosen

    def by_rows(self) -> Groups:
        """The same by rows alone; what is known is known to both."""
        found = copy(self)
        found.by_channels = None
        return found

    def _lifetimes(self) -> dict[str, Rows]:
        """First and last operation, inclusive; inputs live from the start, outputs to the end."""
        live = {name: span for name, span in self.program.live_ranges().items() if name in self.sizes}
        end = len(self.program.operations) - 1
        for name, (first, last) in live.items():
            role = self.program.buffer(name).role
            if role is BufferRole.INPUT:
                live[name] = (0, last if self._reuse_inputs else end)
            elif role is BufferRole.OUTPUT:
                live[name] = (first, end)
        return live

    @cached_property
    def layers(self) -> tuple[Sliced | None, ...]:
        """Every operation row by row, None where it cannot be."""
        found = [sliced(self.program, index) for index in range(len(self.program.operations))]
        made = [layer.output for layer in found if layer is not None and layer.output.fills_rows]
        heights = {view.buffer: view.height for view in made}
        return tuple(layer and layer.reading_of(heights) for layer in found)

    @cached_property
    def whole_overlaps(self) -> tuple[Overlap, ...]:
        """Permissions of operations that are made at once."""
        found = (o for o in self.program.overlaps() if o.operation == o.last)
        return tuple(o for o in found if o.allowed.first in self.sizes and o.allowed.second in self.sizes)

    @cached_property
    def whole_bytes(self) -> tuple[int, ...]:
        """Bytes alive at each operation when it is made at once."""
        credit = [0] * len(self.program.operations)
        for o in self.whole_overlaps:
            credit[o.last] = max(credit[o.last], self._shared(o.allowed))
        return tuple(
            sum(self.sizes[name] for name in self._alive(index, index)) - credit[index]
            for index in range(len(self.program.operations))
        )

    def whole_cycles(self, index: int) -> int:
        return self.costs.whole(index)

    def least_bytes(self, first: int, last: int) -> int:
        """No way to make `first` to `last` together needs less."""
        before = after = inner = 0
        for name in self._alive(first, last):
            begin, end = self.live[name]
            given = begin < first or self.program.buffer(name).role is BufferRole.INPUT
            before += self.sizes[name] if given else 0
            after += self.sizes[name] if end > last else 0
            inner += self._least_ring.get(name, 0) if not given and end <= last else 0
        channels = self.by_channels and self.by_channels.least_bytes(first, last)
        return min(max(before, after) + inner, channels or sum(self.sizes.values()))

    @cached_property
    def _least_ring(self) -> dict[str, int]:
        """Bytes of the rows that one output row reads of each buffer: no ring has fewer."""
        found: dict[str, int] = {}
        for layer in self.layers:
            if layer is not None and layer.window is not None:
                source = layer.inputs[0]
                rows = min(layer.window.height, source.height)
                found[source.buffer] = max(found.get(source.buffer, 0), (rows - 1) * source.stride + source.row_bytes)
        return {name: min(size, self.sizes[name]) for name, size in found.items() if name in self.sizes}

    def chain(self, first: int, last: int) -> tuple[Sliced, ...] | None:
        """The layers `first` to `last` if they can be made in turn."""
        layers = [layer for layer in self.layers[first : last + 1] if layer is not None]
        if (
            self.layers[first] is None
            or self.layers[last] is None
            or not may_lie_beside(self.program, range(first, last + 1))
        ):
            return None
        if len(layers) + len(transfers(self.program, first, last)) <= last - first:
            return None
        made: dict[str, list[Map]] = {}
        read: set[str] = set()
        for layer in layers:
            if any(not _same_rows(maker, source) for source in layer.inputs for maker in made.get(source.buffer, ())):
                return None
            read |= {source.buffer for source in layer.inputs}
            makers = made.setdefault(layer.output.buffer, [])
            if layer.output.buffer in read or any(not _same_rows(maker, layer.output) for maker in makers):
                return None  # all of its makers come before all who read it
            makers.append(layer.output)
        inner = {layer.output.buffer for layer in layers[:-1]}
        if not inner <= self.live.keys():
            return None  # an output that is read, and lies in another pool
        complete = all(len(made[name]) == self.writers[name] and self.live[name][0] >= first for name in inner)
        return tuple(layers) if complete and inner <= read else None

    @cached_property
    def writers(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for index in range(len(self.program.operations)):
            for name, is_write in self.program.touched(index):
                if is_write:
                    found[name] = found.get(name, 0) + 1
        return found

    def group(self, layers: tuple[Sliced, ...], cuts: tuple[Rows, ...], upwards: bool = False) -> RowGroup:
        """`layers` made in turn, the last of them in the stripes `cuts`; `upwards`: rows count from the last one."""
        key = (layers[0].index, layers[-1].index, cuts, upwards)
        if key not in self._groups:
            self._groups[key] = self._upwards(layers, cuts) if upwards else self._downwards(layers, cuts)
        return self._groups[key]

    def _upwards(self, layers: tuple[Sliced, ...], cuts: tuple[Rows, ...]) -> RowGroup:
        """Planned upside down: rows and distances count from the ends."""
        found = self._downwards(tuple(layer.upside_down(self._true_sizes) for layer in layers), cuts, turned=True)
        sizes = self._true_sizes | found.ring_bytes
        overlaps = tuple(
            replace(
                o,
                lowest=self._turn(o, o.highest, sizes[o.second]),
                highest=self._turn(o, o.lowest, sizes[o.second]),
            )
            for o in found.overlaps
        )
        return replace(found, layers=layers, overlaps=overlaps, upwards=True)

    def _turn(self, pair: AllowedOverlap, distance: int | None, second_bytes: int) -> int | None:
        """The distance of two starts from the distance of two ends, or the other way round."""
        return None if distance is None else self._true_sizes[pair.first] - second_bytes - distance

    def _downwards(self, layers: tuple[Sliced, ...], cuts: tuple[Rows, ...], turned: bool = False) -> RowGroup:
        first, last = layers[0].index, layers[-1].index
        inner = {layer.output.buffer: layer.output for layer in layers[:-1]}
        kept = {
            name: made
            for name, made in inner.items()
            if self.live[name][1] <= last and self.program.buffer(name).role is BufferRole.FEATURE_MAP
        }
        done = interleave(layers, cuts, frozenset(inner.keys() - kept.keys()))
        rows = {name: ring_rows(layers, done, name) for name in kept}
        rings = {name: n for name, n in rows.items() if n < kept[name].height}
        sizes = {name: round_up(n * kept[name].stride, _ALIGNMENT) for name, n in rings.items()}
        size = sum(sizes.get(name, self.sizes[name]) for name in self._alive(first, last))
        overlaps = self._overlaps(layers, done, rings, turned)
        cycles = sum(self._cycles_of(layer, made) for layer, made in zip(layers, np.diff(done, axis=0).T, strict=True))
        saved = max((self._shared(o, sizes.get(o.second)) for o in overlaps), default=0)
        return RowGroup(
            first=first, last=last, size_bytes=size - saved, cycles=cycles, overlaps=overlaps, layers=layers, done=done,
            rings=rings, cuts=cuts,
        )  # fmt: skip

    def _cycles_of(self, layer: Sliced, made: Done, near: bool = False) -> int:
        """Estimated cycles of all parts of a layer, most of which have as many rows as others."""
        heights, counts = np.unique(made[made > 0], return_counts=True)
        parts = zip(heights.tolist(), counts.tolist(), strict=True)
        cycles: int = sum(count * self.costs.rows(layer.index, rows, near) for rows, count in parts)
        kept = self.costs.kept(layer.index) if self._again and not near else None
        return cycles + (self._again.copy(kept) * (int(counts.sum()) - 1) if self._again and kept else 0)

    def keeping(self, group: RowGroup, spare_bytes: int) -> RowGroup:
        """`group` with weights kept in at most `spare_bytes`, those first that win most cycles with a byte."""
        if group not in self._worth:
            self._worth[group] = sorted(self._worth_keeping(group), key=lambda w: (-w.cycles / w.size_bytes, w.index))
        chosen: list[_Worth] = []
        for worth in self._worth[group]:
            if worth.size_bytes <= spare_bytes:
                spare_bytes -= worth.size_bytes
                chosen.append(worth)
        key = (group, frozenset(worth.index for worth in chosen))
        if chosen and key not in self._keeping:
            self._keeping[key] = replace(
                group,
                kept={worth.index: worth.kept for worth in chosen},
                size_bytes=group.size_bytes + sum(worth.size_bytes for worth in chosen),
                cycles=group.cycles - sum(worth.cycles for worth in chosen),
            )
        return self._keeping.get(key, group)

    def _worth_keeping(self, group: RowGroup) -> Iterator[_Worth]:
        for layer, made in zip(group.layers, np.diff(group.done, axis=0).T, strict=True):
            kept = self.costs.kept(layer.index)
            if kept is not None:
                near = self._cycles_of(layer, made, near=True) + self.costs.copy(kept)
                won = self._cycles_of(layer, made) - near
                if won > 0:
                    yield _Worth(layer.index, kept, round_up(kept.size_bytes, _ALIGNMENT), won)

    def even(self, layers: tuple[Sliced, ...], rows: int) -> RowGroup:
        """`layers` in turn, the last of them `rows` rows at a time."""
        return self.group(layers, even_cuts(layers[-1].output.height, rows))

    def fitting(self, layer: Sliced, limit_bytes: int) -> RowGroup | None:
        """One layer in the fewest stripes with which no more than `limit_bytes` are alive; None: it cannot be."""
        index, second = layer.index, layer.output.buffer
        best: RowGroup | None = None
        for source in layer.inputs:
            if not self._may_overlap(source.buffer, second, index, index):
                continue
            others = sum(self.sizes[n] for n in self._alive(index, index) if n not in (source.buffer, second))
            below = (limit_bytes - others - self.sizes[source.buffer]) // _ALIGNMENT * _ALIGNMENT
            for grain in sorted({1, self.costs.micro_rows}) if below >= 0 else ():
                cuts = fewest_cuts(layer, source, -below, grain)
                if cuts is not None:
                    found = self.group((layer,), cuts)
                    if found.size_bytes <= limit_bytes and (best is None or found.cycles < best.cycles):
                        best = found
        return best

    def turned(self, group: Group) -> Group:
        """The same group upwards; of channels, which have no direction, itself."""
        if not isinstance(group, RowGroup):
            return group
        turned = self.group(group.layers, group.cuts, upwards=True)
        return replace(turned, kept=group.kept, size_bytes=group.size_bytes, cycles=group.cycles)

    # ------------------------------------------------------------------ parts

    def _alive(self, first: int, last: int) -> list[str]:
        return [name for name, (begin, end) in self.live.items() if begin <= last and end >= first]

    def _may_overlap(self, first: str, second: str, begin: int, end: int) -> bool:
        """Whether `first` dies and `second` is born between operations `begin` and `end`."""
        if first not in self.live or second not in self.live or first == second:
            return False
        before = self.live[first][0] < begin or self.program.buffer(first).role is BufferRole.INPUT
        return before and self.live[first][1] <= min(end, self.live[second][1]) and self.live[second][0] >= begin

    def _overlaps(
        self, layers: Sequence[Sliced], done: Done, rings: Mapping[str, int], turned: bool
    ) -> tuple[AllowedOverlap, ...]:
        """All pairs of a dying and a new buffer of a group that may share bytes."""
        begin, end = layers[0].index, layers[-1].index
        made = {layer.output.buffer: layer.output for layer in layers}
        read = dict.fromkeys(source.buffer for layer in layers for source in layer.inputs)
        found = []
        for second in made:
            for first in read:
                if first in made or not self._may_overlap(first, second, begin, end):
                    continue
                pair = AllowedOverlap(first, second)
                view, rows = made[second], rings.get(second)
                size = self._true_sizes[second] if rows is None else rows * view.stride
                ring = None if rows is None else Ring(rows, view.height if turned else 0)
                reads, writes, members = spans(layers, done, first, second, ring)
                exact = {self._in_place(layers[member]).get(first) for member in members}
                agreed = exact.pop() if len(exact) == 1 else None
                if turned:
                    agreed = self._turn(pair, agreed, size)
                allowed = span_distances(reads, writes, agreed, self.sizes[first], round_up(size, _ALIGNMENT))
                if allowed is not None:
                    found.append(AllowedOverlap(first, second, *allowed))
        return tuple(found)

    def _shared(self, o: AllowedOverlap, ring_bytes: int | None = None) -> int:
        """Most bytes that two buffers may share, the second in full or as a ring."""
        first, second = self.sizes[o.first], ring_bytes or self.sizes[o.second]
        if o.highest is not None:
            at = min(o.highest // _ALIGNMENT * _ALIGNMENT, max(0, first - second))
        else:
            assert o.lowest is not None
            at = max(round_up(o.lowest, _ALIGNMENT), min(0, first - second))
        return min(first, at + second) - max(0, at)

    def _in_place(self, layer: Sliced) -> Mapping[Hashable, int]:
        """Distances at which a layer may write over what it reads, by input."""
        if layer.index not in self._exact:
            holder = {m.view: m.buffer for m in (layer.output, *layer.inputs)}
            self._exact[layer.index] = in_place_distances(self.program.at_zero(layer.index), holder)
        return self._exact[layer.index]


def _same_rows(made: Map, read: Map) -> bool:
    """Whether row y of one map is row y of the other, in a buffer of such rows."""
    return made.fills_rows and read.fills_rows and made.stride == read.stride and read.height == made.height
