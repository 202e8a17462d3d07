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

from tvm import tirx

from ...fixed_point import quantise_multiplier
from ...models.tensor import Tensor
from .common import (
    ACTIVATION_TYPES,
    ImageAxis,
    accumulator_type,
    as_it_is,
    bias_of,
    bounds_check,
    channel_scales,
    clamp_to_activation,
    clamped_to,
    nhwc_shape,
    require_same_batches,
    require_same_type,
    subtract_zero_point,
)
from .elementwise import REAL, broadcast, clamp_activation, common_type
from .operator import Lowering, lowering, require_supported
from .tir import (
    Buffer,
    Expr,
    both,
    cast,
    element_indices,
    floor_div,
    int_constant,
    load,
    maximum_of,
    multiply_rounded_once,
    multiply_sum,
    number,
    raw_load,
    row_indices,
)


@dataclass(frozen=True, slots=True)
class ConvolutionGeometry:
    """Extents in elements; `depth` is that of the kernel: input channels of one group, or all output channels."""

    in_c: int
    out_c: int
    depth: int
    down: ImageAxis  # of the convolution, which for TRANSPOSE_CONV is the one from its output to its input
    across: ImageAxis

    @classmethod
    def from_work(cls, work: Lowering, options: Any, *, data: int = 0) -> ConvolutionGeometry:
        """Weights are input 1; `data`: number of the input that they go over."""
        image, weights, output = work.tensor(data), work.tensor(1), work.output()
        (_, *inner, in_c), (_, *outer, out_c) = nhwc_shape(image), nhwc_shape(output)
        require_same_batches(image, output)
        first, k_h, k_w, depth = nhwc_shape(weights)
        transposed = work.operator.name == "TRANSPOSE_CONV"
        require_supported(
            in_c and out_c and depth, f"a convolution from {in_c} to {out_c} channels with weights of {depth}"
        )
        if transposed:
            fits, inner, outer = first == out_c and depth == in_c, outer, inner
        elif work.operator.name == "DEPTHWISE_CONV_2D":
            fits = first == 1 and depth == out_c and out_c % in_c == 0
        else:
            fits = first == out_c and in_c % depth == 0 and in_c > 0 and out_c % (in_c // depth) == 0
        require_supported(fits, f"weights {list(weights.shape)} do not fit {in_c} -> {out_c} channels")
        dilations = (1, 1) if transposed else (options.DilationHFactor(), options.DilationWFactor())
        steps = zip(inner, outer, (k_h, k_w), (options.StrideH(), options.StrideW()), dilations, strict=True)
        return cls(in_c, out_c, depth, *(ImageAxis.with_padding(options.Padding() == 0, *step) for step in steps))

    @property
    def kernel(self) -> tuple[int, int]:
        """Height and width."""
        return self.down.kernel, self.across.kernel


@dataclass(frozen=True, slots=True)
class DenseGeometry:
    """`rows` of `columns` outputs; row r is made of `depth` inputs from element r * depth on, whatever their shape."""

    rows: int
    columns: int  # made of the first as many of `units` rows of weights
    units: int
    depth: int

    @classmethod
    def from_tensors(cls, data: Tensor, weights: Tensor, output: Tensor, options: Any) -> DenseGeometry:
        """The geometry as the reference's kernels count, all of which index the input as one vector (tflite-micro,
        reference/integer_ops/fully_connected.h); what they would read outside of a tensor is refused.
        """
        require_supported(options.WeightsFormat() == 0, "its weights are shuffled")
        shapes = [list(tensor.shape) for tensor in (weights, data, output)]
        require_supported(
            len(shapes[0]) >= 2 and shapes[2], f"weights {shapes[0]} and output {shapes[2]} are no matrices"
        )
        (units, depth), columns = shapes[0][-2:], shapes[2][-1]
        rows, given = math.prod(shapes[2][:-1]), math.prod(shapes[1])
        fits = 0 < columns <= units and 0 < rows * depth <= given
        need = f"{rows} rows of {depth} elements and {columns} rows of weights, which it would read, are not there"
        require_supported(fits, f"weights {shapes[0]} do not fit input {shapes[1]} and output {shapes[2]}: {need}")
        # LiteRT, the reference of uint8, gives the output a shape of its own.
        same = data.dtype != "uint8" or (len(shapes[0]), columns, rows) == (2, units, given // depth)
        require_supported(
            same, f"weights {shapes[0]} and input {shapes[1]} make no output of shape {shapes[2]} in the reference"
        )
        return cls(rows, columns, units, depth)


class Products:
    """One sum, of which an operator makes each element of its output; types and scales are checked here."""

    def __init__(
        self, work: Lowering, channels: int, *, data: int = 0, wide: bool = False, dense: bool = False
    ) -> None:
        """Weights are input 1, the bias (if any) the one after the data and them; `wide`: int16 sums are int64."""
        self.work = work
        self.data, self.weights, self.output = work.tensor(data), work.tensor(1), work.output()
        self.once = dense and (self.data.dtype == "uint8" or self.weights.is_packed_by_channel)  # as LiteRT's kernel
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
            tables = self.scales.tables(self.wide, self.once and not self.wide).items()
            self.tables = {name: work.table(name, values) for name, values in tables}
        self.total = work.function.local("sum", self.kind)

    def begin(self, channel: Expr) -> None:
        """An empty sum."""
        starts_as_bias = self.bias is not None and not self.work.plain
        self.total.set(cast(load(self.bias, channel), self.kind) if starts_as_bias else number(0, self.kind))

    def add(self, place: Sequence[Expr], weight: Sequence[Expr]) -> None:
        """The product of the input's element at `place` and of the one at `weight` of the weights."""
        take = as_it_is if self.work.plain else subtract_zero_point
        product = take(self.source, self.data, *place) * take(self.matrix, self.weights, *weight)
        self.total.add(cast(product, self.kind))

    def result(self, channel: Expr, activation: int) -> Expr:
        """The value that the output stores."""
        function, total = self.work.function, self.total.read()
        if self.work.plain:
            total = total if self.bias is None else total + raw_load(self.bias, [channel])
            return clamp_activation(function, total, activation, self.kind)
        if self.once and not self.tables:
            scaled = multiply_rounded_once(total, self.scales.multipliers[0], self.scales.shifts[0])
        elif self.once:
            scaled = self.scales.apply(function, cast(total, "int64"), self.tables, channel, wide=True)
        else:
            scaled = self.scales.apply(function, total, self.tables, channel, self.wide)
        return clamp_to_activation(scaled, activation, self.output)

    @property
    def has_kernel(self) -> bool:
        """Whether a C kernel computes it: int8, with int32 sums."""
        eight = self.data.dtype == self.weights.dtype == self.output.dtype == "int8" and self.kind == "int32"
        return eight and not self.once and not self.weights.zero_point and self.scales.are_small

    def name_kernel(self, names: str, target: Buffer, sizes: Sequence[int], activation: int) -> None:
        """Name the C kernel that computes it, with its buffers, `sizes`, zero points, limits, and the first scale."""
        buffers = (
            self.source,
            self.matrix,
            self.bias,
            *(self.tables.get(k) for k in ("multiplier", "shift", "left_shift")),
        )
        zero, (low, high) = self.output.zero_point, clamped_to(activation, self.output)
        first = self.scales.multipliers[0], max(-self.scales.shifts[0], 0), max(self.scales.shifts[0], 0)
        numbers = *sizes, self.data.zero_point, zero, low, high, *first
        self.work.kernel(f"kernel_forms kernel_scale {names}", *buffers, target, *numbers)


def check_weighted(work: Lowering, data: int = 0) -> None:
    """Refuses inputs, weights and outputs (and biases of float32) of types that do not go together."""
    image, weights, output = work.tensor(data), work.tensor(1), work.output()
    if work.plain:
        bias = work.optional(max(data, 1) + 1)
        common_type((image, weights, output) if bias is None else (image, weights, output, bias), REAL)
    else:
        wanted = "uint8" if require_same_type((image, output), ACTIVATION_TYPES) == "uint8" else "int8"
        require_supported(weights.dtype == wanted, f"weights {weights.name!r} are {weights.dtype}, not {wanted}")


@lowering("CONV_2D", both=True)
def conv_2d(work: Lowering) -> None:
    """Weights are [out channels, kernel height, kernel width, in channels of one group]."""
    _lower_convolution(work, "Conv2DOptions", depthwise=False)


@lowering("DEPTHWISE_CONV_2D", both=True)
def depthwise_conv_2d(work: Lowering) -> None:
    """Weights are [1, kernel height, kernel width, out channels]."""
    _lower_convolution(work, "DepthwiseConv2DOptions", depthwise=True)


def _lower_convolution(work: Lowering, kind: str, *, depthwise: bool) -> None:
    options = work.options(kind)
    check_weighted(work)
    g = ConvolutionGeometry.from_work(work, options)
    products, function, target = Products(work, g.out_c, wide=depthwise), work.function, work.write()
    groups = g.in_c if depthwise else g.in_c // g.depth
    with function.grid(products.output.shape, "nyxc") as (n, y, x, c):
        products.begin(c)
        with function.grid(g.kernel, ("ky", "kx")) as (ky, kx):
            row = function.bind(g.down.image_place(y, ky), "row")
            column = function.bind(g.across.image_place(x, kx), "column")
            valid = both(g.down.is_inside(row), g.across.is_inside(column))
            with function.when(valid), function.loop(1 if depthwise else g.depth, "k") as k:
                group = floor_div(c, g.out_c // groups)
                channel = group if depthwise else k if groups == 1 else group * g.depth + k
                products.add((n, row, column, channel), (0, ky, kx, c) if depthwise else (c, ky, kx, k))
        function.store(target, products.result(c, options.FusedActivationFunction()), n, y, x, c)
    if products.has_kernel:
        counts = (g.out_c // g.in_c, g.in_c, g.out_c) if depthwise else (groups, g.depth, g.out_c)
        windows = (n for axis in (g.down, g.across) for n in axis.numbers())
        kernel = "kernel_depthwise" if depthwise else "kernel_dot kernel_convolution"
        products.name_kernel(
            f"kernel_window {kernel}",
            target,
            (products.output.shape[0], *counts, *windows),
            options.FusedActivationFunction(),
        )


@lowering("TRANSPOSE_CONV", both=True)
def transpose_conv(work: Lowering) -> None:
    """Inputs are the output's shape, weights [out channels, kernel h, kernel w, in channels], data, bias."""
    options, function = work.options("TransposeConvOptions"), work.function
    # Older files do not have the field.
    activation = options.FusedActivationFunction() if hasattr(options, "FusedActivationFunction") else 0
    check_weighted(work, data=2)
    g = ConvolutionGeometry.from_work(work, options, data=2)
    products, target = Products(work, g.out_c, data=2, wide=True), work.write()
    gather = _by_inputs if work.plain else _by_weights
    with function.grid(products.output.shape, "nyxc") as (n, y, x, c):
        products.begin(c)
        gather(work, g, products, n, y, x, c)
        function.store(target, products.result(c, activation), n, y, x, c)


def _by_weights(work: Lowering, g: ConvolutionGeometry, products: Products, *place: Expr) -> None:
    """All that reaches `place` (batch, row, column, channel) of the output, weight by weight."""
    function, (n, y, x, c), (down, across) = work.function, place, (g.down, g.across)
    with function.grid(g.kernel, ("ky", "kx")) as (ky, kx):
        below = function.bind(y + down.before - ky, "down")
        right = function.bind(x + across.before - kx, "right")
        row = function.bind(tirx.truncdiv(below, int_constant(down.stride)), "row")
        column = function.bind(tirx.truncdiv(right, int_constant(across.stride)), "column")
        hit = both(
            row * down.stride == below if down.stride > 1 else None,
            column * across.stride == right if across.stride > 1 else None,
            below >= 0,
            right >= 0,
            bounds_check(row, 0, down.windows, down.windows),
            bounds_check(column, 0, across.windows, across.windows),
        )
        with function.when(hit), function.loop(g.in_c, "k") as k:
            products.add((n, row, column, k), (c, ky, kx, k))


def _by_inputs(work: Lowering, g: ConvolutionGeometry, products: Products, *place: Expr) -> None:
    """All that reaches `place` (batch, row, column, channel) of the output, input by input."""
    function, (n, y, x, c), (down, across) = work.function, place, (g.down, g.across)
    first_row, rows = _first_to_reach(work, y, down)
    first_column, columns = _first_to_reach(work, x, across)
    with function.grid((rows + 1, columns + 1), ("r", "s")) as (r, s):
        row, column = function.bind(first_row + r, "row"), function.bind(first_column + s, "column")
        ky = function.bind(y + down.before - row * down.stride, "ky")
        kx = function.bind(x + across.before - column * across.stride, "kx")
        inside = row < down.windows, column < across.windows, ky >= 0, ky < down.kernel, kx >= 0, kx < across.kernel
        with function.when(both(*inside)), function.loop(g.in_c, "k") as k:
            products.add((n, row, column, k), (c, ky, kx, k))


def _first_to_reach(work: Lowering, place: Expr, axis: ImageAxis) -> tuple[Expr, int]:
    """The first input row (or column) whose window covers `place` of the output, 0 at least; how many more may."""
    padded = maximum_of(place + axis.before - int_constant(axis.kernel - axis.stride), 0)
    first = work.function.bind(tirx.truncdiv(padded, int_constant(axis.stride)), "first")
    return first, min(-(-axis.kernel // axis.stride), axis.windows)


@lowering("FULLY_CONNECTED", both=True)
def fully_connected(work: Lowering) -> None:
    """Output row = weights x input row + bias; weights are [units, depth]."""
    options = work.options("FullyConnectedOptions")
    check_weighted(work)
    data, weights, output = work.tensor(0), work.tensor(1), work.output()
    g = DenseGeometry.from_tensors(data, weights, output, options)
    products, function, target = Products(work, g.units, dense=True), work.function, work.write()
    with function.grid((g.rows, g.columns), ("row", "unit")) as (row, unit):
        products.begin(unit)
        with function.loop(g.depth, "k") as k:
            products.add(_of_row(row, k, g, data), row_indices(unit, k, weights.shape))
        result = products.result(unit, options.FusedActivationFunction())
        function.store(target, result, *row_indices(row, unit, output.shape))
    if products.has_kernel:
        sizes = g.rows, g.columns, g.depth
        products.name_kernel("kernel_dot kernel_dense", target, sizes, options.FusedActivationFunction())


def _of_row(row: Expr, k: Expr, g: DenseGeometry, data: Tensor) -> list[Expr]:
    """Indices of element k of a row of the input, whose own rows may have another length."""
    if data.shape and data.shape[-1] == g.depth:
        return row_indices(row, k, data.shape)
    return element_indices(k if g.rows == 1 else row * g.depth + k, data.shape)


@lowering("BATCH_MATMUL", both=True)
def batch_matmul(work: Lowering) -> None:
    """Input 0 x input 1, either of them transposed."""
    tensors = a, b, output = work.tensor(0), work.tensor(1), work.output()
    dtype = common_type(tensors, REAL) if work.plain else require_same_type(tensors, ("int8", "int16"))
    kind = {"int8": "int32", "int16": "int64"}.get(dtype, dtype)
    depth, turned_a, turned_b = matrix_layout(work)
    scale = quantise_multiplier(0.0 if work.plain else a.scale * b.scale / output.scale)

    function, take = work.function, as_it_is if work.plain else subtract_zero_point
    first, second, total = work.read(0, "first"), work.read(1, "second"), function.local("sum", kind)
    if not work.plain:
        work.describe("batch_matmul", turned_first=int(turned_a), turned_second=int(turned_b))

    def result(place: list[Expr]) -> Expr:
        *_, row, column = place
        total.set(number(0, kind))
        with function.loop(depth, "k") as k:
            x = take(first, a, *_element_of(place, a, output, (k, row) if turned_a else (row, k)))
            y = take(second, b, *_element_of(place, b, output, (column, k) if turned_b else (k, column)))
            total.add(cast(x * y, kind))
        if work.plain:
            return total.read()
        return clamp_to_activation(multiply_sum(function, total.read(), *scale), 0, output)

    work.fill(result)


def matrix_layout(work: Lowering) -> tuple[int, bool, bool]:
    """(length of the sums, whether input 0 and whether input 1 is transposed); refuses what does not fit."""
    options = work.options("BatchMatMulOptions")
    a, b, output = (list(tensor.shape) for tensor in (work.tensor(0), work.tensor(1), work.output()))
    require_supported(min(len(a), len(b)) >= 2, f"{a} x {b} are no two matrices")
    turned_a, turned_b = bool(options.AdjX()), bool(options.AdjY())
    rows, depth = a[:-3:-1] if turned_a else a[-2:]
    inner, columns = b[:-3:-1] if turned_b else b[-2:]
    require_supported(depth == inner and output[-2:] == [rows, columns], f"{a} x {b} do not make {output}")
    return depth, turned_a, turned_b


def _element_of(place: list[Expr], tensor: Tensor, output: Tensor, inner: tuple[Expr, Expr]) -> list[Expr]:
    """Indices of an element of one matrix of a stack, for an element of the output."""
    stack = replace(tensor, shape=(*tensor.shape[:-2], 1, 1))
    return [*broadcast(place, stack, output)[:-2], *inner]
