"""Who runs which node of an ONNX graph, told from what partitioning left in main.

Invariant: every call that is left in main belongs to a listed operator: to the node that it comes from, or to one
of its own when no node is known. Quantisations and dequantisations are listed where they are code on the host only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .attributes import SourceOperator

if TYPE_CHECKING:
    from ..relax import HostOperator

CONVERSIONS = ("QuantizeLinear", "DequantizeLinear")
_BORDER = "it converts what operators on the host read or write"
_VIEWS = ("reshape", "expand_dims", "squeeze", "flatten")  # other shapes of the same bytes
_COPY = re.compile(r"(_use\d*|_nchw\d*|_nhwc\d*)+$")  # what normalisation adds to the name of a variable


def onnx_operators(
    proto: Any, node_of: Mapping[str, int], remaining: Sequence[HostOperator] | None
) -> tuple[SourceOperator, ...]:
    """The nodes of a graph that do work, in its order.

    `node_of`: variable of main -> node; `remaining`: what is left on the host, None when that is everything.
    """
    nodes = proto.graph.node
    made_by = {name: i for i, node in enumerate(nodes) for name in node.output}
    reasons: dict[int, str] = {}
    strays = []
    for part in sorted(remaining or (), key=lambda p: p.carries):  # whoever does the work knows the reason best
        if part.kind in _VIEWS:
            continue
        conversion = part.kind in ("quantize", "dequantize")
        reason = _BORDER if conversion else part.reason
        node = node_of.get(part.name, node_of.get(_COPY.sub("", part.name), -1))
        if node >= 0 and not conversion and nodes[node].op_type in CONVERSIONS:
            node = made_by.get(nodes[node].input[0], -1)  # a move of float values that became one of stored values
        if node < 0:
            strays.append(SourceOperator(part.name, part.kind.removeprefix("nn."), False, reason))
        else:
            reasons.setdefault(node, reason)
    live, stored = set(node_of.values()), {tensor.name for tensor in proto.graph.initializer}
    found = []
    for index, node in enumerate(nodes):
        if index not in live:
            continue
        on_npu = remaining is not None and index not in reasons
        if node.op_type in CONVERSIONS and (on_npu or node.input[0] in stored):
            continue  # part of the operators around it
        reason = reasons.get(index, "") if remaining is not None else "no NPU was asked for"
        found.append(SourceOperator(node.name or node.output[0], node.op_type, on_npu, reason))
    return (*found, *strays)
