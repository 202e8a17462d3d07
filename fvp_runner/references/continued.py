"""What the reference makes of tensors that a program has made otherwise.

Invariant: an operator whose inputs are those of the reference's own run keeps the results of that run; every other one
is run alone on the inputs that it got.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from npu_memplan.models.network import Network

from .base import fitting_inputs
from .kernels import ReferenceOperator


def continue_from(
    model: bytes,
    network: Network,
    inputs: Sequence[NDArray[Any]],
    layers: Mapping[int, NDArray[Any]],
    made: Mapping[int, NDArray[Any]],
) -> dict[int, NDArray[Any]]:
    """`layers`, the tensors of the reference's first run of `network`, as they are where `made` replaces them.

    Raises `ReferenceRunError` for an operator that cannot be run alone.
    """
    values = {i: tensor.array() for i, tensor in enumerate(network.tensors) if tensor.data is not None}
    values |= dict(zip(network.inputs, fitting_inputs(network, inputs), strict=True))
    values |= layers
    other: set[int] = set()
    for operator in network.cpu_operators:
        results = [index for index in operator.outputs if index >= 0]
        if other.intersection(operator.inputs) and not made.keys() >= set(results):
            alone = ReferenceOperator(model, network, operator)
            values |= dict(zip(results, alone.run([values[i] for i in alone.network.inputs]), strict=True))
            other.update(results)
        for index in made.keys() & set(results):
            values[index] = made[index]
            other.add(index)
    return {index: values[index] for index in layers}
