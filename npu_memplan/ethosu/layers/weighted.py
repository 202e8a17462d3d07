"""Sums with weights: what convolutions and fully connected layers share, on the NPU and in Relax.

Invariant: weights are [O, H, W, I] with their zero point subtracted, whatever layout the frontend chose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..arch import Architecture, Language
from ..lower.emit import Builder
from ..lower.languages.u85_weights import overflow
from ..lower.layer import Layer
from ..lower.operands import Operand, Output, Window
from ..lower.scaling import Scale, rounded_once
from ..lower.tensors import LayerTensor
from ..reading import patterns as p
from ..reading.reader import Constant, Input, Reader
from ..stream.isa import Rounding

_MAX_SUM = 127 * 65536


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """One way to see the input and the weights of a layer; they are OHWI."""

    ifm: Operand
    window: Window
    weights: NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Weighted(Layer):
    weights: NDArray[Any]  # OHWI (depthwise: O = 1, I = channels out), zero point already subtracted
    bias: NDArray[np.int64]
    weight_scales: tuple[float, ...]  # one, or one for each output channel
    clamp: tuple[int, int]  # quantised
    takes_tables: ClassVar[bool] = True

    wide: bool = field(default=False, kw_only=True)  # 64-bit accumulators, rounded once: int16 without an int32 bias
    stated: tuple[Scale, ...] = field(default=(), kw_only=True)  # one, or one a channel; (): the tensors' scales say it

    def _unfit_weights(self) -> str | None:
        sums = np.abs(self.weights.astype(np.int64)).reshape(len(self.weights), -1).sum(axis=1)
        if sums.max(initial=0) > _MAX_SUM:
            return "the sum of the absolute weights of a channel exceeds 127 * 65536"
        if np.abs(self.weights).max(initial=0) > 255:
            return "its weights do not fit 9 bits after their zero point is subtracted"
        if np.abs(self.bias).max(initial=0) >= 1 << 39:
            return "its bias does not fit 40 bits"
        if len(self.weight_scales) not in (1, len(self.bias)):
            return f"it has {len(self.weight_scales)} weight scales for {len(self.bias)} channels"
        return None

    def unsupported_by(self, target: Architecture, inputs: tuple[LayerTensor, ...]) -> str | None:
        """Sums of 16-bit values that are not rounded once have as many bits as their multipliers leave."""
        narrow = target.language is Language.U85 and inputs[0].element_bytes == 2 and not self.wide
        return overflow(self.weights, self.bias) if narrow else None

    def _emit_sums(
        self, builder: Builder, sums: Sums, ofm: Operand, scales: Sequence[Scale], output: Output, depthwise: bool
    ) -> None:
        if self.wide:
            scales = [rounded_once(s) for s in scales]
            output = replace(output, rounding=Rounding.NATURAL)
        scales = self.stated or scales
        builder.weighted(sums.ifm, ofm, sums.window, output, sums.weights, self.bias, scales, depthwise=depthwise)


# ---------------------------------------------------------------------- in Relax


def weighted(name: str) -> Iterator[p.Pattern]:
    """A product with constant weights, with a bias or without."""
    bare = p.op(name, p.dequantized(p.anything()), _weights())
    yield from p.finished(bare)
    yield from p.finished(p.op("add", bare, _bias()))


def _moved(x: p.Pattern) -> p.Pattern:
    return p.op("reshape", x, p.anything()) | p.op("permute_dims", x)


def _weights() -> p.Pattern:
    constant = p.constant()
    return _moved(p.dequantized(constant)) | p.dequantized(_moved(constant)) | p.dequantized(constant)


def _bias() -> p.Pattern:
    constant = p.constant()
    wide = p.op("multiply", p.op("astype", constant), p.constant())  # relax.dequantize takes no int64
    bias = p.dequantized(constant) | wide
    return p.op("reshape", bias, p.anything()) | bias


def read_product(reader: Reader, root: Any, name: str) -> tuple[Any, LayerTensor, Input, Constant, dict[str, Any]]:
    """dequantize, `name` with constant weights, [bias], [activation], quantize.

    The call, its result "out", its input "0", its weights, and the fields that it gives any `Weighted`: a scale where
    all are equal, else one for each channel; no bias is one of int64; TFLite accumulates `wide` sums in 64 bits.
    """
    out, real, clamp = reader.quantised(root)
    add = reader.call(real, "add")
    bias = np.zeros(out.shape[-1], np.int64) if add is None else reader.constant(add.args[1]).values.reshape(-1)
    call = reader.need(real if add is None else add.args[0], name)
    source, weights = reader.activation(call.args[0], "0"), reader.constant(call.args[1])
    scales = tuple(float(s) for s in weights.scales)
    fields = {
        "inputs": ("0",),
        "output": "out",
        "bias": bias.astype(np.int64),
        "wide": source[0].dtype == "int16" and bias.dtype == np.int64,
        "weight_scales": scales[:1] if len(set(scales)) == 1 else scales,
        "clamp": clamp,
    }
    return call, out, source, weights, fields


def zeroed(weights: Constant, axis: int) -> NDArray[Any]:
    """Weights minus their zero points (one, or one for each channel along `axis`)."""
    zeros = weights.zero_points
    if zeros.size > 1:
        shape = [1] * weights.values.ndim
        shape[axis] = zeros.size
        zeros = zeros.reshape(shape)
    return weights.values.astype(np.int16) - zeros.astype(np.int16)


def ohwi(weights: Constant, layout: str) -> NDArray[Any]:
    """Weights of a convolution without their zero points, in the order of the NPU."""
    values = zeroed(weights, layout.index("O"))
    return np.ascontiguousarray(values.transpose([layout.index(letter) for letter in "OHWI"]))
