"""The reference every run is compared with: tflite-micro's reference kernels.

Invariant: state tensors start at their zero point in every `run`, so runs do not depend on each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.errors import NpuMemplanError
from npu_memplan.ethosu.network import VelaNetwork, read_network

_ARENA_STEPS = (1 << 24, 1 << 28)  # bytes; the smallest that works is used


class ReferenceError(NpuMemplanError):
    """tflite-micro is not there, or cannot run the network."""


def open_interpreter(model: bytes, name: str, preserve: bool = False) -> Any:
    """A tflite-micro interpreter for `model`; with `preserve` every tensor can be read after `invoke`."""
    try:
        from tflite_micro import runtime
    except ImportError as error:
        raise ReferenceError(
            "the reference needs tflite-micro, which is not installed: pip install npu_memplan[reference]"
        ) from error
    config = runtime.InterpreterConfig
    kind = config.kPreserveAllTensors if preserve else config.kAllocationRecording
    failure: Exception | None = None
    for arena in _ARENA_STEPS:
        try:
            return runtime.Interpreter.from_bytes(model, arena_size=arena, intrepreter_config=kind)
        except (RuntimeError, ValueError) as error:
            failure = error
    raise ReferenceError(f"tflite-micro cannot run {name}: {failure}") from failure


def invoke(interpreter: Any, name: str) -> None:
    """Run once; `ReferenceError` when a kernel refuses."""
    try:
        interpreter.invoke()
    except RuntimeError as error:
        raise ReferenceError(f"tflite-micro cannot run {name}: {error}") from error


class Reference:
    """A .tflite network (not compiled by Vela) in tflite-micro."""

    what = "tflite-micro"

    def __init__(self, model: bytes, name: str = "reference") -> None:
        self.model, self.name = bytes(model), name
        self.network: VelaNetwork = read_network(self.model, name)
        if self.network.npu_calls:
            raise ReferenceError(f"{name} is itself compiled by Vela; give the model that Vela was given")
        self._interpreter = open_interpreter(self.model, name)

    def _invoke(self, interpreter: Any, inputs: Sequence[NDArray[Any]]) -> None:
        given = self.network.inputs
        if len(inputs) != len(given):
            raise ReferenceError(f"{self.name} takes {len(given)} inputs, but got {len(inputs)}")
        for position, (index, value) in enumerate(zip(given, inputs, strict=True)):
            tensor = self.network.tensors[index]
            if value.size * value.itemsize != tensor.size_bytes:
                raise ReferenceError(
                    f"input {position} of {self.name} must be {tensor.dtype}{list(tensor.shape)}, "
                    f"but is {value.dtype}{list(value.shape)}"
                )
            array = np.ascontiguousarray(value).view(np.uint8).reshape(-1).view(tensor.dtype)
            interpreter.set_input(array.reshape(tensor.shape), position)
        invoke(interpreter, self.name)

    def run(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        """Outputs for `inputs`, in the network's order and types."""
        self._interpreter.reset()
        self._invoke(self._interpreter, inputs)
        return tuple(np.array(self._interpreter.get_output(i)) for i in range(len(self.network.outputs)))

    def layers(self, inputs: Sequence[NDArray[Any]]) -> dict[int, NDArray[Any]]:
        """Tensor index -> value, of every tensor an operator of the network makes."""
        interpreter = open_interpreter(self.model, self.name, preserve=True)
        self._invoke(interpreter, inputs)
        made = [index for operator in self.network.operators for index in operator.outputs if index >= 0]
        return {index: np.array(interpreter.GetTensor(index, 0)["tensor_data"]) for index in made}
