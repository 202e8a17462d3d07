"""Operators of one element or two: sums, products, comparisons, functions of plain numbers, casts and other scales.

Invariant: ADD and SUB bring both operands to twice the larger scale, shifted left so that no bit is lost, before they
meet; MUL multiplies first and rescales once. DIV multiplies by the divisor's reciprocal, a table of the 256 divisors
that a tensor of 8 bits can hold: wherever the reference's arithmetic is defined C, the results are its bits. It divides
by no zero, and shifts by no more than 31 bits, which quotients near zero can ask for; here a zero divides like the
smallest step, and such a quotient is rounded to zero. What is compared are the real values in fixed point, as in the
reference: two of them that differ by less than its 8 extra bits can tell are equal. CAST converts as C does: floats are
cut towards zero, integers keep their low bits, bool is 0 or 1. QUANTIZE between integers is one rescale with double
rounding; from and to float32 it is one correctly rounded operation. Every operation of floats is written in the order
of the reference kernels, and no two are contracted, so results are equal bit for bit wherever the C library's functions
are (`exactness.LIBRARY` names the operators that call one). Operators of plain numbers do one operation an element,
then the fused activation; truth values are bool, one byte, 0 or 1. A function of the C library is called where the
reference calls it, and nowhere else. A choice between two numbers is the reference's own comparison, so that NaN gives
the same result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from tvm import tirx

from ...fixed_point import LIMITS, IntArray, divide_scales, multiply_scales, quantise_multiplier, reciprocal_one_plus
from ...models.tensor import Tensor
from .common import (
    ACTIVATION_TYPES,
    EIGHT_BITS,
    as_it_is,
    clamp_to_activation,
    ends,
    require_same_type,
    stored_value,
    subtract_zero_point,
)
from .operator import Lowering, lowering, require_supported
from .tir import (
    Buffer,
    Expr,
    Function,
    both,
    cast,
    clamp,
    clamp_wide,
    dtype_of,
    float_constant,
    high_mul,
    int_constant,
    leading_zeros,
    library,
    load,
    maximum_of,
    multiply_when_running,
    number,
    rounding_shift_by,
    select,
    smallest,
)


def compute_each(
    work: Lowering, compute: Callable[..., Expr], *names: str, take: Callable[..., Expr] = subtract_zero_point
) -> list[Buffer]:
    """output = compute(input 0, ...) with broadcasting; `names` of the inputs' buffers. All buffers."""
    output = work.output()
    inputs = [(work.read(i, name), work.tensor(i)) for i, name in enumerate(names)]
    shapes = list(work.tensor(0).shape), list(output.shape)
    fits = len(names) > 1 or math.prod(shapes[0]) == math.prod(shapes[1])
    require_supported(fits, f"its input is {shapes[0]}, its output {shapes[1]}")
    made = work.fill(lambda place: compute(*(take(b, t, *broadcast(place, t, output)) for b, t in inputs)))
    return [*(buffer for buffer, _ in inputs), made]


@lowering("ADD", "SUB")
def lower_add(work: Lowering) -> None:
    """input 0 +- input 1."""
    subtract = work.operator.name == "SUB"
    options = work.options("SubOptions" if subtract else "AddOptions")
    a, b, output = ends(work, ACTIVATION_TYPES, 2)
    left_shift = 15 if output.dtype == "int16" else 20
    twice = 2 * max(a.scale, b.scale)
    factors = [a.scale / twice, b.scale / twice, twice / ((1 << left_shift) * output.scale)]
    require_supported(factors[2] < 1.0, f"output scale {output.scale} is too small for its inputs' scales")
    scales = [quantise_multiplier(f) for f in factors]

    def result(*values: Expr) -> Expr:
        x, y = rescale_operands(work, values, left_shift, scales[:2])
        total = multiply_when_running(work.function, x - y if subtract else x + y, *scales[2])
        return clamp_to_activation(total, options.FusedActivationFunction(), output)

    compute_each(work, result, "first", "second")


@lowering("MUL")
def lower_multiply(work: Lowering) -> None:
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
        product = multiply_when_running(work.function, x * y, *scale)
        return clamp_to_activation(product, options.FusedActivationFunction(), output)

    compute_each(work, result, "first", "second")


@lowering("SQUARED_DIFFERENCE")
def squared_difference(work: Lowering) -> None:
    """(input 0 - input 1) squared."""
    a, b, output = ends(work, ("int8", "int16"), 2)
    left_shift = 0 if output.dtype == "int16" else 7
    twice = 2 * max(a.scale, b.scale)
    scales = [quantise_multiplier(tensor.scale / twice) for tensor in (a, b)]
    result_scale = quantise_multiplier(twice * twice / ((1 << (2 * left_shift)) * output.scale))

    def result(*values: Expr) -> Expr:
        x, y = rescale_operands(work, values, left_shift, scales)
        difference = work.function.bind(x - y, "difference")
        square = multiply_when_running(work.function, difference * difference, *result_scale)
        return clamp_to_activation(square, 0, output)

    compute_each(work, result, "first", "second")


@lowering("PRELU")
def lower_prelu(work: Lowering) -> None:
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
        yes = multiply_when_running(work.function, x, *above)
        no = multiply_when_running(work.function, x * slope, *below)
        return clamp_to_activation(select(x >= 0, yes, no), 0, output)

    compute_each(work, result, "input", "alpha")


@lowering("MINIMUM", "MAXIMUM")
def lower_extremum(work: Lowering) -> None:
    """The smaller or larger element; the reference compares the stored numbers as they are."""
    ends(work, (*ACTIVATION_TYPES, "int32"), 2, scaled=False)
    compute_each(
        work, smallest if work.operator.name == "MINIMUM" else maximum_of, "first", "second", take=stored_value
    )


def rescale_operands(
    work: Lowering, values: Sequence[Expr], left_shift: int, scales: Sequence[tuple[int, int]]
) -> list[Expr]:
    """Stored values less their zero points, times 2 ** `left_shift` and their scale (multiplier, shift)."""
    return [
        multiply_when_running(work.function, value * int_constant(1 << left_shift), *scale)
        for value, scale in zip(values, scales, strict=True)
    ]


def broadcast(place: list[Expr], tensor: Tensor, output: Tensor) -> list[Expr]:
    """Indices into `tensor` for an element of `output`; axes are aligned from the last."""
    missing = len(output.shape) - len(tensor.shape)
    require_supported(missing >= 0, f"input {tensor.name!r} has more dimensions than the output")
    for extent, wide in zip(tensor.shape, output.shape[missing:], strict=True):
        message = f"shape {list(tensor.shape)} of {tensor.name!r} does not broadcast to {list(output.shape)}"
        require_supported(extent in (1, wide), message)
    return [int_constant(0) if extent == 1 else p for extent, p in zip(tensor.shape, place[missing:], strict=True)]


_LEAST_HEADROOM = 23  # bits that a difference of two numbers of 8 bits leaves free in an int32


@lowering("DIV")
def lower_divide(work: Lowering) -> None:
    """input 0 / input 1."""
    options = work.options("DivOptions")
    a, b, output = ends(work, EIGHT_BITS, 2)
    single = a.dtype == "uint8"  # LiteRT's
    below = multiply_scales(b.scale, output.scale, single=single)
    multiplier, shift = quantise_multiplier(divide_scales(a.scale, below, single=single))
    require_supported(shift <= _LEAST_HEADROOM, f"output scale {output.scale} is too small for its inputs' scales")
    values, bits = _reciprocals(b)

    function = work.function
    first, second, target = work.read(0, "first"), work.read(1, "second"), work.write()
    reciprocals, exponents = work.table("reciprocals", values), work.table("exponents", bits)
    with function.grid(output.shape) as place:
        x = load(first, *broadcast(place, a, output)) - int_constant(a.zero_point)
        divisor = function.bind(load(second, *broadcast(place, b, output)), "divisor")
        x = function.bind(select(divisor < b.zero_point, int_constant(0) - x, x), "x")
        zeros = leading_zeros(function, select(x < 0, int_constant(-1) - x, x))
        headroom = function.bind(zeros - int_constant(1), "headroom")
        widest = cast(x, "int64") * (int_constant(1, "int64") << cast(headroom, "int64"))
        entry = divisor - int_constant(LIMITS[b.dtype][0])
        quotient = high_mul(high_mul(widest, load(reciprocals, entry)), multiplier)
        result = rounding_shift_by(function, quotient, load(exponents, entry) + headroom - int_constant(shift))
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
def lower_compare(work: Lowering) -> None:
    """Whether input 0 is equal to, greater or less than input 1."""
    pair, output = (work.tensor(0), work.tensor(1)), work.output()
    require_same_type(pair, EIGHT_BITS)
    require_supported(output.dtype == "bool", f"output {output.name!r} is {output.dtype}, not bool")
    for tensor in pair:
        require_supported(
            tensor.scale < 1.0, f"tensor {tensor.name!r} has scale {tensor.scale}; the reference takes < 1"
        )
    scales = [quantise_multiplier(tensor.scale) for tensor in pair]

    def result(*values: Expr) -> Expr:
        operands = rescale_operands(work, values, _LEFT_SHIFT, scales)
        return COMPARISONS[work.operator.name](*(work.function.bind(operand, "operand") for operand in operands))

    compute_each(work, result, "first", "second")


_TYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float32")


@lowering("CAST")
def lower_convert(work: Lowering) -> None:
    """The input's numbers in the output's type."""
    data, output = work.tensor(0), work.output()
    for tensor in (data, output):
        require_supported(tensor.dtype in _TYPES, f"tensor {tensor.name!r} is {tensor.dtype}, which is not converted")

    def convert(value: Expr) -> Expr:
        if data.dtype == "bool":
            value = cast(value, "int32")
        elif data.dtype == "float32" and output.dtype not in ("float32", "bool", "int64"):
            value = cast(value, "int64" if output.dtype == "uint32" else "int32")  # and then its low bits
        if output.dtype == "bool" and data.dtype != "bool":
            zero = tirx.FloatImm("float32", 0.0) if data.dtype == "float32" else tirx.IntImm(data.dtype, 0)
            value = select(tirx.NE(value, zero), tirx.IntImm("int32", 1), tirx.IntImm("int32", 0))
        return value

    compute_each(work, convert, "input", take=as_it_is)


_LEAST = 2.0**-60  # scale of the C kernels
_PAIRS = frozenset(
    [
        ("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8"), ("int8", "uint8"), ("int8", "int16"),
        ("int8", "int32"), ("int16", "int8"), ("int16", "int16"), ("int16", "int32"), ("int32", "int8"),
        ("int32", "int16"),
    ]
)  # fmt: skip


@lowering("QUANTIZE")
def lower_quantise(work: Lowering) -> None:
    """Lower a change from one scale and zero point to another."""
    data, output = work.tensor(0), work.output()
    if data.dtype == "float32" and output.dtype in ACTIVATION_TYPES:
        _from_float(work, output)
        return
    known = (data.dtype, output.dtype) in _PAIRS
    require_supported(known, f"from {data.dtype} to {output.dtype} is not done on the host")
    require_same_type((data,), (data.dtype,))
    require_same_type((output,), (output.dtype,))
    scale = quantise_multiplier(data.scale / output.scale)

    def result(x: Expr) -> Expr:
        value = multiply_when_running(work.function, x, *scale)
        if output.dtype == "int32":
            return clamp_wide(cast(value, "int64") + int_constant(output.zero_point, "int64"))
        return clamp(value + int_constant(output.zero_point), *LIMITS[output.dtype])

    compute_each(work, result, "input")


def _from_float(work: Lowering, output: Tensor) -> None:
    require_same_type((output,), (output.dtype,))

    def result(x: Expr) -> Expr:
        rounded = library("roundf", x / float_constant(output.scale))  # halves away from zero
        # Far outside the result's range, but still an int32: a larger float has no int32.
        bounded = tirx.Max(tirx.Min(rounded, float_constant(1e9)), float_constant(-1e9))
        return clamp(tirx.Cast("int32", bounded) + int_constant(output.zero_point), *LIMITS[output.dtype])

    source, target = compute_each(work, result, "input", take=as_it_is)
    _name_kernel(work, "kernel_quantise", source, target, output)


def _name_kernel(work: Lowering, name: str, source: Buffer, target: Buffer, stored: Tensor) -> None:
    """Let C convert between floats and 8 bits, with scales for which no vector instruction takes a number as 0."""
    if stored.dtype in EIGHT_BITS and _LEAST < stored.scale < 1 / _LEAST:
        count, is_signed = math.prod(work.output().shape), int(stored.dtype == "int8")
        work.kernel(f"kernel_forms {name}", source, target, stored.scale, count, stored.zero_point, is_signed)


@lowering("DEQUANTIZE")
def lower_dequantise(work: Lowering) -> None:
    """scale x (value - zero point) as float32."""
    data, output = work.tensor(0), work.output()
    require_same_type((data,), ACTIVATION_TYPES)
    known = output.dtype == "float32" and len(data.scales) == 1
    require_supported(known, f"to {output.dtype} with {len(data.scales)} scales is not done on the host")
    # The product of a float32 and so small an integer is rounded once, as from double.
    source, target = compute_each(work, lambda x: cast(x, "float32") * float_constant(data.scale), "input")
    _name_kernel(work, "kernel_dequantise", source, target, data)


REAL = ("float32",)
NUMBERS = ("float32", "int32", "int64")
_BOUNDS = {0: (None, None), 1: (0, None), 2: (-1, 1), 3: (0, 6)}  # of fused activations


def common_type(tensors: tuple[Tensor, ...], allowed: tuple[str, ...]) -> str:
    """The one type of these tensors; refuses others than the `allowed`."""
    return require_same_type(tensors, allowed, scaled=False)


def least(dtype: str) -> float:
    """The smallest finite number of a type."""
    return float(np.finfo(dtype).min) if dtype.startswith("float") else int(np.iinfo(dtype).min)


def most(dtype: str) -> float:
    """The largest finite number of a type."""
    return -least(dtype) if dtype.startswith("float") else -(least(dtype) + 1)


def largest_of(function: Function, a: Expr, b: Expr, dtype: str) -> Expr:
    """C++'s max(a, b): b only where a < b."""
    a, b = function.bind(a, "a", dtype), function.bind(b, "b", dtype)
    return select(a < b, b, a)


def smallest_of(function: Function, a: Expr, b: Expr, dtype: str) -> Expr:
    """C++'s min(a, b): b only where b < a."""
    a, b = function.bind(a, "a", dtype), function.bind(b, "b", dtype)
    return select(b < a, b, a)


def clamp_activation(function: Function, value: Expr, activation: int, dtype: str) -> Expr:
    """A number within the range of a fused activation; without one, floats are limited to the finite numbers."""
    require_supported(activation in _BOUNDS, f"fused activation number {activation} is not supported")
    low, high = _BOUNDS[activation]
    if activation == 0 and not dtype.startswith("float"):
        return value
    value = largest_of(function, value, number(least(dtype) if low is None else low, dtype), dtype)
    return smallest_of(function, value, number(most(dtype) if high is None else high, dtype), dtype)


def element_by_element(work: Lowering, compute: Callable[[Function, Expr], Expr], allowed: tuple[str, ...]) -> None:
    """output = compute(input), of one type."""
    dtype, function = common_type((work.tensor(0), work.output()), allowed), work.function
    compute_each(work, lambda x: compute(function, function.bind(x, "x", dtype)), "input", take=as_it_is)


def pair_by_pair(work: Lowering, compute: Callable[[Function, Expr, Expr], Expr], allowed: tuple[str, ...]) -> None:
    """output = compute(input 0, input 1) with broadcasting, of inputs of one type; the output may have another."""
    dtype, function = common_type((work.tensor(0), work.tensor(1)), allowed), work.function

    def result(x: Expr, y: Expr) -> Expr:
        return compute(function, function.bind(x, "x", dtype), function.bind(y, "y", dtype))

    compute_each(work, result, "first", "second", take=as_it_is)


_OF_32_BITS = ("float32", "int32")


def _divide_numbers(_: Function, x: Expr, y: Expr) -> Expr:
    """Whole numbers are cut towards zero."""
    dtype = dtype_of(x)
    if dtype == "float32":
        return x / y
    # A division by zero, where the reference stops, gives zero.
    zero = number(0, dtype)
    quotient = tirx.truncdiv(x, select(y == zero, number(1, dtype), y))
    return select(y == zero, zero, quotient)


def _squared_difference(function: Function, x: Expr, y: Expr) -> Expr:
    difference = function.bind(x - y, "difference", dtype_of(x))
    return difference * difference


def _floor_quotient(_: Function, x: Expr, y: Expr) -> Expr:
    """The largest whole number not above the quotient; floats are divided in double precision."""
    if dtype_of(x) == "int32":
        return tirx.floordiv(x, select(y == number(0, "int32"), number(1, "int32"), y))
    return cast(tirx.call_pure_extern("float64", "floor", cast(x, "float64") / cast(y, "float64")), "float32")


def _floor_rest(function: Function, x: Expr, y: Expr) -> Expr:
    """The rest of a division, with the divisor's sign."""
    rest = function.bind(library("fmodf", x, y), "rest", "float32")
    zero = number(0, "float32")
    differ = tirx.NE(cast(y < zero, "int32"), cast(rest < zero, "int32"))
    return select(both(tirx.NE(rest, zero), differ), rest + y, rest)


# operator -> types that it takes, what it makes of two numbers
_ARITHMETIC: dict[str, tuple[tuple[str, ...], Callable[[Function, Expr, Expr], Expr]]] = {
    "ADD": (NUMBERS, lambda _, x, y: x + y),
    "SUB": (NUMBERS, lambda _, x, y: x - y),
    "MUL": (NUMBERS, lambda _, x, y: x * y),
    "DIV": (_OF_32_BITS, _divide_numbers),
    "SQUARED_DIFFERENCE": (_OF_32_BITS, _squared_difference),
    "FLOOR_DIV": (_OF_32_BITS, _floor_quotient),
    "FLOOR_MOD": (REAL, _floor_rest),
}
_FUSING = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions", "DIV": "DivOptions"}


@lowering(*_ARITHMETIC, plain=True)
def lower_arithmetic(work: Lowering) -> None:
    """A number of the same type from input 0 and input 1."""
    name = work.operator.name
    allowed, compute = _ARITHMETIC[name]
    dtype = common_type((work.tensor(0), work.output()), allowed)
    options = work.operator.options(_FUSING[name]) if name in _FUSING else None
    # Files may leave the options out where there is no activation; tflite-micro takes no notice of this one:
    ignored = (name, dtype) == ("ADD", "int32")
    activation = 0 if options is None or ignored else int(options.FusedActivationFunction())

    def result(function: Function, x: Expr, y: Expr) -> Expr:
        value = compute(function, x, y)
        return clamp_activation(function, value, activation, dtype) if name in _FUSING else value

    pair_by_pair(work, result, allowed)


_EQUALITY = ("EQUAL", "NOT_EQUAL")
_CHOICES: dict[str, tuple[tuple[str, ...], Callable[[Expr, Expr], Expr]]] = {
    "MAXIMUM": (NUMBERS, lambda x, y: select(x > y, x, y)),
    "MINIMUM": (NUMBERS, lambda x, y: select(x < y, x, y)),
    "LOGICAL_AND": (("bool",), tirx.And),
    "LOGICAL_OR": (("bool",), tirx.Or),
    **{name: ((*NUMBERS, "bool") if name in _EQUALITY else NUMBERS, test) for name, test in COMPARISONS.items()},
}


@lowering(*_CHOICES, plain=True)
def lower_choose(work: Lowering) -> None:
    """One of input 0 and input 1, or whether something is true of them."""
    output, (allowed, compute) = work.output(), _CHOICES[work.operator.name]
    right = work.operator.name not in COMPARISONS or output.dtype == "bool"
    require_supported(right, f"output {output.name!r} is {output.dtype}, not bool")
    pair_by_pair(work, lambda _, x, y: compute(x, y), allowed)


_LOGISTIC_IS_ONE = 16.619047164916992  # above
_LOGISTIC_IS_EXP = -9.0  # below


def logistic(function: Function, x: Expr) -> Expr:
    """1 / (1 + exp(-x)), which ends at 1 and begins as the exponential itself."""
    middle = float_constant(1) / (float_constant(1) + library("expf", number(0, "float32") - x))
    power = function.bind(library("expf", x), "power", "float32")
    middle = function.bind(middle, "middle", "float32")
    return select(
        x > float_constant(_LOGISTIC_IS_ONE),
        float_constant(1),
        select(x < float_constant(_LOGISTIC_IS_EXP), power, middle),
    )


def _elu(function: Function, x: Expr) -> Expr:
    below = function.bind(library("expm1f", x), "below", "float32")
    return select(x < float_constant(0), below, x)


def _negate(_: Function, x: Expr) -> Expr:
    return x * float_constant(-1) if dtype_of(x) == "float32" else number(0, dtype_of(x)) - x


def _size(_: Function, x: Expr) -> Expr:
    zero = number(0, dtype_of(x))
    return library("fabsf", x) if dtype_of(x) == "float32" else select(x < zero, zero - x, x)


def _hard_swish(function: Function, x: Expr) -> Expr:
    inner = smallest_of(
        function,
        float_constant(6),
        largest_of(function, float_constant(0), x + float_constant(3), "float32"),
        "float32",
    )
    return x * inner / float_constant(6)


_OF_OTHERS = {"NEG": NUMBERS, "ABS": ("float32", "int32"), "LOGICAL_NOT": ("bool",)}  # all else is of float32
_FUNCTIONS: dict[str, Callable[[Function, Expr], Expr]] = {
    "NEG": _negate,
    "ABS": _size,
    "LOGICAL_NOT": lambda _, x: tirx.Not(x),
    "SQUARE": lambda _, x: x * x,
    "SQRT": lambda _, x: library("sqrtf", x),
    "RSQRT": lambda _, x: float_constant(1) / library("sqrtf", x),
    "EXP": lambda _, x: library("expf", x),
    "LOG": lambda _, x: library("logf", x),
    "SIN": lambda _, x: library("sinf", x),
    "COS": lambda _, x: library("cosf", x),
    "TANH": lambda _, x: library("tanhf", x),
    "FLOOR": lambda _, x: library("floorf", x),
    "CEIL": lambda _, x: library("ceilf", x),
    "ROUND": lambda _, x: library("rintf", x),  # halves to even
    "RELU": lambda _, x: select(x < float_constant(0), float_constant(0), x),
    "RELU6": lambda _, x: select(
        x > float_constant(6), float_constant(6), select(x < float_constant(0), float_constant(0), x)
    ),
    "RELU_N1_TO_1": lambda _, x: select(
        x > float_constant(1), float_constant(1), select(x < float_constant(-1), float_constant(-1), x)
    ),
    "RELU_0_TO_1": lambda _, x: select(
        x > float_constant(1), float_constant(1), select(x < float_constant(0), float_constant(0), x)
    ),
    "LOGISTIC": logistic,
    "ELU": _elu,
    "HARD_SWISH": _hard_swish,
}


@lowering(*_FUNCTIONS, plain=True)
def function_of_one(work: Lowering) -> None:
    """output = f(input)."""
    element_by_element(work, _FUNCTIONS[work.operator.name], _OF_OTHERS.get(work.operator.name, REAL))


@lowering("LEAKY_RELU", plain=True)
def leaky_relu(work: Lowering) -> None:
    """x above zero, alpha x elsewhere."""
    alpha = float_constant(work.options("LeakyReluOptions").Alpha())
    element_by_element(work, lambda _, x: select(x > float_constant(0), x, x * alpha), REAL)


@lowering("PRELU", plain=True)
def plain_prelu(work: Lowering) -> None:
    """x from zero on, alpha x below, with an alpha for each element or channel."""
    common_type((work.tensor(0), work.tensor(1), work.output()), REAL)

    def result(x: Expr, slope: Expr) -> Expr:
        x = work.function.bind(x, "x", "float32")
        return select(x >= float_constant(0), x, x * slope)

    compute_each(work, result, "input", "alpha", take=as_it_is)
