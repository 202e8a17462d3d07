"""AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D of float32.

Invariant: a window is read row by row, places outside of the image are left out and not counted.
"""

from __future__ import annotations

from ..common import inside, padding_before, require_same_batches, shape4
from ..operator import Lowering, UnsupportedOperatorError, lowering
from ..pooling import extent_inside
from ..tir import both, cast, library, raw_load, real
from .numbers import REAL, activated, largest_of, least, same


@lowering("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D", plain=True)
def pool_2d(work: Lowering) -> None:
    """A window of `FilterHeight` x `FilterWidth` moves over each channel."""
    import tflite

    options = work.options(tflite.Pool2DOptions)
    data, output = work.tensor(0), work.output()
    same((data, output), REAL)
    batches, in_h, in_w, depth = shape4(data)
    _, out_h, out_w, out_depth = shape4(output)
    require_same_batches(data, output)
    if out_depth != depth:
        raise UnsupportedOperatorError(f"input {list(data.shape)} and output {list(output.shape)} have other channels")
    k_h, k_w, stride_h, stride_w = (
        options.FilterHeight(), options.FilterWidth(), options.StrideH(), options.StrideW()
    )  # fmt: skip
    same_size, kind = options.Padding() == 0, work.operator.name
    top = padding_before(same_size, in_h, k_h, stride_h, 1, out_h)
    left = padding_before(same_size, in_w, k_w, stride_w, 1, out_w)
    function = work.function
    source, target = work.read(0, "input"), work.write()
    value = function.local("value", "float32")
    with function.grid((batches, out_h, out_w, depth), ("n", "y", "x", "c")) as (n, y, x, c):
        value.set(real(least("float32") if kind == "MAX_POOL_2D" else 0))
        with function.grid((k_h, k_w), ("ky", "kx")) as (ky, kx):
            row, column = y * stride_h + ky - top, x * stride_w + kx - left
            last_row, last_column = (out_h - 1) * stride_h + k_h - 1 - top, (out_w - 1) * stride_w + k_w - 1 - left
            with function.when(both(inside(row, -top, last_row, in_h), inside(column, -left, last_column, in_w))):
                element = function.bind(raw_load(source, [n, row, column, c]), "element", "float32")
                if kind == "MAX_POOL_2D":
                    value.set(largest_of(function, value.get(), element, "float32"))
                else:
                    value.add(element if kind == "AVERAGE_POOL_2D" else element * element)
        result = value.get()
        if kind != "MAX_POOL_2D":
            count = extent_inside(y, stride_h, top, k_h, in_h) * extent_inside(x, stride_w, left, k_w, in_w)
            result = result / cast(function.bind(count, "count"), "float32")
        if kind == "L2_POOL_2D":
            result = library("sqrtf", result)
        function.store(target, activated(function, result, options.FusedActivationFunction(), "float32"), n, y, x, c)
