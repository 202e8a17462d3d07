"""An imported QDQ graph to the module that every frontend makes: partitioned, lowered, legalised, described.

Invariant: the module has the same form and the same attributes as one made from a TFLite file, so nothing behind
this module knows the difference. Inputs and outputs keep the types they have in the file (float as a rule: the host
quantises and dequantises at the border).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...options import NO_NPU
from ..attributes import BY_USER, Quantised, SourceOperator, main_attributes
from ..host_choice import forced_nodes
from ..legalize import legalize_host
from .operators import node_operators

if TYPE_CHECKING:
    from ...ethosu.lower.lower import Aim
    from .nodes import NodeImport


def build_qdq_module(
    imported: NodeImport,
    name: str,
    accelerator: str = NO_NPU,
    host_ops: Sequence[str] = (),
    aim: Aim | None = None,
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
        from ...ethosu.lower.lower import Aim
        from ...ethosu.relax import lower_for_ethosu, partition_for_ethosu
        from ...ethosu.relax.partition import remaining_operators

        keep = {v: BY_USER for v, node in imported.node_of.items() if node in forced}
        module = partition_for_ethosu(module, accelerator, keep=keep)
        remaining = remaining_operators(module)
        left = {o.name: o.reason for o in remaining}
        operators = node_operators(imported, remaining)
        module = lower_for_ethosu(module, accelerator, aim or Aim())
    advice = "replace them in the model by operators of static shapes"
    return _described(legalize_host(module, left, name, advice), imported, operators)


def _described(module: Any, imported: NodeImport, operators: Sequence[SourceOperator]) -> Any:
    """`main` with the attributes that every frontend gives it; float inputs and outputs have scale 0."""
    main = module["main"]
    inputs, outputs = ([Quantised(name, 0.0, 0) for name in names] for names in (imported.inputs, imported.outputs))
    attributes = main_attributes(inputs, outputs, {}, operators)
    for unwanted in ("params", "num_input"):
        main = main.without_attr(unwanted)
    module.update_func(module.get_global_var("main"), main.with_attr(attributes))
    return module
