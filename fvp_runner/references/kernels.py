"""tflite-micro's reference kernels, or LiteRT's where it has none.

Invariant: a run says whose kernels computed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from npu_memplan.exactness import HYBRID_LSTM, MICRO_TAKES_UINT8
from npu_memplan.models.network import Network, is_hybrid

from .base import KeptStates
from .litert import LiteRTReference
from .micro import KernelError, Reference


def _beyond_micro(network: Network) -> bool:
    """Whether an operator takes or makes uint8 that tflite-micro has no uint8 kernel for, or is an LSTM of floats with
    int8 weights, which its kernel reads as floats."""
    if any(o.name == HYBRID_LSTM and is_hybrid(network, o) for o in network.cpu_operators):
        return True
    return any(
        network.tensors[i].dtype == "uint8"
        for operator in network.cpu_operators
        if operator.name not in MICRO_TAKES_UINT8
        for i in (*operator.inputs, *operator.outputs)
        if i >= 0
    )


class KernelsReference(KeptStates):
    """tflite-micro where it has every kernel of the network, else LiteRT's reference kernels; `what` says which.

    That tflite-micro has no kernel shows when the network is opened or when it first runs.
    """

    def __init__(self, model: bytes, network: Network) -> None:
        super().__init__(model, network)
        self._chosen = self._choice()

    def _choice(self) -> KeptStates:
        if not _beyond_micro(self.network):
            try:
                return Reference(self.model, network=self.network)
            except KernelError:
                pass
        return LiteRTReference(self.model, self.network)

    @property
    def what(self) -> str:  # type: ignore[override]
        """Name of the reference; it may change in the first `step`."""
        return self._chosen.what

    @property
    def package(self) -> str:  # type: ignore[override]
        """The distribution that has it."""
        return self._chosen.package

    def reset(self) -> None:
        self._chosen.reset()

    def step(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        try:
            return self._chosen.step(inputs)
        except KernelError:  # of the first step: tflite-micro refuses every time or never
            self._chosen = LiteRTReference(self.model, self.network)
            return self._chosen.step(inputs)

    def layers(self, inputs: Sequence[NDArray[Any]]) -> dict[int, NDArray[Any]]:
        return self._chosen.layers(inputs)
