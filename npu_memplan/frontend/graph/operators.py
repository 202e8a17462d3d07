"""Who runs which node of a source graph, told from what partitioning left in main.

Invariant: every call that is left in main belongs to a listed operator: to the node that it comes from, or to one
of its own when no node is known. Quantisations and dequantisations are listed where they are code on the host only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...exactness import FLOAT, REAL
from ...vocabulary import RESHAPING
from ..attributes import SourceOperator

if TYPE_CHECKING:
    from ...ethosu.relax import HostOperator
    from .nodes import NodeImport

_BORDER = "it converts what operators on the host read or write"
_COPY = re.compile(r"(_use\d*|_bias\d*|_nchw\d*|_nhwc\d*)+$")  # what normalisation adds to the name of a variable


def node_operators(imported: NodeImport, remaining: Sequence[HostOperator] | None) -> tuple[SourceOperator, ...]:
    """The nodes that do work, in the graph's order.

    `remaining`: what partitioning left on the host; None: everything is there.
    """
    nodes, node_of = imported.nodes, imported.node_of
    reasons: dict[int, str] = {}
    strays = []
    for part in sorted(remaining or (), key=lambda p: p.carries):  # whoever does the work knows the reason best
        if part.kind in RESHAPING:
            continue
        conversion = part.kind in ("quantize", "dequantize")
        reason = _BORDER if conversion else part.reason
        node = node_of.get(part.name, node_of.get(_COPY.sub("", part.name), -1))
        if node >= 0 and not conversion and nodes[node].conversion:
            node = nodes[node].source  # a move of float values that became one of stored values
        if node < 0:
            strays.append(SourceOperator(part.name, part.kind.removeprefix("nn."), False, reason, FLOAT))
        else:
            reasons.setdefault(node, reason)
    live = set(node_of.values())
    found = []
    for index, source in enumerate(nodes):
        if index not in live:
            continue
        on_npu = remaining is not None and index not in reasons
        if source.conversion and (on_npu or source.of_constant):
            continue  # part of the operators around it
        reason = reasons.get(index, "") if remaining is not None else "no NPU was asked for"
        found.append(SourceOperator(source.name, source.kind, on_npu, reason, REAL if on_npu else FLOAT))
    return (*found, *strays)
