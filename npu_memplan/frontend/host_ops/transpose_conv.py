"""TRANSPOSE_CONV.

Invariant: each output element gathers the inputs that reach it, so no buffer of partial sums is needed. Integer sums
do not depend on their order; float32 ones follow the reference, which scatters from the first input place to the last.
"""

from __future__ import annotations

from .common import inside
from .geometry import ConvolutionGeometry, transposed_activation
from .operator import Lowering, lowering
from .products import Products, check_weighted
from .tir import Expr, both, const, largest, truncated_div


@lowering("TRANSPOSE_CONV")
@lowering("TRANSPOSE_CONV", plain=True)
def transpose_conv(work: Lowering) -> None:
    """Inputs are the output's shape, weights [out channels, kernel h, kernel w, in channels], data, bias."""
    options, function = work.options("TransposeConvOptions"), work.function
    check_weighted(work, data=2)
    g = ConvolutionGeometry.transposed(work.tensor(2), work.tensor(1), work.output(), options)
    products, target = Products(work, g.out_c, data=2, wide=True), work.write()
    gather = _by_inputs if work.plain else _by_weights
    with function.grid(g.outputs, "nyxc") as (n, y, x, c):
        products.begin(c)
        gather(work, g, products, n, y, x, c)
        function.store(target, products.result(c, transposed_activation(options)), n, y, x, c)


def _by_weights(work: Lowering, g: ConvolutionGeometry, products: Products, *place: Expr) -> None:
    """All that reaches `place` (batch, row, column, channel) of the output, weight by weight."""
    function, (n, y, x, c) = work.function, place
    with function.grid((g.k_h, g.k_w), ("ky", "kx")) as (ky, kx):
        down = function.bind(y + g.top - ky, "down")
        right = function.bind(x + g.left - kx, "right")
        row = function.bind(truncated_div(down, const(g.stride_h)), "row")
        column = function.bind(truncated_div(right, const(g.stride_w)), "column")
        hit = both(
            row * g.stride_h == down if g.stride_h > 1 else None,
            column * g.stride_w == right if g.stride_w > 1 else None,
            down >= 0,
            right >= 0,
            inside(row, 0, g.in_h, g.in_h),
            inside(column, 0, g.in_w, g.in_w),
        )
        with function.when(hit), function.loop(g.in_c, "k") as k:
            products.add((n, row, column, k), (c, ky, kx, k))


def _by_inputs(work: Lowering, g: ConvolutionGeometry, products: Products, *place: Expr) -> None:
    """All that reaches `place` (batch, row, column, channel) of the output, input by input."""
    function, (n, y, x, c) = work.function, place
    rows, columns = min(-(-g.k_h // g.stride_h), g.in_h), min(-(-g.k_w // g.stride_w), g.in_w)  # that can reach it
    first_row = _first_to_reach(work, y + g.top, g.k_h, g.stride_h)
    first_column = _first_to_reach(work, x + g.left, g.k_w, g.stride_w)
    with function.grid((rows + 1, columns + 1), ("r", "s")) as (r, s):
        row, column = function.bind(first_row + r, "row"), function.bind(first_column + s, "column")
        ky = function.bind(y + g.top - row * g.stride_h, "ky")
        kx = function.bind(x + g.left - column * g.stride_w, "kx")
        hit = both(row < g.in_h, column < g.in_w, ky >= 0, ky < g.k_h, kx >= 0, kx < g.k_w)
        with function.when(hit), function.loop(g.in_c, "k") as k:
            products.add((n, row, column, k), (c, ky, kx, k))


def _first_to_reach(work: Lowering, place: Expr, kernel: int, stride: int) -> Expr:
    """The first input row (or column) whose window covers `place` of the padded output; 0 at least."""
    return work.function.bind(truncated_div(largest(place - const(kernel - stride), 0), const(stride)), "first")
