"""ONNX models (QDQ exports) to one IRModule, through TVM's importer, which is repaired where the NPU needs it.

Invariant: the nodes of the result are those of the file, in its order. A repair computes the same real values as TVM's
own conversion, or returns None where it does not apply, and TVM converts the node. Repairs are unnecessary when TVM's
importer emits `relax.clip`, `relax.nn.pad`, a division after the product of a hard swish, and stored weights for
quantised constants (`test_tvm_still_expands_what_is_repaired` then fails).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tvm import ir, relax, tirx
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

from ..ethosu.lower.operands import Arithmetic
from ..ethosu.relax.partition import with_arithmetic
from ..models.frameworks import read_onnx
from .errors import TvmFrontendError, run_importer
from .graph import NodeImport, SourceNode, bound_only, named_after


def _constant(inputs: Any, position: int) -> Any:
    """Values of a constant input; None when it is absent or computed."""
    found = inputs[position] if position < len(inputs) else None
    return found.value.numpy() if isinstance(found, ir.GenericConst) else None


def _convert_clip(inputs: Any, attributes: Mapping[str, Any]) -> Any:
    low, high = _constant(inputs, 1), _constant(inputs, 2)
    if len(inputs) == 1 and {"min", "max"} <= set(attributes):  # before opset 11
        low, high = np.array(attributes["min"]), np.array(attributes["max"])
    if low is None or high is None or not (np.isfinite(low).all() and np.isfinite(high).all()):
        return None
    return relax.op.clip(inputs[0], float(low.reshape(-1)[0]), float(high.reshape(-1)[0]))


def _convert_pad(inputs: Any, attributes: Mapping[str, Any]) -> Any:
    """Padding of all dimensions by a constant."""
    pads = np.array(attributes["pads"]) if "pads" in attributes else _constant(inputs, 1)
    mode = bytes(attributes.get("mode", b"constant")).decode()
    value = np.array(attributes.get("value", 0.0)) if len(inputs) < 3 or inputs[2] is None else _constant(inputs, 2)
    some = len(inputs) > 3 and inputs[3] is not None  # only the axes that it names
    if pads is None or value is None or mode != "constant" or some or (pads < 0).any():
        return None
    widths = [int(w) for pair in zip(*np.split(pads, 2), strict=True) for w in pair]
    return relax.op.nn.pad(inputs[0], widths, pad_mode="constant", pad_value=float(value.reshape(-1)[0]))


def _hard_swish(inputs: Any, _: Mapping[str, Any]) -> Any:
    x = inputs[0]
    if str(x.ty.dtype) != "float32":
        return None
    gate = relax.op.clip(relax.op.add(x, relax.const(np.float32(3))), 0, 6)
    return relax.op.divide(relax.op.multiply(x, gate), relax.const(np.float32(6)))


def _quantise_linear(inputs: Any, attributes: Mapping[str, Any]) -> Any:
    """Weights, quantised here, that a file keeps in float before a quantisation, as training exports them."""
    values, scale = _constant(inputs, 0), _constant(inputs, 1)
    zero = np.zeros((), np.uint8) if len(inputs) < 3 or inputs[2] is None else _constant(inputs, 2)
    if values is None or scale is None or zero is None or attributes.get("block_size") or zero.dtype.kind not in "iu":
        return None
    shape = [1] * values.ndim
    if scale.size > 1:
        shape[int(attributes.get("axis", 1))] = scale.size
    limits = np.iinfo(zero.dtype)
    zeros = zero.reshape(shape) if zero.size > 1 else zero.reshape(())
    stored = np.rint(values / (scale.reshape(shape) if scale.size > 1 else scale.reshape(()))) + zeros
    return relax.const(np.clip(stored, limits.min, limits.max).astype(zero.dtype))


REPAIRS: dict[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "Clip": _convert_clip,
    "Pad": _convert_pad,
    "HardSwish": _hard_swish,
    "QuantizeLinear": _quantise_linear,
}


def import_file(path: Path) -> NodeImport:
    """The graph of a file. Raises `OnnxError` for what is wrong with it before TVM sees it, and `TvmFrontendError`."""
    proto = read_onnx(path)
    try:
        return run_importer("ONNX", path.name, lambda: import_nodes(proto))
    except TvmFrontendError as error:
        if any(node.op_type.startswith("QLinear") for node in proto.graph.node):
            step = "quantise it in the QDQ format, e.g. with quant_format=QuantFormat.QDQ of onnxruntime"
            raise TvmFrontendError(f"{error}; {step}") from error
        raise


def import_nodes(proto: Any) -> NodeImport:
    """Import a checked model. Raises whatever TVM's frontend raises for what it does not know."""
    importer = _NodeImporter({}, "float32")
    opset = next((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), 1)
    module = importer.from_onnx(proto.graph, opset)
    _check_shapes(module["main"].ret_ty, proto.graph.output)
    module, node_of = named_after(module, importer.results)
    module = relax.transform.DecomposeOpsForInference()(module)
    # no constant folding here: the dequantisations of weights must reach the partitioning
    module = relax.transform.DeadCodeElimination()(module)
    stored = {tensor.name for tensor in proto.graph.initializer}
    inputs = tuple(v.name for v in proto.graph.input if v.name not in stored)
    outputs = tuple(v.name for v in proto.graph.output)
    module = with_arithmetic(module, Arithmetic.REAL)
    return NodeImport(module, _read_nodes(proto.graph, stored), bound_only(module, node_of), inputs, outputs)


def _check_shapes(made: Any, outputs: Any) -> None:
    """Raise `TvmFrontendError` where TVM's import has results of other shapes than the file says."""
    results = made.fields if isinstance(made, relax.TupleType) else [made]
    for result, output in zip(results, outputs, strict=True):
        stated = [d.dim_value for d in output.type.tensor_type.shape.dim]
        found = getattr(result, "shape", None)
        if not (found and stated and all(stated) and all(isinstance(d, tirx.IntImm) for d in found)):
            continue  # later stages name what is unknown
        if (found := list(map(int, found))) != stated:
            raise TvmFrontendError(
                f"TVM's ONNX frontend gives {output.name} the shape {found}, the file says {stated}; export the model "
                "again, or without the operator that makes it"
            )


def _read_nodes(graph: Any, stored: set[str]) -> tuple[SourceNode, ...]:
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
