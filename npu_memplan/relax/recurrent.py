"""Recurrent operators: calls of host code that says what it does, to layers.

Invariant: every number comes from the call's constants and from the description in `LAYER`, which the exact host
code was made with.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ethosu.lower.graph import SequenceLstm
from ..ethosu.lower.lstm import Gate
from .described import DescribedCall
from .reader import Match, Reader

_GATE_NAMES = {Gate.INPUT: "input", Gate.FORGET: "forget", Gate.CANDIDATE: "cell", Gate.OUTPUT: "output"}


def parse_sequence_lstm(reader: Reader, root: Any) -> Match:
    """A call of the host's UNIDIRECTIONAL_SEQUENCE_LSTM."""
    call = DescribedCall(reader, root)
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
