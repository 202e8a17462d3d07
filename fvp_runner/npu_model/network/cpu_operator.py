"""Operators that Vela left on the CPU, run one at a time by reference kernels.

Invariant: the operator, its tensors and constants are those of the compiled file, byte for byte: the file
is kept and only its lists of operators, inputs and outputs (and its metadata) are replaced.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.models.network import CpuOperator, Network
from npu_memplan.models.tflite import read_network

from ...references.base import ReferenceRunError
from ...references.litert import LiteRTReference
from ...references.micro import KernelError, Reference, invoke, open_interpreter

# Field positions in the vtables of TFLite's SubGraph and Model.
_INPUTS, _OUTPUTS, _OPERATORS, _METADATA, _SIGNATURES = 6, 8, 10, 16, 18


def single_operator_model(data: bytes, index: int, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
    """The TFLite file `data` with operator `index` alone, fed by `inputs` and making `outputs`."""
    import tflite

    patched = bytearray(data)
    patched += bytes(-len(patched) % 4)
    model = tflite.Model.GetRootAsModel(data, 0)
    graph = model.Subgraphs(0)
    for field, values in ((_INPUTS, inputs), (_OUTPUTS, outputs)):
        offset = graph._tab.Offset(field)
        if not offset:
            raise ReferenceRunError(
                f"operator {index} cannot be taken out of its network: the subgraph lists no tensors"
            )
        slot = graph._tab.Pos + offset
        struct.pack_into("<I", patched, slot, len(patched) - slot)
        patched += struct.pack(f"<I{len(values)}i", len(values), *values)
    vector = graph._tab.Vector(graph._tab.Offset(_OPERATORS))
    distance = graph.Operators(index)._tab.Pos - vector
    if distance <= 0:
        raise ReferenceRunError(f"operator {index} cannot be taken out of its network: the file has an unusual order")
    struct.pack_into("<II", patched, vector - 4, 1, distance)
    for field in (_METADATA, _SIGNATURES):
        offset = model._tab.Offset(field)
        if offset:
            struct.pack_into("<I", patched, model._tab.Vector(offset) - 4, 0)
    return bytes(patched)


class ReferenceOperator:
    """One CPU operator; its own state (SVDF) is kept between runs until `reset`.

    tflite-micro runs it, LiteRT's reference kernels what that has no kernel for (and no state).
    """

    def __init__(self, data: bytes, network: Network, operator: CpuOperator) -> None:
        self.network, self.operator = network, operator
        tensors = network.tensors
        self.inputs = tuple(
            i for i in operator.inputs if i >= 0 and tensors[i].data is None and not tensors[i].is_variable
        )
        self.outputs = tuple(i for i in operator.outputs if i >= 0)
        model = single_operator_model(data, operator.index, self.inputs, self.outputs)
        self.name = f"operator {operator.index} ({operator.name}) of {network.name}"
        self._model, self._has_state = model, any(i >= 0 and tensors[i].is_variable for i in operator.inputs)
        self._interpreter: Any = None
        self._litert: LiteRTReference | None = None
        try:
            self._interpreter = open_interpreter(model, self.name)
        except KernelError as error:
            self._fall_back(error)

    @property
    def kernels(self) -> str:
        """Whose kernels run it."""
        return Reference.what if self._litert is None else self._litert.what

    def _fall_back(self, error: KernelError) -> None:
        if self._has_state:
            raise error
        self._litert = LiteRTReference(self._model, read_network(self._model, self.name))

    def reset(self) -> None:
        if self._interpreter is not None:
            self._interpreter.reset()

    def run(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        if self._litert is None:
            try:
                return self._micro(inputs)
            except KernelError as error:
                self._fall_back(error)
        assert self._litert is not None
        return self._litert.run(inputs)

    def _micro(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        for position, value in enumerate(inputs):
            self._interpreter.set_input(np.array(value, order="C"), position)  # a scalar stays one
        invoke(self._interpreter, self.name)
        return tuple(np.array(self._interpreter.get_output(i)) for i in range(len(self.outputs)))
