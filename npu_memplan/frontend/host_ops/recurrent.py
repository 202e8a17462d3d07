"""SVDF, a fully connected layer factored into features and time, and UNIDIRECTIONAL_SEQUENCE_LSTM; both keep states.

Invariant: SVDF's state is a variable tensor that is updated in place: its rows move one place to the left, and the
newest activation of each filter takes the last place; sums over time start at zero, over ranks at the bias. All gates
of a step of an LSTM are computed from the hidden state before any of it changes; quantised gates see 3 integer bits
(scale 2^-12), their outputs have scale 2^-15. Gates and sums over time are planned scratch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...fixed_point.multiplier import LIMITS, quantise_multiplier
from ...models.tensor import Tensor
from .common import as_it_is, bias_of, centred, require_same_type, stored
from .fixed_tir import multiply_by_quantised, multiply_sum
from .interpolated import sigmoid16, sigmoid_table
from .operator import Lowering, lowering, require
from .plain.functions import logistic
from .plain.numbers import REAL, activated, largest_of, same, smallest_of
from .tir import Buffer, Expr, cast, clamp, const, library, load, number, raw_load, real


@lowering("SVDF")
def svdf(work: Lowering) -> None:
    """Inputs: data, feature weights [filters, depth], time weights [filters, memory], bias, state."""
    work.options("SVDFOptions")
    data, features, times, state, output = (*(work.tensor(i) for i in (0, 1, 2, 4)), work.output())
    require_same_type((data, features, output), ("int8",))
    require_same_type((times, state), ("int8", "int16"))

    def activation(total: Expr) -> Expr:
        scale = quantise_multiplier(data.scale * features.scale / state.scale)
        scaled = multiply_by_quantised(work.function, total, *scale)
        return clamp(scaled, *LIMITS[state.dtype]) + const(state.zero_point)

    def result(total: Expr) -> Expr:
        scale = quantise_multiplier(state.scale * times.scale / output.scale)
        value = multiply_by_quantised(work.function, total, *scale) + const(output.zero_point)
        return clamp(value, *LIMITS["int8"])

    _factored(work, "int32", activation, result)


@lowering("SVDF", plain=True)
def svdf_of_floats(work: Lowering) -> None:
    """The same of float32."""
    fused = work.options("SVDFOptions").FusedActivationFunction()
    same((*(work.tensor(i) for i in (0, 1, 2, 4)), work.output()), REAL)
    _factored(work, "float32", lambda x: x, lambda total: activated(work.function, total, fused, "float32"))


def _factored(work: Lowering, kind: str, activation: Callable[[Expr], Expr], result: Callable[[Expr], Expr]) -> None:
    """The statements; sums are of type `kind`, one over the depth becomes an activation, one over ranks a result."""
    data, features, times, state = (work.tensor(i) for i in (0, 1, 2, 4))
    rank = work.options("SVDFOptions").Rank()
    require(state.is_variable, f"its state {state.name!r} is no variable tensor")
    (batches, depth), (filters, memory) = data.shape, times.shape
    fits = state.shape == (batches, filters * memory) and features.shape == (filters, depth)
    shape = list(state.shape)
    message = f"{filters} filters of rank {rank}, memory {memory} do not fit state {shape}"
    require(filters % rank == 0 and fits, message)
    units = filters // rank
    bias = bias_of(work, 3, units)
    if bias is not None:
        require(bias.dtype == kind, f"bias {bias.name!r} is {bias.dtype}, not {kind}")

    function = work.function
    take, weight = (as_it_is, as_it_is) if work.plain else (centred, stored)
    source, kept = work.read(0, "input"), work.state(4, "state")
    feature_weights, time_weights = work.read(1, "feature_weights"), work.read(2, "time_weights")
    offsets = work.read(3, "bias") if bias is not None else None
    target = work.write()
    over_time = function.scratch("over_time", (batches, filters), kind)
    total = function.local("sum", kind)
    with function.grid((batches, filters), ("b", "f")) as (b, f):
        with function.loop(memory - 1, "m") as m:
            function.store(kept, weight(kept, state, b, f * memory + m + 1), b, f * memory + m)
        total.set(number(0, kind))
        with function.loop(depth, "k") as k:
            total.add(weight(feature_weights, features, f, k) * take(source, data, b, k))
        function.store(kept, activation(total.get()), b, f * memory + const(memory - 1))
    with function.grid((batches, filters), ("b", "f")) as (b, f):
        total.set(number(0, kind))
        with function.loop(memory, "m") as m:
            total.add(weight(time_weights, times, f, m) * take(kept, state, b, f * memory + m))
        function.store(over_time, total.get(), b, f)
    with function.grid((batches, units), ("b", "u")) as (b, u):
        total.set(raw_load(offsets, [u]) if offsets is not None else number(0, kind))
        with function.loop(rank, "r") as r:
            total.add(raw_load(over_time, [b, u * rank + r]))
        function.store(target, result(total.get()), b, u)


# position of (input weights, recurrent weights, bias) of each gate among the inputs
GATES = {"forget": (2, 6, 13), "input": (1, 5, 12), "cell": (3, 7, 14), "output": (4, 8, 15)}
HIDDEN, CELL = 18, 19
_UNUSED = {9: "peephole", 10: "peephole", 11: "peephole", 16: "projection", 17: "projection"}
_GATE_SCALE, _OUTPUT_SCALE = 2.0**-12, 2.0**-15


@lowering("UNIDIRECTIONAL_SEQUENCE_LSTM")
def lstm(work: Lowering) -> None:
    """Input and output are [batch, time, depth], or [time, batch, depth] when time major."""
    options = work.options("UnidirectionalSequenceLSTMOptions")
    data, hidden, cell, output = work.tensor(0), work.tensor(HIDDEN), work.tensor(CELL), work.output()
    _refuse(work, data, hidden, cell, output)
    clip = int(min(options.CellClip() / cell.scale, 32767.0))
    wide = data.dtype == "int16"
    if not wide:
        work.describe("sequence_lstm", cell_clip=clip, time_major=int(options.TimeMajor()))
    batch_axis, time_axis = (1, 0) if options.TimeMajor() else (0, 1)
    batches, steps, depth = data.shape[batch_axis], data.shape[time_axis], data.shape[2]
    units = output.shape[2]
    mantissa, exponent = math.frexp(cell.scale)
    require(mantissa == 0.5, f"its cell state has scale {cell.scale}, which is no power of two")
    tanh_shift = 12 + exponent - 1  # the scale is 2^(exponent - 1)

    function = work.function
    source = work.read(0, "input")
    memory, cells = work.state(HIDDEN, "hidden"), work.state(CELL, "cell")
    weights = read_weights(work)
    table = work.table("sigmoid", sigmoid_table())
    target = work.write()
    gates = function.scratch("gates", (len(GATES), units), "int16")
    total = function.local("sum", "int64" if wide else "int32")

    def dot(matrix: Any, unit: Expr, extent: int, value: Any) -> None:
        with function.loop(extent, "k") as k:
            product = value(k) * load(matrix, unit, k)
            total.add(cast(product, "int64") if wide else product)

    def place(n: Expr, t: Expr, i: Expr) -> list[Expr]:
        return [t, n, i] if options.TimeMajor() else [n, t, i]

    with function.grid((batches, steps), "nt") as (n, t):
        with function.loop(units, "u") as u:
            for number, (gate, places) in enumerate(GATES.items()):
                into, recurrent, bias = weights[gate]
                total.set(load(bias, u))
                dot(into, u, depth, lambda k: load(source, *place(n, t, k)) - const(data.zero_point))
                fresh = _scaled(function, total.get(), data.scale * work.tensor(places[0]).scale / _GATE_SCALE)
                fresh = function.bind(fresh, "fresh")
                total.set(const(0, "int64" if wide else "int32"))
                dot(recurrent, u, units, lambda k: load(memory, n, k) - const(hidden.zero_point))
                kept = _scaled(function, total.get(), hidden.scale * work.tensor(places[1]).scale / _GATE_SCALE)
                x = function.bind(_clamp16(fresh + kept), "gate") * const(3)
                function.store(gates, sigmoid16(function, table, x, gate == "cell"), number, u)
        with function.loop(units, "u") as u:
            forget, entry, candidate, exit_ = (load(gates, number, u) for number in range(4))
            old = _scaled(function, forget * load(cells, n, u), _OUTPUT_SCALE * cell.scale / cell.scale)
            old = function.bind(old, "old")
            new = _scaled(function, entry * candidate, _OUTPUT_SCALE * _OUTPUT_SCALE / cell.scale)
            state = _clamp16(old + new)
            if clip > 0:
                state = clamp(state, -clip, clip)
            state = function.bind(state, "state")
            function.store(cells, state, n, u)
            if tanh_shift >= 0:
                x = state * const(3 << tanh_shift)
            else:
                x = (state * const(3) + const(1 << (-tanh_shift - 1))) >> const(-tanh_shift)
            squashed = sigmoid16(function, table, x, True)
            real = _OUTPUT_SCALE * _OUTPUT_SCALE / hidden.scale
            value = multiply_by_quantised(function, cast(squashed, "int32") * exit_, *quantise_multiplier(real))
            result = function.bind(clamp(value + const(hidden.zero_point), *LIMITS[data.dtype]), "result")
            function.store(memory, result, n, u)
            function.store(target, result, *place(n, t, u))


def read_weights(work: Lowering) -> dict[str, list[Buffer]]:
    """Buffers of (input weights, recurrent weights, bias) of each gate."""
    names = ("input", "recurrent", "bias")
    return {
        gate: [work.read(p, f"{gate}_{what}") for p, what in zip(places, names, strict=True)]
        for gate, places in GATES.items()
    }


def _refuse(work: Lowering, data: Tensor, hidden: Tensor, cell: Tensor, output: Tensor) -> None:
    wide = require_same_type((data, hidden, output), ("int8", "int16")) == "int16"
    require_same_type((cell,), ("int16",))
    refuse_others(work)
    for into, recurrent, bias in GATES.values():
        require_same_type((work.tensor(into), work.tensor(recurrent)), ("int8",))
        require_same_type((work.tensor(bias),), ("int64",) if wide else ("int32",), scaled=False)


def refuse_others(work: Lowering) -> None:
    """Refuse what TFLite Micro's LSTM has not, of any type, and weights of other shapes."""
    for position, what in _UNUSED.items():
        require(work.optional(position) is None, f"it has a {what} (input {position})")
    require(all(work.optional(position) is None for position in range(20, 24)), "it has layer normalisation")
    for tensor in (work.tensor(HIDDEN), work.tensor(CELL)):
        require(tensor.is_variable, f"its state {tensor.name!r} is no variable tensor")
    depth, units = work.tensor(0).shape[2], work.output().shape[2]
    for into, recurrent, bias in GATES.values():
        for position, wanted in ((into, (units, depth)), (recurrent, (units, units)), (bias, (units,))):
            shape = work.tensor(position).shape
            require(shape == wanted, f"input {position} has shape {list(shape)}, not {list(wanted)}")


def _clamp16(value: Expr) -> Expr:
    return clamp(value, *LIMITS["int16"])


def _scaled(function: Any, value: Expr, real: float) -> Expr:
    """`value`, an int32 or an int64, times a real number, as an int16."""
    return _clamp16(multiply_sum(function, value, *quantise_multiplier(real)))


@lowering("UNIDIRECTIONAL_SEQUENCE_LSTM", plain=True)
def lstm_of_floats(work: Lowering) -> None:
    """LSTM of float32; inputs as those of the quantised one."""
    options = work.options("UnidirectionalSequenceLSTMOptions")
    data, hidden, cell, output = work.tensor(0), work.tensor(HIDDEN), work.tensor(CELL), work.output()
    refuse_others(work)
    same((data, hidden, cell, output), REAL)
    clip = float(options.CellClip())
    batch_axis, time_axis = (1, 0) if options.TimeMajor() else (0, 1)
    batches, steps, depth, units = data.shape[batch_axis], data.shape[time_axis], data.shape[2], output.shape[2]
    function = work.function
    source, memory, cells = work.read(0, "input"), work.state(HIDDEN, "hidden"), work.state(CELL, "cell")
    weights, target = read_weights(work), work.write()
    gates = function.scratch("gates", (len(GATES), units), "float32")
    total = function.local("sum", "float32")

    def place(n: Expr, t: Expr, i: Expr) -> list[Expr]:
        return [t, n, i] if options.TimeMajor() else [n, t, i]

    with function.grid((batches, steps), "nt") as (n, t):
        with function.loop(units, "u") as u:
            for number, (gate, (into, recurrent, bias)) in enumerate(weights.items()):
                total.set(real(0))
                with function.loop(depth, "k") as k:
                    total.add(raw_load(source, place(n, t, k)) * raw_load(into, [u, k]))
                fresh = function.bind(total.get() + raw_load(bias, [u]), "fresh", "float32")
                total.set(real(0))
                with function.loop(units, "k") as k:
                    total.add(raw_load(memory, [n, k]) * raw_load(recurrent, [u, k]))
                x = function.bind(fresh + total.get(), "gate", "float32")
                function.store(gates, library("tanhf", x) if gate == "cell" else logistic(function, x), number, u)
        with function.loop(units, "u") as u:
            forget, entry, candidate, exit_ = (raw_load(gates, [const(number), u]) for number in range(4))
            old = function.bind(forget * raw_load(cells, [n, u]), "old", "float32")
            new = function.bind(entry * candidate, "new", "float32")
            state = function.bind(old + new, "state", "float32")
            if clip > 0:
                limited = largest_of(function, state, real(-clip), "float32")
                state = function.bind(smallest_of(function, limited, real(clip), "float32"), "state", "float32")
            function.store(cells, state, n, u)
            result = function.bind(library("tanhf", state) * exit_, "result", "float32")
            function.store(memory, result, n, u)
            function.store(target, result, *place(n, t, u))
