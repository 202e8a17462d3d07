"""What several families of operators share: type checks, activations, padding.

Invariant: a type that the reference kernel does not take is refused here, never guessed at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...fixed_point import LIMITS, activation_range, multiply_scales, quantise_multiplier
from ...models.tensor import Tensor
from .operator import Lowering, UnsupportedOperatorError, require_supported
from .tir import Buffer, ChannelScales, Expr, both, clamp, int_constant, load, raw_load

ACTIVATION_TYPES = ("int8", "int16", "uint8")
EIGHT_BITS = ("int8", "uint8")


def require_same_type(tensors: tuple[Tensor, ...], allowed: tuple[str, ...], *, scaled: bool = True) -> str:
    """All tensors have one of the `allowed` types, the same one, and (if `scaled`) a scale."""
    kind = tensors[0].dtype
    for tensor in tensors:
        mixed = "" if tensor.dtype == kind else f", and not mixed with {kind}"
        takes = f"the host operator takes {' or '.join(allowed)}{mixed}"
        require_supported(tensor.dtype in allowed and not mixed, f"tensor {tensor.name!r} is {tensor.dtype}; {takes}")
        require_supported(not scaled or tensor.scale > 0.0, f"tensor {tensor.name!r} is not quantised")
    return kind


def ends(work: Lowering, allowed: tuple[str, ...], inputs: int = 1, *, scaled: bool = True) -> tuple[Tensor, ...]:
    """The first `inputs` inputs and the output, which `require_same_type` takes."""
    found = *(work.tensor(i) for i in range(inputs)), work.output()
    require_same_type(found, allowed, scaled=scaled)
    return found


def look_up(work: Lowering, entries: npt.NDArray[Any]) -> None:
    """output = entries[input], of 8 bits, the first entry for the least number."""
    data, output = work.tensor(0), work.output()
    source, table = work.read(0, "input"), work.table("table", entries)
    target = work.fill(lambda place: raw_load(table, [load(source, *place) - int_constant(LIMITS[data.dtype][0])]))
    if output.dtype in EIGHT_BITS:
        count, is_signed = math.prod(output.shape), int(data.dtype == "int8")
        work.kernel("kernel_forms kernel_lookup", source, table, target, count, is_signed)


def require_quantisation(
    output: Tensor, scale: float, zero_point: int, what: str = "demands", *, rel_tol: float = 0.0
) -> None:
    """The output has the one scale and zero point for which the reference computes."""
    right = output.zero_point == zero_point and math.isclose(output.scale, scale, rel_tol=rel_tol)
    has = f"output {output.name!r} has scale {output.scale} and zero point {output.zero_point}"
    require_supported(right, f"{has}; the reference {what} {scale} and {zero_point}")


def require_same_batches(data: Tensor, output: Tensor) -> None:
    """Require that as many images come out as go in."""
    message = f"input {list(data.shape)} and output {list(output.shape)} have other batches"
    require_supported(data.shape[0] == output.shape[0], message)


def bias_of(work: Lowering, position: int, channels: int) -> Tensor | None:
    """The optional bias, one number a channel."""
    bias = work.optional(position)
    if bias is not None:
        require_supported(
            bias.shape == (channels,), f"bias {bias.name!r} has shape {list(bias.shape)}, not [{channels}]"
        )
    return bias


def accumulator_type(data: Tensor, bias: Tensor | None) -> str:
    """int32, except for int16 activations without an int32 bias."""
    if bias is not None and bias.dtype not in ("int32", "int64"):
        raise UnsupportedOperatorError(f"bias {bias.name!r} is {bias.dtype}, not int32 or int64")
    if data.dtype == "int16":
        return "int32" if bias is not None and bias.dtype == "int32" else "int64"
    if bias is not None and bias.dtype != "int32":
        raise UnsupportedOperatorError(f"bias {bias.name!r} of an 8-bit operator is {bias.dtype}, not int32")
    return "int32"


def channel_scales(
    data: Tensor, weights: Tensor, output: Tensor, channels: int, *, single: bool = False
) -> ChannelScales:
    """input scale x weight scale / output scale, a channel each, in double precision; `single`: first in float32."""
    per_channel = weights.scales if len(weights.scales) == channels else weights.scales[:1] * channels
    name, count = f"weights {weights.name!r}", len(weights.scales)
    require_supported(count in (1, channels), f"{name} have {count} scales, not 1 or {channels}")
    require_supported(
        len(weights.zero_points) < 2 or not any(weights.zero_points), f"{name} have zero points other than 0"
    )
    uneven = data.dtype == "uint8" and len(set(per_channel)) > 1
    require_supported(not uneven, f"{name} are uint8 with a scale for each channel")
    products = [multiply_scales(data.scale, scale, single=single) for scale in per_channel]
    pairs = [quantise_multiplier(product / output.scale) for product in products]
    return ChannelScales([m for m, _ in pairs], [s for _, s in pairs])


def subtract_zero_point(buffer: Buffer, tensor: Tensor, *place: Expr) -> Expr:
    """A stored value less its zero point."""
    return load(buffer, *place) - int_constant(tensor.zero_point)


def stored_value(buffer: Buffer, _: Tensor, *place: Expr) -> Expr:
    """A stored value as an int32."""
    return load(buffer, *place)


def as_it_is(buffer: Buffer, _: Tensor, *place: Expr) -> Expr:
    """A value in its own type."""
    return raw_load(buffer, place)


def clamp_to_activation(scaled: Expr, activation: int, output: Tensor) -> Expr:
    """Add the output's zero point and clamp to the fused activation's range."""
    return clamp_to_range(scaled + int_constant(output.zero_point), activation, output)


def clamp_to_range(value: Expr, activation: int, output: Tensor) -> Expr:
    """Clamp a stored value to the fused activation's range."""
    return clamp(value, *clamped_to(activation, output))


def clamped_to(activation: int, output: Tensor) -> tuple[int, int]:
    """The least and the greatest stored value of the fused activation's range."""
    require_supported(activation in (0, 1, 2, 3), f"fused activation number {activation} is not supported")
    return activation_range(activation, output.scale, output.zero_point, output.dtype)


def bounds_check(position: Expr, low: int, high: int, size: int) -> Expr | None:
    """`0 <= position < size`, or None when the range [low, high] of `position` is inside anyway."""
    return both(position >= 0 if low < 0 else None, position < size if high >= size else None)


@dataclass(frozen=True, slots=True)
class ImageAxis:
    """Windows along one axis of an image, in elements; the first begins `before` the image (its padding)."""

    size: int  # of the image
    windows: int
    kernel: int
    stride: int
    dilation: int
    before: int

    @classmethod
    def with_padding(
        cls, same: bool, size: int, windows: int, kernel: int, stride: int, dilation: int = 1
    ) -> ImageAxis:
        """The axis with padding SAME, or VALID: none. Refuses other windows than these that fit into the image."""
        reach = (kernel - 1) * dilation + 1
        require_supported(
            min(kernel, stride, dilation) > 0, f"a kernel of {kernel}, stride {stride}, dilation {dilation}"
        )
        fitting = -(-size // stride) if same else max(size - reach + stride, 0) // stride
        how = f"padding {'SAME' if same else 'VALID'} and stride {stride} give {fitting}"
        require_supported(windows == fitting, f"{windows} windows of {reach} along {size} elements, where {how}")
        total = (windows - 1) * stride + (kernel - 1) * dilation + 1 - size
        return cls(size, windows, kernel, stride, dilation, max(total, 0) // 2 if same else 0)

    def numbers(self) -> tuple[int, ...]:
        """The numbers of an axis that C kernels are told."""
        return self.size, self.windows, self.kernel, self.stride, self.dilation, self.before

    def image_place(self, window: Expr, k: Expr) -> Expr:
        """The place of the image under place `k` of a window's kernel."""
        return window * self.stride + k * self.dilation - self.before

    def is_inside(self, place: Expr) -> Expr | None:
        """Whether such a place is inside of the image; None: always."""
        last = (self.windows - 1) * self.stride + (self.kernel - 1) * self.dilation - self.before
        return bounds_check(place, -self.before, last, self.size)


def nhwc_shape(tensor: Tensor) -> tuple[int, int, int, int]:
    """NHWC extents; refuses other ranks."""
    message = f"tensor {tensor.name!r} has shape {list(tensor.shape)}, not four dimensions"
    require_supported(len(tensor.shape) == 4, message)
    n, h, w, c = tensor.shape
    return n, h, w, c


def one_value(work: Lowering, position: int) -> int:
    """The first number of a constant input."""
    values = flat_values(work, position)
    require_supported(values, f"input {position} has no value")
    return values[0]


def require_same_shape(data: Tensor, output: Tensor) -> None:
    """Refuses an output of another shape than the input."""
    fits = (data.shape or (1,)) == (output.shape or (1,))
    require_supported(fits, f"its input is {list(data.shape)}, its output {list(output.shape)}")


def require_rows(data: Tensor, output: Tensor) -> None:
    """Refuses what has no rows to work along, and an output of another shape."""
    require_same_shape(data, output)
    require_supported(
        data.shape and data.shape[-1], f"its input {list(data.shape)} has no elements along the last axis"
    )


def flat_values(work: Lowering, position: int) -> list[int]:
    """A constant input as a list of ints."""
    return [int(v) for v in np.asarray(work.constant(position, f"input {position}")).reshape(-1)]
