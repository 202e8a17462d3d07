"""SVDF: a fully connected layer factored into features and time, with a state.

Invariant: the state is a variable tensor that is updated in place: its rows move one place to
the left, and the newest activation of each filter takes the last place. Sums over time and over
ranks are planned int32 scratch, as in the reference.
"""

from __future__ import annotations

from ...fixed_point.multiplier import LIMITS, quantise_multiplier
from ...models.tensor import Tensor
from .common import bias_of, require_same_type
from .fixed_tir import multiply_by_quantised
from .operator import Lowering, UnsupportedOperatorError, lowering
from .tir import clamp, const, load


@lowering("SVDF")
def svdf(work: Lowering) -> None:
    """Inputs: data, feature weights [filters, depth], time weights [filters, memory], bias, state."""
    import tflite

    rank = work.options(tflite.SVDFOptions).Rank()
    data, features, times, state, output = (*(work.tensor(i) for i in (0, 1, 2, 4)), work.output())
    require_same_type((data, features, output), ("int8",))
    require_same_type((times, state), ("int8", "int16"))
    batches, depth, filters, memory = extents(data, features, times, state, rank)
    units = filters // rank
    bias = bias_of(work, 3, units)
    if bias is not None and bias.dtype != "int32":
        raise UnsupportedOperatorError(f"bias {bias.name!r} is {bias.dtype}, not int32")
    into_state = quantise_multiplier(data.scale * features.scale / state.scale)
    into_output = quantise_multiplier(state.scale * times.scale / output.scale)
    low, high = LIMITS[state.dtype]

    function = work.function
    source, kept = work.read(0, "input"), work.state(4, "state")
    feature_weights, time_weights = work.read(1, "feature_weights"), work.read(2, "time_weights")
    offsets = work.read(3, "bias") if bias is not None else None
    target = work.write()
    over_time = function.scratch("over_time", (batches, filters), "int32")
    total = function.local("sum")
    with function.grid((batches, filters), ("b", "f")) as (b, f):
        with function.loop(memory - 1, "m") as m:
            function.store(kept, load(kept, b, f * memory + m + 1), b, f * memory + m)
        total.set(const(0))
        with function.loop(depth, "k") as k:
            total.add(load(feature_weights, f, k) * (load(source, b, k) - const(data.zero_point)))
        newest = clamp(multiply_by_quantised(function, total.get(), *into_state), low, high)
        function.store(kept, newest + const(state.zero_point), b, f * memory + const(memory - 1))
    with function.grid((batches, filters), ("b", "f")) as (b, f):
        total.set(const(0))
        with function.loop(memory, "m") as m:
            value = load(kept, b, f * memory + m) - const(state.zero_point)
            total.add(load(time_weights, f, m) * value)
        function.store(over_time, total.get(), b, f)
    with function.grid((batches, units), ("b", "u")) as (b, u):
        total.set(load(offsets, u) if offsets is not None else const(0))
        with function.loop(rank, "r") as r:
            total.add(load(over_time, b, u * rank + r))
        value = multiply_by_quantised(function, total.get(), *into_output) + const(output.zero_point)
        function.store(target, clamp(value, *LIMITS["int8"]), b, u)


def extents(data: Tensor, features: Tensor, times: Tensor, state: Tensor, rank: int) -> tuple[int, int, int, int]:
    """(batches, depth, filters, memory); refuses what does not fit."""
    if not state.is_variable:
        raise UnsupportedOperatorError(f"its state {state.name!r} is no variable tensor")
    batches, depth = data.shape
    filters, memory = times.shape
    if filters % rank or state.shape != (batches, filters * memory) or features.shape != (filters, depth):
        raise UnsupportedOperatorError(
            f"{filters} filters of rank {rank}, memory {memory} do not fit state {list(state.shape)}"
        )
    return batches, depth, filters, memory
