"""The reference every run is compared with: tflite-micro's reference kernels, or LiteRT's where it has none.

Invariant: a run says whose kernels computed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from npu_memplan.exactness import MICRO_TAKES_UINT8
from npu_memplan.models.network import Network

from .base import tflite_source
from .composed import ComposedReference, has_own_operators
from .litert import LiteRTReference
from .micro import KernelError, Reference


def _computes_in_uint8(network: Network) -> bool:
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
        self.model, self.name, self.network = bytes(model), name, tflite_source(bytes(model), name)
        self._chosen: Reference | LiteRTReference | ComposedReference
        if has_own_operators(self.network):
            self._chosen = ComposedReference(self.model, self.network)
            return
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
        self._chosen = LiteRTReference(self.model, self.network)

    def run(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        """Outputs for `inputs`, in the network's order and types."""
        try:
            return self._chosen.run(inputs)
        except KernelError:
            self._litert()
            return self._chosen.run(inputs)

    def reset(self) -> None:
        """All states as they start."""
        self._chosen.reset()

    def step(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        """Outputs for `inputs` with states as the last inference left them."""
        try:
            return self._chosen.step(inputs)
        except KernelError:  # of the first step: tflite-micro refuses every time or never
            self._litert()
            return self._chosen.step(inputs)

    def layers(self, inputs: Sequence[NDArray[Any]]) -> dict[int, NDArray[Any]]:
        """Tensor index -> value, of every tensor an operator of the network makes."""
        return self._chosen.layers(inputs)
