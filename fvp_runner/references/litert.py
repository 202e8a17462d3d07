"""The reference of what tflite-micro has no kernel for: LiteRT with its built-in reference kernels.

Invariant: never LiteRT's optimised kernels, which round otherwise, and no delegates; one thread. States start anew
in every `run`, as in tflite-micro's.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from .base import Interpreted, ReferenceRunError

WHAT = "LiteRT's reference kernels"


class LiteRTReference(Interpreted):
    """A network in LiteRT."""

    what = WHAT
    package = "ai-edge-litert"

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

    def _reset_variables(self) -> None:
        self._interpreter.reset_all_variables()

    def _invoke(self, interpreter: Any, inputs: list[NDArray[Any]]) -> list[Any]:
        for index, value in zip(self.network.inputs, inputs, strict=True):
            interpreter.set_tensor(index, value)
        try:
            interpreter.invoke()
        except (RuntimeError, ValueError) as error:
            raise ReferenceRunError(f"{WHAT} cannot run {self.name}: {error}") from error
        return [interpreter.get_tensor(index) for index in self.network.outputs]

    def _tensor(self, interpreter: Any, index: int) -> Any:
        return interpreter.get_tensor(index)
