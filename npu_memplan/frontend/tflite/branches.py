"""IF and WHILE: subgraphs of the file, one or the other, or again and again, as a bool says when it runs.

Invariant: such a subgraph has operators of the host alone and no state, is not inside of itself, and fits the operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...models.flatbuffer import UnsupportedModelError
from ...models.network import CpuOperator, Network
from ...models.tensor import Tensor
from ...sizes import counted


def branches_of(network: Network, operator: CpuOperator) -> list[tuple[int, Network]]:
    """Number and subgraph of both branches; `UnsupportedModelError` where they do not fit."""
    options = operator.options("IfOptions")
    numbers = (-1, -1) if options is None else (options.ThenSubgraphIndex(), options.ElseSubgraphIndex())
    tensors = [network.tensors[i] for i in (*operator.inputs[1:], *operator.outputs)]
    return [(number, _subgraph(network, number, tensors)) for number in numbers]


def turns_of(network: Network, operator: CpuOperator) -> list[tuple[int, Network]]:
    """Number and subgraph of a loop's condition and of its body; `UnsupportedModelError` where they do not fit."""
    options = operator.options("WhileOptions")
    numbers = (-1, -1) if options is None else (options.CondSubgraphIndex(), options.BodySubgraphIndex())
    if len(operator.inputs) != len(operator.outputs) or -1 in operator.inputs:
        raise UnsupportedModelError(
            f"it has {counted(len(operator.inputs), 'input')} and {counted(len(operator.outputs), 'output')}"
        )
    state = [network.tensors[i] for i in operator.inputs]
    kept = [network.tensors[i] for i in operator.outputs]
    condition = _subgraph(network, numbers[0], state, returned=False)
    if [condition.tensors[i].dtype for i in condition.outputs] != ["bool"]:
        raise UnsupportedModelError(f"its condition, subgraph {numbers[0]}, does not give one bool")
    return [(numbers[0], condition), (numbers[1], _subgraph(network, numbers[1], [*state, *kept]))]


def subgraphs_of(network: Network, operator: CpuOperator) -> list[tuple[int, Network]]:
    """Number and subgraph of all that an IF or a WHILE runs; of other operators none."""
    if operator.name == "IF":
        return branches_of(network, operator)
    return turns_of(network, operator) if operator.name == "WHILE" else []


def _subgraph(network: Network, number: int, outer: Sequence[Tensor], returned: bool = True) -> Network:
    """Subgraph `number`, whose inputs (and outputs, if `returned`) are as `outer`; it may run others, not itself."""
    if not 0 < number < len(network.subgraphs):
        raise UnsupportedModelError(f"it runs subgraph {number}; there are {len(network.subgraphs)}")
    graph = network.subgraphs[number]
    inner = [graph.tensors[i] for i in (*graph.inputs, *(graph.outputs if returned else ()))]
    if [(t.shape, t.dtype) for t in inner] != [(t.shape, t.dtype) for t in outer] or not graph.outputs:
        raise UnsupportedModelError(f"subgraph {number} has other inputs or outputs than the operator")
    within = list(network.subgraphs)
    within[number] = replace(graph, inputs=(), outputs=(), operators=())
    return replace(graph, subgraphs=tuple(within))
