"""The example network, trained: its weights out of digits.tflite, for other frameworks to quantise again or export."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from npu_memplan.models.tensor import Tensor
from npu_memplan.models.tflite import read_network

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits"
LAYERS = ("stem", "down", "left", "right", "depthwise", "pointwise", "classes")


@dataclass(frozen=True)
class Digits:
    """Tensors of the TFLite model by name, and images: float32 [64, 1, 16, 16] in 0..1."""

    tensors: dict[str, Tensor]
    images: np.ndarray

    def stored_weights(self, layer: str) -> np.ndarray:
        """int8, output channels first: [O, I, H, W] or [O, I]."""
        values = self.tensors[f"{layer}/weights"].array()
        if layer == "depthwise":
            return np.ascontiguousarray(values.transpose(3, 0, 1, 2))
        return np.ascontiguousarray(values.transpose(0, 3, 1, 2)) if values.ndim == 4 else values

    def scales(self, layer: str) -> np.ndarray:
        """float32, one for each output channel."""
        found = np.array(self.tensors[f"{layer}/weights"].scales, np.float32)
        return np.broadcast_to(found, (len(self.stored_weights(layer)),)).copy()

    def weights(self, layer: str) -> np.ndarray:
        """float32 weights of a layer."""
        values = self.stored_weights(layer)
        return values * self.scales(layer).reshape(-1, *[1] * (values.ndim - 1))

    def bias(self, layer: str) -> np.ndarray:
        """float32 bias of a layer."""
        tensor = self.tensors[f"{layer}/bias"]
        return (tensor.array() * np.array(tensor.scales)).astype(np.float32)


def digits() -> Digits:
    """The example model and its sample images."""
    network = read_network((EXAMPLE / "digits.tflite").read_bytes(), "digits")
    tensors = {t.name: t for t in network.tensors}
    stored = np.load(EXAMPLE / "samples.npz")["images"].transpose(0, 3, 1, 2)
    image = tensors["image"]
    return Digits(tensors, ((stored.astype(np.float32) - image.zero_point) * np.float32(image.scale)))
