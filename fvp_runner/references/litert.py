"""The reference of what tflite-micro has no kernel for: LiteRT with its built-in reference kernels.

Invariant: never LiteRT's optimised kernels, which round otherwise, and no delegates; one thread. States start anew
in every `run`, as in tflite-micro's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.models.network import Network
from npu_memplan.models.variables import DONE_BEFORE

from .base import ReferenceRunError, fitting_inputs

WHAT = "LiteRT's reference kernels"


class LiteRTReference:
    """A .tflite network (not compiled by Vela) in LiteRT; the same interface as `TFLiteReference`."""

    what = WHAT

    def __init__(self, model: bytes, network: Network) -> None:
        self.model, self.network, self.name = model, network, network.name
        self._interpreter = self._opened()

    def _opened(self, preserve: bool = False) -> Any:
        try:
            from ai_edge_litert.interpreter import Interpreter, OpResolverType
        except ImportError as error:
            raise ReferenceRunError(
                f"tflite-micro cannot run {self.name}, and LiteRT, the reference for such models, is not installed: "
                "pip install npu_memplan[litert]"
            ) from error
        try:
            interpreter = Interpreter(
                model_content=self.model,
                num_threads=1,
                experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
                experimental_preserve_all_tensors=preserve,
            )
            interpreter.allocate_tensors()
        except (RuntimeError, ValueError) as error:
            raise ReferenceRunError(f"neither tflite-micro nor {WHAT} can run {self.name}: {error}") from error
        return interpreter

    def reset(self) -> None:
        """All states as they start. LiteRT's own reset knows variable tensors only."""
        if any(o.is_custom or o.name in DONE_BEFORE for o in self.network.cpu_operators):
            self._interpreter = self._opened()
        else:
            self._interpreter.reset_all_variables()

    def run(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        self.reset()
        return self.step(inputs)

    def step(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        self._invoke(self._interpreter, inputs)
        return tuple(np.array(self._interpreter.get_tensor(index)) for index in self.network.outputs)

    def layers(self, inputs: Sequence[NDArray[Any]]) -> dict[int, NDArray[Any]]:
        interpreter = self._opened(preserve=True)
        self._invoke(interpreter, inputs)
        made = [index for operator in self.network.operators for index in operator.outputs if index >= 0]
        return {index: np.array(interpreter.get_tensor(index)) for index in made}

    def _invoke(self, interpreter: Any, inputs: Sequence[NDArray[Any]]) -> None:
        for index, value in zip(self.network.inputs, fitting_inputs(self.network, inputs), strict=True):
            interpreter.set_tensor(index, value)
        try:
            interpreter.invoke()
        except (RuntimeError, ValueError) as error:
            raise ReferenceRunError(f"{WHAT} cannot run {self.name}: {error}") from error
