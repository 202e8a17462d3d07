"""A graph of layers to an `NpuProgram`.

Invariant: the program's inputs and outputs are the graph's, in order, dense NHWC; everything else is
internal and free for the planner; the program computes exactly what TFLite's reference kernels do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...fixed_point.multiplier import ScaleError
from ..arch import Architecture
from ..layers.convolution import Conv
from ..program.program import NpuProgram
from ..schedule.blocks import BlockError
from ..stream.isa import Upscale
from ..time import MemoryMap, default_memory_map
from .emit import Builder, LayerRefusedError
from .emit_context import EmitContext
from .fold import fold_gathers, fold_pads, fold_tables, fold_transposes, fold_types
from .graph import LayerGraph
from .im2col import im2col
from .layer_order import order_layers
from .storage import assign
from .sums_by_rows import sum_by_rows
from .tensors import Arithmetic

OperatorOf = Callable[[str, tuple[int, ...]], int]


@dataclass(frozen=True, slots=True)
class LoweringTarget:
    """What a program is lowered for: feature maps inside would rather be in `fast_region` (-1: no preference),
    `memory_map` are the memories around the NPU (None: its default system's), of which the last region's has the maps;
    `for_cycles`: time is worth more than bytes; `sums_by_rows`: sums over whole maps are made by rows.
    """

    fast_region: int = -1
    memory_map: MemoryMap | None = None
    for_cycles: bool = False
    sums_by_rows: bool = False


FEW_BYTES = LoweringTarget()


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program and its constants; `order_peaks`: bytes alive at its worst operation in the order of its graph and in
    its own, where that is another one.
    """

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

    `operators` says which operator of the source model a layer is: of its output and its inputs' operators.
    `LoweringError` names the layer that cannot be.
    """
    memory_map = lowering_target.memory_map or default_memory_map(accelerator)
    graph = fold_transposes(fold_types(fold_gathers(fold_pads(graph))))
    graph = sum_by_rows(graph) if lowering_target.sums_by_rows else graph
    graph = fold_tables(_for_cycles(graph, accelerator, memory_map) if lowering_target.for_cycles else graph)
    builder = Builder(accelerator, memory_map, lowering_target.fast_region)
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
    return im2col(replace(graph, layers=layers), accelerator, memory_map)
