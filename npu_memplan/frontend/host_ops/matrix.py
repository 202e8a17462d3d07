"""CONV_2D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV, FULLY_CONNECTED and BATCH_MATMUL, of stored numbers and of float32.

Invariant: sums of float32 are made in the reference's order, and the bias is added to the finished sum. Those of int8
are int32; those of int16 as wide as the bias (int64 without one), because the two round differently. Positions outside
the image are skipped, as in the reference, which equals reading the zero point there. What does not fit is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...fixed_point.multiplier import quantise_multiplier
from ...models.tensor import Tensor
from .common import (
    accumulator_type,
    as_it_is,
    bias_of,
    centred,
    channel_scales,
    clamp_to_activation,
    inside,
    padding_before,
    require_same_batches,
    require_same_type,
    require_types,
    shape4,
)
from .elementwise import broadcast
from .fixed_tir import multiply_rounded_once, multiply_sum
from .operator import Lowering, lowering, require
from .plain.numbers import REAL, activated, same
from .tir import (
    Expr,
    Function,
    both,
    cast,
    const,
    floor_div,
    largest,
    load,
    number,
    raw_load,
    row_indices,
    truncated_div,
)


@dataclass(frozen=True, slots=True)
class ConvolutionGeometry:
    """Extents in elements; `depth` is that of the kernel: input channels of one group, or all output channels."""

    batches: int
    in_h: int
    in_w: int
    in_c: int
    out_h: int
    out_w: int
    out_c: int
    k_h: int
    k_w: int
    depth: int
    stride_h: int
    stride_w: int
    top: int  # padding
    left: int
    dilation_h: int = 1
    dilation_w: int = 1
    depthwise: bool = False

    @classmethod
    def of(cls, data: Tensor, weights: Tensor, output: Tensor, options: Any, *, depthwise: bool) -> ConvolutionGeometry:
        """Of CONV_2D and DEPTHWISE_CONV_2D."""
        batches, in_h, in_w, in_c = shape4(data)
        _, out_h, out_w, out_c = shape4(output)
        require_same_batches(data, output)
        first, k_h, k_w, depth = shape4(weights)
        if depthwise:
            fits = first == 1 and depth == out_c and out_c % in_c == 0
        else:
            fits = first == out_c and in_c % depth == 0 and out_c % (in_c // depth) == 0
        require(fits, f"weights {list(weights.shape)} do not fit {in_c} -> {out_c} channels")
        same = options.Padding() == 0
        strides, dilations = _strides(options), (options.DilationHFactor(), options.DilationWFactor())
        top = padding_before(same, in_h, k_h, strides[0], dilations[0], out_h)
        left = padding_before(same, in_w, k_w, strides[1], dilations[1], out_w)
        image = (batches, in_h, in_w, in_c, out_h, out_w, out_c)
        return cls(*image, k_h, k_w, depth, *strides, top, left, *dilations, depthwise)

    @classmethod
    def transposed(cls, data: Tensor, weights: Tensor, output: Tensor, options: Any) -> ConvolutionGeometry:
        """Of TRANSPOSE_CONV; SAME is about the forward convolution from output to input."""
        batches, in_h, in_w, in_c = shape4(data)
        _, out_h, out_w, out_c = shape4(output)
        require_same_batches(data, output)
        filters, k_h, k_w, depth = shape4(weights)
        fits = filters == out_c and depth == in_c
        require(fits, f"weights {list(weights.shape)} do not fit {in_c} -> {out_c} channels")
        same, (stride_h, stride_w) = options.Padding() == 0, _strides(options)
        top = max((in_h - 1) * stride_h + k_h - out_h, 0) // 2 if same else 0
        left = max((in_w - 1) * stride_w + k_w - out_w, 0) // 2 if same else 0
        return cls(batches, in_h, in_w, in_c, out_h, out_w, out_c, k_h, k_w, depth, stride_h, stride_w, top, left)

    @property
    def outputs(self) -> tuple[int, int, int, int]:
        """NHWC extents of the output."""
        return self.batches, self.out_h, self.out_w, self.out_c

    def source(self, function: Function, y: Expr, x: Expr, ky: Expr, kx: Expr) -> tuple[Expr, Expr, Expr | None]:
        """Input row and column under a place of the window, and when that is inside the image (None: always)."""
        row = function.bind(y * self.stride_h + ky * self.dilation_h - self.top, "row")
        column = function.bind(x * self.stride_w + kx * self.dilation_w - self.left, "column")
        last_row = (self.out_h - 1) * self.stride_h + (self.k_h - 1) * self.dilation_h - self.top
        last_column = (self.out_w - 1) * self.stride_w + (self.k_w - 1) * self.dilation_w - self.left
        rows = inside(row, -self.top, last_row, self.in_h)
        return row, column, both(rows, inside(column, -self.left, last_column, self.in_w))

    def channel(self, c: Expr, k: Expr) -> Expr:
        """The input channel that output channel `c` meets at `k` of the kernel's depth; of its own, if depthwise."""
        if self.depthwise:
            return floor_div(c, self.out_c // self.in_c)
        return k if self.depth == self.in_c else floor_div(c, self.out_c // (self.in_c // self.depth)) * self.depth + k


def _strides(options: Any) -> tuple[int, int]:
    return options.StrideH(), options.StrideW()


def transposed_activation(options: Any) -> int:
    """The fused activation of TRANSPOSE_CONV; older files do not have the field."""
    return options.FusedActivationFunction() if hasattr(options, "FusedActivationFunction") else 0


def matrix_of(data: Tensor, weights: Tensor, output: Tensor, options: Any) -> tuple[int, int, int]:
    """(rows, units, depth) of FULLY_CONNECTED: rows of `depth` inputs become rows of `units` outputs."""
    require(options.WeightsFormat() == 0, "its weights are shuffled")
    shapes = [list(tensor.shape) for tensor in (weights, data, output)]
    units, depth = weights.shape[-2:]
    rows = math.prod(output.shape) // units
    fits = rows * units == math.prod(output.shape) and rows * depth == math.prod(data.shape)
    require(fits, f"weights {shapes[0]} do not fit input {shapes[1]} and output {shapes[2]}")
    return rows, units, depth


class Products:
    """One sum, of which an operator makes each element of its output; types and scales are checked here."""

    def __init__(
        self, work: Lowering, channels: int, *, data: int = 0, wide: bool = False, dense: bool = False
    ) -> None:
        """Weights are input 1, the bias (if any) the one behind the data and them; `wide`: int16 sums are int64."""
        self.work, self.dense = work, dense
        self.data, self.weights, self.output = work.tensor(data), work.tensor(1), work.output()
        bias = bias_of(work, max(data, 1) + 1, channels)
        self.kind, self.wide = "float32", False
        if not work.plain:
            self.kind = accumulator_type(self.data, bias)
            self.kind = "int64" if wide and self.data.dtype == "int16" else self.kind
            self.wide = self.kind == "int64"
            single = self.data.dtype == "uint8" and not dense
            self.scales = channel_scales(self.data, self.weights, self.output, channels, single=single)
        names = {data: "input", 1: "weights"} | ({max(data, 1) + 1: "bias"} if bias is not None else {})
        buffers = {name: work.read(position, name) for position, name in sorted(names.items())}
        self.source, self.matrix, self.bias = buffers["input"], buffers["weights"], buffers.get("bias")
        if not work.plain:
            tables = self.scales.tables(self.wide).items()
            self.tables = {name: work.table(name, values) for name, values in tables}
        self.total = work.function.local("sum", self.kind)

    def begin(self, channel: Expr) -> None:
        """An empty sum."""
        starts_as_bias = self.bias is not None and not self.work.plain
        self.total.set(cast(load(self.bias, channel), self.kind) if starts_as_bias else number(0, self.kind))

    def add(self, place: Sequence[Expr], weight: Sequence[Expr]) -> None:
        """The product of the input's element at `place` and of the one at `weight` of the weights."""
        take = as_it_is if self.work.plain else centred
        product = take(self.source, self.data, *place) * take(self.matrix, self.weights, *weight)
        self.total.add(cast(product, self.kind))

    def result(self, channel: Expr, activation: int) -> Expr:
        """What the output stores."""
        function, total = self.work.function, self.total.get()
        if self.work.plain:
            total = total if self.bias is None else total + raw_load(self.bias, [channel])
            return activated(function, total, activation, self.kind)
        if self.dense and self.data.dtype == "uint8":  # LiteRT's kernel rounds these once
            scaled = multiply_rounded_once(total, self.scales.multipliers[0], self.scales.shifts[0])
        else:
            scaled = self.scales.apply(function, total, self.tables, channel, self.wide)
        return clamp_to_activation(scaled, activation, self.output)


def check_weighted(work: Lowering, data: int = 0) -> None:
    """Refuses inputs, weights and outputs (and biases of float32) of types that do not go together."""
    found = work.tensor(data), work.tensor(1), work.output()
    if not work.plain:
        return require_types(*found)
    bias = work.optional(max(data, 1) + 1)
    same(found if bias is None else (*found, bias), REAL)
    return None


@lowering("CONV_2D", both=True)
def conv_2d(work: Lowering) -> None:
    """Weights are [out channels, kernel height, kernel width, in channels of one group]."""
    _convolution(work, "Conv2DOptions", depthwise=False)


@lowering("DEPTHWISE_CONV_2D", both=True)
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


@lowering("TRANSPOSE_CONV", both=True)
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


@lowering("FULLY_CONNECTED", both=True)
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


@lowering("BATCH_MATMUL", both=True)
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
        return clamp_to_activation(multiply_sum(function, total.get(), *scale), 0, output)

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
