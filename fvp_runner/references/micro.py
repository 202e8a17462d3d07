"""tflite-micro's reference kernels.

Invariant: states start anew in every `run`, so runs do not depend on each other; `step` goes on from the last one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

from npu_memplan.exactness import MICRO
from npu_memplan.models.network import Network

from .base import Interpreted, ReferenceRunError, tflite_source

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
    with _captured_messages() as messages:
        failure: Exception | None = None
        for arena in _ARENA_STEPS:
            try:
                return runtime.Interpreter.from_bytes(model, arena_size=arena, intrepreter_config=kind)
            except (RuntimeError, ValueError) as error:
                failure = error
        raise KernelError(f"tflite-micro cannot run {name}: {messages() or failure}") from failure


def invoke(interpreter: Any, name: str) -> None:
    """Run once; `KernelError` when a kernel refuses."""
    with _captured_messages() as messages:
        try:
            interpreter.invoke()
        except RuntimeError as error:
            raise KernelError(f"tflite-micro cannot run {name}: {messages() or error}") from error


@contextmanager
def _captured_messages() -> Iterator[Callable[[], str]]:
    """The first line that tflite-micro prints meanwhile, which says why it refuses; nothing of it reaches stderr.

    That a part of a network is refused is no message for a user: LiteRT runs it then.
    """
    try:
        kept = os.dup(_STDERR)
    except OSError:  # it is closed
        yield str
        return
    with tempfile.TemporaryFile() as file:

        def first_line() -> str:
            file.seek(0)
            lines = file.read().decode(errors="replace").splitlines()
            return next((line.strip() for line in lines if line.strip()), "")

        os.dup2(file.fileno(), _STDERR)
        try:
            yield first_line
        finally:
            os.dup2(kept, _STDERR)
            os.close(kept)


_STDERR = 2  # C++ knows it by this number


_ENDS_THE_PROCESS = {"DEPTHWISE_CONV_2D": 2, "SVDF": 3}  # kernels that follow a bias which is left out


class Reference(Interpreted):
    """A network in tflite-micro."""

    what = MICRO
    package = "tflite-micro"

    def __init__(self, model: bytes, name: str = "reference", network: Network | None = None) -> None:
        super().__init__(model, network or tflite_source(model, name))

    def _opened(self, preserve: bool = False) -> Any:
        for operator in self.network.cpu_operators:
            position = _ENDS_THE_PROCESS.get(operator.name, len(operator.inputs))
            if position < len(operator.inputs) and operator.inputs[position] < 0:
                raise KernelError(f"tflite-micro cannot run {self.name}: its {operator.name} needs a bias")
        return open_interpreter(self.model, self.name, preserve)

    def _reset_variables(self) -> None:
        self._interpreter.reset()

    def _invoke(self, interpreter: Any, inputs: list[NDArray[Any]]) -> list[Any]:
        for position, value in enumerate(inputs):
            interpreter.set_input(value, position)
        invoke(interpreter, self.name)
        return [interpreter.get_output(i) for i in range(len(self.network.outputs))]

    def _tensor(self, interpreter: Any, index: int) -> Any:
        return interpreter.GetTensor(index, 0)["tensor_data"]
