"""FULLY_CONNECTED.

Invariant: the input is rows of the weights' depth, whatever its rank; of float32 only where its last axis is a row.
"""

from __future__ import annotations

from .geometry import matrix_of
from .operator import Lowering, lowering, require
from .products import Products, check_weighted
from .tir import row_indices


@lowering("FULLY_CONNECTED")
@lowering("FULLY_CONNECTED", plain=True)
def fully_connected(work: Lowering) -> None:
    """Output row = weights x input row + bias; weights are [units, depth]."""
    options = work.options("FullyConnectedOptions")
    check_weighted(work)
    data, weights, output = work.tensor(0), work.tensor(1), work.output()
    rows, units, depth = matrix_of(data, weights, output, options)
    products, function, target = Products(work, units, dense=True), work.function, work.write()
    as_rows = not work.plain or rows == 1 or data.shape[-1] == depth
    require(as_rows, f"input {list(data.shape)} is not rows of {depth}")
    with function.grid((rows, units), ("row", "unit")) as (row, unit):
        products.begin(unit)
        with function.loop(depth, "k") as k:
            products.add(row_indices(row, k, data.shape), row_indices(unit, k, weights.shape))
        result = products.result(unit, options.FusedActivationFunction())
        function.store(target, result, *row_indices(row, unit, output.shape))
