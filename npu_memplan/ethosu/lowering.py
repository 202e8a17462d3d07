"""A graph of layers to an `NpuProgram`, its operations in the order that keeps the fewest bytes alive.

Invariant: the program's inputs and outputs are the graph's, in order, dense NHWC; everything else is internal and free
for the planner; the program computes exactly what TFLite's reference kernels do. A layer comes after those whose
tensors it reads, and those that touch the same state keep their order; the operations of a layer stay together, and
each reads the look-up table that it read before. Operations are reordered only where fewer bytes are then alive at the
worst operation, whether inputs may be overwritten or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..fixed_point import ScaleError
from ..problem.operator_order import GraphOperator, GraphStorage, InPlace, OperatorGraph
from .arch import Architecture
from .graph_rewrites import (
    fold_gathers,
    fold_pads,
    fold_tables,
    fold_transposes,
    fold_types,
    gather_windows,
    sum_by_rows,
)
from .layers.matrix import Conv
from .lower.emit import Builder, EmitContext, LayerRefusedError
from .lower.layer import LayerGraph, assign
from .lower.operands import Arithmetic
from .program.hazards import in_place_distances
from .program.overlap import NOTHING, find_overlaps, shared_bytes, span_distances
from .program.program import BufferRole, NpuOperation, NpuProgram
from .schedule.blocks import BlockError, Blocks
from .schedule.constants import loaded_table, read_table, share_bytes
from .schedule.rams import round_up
from .stream.fields import FEATURE_MAPS
from .stream.isa import Upscale
from .time import MemoryMap, default_memory_map

_ALIGNMENT = 16
_COUNTED = (BufferRole.INPUT, BufferRole.OUTPUT, BufferRole.FEATURE_MAP)


@dataclass(frozen=True, slots=True)
class OrderedLayers:
    """A program, and the bytes alive at its worst operation: in the order of its graph, and in its own."""

    program: NpuProgram
    given_peak_bytes: int
    peak_bytes: int


def order_layers(program: NpuProgram, graph: LayerGraph, stops: Sequence[int]) -> OrderedLayers | None:
    """`program`, whose operations to `stops[i]` are of the layers up to i, in the better order; None: none is."""
    bounds = list(zip((0, *stops[:-1]), stops, strict=True))
    operators = _Operators(program, graph, bounds)
    if operators.have_one_order:
        return None
    found = operators.graph(reuse_inputs=True).best_order()
    if found.peak_bytes >= found.given_peak_bytes:
        return None
    order = [index for layer in found.operators for index in range(*bounds[layer])]
    made = _with_tables(program, order)
    peaks = [[_peak_bytes(p, reuse) for p in (program, made)] for reuse in (True, False)]
    if peaks[0][1] >= peaks[0][0] or peaks[1][1] > peaks[1][0]:
        return None
    return OrderedLayers(made, *peaks[0])


class _Operators:
    """Layers of a program, each of which is `bounds[i]` of its operations."""

    def __init__(self, program: NpuProgram, graph: LayerGraph, bounds: Sequence[tuple[int, int]]) -> None:
        self.program, self.bounds = program, bounds
        counted = [b for b in program.buffers if b.role in _COUNTED]
        self._sizes = {b.name: round_up(b.size_bytes, _ALIGNMENT) for b in counted}
        self._touched = [self._buffer_ranges(*bound) for bound in bounds]
        self._after = self._layer_dependencies(graph)

    def _buffer_ranges(self, start: int, stop: int) -> dict[str, tuple[int, int]]:
        """The first and the last operation of a layer that touches each buffer."""
        found: dict[str, tuple[int, int]] = {}
        for index in range(start, stop):
            for name, _ in self.program.buffers_of(index):
                found[name] = found.get(name, (index, index))[0], index
        return found

    def _layer_dependencies(self, graph: LayerGraph) -> list[tuple[int, ...]]:
        """Layers that each comes after: the producers of its inputs, and who touched a state before."""
        made = {layer.output: index for index, layer in enumerate(graph.layers)}
        states = {b.name for b in self.program.buffers if b.role is BufferRole.STATE}
        holder: dict[str, int] = {}
        found = []
        for index, layer in enumerate(graph.layers):
            after = {made[name] for name in layer.inputs if name in made}
            for name in states & self._touched[index].keys():
                after |= {holder[name]} if name in holder else set()
                holder[name] = index
            found.append(tuple(sorted(after)))
        return found

    @property
    def have_one_order(self) -> bool:
        """Whether every layer reads what the one before makes."""
        return all(index - 1 in after for index, after in enumerate(self._after) if index)

    def graph(self, reuse_inputs: bool) -> OperatorGraph:
        """Layers as operators; what one alone touches is its scratch."""
        users: dict[str, int] = {}
        for names in self._touched:
            for name in names.keys() & self._sizes.keys():
                users[name] = users.get(name, 0) + 1
        roles = {b.name: b.role for b in self.program.buffers}
        shared = [n for n, count in users.items() if count > 1 or roles[n] is not BufferRole.FEATURE_MAP]
        number = {name: index for index, name in enumerate(shared)}
        storages = tuple(
            GraphStorage(
                self._sizes[name],
                given=roles[name] is BufferRole.INPUT,
                kept=roles[name] is BufferRole.OUTPUT or (roles[name] is BufferRole.INPUT and not reuse_inputs),
            )
            for name in shared
        )
        operators = tuple(
            GraphOperator(
                tuple(number[name] for name in names if name in number),
                after,
                self._scratch_bytes({n: span for n, span in names.items() if n in self._sizes and n not in number}),
                tuple(self._in_place(bound, number)),
            )
            for names, after, bound in zip(self._touched, self._after, self.bounds, strict=True)
        )
        return OperatorGraph(operators, storages)

    def _scratch_bytes(self, own: dict[str, tuple[int, int]]) -> int:
        """Most bytes of buffers of one layer that are alive at once."""
        firsts = {first for first, _ in own.values()}
        alive = (sum(self._sizes[n] for n, (first, last) in own.items() if first <= i <= last) for i in firsts)
        return max(alive, default=0)

    def _in_place(self, bound: tuple[int, int], number: dict[str, int]) -> Iterator[InPlace]:
        """The bytes that a layer's output may share with an input that is read no more."""
        spans: list[dict[tuple[str, bool], tuple[int, int]]] = []
        exact: list[dict[str, int]] = []
        for index in range(*bound):
            spans.append({})
            for name, found, is_write in self.program.accesses(index):
                if name in number:
                    low, high = spans[-1].get((name, is_write), NOTHING)
                    spans[-1][name, is_write] = min(low, found[0][0]), max(high, found[-1][1])
            operation = self.program.operations[index]
            views = {view: operation.addresses.get(group.bases[0]) for view, group in FEATURE_MAPS.items()}
            holder = {view: place[0] for view, place in views.items() if place is not None}
            at = in_place_distances(self.program.at_zero(index), holder) if holder else {}
            exact.append({str(name): distance for name, distance in at.items()})
        touched = dict.fromkeys(key for found in spans for key in found)
        for born, is_made in touched:
            for dying, is_written in touched if is_made and (born, False) not in touched else ():
                if is_written or (dying, True) in touched:
                    continue
                reads, writes = (np.array([s.get(k, NOTHING) for s in spans], np.int64) for k in
                                 ((dying, False), (born, True)))  # fmt: skip
                writers = {exact[i].get(dying) for i in range(len(spans)) if (born, True) in spans[i]}
                agreed = writers.pop() if len(writers) == 1 else None
                sizes = self._sizes[dying], self._sizes[born]
                allowed = span_distances(reads, writes, agreed, *sizes)
                if allowed is not None and (common := shared_bytes(*allowed, *sizes, _ALIGNMENT)) > 0:
                    yield InPlace(number[dying], number[born], common)


def _peak_bytes(program: NpuProgram, reuse_inputs: bool) -> int:
    """Bytes alive at the worst operation, less the best overlap there."""
    counted = {b.name: b.role for b in program.buffers if b.role in _COUNTED}
    sizes = {b.name: round_up(b.size_bytes, _ALIGNMENT) for b in program.buffers if b.name in counted}
    change = [0] * (len(program.operations) + 1)
    end = len(program.operations) - 1
    lives = program.live_ranges()
    for name in counted.keys() & lives.keys():
        first, last = lives[name]
        given = counted[name] is BufferRole.INPUT
        stays = counted[name] is BufferRole.OUTPUT or (given and not reuse_inputs)
        change[0 if given else first] += sizes[name]
        change[(end if stays else last) + 1] -= sizes[name]
    credit = [0] * len(program.operations)
    for found in find_overlaps(program):
        pair = found.allowed
        kept = not reuse_inputs and counted.get(pair.first) is BufferRole.INPUT
        if found.operation == found.last and not kept and pair.first in sizes and pair.second in sizes:
            assert not isinstance(pair.lowest, str)
            most = shared_bytes(pair.lowest, pair.highest, sizes[pair.first], sizes[pair.second], _ALIGNMENT)
            credit[found.last] = max(credit[found.last], most)
    levels = np.cumsum(change)[:-1] - np.array(credit)
    return int(levels.max(initial=0))


def _with_tables(program: NpuProgram, order: Sequence[int]) -> NpuProgram:
    """The operations in `order`; a look-up table is loaded where the next kernel needs another one than is there."""
    loads: dict[int, int] = {}  # of a kernel: the load of the table that it reads
    there: dict[int, range] = {}
    for index, operation in enumerate(program.operations):
        loaded = loaded_table(program, operation)
        if loaded is not None:
            there = {i: bytes_ for i, bytes_ in there.items() if not share_bytes(bytes_, loaded)} | {index: loaded}
        elif (table := read_table(operation)) is not None:
            loads.update((index, i) for i, bytes_ in there.items() if share_bytes(bytes_, table))
    operations: list[NpuOperation] = []
    there = {}
    for index in order:
        operation = program.operations[index]
        if loaded_table(program, operation) is not None:
            continue
        load = loads.get(index)
        if load is not None and load not in there:
            operations.append(program.operations[load])
            loaded = loaded_table(program, operations[-1])
            assert loaded is not None
            there = {i: bytes_ for i, bytes_ in there.items() if not share_bytes(bytes_, loaded)} | {load: loaded}
        elif load is None and not program.accelerator.lut_reserved:
            there = {}  # any other operation overwrites the tables
        operations.append(operation)
    return replace(program, operations=tuple(operations))


OperatorOf = Callable[[str, tuple[int, ...]], int]


@dataclass(frozen=True, slots=True)
class LoweringTarget:
    """The target of a lowering."""

    fast_region: int = -1  # the preferred one of internal feature maps; -1: no preference
    memory_map: MemoryMap | None = None  # around the NPU, the last region's has the maps; None: its default system's
    for_cycles: bool = False  # they count more than bytes
    sums_by_rows: bool = False  # of sums over whole maps
    # of kernels on each NPU
    blocks: dict[Architecture, tuple[Blocks, Blocks]] = field(default_factory=dict, repr=False, compare=False)

    def blocks_for(self, accelerator: Architecture) -> tuple[Blocks, Blocks]:
        """The blocks of kernels in its memories, and with their constants near, chosen once for all functions."""
        if accelerator not in self.blocks:
            memory_map = self.memory_map or default_memory_map(accelerator)
            near = memory_map.with_constants_near()
            self.blocks[accelerator] = Blocks(accelerator, memory_map), Blocks(accelerator, near)
        return self.blocks[accelerator]


FEW_BYTES = LoweringTarget()


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program and its constants; `order_peaks`: peak bytes in its graph's order and in its own, if another."""

    program: NpuProgram
    constants: bytes
    order_peaks: tuple[int, int] | None = None


def lower(
    graph: LayerGraph,
    accelerator: Architecture,
    lowering_target: LoweringTarget = FEW_BYTES,
    operators: OperatorOf | None = None,
) -> Lowered:
    """Lower every layer.

    `operators` gives a layer's operator in the source model, from its output and the operators of its inputs.
    `LoweringError` names a layer that cannot be lowered.
    """
    memory_map = lowering_target.memory_map or default_memory_map(accelerator)
    graph = fold_transposes(fold_types(fold_gathers(fold_pads(graph))))
    graph = sum_by_rows(graph) if lowering_target.sums_by_rows else graph
    graph = fold_tables(_for_cycles(graph, accelerator, memory_map) if lowering_target.for_cycles else graph)
    builder = Builder(accelerator, *lowering_target.blocks_for(accelerator), lowering_target.fast_region)
    storage = assign(builder, graph, lowering_target.for_cycles)
    context = EmitContext(
        builder, graph.tensors, storage, graph.arithmetic is Arithmetic.REAL, lowering_target.for_cycles
    )
    known: dict[str, int] = {}
    stops: list[int] = []  # operations up to each layer
    for layer in graph.layers:
        if operators is not None:
            before = tuple(known.get(name, -1) for name in layer.inputs)
            builder.operator = operators(layer.source, before)
            known[layer.output] = builder.operator if layer.source == layer.output else max(before)  # of a part of one
        try:
            layer.emit(context)
        except (BlockError, ScaleError) as error:
            raise LayerRefusedError(f"layer {layer.name} of {graph.name} cannot be lowered: {error}") from error
        stops.append(builder.operation_count)
    program, constants = builder.finish(graph.name, [storage.views[name].buffer for name in graph.outputs])
    ordered = order_layers(program, graph, stops)
    if ordered is None:
        return Lowered(program, constants)
    return Lowered(ordered.program, constants, (ordered.given_peak_bytes, ordered.peak_bytes))


def _for_cycles(graph: LayerGraph, accelerator: Architecture, memory_map: MemoryMap) -> LayerGraph:
    """Forms of convolutions that may take fewer cycles, whatever their maps' layout costs."""
    layers = tuple(
        replace(layer, in_parts=True) if isinstance(layer, Conv) and layer.upscale is Upscale.TRANSPOSE else layer
        for layer in graph.layers
    )
    return gather_windows(replace(graph, layers=layers), accelerator, memory_map)
