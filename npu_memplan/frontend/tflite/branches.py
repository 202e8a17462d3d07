"""IF: one of two subgraphs of the file, by a bool that is known only when it runs.

Invariant: a branch has operators of the host alone, no state and no branches of its own, and fits the operator.
"""

from __future__ import annotations

from ...models.file import UnsupportedModelError
from ...models.network import CpuOperator, Network

LOOP = "how often it goes round is known only when it runs: such a program has no static order of calls"


def branches_of(network: Network, operator: CpuOperator) -> list[tuple[int, Network]]:
    """Number and subgraph of both branches; `UnsupportedModelError` where they do not fit."""
    import tflite

    options = operator.options(tflite.IfOptions)
    numbers = (-1, -1) if options is None else (options.ThenSubgraphIndex(), options.ElseSubgraphIndex())
    found = []
    for number in numbers:
        if not 0 < number < len(network.subgraphs):
            raise UnsupportedModelError(f"its branch is subgraph {number}; there are {len(network.subgraphs)}")
        graph = network.subgraphs[number]
        inner = [graph.tensors[i] for i in (*graph.inputs, *graph.outputs)]
        outer = [network.tensors[i] for i in (*operator.inputs[1:], *operator.outputs)]
        if [(t.shape, t.dtype) for t in inner] != [(t.shape, t.dtype) for t in outer]:
            raise UnsupportedModelError(f"subgraph {number} has other inputs or outputs than the operator")
        found.append((number, graph))
    return found
