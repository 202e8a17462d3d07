"""Omitted operator inputs and constant results, put back where a compiler lost them.

Invariant: only operators whose present inputs are all accounted for are changed. Vela's compiled core drops
omitted optional inputs (-1) of the operators it leaves to the CPU, and with them the positions that give the
others their meaning; the source model still has them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from ...models.network import CpuOperator, Network
from ...models.vela import NpuCall


def with_omitted_inputs(network: Network, source: Network) -> Network:
    """`network` with every host operator's inputs at the positions they have in `source`."""
    originals: dict[tuple[object, ...], list[CpuOperator]] = defaultdict(list)
    for known in reversed(source.cpu_operators):
        originals[_key(source, known)].append(known)
    operators: list[NpuCall | CpuOperator] = []
    for operator in network.operators:
        if isinstance(operator, NpuCall):
            operators.append(operator)
            continue
        found = originals[_key(network, operator)]
        original = found.pop().inputs if found else ()
        present = [i for i in operator.inputs if i >= 0]
        if -1 in original and len(present) == sum(i >= 0 for i in original):
            rest = iter(present)
            operators.append(replace(operator, inputs=tuple(next(rest) if i >= 0 else -1 for i in original)))
        else:
            operators.append(operator)
    return replace(network, operators=tuple(operators))


def with_constant_outputs(network: Network, source: Network) -> Network:
    """`network` with the bytes of results that are constants in `source`: Vela leaves them without any."""
    tensors = list(network.tensors)
    for index, original in zip(network.outputs, source.outputs, strict=True):
        constant = source.tensors[original]
        if constant.data is not None and tensors[index].data is None:
            tensors[index] = replace(tensors[index], data=constant.data, shape=constant.shape)
    return replace(network, tensors=tuple(tensors))


def _key(network: Network, operator: CpuOperator) -> tuple[object, ...]:
    if not operator.outputs:
        return (operator.name,)
    tensor = network.tensors[operator.outputs[0]]
    return operator.name, tensor.name, tensor.shape, tensor.dtype, tensor.scales
