"""Twins of public networks: the same operators, shapes, types and names of inputs, with weights drawn by a fixed seed.

They stand in where the real files, which are not part of this repository, are missing. Scales keep values in range, so
that no layer is all zero or all at a limit. Sources of the shapes: MLPerf Tiny (vww_96_int8, ad01_int8), TFLite Micro's
person_detect, and MobileNet v2 as `tf2_mobilenet_v2_1.0_224_ptq` has it.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .tflite_builder import ModelBuilder

RELU, RELU6, PLAIN = 1, 3, 0  # ActivationFunctionType
SAME, VALID = 0, 1  # Padding
_RELU6_SCALE = 6 / 255


@dataclass
class Twin:
    """A network that grows by a layer at a time; `at` is the tensor of the last one, [1, rows, columns, channels]."""

    name: str
    b: ModelBuilder = field(default_factory=ModelBuilder)
    at: int = 0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(zlib.crc32(self.name.encode()))

    def begin(self, shape: tuple[int, ...], scale: float, zero: int, name: str, dtype: str = "int8") -> None:
        self.at = self.b.tensor(shape, dtype, scale, zero, name=name)
        self.b.inputs = [self.at]

    def put(self, kind: str, shape: tuple[int, ...], like: Any, options: str | None, *more: int, **fields: Any) -> int:
        """An operator on the last tensor and `more`; `like`: (scale, zero point), or what the last tensor has."""
        spec = self.b.tensors[self.at]
        scale, zero = like or (spec.scale, spec.zero_point)
        made = self.b.tensor(shape, fields.pop("dtype", "int8"), scale, zero)
        self.b.operator(kind, [self.at, *more], [made], options, fields.pop("version", 1), **fields)
        self.at = made
        return made

    def weights(self, shape: tuple[int, ...], axis: int, taps: int, per_channel: bool = True) -> tuple[int, int]:
        """Tensors of weights and biases: sums of `taps` products keep the size of their inputs."""
        values = np.clip(np.rint(self.rng.normal(0, 40, shape)), -127, 127).astype(np.int8)
        made = shape[axis]
        count = made if per_channel else 1
        scales = self.rng.uniform(0.7, 1.3, count) * (2 / taps) ** 0.5 / 40
        scale = [float(np.float32(s)) for s in scales] if per_channel else float(np.float32(scales[0]))
        biases = self.rng.integers(-900, 900, made).astype(np.int32)
        input_scale = self.b.tensors[self.at].scale
        of_bias = [s * input_scale for s in scale] if per_channel else scale * input_scale
        return self.b.constant(values, scale, axis=axis), self.b.constant(biases, of_bias)

    def convolve(
        self, channels: int, kernel: int = 1, stride: int = 1, activation: int = RELU6, like: Any = None
    ) -> int:
        _, rows, columns, deep = self.b.tensors[self.at].shape
        parts = self.weights((channels, kernel, kernel, deep), 0, kernel * kernel * deep)
        shape = (1, -(-rows // stride), -(-columns // stride), channels)
        return self.put(
            "CONV_2D", shape, like or (_RELU6_SCALE, -128), "Conv2DOptions", *parts, version=3, Padding=SAME,
            StrideW=stride, StrideH=stride, DilationWFactor=1, DilationHFactor=1, FusedActivationFunction=activation,
        )  # fmt: skip

    def by_channel(self, stride: int = 1, multiplier: int = 1) -> int:
        """A depthwise convolution of 3x3."""
        _, rows, columns, deep = self.b.tensors[self.at].shape
        parts = self.weights((1, 3, 3, deep * multiplier), 3, 9)
        shape = (1, -(-rows // stride), -(-columns // stride), deep * multiplier)
        return self.put(
            "DEPTHWISE_CONV_2D", shape, (_RELU6_SCALE, -128), "DepthwiseConv2DOptions", *parts, version=3,
            Padding=SAME, StrideW=stride, StrideH=stride, DilationWFactor=1, DilationHFactor=1,
            DepthMultiplier=multiplier, FusedActivationFunction=RELU6,
        )  # fmt: skip

    def connect(self, outputs: int, activation: int, like: Any) -> int:
        deep = self.b.tensors[self.at].shape[-1]
        parts = self.weights((outputs, deep), 0, deep, per_channel=False)
        return self.put(
            "FULLY_CONNECTED", (1, outputs), like, "FullyConnectedOptions", *parts, version=4,
            FusedActivationFunction=activation,
        )  # fmt: skip

    def reshape(self, *shape: int) -> int:
        return self.put(
            "RESHAPE", shape, None, "ReshapeOptions", self.b.constant(np.array(shape, np.int32)), NewShape=shape
        )

    def softmax(self) -> int:
        shape = self.b.tensors[self.at].shape
        return self.put("SOFTMAX", shape, (1 / 256, -128), "SoftmaxOptions", version=2, Beta=1.0)

    def file(self) -> bytes:
        self.b.outputs = [self.at]
        return self.b.finish()


def _mobilenet_v1(twin: Twin) -> None:
    """The blocks of MobileNet v1, a quarter as wide, behind its first layer."""
    for channels, stride in zip(
        (16, 32, 32, 64, 64, *(128,) * 6, 256, 256), (1, 2, 1, 2, 1, 2, *(1,) * 5, 2, 1), strict=True
    ):
        twin.by_channel(stride)
        twin.convolve(channels)
    twin.put("AVERAGE_POOL_2D", (1, 1, 1, 256), None, "Pool2DOptions", version=2, Padding=VALID, StrideW=3, StrideH=3,
             FilterWidth=3, FilterHeight=3)  # fmt: skip


def vww() -> bytes:
    twin = Twin("vww_96_int8")
    twin.begin((1, 96, 96, 3), 1 / 255, -128, "input_1_int8")
    twin.convolve(8, 3, 2)
    _mobilenet_v1(twin)
    twin.reshape(1, 256)
    twin.connect(2, PLAIN, (0.02, -5))
    twin.softmax()
    return twin.file()


def person_detect() -> bytes:
    twin = Twin("person_detect")
    twin.begin((1, 96, 96, 1), 2 / 255, -1, "input")
    twin.by_channel(2, 8)
    _mobilenet_v1(twin)
    twin.convolve(2, activation=PLAIN, like=(0.02, -1))
    twin.reshape(1, 2)
    twin.softmax()
    return twin.file()


def autoencoder() -> bytes:
    twin = Twin("ad01_int8")
    twin.begin((1, 640), 0.39, 89, "input_1")
    for outputs in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        twin.connect(outputs, RELU, (0.3, -128))
    twin.connect(640, PLAIN, (0.36, 96))
    return twin.file()


def mobilenet_v2() -> bytes:
    twin = Twin("tf2_mobilenet_v2_1.0_224_ptq")
    twin.begin((1, 224, 224, 3), 2 / 255, 127, "input", "uint8")
    twin.put("QUANTIZE", (1, 224, 224, 3), (2 / 255, -1), None)
    twin.convolve(32, 3, 2)
    narrow = 0.05, 3
    deep = 32
    blocks = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for wider, channels, count, first in blocks:
        for number in range(count):
            before = twin.at
            if wider > 1:
                twin.convolve(deep * wider)
            twin.by_channel(1 if number else first)
            after = twin.convolve(channels, activation=PLAIN, like=narrow)
            if number:
                twin.at = before
                twin.put("ADD", twin.b.tensors[after].shape, narrow, "AddOptions", after, version=2)
            deep = channels
    twin.convolve(1280)
    axes = twin.b.constant(np.array([1, 2], np.int32))
    twin.put("MEAN", (1, 1, 1, 1280), (_RELU6_SCALE, -128), "ReducerOptions", axes, version=2, KeepDims=True)
    twin.convolve(1001, activation=PLAIN, like=(0.06, -53))
    twin.reshape(1, 1001)
    twin.softmax()
    twin.put("QUANTIZE", (1, 1001), (1 / 256, 0), None, dtype="uint8")
    return twin.file()


TWINS: dict[str, Callable[[], bytes]] = {
    "vww_96_int8": vww,
    "person_detect": person_detect,
    "ad01_int8": autoencoder,
    "tf2_mobilenet_v2_1.0_224_ptq": mobilenet_v2,
}


def twin_in(folder: Path, name: str) -> Path:
    """The twin of `name`.tflite in `folder`, built where it is not there."""
    path = folder / f"{name}.tflite"
    data = TWINS[name]()
    if not path.is_file() or path.read_bytes() != data:
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")  # another worker may build it, too
        part.write_bytes(data)
        part.replace(path)
    return path
