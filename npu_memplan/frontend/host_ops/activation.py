"""Functions of one quantised value: RELU and its kin, ELU, HARD_SWISH, LOGISTIC, TANH, EXP, LOG, GELU, ...

Invariant: an 8-bit operator is a table of 256 results that are computed here, when compiling, by the reference's own
arithmetic (EXP, LOG, ELU and GELU as LiteRT fills its tables: a function of float32 numbers, rounded once); int16
operators compute when running (EXP and LOG between the 513 entries of LiteRT's table). Interpolated tables are the
reference's own: 256 values of the sigmoid with 16 fraction bits, each lowered by half the error of linear interpolation
around it; 513 of exp, log and 1 / (1 + x), in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ...ethosu.lower import tables
from ...ethosu.lower.operands import LayerTensor
from ...ethosu.lower.scaling import SQUASH_LIMIT, squash_scale
from ...fixed_point import (
    LIMITS,
    SOFTMAX_UNIT,
    IntArray,
    activation_range,
    divide_scales,
    interpolation_table,
    multiply_by_quantised,
    multiply_scales,
    quantise_multiplier,
    round_half_away,
    softmax_tables,
    to_float32,
)
from ...models.tensor import Tensor
from .common import (
    ACTIVATION_TYPES,
    EIGHT_BITS,
    ends,
    look_up,
    require_rows,
    require_same_shape,
    require_same_type,
    stored_value,
)
from .elementwise import compute_each
from .operator import Lowering, lowering, require_supported
from .tir import (
    Buffer,
    Expr,
    Function,
    cast,
    clamp,
    high_mul,
    int_constant,
    inverse_root,
    leading_zeros,
    load,
    maximum_of,
    multiply_when_running,
    row_indices,
    select,
    smallest,
)


def sigmoid_table() -> npt.NDArray[np.uint16]:
    """sigmoid(i / 24), i = 0..255, with 16 fraction bits."""

    def sigmoid(x: float) -> float:
        return 1.0 / (1.0 + math.exp(-x))

    values = []
    for i in range(255):
        chord = (sigmoid((i - 0.5) / 24) + sigmoid((i + 0.5) / 24)) / 2
        error = (chord - sigmoid(i / 24)) * 65536
        values.append(math.floor(65536 * sigmoid(i / 24) - error / 2 + 0.5))
    return np.array([*values, 65535], np.uint16)


def store_sigmoid16(work: Lowering, data: Tensor, output: Tensor, is_tanh: bool) -> None:
    """Statements of one int16 operator; the input is brought to units of 1 / (3 x 4096)."""
    require_supported(data.zero_point == output.zero_point == 0, "int16 needs zero points of 0")
    require_same_shape(data, output)
    right = output.scale == 2.0**-15
    require_supported(right, f"its int16 output has scale {output.scale}; the reference demands 1/32768")
    multiplier, shift = _input_scale(data.scale, is_tanh)
    source, table = work.read(0, "input"), work.table("sigmoid", sigmoid_table())

    def result(place: list[Expr]) -> Expr:
        x = load(source, *place)
        if multiplier >= SQUASH_LIMIT:  # twice that is one already
            x = clamp(x, -2, 2)
        x = x * int_constant(min(multiplier, 2 * SQUASH_LIMIT))
        if shift:
            x = (x + int_constant(1 << (shift - 1))) >> int_constant(shift)
        return emit_sigmoid16(work.function, table, x, is_tanh)

    work.fill(result)


def emit_sigmoid16(function: Function, table: Buffer, x: Expr, is_tanh: bool) -> Expr:
    """sigmoid or tanh with 15 fraction bits of x / (3 x 4096), by interpolation in `sigmoid_table`."""
    bits = 8 if is_tanh else 9
    x = function.bind(x, "x")
    size = function.bind(select(x < 0, int_constant(0) - x, x), "size")
    index = function.bind(smallest(size >> int_constant(bits), int_constant(254)), "index")
    lower = function.bind(load(table, index), "lower")
    between = (size & int_constant((1 << bits) - 1)) * (load(table, index + int_constant(1)) - lower)
    saturated = int_constant(0xFFFF << 8 if is_tanh else 0x7FFF << 10)
    inside = (lower << int_constant(bits)) + between
    y = function.bind(select((size >> int_constant(bits)) >= 255, saturated, inside), "y")
    if is_tanh:
        one, half = 1 << 23, 1 << 7
        return select(x >= 0, y + int_constant(half - one), int_constant(one + half - 1) - y) >> int_constant(8)
    half = 1 << 9
    return select(x >= 0, y + int_constant(half), int_constant((1 << 25) + half - 1) - y) >> int_constant(10)


def _input_scale(scale: float, is_tanh: bool) -> tuple[int, int]:
    """(multiplier, right shift) from the input's units to 1 / (3 x 4096)."""
    mantissa, exponent = math.frexp(scale)
    if mantissa == 0.5:  # a power of two: 2^(exponent - 1)
        left = 12 + exponent - 1
        if left == 0 or (is_tanh and left == 1):
            return 3 << left, 0
    squashed = squash_scale(scale)
    return squashed.multiplier, squashed.shift


def store_softmax16(work: Lowering, data: Tensor, output: Tensor, beta: float) -> None:
    """Statements of the operator."""
    require_same_type((data, output), ("int16",))
    right = data.zero_point == output.zero_point == 0 and math.isclose(output.scale, 1 / 32768, rel_tol=1e-3)
    require_supported(right, "int16 needs zero points of 0 and an output scale of 1/32768")
    multiplier, shift = quantise_multiplier(data.scale * beta / SOFTMAX_UNIT)
    require_rows(data, output)
    depth = data.shape[-1]
    rows = math.prod(data.shape) // depth
    function = work.function
    source = work.read(0, "input")
    exponential, inverse = softmax_tables()
    exp_table, inverse_table = work.table("exp_table", exponential), work.table("inverse_table", inverse)
    target = work.write()
    exponents = function.scratch("exponents", (depth,), "int16")
    peak, total = function.local("peak"), function.local("total")
    with function.loop(rows, "row") as row:
        peak.set(int_constant(-32768))
        with function.loop(depth, "c") as c:
            peak.set(maximum_of(peak.read(), load(source, *row_indices(row, c, data.shape))))
        total.set(int_constant(0))
        with function.loop(depth, "c") as c:
            difference = load(source, *row_indices(row, c, data.shape)) - peak.read()
            scaled = multiply_when_running(function, difference, multiplier, shift)
            power = function.bind(_look_up(function, exp_table, scaled + int_constant(32767)), "power")
            function.store(exponents, power, c)
            total.add(power)
        zeros = leading_zeros(function, total.read())
        shifted = (cast(total.read(), "int64") << cast(zeros - int_constant(1), "int64")) + int_constant(
            1 << 13, "int64"
        )
        place = cast(shifted >> int_constant(14, "int64"), "int32") - int_constant((1 << 15) + (1 << 16))
        reciprocal = function.bind(_look_up(function, inverse_table, place), "inverse")
        right = function.bind(int_constant(31) - zeros, "right")
        half = function.bind(int_constant(1) << (right - int_constant(1)), "half")
        with function.loop(depth, "c") as c:
            product = cast(load(exponents, c), "int64") * cast(reciprocal, "int64") + cast(half, "int64")
            result = cast(product >> cast(right, "int64"), "int32")
            function.store(target, clamp(result, 0, 32767), *row_indices(row, c, output.shape))


def store_function16(work: Lowering, data: Tensor, output: Tensor, curve: Callable[[float], float]) -> None:
    """Statements of one int16 operator that is `curve`; LiteRT's slopes and results have 16 bits, and wrap."""
    require_supported(data.zero_point == output.zero_point == 0, "int16 needs zero points of 0")
    require_same_shape(data, output)
    source = work.read(0, "input")
    table = work.table("table", interpolation_table(curve, to_float32(data.scale), 0, to_float32(output.scale)))
    work.fill(lambda place: _wrap_int16(_look_up(work.function, table, load(source, *place), _wrap_int16)))


def _wrap_int16(value: Expr) -> Expr:
    """The 16 bits of a number, with their sign."""
    return ((value + int_constant(32768)) & int_constant(65535)) - int_constant(32768)


def _look_up(
    function: Function, table: Buffer, value: Expr, slope_of: Callable[[Expr], Expr] = lambda difference: difference
) -> Expr:
    """A table of 512 steps over the int16 range, interpolated; `value` is limited to int16 first."""
    value = function.bind(clamp(value, -32768, 32767), "place")
    index = function.bind((value >> int_constant(7)) + int_constant(256), "index")
    base = function.bind(load(table, index), "base")
    slope = slope_of(load(table, index + int_constant(1)) - base)
    return base + ((slope * (value & int_constant(127)) + int_constant(64)) >> int_constant(7))


Reference = Callable[[IntArray], IntArray]


def store_table(work: Lowering, reference: Reference) -> None:
    """The whole operator as a table: `reference` of every value that its input can hold, clamped."""
    output, (least, most) = work.output(), LIMITS[work.tensor(0).dtype]
    require_same_shape(work.tensor(0), output)
    values = reference(np.arange(least, most + 1, dtype=np.int64))
    work.describe("table")
    look_up(work, np.clip(values, *LIMITS[output.dtype]).astype(output.dtype))


@lowering("RELU")
def lower_relu(work: Lowering) -> None:
    """max(x, 0), rescaled to the output's scale."""
    data, output = ends(work, ACTIVATION_TYPES)
    if data.dtype in EIGHT_BITS:
        limits = activation_range(1, output.scale, output.zero_point, output.dtype)
        return _clip_rescaled(work, limits, single=data.dtype == "uint8")
    scale = quantise_multiplier(data.scale / output.scale)
    limits, zero = activation_range(1, output.scale, output.zero_point, output.dtype), int_constant(output.zero_point)
    compute_each(work, lambda x: clamp(multiply_when_running(work.function, x, *scale) + zero, *limits), "input")


def _clip_rescaled(work: Lowering, limits: tuple[int, int], *, single: bool) -> None:
    """Values of 8 bits in the output's scale, then limited; `single`: LiteRT's."""
    data, output = work.tensor(0), work.output()
    scale = quantise_multiplier(divide_scales(data.scale, output.scale, single=single))
    store_table(
        work, lambda v: np.clip(output.zero_point + multiply_by_quantised(v - data.zero_point, *scale), *limits)
    )


@lowering("RELU6")
def lower_relu6(work: Lowering) -> None:
    """min(max(x, 0), 6); LiteRT rescales uint8, and tflite-micro, which has the other types, does not."""
    data, output = ends(work, ACTIVATION_TYPES)
    if data.dtype == "uint8":
        return _clip_rescaled(work, activation_range(3, output.scale, output.zero_point, output.dtype), single=True)
    six = round_half_away(float(to_float32(6) / to_float32(data.scale))) + data.zero_point
    low, high = data.zero_point, min(six, LIMITS[data.dtype][1])
    compute_each(work, lambda x: clamp(x, low, high), "input", take=stored_value)


@lowering("LEAKY_RELU")
def leaky_relu(work: Lowering) -> None:
    """x for x >= 0, alpha x below."""
    alpha = float(work.options("LeakyReluOptions").Alpha())
    data, output = ends(work, ACTIVATION_TYPES)
    single = data.dtype == "uint8"  # LiteRT's
    below_zero = multiply_scales(data.scale, alpha, single=single)
    identity = quantise_multiplier(divide_scales(data.scale, output.scale, single=single))
    multiplier, shift = quantise_multiplier(divide_scales(below_zero, output.scale, single=single))
    sign = -1 if multiplier < 0 else 1

    def reference(values: IntArray) -> IntArray:
        x = values - data.zero_point
        below = sign * multiply_by_quantised(x, abs(multiplier), shift)
        return output.zero_point + np.where(x >= 0, multiply_by_quantised(x, *identity), below)

    def when_running(x: Expr) -> Expr:
        above = multiply_when_running(work.function, x, *identity)
        return select(x >= 0, above, multiply_when_running(work.function, x, abs(multiplier), shift) * sign)

    _table_or_loop(work, reference, when_running)


@lowering("ABS")
def lower_absolute(work: Lowering) -> None:
    """|x|, rescaled only when the scales differ."""
    data, output = ends(work, ("int8", "int16"))
    rescales = to_float32(data.scale) != to_float32(output.scale)
    scale = quantise_multiplier(data.scale / output.scale)

    def reference(values: IntArray) -> IntArray:
        x = np.abs(values - data.zero_point)
        return output.zero_point + (multiply_by_quantised(x, *scale) if rescales else x)

    def when_running(x: Expr) -> Expr:
        size = select(x < 0, int_constant(0) - x, x)
        return multiply_when_running(work.function, size, *scale) if rescales else size

    _table_or_loop(work, reference, when_running)


def _table_or_loop(work: Lowering, reference: Reference, when_running: Callable[[Expr], Expr]) -> None:
    """A table for 8 bits, code for int16: of an element's distance from the zero point that of the result's."""
    output = work.output()
    if output.dtype != "int16":
        return store_table(work, reference)

    def result(x: Expr) -> Expr:
        value = when_running(work.function.bind(x, "x")) + int_constant(output.zero_point)
        return clamp(value, *LIMITS[output.dtype])

    compute_each(work, result, "input")


@lowering("RSQRT")
def lower_rsqrt(work: Lowering) -> None:
    """1 / sqrt(x), of int8 by the NPU's table; where the reference stops, below zero, the largest value."""
    data, output = ends(work, ("int8", "int16"))
    factor, shift = quantise_multiplier(1 / float(np.sqrt(to_float32(data.scale)) * to_float32(output.scale)))
    most = LIMITS[output.dtype][1] - output.zero_point

    def when_running(x: Expr) -> Expr:
        multiplier, right = inverse_root(work.function, x)
        root = high_mul(int_constant(1) << (int_constant(tables.ROOT_BITS) - right), multiplier)
        scaled = multiply_when_running(work.function, root, factor, shift - tables.ROOT_BITS)
        return select(x <= 0, int_constant(most), scaled)

    _table_or_loop(work, lambda _: np.array(tables.rsqrt_table(_for_npu(data), _for_npu(output))), when_running)


def _for_npu(tensor: Tensor) -> LayerTensor:
    return LayerTensor(tensor.name, tensor.shape, tensor.dtype, tensor.scale, tensor.zero_point)


@lowering("HARD_SWISH")
def hard_swish(work: Lowering) -> None:
    """x min(max(x + 3, 0), 6) / 6, in the reference's 16-bit arithmetic."""
    data, output = ends(work, EIGHT_BITS)
    _, out_shift = quantise_multiplier(
        float(to_float32(1.0 / 128.0) * to_float32(data.scale) / to_float32(output.scale))
    )
    require_supported(out_shift <= 0, f"its output scale {output.scale} is too small for input scale {data.scale}")
    store_table(work, lambda _: np.array(tables.hard_swish(_for_npu(data), _for_npu(output))))


@lowering("LOGISTIC", "TANH")
def lower_sigmoidal(work: Lowering) -> None:
    """1 / (1 + exp(-x)), or tanh(x)."""
    data, output = ends(work, ACTIVATION_TYPES)
    is_tanh = work.operator.name == "TANH"
    if data.dtype == "int16":
        return store_sigmoid16(work, data, output, is_tanh)
    if data.dtype == "uint8":
        real = tables.tanh if is_tanh else tables.sigmoid  # LiteRT fills its tables in float
        return store_table(work, lambda _: np.array(real(_for_npu(data), _for_npu(output))))
    usual = is_tanh or output.zero_point == -128
    require_supported(usual, f"its output has zero point {output.zero_point}; the reference demands -128")
    fixed = tables.tanh_int8 if is_tanh else tables.sigmoid_int8
    return store_table(work, lambda _: np.array(fixed(_for_npu(data))))


def _gelu(x: float) -> float:
    return float(to_float32(0.5 * x) * to_float32(1 + to_float32(math.erf(x * math.sqrt(0.5)))))


def _gelu_by_tanh(x: float) -> float:
    inner = to_float32(math.sqrt(2 / math.pi)) * (
        to_float32(x) + to_float32(0.044715) * to_float32(x) * to_float32(x) * to_float32(x)
    )
    return float(to_float32(0.5) * to_float32(x) * (to_float32(1) + to_float32(math.tanh(inner))))


def _logarithm(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


_INFINITE = 128 * math.log(2)  # from here on exp() of float32


def _exponential(x: float) -> float:
    return math.exp(x) if x < _INFINITE else math.inf


def _elu(x: float) -> float:
    return float(to_float32(math.exp(x)) - to_float32(1)) if x < 0 else x


_OF_REAL_NUMBERS = {"EXP": _exponential, "LOG": _logarithm, "ELU": _elu, "GELU": _gelu}
_TYPES_OF_TABLES = {"EXP": ("int8", "int16"), "LOG": ("int8", "int16"), "GELU": EIGHT_BITS}


@lowering(*_OF_REAL_NUMBERS)
def function_by_table(work: Lowering) -> None:
    """output = f(input), of float32 numbers."""
    function = _OF_REAL_NUMBERS[work.operator.name]
    data, output = ends(work, _TYPES_OF_TABLES.get(work.operator.name, ("int8",)))
    if data.dtype == "int16":
        least = float(to_float32(output.scale) * to_float32(LIMITS["int16"][0]))
        return store_function16(work, data, output, lambda x: least if function(x) == -math.inf else function(x))
    options = work.operator.options("GeluOptions") if function is _gelu else None
    if options is not None and options.Approximate():
        function = _gelu_by_tanh
    return store_table(work, lambda _: np.array(tables.float32_function(function, _for_npu(data), _for_npu(output))))


@lowering("NEG")
def lower_negate(work: Lowering) -> None:
    """The stored number with the other sign: LiteRT takes no notice of scales, and the least int8 is its own."""
    ends(work, ("int8",))
    store_table(work, lambda values: np.where(values == LIMITS["int8"][0], values, -values))


@lowering("RELU_0_TO_1", "RELU_N1_TO_1")
def clamp_between(work: Lowering) -> None:
    """min(max(x, 0), 1) or min(max(x, -1), 1), rescaled to the output's scale."""
    _, output = ends(work, EIGHT_BITS)
    low, high = activation_range(2, output.scale, output.zero_point, output.dtype)
    _clip_rescaled(work, (low if work.operator.name == "RELU_N1_TO_1" else output.zero_point, high), single=True)
