"""tflite-micro's reference kernels.

Invariant: states start anew in every `run`, so runs do not depend on each other; `step` goes on from the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.exactness import MICRO
from npu_memplan.models.variables import DONE_BEFORE

from .base import ReferenceRunError, fitting_inputs, tflite_source

_ARENA_STEPS = (1 << 24, 1 << 28)  # bytes; the smallest that works is used


class KernelError(ReferenceRunError):
    """tflite-micro has no kernel for an operator of the network."""


def open_interpreter(model: bytes, name: str, preserve: bool = False) -> Any:
    """A tflite-micro interpreter for `model`; with `preserve` every tensor can be read after `invoke`."""
    try:
        from tflite_micro import runtime
    except ImportError as error:
        raise ReferenceRunError(
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


_ENDS_THE_PROCESS = {"DEPTHWISE_CONV_2D": 2, "SVDF": 3}  # kernels that follow a bias which is left out


class Reference:
    """A .tflite network (not compiled by Vela) in tflite-micro; the same interface as `TFLiteReference`."""

    what = MICRO

    def __init__(self, model: bytes, name: str = "reference") -> None:
        self.model, self.name = bytes(model), name
        self.network = tflite_source(self.model, name)
        for operator in self.network.cpu_operators:
            position = _ENDS_THE_PROCESS.get(operator.name, len(operator.inputs))
            if position < len(operator.inputs) and operator.inputs[position] < 0:
                raise KernelError(f"tflite-micro cannot run {name}: its {operator.name} needs a bias")
        self._interpreter = open_interpreter(self.model, name)

    def _invoke(self, interpreter: Any, inputs: Sequence[NDArray[Any]]) -> None:
        for position, value in enumerate(fitting_inputs(self.network, inputs)):
            interpreter.set_input(value, position)
        invoke(interpreter, self.name)

    def reset(self) -> None:
        """All states as they start. tflite-micro's own reset knows variable tensors only."""
        if any(o.is_custom or o.name in DONE_BEFORE for o in self.network.cpu_operators):
            self._interpreter = open_interpreter(self.model, self.name)
        else:
            self._interpreter.reset()

    def run(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        self.reset()
        return self.step(inputs)

    def step(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        self._invoke(self._interpreter, inputs)
        return tuple(np.array(self._interpreter.get_output(i)) for i in range(len(self.network.outputs)))

    def layers(self, inputs: Sequence[NDArray[Any]]) -> dict[int, NDArray[Any]]:
        interpreter = open_interpreter(self.model, self.name, preserve=True)
        self._invoke(interpreter, inputs)
        made = [index for operator in self.network.operators for index in operator.outputs if index >= 0]
        return {index: np.array(interpreter.GetTensor(index, 0)["tensor_data"]) for index in made}
