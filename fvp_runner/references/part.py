"""Some operators of a TFLite file as a network of their own, which a reference runs alone.

Invariant: the operators, their tensors and constants are those of the file, byte for byte: it is kept, and only its
lists of operators, inputs and outputs (and its metadata) are replaced.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

from npu_memplan.models.network import CpuOperator, Network
from npu_memplan.models.variables import OF_VARIABLES
from npu_memplan.sizes import counted

from .base import ReferenceRunError

# Field positions in the vtables of TFLite's SubGraph and Model.
_INPUTS, _OUTPUTS, _OPERATORS, _METADATA, _SIGNATURES = 6, 8, 10, 16, 18


class CutError(ReferenceRunError):
    """Operators cannot be taken out of their file."""


def cut_part(data: bytes, network: Network, operators: Sequence[CpuOperator]) -> tuple[bytes, Network]:
    """The TFLite file `data` of `network` with these operators alone, in the file's order.

    Inputs are what they read and do not make; outputs what others read of what they make, and of one operator all that
    it makes. `CutError` where they cannot be cut out.
    """
    import tflite

    inputs, outputs = _boundary(network, operators)
    patched = bytearray(data)
    patched += bytes(-len(patched) % 4)
    model = tflite.Model.GetRootAsModel(data, 0)
    graph = model.Subgraphs(0)
    named = _named(network, operators)
    for field, values in ((_INPUTS, inputs), (_OUTPUTS, outputs)):
        offset = graph._tab.Offset(field)
        if not offset:
            raise CutError(f"{named} cannot be taken out of its network: the subgraph lists no tensors")
        slot = graph._tab.Pos + offset
        struct.pack_into("<I", patched, slot, len(patched) - slot)
        patched += struct.pack(f"<I{len(values)}i", len(values), *values)
    vector = graph._tab.Vector(graph._tab.Offset(_OPERATORS))
    distances = [graph.Operators(o.index)._tab.Pos - vector - 4 * place for place, o in enumerate(operators)]
    if min(distances) <= 0:
        raise CutError(f"{named} cannot be taken out of its network: the file has an unusual order")
    struct.pack_into(f"<{1 + len(distances)}I", patched, vector - 4, len(distances), *distances)
    for field in (_METADATA, _SIGNATURES):
        offset = model._tab.Offset(field)
        if offset:
            struct.pack_into("<I", patched, model._tab.Vector(offset) - 4, 0)
    name = f"{named} of {network.name}"
    return bytes(patched), replace(network, name=name, operators=tuple(operators), inputs=inputs, outputs=outputs)


def shares_states(network: Network) -> bool:
    """Whether an operator's state is another one's too, so that no part can run alone."""
    if any(o.name in OF_VARIABLES for o in network.cpu_operators):
        return True
    read = [i for o in network.cpu_operators for i in {*o.inputs} if i >= 0 and network.tensors[i].is_variable]
    return len(read) != len(set(read))


def _named(network: Network, operators: Sequence[CpuOperator]) -> str:
    if len(operators) == 1:
        return f"operator {operators[0].index} ({operators[0].name})"
    return f"a part of {counted(len(operators), 'operator')} from {operators[0].index} ({operators[0].name}) on"


def _boundary(network: Network, operators: Sequence[CpuOperator]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    tensors, indices = network.tensors, {o.index for o in operators}
    made = dict.fromkeys(i for o in operators for i in o.outputs if i >= 0)
    read = dict.fromkeys(i for o in operators for i in o.inputs if i >= 0)
    inputs = tuple(i for i in read if i not in made and tensors[i].data is None and not tensors[i].is_variable)
    others = {*network.outputs, *(i for o in network.operators if o.index not in indices for i in o.inputs)}
    read_later = tuple(i for i in made if i in others)
    return inputs, tuple(made) if len(operators) == 1 or not read_later else read_later
