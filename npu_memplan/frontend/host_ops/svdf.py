"""SVDF: a fully connected layer factored into features and time, with a state.

Invariant: the state is a variable tensor that is updated in place: its rows move one place to
the left, and the newest activation of each filter takes the last place. Sums over time and over
ranks are planned scratch, as in the reference: over time they start at zero, over ranks at the bias.
"""

from __future__ import annotations

from collections.abc import Callable

from ...fixed_point.multiplier import LIMITS, quantise_multiplier
from .common import as_it_is, bias_of, centred, require_same_type, stored
from .fixed_tir import multiply_by_quantised
from .operator import Lowering, lowering, require
from .plain.numbers import REAL, activated, same
from .tir import Expr, clamp, const, number, raw_load


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
