"""ADD, SUB, MUL, DIV, SQUARED_DIFFERENCE, PRELU, MINIMUM, MAXIMUM and the six comparisons, with broadcasting.

Invariant: ADD and SUB bring both operands to twice the larger scale, shifted left so that no bit is lost, before they
meet; MUL multiplies first and rescales once. DIV multiplies by the divisor's reciprocal, a table of the 256 divisors
that a tensor of 8 bits can hold: wherever the reference's arithmetic is defined C, the results are its bits. It divides
by no zero, and shifts by no more than 31 bits, which quotients near zero can ask for; here a zero divides like the
smallest step, and such a quotient is rounded to zero. What is compared are the real values in fixed point, as in the
reference: two of them that differ by less than its 8 extra bits can tell are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from tvm import tirx

from ...fixed_point.functions import reciprocal_one_plus
from ...fixed_point.multiplier import LIMITS, IntArray, divide_scales, multiply_scales, quantise_multiplier
from ...models.tensor import Tensor
from .common import ACTIVATION_TYPES, EIGHT_BITS, centred, clamp_to_activation, ends, require_same_type, stored
from .fixed_tir import high_mul, leading_zeros, multiply_by_quantised, rounding_shift_by
from .operator import Lowering, lowering, require
from .tir import Buffer, Expr, cast, const, largest, load, select, smallest


def each(
    work: Lowering, compute: Callable[..., Expr], *names: str, take: Callable[..., Expr] = centred
) -> list[Buffer]:
    """output = compute(input 0, input 1, ...), with broadcasting; `names` of the inputs' buffers. All buffers.

    `take` gives an element by its buffer, tensor and indices.
    """
    output = work.output()
    inputs = [(work.read(i, name), work.tensor(i)) for i, name in enumerate(names)]
    shapes = list(work.tensor(0).shape), list(output.shape)
    fits = len(names) > 1 or math.prod(shapes[0]) == math.prod(shapes[1])
    require(fits, f"its input is {shapes[0]}, its output {shapes[1]}")
    made = work.fill(lambda place: compute(*(take(b, t, *broadcast(place, t, output)) for b, t in inputs)))
    return [*(buffer for buffer, _ in inputs), made]


@lowering("ADD", "SUB")
def add(work: Lowering) -> None:
    """input 0 +- input 1."""
    subtract = work.operator.name == "SUB"
    options = work.options("SubOptions" if subtract else "AddOptions")
    a, b, output = ends(work, ACTIVATION_TYPES, 2)
    left_shift = 15 if output.dtype == "int16" else 20
    twice = 2 * max(a.scale, b.scale)
    factors = [a.scale / twice, b.scale / twice, twice / ((1 << left_shift) * output.scale)]
    require(factors[2] < 1.0, f"output scale {output.scale} is too small for its inputs' scales")
    scales = [quantise_multiplier(f) for f in factors]

    def result(*values: Expr) -> Expr:
        x, y = rescaled(work, values, left_shift, scales[:2])
        total = multiply_by_quantised(work.function, x - y if subtract else x + y, *scales[2])
        return clamp_to_activation(total, options.FusedActivationFunction(), output)

    each(work, result, "first", "second")


@lowering("MUL")
def multiply(work: Lowering) -> None:
    """input 0 x input 1."""
    options = work.options("MulOptions")
    a, b, output = tensors = ends(work, ACTIVATION_TYPES, 2, scaled=False)
    # Converters give constants of zeros the scale 0.0: the reference multiplies by it (and stops in ADD and SUB).
    zeros = [t for t in (a, b) if t.scales and t.data is not None]
    require_same_type(tuple(t for t in tensors if t not in zeros), ACTIVATION_TYPES)
    single = output.dtype == "uint8"  # LiteRT's
    factor = multiply_scales(a.scale, b.scale, single=single)
    scale = quantise_multiplier(divide_scales(factor, output.scale, single=single))

    def result(x: Expr, y: Expr) -> Expr:
        product = multiply_by_quantised(work.function, x * y, *scale)
        return clamp_to_activation(product, options.FusedActivationFunction(), output)

    each(work, result, "first", "second")


@lowering("SQUARED_DIFFERENCE")
def squared_difference(work: Lowering) -> None:
    """(input 0 - input 1) squared."""
    a, b, output = ends(work, ("int8", "int16"), 2)
    left_shift = 0 if output.dtype == "int16" else 7
    twice = 2 * max(a.scale, b.scale)
    scales = [quantise_multiplier(tensor.scale / twice) for tensor in (a, b)]
    result_scale = quantise_multiplier(twice * twice / ((1 << (2 * left_shift)) * output.scale))

    def result(*values: Expr) -> Expr:
        x, y = rescaled(work, values, left_shift, scales)
        difference = work.function.bind(x - y, "difference")
        square = multiply_by_quantised(work.function, difference * difference, *result_scale)
        return clamp_to_activation(square, 0, output)

    each(work, result, "first", "second")


@lowering("PRELU")
def prelu(work: Lowering) -> None:
    """x for x >= 0, alpha x below, with an alpha for each element or channel."""
    data, alpha, output = work.tensor(0), work.tensor(1), work.output()
    require_same_type((data, output), ACTIVATION_TYPES)
    require_same_type((alpha,), ("int8" if data.dtype == "int16" else data.dtype,))
    work.describe("prelu")
    single = data.dtype == "uint8"  # LiteRT's
    sloped = multiply_scales(data.scale, alpha.scale, single=single)
    above = quantise_multiplier(divide_scales(data.scale, output.scale, single=single))
    below = quantise_multiplier(divide_scales(sloped, output.scale, single=single))

    def result(x: Expr, slope: Expr) -> Expr:
        x = work.function.bind(x, "x")
        yes = multiply_by_quantised(work.function, x, *above)
        no = multiply_by_quantised(work.function, x * slope, *below)
        return clamp_to_activation(select(x >= 0, yes, no), 0, output)

    each(work, result, "input", "alpha")


@lowering("MINIMUM", "MAXIMUM")
def extremum(work: Lowering) -> None:
    """The smaller or larger element; the reference compares the stored numbers as they are."""
    ends(work, (*ACTIVATION_TYPES, "int32"), 2, scaled=False)
    each(work, smallest if work.operator.name == "MINIMUM" else largest, "first", "second", take=stored)


def rescaled(work: Lowering, values: Sequence[Expr], left_shift: int, scales: Sequence[tuple[int, int]]) -> list[Expr]:
    """Stored values less their zero points, times 2 ** `left_shift` and their scale (multiplier, shift)."""
    return [
        multiply_by_quantised(work.function, value * const(1 << left_shift), *scale)
        for value, scale in zip(values, scales, strict=True)
    ]


def broadcast(place: list[Expr], tensor: Tensor, output: Tensor) -> list[Expr]:
    """Indices into `tensor` for an element of `output`; axes are aligned from the last."""
    missing = len(output.shape) - len(tensor.shape)
    require(missing >= 0, f"input {tensor.name!r} has more dimensions than the output")
    for extent, wide in zip(tensor.shape, output.shape[missing:], strict=True):
        message = f"shape {list(tensor.shape)} of {tensor.name!r} does not broadcast to {list(output.shape)}"
        require(extent in (1, wide), message)
    return [const(0) if extent == 1 else p for extent, p in zip(tensor.shape, place[missing:], strict=True)]


_LEAST_HEADROOM = 23  # bits that a difference of two numbers of 8 bits leaves free in an int32


@lowering("DIV")
def divide(work: Lowering) -> None:
    """input 0 / input 1."""
    options = work.options("DivOptions")
    a, b, output = ends(work, EIGHT_BITS, 2)
    single = a.dtype == "uint8"  # LiteRT's
    below = multiply_scales(b.scale, output.scale, single=single)
    multiplier, shift = quantise_multiplier(divide_scales(a.scale, below, single=single))
    require(shift <= _LEAST_HEADROOM, f"output scale {output.scale} is too small for its inputs' scales")
    values, bits = _reciprocals(b)

    function = work.function
    first, second, target = work.read(0, "first"), work.read(1, "second"), work.write()
    reciprocals, exponents = work.table("reciprocals", values), work.table("exponents", bits)
    with function.grid(output.shape) as place:
        x = load(first, *broadcast(place, a, output)) - const(a.zero_point)
        divisor = function.bind(load(second, *broadcast(place, b, output)), "divisor")
        x = function.bind(select(divisor < b.zero_point, const(0) - x, x), "x")
        zeros = leading_zeros(function, select(x < 0, const(-1) - x, x))
        headroom = function.bind(zeros - const(1), "headroom")
        widest = cast(x, "int64") * (const(1, "int64") << cast(headroom, "int64"))
        entry = divisor - const(LIMITS[b.dtype][0])
        quotient = high_mul(high_mul(widest, load(reciprocals, entry)), multiplier)
        result = rounding_shift_by(function, quotient, load(exponents, entry) + headroom - const(shift))
        function.store(target, clamp_to_activation(result, options.FusedActivationFunction(), output), *place)


def _reciprocals(divisor: Tensor) -> tuple[IntArray, IntArray]:
    """1 / |d| as (31 fraction bits, right shift) for every d that `divisor` can hold, from the least."""
    least, most = LIMITS[divisor.dtype]
    size = np.maximum(np.abs(np.arange(least, most + 1, dtype=np.int64) - divisor.zero_point), 1)
    bits = np.frexp(size)[1].astype(np.int64) - 1
    fraction = (size << (31 - bits)) - (1 << 31)
    return reciprocal_one_plus(fraction, subtract_one=False).astype(np.int32), bits.astype(np.int8)


_LEFT_SHIFT = 8
COMPARISONS = {
    "EQUAL": tirx.EQ,
    "NOT_EQUAL": tirx.NE,
    "GREATER": tirx.GT,
    "GREATER_EQUAL": tirx.GE,
    "LESS": tirx.LT,
    "LESS_EQUAL": tirx.LE,
}


@lowering(*COMPARISONS)
def compare(work: Lowering) -> None:
    """Whether input 0 is equal to, greater or less than input 1."""
    pair, output = (work.tensor(0), work.tensor(1)), work.output()
    require_same_type(pair, EIGHT_BITS)
    require(output.dtype == "bool", f"output {output.name!r} is {output.dtype}, not bool")
    for tensor in pair:
        require(tensor.scale < 1.0, f"tensor {tensor.name!r} has scale {tensor.scale}; the reference takes < 1")
    scales = [quantise_multiplier(tensor.scale) for tensor in pair]

    def result(*values: Expr) -> Expr:
        operands = rescaled(work, values, _LEFT_SHIFT, scales)
        return COMPARISONS[work.operator.name](*(work.function.bind(operand, "operand") for operand in operands))

    each(work, result, "first", "second")
