"""TRANSPOSE_CONV.

Invariant: each output element gathers the inputs that reach it, so no buffer of partial sums
is needed; integer sums do not depend on their order.
"""

from __future__ import annotations

from .common import (
    ACTIVATION_TYPES,
    accumulator_type,
    bias_of,
    centred,
    channel_scales,
    clamp_to_activation,
    inside,
    require_same_type,
    require_types,
)
from .geometry import ConvolutionGeometry, transposed_activation
from .operator import Lowering, lowering
from .tir import both, cast, const, load, truncated_div


@lowering("TRANSPOSE_CONV")
def transpose_conv(work: Lowering) -> None:
    """Inputs are the output's shape, weights [out channels, kernel h, kernel w, in channels], data, bias."""
    import tflite

    options = work.options(tflite.TransposeConvOptions)
    weights, data, output = work.tensor(1), work.tensor(2), work.output()
    require_types(data, weights, output)
    require_same_type((data, output), ACTIVATION_TYPES)
    g = ConvolutionGeometry.transposed(data, weights, output, options)
    bias = bias_of(work, 3, g.out_c)
    accumulator_type(data, bias)
    wide = data.dtype == "int16"  # whatever the bias is, sums are int64
    kind = "int64" if wide else "int32"
    scales = channel_scales(data, weights, output, g.out_c, single=data.dtype == "uint8")
    function = work.function
    matrix, source = work.read(1, "weights"), work.read(2, "input")
    offsets = work.read(3, "bias") if bias is not None else None
    tables = {name: work.table(name, values) for name, values in scales.tables(wide).items()}
    target = work.write()
    total = function.local("sum", kind)
    with function.grid(g.outputs, "nyxc") as (n, y, x, c):
        total.set(cast(load(offsets, c), kind) if offsets is not None else const(0, kind))
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
                value = load(source, n, row, column, k) - const(data.zero_point)
                total.add(cast(value * centred(matrix, weights, c, ky, kx, k), kind))
        scaled = scales.apply(function, total.get(), tables, c, wide)
        function.store(target, clamp_to_activation(scaled, transposed_activation(options), output), n, y, x, c)
