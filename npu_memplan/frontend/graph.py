"""From an imported quantised graph (QDQ; of ONNX or PyTorch) to the module that every frontend makes.

Invariant: nothing here depends on the framework that a graph came from, and nothing behind this module has to tell it
from a TFLite file: the module has the same form and the same attributes. Every variable of main is named after the node
it comes from, and no two have the same name; nodes that are folded into constants, shapes or their own inputs have no
variable. Every call that is left in main belongs to a listed operator: to the node that it comes from, or to one of its
own when no node is known; quantisations and dequantisations are listed where they are code on the host only. Inputs and
outputs keep the types they have in the file (float as a rule: the host quantises and dequantises at the border).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tvm_ffi
from tvm import ir, relax

from ..ethosu.reading.reader import bindings_of
from ..exactness import FLOAT, REAL
from ..names import Names, legal_name
from ..options import NO_NPU
from ..vocabulary import RESHAPING
from .attributes import BY_USER, MADE, MADE_BY, Quantised, SourceOperator, forced_nodes, main_attributes
from .legalize import legalize_host

if TYPE_CHECKING:
    from ..ethosu.lowering import LoweringTarget
    from ..ethosu.relax.partition import HostOperator


@dataclass(frozen=True, slots=True)
class SourceNode:
    """A node as reports name it."""

    name: str
    kind: str  # the framework's operator
    source: int = -1  # position of the node that makes its first input; -1: none does
    conversion: bool = False  # it quantises or dequantises
    of_constant: bool = False  # its first input is stored in the file


@dataclass(frozen=True, slots=True, eq=False)
class NodeImport:
    """An imported module, marked with its arithmetic."""

    module: Any  # tvm.IRModule
    nodes: tuple[SourceNode, ...]  # in the file's order
    node_of: Mapping[str, int]  # variable of main -> position in `nodes`
    inputs: tuple[str, ...]  # as the file calls them
    outputs: tuple[str, ...]


def named_after(module: Any, results: Mapping[str, tuple[int, str]]) -> tuple[Any, dict[str, int]]:
    """`module` with main's variables renamed, and the node of each; `results`: variable -> its node and name."""
    main = module["main"]
    names = Names(legal_name(str(p.name)) for p in main.params)
    names.unique_name("gv")  # what frontends call the result of main
    table: dict[Any, Any] = {}
    node_of: dict[str, int] = {}
    steps = []
    for binding in bindings_of(main):
        variable, value = binding.var, binding.value
        if isinstance(value, relax.Var) and value in table:  # the result of main: another name for a node's
            node_of[str(variable.name)] = node_of[str(table[value].name)]
            continue
        steps.append(variable)
        if str(variable.name) not in results:
            continue
        node, label = results[str(variable.name)]
        for step in steps:
            name = names.unique_name(legal_name(label if step is variable else f"{label}_step"))
            table[step] = relax.DataflowVar(name, step.ty)
            node_of[name] = node
        steps.clear()
    module = module.clone()
    renamed = tvm_ffi.structural_map(main, (ir.Var, lambda v: table.get(v, v)))
    module.update_func(module.get_global_var("main"), renamed)
    return module, node_of


def bound_only(module: Any, node_of: Mapping[str, int]) -> dict[str, int]:
    """`node_of` of the variables that main still binds."""
    bound = {str(b.var.name) for b in bindings_of(module["main"])}
    return {name: node for name, node in node_of.items() if name in bound}


_BORDER = "it converts what operators on the host read or write"
_COPY = re.compile(r"(_use\d*|_bias\d*|_nchw\d*|_nhwc\d*)+$")  # what normalisation adds to the name of a variable


@dataclass(frozen=True, slots=True)
class NodeOperators:
    """The nodes that do work, in the graph's order, and the one behind each variable of main (its position there)."""

    operators: tuple[SourceOperator, ...]
    of_variable: Mapping[str, int]

    def find_operator(self, variable: str, inputs: Sequence[int] = ()) -> int:
        """The operator behind `variable`, or a copy of it; else the last of its `inputs`; -1: not known."""
        found = self.of_variable.get(variable, self.of_variable.get(_COPY.sub("", variable), -1))
        return found if found >= 0 else max(inputs, default=-1)


def node_operators(imported: NodeImport, remaining: Sequence[HostOperator] | None) -> NodeOperators:
    """The operators of a graph; `remaining`: those that are left on the host (None: all)."""
    nodes, node_of = imported.nodes, imported.node_of
    reasons: dict[int, str] = {}
    strays = []
    for part in sorted(
        remaining or (), key=lambda p: p.only_carries
    ):  # the part that does the work has the best reason
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
    found: list[SourceOperator] = []
    places: dict[int, int] = {}
    for index, source in enumerate(nodes):
        if index not in live:
            continue
        on_npu = remaining is not None and index not in reasons
        if source.conversion and (on_npu or source.of_constant):
            continue  # part of the operators around it
        reason = reasons.get(index, "") if remaining is not None else "no NPU was requested"
        places[index] = len(found)
        found.append(SourceOperator(source.name, source.kind, on_npu, reason, REAL if on_npu else FLOAT))
    of_variable = {stray.name: len(found) + position for position, stray in enumerate(strays)}
    for variable, node in node_of.items():
        while node >= 0 and node not in places:  # a conversion is part of what makes its input
            node = nodes[node].source if nodes[node].conversion else -1
        of_variable[variable] = places.get(node, -1)
    return NodeOperators((*found, *strays), of_variable)


def build_qdq_module(
    imported: NodeImport,
    name: str,
    accelerator: str = NO_NPU,
    host_ops: Sequence[str] = (),
    lowering_target: LoweringTarget | None = None,
) -> Any:
    """Lower `imported` for `accelerator` ("none": everything on the host).

    `host_ops` are operators of the framework, in upper case, to keep on the CPU; `lowering_target` says what it is
    lowered for (None: few bytes, in the default system). Raises `HostOpsError`, `UnsupportedModelError`,
    `LoweringError`.
    """
    forced = forced_nodes(imported.nodes, host_ops, name)
    module = imported.module
    left: dict[str, str] = {}
    if accelerator == NO_NPU:
        operators = node_operators(imported, None)
    else:
        from ..ethosu.lowering import LoweringTarget
        from ..ethosu.relax.lowering import lower_for_ethosu
        from ..ethosu.relax.partition import partition_for_ethosu, remaining_operators

        keep = {v: BY_USER for v, node in imported.node_of.items() if node in forced}
        module = partition_for_ethosu(module, accelerator, keep=keep)
        remaining = remaining_operators(module)
        left = {o.name: o.reason for o in remaining}
        operators = node_operators(imported, remaining)
        target = lowering_target or LoweringTarget()
        module = lower_for_ethosu(module, accelerator, target, operators.find_operator)
    advice = "replace them in the model by operators of static shapes"
    return describe_main(legalize_host(module, left, name, advice), imported, operators)


def describe_main(module: Any, imported: NodeImport, nodes: NodeOperators) -> Any:
    """`main` with the attributes that every frontend gives it; float inputs and outputs have scale 0."""
    main = module["main"]
    inputs, outputs = ([Quantised(name, 0.0, 0) for name in names] for names in (imported.inputs, imported.outputs))
    attributes = main_attributes(inputs, outputs, {}, nodes.operators)
    if nodes.of_variable:
        made = [str(binding.var.name) for binding in bindings_of(main)]
        attributes |= {MADE: made, MADE_BY: [nodes.find_operator(name) for name in made]}
    for unwanted in ("params", "num_input"):
        main = main.without_attr(unwanted)
    module.update_func(module.get_global_var("main"), main.with_attr(attributes))
    return module
