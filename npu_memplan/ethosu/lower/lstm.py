"""UNIDIRECTIONAL_SEQUENCE_LSTM as operations of int8 weights and int16 gates, equal to TFLite's reference.

Invariant: every sum, gate and cell state is the int16 that TFLite's reference computes, with its roundings and
saturations. Gates see 3 integer bits (scale 2^-12), their outputs have scale 2^-15. All gates of a step read the
hidden state of the step before, which is that step's output; the state buffer itself is read by the first step
and written after the last. The cell state is updated in place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from ..isa import ElementwiseMode, PoolMode
from ..program import BufferRole
from .blocks import part_kernel_first
from .emit import Builder
from .graph import SequenceLstm, Tensor
from .operands import Function, Operand, Output, Window
from .scaling import UNITY, Scale, double, quantise_multiplier
from .views import View

_INT16, _INT8 = (-(1 << 15), (1 << 15) - 1), (-(1 << 7), (1 << 7) - 1)
GATE_SCALE, _FUNCTION_SCALE = 2.0**-12, 2.0**-15
_TIMES_3 = Scale(3, 0)  # sigmoid and tanh take units of 1 / (3 * 4096)


class Gate(IntEnum):
    """Position among the weights of a `SequenceLstm`."""

    INPUT = 0
    FORGET = 1
    CANDIDATE = 2
    OUTPUT = 3


# Gates that are computed together: what each pair makes is used up before the next pair begins.
_PAIRS = ((Gate.INPUT, Gate.CANDIDATE), (Gate.FORGET, Gate.OUTPUT))


def tanh_scale(cell_scale: float) -> Scale | None:
    """From a cell state to units of 1 / (3 * 4096), as the reference rounds; None: the scale is no power of two."""
    mantissa, exponent = math.frexp(double(cell_scale))
    if mantissa != 0.5:
        return None
    left = 12 + exponent - 1
    return Scale(3 << left, 0) if left >= 0 else Scale(3, -left)


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor of the operator and where it lies."""

    tensor: Tensor
    view: View


class SequenceLowering:
    """Emits the operations of one layer, step by step.

    `data` is [batch, time, depth] and `output` [batch, time, units] ([time, batch, ...] when time major); the
    states are dense [batch, units].
    """

    def __init__(
        self, builder: Builder, layer: SequenceLstm, data: Place, hidden: Place, cell: Place, output: Place
    ) -> None:
        self._builder, self._layer, self._data, self._output = builder, layer, data, output
        batches, self._units = hidden.tensor.shape
        self._rows = (1, batches) if layer.time_major else (batches, 1)  # height and width of every map of a step
        self._hidden, self._cell = self._state(hidden), self._state(cell)
        self._hidden_scale, self._cell_scale = double(hidden.tensor.scale), double(cell.tensor.scale)

    def emit(self) -> None:
        """All steps, and the hidden state for the next run."""
        steps = self._data.tensor.shape[0 if self._layer.time_major else 1]
        hidden = self._hidden
        for time in range(steps):
            hidden = self._step(time, hidden)
        self._builder.pool(PoolMode.MAX, hidden, self._hidden, Window(), Output(_INT8, UNITY))

    def _step(self, time: int, before: Operand) -> Operand:
        """One step; `before` is the hidden state it starts from, the result the one it leaves."""
        now, after, cell = self._at(self._data, time), self._at(self._output, time), self._cell
        entry, candidate = self._gates(_PAIRS[0], now, before)
        news = self._temporary("news")
        self._multiply(entry, candidate, news, _FUNCTION_SCALE * _FUNCTION_SCALE / self._cell_scale)
        forget, exit_ = self._gates(_PAIRS[1], now, before)
        self._multiply(forget, cell, cell, _FUNCTION_SCALE)
        self._add(cell, news, cell, self._layer.cell_clamp)
        squashed = self._temporary("squashed")
        scale = tanh_scale(self._cell_scale)
        assert scale is not None  # constraints
        self._apply(Function.TANH, cell, squashed, scale)
        self._multiply(squashed, exit_, after, _FUNCTION_SCALE * _FUNCTION_SCALE / self._hidden_scale)
        return after

    def _gates(self, pair: tuple[Gate, Gate], now: Operand, before: Operand) -> tuple[Operand, Operand]:
        """Values of two gates, each [rows, units] in 15 fraction bits."""
        layer, gates = self._layer, list(pair)
        data_scale = double(self._data.tensor.scale)
        sums, kept = self._temporary("gates", 2), self._temporary("recurrent", 2)
        self._sums(now, sums, layer.into[gates], layer.bias[gates], [layer.into_scales[g] * data_scale for g in pair])
        scales = [layer.recurrent_scales[g] * self._hidden_scale for g in pair]
        self._sums(before, kept, layer.recurrent[gates], np.zeros((2, self._units), np.int64), scales)
        self._add(sums, kept, sums, _INT16)
        first, second = (self._half(sums, i) for i in range(2))
        for gate, values in ((pair[0], first), (pair[1], second)):
            function = Function.TANH if gate is Gate.CANDIDATE else Function.SIGMOID
            self._apply(function, values, values, _TIMES_3)
        return first, second

    # ------------------------------------------------------------------ operations

    def _sums(
        self,
        source: Operand,
        target: Operand,
        weights: NDArray[np.int16],
        bias: NDArray[np.int64],
        scales: Sequence[float],
    ) -> None:
        """Weighted sums in units of the gates; `weights` [2, units, depth], one of the `scales` for each gate."""
        depth = weights.shape[-1]
        self._builder.weighted(
            source,
            target,
            Window(),
            Output(_INT16),
            weights.reshape(-1, 1, 1, depth),
            bias.reshape(-1),
            [quantise_multiplier(s / GATE_SCALE) for s in scales for _ in range(self._units)],
            depthwise=False,
            part_kernel=part_kernel_first(depth, source.bits, 1),
        )

    def _add(self, first: Operand, second: Operand, target: Operand, clamp: tuple[int, int]) -> None:
        mode = ElementwiseMode.ADD
        self._builder.elementwise(mode, first, second, target, Output(clamp, UNITY), operand_scales=(1, 1))

    def _multiply(self, first: Operand, second: Operand, target: Operand, real: float) -> None:
        clamp = _INT8 if target.bits == 8 else _INT16
        output = Output(clamp, quantise_multiplier(real))
        self._builder.elementwise(ElementwiseMode.MUL, first, second, target, output)

    def _apply(self, function: Function, source: Operand, target: Operand, scale: Scale) -> None:
        output = Output(_INT16, scale, function=function)
        self._builder.pool(PoolMode.AVERAGE, source, target, Window(), output)

    # ------------------------------------------------------------------ maps

    def _at(self, place: Place, time: int) -> Operand:
        """One step of the input or output."""
        depth = place.tensor.shape[-1]
        begin = (time, 0, 0) if self._layer.time_major else (0, time, 0)
        view = place.view.box(begin, (*self._rows, depth))
        assert view is not None  # constraints
        return Operand(view, place.tensor.dtype, place.tensor.zero_point)

    def _state(self, place: Place) -> Operand:
        view = place.view.reshaped((*self._rows, self._units))
        assert view is not None  # parameters are dense
        return Operand(view, place.tensor.dtype, place.tensor.zero_point)

    def _temporary(self, label: str, count: int = 1) -> Operand:
        """Room for `count` int16 values a unit."""
        shape = (*self._rows, count * self._units)
        size = 2 * int(np.prod(shape))
        buffer = self._builder.buffer(f"{self._layer.output}_{label}", size, BufferRole.FEATURE_MAP)
        return Operand(View.dense(buffer, shape, 2), "int16")

    def _half(self, operand: Operand, index: int) -> Operand:
        """One of the two gates of a pair."""
        view = operand.view.box((0, 0, index * self._units), (*self._rows, self._units))
        assert view is not None  # dense
        return replace(operand, view=view)
