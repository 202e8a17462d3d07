"""FULLY_CONNECTED.

Invariant: accumulators are int32 for int8 activations, and for int16 ones as wide as the
bias (int64 without one), because the two round differently.
"""

from __future__ import annotations

from .common import accumulator_type, bias_of, centred, channel_scales, clamp_to_activation, require_types
from .fixed_tir import multiply_rounded_once
from .geometry import matrix_of
from .operator import Lowering, lowering
from .tir import cast, const, load, row_indices


@lowering("FULLY_CONNECTED")
def fully_connected(work: Lowering) -> None:
    """Output row = weights x input row + bias; weights are [units, depth]."""
    import tflite

    options = work.options(tflite.FullyConnectedOptions)
    data, weights, output = work.tensor(0), work.tensor(1), work.output()
    require_types(data, weights, output)
    rows, units, depth = matrix_of(data, weights, output, options)
    bias = bias_of(work, 2, units)
    kind = accumulator_type(data, bias)
    scales = channel_scales(data, weights, output, units)

    function = work.function
    source = work.read(0, "input")
    matrix = work.read(1, "weights")
    offsets = work.read(2, "bias") if bias is not None else None
    wide = kind == "int64"
    tables = {name: work.table(name, values) for name, values in scales.tables(wide).items()}
    target = work.write()
    accumulator = function.local("sum", kind)
    with function.grid((rows, units), ("row", "unit")) as (row, unit):
        accumulator.set(cast(load(offsets, unit), kind) if offsets is not None else const(0, kind))
        with function.loop(depth, "k") as k:
            value = centred(source, data, *row_indices(row, k, data.shape))
            weight = centred(matrix, weights, *row_indices(unit, k, weights.shape))
            accumulator.add(cast(value * weight, kind))
        if data.dtype == "uint8":  # LiteRT's kernel rounds these once
            scaled = multiply_rounded_once(accumulator.get(), scales.multipliers[0], scales.shifts[0])
        else:
            scaled = scales.apply(function, accumulator.get(), tables, unit, wide)
        result = clamp_to_activation(scaled, options.FusedActivationFunction(), output)
        function.store(target, result, *row_indices(row, unit, output.shape))
