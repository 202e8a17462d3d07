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
    require_same_batches,
    require_same_type,
    require_types,
    shape4,
)
from .operator import Lowering, UnsupportedOperatorError, lowering
from .tir import both, cast, const, load, truncated_div


@lowering("TRANSPOSE_CONV")
def transpose_conv(work: Lowering) -> None:
    """Inputs are the output's shape, weights [out channels, kernel h, kernel w, in channels], data, bias."""
    import tflite

    options = work.options(tflite.TransposeConvOptions)
    weights, data, output = work.tensor(1), work.tensor(2), work.output()
    require_types(data, weights, output)
    require_same_type((data, output), ACTIVATION_TYPES)
    batches, in_h, in_w, in_c = shape4(data)
    _, out_h, out_w, out_c = shape4(output)
    require_same_batches(data, output)
    filters, k_h, k_w, depth = shape4(weights)
    if filters != out_c or depth != in_c:
        raise UnsupportedOperatorError(f"weights {list(weights.shape)} do not fit {in_c} -> {out_c} channels")
    stride_h, stride_w = options.StrideH(), options.StrideW()
    # The forward convolution from output to input is what SAME is about.
    same = options.Padding() == 0
    top = max((in_h - 1) * stride_h + k_h - out_h, 0) // 2 if same else 0
    left = max((in_w - 1) * stride_w + k_w - out_w, 0) // 2 if same else 0
    bias = bias_of(work, 3, out_c)
    accumulator_type(data, bias)
    wide = data.dtype == "int16"  # whatever the bias is, sums are int64
    kind = "int64" if wide else "int32"
    scales = channel_scales(data, weights, output, out_c, single=data.dtype == "uint8")
    try:
        activation = options.FusedActivationFunction()
    except AttributeError:  # files older than the field
        activation = 0

    function = work.function
    matrix, source = work.read(1, "weights"), work.read(2, "input")
    offsets = work.read(3, "bias") if bias is not None else None
    tables = {name: work.table(name, values) for name, values in scales.tables(wide).items()}
    target = work.write()
    total = function.local("sum", kind)
    with function.grid((batches, out_h, out_w, out_c), "nyxc") as (n, y, x, c):
        total.set(cast(load(offsets, c), kind) if offsets is not None else const(0, kind))
        with function.grid((k_h, k_w), ("ky", "kx")) as (ky, kx):
            down = function.bind(y + top - ky, "down")
            right = function.bind(x + left - kx, "right")
            row = function.bind(truncated_div(down, const(stride_h)), "row")
            column = function.bind(truncated_div(right, const(stride_w)), "column")
            hit = both(
                row * stride_h == down if stride_h > 1 else None,
                column * stride_w == right if stride_w > 1 else None,
                down >= 0,
                right >= 0,
                inside(row, 0, in_h, in_h),
                inside(column, 0, in_w, in_w),
            )
            with function.when(hit), function.loop(in_c, "k") as k:
                value = load(source, n, row, column, k) - const(data.zero_point)
                total.add(cast(value * centred(matrix, weights, c, ky, kx, k), kind))
        scaled = scales.apply(function, total.get(), tables, c, wide)
        function.store(target, clamp_to_activation(scaled, activation, output), n, y, x, c)
