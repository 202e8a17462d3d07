"""TVM's ONNX importer, which remembers what it makes of each node and is repaired where the NPU needs it.

Invariant: the nodes of the result are those of the file, in its order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tvm import ir, relax
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

from ...ethosu.lower.tensors import Arithmetic
from ...ethosu.relax.partition import with_arithmetic
from ...models.onnx import read_onnx
from ..errors import imported
from ..graph.nodes import NodeImport, SourceNode, bound_only, named_after
from .repairs import REPAIRS


def import_file(path: Path) -> NodeImport:
    """The graph of a file. Raises `OnnxError` for what is wrong with it before TVM sees it, and `TvmFrontendError`."""
    proto = read_onnx(path)
    return imported("ONNX", path.name, lambda: import_nodes(proto))


def import_nodes(proto: Any) -> NodeImport:
    """Import a checked model. Raises whatever TVM's frontend raises for what it does not know."""
    importer = _NodeImporter({}, "float32")
    opset = next((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), 1)
    module, node_of = named_after(importer.from_onnx(proto.graph, opset), importer.results)
    module = relax.transform.DecomposeOpsForInference()(module)
    # no constant folding here: the dequantisations of weights must reach the partitioning
    module = relax.transform.DeadCodeElimination()(module)
    stored = {tensor.name for tensor in proto.graph.initializer}
    inputs = tuple(v.name for v in proto.graph.input if v.name not in stored)
    outputs = tuple(v.name for v in proto.graph.output)
    module = with_arithmetic(module, Arithmetic.REAL)
    return NodeImport(module, _nodes(proto.graph, stored), bound_only(module, node_of), inputs, outputs)


def _nodes(graph: Any, stored: set[str]) -> tuple[SourceNode, ...]:
    made_by = {name: i for i, node in enumerate(graph.node) for name in node.output}
    found: list[SourceNode] = []
    for node in graph.node:
        first = node.input[0] if node.input else ""
        conversion = node.op_type in ("QuantizeLinear", "DequantizeLinear")
        name = node.name or node.output[0]
        source = made_by.get(first, -1)
        of_constant = first in stored or (0 <= source < len(found) and conversion and found[source].of_constant)
        found.append(SourceNode(name, node.op_type, source, conversion, of_constant))
    return tuple(found)


class _NodeImporter(ONNXGraphImporter):  # type: ignore[misc]
    """`results`: variable -> position of the node, name of the output."""

    def __init__(self, shapes: Any, dtype: Any) -> None:
        super().__init__(shapes, dtype)
        self.results: dict[str, tuple[int, str]] = {}
        self._labels: list[list[str]] = []  # names of the outputs of each node
        self._count = 0

    def from_onnx(self, graph: Any, opset: int) -> Any:
        self._labels = [list(node.output) for node in graph.node]
        return super().from_onnx(graph, opset)

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
        self.results.setdefault(str(variable.name), (node, label))  # a node may hand on its input
        return variable
