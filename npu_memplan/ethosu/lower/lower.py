"""A graph of layers to an `NpuProgram`.

Invariant: the program's inputs and outputs are the graph's, in order, dense NHWC; everything else is
internal and free for the planner; the program computes exactly what TFLite's reference kernels do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..arch import Architecture, require_own_lowering
from ..program.program import NpuProgram
from ..time import MemoryMap, default_memory_map
from .emission import Emission
from .emit import Builder
from .fold import fold_pads, fold_tables
from .graph import LayerGraph
from .storage import assign
from .tensors import Arithmetic

OperatorOf = Callable[[str, tuple[int, ...]], int]


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program and its constants."""

    program: NpuProgram
    constants: bytes


def lower(
    graph: LayerGraph,
    accelerator: Architecture,
    fast_region: int = -1,
    operators: OperatorOf | None = None,
    where: MemoryMap | None = None,
) -> Lowered:
    """Lower every layer; feature maps inside would rather be in `fast_region` (-1: no preference).

    `operators` says which operator of the source model a layer is: of its output and its inputs' operators.
    `where` are the memories around the NPU (None: its default system's), of which the last region's has the maps.
    `LoweringError` or `BlockError` name the layer that cannot be; `AcceleratorError`: the NPU has only Vela's streams.
    """
    require_own_lowering(accelerator)
    graph = fold_tables(fold_pads(graph))
    builder = Builder(accelerator, where or default_memory_map(accelerator), fast_region)
    storage = assign(builder, graph)
    emission = Emission(builder, graph.tensors, storage, graph.arithmetic is Arithmetic.REAL)
    known: dict[str, int] = {}
    for layer in graph.layers:
        if operators is not None:
            builder.operator = operators(layer.source, tuple(known.get(name, -1) for name in layer.inputs))
            known[layer.output] = builder.operator
        layer.emit(emission)
    program, constants = builder.finish(graph.name, [storage.views[name].buffer for name in graph.outputs])
    return Lowered(program, constants)
