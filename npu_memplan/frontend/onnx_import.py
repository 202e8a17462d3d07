"""TVM's ONNX importer, which names what it makes of each node and is repaired where the NPU needs it.

Invariant: every variable of main is named after the node it comes from, and no two have the same name; nodes that
are folded into constants, shapes or their own inputs have no variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, relax
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

from .names import NameTable
from .onnx_repairs import REPAIRS


@dataclass(frozen=True, slots=True, eq=False)
class OnnxImport:
    """A module, and which node the variables of its main come from (position in the graph)."""

    module: Any
    node_of: Mapping[str, int]


def import_nodes(proto: Any) -> OnnxImport:
    """Import a checked model. Raises whatever TVM's frontend raises for what it does not know."""
    importer = _Importer({}, "float32")
    opset = next((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), 1)
    module = importer.from_onnx(proto.graph, opset)
    module = relax.transform.DecomposeOpsForInference()(module)
    # no constant folding here: the dequantisations of weights must reach the partitioning
    module = relax.transform.DeadCodeElimination()(module)
    main = module["main"]
    bound = {str(b.var.name) for block in main.body.blocks for b in block.bindings}
    node_of = {name: node for name, node in importer.node_of.items() if name in bound}
    return OnnxImport(module, node_of)


class _Importer(ONNXGraphImporter):  # type: ignore[misc]
    def __init__(self, shapes: Any, dtype: Any) -> None:
        super().__init__(shapes, dtype)
        self.node_of: dict[str, int] = {}
        self._labels: list[list[str]] = []  # names of the outputs of each node
        self._results: dict[Any, tuple[int, str]] = {}  # variable -> node, name of the output
        self._count = 0

    def from_onnx(self, graph: Any, opset: int) -> Any:
        self._labels = [list(node.output) for node in graph.node]
        module = super().from_onnx(graph, opset)
        table = self._renamed([b for block in module["main"].body.blocks for b in block.bindings])
        main = tvm_ffi.structural_map(module["main"], (ir.Var, lambda v: table.get(v, v)))
        module.update_func(module.get_global_var("main"), main)
        return module

    def _renamed(self, bindings: list[Any]) -> dict[Any, Any]:
        """Variables by names of their own: results are called as in the file, steps on the way to one after it."""
        names, steps = NameTable(), []
        table: dict[Any, Any] = {}
        for taken in (*self._inputs, "gv"):  # gv: TVM's name for the result of main
            names.take(taken)
        for variable, value in ((b.var, b.value) for b in bindings):
            if isinstance(value, relax.Var) and value in table:  # the result of main: another name for a node's
                self.node_of[str(variable.name)] = self.node_of[str(table[value].name)]
                continue
            steps.append(variable)
            if variable not in self._results:
                continue
            node, label = self._results[variable]
            for step in steps:
                name = names.take(label if step is variable else f"{label}_step")
                table[step] = relax.DataflowVar(name, step.ty)
                self.node_of[name] = node
            steps.clear()
        return table

    def _convert_operator(self, op_name: str, inputs: Any, attrs: Any, opset: int) -> Any:
        """Called once for each node, in order."""
        node, self._count = self._count, self._count + 1
        made = REPAIRS[op_name](inputs, attrs) if op_name in REPAIRS else None
        if made is None:
            made = super()._convert_operator(op_name, inputs, attrs, opset)
        labels = self._labels[node]
        made = self.bb.normalize(made)
        if isinstance(made, ir.Call) and isinstance(made.ty, relax.TupleType):
            whole = self.bb.emit(made)
            parts = [relax.TupleGetItem(whole, i) for i in range(len(labels))]
            return relax.Tuple([self._result(self.bb.emit(p), node, n) for p, n in zip(parts, labels, strict=True)])
        if isinstance(made, ir.Call) and isinstance(made.ty, relax.TensorType):
            made = self.bb.emit(made)
        if isinstance(made, relax.Var) and self.bb.lookup_binding(made) is not None:
            return self._result(made, node, labels[0])
        return made

    def _result(self, variable: Any, node: int, label: str) -> Any:
        self._results.setdefault(variable, (node, label))  # a node may hand on its input
        return variable
