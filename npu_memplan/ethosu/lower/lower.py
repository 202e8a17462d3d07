"""A graph of layers to an `NpuProgram`.

Invariant: the program's inputs and outputs are the graph's, in order, dense NHWC; everything else is
internal and free for the planner; the program computes exactly what TFLite's reference kernels do.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..arch import Architecture
from ..program.program import NpuProgram
from .emit import Builder
from .fold import fold_pads
from .graph import Graph
from .layers import Emitter
from .storage import assign


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program, its constants, and what is estimated of it."""

    program: NpuProgram
    constants: bytes
    cycles: int
    macs: int


def lower(graph: Graph, accelerator: Architecture, fast_region: int = -1) -> Lowered:
    """Lower every layer; feature maps inside would rather be in `fast_region` (-1: no preference).

    `LoweringError` or `BlockError` name the layer that cannot be.
    """
    graph = fold_pads(graph)
    builder = Builder(accelerator, fast_region)
    storage = assign(builder, graph)
    emitter = Emitter(builder, graph, storage)
    for layer in graph.layers:
        emitter.emit(layer)
    program, constants = builder.finish(graph.name, [storage.views[name].buffer for name in graph.outputs])
    return Lowered(program, constants, builder.cycles, builder.macs)
