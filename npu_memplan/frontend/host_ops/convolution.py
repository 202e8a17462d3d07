"""CONV_2D and DEPTHWISE_CONV_2D.

Invariant: positions outside the image are skipped, as in the reference, which equals reading
the zero point there.
"""

from __future__ import annotations

from typing import Any

from .common import accumulator_type, bias_of, centred, channel_scales, clamp_to_activation, require_types
from .geometry import ConvolutionGeometry
from .operator import Lowering, lowering
from .tir import cast, const, load


@lowering("CONV_2D")
def conv_2d(work: Lowering) -> None:
    """Weights are [out channels, kernel height, kernel width, in channels of one group]."""
    import tflite

    _convolution(work, work.options(tflite.Conv2DOptions), depthwise=False)


@lowering("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(work: Lowering) -> None:
    """Weights are [1, kernel height, kernel width, out channels]."""
    import tflite

    _convolution(work, work.options(tflite.DepthwiseConv2DOptions), depthwise=True)


def _convolution(work: Lowering, opt: Any, *, depthwise: bool) -> None:
    data, weights, output = work.tensor(0), work.tensor(1), work.output()
    require_types(data, weights, output)
    g = ConvolutionGeometry.of(data, weights, output, opt, depthwise=depthwise)
    bias = bias_of(work, 2, g.out_c)
    kind = "int64" if depthwise and data.dtype == "int16" else accumulator_type(data, bias)
    wide = kind == "int64"
    scales = channel_scales(data, weights, output, g.out_c, single=data.dtype == "uint8")
    function = work.function
    source, matrix = work.read(0, "input"), work.read(1, "weights")
    offsets = work.read(2, "bias") if bias is not None else None
    tables = {name: work.table(name, values) for name, values in scales.tables(wide).items()}
    target = work.write()
    total = function.local("sum", kind)
    with function.grid(g.outputs, ("n", "y", "x", "c")) as (n, y, x, c):
        total.set(cast(load(offsets, c), kind) if offsets is not None else const(0, kind))
        with function.grid((g.k_h, g.k_w), ("ky", "kx")) as (ky, kx):
            row, column, valid = g.source(function, y, x, ky, kx)
            with function.when(valid):
                if depthwise:
                    value = load(source, n, row, column, g.channel(c, c)) - const(data.zero_point)
                    total.add(cast(value * centred(matrix, weights, 0, ky, kx, c), kind))
                else:
                    with function.loop(g.depth, "k") as k:
                        value = load(source, n, row, column, g.channel(c, k)) - const(data.zero_point)
                        total.add(cast(value * centred(matrix, weights, c, ky, kx, k), kind))
        scaled = scales.apply(function, total.get(), tables, c, wide)
        function.store(target, clamp_to_activation(scaled, opt.FusedActivationFunction(), output), n, y, x, c)
