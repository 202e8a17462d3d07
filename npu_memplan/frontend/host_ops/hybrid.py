"""CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED of float32 with int8 weights, as LiteRT's reference kernels have them.

Invariant: activations become int8 when the operator runs, an image or a row at a time: symmetric where the weights have
one scale (unless FULLY_CONNECTED has a zero point), with a zero point where each channel has its own. Sums are
int32; the scale and the bias are float32.
"""

from __future__ import annotations

import math

import numpy as np

from .common import bias_of
from .matrix import ConvolutionGeometry, DenseGeometry
from .operator import Lowering, lowering, require

_LIMITS = {0: (-math.inf, math.inf), 1: (0.0, math.inf), 2: (-1.0, 1.0), 3: (0.0, 6.0)}  # of fused activations


@lowering("CONV_2D", hybrid=True)
def conv_2d(work: Lowering) -> None:
    """Weights are [out channels, kernel height, kernel width, in channels of one group]."""
    _convolution(work, "Conv2DOptions", depthwise=False)


@lowering("DEPTHWISE_CONV_2D", hybrid=True)
def depthwise_conv_2d(work: Lowering) -> None:
    """Weights are [1, kernel height, kernel width, out channels]."""
    _convolution(work, "DepthwiseConv2DOptions", depthwise=True)


def _convolution(work: Lowering, kind: str, *, depthwise: bool) -> None:
    options = work.options(kind)
    g = ConvolutionGeometry.of(work, options)
    several = len(work.tensor(1).scales) > 1
    require(not depthwise or several or g.out_c == 1, "its weights have one scale; the reference wants one a channel")
    require(several or g.depth == g.in_c, "its weights have one scale and several groups, which the reference has not")
    shape = work.tensor(0).shape
    extents = (*shape, g.down.windows, g.across.windows, g.out_c, *g.kernel, 1 if depthwise else g.depth)
    steps = g.down.stride, g.across.stride, g.down.dilation, g.across.dilation, g.down.before, g.across.before
    _run(work, options, (*extents, *steps), g.out_c, depthwise=depthwise, shifted=several or depthwise)


@lowering("FULLY_CONNECTED", hybrid=True)
def fully_connected(work: Lowering) -> None:
    """Output row = weights x input row + bias; weights are [units, depth]."""
    options = work.options("FullyConnectedOptions")
    g = DenseGeometry.of(work.tensor(0), work.tensor(1), work.output(), options)
    rows, units, depth = g.rows, g.units, g.depth
    require(g.columns == units, f"weights {list(work.tensor(1).shape)} do not fit")
    require(len(work.tensor(1).scales) == 1, "its weights have a scale a channel")
    numbers = (rows, 1, 1, depth, 1, 1, units, 1, 1, depth, 1, 1, 1, 1, 0, 0)
    _run(work, options, numbers, units, shifted=bool(options.AsymmetricQuantizeInputs()))


def _run(
    work: Lowering, options: object, numbers: tuple[int, ...], channels: int, *, shifted: bool, depthwise: bool = False
) -> None:
    data, weights, output, bias = work.tensor(0), work.tensor(1), work.output(), bias_of(work, 2, channels)
    floats = data.dtype == output.dtype == "float32" and (bias is None or bias.dtype == "float32")
    require(floats, f"input {data.name!r}, output and bias must all be float32")
    require(weights.dtype == "int8" and weights.data is not None, f"weights {weights.name!r} must be constant int8")
    require(weights.scales and not any(weights.zero_points), f"weights {weights.name!r} are not symmetric")
    several = len(weights.scales) > 1
    require(len(weights.scales) in (1, channels), f"weights {weights.name!r} have {len(weights.scales)} scales")
    activation = int(options.FusedActivationFunction())  # type: ignore[attr-defined]
    require(activation in _LIMITS, f"fused activation number {activation} is not supported")
    largest = float(np.finfo(np.float32).max)
    low, high = (max(-largest, min(largest, v)) for v in _LIMITS[activation])
    source, matrix = work.read(0, "input"), work.read(1, "weights")
    scales = work.table("scales", np.array(weights.scales, np.float32))
    added = work.read(2, "bias") if bias is not None else work.table("bias", np.zeros(channels, np.float32))
    image = math.prod(numbers[1:4])
    stored = work.function.scratch("stored", (image,), "int8")
    flags = int(depthwise), int(shifted), int(several or depthwise)
    target = work.write()
    work.run_c("hybrid_convolution", source, matrix, scales, added, stored, target, *numbers, *flags, low, high)
