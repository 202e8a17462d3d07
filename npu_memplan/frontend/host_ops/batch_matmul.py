"""BATCH_MATMUL: products of two computed matrices.

Invariant: sums are float32, int32 or (of int16) int64, in the order of the depth; integers are rescaled once. Leading
dimensions are broadcast from the last, as the reference does.
"""

from __future__ import annotations

from dataclasses import replace

from ...fixed_point.multiplier import quantise_multiplier
from ...models.tensor import Tensor
from .common import as_it_is, centred, clamp_to_activation, require_same_type
from .elementwise import broadcast
from .fixed_tir import multiply_by_quantised, multiply_wide
from .operator import Lowering, lowering, require
from .plain.numbers import REAL, same
from .tir import Expr, cast, number


@lowering("BATCH_MATMUL")
@lowering("BATCH_MATMUL", plain=True)
def batch_matmul(work: Lowering) -> None:
    """Input 0 x input 1, either of them transposed."""
    tensors = a, b, output = work.tensor(0), work.tensor(1), work.output()
    dtype = same(tensors, REAL) if work.plain else require_same_type(tensors, ("int8", "int16"))
    kind = {"int8": "int32", "int16": "int64"}.get(dtype, dtype)
    depth, turned_a, turned_b = _matrices(work)
    scale = quantise_multiplier(0.0 if work.plain else a.scale * b.scale / output.scale)

    function, take = work.function, as_it_is if work.plain else centred
    first, second, total = work.read(0, "first"), work.read(1, "second"), function.local("sum", kind)

    def result(place: list[Expr]) -> Expr:
        *_, row, column = place
        total.set(number(0, kind))
        with function.loop(depth, "k") as k:
            x = take(first, a, *_element_of(place, a, output, (k, row) if turned_a else (row, k)))
            y = take(second, b, *_element_of(place, b, output, (column, k) if turned_b else (k, column)))
            total.add(cast(x * y, kind))
        if work.plain:
            return total.get()
        wide = kind == "int64"
        scaled = multiply_wide(total.get(), *scale) if wide else multiply_by_quantised(function, total.get(), *scale)
        return clamp_to_activation(scaled, 0, output)

    work.fill(result)


def _matrices(work: Lowering) -> tuple[int, bool, bool]:
    """(length of the sums, whether input 0 and whether input 1 is transposed); refuses what does not fit."""
    options = work.options("BatchMatMulOptions")
    a, b, output = (list(tensor.shape) for tensor in (work.tensor(0), work.tensor(1), work.output()))
    require(min(len(a), len(b)) >= 2, f"{a} x {b} are no two matrices")
    turned_a, turned_b = bool(options.AdjX()), bool(options.AdjY())
    rows, depth = a[:-3:-1] if turned_a else a[-2:]
    inner, columns = b[:-3:-1] if turned_b else b[-2:]
    require(depth == inner and output[-2:] == [rows, columns], f"{a} x {b} do not make {output}")
    return depth, turned_a, turned_b


def _element_of(place: list[Expr], tensor: Tensor, output: Tensor, inner: tuple[Expr, Expr]) -> list[Expr]:
    """Indices of an element of one matrix of a stack, for an element of the output."""
    stack = replace(tensor, shape=(*tensor.shape[:-2], 1, 1))
    return [*broadcast(place, stack, output)[:-2], *inner]
