"""What references share: their error, what they take, how inputs have to fit, and running other frameworks on a file.

Invariant: a network that Vela compiled is no reference. Inputs are checked against the file before a framework sees
them; outputs are numpy arrays in the file's order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.errors import NpuMemplanError
from npu_memplan.models.network import Network
from npu_memplan.models.subgraphs import DONE_BEFORE
from npu_memplan.models.tflite import read_network
from npu_memplan.sizes import count_text


class ReferenceRunError(NpuMemplanError):
    """The reference is not there, or cannot run the network."""


class KeptStates(ABC):
    """The runner of a .tflite network whose states outlive a step."""

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
    def layer_values(self, inputs: Sequence[NDArray[Any]]) -> dict[int, NDArray[Any]]:
        """Tensor index -> value, of every tensor an operator of the network makes."""

    def run(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        """Outputs for `inputs` from a fresh start."""
        self.reset()
        return self.step(inputs)


class Interpreted(KeptStates):
    """A network (not compiled by Vela) in an interpreter."""

    def __init__(self, model: bytes, network: Network) -> None:
        super().__init__(model, network)
        self._interpreter = self._open_interpreter()

    @abstractmethod
    def _open_interpreter(self, preserve: bool = False) -> Any:
        """A fresh interpreter; with `preserve` every tensor can be read after it ran."""

    @abstractmethod
    def _reset_variables(self) -> None:
        """The interpreter's own reset, which covers variable tensors only."""

    @abstractmethod
    def _invoke_interpreter(self, interpreter: Any, inputs: list[NDArray[Any]]) -> list[Any]:
        """The outputs for inputs that fit."""

    @abstractmethod
    def _read_tensor(self, interpreter: Any, index: int) -> Any:
        """Any tensor of one that preserves them."""

    def reset(self) -> None:
        if any(o.is_custom or o.name in DONE_BEFORE for o in self.network.cpu_operators):
            self._interpreter = self._open_interpreter()
        else:
            self._reset_variables()

    def step(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        return tuple(map(np.array, self._invoke_interpreter(self._interpreter, fitting_inputs(self.network, inputs))))

    def layer_values(self, inputs: Sequence[NDArray[Any]]) -> dict[int, NDArray[Any]]:
        interpreter = self._open_interpreter(preserve=True)
        self._invoke_interpreter(interpreter, fitting_inputs(self.network, inputs))
        made = [index for operator in self.network.operators for index in operator.outputs if index >= 0]
        return {index: np.array(self._read_tensor(interpreter, index)) for index in made}


def tflite_source(model: bytes, name: str) -> Network:
    """The network of a .tflite file; `ReferenceRunError` for one that Vela made."""
    network = read_network(bytes(model), name)
    if network.npu_calls:
        raise ReferenceRunError(f"{name} is itself compiled by Vela; give the model that Vela was given")
    return network


def fitting_inputs(network: Network, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """`inputs` in the shapes and types of the network's; `ReferenceRunError` for other sizes."""
    if len(inputs) != len(network.inputs):
        raise ReferenceRunError(
            f"{network.name} takes {count_text(len(network.inputs), 'input')}, but got {len(inputs)}"
        )
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


_DRAWS = 4  # of steps up and down

Slot = tuple[str, tuple[int, ...], str]  # an input's name, shape and numpy type


class FrameworkReference(ABC):
    what: str  # for reports
    package: str  # the distribution that has it

    def __init__(self, name: str, inputs: Sequence[Slot]) -> None:
        self.name = name
        self._inputs = tuple(inputs)

    @abstractmethod
    def _compute_outputs(self, inputs: Sequence[NDArray[Any]]) -> Any:
        """One result, or a sequence of them, of inputs that fit; each has `numpy()`."""

    def reset(self) -> None:
        """Graphs of these frameworks keep nothing between inferences."""
        return

    def step(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        """The next inference of a sequence: the same as any other."""
        return self.run(inputs)

    def run(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        """Outputs for `inputs`; `ReferenceRunError` for inputs that do not fit."""
        if len(inputs) != len(self._inputs):
            raise ReferenceRunError(
                f"{self.name} takes {count_text(len(self._inputs), 'input')}, but got {len(inputs)}"
            )
        for (name, shape, dtype), value in zip(self._inputs, inputs, strict=True):
            if value.shape != shape or value.dtype.name != dtype:
                raise ReferenceRunError(
                    f"input {name} of {self.name} must be {dtype}{list(shape)}, but is {value.dtype}{list(value.shape)}"
                )
        found = self._compute_outputs([np.ascontiguousarray(value) for value in inputs])
        results = [found] if hasattr(found, "numpy") else list(found)
        return tuple(np.array(r.numpy()) for r in results)


class RealReference(FrameworkReference):
    """One whose quantised operators are computed in real numbers, so that results may be a step away."""

    def change_by_steps(self, inputs: Sequence[NDArray[Any]]) -> tuple[float, ...]:
        """How far each output moves at most where every quantised value is one step up or down: of some draws."""
        expected, rng = self.run(inputs), np.random.default_rng(0)
        compute, most = self._with_steps(), [0.0] * len(expected)
        for _ in range(_DRAWS):
            found = compute(inputs, rng)
            results = [found] if hasattr(found, "numpy") else found
            for index, (one, wanted) in enumerate(zip(results, expected, strict=True)):
                moved = np.abs(one.numpy().astype(np.float64) - wanted.astype(np.float64))
                most[index] = max(most[index], float(moved.max(initial=0.0)))
        return tuple(most)

    @abstractmethod
    def _with_steps(self) -> Callable[[Sequence[NDArray[Any]], np.random.Generator], Any]:
        """A function as `_compute_outputs`, with each value moved a step up or down before it is quantised."""
