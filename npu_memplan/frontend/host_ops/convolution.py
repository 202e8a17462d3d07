"""CONV_2D and DEPTHWISE_CONV_2D.

Invariant: positions outside the image are skipped, as in the reference, which equals reading
the zero point there.
"""

from __future__ import annotations

from .geometry import ConvolutionGeometry
from .operator import Lowering, lowering
from .products import Products, check_weighted


@lowering("CONV_2D")
@lowering("CONV_2D", plain=True)
def conv_2d(work: Lowering) -> None:
    """Weights are [out channels, kernel height, kernel width, in channels of one group]."""
    _convolution(work, "Conv2DOptions", depthwise=False)


@lowering("DEPTHWISE_CONV_2D")
@lowering("DEPTHWISE_CONV_2D", plain=True)
def depthwise_conv_2d(work: Lowering) -> None:
    """Weights are [1, kernel height, kernel width, out channels]."""
    _convolution(work, "DepthwiseConv2DOptions", depthwise=True)


def _convolution(work: Lowering, kind: str, *, depthwise: bool) -> None:
    options = work.options(kind)
    check_weighted(work)
    g = ConvolutionGeometry.of(work.tensor(0), work.tensor(1), work.output(), options, depthwise=depthwise)
    products, function, target = Products(work, g.out_c, wide=depthwise), work.function, work.write()
    with function.grid(g.outputs, "nyxc") as (n, y, x, c):
        products.begin(c)
        with function.grid((g.k_h, g.k_w), ("ky", "kx")) as (ky, kx):
            row, column, valid = g.source(function, y, x, ky, kx)
            with function.when(valid), function.loop(1 if depthwise else g.depth, "k") as k:
                weight = (0, ky, kx, c) if depthwise else (c, ky, kx, k)
                products.add((n, row, column, g.channel(c, k)), weight)
        function.store(target, products.result(c, options.FusedActivationFunction()), n, y, x, c)
