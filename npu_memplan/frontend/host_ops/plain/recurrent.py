"""SVDF of float32, a fully connected layer factored into features and time, and the LSTM; both keep states.

Invariant: the state moves one place to the left, and the newest activation of each filter takes its last place; sums
over time start at zero, sums over ranks at the bias, as in the reference. An LSTM's gates are all computed before its
hidden state changes.
"""

from __future__ import annotations

from ..common import bias_of
from ..lstm import CELL, GATES, HIDDEN, refuse_others
from ..operator import Lowering, lowering
from ..svdf import extents
from ..tir import Expr, const, library, raw_load, real
from .functions import logistic
from .numbers import REAL, activated, largest_of, same, smallest_of


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


@lowering("UNIDIRECTIONAL_SEQUENCE_LSTM", plain=True)
def lstm(work: Lowering) -> None:
    """LSTM of float32; inputs as those of the quantised one."""
    import tflite

    options = work.options(tflite.UnidirectionalSequenceLSTMOptions)
    data, hidden, cell, output = work.tensor(0), work.tensor(HIDDEN), work.tensor(CELL), work.output()
    refuse_others(work)
    same((data, hidden, cell, output), REAL)
    clip = float(options.CellClip())
    batch_axis, time_axis = (1, 0) if options.TimeMajor() else (0, 1)
    batches, steps, depth, units = data.shape[batch_axis], data.shape[time_axis], data.shape[2], output.shape[2]
    function = work.function
    source, memory, cells = work.read(0, "input"), work.state(HIDDEN, "hidden"), work.state(CELL, "cell")
    weights = [
        [work.read(p, f"{gate}_{what}") for p, what in zip(places, ("input", "recurrent", "bias"), strict=True)]
        for gate, places in GATES.items()
    ]
    target = work.write()
    gates = function.scratch("gates", (len(GATES), units), "float32")
    total = function.local("sum", "float32")

    def place(n: Expr, t: Expr, i: Expr) -> list[Expr]:
        return [t, n, i] if options.TimeMajor() else [n, t, i]

    with function.grid((batches, steps), "nt") as (n, t):
        with function.loop(units, "u") as u:
            for number, (gate, (into, recurrent, bias)) in enumerate(zip(GATES, weights, strict=True)):
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
