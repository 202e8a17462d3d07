"""A model that came in as a graph of nodes (ONNX, PyTorch): which variables of main each of its nodes became.

Invariant: every variable of main is named after the node it comes from, and no two have the same name; nodes that
are folded into constants, shapes or their own inputs have no variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, relax

from ...ethosu.reading.reader import bindings_of
from ...names import Names, legal


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
    """`module` with main's variables renamed, and the node of each.

    `results`: variables that are results of nodes -> the node, what to call it. The bindings before a result, down
    to the result before, are steps on the way to it.
    """
    main = module["main"]
    names = Names(legal(str(p.name)) for p in main.params)
    names.unique("gv")  # what frontends call the result of main
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
            name = names.unique(legal(label if step is variable else f"{label}_step"))
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
