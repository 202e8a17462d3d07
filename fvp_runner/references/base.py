"""What references of .tflite files share: their error, what they take, and how inputs have to fit.

Invariant: a network that Vela compiled is no reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.errors import NpuMemplanError
from npu_memplan.models.network import Network
from npu_memplan.models.tflite import read_network


class ReferenceRunError(NpuMemplanError):
    """The reference is not there, or cannot run the network."""


def tflite_source(model: bytes, name: str) -> Network:
    """The network of a .tflite file; `ReferenceRunError` for one that Vela made."""
    network = read_network(bytes(model), name)
    if network.npu_calls:
        raise ReferenceRunError(f"{name} is itself compiled by Vela; give the model that Vela was given")
    return network


def fitting_inputs(network: Network, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """`inputs` in the shapes and types of the network's; `ReferenceRunError` for other sizes."""
    if len(inputs) != len(network.inputs):
        raise ReferenceRunError(f"{network.name} takes {len(network.inputs)} inputs, but got {len(inputs)}")
    found = []
    for position, (index, value) in enumerate(zip(network.inputs, inputs, strict=True)):
        tensor = network.tensors[index]
        if value.size * value.itemsize != tensor.size_bytes:
            raise ReferenceRunError(
                f"input {position} of {network.name} must be {tensor.dtype}{list(tensor.shape)}, "
                f"but is {value.dtype}{list(value.shape)}"
            )
        array = np.ascontiguousarray(value).view(np.uint8).reshape(-1).view(tensor.dtype)
        found.append(array.reshape(tensor.shape))
    return found
