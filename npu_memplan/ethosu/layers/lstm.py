"""UNIDIRECTIONAL_SEQUENCE_LSTM as operations of int8 weights and int16 gates, equal to TFLite's reference.

Invariant: every sum, gate and cell state is the int16 that TFLite's reference computes, with its roundings and
saturations. Gates see 3 integer bits (scale 2^-12), their outputs have scale 2^-15. All gates of a step are
computed at once, from the hidden state of the step before, which is that step's output; the state buffer itself is
read by the first step and written after the last. The cell state is updated in place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..lower.emit import EmitContext
from ..lower.layer import ANY_TYPES, Layer, Limits, StorageTraits
from ..lower.operands import INT8, INT16, LayerTensor, Operand, Output, TensorView, Window
from ..lower.scaling import UNITY, Scale, float32_value, quantise_multiplier, squash_scale
from ..program.program import BufferRole
from ..reading.reader import Described, DescribedCall, LayerPart, Record
from ..stream.isa import ActivationFunction, ElementwiseMode, PoolMode

_GATE_SCALE, _FUNCTION_SCALE = 2.0**-12, 2.0**-15
# operands of a sum gain 14 bits and the sum loses them: exact, and the numbers that other compilers emit
_OPERAND_SCALES, _SUM_SCALE = (1 << 14, 1 << 14), Scale(1 << 30, 44)


class Gate(IntEnum):
    """Position among the weights of a `SequenceLstm`; the candidate goes through tanh, the others through sigmoid."""

    INPUT = 0
    FORGET = 1
    OUTPUT = 2
    CANDIDATE = 3


@dataclass(frozen=True, slots=True, eq=False)
class SequenceLstm(Layer):
    """LSTM over a sequence; `inputs`: data, hidden state, cell state, both updated in place; weights by `Gate`."""

    into: NDArray[np.int16]  # [4, units, depth], of the data
    recurrent: NDArray[np.int16]  # [4, units, units], of the hidden state
    bias: NDArray[np.int64]  # [4, units]
    into_scales: tuple[float, ...]  # one for each gate
    recurrent_scales: tuple[float, ...]
    cell_clamp: tuple[int, int]  # quantised
    time_major: bool = False  # data and output are [time, batch, ...] instead of [batch, time, ...]

    limits: ClassVar[Limits] = Limits(mixed=ANY_TYPES)

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        data, hidden, cell = inputs
        types = (data.dtype, hidden.dtype, cell.dtype, output.dtype)
        if types != ("int8", "int8", "int16", "int8"):
            return (
                f"its data, hidden state, cell state and output are {', '.join(types)}; "
                "only int8, int8, int16, int8 fit"
            )
        if math.frexp(cell.scale)[0] != 0.5 or cell.zero_point:
            return (
                f"its cell state has scale {cell.scale} and zero point {cell.zero_point}; only powers of two and 0 fit"
            )
        if hidden.has_other_scale(output):
            return "its hidden state and its output have different scales"
        return None

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        """Rows of channels; the states are the first step's and then its own."""
        return StorageTraits(updates=self.inputs[1:])

    def emit(self, context: EmitContext) -> None:
        _Steps(context, self).emit()


class _Steps:
    """Emits the operations of one layer, step by step.

    `data` is [batch, time, depth] and `output` [batch, time, units] ([time, batch, ...] when time major); the
    states are dense [batch, units].
    """

    def __init__(self, context: EmitContext, layer: SequenceLstm) -> None:
        self._context, self._builder, self._layer = context, context.builder, layer
        self._data, hidden, cell = (context.tensors[name] for name in layer.inputs)
        self._output = context.tensors[layer.output]
        batches, self._units = hidden.shape
        self._rows = (1, batches) if layer.time_major else (batches, 1)  # height and width of every map of a step
        self._hidden, self._cell = self._state_operand(hidden), self._state_operand(cell)
        self._hidden_scale, self._cell_scale = float32_value(hidden.scale), float32_value(cell.scale)

    def emit(self) -> None:
        """All steps, and the hidden state for the next run."""
        steps = self._data.shape[0 if self._layer.time_major else 1]
        hidden = self._hidden
        for time in range(steps):
            hidden = self._step(time, hidden)
        self._builder.pool(PoolMode.MAX, hidden, self._hidden, Window(), Output(INT8, UNITY))

    def _step(self, time: int, before: Operand) -> Operand:
        """One step; `before` is the hidden state it starts from, the result the one it leaves."""
        now, after, cell = self._step_operand(self._data, time), self._step_operand(self._output, time), self._cell
        entry, forget, exit_, candidate = self._gate_values(now, before)
        self._append_product(entry, candidate, entry, _FUNCTION_SCALE * _FUNCTION_SCALE / self._cell_scale)
        self._append_product(forget, cell, cell, _FUNCTION_SCALE)
        self._add(cell, entry, cell, self._layer.cell_clamp)
        squashed = candidate  # in the room of a gate that is used up
        self._apply(ActivationFunction.TANH, cell, squashed, self._cell_scale)
        self._append_product(squashed, exit_, after, _FUNCTION_SCALE * _FUNCTION_SCALE / self._hidden_scale)
        return after

    def _gate_values(self, now: Operand, before: Operand) -> Iterator[Operand]:
        """Values of all gates in the order of `Gate`, with 15 fraction bits."""
        layer, count = self._layer, len(Gate)
        sums, kept = self._gate_temporary("gates"), self._gate_temporary("recurrent")
        scale = float32_value(self._data.scale)
        self._append_sums(now, sums, layer.into, layer.bias, [scale * float32_value(s) for s in layer.into_scales])
        scale, none = self._hidden_scale, np.zeros((count, self._units), np.int64)
        self._append_sums(
            before, kept, layer.recurrent, none, [scale * float32_value(s) for s in layer.recurrent_scales]
        )
        self._add(sums, kept, sums, INT16)
        sigmoids, tanh = self._part(sums, 0, Gate.CANDIDATE), self._part(sums, Gate.CANDIDATE, count)
        self._apply(ActivationFunction.SIGMOID, sigmoids, sigmoids, _GATE_SCALE)
        self._apply(ActivationFunction.TANH, tanh, tanh, _GATE_SCALE)
        return (self._part(sums, gate, gate + 1) for gate in Gate)

    # ------------------------------------------------------------------ operations

    def _append_sums(
        self,
        source: Operand,
        target: Operand,
        weights: NDArray[np.int16],
        bias: NDArray[np.int64],
        scales: Sequence[float],
    ) -> None:
        """Weighted sums in units of the gates; `weights` [gate, units, depth], one of the `scales` for each gate."""
        depth = weights.shape[-1]
        self._builder.convolve(
            source,
            target,
            Window(),
            Output(INT16),
            weights.reshape(-1, 1, 1, depth),
            bias.reshape(-1),
            [quantise_multiplier(s / _GATE_SCALE) for s in scales for _ in range(self._units)],
            depthwise=False,
        )

    def _add(self, first: Operand, second: Operand, target: Operand, clamp: tuple[int, int]) -> None:
        output = Output(clamp, _SUM_SCALE)
        mode = ElementwiseMode.ADD
        self._builder.elementwise(mode, first, second, target, output, operand_scales=_OPERAND_SCALES)

    def _append_product(self, first: Operand, second: Operand, target: Operand, real: float) -> None:
        clamp = INT8 if target.bits == 8 else INT16
        output = Output(clamp, quantise_multiplier(real))
        self._builder.elementwise(ElementwiseMode.MUL, first, second, target, output)

    def _apply(self, function: ActivationFunction, source: Operand, target: Operand, scale: float) -> None:
        output = Output(INT16, squash_scale(scale), function=function)
        self._builder.pool(PoolMode.AVERAGE, source, target, Window(), output)

    # ------------------------------------------------------------------ maps

    def _step_operand(self, tensor: LayerTensor, time: int) -> Operand:
        """One step of the input or output."""
        begin = (time, 0, 0) if self._layer.time_major else (0, time, 0)
        view = self._context.view(tensor.name).box(begin, (*self._rows, tensor.shape[-1]))
        assert view is not None  # constraints
        return Operand(view, tensor.dtype, tensor.zero_point)

    def _state_operand(self, tensor: LayerTensor) -> Operand:
        view = self._context.view(tensor.name).reshape((*self._rows, self._units))
        assert view is not None  # parameters are dense
        return Operand(view, tensor.dtype, tensor.zero_point)

    def _gate_temporary(self, label: str) -> Operand:
        """Room for one int16 value of every gate."""
        shape = (*self._rows, len(Gate) * self._units)
        size = 2 * int(np.prod(shape))
        buffer = self._builder.buffer(f"{self._layer.output}_{label}", size, BufferRole.FEATURE_MAP)
        return Operand(TensorView.dense(buffer, shape, 2), "int16")

    def _part(self, gates: Operand, first: int, stop: int) -> Operand:
        """The values of some gates."""
        view = gates.view.box((0, 0, first * self._units), (*self._rows, (stop - first) * self._units))
        assert view is not None  # dense
        return replace(gates, view=view)


# ---------------------------------------------------------------------- from what host code says

_GATE_NAMES = {Gate.INPUT: "input", Gate.FORGET: "forget", Gate.CANDIDATE: "cell", Gate.OUTPUT: "output"}


def _parse_lstm(call: DescribedCall) -> LayerPart:
    """A call of the host's UNIDIRECTIONAL_SEQUENCE_LSTM."""
    inputs = [call.activation(name) for name in ("input", "hidden", "cell")]
    gates = [_GATE_NAMES[gate] for gate in Gate]
    clip = int(call.layer["cell_clip"])
    layer = SequenceLstm(
        "sequence_lstm",
        ("0", "1", "2"),
        "out",
        into=np.stack([call.constant(f"{g}_input") for g in gates]).astype(np.int16),
        recurrent=np.stack([call.constant(f"{g}_recurrent") for g in gates]).astype(np.int16),
        bias=np.stack([call.constant(f"{g}_bias") for g in gates]),
        into_scales=tuple(call.scale(f"{g}_input") for g in gates),
        recurrent_scales=tuple(call.scale(f"{g}_recurrent") for g in gates),
        cell_clamp=(-clip, clip) if clip > 0 else (-(1 << 15), (1 << 15) - 1),
        time_major=bool(call.layer["time_major"]),
    )
    return LayerPart.for_layer(layer, call.output(), *inputs)


RECORD = Record((SequenceLstm,), (Described("sequence_lstm", _parse_lstm),))
