"""The reference every run is compared with: tflite-micro's reference kernels, or LiteRT's where it has none.

Invariant: state tensors start at their zero point in every `run`, so runs do not depend on each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.errors import NpuMemplanError
from npu_memplan.ethosu.network import VelaNetwork, read_network
from npu_memplan.exactness import MICRO, MICRO_TAKES_UINT8

if TYPE_CHECKING:
    from .litert_reference import LiteRTReference

_ARENA_STEPS = (1 << 24, 1 << 28)  # bytes; the smallest that works is used


class ReferenceError(NpuMemplanError):
    """The reference is not there, or cannot run the network."""


class KernelError(ReferenceError):
    """tflite-micro has no kernel for an operator of the network."""


def _source(model: bytes, name: str) -> VelaNetwork:
    network = read_network(bytes(model), name)
    if network.npu_calls:
        raise ReferenceError(f"{name} is itself compiled by Vela; give the model that Vela was given")
    return network


def fitting_inputs(network: VelaNetwork, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """`inputs` in the shapes and types of the network's; `ReferenceError` for other sizes."""
    if len(inputs) != len(network.inputs):
        raise ReferenceError(f"{network.name} takes {len(network.inputs)} inputs, but got {len(inputs)}")
    found = []
    for position, (index, value) in enumerate(zip(network.inputs, inputs, strict=True)):
        tensor = network.tensors[index]
        if value.size * value.itemsize != tensor.size_bytes:
            raise ReferenceError(
                f"input {position} of {network.name} must be {tensor.dtype}{list(tensor.shape)}, "
                f"but is {value.dtype}{list(value.shape)}"
            )
        array = np.ascontiguousarray(value).view(np.uint8).reshape(-1).view(tensor.dtype)
        found.append(array.reshape(tensor.shape))
    return found


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
    raise KernelError(f"tflite-micro cannot run {name}: {failure}") from failure


def invoke(interpreter: Any, name: str) -> None:
    """Run once; `KernelError` when a kernel refuses."""
    try:
        interpreter.invoke()
    except RuntimeError as error:
        raise KernelError(f"tflite-micro cannot run {name}: {error}") from error


class Reference:
    """A .tflite network (not compiled by Vela) in tflite-micro."""

    what = MICRO

    def __init__(self, model: bytes, name: str = "reference") -> None:
        self.model, self.name = bytes(model), name
        self.network = _source(self.model, name)
        self._interpreter = open_interpreter(self.model, name)

    def _invoke(self, interpreter: Any, inputs: Sequence[NDArray[Any]]) -> None:
        for position, value in enumerate(fitting_inputs(self.network, inputs)):
            interpreter.set_input(value, position)
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


def _computes_in_uint8(network: VelaNetwork) -> bool:
    """Whether an operator takes or makes uint8 that tflite-micro has no uint8 kernel for."""
    return any(
        network.tensors[i].dtype == "uint8"
        for operator in network.cpu_operators
        if operator.name not in MICRO_TAKES_UINT8
        for i in (*operator.inputs, *operator.outputs)
        if i >= 0
    )


class TFLiteReference:
    """tflite-micro where it has every kernel of the network, else LiteRT's reference kernels; `what` says which.

    That tflite-micro has no kernel shows when the network is opened or when it first runs.
    """

    def __init__(self, model: bytes, name: str = "reference") -> None:
        self.model, self.name, self.network = bytes(model), name, _source(bytes(model), name)
        self._chosen: Reference | LiteRTReference
        if _computes_in_uint8(self.network):
            self._litert()
            return
        try:
            self._chosen = Reference(self.model, name)
        except KernelError:
            self._litert()

    @property
    def what(self) -> str:
        """Name of the reference; it may change in the first `run`."""
        return self._chosen.what

    def _litert(self) -> None:
        from .litert_reference import LiteRTReference

        self._chosen = LiteRTReference(self.model, self.network)

    def run(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        """Outputs for `inputs`, in the network's order and types."""
        try:
            return self._chosen.run(inputs)
        except KernelError:
            self._litert()
            return self._chosen.run(inputs)

    def layers(self, inputs: Sequence[NDArray[Any]]) -> dict[int, NDArray[Any]]:
        """Tensor index -> value, of every tensor an operator of the network makes."""
        return self._chosen.layers(inputs)
