"""What it costs, in bytes and cycles, to make successive operations in stripes, and which of them to make so.

Invariant: the program in stripes computes the same outputs; buffers that became rolling buffers keep their names. Bytes
are counted by `group`; the planner, which knows all overlaps and everything outside the program, decides. Cycles are
the estimate's, operation by operation, in the blocks that a stripe of that height gets. In groups by channels, no map
after the first operation that sums over channels is ever there in full. The groups chosen are disjoint and in program
order, and no cheaper choice among those looked at is known at the limit. Weights kept near are the constants that
registers name, byte for byte; copies of constants wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from ....names import Names
from ....problem.spans import merge_spans
from ...program.program import BufferRole, NpuBuffer, NpuOperation, NpuProgram
from ...stream.decode import Operation
from ...stream.isa import BRICK_CHANNELS, Op, Register, Upscale
from ...time import MemoryMap, ResourceUseCache, cycles_in_a_row, default_memory_map
from ...time.cost import resource_use
from ..blocks import BESIDE, BlockError, Blocks, places
from ..constants import STREAMS, ConstantBlock, Slicer, Span, may_lie_beside, transfers
from ..rams import ceil_div, round_up
from .group import (
    ALIGNMENT,
    Chains,
    ChannelGroup,
    Deep,
    DeepMap,
    Group,
    Inner,
    InterleavedRows,
    RowGroup,
    deep,
    inner_of,
)
from .rows import RowOrder, Rows, Sliced, fewest_cuts


def constants_of(program: NpuProgram, index: int) -> ConstantBlock | None:
    """The constants of operation `index` that could be kept; None where it reads no weights of the constants."""
    operation = program.operations[index]
    spans: list[Span] = []
    names: set[str] = set()
    for stream in STREAMS:
        length = operation.registers.get(stream.length, 0)
        if stream.base in operation.addresses and length:
            name, start = operation.addresses[stream.base]
            names.add(name)
            spans.append((start, start + length))
    if len(names) != 1 or program.buffer(name := names.pop()).role is not BufferRole.CONSTANTS:
        return None
    return ConstantBlock(name, merge_spans(spans), (index,))


class Costs:
    """The costs of one program in the memories `memory_map`, of which the last region's has the feature maps."""

    def __init__(self, program: NpuProgram, memory_map: MemoryMap) -> None:
        self.program, self.memory_map = program, memory_map
        self.resource_uses = ResourceUseCache(program.accelerator, memory_map)
        self._places = places(program, memory_map)
        self.blocks = Blocks(program.accelerator, memory_map, BESIDE)
        self.micro_rows = program.accelerator.ofm_micro.height
        self._near = max(memory_map.regions)
        self._cycles: dict[tuple[int, int, bool], int] = {}
        self._slices: dict[tuple[int, int, int, frozenset[str]], int] = {}
        self._kept: dict[int, ConstantBlock | None] = {}

    def rows(self, index: int, rows: int, near: bool = False) -> int:
        """Cycles of `rows` rows of operation `index`; `near`: its weights are with the feature maps."""
        rows = round_up(rows, self.micro_rows)
        key = (index, rows, near)
        if key not in self._cycles:
            operation = self._operation(index)
            stripe = {Register.OFM_HEIGHT_M1: rows - 1}
            if near:
                stripe |= {Register.WEIGHT_REGION: self._near, Register.SCALE_REGION: self._near}
            made = operation.with_registers(stripe)
            if rows < operation[Register.OFM_HEIGHT_M1] + 1:
                self._cycles[key] = self._in_best_blocks(made)
            else:
                self._cycles[key] = cycles_in_a_row(made, self.program.accelerator, self.memory_map)
        return self._cycles[key]

    def channels(self, layer: Deep, count: int, inner: Inner, step: int) -> int:
        """Cycles of `count` channels of a layer, where buffers in `inner` hold `step`."""
        key = (layer.index, count, step, frozenset(inner))
        if key not in self._slices:
            made = layer.about((0, count), inner, step).place(self._places, layer.index)
            self._slices[key] = self._in_best_blocks(made)
        return self._slices[key]

    def _in_best_blocks(self, operation: Operation) -> int:
        """Cycles of an operation whose weights are encoded, in the cheapest blocks; in its own where none fit."""
        try:
            return self.blocks.choose(operation, encoded=True).cycles
        except BlockError:
            return cycles_in_a_row(operation, self.program.accelerator, self.memory_map)

    def whole(self, index: int, near: bool = False) -> int:
        """Cycles of operation `index` made at once; `near` as for `rows`."""
        operation = self.program.operations[index]
        if operation.op is Op.DMA_START:
            return 0  # it runs at the same time as kernels
        return self.rows(index, operation.registers[Register.OFM_HEIGHT_M1] + 1, near)

    def constant_block(self, index: int) -> ConstantBlock | None:
        """The constants of operation `index` that could be kept, looked for once."""
        if index not in self._kept:
            self._kept[index] = constants_of(self.program, index)
        return self._kept[index]

    def copy(self, kept: ConstantBlock) -> int:
        """Cycles until a copy of `kept` is there."""
        regions = {Register.DMA0_SRC_REGION: 0, Register.DMA0_DST_REGION: self._near, Register.DMA0_DST: 0}
        total = 0.0
        for start, stop in kept.spans:
            registers = {**regions, Register.DMA0_SRC: start, Register.DMA0_LEN: stop - start}
            needs = resource_use(Operation(Op.DMA_START, 0, registers), self.program.accelerator, self.memory_map)
            total += needs.floor + max(load.latency for load in needs.loads)
        return round(total)

    def _operation(self, index: int) -> Operation:
        return self.program.place(index, self._places)


_ALIGNMENT = 16
_LONGEST = 12  # operations of a group that may begin and end anywhere
_PARTS = 16  # most ways to share a depth that are looked at


class ChannelCascades:
    """Groups of one program. `sizes`: bytes that buffers count, `live`: from which to which operation."""

    def __init__(self, costs: Costs, sizes: Mapping[str, int], live: Mapping[str, Rows], slicer: Slicer) -> None:
        self.program, self._costs, self._sizes, self._live, self._slicer = costs.program, costs, sizes, live, slicer
        self._layers = [deep(self.program, index) for index in range(len(self.program.operations))]
        self._chains: dict[Rows, tuple[Deep, ...] | None] = {}
        self._least: dict[Rows, int | None] = {}
        self._groups: dict[tuple[int, int, int], ChannelGroup] = {}

    def chain(self, first: int, last: int) -> tuple[Deep, ...] | None:
        """The layers `first` to `last` if they can be made together, two at least."""
        if (first, last) not in self._chains:
            self._chains[first, last] = self._chain(first, last)
        return self._chains[first, last]

    def _chain(self, first: int, last: int) -> tuple[Deep, ...] | None:
        layers = [layer for layer in self._layers[first : last + 1] if layer is not None]
        moves = len(transfers(self.program, first, last))
        if self._layers[first] is None or self._layers[last] is None or len(layers) + moves <= last - first:
            return None
        if len(layers) < 2 or len({layer.depth for layer in layers}) > 1:
            return None
        made: dict[str, DeepMap] = {}
        for layer in layers:
            if layer.output.buffer in made or not layer.summed.isdisjoint(made):
                return None
            if any(view.buffer in made and not view.like(made[view.buffer]) for view in layer.inputs):
                return None
            made[layer.output.buffer] = layer.output
        inner = list(made.values())[:-1]
        read = {view.buffer for layer in layers for view in layer.inputs}
        together = all(view.buffer in read and self._is_inner(view, first, last) for view in inner)
        if not together or not may_lie_beside(self.program, range(first, last + 1)):
            return None
        can_cut = all(self._slicer.may_cut(layer.operation) for layer in layers)  # which decodes their weights
        return tuple(layers) if can_cut else None

    def _is_inner(self, view: DeepMap, first: int, last: int) -> bool:
        """Whether a map that is made in the group is there for the group alone, in a buffer of its own."""
        life = self._live.get(view.buffer)
        is_map = self.program.buffer(view.buffer).role is BufferRole.FEATURE_MAP
        return is_map and view.is_whole and life is not None and first <= life[0] and life[1] <= last

    def steps(self, layers: Sequence[Deep]) -> list[int]:
        """Channels at a time that are worth looking at, most first."""
        grain, depth = BRICK_CHANNELS * self.program.accelerator.cores, layers[0].depth
        shares = {round_up(ceil_div(depth, parts), grain) for parts in range(2, _PARTS + 1)}
        return sorted((step for step in shares if step < depth), reverse=True)

    def group(self, layers: Sequence[Deep], step: int) -> ChannelGroup:
        """`layers` for `step` channels at a time."""
        first, last = layers[0].index, layers[-1].index
        if (first, last, step) not in self._groups:
            cycles = sum(self._cycles(layer, inner_of(layers), step) for layer in layers)
            size, made = self.size_bytes(layers, step), tuple(layers)
            self._groups[first, last, step] = ChannelGroup(
                first=first, last=last, size_bytes=size, cycles=cycles, layers=made, step=step
            )
        return self._groups[first, last, step]

    def size_bytes(self, layers: Sequence[Deep], step: int) -> int:
        """The bytes that `group` needs."""
        first, last, inner = layers[0].index, layers[-1].index, inner_of(layers)
        alive = [name for name, (begin, end) in self._live.items() if begin <= last and end >= first]
        sizes = (inner[name].slice_bytes(step) if name in inner else self._sizes[name] for name in alive)
        return sum(round_up(size, _ALIGNMENT) for size in sizes)

    def _cycles(self, layer: Deep, inner: Inner, step: int) -> int:
        whole, rest = divmod(layer.depth, step)
        cycles = whole * self._costs.channels(layer, step, inner, step)
        return cycles + (self._costs.channels(layer, rest, inner, step) if rest else 0)

    def fitting(self, first: int, last: int, limit_bytes: int) -> Iterator[ChannelGroup]:
        """Groups of all operations from `first` to `last` within the limit, in ever more parts."""
        layers = self.chain(first, last)
        for step in self.steps(layers) if layers else ():
            assert layers is not None
            if self.size_bytes(layers, step) <= limit_bytes:
                yield self.group(layers, step)

    def least_bytes(self, first: int, last: int) -> int | None:
        """The bytes of the lowest slices; None where the operations cannot be made together."""
        if (first, last) not in self._least:
            layers = self.chain(first, last)
            steps = self.steps(layers) if layers else []
            self._least[first, last] = self.size_bytes(layers, steps[-1]) if layers and steps else None
        return self._least[first, last]


@dataclass(frozen=True, slots=True)
class _Worth:
    """The cost and the gain of keeping the weights of operation `index`."""

    index: int
    kept: ConstantBlock
    size_bytes: int
    cycles: int


class CascadeSpace:
    """Groups of one program.

    `io_in_pools`: its inputs and outputs count; `reuse_inputs`: and their bytes may be reused once they were read;
    `memory_map`: the memories, of which the last region's has the feature maps; `slicer`: of the program, without which
    it is cut by rows alone.
    """

    def __init__(
        self,
        program: NpuProgram,
        *,
        io_in_pools: bool = True,
        reuse_inputs: bool = True,
        memory_map: MemoryMap | None = None,
        slicer: Slicer | None = None,
    ) -> None:
        self.program, self.slicer = program, slicer
        self.chains = Chains(program, io_in_pools, reuse_inputs)
        self.sizes, self.live = self.chains.sizes, self.chains.live
        self._costs: list[Costs] = []  # of all memories
        self.plans: dict[Any, Any] = {}  # by buffers, overlaps and the plan's budget
        self.longest = _LONGEST
        self._weigh(memory_map or default_memory_map(program.accelerator), None)

    def _weigh(self, memory_map: MemoryMap, again: MemoryMap | None) -> None:
        self._again = again and self._costs_in(again)
        self.may_keep = again is not None or memory_map != memory_map.with_constants_near()  # to gain by it
        self.costs = self._costs_in(memory_map)
        self.by_channels: ChannelCascades | None = (
            ChannelCascades(self.costs, self.sizes, self.live, self.slicer) if self.slicer else None
        )
        self._worth: dict[RowGroup, list[_Worth]] = {}
        self._keeping: dict[tuple[RowGroup, frozenset[int]], RowGroup] = {}
        self._groups: dict[InterleavedRows, RowGroup] = {}
        self.cheapest: dict[tuple[int, int, int], RowGroup | None] = {}  # that were chosen: (first, last, limit)
        self.measured: dict[tuple[tuple[Group, ...], int | None], Any] = {}  # of groups chosen, and the plan's budget

    def _costs_in(self, memory_map: MemoryMap) -> Costs:
        found = next((costs for costs in self._costs if costs.memory_map == memory_map), None)
        if found is None:
            found = Costs(self.program, memory_map)
            self._costs.append(found)
        return found

    def among(self, memory_map: MemoryMap, again: MemoryMap | None = None, longest: int = _LONGEST) -> CascadeSpace:
        """This space in other memories; both share what is known of turns. `again`: the memories from which parts read
        constants again, if not those of `memory_map`.
        """
        found = copy(self)
        found.longest = longest
        found._weigh(memory_map, again)
        return found

    def by_rows(self) -> CascadeSpace:
        """This space with groups by rows alone; both share what is known."""
        found = copy(self)
        found.by_channels = None
        return found

    def whole_cycles(self, index: int) -> int:
        return self.costs.whole(index)

    def least_cycles(self) -> int:
        """The cycles of all operations, each made at once, with its constants where they are or copied near for it."""
        total = 0
        for index in range(len(self.program.operations)):
            whole, kept = self.whole_cycles(index), self.costs.constant_block(index)
            total += min(whole, self.costs.whole(index, near=True) + self.costs.copy(kept)) if kept else whole
        return total

    def least_bytes(self, first: int, last: int) -> int:
        """A lower bound of the bytes of any group of the operations `first` to `last`."""
        channels = self.by_channels and self.by_channels.least_bytes(first, last)
        return min(self.chains.least_bytes(first, last), channels or sum(self.sizes.values()))

    def group(self, layers: tuple[Sliced, ...], turns: RowOrder, upwards: bool = False) -> RowGroup:
        """`layers` made in `turns`; `upwards`: rows count from the last one."""
        return self._interleaved_rows(self.chains.interleave_rows(layers, turns, upwards))

    def _interleaved_rows(self, interleaved: InterleavedRows) -> RowGroup:
        if interleaved not in self._groups:
            self._groups[interleaved] = RowGroup(
                first=interleaved.first,
                last=interleaved.last,
                size_bytes=interleaved.size_bytes,
                cycles=sum(self._cycles_of(interleaved, position) for position in range(len(interleaved.layers))),
                interleaved=interleaved, upwards=interleaved.upwards,
            )  # fmt: skip
        return self._groups[interleaved]

    def _cycles_of(self, interleaved: InterleavedRows, position: int, near: bool = False) -> int:
        """Estimated cycles of all parts of a layer, most of which have as many rows as others."""
        index, heights = interleaved.layers[position].index, interleaved.heights[position]
        cycles = sum(count * self.costs.rows(index, rows, near) for rows, count in heights)
        kept = self.costs.constant_block(index) if self._again and not near else None
        again = sum(count for _, count in heights) - 1
        return cycles + (self._again.copy(kept) * again if self._again and kept else 0)

    def keeping(self, group: RowGroup, spare_bytes: int) -> RowGroup:
        """`group` with weights kept in at most `spare_bytes`, those first that win most cycles with a byte."""
        if not self.may_keep:
            return group
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
        for position, layer in enumerate(group.layers):
            kept = self.costs.constant_block(layer.index)
            if kept is not None:
                near = self._cycles_of(group.interleaved, position, near=True) + self.costs.copy(kept)
                won = self._cycles_of(group.interleaved, position) - near
                if won > 0:
                    yield _Worth(layer.index, kept, round_up(kept.size_bytes, ALIGNMENT), won)

    def even(self, layers: tuple[Sliced, ...], rows: int) -> RowGroup:
        """`layers` in turn, the last of them `rows` rows at a time."""
        return self._interleaved_rows(self.chains.even(layers, rows))

    def rows_within(self, layers: tuple[Sliced, ...], rows: int, limit_bytes: int) -> RowGroup | None:
        """The same if it needs no more than the limit."""
        interleaved = self.chains.even(layers, rows)
        return (
            self._interleaved_rows(interleaved)
            if interleaved.least_bytes <= limit_bytes and interleaved.size_bytes <= limit_bytes
            else None
        )

    def fitting(self, layer: Sliced, limit_bytes: int) -> RowGroup | None:
        """One layer in the fewest stripes with which no more than `limit_bytes` are alive; None: it cannot be."""
        index, second = layer.index, layer.output.buffer
        best: RowGroup | None = None
        for source in layer.inputs:
            if not self.chains.may_overlap(source.buffer, second, index, index):
                continue
            others = sum(self.sizes[n] for n in self.chains.alive(index, index) if n not in (source.buffer, second))
            below = (limit_bytes - others - self.sizes[source.buffer]) // ALIGNMENT * ALIGNMENT
            for grain in sorted({1, self.costs.micro_rows}) if below >= 0 else ():
                cuts = fewest_cuts(layer, source, -below, grain)
                if cuts is not None:
                    found = self.group((layer,), cuts)
                    if found.size_bytes <= limit_bytes and (best is None or found.cycles < best.cycles):
                        best = found
        return best

    def restate_group(self, group: Group) -> Group:
        """A group of the same program in other memories, in these; without weights that it keeps."""
        if isinstance(group, RowGroup):
            return self._interleaved_rows(group.interleaved)
        assert isinstance(group, ChannelGroup)
        assert self.by_channels is not None
        return self.by_channels.group(group.layers, group.step)

    def turn_upwards(self, group: Group) -> Group:
        """The same group upwards; of channels, which have no direction, itself."""
        if not isinstance(group, RowGroup):
            return group
        if any(layer.upscale is Upscale.TRANSPOSE for layer in group.layers):
            return group  # upwards, its rows of zeros would lie elsewhere
        upwards = self.chains.interleave_rows(group.layers, group.interleaved.turns, upwards=True)
        return replace(group, interleaved=upwards, upwards=True)


_HEIGHTS = (64, 32, 16, 8, 4, 2, 1)  # rows of the last layer at a time
_FEWEST = 2  # ways to cut channels that are tried: the fewest parts that fit
_LOWER = (
    3  # heights that are tried below the highest that fits: the bytes that their rolling buffers save may hold weights
)


def least_bytes(groups: CascadeSpace) -> int:
    """The fewest bytes that any choice of groups keeps alive at its worst operation."""
    best = [0]  # of the first k operations
    for last in range(len(groups.chains.layers)):
        reached = max(best[last], groups.chains.whole_bytes[last])
        starts = _starts(groups, last)
        bounds = sorted((max(best[first], groups.least_bytes(first, last)), -first) for first in starts)
        for bound, first in bounds:
            if bound >= reached:
                break
            layers = groups.chains.chain(-first, last)
            if layers is not None:
                reached = min(reached, max(best[-first], _lowest(groups, layers).size_bytes))
            channels = groups.by_channels and groups.by_channels.least_bytes(-first, last)
            if channels:
                reached = min(reached, max(best[-first], channels))
        best.append(reached)
    return best[-1]


def choose(groups: CascadeSpace, limit_bytes: int) -> tuple[Group, ...]:
    """The cheapest groups with which at most `limit_bytes` are alive, or as few more as can be."""
    count = len(groups.chains.layers)
    best: list[tuple[int, int, tuple[Group, ...]]] = [(0, 0, ())]  # (bytes above the limit, cycles, groups)
    options: list[list[Group]] = [[] for _ in range(count + 1)]  # by the operation after the group
    for last in range(count):
        for first in _starts(groups, last):
            if max(groups.chains.whole_bytes[first : last + 1]) > limit_bytes >= groups.least_bytes(first, last):
                layers = groups.chains.chain(first, last)
                key = first, last, limit_bytes
                if layers and key not in groups.cheapest:
                    groups.cheapest[key] = _cheapest(groups, layers, limit_bytes)
                if found := groups.cheapest.get(key):
                    options[last + 1].append(found)
                if groups.by_channels:
                    options[last + 1] += islice(groups.by_channels.fitting(first, last, limit_bytes), _FEWEST)
    for stop in range(1, count + 1):
        above, cycles, chosen = best[stop - 1]
        over = max(0, groups.chains.whole_bytes[stop - 1] - limit_bytes)
        candidates = [(max(above, over), cycles + groups.whole_cycles(stop - 1), chosen)]
        for group in options[stop]:
            above, cycles, chosen = best[group.first]
            over = max(0, group.size_bytes - limit_bytes)
            candidates.append((max(above, over), cycles + group.cycles, (*chosen, group)))
        best.append(min(candidates, key=lambda c: c[:2]))
    return best[count][2]


def _starts(groups: CascadeSpace, last: int) -> list[int]:
    """The starts of groups that end with operation `last`: the last few operations, and those of `long_ranges`."""
    nearest = max(0, last + 1 - groups.longest)
    return [*(first for first in groups.chains.long_ranges[last] if first < nearest), *range(nearest, last + 1)]


def _lowest(groups: CascadeSpace, layers: tuple[Sliced, ...]) -> RowGroup:
    """The layers a row at a time: of the last layer, or, where that needs fewer bytes, of every layer."""
    even = groups.even(layers, 1)
    return min(even, groups.group(layers, 1), key=lambda g: g.size_bytes) if len(layers) > 1 else even


def _cheapest(groups: CascadeSpace, layers: tuple[Sliced, ...], limit_bytes: int) -> RowGroup | None:
    """The layers in turn, at the fewest cycles within the limit; where none fits, in the lowest stripes."""
    if len(layers) == 1:
        single = groups.fitting(layers[0], limit_bytes)
        return single and groups.keeping(single, limit_bytes - single.size_bytes)
    best: RowGroup | None = None
    lower = 0
    for rows in _HEIGHTS:
        if rows >= layers[-1].output.height:
            continue
        group = groups.rows_within(layers, rows, limit_bytes)
        if group is None:
            if rows == 1 and best is None:
                return _lowest(groups, layers)
            continue
        lower += 1
        group = groups.keeping(group, limit_bytes - group.size_bytes)
        if best is None or group.cycles < best.cycles:
            best = group
        if (
            lower > _LOWER
            or not groups.may_keep
            or not any(groups.costs.constant_block(layer.index) for layer in layers)
        ):
            break
    return best


@dataclass(frozen=True, slots=True)
class _Step:
    """An operation, or a group: cycles with its constants near, cycles without room for them, and what is copied."""

    near: int
    far: int
    copied_bytes: int
    copy_cycles: int
    spare_bytes: int  # beside the maps


def cycles_with_copies(near: CascadeSpace, far: CascadeSpace, chosen: Sequence[Group], limit_bytes: int) -> int:
    """The cycles of a program with the groups `chosen` in so many bytes. `near` has its constants beside the maps,
    `far` where they are; they are copied where that takes no longer than to read them there.
    """
    done = port = 0  # when the last operation and the last copy end
    starts: list[int] = []
    spare: list[int] = []
    for step in _steps(near, far, chosen, limit_bytes):
        size, left, begin, first = step.copied_bytes, step.spare_bytes, done, len(starts)
        if 0 < size <= left:
            while first and spare[first - 1] >= size and begin > max(port, done - step.copy_cycles):
                first -= 1
                begin = starts[first]
        copied = max(port, begin) + step.copy_cycles
        start = max(done, copied)
        if 0 < size <= left and start + step.near <= done + step.far:
            for index in range(first, len(spare)):
                spare[index] -= size
            left -= size
            port, done = copied, start + step.near
        else:
            start = done
            done += step.far
            port = done if size else port
        starts.append(start)
        spare.append(left)
    return done


def _steps(near: CascadeSpace, far: CascadeSpace, chosen: Sequence[Group], limit_bytes: int) -> Iterator[_Step]:
    heads = {group.first: group for group in chosen}
    index, count = 0, len(near.program.operations)
    while index < count:
        group = heads.get(index)
        last = group.last if group else index
        kept = [found for found in map(far.costs.constant_block, range(index, last + 1)) if found]
        copy, size = sum(map(far.costs.copy, kept)), sum(one.size_bytes for one in kept)
        spare = limit_bytes - (group.size_bytes if group else near.chains.whole_bytes[index])
        if group is None:
            cycles = near.whole_cycles(index)
            yield _Step(cycles, _whole_without_room(far, index, kept, cycles, spare), size, copy, spare)
        else:
            there = far.restate_group(group)
            there = far.keeping(there, spare) if isinstance(there, RowGroup) else there
            yield _Step(group.cycles, there.cycles, size, copy, spare)
        index = last + 1


def _whole_without_room(
    far: CascadeSpace, index: int, kept: Sequence[ConstantBlock], near_cycles: int, spare: int
) -> int:
    """The cycles of an operation made at once: in slices of channels where there is room for two, one of which is read
    while the other arrives; each is then read once.
    """
    cycles = far.whole_cycles(index)
    channels = far.program.operations[index].registers.get(Register.OFM_DEPTH_M1, 0) + 1
    for constants in kept:
        if 2 * constants.size_bytes * BRICK_CHANNELS <= spare * channels:
            cycles = min(cycles, max(near_cycles, far.costs.copy(constants)))
    return cycles


def copy_names(program: NpuProgram, groups: Sequence[Group]) -> dict[int, str]:
    """Names of the buffers in which groups keep weights, by operation of `program`."""
    names = Names(b.name for b in program.buffers)
    return {index: names.unique_name(f"{program.name}_weights") for group in groups for index in group.kept}


def apply(
    program: NpuProgram, groups: Sequence[Group], blocks: Blocks | None = None, slicer: Slicer | None = None
) -> NpuProgram:
    """`program` with `groups`, which are disjoint and in program order, made part by part.

    Parts get `blocks` of their own (None: the best in the NPU's default system). `slicer` of the program makes the
    weights of channels; it has the constants that the result reads.
    """
    operations: list[NpuOperation] = []
    cut: list[int] = []  # indices of parts
    sizes: dict[str, int] = {}
    near: list[NpuBuffer] = []  # weights that are kept
    copies = copy_names(program, groups)
    done = 0
    for group in groups:
        operations += program.operations[done : group.first]
        operations += group.transfers(program)
        for index, kept in group.kept.items():
            operations += kept.transfers(copies[index], program.operations[index].operator)
            near.append(NpuBuffer(copies[index], kept.size_bytes, BufferRole.WEIGHTS))
        start = len(operations)
        operations += group.operations(copies, slicer)
        cut += range(start, len(operations))
        sizes |= group.rolling_buffer_bytes
        done = group.last + 1
    operations += program.operations[done:]
    rolling_buffers = (
        b.name in sizes and replace(b, size_bytes=sizes[b.name], role=BufferRole.ROLLING) for b in program.buffers
    )
    buffers = (
        *(rolling_buffer or b for rolling_buffer, b in zip(rolling_buffers, program.buffers, strict=True)),
        *near,
    )
    cut_up = NpuProgram(program.accelerator, buffers, tuple(operations), program.name)
    blocks = blocks or Blocks(program.accelerator, default_memory_map(program.accelerator))
    place = places(cut_up, blocks.memory_map)
    for index in cut:
        stripe = operations[index]
        found = blocks.fit_blocks(stripe.place(place, index)).registers
        operations[index] = replace(stripe, registers={r: found[r] for r in stripe.registers})
    made = replace(cut_up, operations=tuple(operations))
    return (
        slicer.extend_constants(made) if slicer and any(isinstance(group, ChannelGroup) for group in groups) else made
    )
