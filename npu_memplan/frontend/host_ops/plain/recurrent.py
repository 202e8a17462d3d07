"""UNIDIRECTIONAL_SEQUENCE_LSTM of float32.

Invariant: an LSTM's gates are all computed before its hidden state changes.
"""

from __future__ import annotations

from ..lstm import CELL, GATES, HIDDEN, read_weights, refuse_others
from ..operator import Lowering, lowering
from ..tir import Expr, const, library, raw_load, real
from .functions import logistic
from .numbers import REAL, largest_of, same, smallest_of


@lowering("UNIDIRECTIONAL_SEQUENCE_LSTM", plain=True)
def lstm(work: Lowering) -> None:
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
