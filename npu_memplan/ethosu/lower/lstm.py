"""UNIDIRECTIONAL_SEQUENCE_LSTM as operations of int8 weights and int16 gates, equal to TFLite's reference.

Invariant: every sum, gate and cell state is the int16 that TFLite's reference computes, with its roundings and
saturations. Gates see 3 integer bits (scale 2^-12), their outputs have scale 2^-15. All gates of a step are
computed at once, from the hidden state of the step before, which is that step's output; the state buffer itself is
read by the first step and written after the last. The cell state is updated in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from ..program.program import BufferRole
from ..schedule.blocks import part_kernel_first
from ..stream.isa import ElementwiseMode, Function, PoolMode
from .emit import Builder
from .graph import SequenceLstm, Tensor
from .operands import Operand, Output, Window
from .scaling import UNITY, Scale, double, quantise_multiplier, squash_scale
from .views import View

_INT16, _INT8 = (-(1 << 15), (1 << 15) - 1), (-(1 << 7), (1 << 7) - 1)
_GATE_SCALE, _FUNCTION_SCALE = 2.0**-12, 2.0**-15
# operands of a sum gain 14 bits and the sum loses them: exact, and the numbers that other compilers emit
_OPERAND_SCALES, _SUM_SCALE = (1 << 14, 1 << 14), Scale(1 << 30, 44)


class Gate(IntEnum):
    """Position among the weights of a `SequenceLstm`; the candidate goes through tanh, the others through sigmoid."""

    INPUT = 0
    FORGET = 1
    OUTPUT = 2
    CANDIDATE = 3


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
        entry, forget, exit_, candidate = self._gates(now, before)
        self._multiply(entry, candidate, entry, _FUNCTION_SCALE * _FUNCTION_SCALE / self._cell_scale)
        self._multiply(forget, cell, cell, _FUNCTION_SCALE)
        self._add(cell, entry, cell, self._layer.cell_clamp)
        squashed = candidate  # in the room of a gate that is used up
        self._apply(Function.TANH, cell, squashed, self._cell_scale)
        self._multiply(squashed, exit_, after, _FUNCTION_SCALE * _FUNCTION_SCALE / self._hidden_scale)
        return after

    def _gates(self, now: Operand, before: Operand) -> Iterator[Operand]:
        """Values of all gates in the order of `Gate`, with 15 fraction bits."""
        layer, count = self._layer, len(Gate)
        sums, kept = self._temporary("gates"), self._temporary("recurrent")
        scale = double(self._data.tensor.scale)
        self._sums(now, sums, layer.into, layer.bias, [scale * double(s) for s in layer.into_scales])
        scale, none = self._hidden_scale, np.zeros((count, self._units), np.int64)
        self._sums(before, kept, layer.recurrent, none, [scale * double(s) for s in layer.recurrent_scales])
        self._add(sums, kept, sums, _INT16)
        sigmoids, tanh = self._part(sums, 0, Gate.CANDIDATE), self._part(sums, Gate.CANDIDATE, count)
        self._apply(Function.SIGMOID, sigmoids, sigmoids, _GATE_SCALE)
        self._apply(Function.TANH, tanh, tanh, _GATE_SCALE)
        return (self._part(sums, gate, gate + 1) for gate in Gate)

    # ------------------------------------------------------------------ operations

    def _sums(
        self,
        source: Operand,
        target: Operand,
        weights: NDArray[np.int16],
        bias: NDArray[np.int64],
        scales: Sequence[float],
    ) -> None:
        """Weighted sums in units of the gates; `weights` [gate, units, depth], one of the `scales` for each gate."""
        depth = weights.shape[-1]
        self._builder.weighted(
            source,
            target,
            Window(),
            Output(_INT16),
            weights.reshape(-1, 1, 1, depth),
            bias.reshape(-1),
            [quantise_multiplier(s / _GATE_SCALE) for s in scales for _ in range(self._units)],
            depthwise=False,
            part_kernel=part_kernel_first(depth, source.bits, 1),
        )

    def _add(self, first: Operand, second: Operand, target: Operand, clamp: tuple[int, int]) -> None:
        output = Output(clamp, _SUM_SCALE)
        mode = ElementwiseMode.ADD
        self._builder.elementwise(mode, first, second, target, output, operand_scales=_OPERAND_SCALES)

    def _multiply(self, first: Operand, second: Operand, target: Operand, real: float) -> None:
        clamp = _INT8 if target.bits == 8 else _INT16
        output = Output(clamp, quantise_multiplier(real))
        self._builder.elementwise(ElementwiseMode.MUL, first, second, target, output)

    def _apply(self, function: Function, source: Operand, target: Operand, scale: float) -> None:
        output = Output(_INT16, squash_scale(scale), function=function)
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

    def _temporary(self, label: str) -> Operand:
        """Room for one int16 value of every gate."""
        shape = (*self._rows, len(Gate) * self._units)
        size = 2 * int(np.prod(shape))
        buffer = self._builder.buffer(f"{self._layer.output}_{label}", size, BufferRole.FEATURE_MAP)
        return Operand(View.dense(buffer, shape, 2), "int16")

    def _part(self, gates: Operand, first: int, stop: int) -> Operand:
        """The values of some gates."""
        view = gates.view.box((0, 0, first * self._units), (*self._rows, (stop - first) * self._units))
        assert view is not None  # dense
        return replace(gates, view=view)
