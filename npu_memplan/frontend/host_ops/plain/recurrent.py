"""SVDF of float32: a fully connected layer factored into features and time, with a state.

Invariant: the state moves one place to the left, and the newest activation of each filter takes its last place; sums
over time start at zero, sums over ranks at the bias, as in the reference.
"""

from __future__ import annotations

from ..common import bias_of
from ..operator import Lowering, lowering
from ..svdf import extents
from ..tir import const, raw_load, real
from .numbers import REAL, activated, same


@lowering("SVDF", plain=True)
def svdf(work: Lowering) -> None:
    """Inputs: data, feature weights [filters, depth], time weights [filters, memory], bias, state."""
    import tflite

    options = work.options(tflite.SVDFOptions)
    rank = options.Rank()
    data, features, times, state, output = (*(work.tensor(i) for i in (0, 1, 2, 4)), work.output())
    same((data, features, times, state, output), REAL)
    batches, depth, filters, memory = extents(data, features, times, state, rank)
    bias = bias_of(work, 3, filters // rank)
    function = work.function
    source, kept = work.read(0, "input"), work.state(4, "state")
    feature_weights, time_weights = work.read(1, "feature_weights"), work.read(2, "time_weights")
    offsets = work.read(3, "bias") if bias is not None else None
    target = work.write()
    over_time = function.scratch("over_time", (batches, filters), "float32")
    total = function.local("sum", "float32")
    with function.grid((batches, filters), ("b", "f")) as (b, f):
        with function.loop(memory - 1, "m") as m:
            function.store(kept, raw_load(kept, [b, f * memory + m + 1]), b, f * memory + m)
        total.set(real(0))
        with function.loop(depth, "k") as k:
            total.add(raw_load(feature_weights, [f, k]) * raw_load(source, [b, k]))
        function.store(kept, total.get(), b, f * memory + const(memory - 1))
    with function.grid((batches, filters), ("b", "f")) as (b, f):
        total.set(real(0))
        with function.loop(memory, "m") as m:
            total.add(raw_load(time_weights, [f, m]) * raw_load(kept, [b, f * memory + m]))
        function.store(over_time, total.get(), b, f)
    with function.grid((batches, filters // rank), ("b", "u")) as (b, u):
        total.set(raw_load(offsets, [u]) if offsets is not None else real(0))
        with function.loop(rank, "r") as r:
            total.add(raw_load(over_time, [b, u * rank + r]))
        function.store(target, activated(function, total.get(), options.FusedActivationFunction(), "float32"), b, u)
