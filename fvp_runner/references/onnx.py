"""The reference for ONNX models: TVM's own, unplanned compilation of the same file.

Invariant: nothing of the plan, of the partitioning, of our repairs of the import or of the generated C is used: the
module goes from TVM's frontend through TVM's default pipeline for LLVM to the Relax VM, which allocates as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.frontend.errors import imported
from npu_memplan.models.onnx import read_onnx

from .framework import RealReference


class OnnxReference(RealReference):
    """An ONNX network on the Relax VM.

    Integer results are comparable bit for bit. Float ones come from another compiler and another math library
    than the generated C, so they may differ in the last bits; QDQ models are computed in float between
    quantisations, so the NPU's integers may differ by one step.
    """

    what = "TVM's Relax VM, without a plan"
    package = "apache-tvm"

    def __init__(self, model: bytes | Path, name: str = "reference") -> None:
        import tvm
        from tvm import relax

        self._proto = read_onnx(model, name)
        module = imported("ONNX", name, lambda: _import(self._proto))
        parameters = module["main"].params
        super().__init__(name, [(p.name, tuple(map(int, p.ty.shape)), str(p.ty.dtype)) for p in parameters])
        self._tensor = tvm.runtime.tensor
        self._machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())

    def _compute(self, inputs: Sequence[NDArray[Any]]) -> Any:
        return self._machine["main"](*(self._tensor(value) for value in inputs))

    def _with_steps(self) -> Callable[[Sequence[NDArray[Any]], np.random.Generator], Any]:
        import tvm
        from tvm import relax

        proto, places = _with_steps(self._proto)
        module = imported("ONNX", self.name, lambda: _import(proto))
        machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())

        def compute(inputs: Sequence[NDArray[Any]], rng: np.random.Generator) -> Any:
            steps = [np.asarray(rng.choice((-scale, scale), shape), np.float32) for scale, shape in places]
            return machine["main"](*(self._tensor(value) for value in (*inputs, *steps)))

        return compute


def _with_steps(proto: Any) -> tuple[Any, list[tuple[float, tuple[int, ...]]]]:
    """The model with a further input added to whatever it quantises, after its own, and (step, shape) of each."""
    import onnx

    made = onnx.ModelProto()
    made.CopyFrom(proto)
    graph = onnx.shape_inference.infer_shapes(proto).graph
    shapes = {
        value.name: tuple(extent.dim_value for extent in value.type.tensor_type.shape.dim)
        for value in (*graph.input, *graph.value_info, *graph.output)
    }
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    nodes, places = [], list[tuple[float, tuple[int, ...]]]()
    for node in made.graph.node:
        value, scale = (*node.input[:2], "", "")[:2]
        if node.op_type == "QuantizeLinear" and value in shapes and value not in stored and stored[scale].size == 1:
            name = f"npu_memplan_step_{len(places)}"
            places.append((float(stored[scale].reshape(-1)[0]), shapes[value]))
            made.graph.input.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shapes[value]))
            nodes.append(onnx.helper.make_node("Add", [value, name], [f"{name}_sum"]))
            node.input[0] = f"{name}_sum"
        nodes.append(node)
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made, places


def _import(proto: Any) -> Any:
    """TVM's import as it is."""
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    return relax.transform.DecomposeOpsForInference()(from_onnx(proto))
