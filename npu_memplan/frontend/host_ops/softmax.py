"""SOFTMAX, LOG_SOFTMAX and L2_NORMALIZATION of 8 bits and of float32, over the last axis.

Invariant: of 8 bits the sum over a row of exp(x - largest x) is made once, in fixed point: exponentials have 31
fraction bits and their sum `31 - SUM_INTEGER_BITS`; differences so far below the largest element that fixed point
cannot hold them count nothing. The logarithm of a row is a power of two, and a quotient of polynomials around the
fourth root of 1/2; the inverse square root of L2_NORMALIZATION takes the reference's five Newton steps, and a row of
zeros stays zeros. Of float32 a row is read from its first to its last element in each pass, as the reference does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...fixed_point import LIMITS, ROOT_HALF, input_radius, quantise_multiplier
from .activation import store_softmax16
from .common import EIGHT_BITS, ends, require_quantisation, require_rows, require_same_type
from .elementwise import REAL, largest_of, least
from .operator import Lowering, lowering, require_supported
from .tir import (
    Buffer,
    Expr,
    Function,
    LocalScalar,
    cast,
    clamp,
    clamp_wide,
    exp_on_negative,
    float_constant,
    high_mul,
    int_constant,
    inverse_root,
    leading_zeros,
    library,
    load,
    maximum_of,
    multiply_when_running,
    raw_load,
    reciprocal_one_plus,
    rounding_shift,
    rounding_shift_by,
    row_indices,
    saturating_shift_left,
    select,
    smallest,
)

DIFF_INTEGER_BITS = 5
SUM_INTEGER_BITS = 12


@dataclass(frozen=True, slots=True)
class Differences:
    """How differences of stored values become real ones with `31 - DIFF_INTEGER_BITS` fraction bits."""

    multiplier: int
    shift: int
    lowest: int  # the smallest difference that does not leave the format

    @classmethod
    def with_scale(cls, beta: float, scale: float) -> Differences:
        """The differences of inputs of this scale, times beta; `UnsupportedOperatorError`: the product is too small."""
        real = min(beta * scale * (1 << (31 - DIFF_INTEGER_BITS)), float((1 << 31) - 1))
        require_supported(real > 1.0, f"beta {beta} x input scale {scale} is too small for fixed point")
        multiplier, shift = quantise_multiplier(real)
        return cls(multiplier, shift, -input_radius(DIFF_INTEGER_BITS, shift))

    def rescale_difference(self, difference: Expr) -> Expr:
        """A difference not below `lowest`, in the format."""
        # With a shift of 31, `lowest` is 0: there is nothing to shift.
        return high_mul(difference * int_constant(1 << min(self.shift, 30)), self.multiplier)


def sum_of_row(
    function: Function, source: Buffer, row: Expr, differences: Differences, kept: Buffer | None = None
) -> tuple[Expr, Expr]:
    """(largest element, sum of exponentials) of a row of `source`; the exponentials themselves go to `kept`."""
    shape = [int(extent) for extent in source.shape]
    peak, total = function.local("peak"), function.local("total")
    peak.set(int_constant(LIMITS[str(source.dtype)][0]))
    with function.loop(shape[-1], "c") as c:
        peak.set(maximum_of(peak.read(), load(source, *row_indices(row, c, shape))))
    total.set(int_constant(0))
    with function.loop(shape[-1], "c") as c:
        difference = function.bind(load(source, *row_indices(row, c, shape)) - peak.read(), "difference")
        # Below the radius the result is zero; the product must not leave int32 there.
        scaled = differences.rescale_difference(maximum_of(difference, int_constant(differences.lowest)))
        power = exp_on_negative(function, scaled, DIFF_INTEGER_BITS)
        power = function.bind(select(difference >= differences.lowest, power, int_constant(0)), "exponential")
        if kept is not None:
            function.store(kept, power, c)
        total.add(rounding_shift(function, power, SUM_INTEGER_BITS))
    return peak.read(), total.read()


@lowering("SOFTMAX")
def lower_softmax(work: Lowering) -> None:
    """Over the last axis; int8 to int8 or int16, int16 to int16, uint8 to uint8."""
    beta = float(work.options("SoftmaxOptions").Beta())
    data, output = work.tensor(0), work.output()
    if data.dtype == "int16":
        return store_softmax16(work, data, output, beta)
    require_same_type((data,), EIGHT_BITS)
    allowed = (data.dtype, "int16") if data.dtype == "int8" else (data.dtype,)
    require_supported(output.dtype in allowed, f"output {output.name!r} is {output.dtype}, not {' or '.join(allowed)}")
    bits = 16 if output.dtype == "int16" else 8
    require_quantisation(output, 1.0 / (1 << bits), LIMITS[output.dtype][0], rel_tol=1e-3)
    differences = Differences.with_scale(beta, data.scale)
    require_rows(data, output)
    depth = data.shape[-1]
    rows = math.prod(data.shape) // depth

    function = work.function
    source, target = work.read(0, "input"), work.write()
    exponents = function.scratch("exponents", (depth,), "int32")
    low, high = LIMITS[output.dtype]
    with function.loop(rows, "row") as row:
        _, total = sum_of_row(function, source, row, differences, exponents)
        # 1 / total: normalise to [1, 2), then Newton's method.
        zeros = leading_zeros(function, total)
        normal = (cast(total, "int64") << cast(zeros, "int64")) - int_constant(1 << 31, "int64")
        fraction = function.bind(cast(normal, "int32"), "fraction")
        reciprocal = reciprocal_one_plus(function, fraction)
        exponent = function.bind(int_constant(SUM_INTEGER_BITS + 31 - bits) - zeros, "output_shift")
        with function.loop(depth, "c") as c:
            power = load(exponents, c)
            rounded = rounding_shift_by(function, high_mul(reciprocal, power), exponent)
            value = clamp(rounded + int_constant(low), low, high)
            function.store(target, value, *row_indices(row, c, output.shape))
    return None


_OUTPUT_INTEGER_BITS = 4
_LOG_INTEGER_BITS = DIFF_INTEGER_BITS + 1  # while it is added up
# With 31 fraction bits, f = 2^(1/4):
_LOG_2 = 1488522236
_FOURTH_ROOT_HALF = 1805811301  # 1/f
_NUMERATOR = 117049297  # 11/240 f
_DENOMINATOR = (1057819769, 638450708, 127690142)  # 2/f - f, f/4, f/20


@lowering("LOG_SOFTMAX")
def log_softmax(work: Lowering) -> None:
    """x - log(sum of exp(x)) over the last axis."""
    data, output = ends(work, EIGHT_BITS)
    require_rows(data, output)
    low, high = LIMITS[data.dtype]
    require_quantisation(output, 16 / 256, high)
    differences = Differences.with_scale(1.0, data.scale)
    back = quantise_multiplier((1 << (31 - differences.shift)) / differences.multiplier)
    function = work.function
    source, target = work.read(0, "input"), work.write()
    with function.loop(math.prod(data.shape) // data.shape[-1], "row") as row:
        peak, total = sum_of_row(function, source, row, differences)
        log = function.bind(_logarithm(function, total), "log")
        # Differences from here on down have the least result; above, nothing leaves int32.
        floor = multiply_when_running(function, log + int_constant(LIMITS["int32"][0]), *back)
        floor = function.bind(maximum_of(floor, int_constant(differences.lowest - 1)), "floor")
        with function.loop(data.shape[-1], "c") as c:
            difference = function.bind(load(source, *row_indices(row, c, data.shape)) - peak, "difference")
            scaled = differences.rescale_difference(maximum_of(difference, int_constant(differences.lowest)))
            real = clamp_wide(cast(scaled, "int64") - cast(log, "int64"))
            result = rounding_shift(function, real, 31 - DIFF_INTEGER_BITS - _OUTPUT_INTEGER_BITS)
            result = clamp(result + int_constant(high), low, high)
            function.store(
                target, select(difference > floor, result, int_constant(low)), *row_indices(row, c, output.shape)
            )


def _logarithm(function: Function, value: Expr) -> Expr:
    """log(value) with `31 - DIFF_INTEGER_BITS` fraction bits, of a value >= 1 with `31 - SUM_INTEGER_BITS`."""
    one = 1 << (31 - _LOG_INTEGER_BITS)
    # value = 2^power x fraction, by two ways to split it; the one with the larger power and smaller fraction counts.
    zeros = leading_zeros(function, value)
    normal = value * (int_constant(1) << (zeros - int_constant(1)))
    first = saturating_shift_left(high_mul(normal, ROOT_HALF), 1)
    power = (int_constant(SUM_INTEGER_BITS) - zeros) * int_constant(one) + int_constant(one // 4)
    headroom = leading_zeros(function, high_mul(value, ROOT_HALF)) - int_constant(1)
    second = clamp_wide(cast(value, "int64") * (int_constant(1, "int64") << cast(headroom, "int64")))
    other_power = (int_constant(SUM_INTEGER_BITS) - headroom) * int_constant(one) - int_constant(one // 4)
    power = function.bind(maximum_of(power, other_power), "power")
    r = function.bind(smallest(first, second), "r")

    wide = cast(r, "int64") + int_constant(_FOURTH_ROOT_HALF + 1, "int64")
    p = function.bind(cast(wide >> int_constant(1, "int64"), "int32"), "p")
    half = function.bind(r - int_constant(_FOURTH_ROOT_HALF), "half")  # named, or TVM doubles the constant past int32
    q = function.bind(half * int_constant(2), "q")
    square = function.bind(high_mul(q, q), "square")
    numerator = high_mul(q, r) + high_mul(high_mul(q, square), _NUMERATOR)
    constant, linear, quadratic = _DENOMINATOR
    inner = int_constant(constant) + q + high_mul(square, quadratic)
    below = high_mul(p, inner) + high_mul(q, linear)  # the denominator, less 1
    reciprocal = reciprocal_one_plus(function, below)
    fraction = high_mul(rounding_shift(function, numerator, _LOG_INTEGER_BITS), reciprocal)
    return saturating_shift_left(high_mul(power, _LOG_2) + fraction, _LOG_INTEGER_BITS - DIFF_INTEGER_BITS)


_OUTPUT_BITS = 7  # fraction bits of the output


@lowering("L2_NORMALIZATION")
def l2_normalization(work: Lowering) -> None:
    """x / sqrt(sum of x squared) over the last axis."""
    data, output = ends(work, EIGHT_BITS)
    require_rows(data, output)
    kind = data.dtype
    activation = work.options("L2NormOptions").FusedActivationFunction()
    require_supported(activation == 0, f"the reference refuses its fused activation (number {activation})")
    middle = 0 if kind == "int8" else 128
    require_quantisation(output, 1 / (1 << _OUTPUT_BITS), middle, "computes for")
    function = work.function
    source, target = work.read(0, "input"), work.write()
    total = function.local("total")
    with function.loop(math.prod(data.shape) // data.shape[-1], "row") as row:
        total.set(int_constant(0))
        with function.loop(data.shape[-1], "c") as c:
            x = function.bind(load(source, *row_indices(row, c, data.shape)) - int_constant(data.zero_point), "x")
            total.add(x * x)
        multiplier, right = inverse_root(function, total.read())
        if kind == "int8":  # tflite-micro takes one shift from the other
            left_shift = function.bind(
                int_constant(1) << maximum_of(int_constant(_OUTPUT_BITS) - right, 0), "left_shift"
            )
            right_shift = function.bind(maximum_of(right - int_constant(_OUTPUT_BITS), 0), "right_shift")
        else:
            left_shift, right_shift = int_constant(1 << _OUTPUT_BITS), right
        with function.loop(data.shape[-1], "c") as c:
            x = load(source, *row_indices(row, c, data.shape)) - int_constant(data.zero_point)
            value = rounding_shift_by(function, high_mul(x * left_shift, multiplier), right_shift)
            function.store(
                target, clamp(value + int_constant(middle), *LIMITS[kind]), *row_indices(row, c, output.shape)
            )


@contextmanager
def _rows(work: Lowering) -> Iterator[tuple[Buffer, Buffer, Expr, tuple[int, ...], int]]:
    """(input, output, row, shape, depth) inside of a loop over rows."""
    data, output = ends(work, REAL, scaled=False)
    fits = data.shape == output.shape != ()
    require_supported(fits, f"its input is {list(data.shape)}, its output {list(output.shape)}")
    depth = data.shape[-1]
    source, target = work.read(0, "input"), work.write()
    with work.function.loop(math.prod(data.shape) // max(depth, 1), "row") as row:
        yield source, target, row, data.shape, depth


def _peak(work: Lowering, source: Buffer, row: Expr, shape: tuple[int, ...]) -> LocalScalar:
    peak = work.function.local("peak", "float32")
    peak.set(float_constant(least("float32")))
    with work.function.loop(shape[-1], "c") as c:
        peak.set(largest_of(work.function, peak.read(), raw_load(source, row_indices(row, c, shape)), "float32"))
    return peak


@lowering("SOFTMAX", plain=True)
def softmax_of_floats(work: Lowering) -> None:
    """exp(beta (x - largest)), divided by the sum."""
    beta = float_constant(work.options("SoftmaxOptions").Beta())
    function = work.function
    total = function.local("total", "float32")
    with _rows(work) as (source, target, row, shape, depth):
        peak = _peak(work, source, row, shape)
        total.set(float_constant(0))
        with function.loop(depth, "c") as c:
            place = row_indices(row, c, shape)
            power = library("expf", (raw_load(source, place) - peak.read()) * beta)
            power = function.bind(power, "power", "float32")
            function.store(target, power, *place)
            total.add(power)
        with function.loop(depth, "c") as c:
            place = row_indices(row, c, shape)
            function.store(target, raw_load(target, place) / total.read(), *place)


@lowering("LOG_SOFTMAX", plain=True)
def log_softmax_of_floats(work: Lowering) -> None:
    """x - largest - log of the sum of exp(x - largest)."""
    function = work.function
    total = function.local("total", "float32")
    with _rows(work) as (source, target, row, shape, depth):
        peak = _peak(work, source, row, shape)
        total.set(float_constant(0))
        with function.loop(depth, "c") as c:
            total.add(library("expf", raw_load(source, row_indices(row, c, shape)) - peak.read()))
        logarithm = function.bind(library("logf", total.read()), "logarithm", "float32")
        with function.loop(depth, "c") as c:
            place = row_indices(row, c, shape)
            function.store(target, raw_load(source, place) - peak.read() - logarithm, *place)


@lowering("L2_NORMALIZATION", plain=True)
def l2_normalization_of_floats(work: Lowering) -> None:
    """x / sqrt(sum of x squared); a length below 1e-6 counts as that."""
    options = work.operator.options("L2NormOptions")
    activation = 0 if options is None else options.FusedActivationFunction()
    require_supported(activation == 0, "the reference refuses its fused activation")
    function = work.function
    total = function.local("total", "float32")
    with _rows(work) as (source, target, row, shape, depth):
        total.set(float_constant(0))
        with function.loop(depth, "c") as c:
            x = function.bind(raw_load(source, row_indices(row, c, shape)), "x", "float32")
            total.add(x * x)
        length = largest_of(function, library("sqrtf", total.read()), float_constant(1e-6), "float32")
        length = function.bind(length, "length", "float32")
        with function.loop(depth, "c") as c:
            place = row_indices(row, c, shape)
            function.store(target, raw_load(source, place) / length, *place)
