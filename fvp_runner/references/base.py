"""What references of .tflite files share: their error, what they take, and how inputs have to fit.

Invariant: a network that Vela compiled is no reference.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.errors import NpuMemplanError
from npu_memplan.models.network import Network
from npu_memplan.models.tflite import read_network
from npu_memplan.models.variables import DONE_BEFORE
from npu_memplan.sizes import counted


class ReferenceRunError(NpuMemplanError):
    """The reference is not there, or cannot run the network."""


class KeptStates(ABC):
    """What runs a .tflite network, whose states outlive a step."""

    what: str  # for reports
    package: str  # the distribution that has it

    def __init__(self, model: bytes, network: Network) -> None:
        self.model, self.network, self.name = bytes(model), network, network.name

    @abstractmethod
    def reset(self) -> None:
        """All states as they start."""

    @abstractmethod
    def step(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        """Outputs for `inputs`, in the network's order and types, with states as the last inference left them."""

    @abstractmethod
    def layers(self, inputs: Sequence[NDArray[Any]]) -> dict[int, NDArray[Any]]:
        """Tensor index -> value, of every tensor an operator of the network makes."""

    def run(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        """Outputs for `inputs` from a fresh start."""
        self.reset()
        return self.step(inputs)


class Interpreted(KeptStates):
    """A network (not compiled by Vela) in an interpreter."""

    def __init__(self, model: bytes, network: Network) -> None:
        super().__init__(model, network)
        self._interpreter = self._opened()

    @abstractmethod
    def _opened(self, preserve: bool = False) -> Any:
        """A fresh interpreter; with `preserve` every tensor can be read after it ran."""

    @abstractmethod
    def _reset_variables(self) -> None:
        """The interpreter's own reset, which covers variable tensors only."""

    @abstractmethod
    def _invoke(self, interpreter: Any, inputs: list[NDArray[Any]]) -> list[Any]:
        """The outputs for inputs that fit."""

    @abstractmethod
    def _tensor(self, interpreter: Any, index: int) -> Any:
        """Any tensor of one that preserves them."""

    def reset(self) -> None:
        if any(o.is_custom or o.name in DONE_BEFORE for o in self.network.cpu_operators):
            self._interpreter = self._opened()
        else:
            self._reset_variables()

    def step(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        return tuple(map(np.array, self._invoke(self._interpreter, fitting_inputs(self.network, inputs))))

    def layers(self, inputs: Sequence[NDArray[Any]]) -> dict[int, NDArray[Any]]:
        interpreter = self._opened(preserve=True)
        self._invoke(interpreter, fitting_inputs(self.network, inputs))
        made = [index for operator in self.network.operators for index in operator.outputs if index >= 0]
        return {index: np.array(self._tensor(interpreter, index)) for index in made}


def tflite_source(model: bytes, name: str) -> Network:
    """The network of a .tflite file; `ReferenceRunError` for one that Vela made."""
    network = read_network(bytes(model), name)
    if network.npu_calls:
        raise ReferenceRunError(f"{name} is itself compiled by Vela; give the model that Vela was given")
    return network


def fitting_inputs(network: Network, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """`inputs` in the shapes and types of the network's; `ReferenceRunError` for other sizes."""
    if len(inputs) != len(network.inputs):
        raise ReferenceRunError(f"{network.name} takes {counted(len(network.inputs), 'input')}, but got {len(inputs)}")
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
