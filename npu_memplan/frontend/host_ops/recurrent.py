"""Operators that keep states: SVDF and UNIDIRECTIONAL_SEQUENCE_LSTM, and the gates of the latter.

Invariant: SVDF's state is a variable tensor that is updated in place: its rows move one place to the left, and the
newest activation of each filter takes the last place; sums over time start at zero, over ranks at the bias. All gates
of a step of an LSTM are computed from the hidden state before any of it changes; quantised gates see 3 integer bits
(scale 2^-12), their outputs have scale 2^-15. Gates and sums over time are planned scratch. An LSTM of int8 that
tflite-micro refuses (`holds_intermediates`) is LiteRT's: scales in float32, gates in 16-bit fixed point in place of a
table, products of the cell rounded once. Every step rounds and saturates as the reference's does; all values are int32
that hold int16. Constants are those of 32 bits, rounded to 16.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ...fixed_point import (
    EXP_MINUS_EIGHTH,
    LIMITS,
    ONE_THIRD,
    divide_scales,
    exp_steps,
    multiply_scales,
    quantise_multiplier,
    rounded_to_16_bits,
)
from ...models.network import holds_intermediates
from ...models.tensor import Tensor
from .activation import emit_sigmoid16, sigmoid_table
from .common import as_it_is, bias_of, require_same_type, stored_value, subtract_zero_point
from .elementwise import REAL, clamp_activation, common_type, largest_of, logistic, smallest_of
from .operator import Lowering, lowering, require_supported
from .tir import (
    Buffer,
    Expr,
    Function,
    cast,
    clamp,
    float_constant,
    int_constant,
    library,
    load,
    multiply_sum,
    multiply_when_running,
    number,
    raw_load,
    rounding_shift,
    select,
)

_ONE = 32767  # with 15 fraction bits
_48_OVER_17, _MINUS_32_OVER_17 = rounded_to_16_bits(1515870810), rounded_to_16_bits(-1010580540)


def sigmoid_of(function: Function, x: Expr, integer_bits: int) -> Expr:
    """1 / (1 + exp(-x)) with 15 fraction bits, of an int16 with so many integer bits."""
    x = function.bind(x, "x")
    power = _exp_on_negative(function, select(x < 0, x, int_constant(0) - x), integer_bits)
    ratio = _reciprocal_by_newton(function, power)
    positive = function.bind(_shifted_left(ratio, 1), "positive")
    result = select(x < 0, int_constant(_ONE) - positive, positive)
    return function.bind(select(x == 0, int_constant(1 << 14), result), "sigmoid")


def tanh_of(function: Function, x: Expr, integer_bits: int) -> Expr:
    """tanh(x) with 15 fraction bits, of an int16 with so many integer bits."""
    x = function.bind(x, "x")
    power = _exp_on_negative(
        function, select(x < 0, x, int_constant(0) - x), integer_bits + 1
    )  # exp(-2|x|): the same bits
    size = function.bind(_shifted_left(_reciprocal_by_newton(function, power) - int_constant(1 << 13), 2), "size")
    return function.bind(select(x == 0, int_constant(0), select(x < 0, int_constant(0) - size, size)), "tanh")


def _exp_on_negative(function: Function, a: Expr, integer_bits: int) -> Expr:
    """exp(a) with 15 fraction bits, for a <= 0."""
    fraction_bits = 15 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    a = function.bind(a, "exponent")
    within = function.bind((a & int_constant(quarter - 1)) - int_constant(quarter), "within_quarter")
    x = function.bind(_shifted_left(within, integer_bits) + int_constant(1 << 12), "x")
    x2 = function.bind(_high_mul(x, x), "x2")
    x3, x4 = function.bind(_high_mul(x2, x), "x3"), function.bind(_high_mul(x2, x2), "x4")
    inner = _high_mul(rounding_shift(function, x4, 2) + x3, int_constant(rounded_to_16_bits(ONE_THIRD))) + x2
    start = rounded_to_16_bits(EXP_MINUS_EIGHTH)
    series = _high_mul(int_constant(start), x + rounding_shift(function, inner, 1))
    result = function.bind(clamp(int_constant(start) + series, *LIMITS["int16"]), "power")
    remainder = function.bind(within - a, "remainder")
    for bit, multiplier in exp_steps(integer_bits, 15):
        taken = (remainder & int_constant(1 << bit)) != 0
        result = function.bind(select(taken, _high_mul(result, int_constant(multiplier)), result), "power")
    if integer_bits > 5:
        result = function.bind(select(a < int_constant(-(1 << (fraction_bits + 5))), int_constant(0), result), "power")
    return function.bind(select(a == 0, int_constant(_ONE), result), "power")


def _reciprocal_by_newton(function: Function, a: Expr) -> Expr:
    """2 / (1 + a) with 13 fraction bits, for a in [0, 1)."""
    half = function.bind((a + int_constant(_ONE + 1)) >> int_constant(1), "half_denominator")
    x = function.bind(int_constant(_48_OVER_17) + _high_mul(half, int_constant(_MINUS_32_OVER_17)), "reciprocal")
    for _ in range(3):
        error = int_constant(1 << 13) - _high_mul(half, x)
        x = function.bind(x + _shifted_left(_high_mul(x, error), 2), "reciprocal")
    return x


def _high_mul(a: Expr, b: Expr) -> Expr:
    """Rounding doubling high multiply of int16; a and b must not both be the smallest."""
    return (a * b + int_constant(1 << 14)) >> int_constant(15)


def _shifted_left(x: Expr, bits: int) -> Expr:
    return clamp(x * int_constant(1 << bits), *LIMITS["int16"])


@dataclass(frozen=True, slots=True)
class SvdfGeometry:
    """Extents of an SVDF."""

    batches: int
    depth: int  # elements of a row of the input
    filters: int
    memory: int  # activations of each filter that the state has
    units: int  # elements of a row of the output

    @classmethod
    def from_work(cls, work: Lowering) -> SvdfGeometry:
        """The geometry of the operator's tensors; refuses shapes that do not fit."""
        data, features, times, state, output = (*(work.tensor(i) for i in (0, 1, 2, 4)), work.output())
        rank = work.options("SVDFOptions").Rank()
        require_supported(state.is_variable, f"its state {state.name!r} is no variable tensor")
        require_supported(len(data.shape) == len(times.shape) == len(output.shape) == 2, "its tensors are no matrices")
        (batches, depth), (filters, memory) = data.shape, times.shape
        fits = state.shape == (batches, filters * memory) and features.shape == (filters, depth)
        shape = list(state.shape)
        message = f"{filters} filters of rank {rank}, memory {memory} do not fit state {shape}"
        require_supported(rank > 0 and filters % rank == 0 and fits, message)
        require_supported(output.shape == (batches, filters // rank), f"its output is {list(output.shape)}")
        return cls(batches, depth, filters, memory, filters // rank)


@lowering("SVDF", both=True)
def lower_svdf(work: Lowering) -> None:
    """Inputs: data, feature weights [filters, depth], time weights [filters, memory], bias, state."""
    options, plain = work.options("SVDFOptions"), work.plain
    data, features, times, state, output = (*(work.tensor(i) for i in (0, 1, 2, 4)), work.output())
    if plain:
        common_type((data, features, times, state, output), REAL)
    else:
        require_same_type((data, features, output), ("int8",))
        require_same_type((times, state), ("int8", "int16"))
    kind, rank = "float32" if plain else "int32", options.Rank()
    g = SvdfGeometry.from_work(work)
    batches, depth, filters, memory, units = g.batches, g.depth, g.filters, g.memory, g.units
    bias = bias_of(work, 3, units)
    if bias is not None:
        require_supported(bias.dtype == kind, f"bias {bias.name!r} is {bias.dtype}, not {kind}")

    state_scale = output_scale = 0.0
    if not plain:
        state_scale = data.scale * features.scale / state.scale
        output_scale = state.scale * times.scale / output.scale

    def rescale(total: Expr, scale: float) -> Expr:
        return multiply_when_running(work.function, total, *quantise_multiplier(scale))

    def activation(total: Expr) -> Expr:
        if plain:
            return total
        scaled = rescale(total, state_scale)
        return clamp(scaled, *LIMITS[state.dtype]) + int_constant(state.zero_point)

    def result(total: Expr) -> Expr:
        if plain:
            return clamp_activation(work.function, total, options.FusedActivationFunction(), "float32")
        value = rescale(total, output_scale)
        return clamp(value + int_constant(output.zero_point), *LIMITS["int8"])

    function = work.function
    take, weight = (as_it_is, as_it_is) if plain else (subtract_zero_point, stored_value)
    source, kept = work.read(0, "input"), work.state_buffer(4, "state")
    feature_weights, time_weights = work.read(1, "feature_weights"), work.read(2, "time_weights")
    offsets = work.read(3, "bias") if bias is not None else None
    target = work.write()
    total = function.local("sum", kind)
    with function.grid((batches, filters), ("b", "f")) as (b, f):
        with function.loop(memory - 1, "m") as m:
            function.store(kept, weight(kept, state, b, f * memory + m + 1), b, f * memory + m)
        total.set(number(0, kind))
        with function.loop(depth, "k") as k:
            total.add(weight(feature_weights, features, f, k) * take(source, data, b, k))
        function.store(kept, activation(total.read()), b, f * memory + int_constant(memory - 1))
    over_time = function.local("over_time", kind)
    with function.grid((batches, units), ("b", "u")) as (b, u):
        total.set(raw_load(offsets, [u]) if offsets is not None else number(0, kind))
        with function.loop(rank, "r") as r:
            over_time.set(number(0, kind))
            with function.loop(memory, "m") as m:
                f = u * rank + r
                over_time.add(weight(time_weights, times, f, m) * take(kept, state, b, f * memory + m))
            total.add(over_time.read())
        function.store(target, result(total.read()), b, u)
    scales = [] if plain else [quantise_multiplier(scale) for scale in (state_scale, output_scale)]
    wide = state.dtype == "int16"
    if scales and all(-31 <= shift <= 30 for _, shift in scales) and not (wide and state.zero_point):
        sizes = batches, depth, filters, memory, units, int(wide)
        zeros = data.zero_point, state.zero_point, output.zero_point
        parts = [part for m, shift in scales for part in (m, max(-shift, 0), max(shift, 0))]
        buffers = source, feature_weights, time_weights, offsets, kept, target
        work.kernel("kernel_forms kernel_dot kernel_svdf", *buffers, *sizes, *zeros, *parts)


# position of (input weights, recurrent weights, bias) of each gate among the inputs
GATES = {"forget": (2, 6, 13), "input": (1, 5, 12), "cell": (3, 7, 14), "output": (4, 8, 15)}
HIDDEN, CELL = 18, 19
_UNUSED = {9: "peephole", 10: "peephole", 11: "peephole", 16: "projection", 17: "projection"}
_GATE_SCALE, _OUTPUT_SCALE = 2.0**-12, 2.0**-15


_SUMS = {"int8": "int32", "int16": "int64", "float32": "float32"}  # type of the data -> of sums of products


@lowering("UNIDIRECTIONAL_SEQUENCE_LSTM", both=True)
def lower_lstm(work: Lowering) -> None:
    """Input and output are [batch, time, depth], or [time, batch, depth] when time major."""
    options, function, plain = work.options("UnidirectionalSequenceLSTMOptions"), work.function, work.plain
    data, hidden, cell, output = work.tensor(0), work.tensor(HIDDEN), work.tensor(CELL), work.output()
    _refuse(work, data, hidden, cell, output)
    clip = float(options.CellClip()) if plain else int(min(options.CellClip() / cell.scale, 32767.0))
    if data.dtype == "int8":
        work.describe("sequence_lstm", cell_clip=int(clip), time_major=int(options.TimeMajor()))
    litert = data.dtype == "int8" and holds_intermediates(work.network, work.operator)
    made_scale, made_zero = _made_as(work, hidden, litert)
    batch_axis, time_axis = (1, 0) if options.TimeMajor() else (0, 1)
    batches, steps, units = data.shape[batch_axis], data.shape[time_axis], output.shape[2]
    power_of_two = plain or math.frexp(cell.scale)[0] == 0.5
    require_supported(power_of_two, f"its cell state has scale {cell.scale}, which is no power of two")

    source, memory, cells = work.read(0, "input"), work.state_buffer(HIDDEN, "hidden"), work.state_buffer(CELL, "cell")
    weights = _read_weights(work)
    gate_of = _gate_function(work, litert)
    target = work.write()
    kind, of_sums = "float32" if plain else "int32", _SUMS[data.dtype]
    gates = function.scratch("gates", (len(GATES), units), "float32" if plain else "int16")
    total = function.local("sum", of_sums)
    take, element = (as_it_is, as_it_is) if plain else (subtract_zero_point, stored_value)

    def place(n: Expr, t: Expr, i: Expr) -> list[Expr]:
        return [t, n, i] if options.TimeMajor() else [n, t, i]

    def product(matrix: Buffer, position: int, unit: Expr, values: Callable[[Expr], Expr], of: Tensor) -> Expr:
        """The sum so far and row `unit` of weights times `values`, elements of `of`, as a gate sees it."""
        weight = work.tensor(position)
        with function.loop(weight.shape[1], "k") as k:
            total.add(cast(values(k) * element(matrix, weight, unit, k), of_sums))
        if plain:
            return total.read()
        scale = multiply_scales(of.scale, weight.scale, single=litert) / _GATE_SCALE
        scaled = multiply_sum(function, total.read(), *quantise_multiplier(scale))
        return scaled if litert else _clamp_int16(scaled)

    with function.grid((batches, steps), "nt") as (n, t):
        with function.loop(units, "u") as u:
            for row, (gate, (into, recurrent, bias)) in enumerate(weights.items()):
                total.set(float_constant(0) if plain else load(bias, u))
                fresh = product(into, GATES[gate][0], u, lambda k: take(source, data, *place(n, t, k)), data)
                fresh = function.bind(fresh + raw_load(bias, [u]) if plain else _clamp_int16(fresh), "fresh", kind)
                total.set(number(0, of_sums))
                seen = fresh + product(recurrent, GATES[gate][1], u, lambda k: take(memory, hidden, n, k), hidden)
                seen = function.bind(seen if plain else _clamp_int16(seen), "gate", kind)
                function.store(gates, gate_of(seen, gate == "cell", 3), row, u)
        with function.loop(units, "u") as u:
            forget, entry, candidate, exit_ = (element(gates, cell, int_constant(row), u) for row in range(len(GATES)))
            state = _next(work, forget * element(cells, cell, n, u), entry * candidate, clip, litert)
            function.store(cells, state, n, u)
            result = gate_of(state, True, 0 if plain else 14 + math.frexp(cell.scale)[1]) * exit_
            if not plain:
                scale = quantise_multiplier(divide_scales(_OUTPUT_SCALE * _OUTPUT_SCALE, made_scale, single=litert))
                result = multiply_when_running(function, result, *scale) + int_constant(made_zero)
                result = clamp(result, *LIMITS[data.dtype])
            result = function.bind(result, "result", kind)
            function.store(memory, result, n, u)
            function.store(target, result, *place(n, t, u))


def _made_as(work: Lowering, hidden: Tensor, litert: bool) -> tuple[float, int]:
    """Scale and zero point of a result: the hidden state's, for LiteRT those of the fifth intermediate tensor."""
    if not litert:
        return hidden.scale, hidden.zero_point
    given = work.operator.intermediates
    require_supported(len(given) == 5, f"it has {len(given)} intermediate tensors, not 5")
    tensor = work.network.tensors[given[4]]
    return tensor.scale, tensor.zero_point


def _gate_function(work: Lowering, litert: bool) -> Callable[[Expr, bool, int], Expr]:
    """A function of (x, is it tanh, integer bits of x): the gate's value with 15 fraction bits, or float32."""
    function = work.function
    if work.plain:
        return lambda x, is_tanh, _: library("tanhf", x) if is_tanh else logistic(function, x)
    if litert:
        return lambda x, is_tanh, bits: (tanh_of if is_tanh else sigmoid_of)(function, x, bits)
    table = work.table("sigmoid", sigmoid_table())

    def gate(x: Expr, is_tanh: bool, integer_bits: int) -> Expr:
        shift = integer_bits - 3
        thirds = (
            x * int_constant(3 << shift)
            if shift >= 0
            else (x * int_constant(3) + int_constant(1 << (-shift - 1))) >> int_constant(-shift)
        )
        return emit_sigmoid16(function, table, thirds, is_tanh)

    return gate


def _next(work: Lowering, old: Expr, new: Expr, clip: float, litert: bool) -> Expr:
    """The next cell state: the sum of the `old` part and the `new` one, limited by `clip` where that is above 0."""
    function, cell = work.function, work.tensor(CELL)
    if work.plain:
        old, new = function.bind(old, "old", "float32"), function.bind(new, "new", "float32")
        state = function.bind(old + new, "state", "float32")
        if clip <= 0:
            return state
        limited = largest_of(function, state, float_constant(-clip), "float32")
        return function.bind(smallest_of(function, limited, float_constant(clip), "float32"), "state", "float32")
    if litert:
        shift = 29 + math.frexp(cell.scale)[1]  # of products of two gates to the cell's scale
        require_supported(15 <= shift <= 21, f"its cell state has scale {cell.scale}: LiteRT takes 2^-15 to 2^-9")
        state = _clamp_int16(rounding_shift(function, old, 15) + rounding_shift(function, new, shift))
    else:
        old = function.bind(_scale_to_int16(function, old, _OUTPUT_SCALE), "old")
        state = _clamp_int16(old + _scale_to_int16(function, new, _OUTPUT_SCALE * _OUTPUT_SCALE / cell.scale))
    return function.bind(clamp(state, -int(clip), int(clip)) if clip > 0 else state, "state")


def _read_weights(work: Lowering) -> dict[str, list[Buffer]]:
    """Buffers of (input weights, recurrent weights, bias) of each gate."""
    names = ("input", "recurrent", "bias")
    return {
        gate: [work.read(p, f"{gate}_{what}") for p, what in zip(places, names, strict=True)]
        for gate, places in GATES.items()
    }


def _refuse(work: Lowering, data: Tensor, hidden: Tensor, cell: Tensor, output: Tensor) -> None:
    """Refuse types that do not go together, and what `require_whole_lstm` refuses."""
    if not work.plain:
        require_same_type((data, hidden, output), ("int8", "int16"))
        require_same_type((cell,), ("int16",))
    require_whole_lstm(work, data, hidden, cell, output)
    for into, recurrent, bias in GATES.values():
        if not work.plain:
            require_same_type((work.tensor(into), work.tensor(recurrent)), ("int8",))
            require_same_type((work.tensor(bias),), (_SUMS[data.dtype],), scaled=False)
    if work.plain:
        common_type((data, hidden, cell, output), REAL)


def require_whole_lstm(work: Lowering, data: Tensor, hidden: Tensor, cell: Tensor, output: Tensor) -> None:
    """Refuse what TFLite Micro's LSTM has not, and weights of other shapes."""
    for position, what in _UNUSED.items():
        require_supported(work.optional(position) is None, f"it has a {what} (input {position})")
    require_supported(all(work.optional(position) is None for position in range(20, 24)), "it has layer normalisation")
    for tensor in (hidden, cell):
        require_supported(tensor.is_variable, f"its state {tensor.name!r} is no variable tensor")
    ranks = (len(data.shape), len(output.shape), len(hidden.shape), len(cell.shape))
    require_supported(ranks == (3, 3, 2, 2), f"its input, output and states have {ranks} dimensions, not 3, 3, 2 and 2")
    depth, units = data.shape[2], output.shape[2]
    for into, recurrent, bias in GATES.values():
        for position, wanted in ((into, (units, depth)), (recurrent, (units, units)), (bias, (units,))):
            shape = work.tensor(position).shape
            require_supported(shape == wanted, f"input {position} has shape {list(shape)}, not {list(wanted)}")


def _clamp_int16(value: Expr) -> Expr:
    return clamp(value, *LIMITS["int16"])


def _scale_to_int16(function: Function, value: Expr, real: float) -> Expr:
    """`value`, an int32 or an int64, times a real number, as an int16."""
    return _clamp_int16(multiply_sum(function, value, *quantise_multiplier(real)))
