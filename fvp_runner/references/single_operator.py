"""Operators that Vela left on the CPU, run one at a time by reference kernels.

Invariant: the operator, its tensors and constants are those of the compiled file, byte for byte: the file
is kept and only its lists of operators, inputs and outputs (and its metadata) are replaced.
"""

from __future__ import annotations

import struct
from dataclasses import replace

from npu_memplan.models.network import CpuOperator, Network

from .base import ReferenceRunError
from .kernels import KernelsReference

# Field positions in the vtables of TFLite's SubGraph and Model.
_INPUTS, _OUTPUTS, _OPERATORS, _METADATA, _SIGNATURES = 6, 8, 10, 16, 18


def single_operator(data: bytes, network: Network, operator: CpuOperator) -> tuple[bytes, Network]:
    """The TFLite file `data` with one operator alone, fed by all inputs that are neither constants nor its own."""
    import tflite

    index, tensors = operator.index, network.tensors
    inputs = tuple(i for i in operator.inputs if i >= 0 and tensors[i].data is None and not tensors[i].is_variable)
    outputs = tuple(i for i in operator.outputs if i >= 0)
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
    name = f"operator {index} ({operator.name}) of {network.name}"
    return bytes(patched), replace(network, name=name, operators=(operator,), inputs=inputs, outputs=outputs)


class ReferenceOperator(KernelsReference):
    """One CPU operator; its own state (SVDF) is kept between steps until `reset`."""

    def __init__(self, data: bytes, network: Network, operator: CpuOperator) -> None:
        super().__init__(*single_operator(data, network, operator))
