"""Recurrent operators: calls of host code that says what it does, to layers.

Invariant: every number comes from the call's constants and from the description in `LAYER`, which the exact host
code was made with.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from ..ethosu.lower.graph import SequenceLstm, Tensor
from ..ethosu.lower.lstm import Gate
from .reader import Match, Reader, RejectedError, shape_of

_GATE_NAMES = {Gate.INPUT: "input", Gate.FORGET: "forget", Gate.CANDIDATE: "cell", Gate.OUTPUT: "output"}


class _Call:
    """Arguments of a described host call by the names of its parameters."""

    def __init__(self, reader: Reader, root: Any) -> None:
        call, layer = reader.need(root, "call_tir"), reader.layer
        if layer is None:
            raise RejectedError("it is host code that does not say what it does")
        self.layer = layer
        self._reader, self._type = reader, call.ty
        names = [str(n) for n in layer["parameters"]]
        arguments = reader.value(call.args[1]).fields
        self._arguments = dict(zip(names, arguments, strict=False))  # the outputs are no arguments
        self._scales = dict(zip(names, (float.fromhex(str(s)) for s in layer["scales"]), strict=True))
        self._zero_points = dict(zip(names, (int(z) for z in layer["zero_points"]), strict=True))

    def activation(self, parameter: str, name: str) -> tuple[Tensor, Any]:
        """An input: its tensor, and its variable."""
        variable = self._arguments[parameter]
        if not isinstance(variable, relax.Var):
            raise RejectedError(f"its {parameter} is a constant")
        return self._tensor(parameter, name, variable.ty), variable

    def output(self) -> Tensor:
        """The result."""
        return self._tensor("output", "out", self._type)

    def _tensor(self, parameter: str, name: str, typed: Any) -> Tensor:
        scale, zero_point = self._scales[parameter], self._zero_points[parameter]
        return Tensor(name, shape_of(typed), str(typed.dtype), scale, zero_point)

    def constant(self, parameter: str) -> NDArray[Any]:
        """Values of a constant."""
        values = self._reader.array(self._arguments[parameter])
        if values is None:
            raise RejectedError(f"its {parameter} is no constant")
        return values.astype(np.int64)

    def scale(self, parameter: str) -> float:
        """Scale of a parameter."""
        return self._scales[parameter]


def parse_sequence_lstm(reader: Reader, root: Any) -> Match:
    """A call of the host's UNIDIRECTIONAL_SEQUENCE_LSTM."""
    call = _Call(reader, root)
    inputs = [call.activation(name, str(i)) for i, name in enumerate(("input", "hidden", "cell"))]
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
    tensors = {tensor.name: tensor for tensor, _ in inputs}
    return Match(layer, tensors | {"out": call.output()}, tuple(variable for _, variable in inputs))
