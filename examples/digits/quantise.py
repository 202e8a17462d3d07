"""Post-training int8 quantisation as TFLite defines it: per tensor, weights per channel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Activation:
    """real = scale * (q - zero_point); `shape` is NHWC."""

    shape: tuple[int, ...]
    scale: float
    zero_point: int


@dataclass(frozen=True)
class Weights:
    """`data` is int8 with the output channel first (last for depthwise), `bias` int32."""

    data: NDArray[np.int8]
    bias: NDArray[np.int32]
    scales: NDArray[np.float32]  # one for each output channel


@dataclass(frozen=True)
class Quantised:
    """The whole network: activations by name, weights by layer name."""

    tensors: dict[str, Activation]
    weights: dict[str, Weights]


def quantise(weights: dict[str, NDArray[np.float32]], calibration: dict[str, NDArray[np.float32]]) -> Quantised:
    """Quantise with the ranges seen in `calibration` (NCHW or NC activations by name)."""
    tensors = {name: _activation(name, values) for name, values in calibration.items()}
    layers = {
        "stem": "image",
        "down": "stem",
        "left": "down",
        "right": "left",
        "depthwise": "residual",
        "pointwise": "depthwise",
        "classes": "pointwise",  # the average pool keeps its input's scale
    }
    return Quantised(
        tensors,
        {
            layer: _weights(weights[f"{layer}.weight"], weights[f"{layer}.bias"], tensors[source].scale, layer)
            for layer, source in layers.items()
        },
    )


def _activation(name: str, values: NDArray[np.float32]) -> Activation:
    shape = (1, *values.shape[2:], values.shape[1]) if values.ndim == 4 else (1, values.shape[1])
    if name == "probabilities":
        return Activation(shape, 1 / 256, -128)  # what TFLite demands of an int8 softmax
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    scale = float(np.float32((high - low) / 255))
    return Activation(shape, scale, int(np.clip(np.rint(-128 - low / scale), -128, 127)))


def _weights(w: NDArray[np.float32], b: NDArray[np.float32], input_scale: float, layer: str) -> Weights:
    w = w.transpose(0, 2, 3, 1) if w.ndim == 4 else w  # OIHW -> OHWI
    per_channel = np.abs(w).reshape(len(w), -1).max(1)
    if layer == "classes":  # TFLite's fully connected takes one scale for all channels
        per_channel = np.full_like(per_channel, per_channel.max())
    scales = np.maximum(per_channel / 127, 1e-8).astype(np.float32)
    data = np.clip(np.rint(w / scales.reshape(-1, *[1] * (w.ndim - 1))), -127, 127).astype(np.int8)
    bias = np.rint(b / (scales.astype(np.float64) * input_scale)).astype(np.int32)
    if layer == "depthwise":
        data = data.transpose(3, 1, 2, 0)  # [1, H, W, channels]
    return Weights(np.ascontiguousarray(data), bias, scales)
