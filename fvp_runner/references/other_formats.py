"""The references of ONNX models, PT2E programs and TOSA files.

Invariant: an ONNX model goes from TVM's frontend through TVM's default pipeline for LLVM to the Relax VM, which
allocates as it likes. Padding that the file leaves to its reader is stated before; nothing of the plan, of the
partitioning, of our repairs of the import or of the generated C is used. A PT2E program is run by PyTorch itself:
nothing of this package but the reading of the file is used. The reference model of TOSA's specification, from the
package tosa-tools, runs as a program of its own on the file as it is; tosa-tools wants other versions of numpy and
flatbuffers than the rest may have, so it may be in an environment of its own (`find_tool`).
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.exactness import TOSA
from npu_memplan.files.folders import scratch_folder
from npu_memplan.frontend.errors import run_importer
from npu_memplan.models.frameworks import read_onnx, read_program
from npu_memplan.models.tosa import read_tosa
from npu_memplan.process.programs import run_program

from .base import FrameworkReference, RealReference, ReferenceRunError


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
        module = run_importer("ONNX", name, lambda: _import_graph(self._proto))
        parameters = module["main"].params
        super().__init__(name, [(p.name, tuple(map(int, p.ty.shape)), str(p.ty.dtype)) for p in parameters])
        self._tensor = tvm.runtime.tensor
        self._machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())

    def _compute_outputs(self, inputs: Sequence[NDArray[Any]]) -> Any:
        return self._machine["main"](*(self._tensor(value) for value in inputs))

    def _with_steps(self) -> Callable[[Sequence[NDArray[Any]], np.random.Generator], Any]:
        import tvm
        from tvm import relax

        proto, places = _with_steps(self._proto)
        module = run_importer("ONNX", self.name, lambda: _import_graph(proto))
        machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())

        def compute_step(inputs: Sequence[NDArray[Any]], rng: np.random.Generator) -> Any:
            steps = [np.asarray(rng.choice((-scale, scale), shape), np.float32) for scale, shape in places]
            return machine["main"](*(self._tensor(value) for value in (*inputs, *steps)))

        return compute_step


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


def _import_graph(proto: Any) -> Any:
    """TVM's import as it is."""
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    return relax.transform.DecomposeOpsForInference()(from_onnx(proto))


_QUANTISES = "quantized_decomposed.quantize_per_tensor"  # what such an operator is called


class TorchReference(RealReference):
    """A quantised program on PyTorch.

    PyTorch computes in float between quantisations, with its own libraries: results may differ from the NPU's by a
    step, and float ones in the last bits.
    """

    what = "PyTorch, running the exported program"
    package = "torch"

    def __init__(self, path: Path) -> None:
        program = read_program(path)
        given = program.graph_signature.user_inputs
        values = {node.name: node.meta["val"] for node in program.graph.nodes if node.name in given}
        slots = [(name, tuple(values[name].shape), str(values[name].dtype).removeprefix("torch.")) for name in given]
        super().__init__(path.name, slots)
        self._torch = importlib.import_module("torch")
        self._module = program.module()

    def _compute_outputs(self, inputs: Sequence[NDArray[Any]]) -> Any:
        with self._torch.no_grad():
            return self._module(*(self._torch.from_numpy(value) for value in inputs))

    def _with_steps(self) -> Callable[[Sequence[NDArray[Any]], np.random.Generator], Any]:
        torch, module = self._torch, self._module

        class MovedByStep(torch.fx.Interpreter):  # type: ignore[misc, name-defined]
            def __init__(self, rng: np.random.Generator) -> None:
                super().__init__(module)
                self.rng = rng

            def run_node(self, node: Any) -> Any:
                if not str(node.target).startswith(_QUANTISES) or node.args[0].op == "get_attr":
                    return super().run_node(node)
                (value, scale, *more), keywords = self.fetch_args_kwargs_from_env(node)
                steps = self.rng.choice(np.array((-1, 1), np.float32) * np.float32(scale), tuple(value.shape))
                return node.target(value + torch.from_numpy(np.asarray(steps)), scale, *more, **keywords)

        def compute_step(inputs: Sequence[NDArray[Any]], rng: np.random.Generator) -> Any:
            with torch.no_grad():
                return MovedByStep(rng).run(*(torch.from_numpy(value) for value in inputs))

        return compute_step


VARIABLE = "NPU_MEMPLAN_TOSA_TOOLS"  # a folder with the programs of tosa-tools
_TIMEOUT_S = 600


def find_tool(name: str) -> Path | None:
    """A program of tosa-tools: in $NPU_MEMPLAN_TOSA_TOOLS, next to this Python, in its `tosa-tools`, or on PATH."""
    own = Path(sys.prefix)
    folders = [os.environ.get(VARIABLE, ""), str(own / "bin"), str(own / "tosa-tools" / "bin")]
    search = os.pathsep.join([*filter(None, folders), os.environ.get("PATH", "")])
    found = shutil.which(name, path=search)
    return Path(found) if found else None


class TosaReference(FrameworkReference):
    """A TOSA file in the reference model. Integers are to be equal bit for bit."""

    what = TOSA
    package = "tosa-tools"

    def __init__(self, model: bytes, name: str) -> None:
        self._network, self._model = read_tosa(model, name), model
        tensors = self._network.tensors
        super().__init__(name, [(t.name, t.shape, t.dtype) for t in (tensors[i] for i in self._network.inputs)])
        program = find_tool("tosa_reference_model")
        if program is None:
            raise ReferenceRunError(
                f"{TOSA}, which {name} is compared with, is not installed: pip install 'npu_memplan[tosa]', or "
                f"tosa-tools into an environment of its own, whose bin folder {VARIABLE} names"
            )
        self._program = program

    def run(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        """Outputs for `inputs`; numbers without axes go in and come out as [1], as everywhere here."""
        shapes = [self._network.tensors[i].shape for i in self._network.inputs]
        fitted = [v.reshape(()) if s == () and v.shape == (1,) else v for v, s in zip(inputs, shapes, strict=False)]
        return tuple(value.reshape(value.shape or (1,)) for value in super().run([*fitted, *inputs[len(fitted) :]]))

    def _compute_outputs(self, inputs: Sequence[NDArray[Any]]) -> list[_Array]:
        tensors = self._network.tensors
        given = [tensors[i].name for i in self._network.inputs]
        made = [tensors[i] for i in self._network.outputs]
        files = [f"output{i}.npy" for i in range(len(made))]
        description = {
            "tosa_file": "model.tosa",
            "ifm_name": given,
            "ifm_file": [f"input{i}.npy" for i in range(len(given))],
            "ofm_name": [tensor.name for tensor in made],
            "ofm_file": files,
            "expected_failure": False,
        }
        with scratch_folder("tosa") as folder:
            (folder / "model.tosa").write_bytes(self._model)
            (folder / "desc.json").write_text(json.dumps(description), encoding="utf-8")
            for place, value in enumerate(inputs):
                np.save(folder / f"input{place}.npy", value)
            self._run_model(folder)
            return [_Array(np.load(folder / file), t.dtype) for file, t in zip(files, made, strict=True)]

    def _run_model(self, folder: Path) -> None:
        command = [str(self._program), "--test_desc", str(folder / "desc.json"), "--output_dir", str(folder)]
        try:
            done = run_program(command, folder, _TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ReferenceRunError(f"{TOSA} did not run on {self.name}: {error}") from error
        if done.returncode:
            output_lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            raise ReferenceRunError(f"{TOSA} refuses {self.name}: {' / '.join(output_lines[:3])}")


class _Array:
    """A result with the interface of frameworks' tensors."""

    def __init__(self, value: NDArray[Any], dtype: str) -> None:
        self._value = value.astype(dtype)

    def numpy(self) -> NDArray[Any]:
        return self._value
