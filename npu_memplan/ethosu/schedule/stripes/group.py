"""Successive operations that are made part by part, in turns of rows or by channels, and the bytes of that.

Invariant: the parts cover each operation once, and slices of channels, which begin at whole bricks, compute together
exactly its result. Buffers in `rolling_buffer_bytes` are written and read by the group alone, and hold the parts that
are still to be read. Bytes are those of all buffers of the program that are alive meanwhile, less the best
overlaps of two; they do not depend on where memories are, or how fast.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate

import numpy as np

from ....problem import AllowedOverlap
from ...program.access import FeatureMap, sums_depth
from ...program.hazards import in_place_distances
from ...program.overlap import Overlap, find_overlaps, shared_bytes, span_distances
from ...program.program import BufferRole, NpuOperation, NpuProgram
from ...stream.fields import FEATURE_MAPS, IFM, SCALES, WEIGHTS
from ...stream.isa import BRICK_CHANNELS, Op, Upscale
from ...stream.isa import Register as R
from ..constants import ConstantBlock, Slicer, loaded_table, may_lie_beside, transfers
from ..rams import round_up
from .rows import (
    Map,
    Part,
    RollingBuffer,
    RowOrder,
    Rows,
    Sliced,
    even_cuts,
    interleave,
    kept_rows,
    parts,
    slice_rows,
    spans,
)

Channels = tuple[int, int]  # half-open


@dataclass(frozen=True, slots=True)
class DeepMap:
    """A feature map in a buffer, channel by channel."""

    buffer: str
    offset: int  # bytes from the start of the buffer to channel 0
    layout: FeatureMap

    @property
    def is_whole(self) -> bool:
        """Whether the buffer begins with it, and its elements are one after the other."""
        view = self.layout
        return self.offset == 0 and (view.stride_y, view.stride_x, view.stride_c) == self.strides(view.depth)

    def like(self, other: DeepMap) -> bool:
        """Whether element (y, x, c) of one is that of the other in their buffer, for what both of them reach."""
        ours, theirs = (
            (m.offset, v.stride_y, v.stride_x, v.stride_c, v.depth, v.element_bytes, v.brick)
            for m, v in ((self, self.layout), (other, other.layout))
        )
        return ours == theirs

    def slice_bytes(self, depth: int) -> int:
        """Bytes of a buffer for so many of its channels."""
        return self.layout.height * self.strides(depth)[0]

    def place(self, channel: int) -> tuple[str, int]:
        """The first byte of `channel`, the first of a brick."""
        view = self.layout
        step = view.stride_c // BRICK_CHANNELS if view.brick else view.element_bytes
        return self.buffer, self.offset + channel * step

    def strides(self, depth: int) -> tuple[int, int, int]:
        """The bytes from row to row, column to column, brick to brick in a buffer of `depth` channels alone."""
        view = self.layout
        brick = BRICK_CHANNELS * view.element_bytes
        if view.brick:
            plane = view.width * brick
            return plane * (round_up(depth, BRICK_CHANNELS) // BRICK_CHANNELS), brick, plane
        return view.width * depth * view.element_bytes, depth * view.element_bytes, brick


Inner = Mapping[str, DeepMap]  # buffers of a group alone: what is made there


@dataclass(frozen=True, slots=True)
class Deep:
    """An operation whose channels can be made apart from each other."""

    index: int  # in the program
    operation: NpuOperation
    output: DeepMap
    inputs: tuple[DeepMap, ...]  # of which channel c is what channel c is made of
    summed: frozenset[str]  # buffers of which every channel needs more

    @property
    def depth(self) -> int:
        return self.output.layout.depth

    def part(self, channels: Channels, inner: Inner, step: int) -> NpuOperation:
        """The operation that makes `channels` alone, with weights of all; buffers in `inner` hold `step` channels."""
        registers, addresses = dict(self.operation.registers), dict(self.operation.addresses)
        count = channels[1] - channels[0]
        registers[R.OFM_DEPTH_M1] = count - 1
        registers[R.OFM_BLK_DEPTH_M1] = min(registers[R.OFM_BLK_DEPTH_M1], step - 1)
        if any(view.layout.name == IFM.name for view in self.inputs):
            registers[R.IFM_DEPTH_M1] = count - 1
        for view in (self.output, *self.inputs):
            group, first = FEATURE_MAPS[view.layout.name], channels[0]
            if view.buffer in inner:
                strides = inner[view.buffer].strides(step)
                registers |= zip((group.stride_y, group.stride_x, group.stride_c), strides, strict=True)
                first = 0
            addresses[group.bases[0]] = view.place(first)
        return replace(self.operation, registers=registers, addresses=addresses)

    def about(self, channels: Channels, inner: Inner, step: int) -> NpuOperation:
        """The same with about as much weight as these channels have, for an estimate."""
        made = self.part(channels, inner, step)
        lengths = {s.length: made.registers[s.length] for s in (*WEIGHTS, *SCALES) if s.length in made.registers}
        share = channels[1] - channels[0]
        less = {register: round_up(length * share // self.depth, 16) for register, length in lengths.items()}
        return replace(made, registers={**made.registers, **less})


def deep(program: NpuProgram, index: int) -> Deep | None:
    """Operation `index` channel by channel; None when its channels cannot be made apart."""
    operation = program.operations[index]
    if operation.op is Op.DMA_START:
        return None
    placed = program.at_zero(index)
    sums = sums_depth(placed)
    if sums and operation.op is Op.POOL:
        return None
    output, source, second = FeatureMap.ofm(placed), FeatureMap.ifm(placed), FeatureMap.ifm2(placed)
    views = [v for v in (source, second) if v is not None and v.base_register(0) in operation.addresses]  # no scalars
    if any(len(view.tiles(view.height, view.width)) != 1 for view in (output, *views)):
        return None
    apart: list[DeepMap] = []
    summed: list[str] = []
    for view in views:
        made = _map(operation, view)
        if sums or (view.depth == 1 and output.depth > 1):
            summed.append(made.buffer)
        elif view.depth == output.depth:
            apart.append(made)
        else:
            return None
    target = _map(operation, output)
    if not sums and operation.registers.get(R.IFM_DEPTH_M1) != operation.registers[R.OFM_DEPTH_M1]:
        return None  # one channel makes several
    if any(name == target.buffer for name in (*summed, *(view.buffer for view in apart))):
        return None
    return Deep(index, operation, target, tuple(apart), frozenset(summed))


def _map(operation: NpuOperation, view: FeatureMap) -> DeepMap:
    return DeepMap(*operation.addresses[view.base_register(0)], view)


ALIGNMENT = 16
_BOUNDARY = (BufferRole.INPUT, BufferRole.OUTPUT)


class Chains:
    """The chains of one program; `io_in_pools`: its inputs and outputs count; `reuse_inputs`: and their bytes may be
    reused once they were read.
    """

    def __init__(self, program: NpuProgram, io_in_pools: bool, reuse_inputs: bool) -> None:
        self.program = program
        self._reuse_inputs = reuse_inputs
        counted = (BufferRole.FEATURE_MAP, BufferRole.ROLLING, *(_BOUNDARY if io_in_pools else ()))
        self.true_sizes = {b.name: b.size_bytes for b in program.buffers}
        self.sizes = {b.name: round_up(b.size_bytes, ALIGNMENT) for b in program.buffers if b.role in counted}
        self.live = self._lifetimes()
        self._chains: dict[Rows, tuple[Sliced, ...] | None] = {}
        self._least: dict[Rows, int] = {}
        self._exact: dict[int, Mapping[Hashable, int]] = {}
        self._interleaved: dict[tuple[int, int, RowOrder, bool], InterleavedRows] = {}
        self._even: dict[tuple[int, int, int], InterleavedRows] = {}

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
        found = [slice_rows(self.program, index) for index in range(len(self.program.operations))]
        made = [layer.output for layer in found if layer is not None and layer.output.fills_rows]
        written = {view.buffer: view for view in made}
        return tuple(layer and layer.reading_of(written) for layer in found)

    @cached_property
    def whole_overlaps(self) -> tuple[Overlap, ...]:
        """Allowed overlaps of operations that are made at once."""
        found = (o for o in find_overlaps(self.program) if o.operation == o.last)
        return tuple(o for o in found if o.allowed.first in self.sizes and o.allowed.second in self.sizes)

    @cached_property
    def whole_bytes(self) -> tuple[int, ...]:
        """Bytes alive at each operation when it is made at once."""
        credit = [0] * len(self.program.operations)
        for o in self.whole_overlaps:
            credit[o.last] = max(credit[o.last], self.shared_bytes(o.allowed))
        return tuple(
            sum(self.sizes[name] for name in self.alive(index, index)) - credit[index]
            for index in range(len(self.program.operations))
        )

    @cached_property
    def _least_rolling_buffer(self) -> dict[str, int]:
        """Bytes of the rows that one output row reads of each buffer that keeps some: no rolling buffer has fewer."""
        found: dict[str, int] = {}
        for layer in self.layers:
            window = layer and layer.window
            if layer and window and window.height > window.stride_y and layer.upscale is Upscale.NONE:
                source = layer.inputs[0]
                rows = min(window.height, source.height)
                found[source.buffer] = max(found.get(source.buffer, 0), (rows - 1) * source.stride + source.row_bytes)
        return {name: min(size, self.sizes[name]) for name, size in found.items() if name in self.sizes}

    def chain(self, first: int, last: int) -> tuple[Sliced, ...] | None:
        """The layers `first` to `last` if they can be made in turn."""
        if (first, last) not in self._chains:
            self._chains[first, last] = self._chain(first, last)
        return self._chains[first, last]

    def _chain(self, first: int, last: int) -> tuple[Sliced, ...] | None:
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
        read: dict[str, list[Map]] = {}
        for layer in layers:
            target = layer.output
            pairs = [(source, producer) for source in layer.inputs for producer in made.get(source.buffer, ())]
            if any(not _same_rows(producer, source) for source, producer in pairs):
                return None
            for source in layer.inputs:
                read.setdefault(source.buffer, []).append(source)
            if any(target.meets(source) for source in read.get(target.buffer, ())):
                return None  # all of its producers come before all of its readers
            producers = made.setdefault(target.buffer, [])
            if any(not _same_rows(producer, target) for producer in producers):
                return None
            producers.append(target)
        inner = {layer.output.buffer for layer in layers[:-1]}
        if not inner <= self.live.keys():
            return None  # an output that is read, and is in another pool
        lasting = (name for name in inner if self.live[name][1] > last or self._is_output(name))
        return tuple(layers) if inner <= {*read, *lasting} else None

    def _is_output(self, name: str) -> bool:
        return self.program.buffer(name).role is BufferRole.OUTPUT

    @cached_property
    def boundary_bytes(self) -> tuple[int, ...]:
        """Bytes alive before each operation that are there already, and behind the last one."""
        change = [0] * (len(self.program.operations) + 2)
        for name, (first, last) in self.live.items():
            given = self.program.buffer(name).role is BufferRole.INPUT
            lasts = self._is_output(name) or (given and not self._reuse_inputs)
            change[0 if given else first + 1] += self.sizes[name]
            change[len(change) - 1 if lasts else last + 1] -= self.sizes[name]
        return tuple(accumulate(change[:-1]))

    @cached_property
    def long_ranges(self) -> tuple[tuple[int, ...], ...]:
        """For each operation, the first operations of ranges that end with it and inside which more bytes are alive
        than before and behind them: no other range need be made together to keep fewer bytes alive. There are at most
        two for each operation.
        """
        found: list[list[int]] = [[] for _ in self.layers]
        level, stack = self.boundary_bytes, [0]
        for stop in range(1, len(self.layers) + 1):
            index = stop - 1
            if self.layers[index] is None and loaded_table(self.program, self.program.operations[index]) is None:
                stack = [stop]  # it is in no group
                continue
            while stack and level[stack[-1]] > level[stop]:
                found[index].append(stack.pop())
            if stack:
                found[index].append(stack[-1])
                if level[stack[-1]] == level[stop]:
                    stack.pop()
            stack.append(stop)
        return tuple(tuple(starts) for starts in found)

    def least_bytes(self, first: int, last: int) -> int:
        """A lower bound of the bytes of any group of `first` to `last` by rows."""
        if (first, last) not in self._least:
            self._least[first, last] = self._least_bytes(first, last)
        return self._least[first, last]

    def _least_bytes(self, first: int, last: int) -> int:
        before = after = inner = 0
        for name in self.alive(first, last):
            begin, end = self.live[name]
            given = begin < first or self.program.buffer(name).role is BufferRole.INPUT
            before += self.sizes[name] if given else 0
            after += self.sizes[name] if end > last else 0
            inner += self._least_rolling_buffer.get(name, 0) if not given and end <= last else 0
        return max(before, after) + inner

    def interleave_rows(self, layers: tuple[Sliced, ...], turns: RowOrder, upwards: bool = False) -> InterleavedRows:
        """`layers` made in `turns`; `upwards`: rows count from the last one."""
        key = (layers[0].index, layers[-1].index, turns, upwards)
        if key not in self._interleaved:
            self._interleaved[key] = InterleavedRows(self, layers, turns, upwards)
        return self._interleaved[key]

    def even(self, layers: tuple[Sliced, ...], rows: int) -> InterleavedRows:
        """`layers` in turn, the last of them `rows` rows at a time."""
        key = (layers[0].index, layers[-1].index, rows)
        if key not in self._even:
            rows = round_up(rows, layers[-1].grain)
            self._even[key] = self.interleave_rows(layers, even_cuts(layers[-1].output.height, rows))
        return self._even[key]

    def alive(self, first: int, last: int) -> list[str]:
        return [name for name, (begin, end) in self.live.items() if begin <= last and end >= first]

    def may_overlap(self, first: str, second: str, begin: int, end: int) -> bool:
        """Whether `first` dies and `second` is born between operations `begin` and `end`."""
        if first not in self.live or second not in self.live or first == second:
            return False
        before = self.live[first][0] < begin or self.program.buffer(first).role is BufferRole.INPUT
        return before and self.live[first][1] <= min(end, self.live[second][1]) and self.live[second][0] >= begin

    def shared_bytes(self, o: AllowedOverlap, rolling_buffer_bytes: int | None = None) -> int:
        """Most bytes that two buffers may share, the second in full or as a rolling buffer."""
        second = rolling_buffer_bytes or self.sizes[o.second]
        return shared_bytes(o.lowest, o.highest, self.sizes[o.first], second, ALIGNMENT)

    def in_place(self, layer: Sliced) -> Mapping[Hashable, int]:
        """Distances at which a layer may write over what it reads, by input."""
        if layer.index not in self._exact:
            holder = {m.view: m.buffer for m in (layer.output, *layer.inputs)}
            self._exact[layer.index] = in_place_distances(self.program.at_zero(layer.index), holder)
        return self._exact[layer.index]


class InterleavedRows:
    """Layers in `turns`; `upwards`: planned upside down, rows and distances count from the ends.

    `done`: rows of each layer before each turn, counted in the direction of work; `rolling_buffers`: rows kept of
    buffers between the layers; `turn_spans`: the layers between which those are needed that no turn leaves rows in for
    a later one; `alive_bytes`: of all buffers, without any overlap.
    """

    def __init__(self, chains: Chains, layers: tuple[Sliced, ...], turns: RowOrder, upwards: bool) -> None:
        self.layers, self.turns, self.upwards, self._chains = layers, turns, upwards, chains
        self.first, self.last = layers[0].index, layers[-1].index
        self._ordered = tuple(x.upside_down(chains.true_sizes) for x in layers) if upwards else layers
        inner = {layer.output.buffer: layer.output for layer in self._ordered[:-1]}
        kept = {
            name: made
            for name, made in inner.items()
            if self.first <= chains.live[name][0]
            and chains.live[name][1] <= self.last
            and chains.program.buffer(name).role is BufferRole.FEATURE_MAP
        }
        self.done = interleave(self._ordered, turns, frozenset(inner.keys() - kept.keys()))
        needed = kept_rows(self._ordered, self.done, kept)
        self.rolling_buffers = {name: n.rows for name, n in needed.items() if n.rows < kept[name].height}
        self.turn_spans = {name: needed[name].members for name in self.rolling_buffers if not needed[name].lasts}
        self._rolling_buffer_sizes = {
            name: round_up(n * kept[name].stride, ALIGNMENT) for name, n in self.rolling_buffers.items()
        }
        alive = [name for name in chains.alive(self.first, self.last) if name not in self.turn_spans]
        self.alive_bytes = sum(self._rolling_buffer_sizes.get(name, chains.sizes[name]) for name in alive)
        self.alive_bytes += self._turn_bytes()
        self._overlaps: dict[tuple[str, str], AllowedOverlap | None] = {}

    def _turn_bytes(self) -> int:
        """The most bytes of the buffers in `turn_spans` that are needed at once."""
        change = [0] * (len(self.layers) + 1)
        for name, (start, stop) in self.turn_spans.items():
            change[start] += self._rolling_buffer_sizes[name]
            change[stop] -= self._rolling_buffer_sizes[name]
        return max(accumulate(change))

    @cached_property
    def size_bytes(self) -> int:
        """The bytes of everything alive, less the best overlaps, of which a buffer is in one."""
        size, shared, exact = self.alive_bytes, dict(self._most_shared), set[tuple[str, str]]()
        while shared:
            pair = max(shared, key=lambda pair: (shared[pair], pair))
            if pair not in exact:  # others may never be the best
                exact.add(pair)
                overlap = self._overlap(pair)
                if overlap is None:
                    del shared[pair]
                else:
                    shared[pair] = self._chains.shared_bytes(overlap, self._rolling_buffer_sizes.get(pair[1]))
                continue
            size -= shared[pair]
            shared = {other: n for other, n in shared.items() if other[0] != pair[0] and other[1] != pair[1]}
        return size

    @cached_property
    def _most_shared(self) -> dict[tuple[str, str], int]:
        """The bytes that each pair shares at most."""
        sizes, rolling = self._chains.sizes, self._rolling_buffer_sizes
        return {(a, b): min(sizes[a], rolling.get(b, sizes[b])) for a, b in self._pairs}

    @cached_property
    def least_bytes(self) -> int:
        """A lower bound of `size_bytes`: that of overlaps as large as they could be."""
        dying: dict[str, int] = {}
        new: dict[str, int] = {}
        for (first, second), common in self._most_shared.items():
            dying[first] = max(dying.get(first, 0), common)
            new[second] = max(new.get(second, 0), common)
        return self.alive_bytes - min(sum(dying.values()), sum(new.values()))

    @cached_property
    def heights(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The rows of each layer at a time, and how often so many."""
        found = []
        for made in np.diff(self.done, axis=0).T:
            counts = np.bincount(made)
            rows = np.flatnonzero(counts)
            found.append(tuple((n, k) for n, k in zip(rows.tolist(), counts[rows].tolist(), strict=True) if n))
        return tuple(found)

    @cached_property
    def overlaps(self) -> tuple[AllowedOverlap, ...]:
        """Pairs that may share bytes, at distances that count from the starts."""
        if not self.upwards:
            return self._overlap_pairs
        sizes = self._chains.true_sizes
        bytes_of = sizes | {x.output.buffer: self.rolling_buffers[x.output.buffer] * x.output.stride
                            for x in self.layers if x.output.buffer in self.rolling_buffers}  # fmt: skip
        return tuple(
            replace(
                o,
                lowest=self._turn(o, o.highest, bytes_of[o.second]),
                highest=self._turn(o, o.lowest, bytes_of[o.second]),
            )
            for o in self._overlap_pairs
        )

    def _turn(self, pair: AllowedOverlap, distance: int | None, second_bytes: int) -> int | None:
        """The distance of two starts from the distance of two ends, or the other way round."""
        return None if distance is None else self._chains.true_sizes[pair.first] - second_bytes - distance

    @cached_property
    def _pairs(self) -> tuple[tuple[str, str], ...]:
        """A dying and a new buffer each, which may share bytes as far as their lives go."""
        made = dict.fromkeys(layer.output.buffer for layer in self.layers)
        read = dict.fromkeys(source.buffer for layer in self.layers for source in layer.inputs)
        may, ends = self._chains.may_overlap, (self.first, self.last)
        return tuple((a, b) for b in made for a in read if a not in made and may(a, b, *ends))

    @cached_property
    def _overlap_pairs(self) -> tuple[AllowedOverlap, ...]:
        """All pairs of a dying and a new buffer that may share bytes, in the direction of work."""
        return tuple(found for found in map(self._overlap, self._pairs) if found is not None)

    def _overlap(self, pair: tuple[str, str]) -> AllowedOverlap | None:
        """The distances at which a pair may share bytes, in the direction of work; None where it may not."""
        if pair not in self._overlaps:
            self._overlaps[pair] = self._find_overlap(*pair)
        return self._overlaps[pair]

    def _find_overlap(self, first: str, second: str) -> AllowedOverlap | None:
        chains, rows = self._chains, self.rolling_buffers.get(second)
        view = next(layer.output for layer in reversed(self._ordered) if layer.output.buffer == second)
        size = chains.true_sizes[second] if rows is None else rows * view.stride
        rolling_buffer = None if rows is None else RollingBuffer(rows, view.height if self.upwards else 0)
        reads, writes, members = spans(self._ordered, self.done, first, second, rolling_buffer)
        exact = {chains.in_place(self._ordered[member]).get(first) for member in members}
        agreed = exact.pop() if len(exact) == 1 else None
        if self.upwards:
            agreed = self._turn(AllowedOverlap(first, second), agreed, size)
        allowed = span_distances(reads, writes, agreed, chains.sizes[first], round_up(size, ALIGNMENT))
        return allowed and AllowedOverlap(first, second, *allowed)


def _same_rows(made: Map, read: Map) -> bool:
    """Whether row y of one map is row y of the other, in a buffer of such rows."""
    return made.fills_rows and read.fills_rows and made.stride == read.stride and read.height == made.height


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Group(ABC):
    """Operations `first` to `last`."""

    first: int
    last: int
    size_bytes: int  # of everything alive meanwhile
    cycles: int
    kept: Mapping[int, ConstantBlock] = field(default_factory=dict)  # by operation of the program
    upwards: bool = False  # from the last row to the first

    def transfers(self, program: NpuProgram) -> tuple[NpuOperation, ...]:
        """Transfers of tables, which all come before the parts."""
        return tuple(program.operations[index] for index in transfers(program, self.first, self.last))

    @property
    @abstractmethod
    def rolling_buffer_bytes(self) -> Mapping[str, int]:
        """Bytes of the buffers that hold some parts only."""

    @property
    def overlaps(self) -> tuple[AllowedOverlap, ...]:
        """Pairs that may share bytes, at distances that count from the starts."""
        return ()

    @property
    def turn_spans(self) -> Mapping[str, Rows]:
        """Those of these buffers that are needed only from their first to their last layer in every turn."""
        return {}

    @abstractmethod
    def operations(self, copies: Mapping[int, str], slicer: Slicer | None) -> Iterator[NpuOperation]:
        """The parts in order. `copies`: buffers of what is kept; `slicer`: of the program, where weights are cut."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RowGroup(Group):
    """Rows at a time."""

    interleaved: InterleavedRows

    @property
    def layers(self) -> tuple[Sliced, ...]:
        """The layers in program order."""
        return self.interleaved.layers

    @property
    def overlaps(self) -> tuple[AllowedOverlap, ...]:
        return self.interleaved.overlaps

    @property
    def rolling_buffers(self) -> Mapping[str, int]:
        """Rows kept of buffers between the layers."""
        return self.interleaved.rolling_buffers

    @property
    def turn_spans(self) -> Mapping[str, Rows]:
        return self.interleaved.turn_spans

    @property
    def parts(self) -> tuple[Part, ...]:
        """The operations in order, with rows that count from the first."""
        if not self.upwards:
            return tuple(parts(self.interleaved.done))
        heights = [layer.output.height for layer in self.layers]
        return tuple(
            Part(p.member, (heights[p.member] - p.rows[1], heights[p.member] - p.rows[0]))
            for p in parts(self.interleaved.done)
        )

    @property
    def rolling_buffer_bytes(self) -> dict[str, int]:
        strides = {layer.output.buffer: layer.output.stride for layer in self.layers}
        return {name: rows * strides[name] for name, rows in self.rolling_buffers.items()}

    def operations(self, copies: Mapping[int, str], slicer: Slicer | None) -> Iterator[NpuOperation]:
        for part in self.parts:
            layer = self.layers[part.member]
            made = layer.part(part.rows, self.rolling_buffers)
            yield self.kept[layer.index].read_by(made, copies[layer.index]) if layer.index in self.kept else made


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ChannelGroup(Group):
    """`step` output channels at a time through all layers: weights are read once, maps between hold so many."""

    layers: tuple[Deep, ...]
    step: int

    @property
    def rolling_buffer_bytes(self) -> dict[str, int]:
        return {name: made.slice_bytes(self.step) for name, made in inner_of(self.layers).items()}

    def operations(self, copies: Mapping[int, str], slicer: Slicer | None) -> Iterator[NpuOperation]:
        assert slicer is not None
        depth, inner = self.layers[0].depth, inner_of(self.layers)
        for start in range(0, depth, self.step):
            part = start, min(start + self.step, depth)
            for layer in self.layers:
                made = layer.part(part, inner, self.step)
                yield slicer.with_weights(made, layer.operation, part)


def inner_of(layers: Sequence[Deep]) -> Inner:
    """The maps between layers."""
    return {layer.output.buffer: layer.output for layer in layers[:-1]}
