"""BATCH_MATMUL: products of two computed matrices.

Invariant: sums are int32 (int64 of int16), rescaled once; leading dimensions are broadcast from the
last, as the reference does.
"""

from __future__ import annotations

from dataclasses import replace

from ...fixed_point.multiplier import quantise_multiplier
from ...models.tensor import Tensor
from .common import clamp_to_activation, require_same_type
from .elementwise import broadcast
from .fixed_tir import multiply_by_quantised, multiply_wide
from .operator import Lowering, UnsupportedOperatorError, lowering
from .tir import Expr, cast, const, load


@lowering("BATCH_MATMUL")
def batch_matmul(work: Lowering) -> None:
    """Input 0 x input 1, either of them transposed."""
    a, b, output = work.tensor(0), work.tensor(1), work.output()
    wide = require_same_type((a, b, output), ("int8", "int16")) == "int16"
    kind = "int64" if wide else "int32"
    depth, turned_a, turned_b = matrices(work)
    scale = quantise_multiplier(a.scale * b.scale / output.scale)

    function = work.function
    first, second, target = work.read(0, "first"), work.read(1, "second"), work.write()
    total = function.local("sum", kind)
    with function.grid(output.shape) as place:
        *_, row, column = place
        total.set(const(0, kind))
        with function.loop(depth, "k") as k:
            x = load(first, *element_of(place, a, output, (k, row) if turned_a else (row, k))) - const(a.zero_point)
            y = load(second, *element_of(place, b, output, (column, k) if turned_b else (k, column)))
            y = y - const(b.zero_point)
            total.add(cast(x * y, kind))
        result = multiply_wide(total.get(), *scale) if wide else multiply_by_quantised(function, total.get(), *scale)
        function.store(target, clamp_to_activation(result, 0, output), *place)


def matrices(work: Lowering) -> tuple[int, bool, bool]:
    """(length of the sums, whether input 0 and whether input 1 is transposed); refuses what does not fit."""
    import tflite

    options = work.options(tflite.BatchMatMulOptions)
    a, b, output = work.tensor(0), work.tensor(1), work.output()
    if min(len(a.shape), len(b.shape)) < 2:
        raise UnsupportedOperatorError(f"{list(a.shape)} x {list(b.shape)} are no two matrices")
    turned_a, turned_b = bool(options.AdjX()), bool(options.AdjY())
    rows, depth = a.shape[:-3:-1] if turned_a else a.shape[-2:]
    inner, columns = b.shape[:-3:-1] if turned_b else b.shape[-2:]
    if depth != inner or output.shape[-2:] != (rows, columns):
        raise UnsupportedOperatorError(f"{list(a.shape)} x {list(b.shape)} do not make {list(output.shape)}")
    return depth, turned_a, turned_b


def element_of(place: list[Expr], tensor: Tensor, output: Tensor, inner: tuple[Expr, Expr]) -> list[Expr]:
    """Indices of an element of one matrix of a stack, for an element of the output."""
    stack = replace(tensor, shape=(*tensor.shape[:-2], 1, 1))
    return [*broadcast(place, stack, output)[:-2], *inner]
