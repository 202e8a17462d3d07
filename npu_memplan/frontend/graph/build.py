"""An imported QDQ graph to the module that every frontend makes: partitioned, lowered, legalised, described.

Invariant: the module has the same form and the same attributes as one made from a TFLite file, so nothing behind
this module has to tell them apart. Every call that is left in main belongs to a listed operator: to the node that it
comes from, or to one of its own when no node is known; quantisations and dequantisations are listed where they are
code on the host only. Inputs and outputs keep the types they have in the file (float as a rule: the host
quantises and dequantises at the border).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...exactness import FLOAT, REAL
from ...options import NO_NPU
from ...vocabulary import RESHAPING
from ..attributes import BY_USER, Quantised, SourceOperator, main_attributes
from ..host_choice import forced_nodes
from ..legalize import legalize_host

if TYPE_CHECKING:
    from ...ethosu.lower.lower import LoweringTarget
    from ...ethosu.relax.partition import HostOperator
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
    for part in sorted(remaining or (), key=lambda p: p.carries):  # the part that does the work has the best reason
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
        reason = reasons.get(index, "") if remaining is not None else "no NPU was requested"
        found.append(SourceOperator(source.name, source.kind, on_npu, reason, REAL if on_npu else FLOAT))
    return (*found, *strays)


def build_qdq_module(
    imported: NodeImport,
    name: str,
    accelerator: str = NO_NPU,
    host_ops: Sequence[str] = (),
    lowering_target: LoweringTarget | None = None,
) -> Any:
    """Lower `imported` for `accelerator` ("none": everything on the host).

    `host_ops` are operators of the framework, in upper case, to keep on the CPU; `aim` as for the
    TFLite build. Raises `HostOpsError`, `UnsupportedModelError`, `LoweringError`.
    """
    forced = forced_nodes(imported.nodes, host_ops, name)
    module = imported.module
    left: dict[str, str] = {}
    if accelerator == NO_NPU:
        operators = node_operators(imported, None)
    else:
        from ...ethosu.lower.lower import LoweringTarget
        from ...ethosu.relax.lowering import lower_for_ethosu
        from ...ethosu.relax.partition import partition_for_ethosu, remaining_operators

        keep = {v: BY_USER for v, node in imported.node_of.items() if node in forced}
        module = partition_for_ethosu(module, accelerator, keep=keep)
        remaining = remaining_operators(module)
        left = {o.name: o.reason for o in remaining}
        operators = node_operators(imported, remaining)
        module = lower_for_ethosu(module, accelerator, lowering_target or LoweringTarget())
    advice = "replace them in the model by operators of static shapes"
    return described(legalize_host(module, left, name, advice), imported, operators)


def described(module: Any, imported: NodeImport, operators: Sequence[SourceOperator]) -> Any:
    """`main` with the attributes that every frontend gives it; float inputs and outputs have scale 0."""
    main = module["main"]
    inputs, outputs = ([Quantised(name, 0.0, 0) for name in names] for names in (imported.inputs, imported.outputs))
    attributes = main_attributes(inputs, outputs, {}, operators)
    for unwanted in ("params", "num_input"):
        main = main.without_attr(unwanted)
    module.update_func(module.get_global_var("main"), main.with_attr(attributes))
    return module
