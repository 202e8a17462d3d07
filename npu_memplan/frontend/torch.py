"""PyTorch programs quantised by PT2E (torch.export) to one IRModule, through TVM's importer, which has no quantised
operators.

Invariant: `quantized_decomposed` operators become Relax quantize and dequantize with constant scales and zero points,
so the module has the QDQ form that partitioning expects, and it is marked as real arithmetic; nothing else of the
import changes. PyTorch is imported only to look at a program that was made with it, by `models.frameworks`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import RefusalError
from ..models.frameworks import read_program
from .errors import run_importer

if TYPE_CHECKING:
    from .graph import NodeImport, SourceNode


class TorchImportError(RefusalError):
    """A quantised PyTorch program cannot be expressed in Relax."""


def from_quantised_program(program: Any) -> Any:
    """The IRModule of a `torch.export.ExportedProgram` that `convert_pt2e` has quantised.

    Inputs and outputs keep their (float) types; weights are bound as constants. Raises `TorchImportError` for
    scales that are computed at run time, and TVM's own errors for operators it does not know.
    """
    return import_program(program).module


def import_file(path: Path) -> NodeImport:
    """The program in a file. Raises `TorchFileError`, `TorchImportError` and `TvmFrontendError`."""
    program = read_program(path)
    return run_importer("PyTorch", path.name, lambda: import_program(program), line=0)


def import_program(program: Any) -> NodeImport:
    """Import as `from_quantised_program` does, with the nodes of the decomposed program."""
    from tvm import relax
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    from ..ethosu.lower.operands import Arithmetic
    from ..ethosu.relax.partition import with_arithmetic
    from .graph import NodeImport, bound_only, named_after

    program = program.run_decompositions(_kept_decompositions())
    importer = ExportedProgramImporter()
    module = importer.from_exported_program(
        program,
        keep_params_as_input=False,
        unwrap_unit_return_tuple=True,
        no_bind_return_tuple=False,
        custom_convert_map=_Converters(program).table(),
    )
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    results: dict[str, tuple[int, str]] = {}
    for position, node in enumerate(calls):
        made = importer.env.get(node)
        if isinstance(made, relax.Var):
            results.setdefault(str(made.name), (position, node.name))
    module, node_of = named_after(module, results)
    module = with_arithmetic(relax.transform.DeadCodeElimination()(module), Arithmetic.REAL)
    signature = program.graph_signature
    inputs, outputs = (tuple(map(str, names)) for names in (signature.user_inputs, signature.user_outputs))
    return NodeImport(module, _read_nodes(calls), bound_only(module, node_of), inputs, outputs)


def _kept_decompositions() -> Any:
    """PyTorch's decompositions, without those of operators that the NPU runs as one."""
    torch = importlib.import_module("torch")
    table = torch.export.default_decompositions()
    for whole in (torch.ops.aten.hardswish.default, torch.ops.aten.max_pool2d.default):
        table.pop(whole, None)
    return table


def _read_nodes(calls: Sequence[Any]) -> tuple[SourceNode, ...]:
    from .graph import SourceNode

    positions = {node: i for i, node in enumerate(calls)}
    found = []
    for node in calls:
        parts = str(node.target).split(".")  # namespace, operator, overload
        kind = parts[1] if len(parts) > 1 else node.target.__name__
        first = node.args[0] if node.args else None
        conversion = kind.startswith(("quantize_", "dequantize_"))
        stored = getattr(first, "op", "") == "placeholder" and kind.startswith("dequantize_")
        source = positions[first] if getattr(first, "op", "") == "call_function" else -1
        found.append(SourceNode(node.name, kind, source, conversion, stored))
    return tuple(found)


class _Converters:
    """The converters that TVM's importer calls for each quantised operator."""

    def __init__(self, program: Any) -> None:
        signature = program.graph_signature
        self._stored: dict[str, Any] = {}  # placeholder -> its tensor
        sources: Mapping[str, Any] = {**program.state_dict, **program.constants}
        for names in (signature.inputs_to_buffers, signature.inputs_to_parameters):
            self._stored |= {name: sources[target] for name, target in names.items() if target in sources}
        constants = getattr(signature, "inputs_to_lifted_tensor_constants", {})
        self._stored |= {name: sources[target] for name, target in constants.items()}

    def table(self) -> dict[str, Callable[[Any, Any], Any]]:
        """Converters by the names that TVM's importer gives to operators."""
        made: dict[str, Callable[[Any, Any], Any]] = {}
        for overload in ("default", "tensor", "tensor2"):
            made[f"quantize_per_tensor.{overload}"] = self._quantise
            made[f"dequantize_per_tensor.{overload}"] = self._dequantise
        made["hardswish.default"] = self._hard_swish
        made["quantize_per_channel.default"] = functools.partial(self._quantise, by_channel=True)
        made["dequantize_per_channel.default"] = functools.partial(self._dequantise, by_channel=True)
        return made

    def _hard_swish(self, node: Any, importer: Any) -> Any:
        from tvm import relax

        x, emit = importer.env[node.args[0]], importer.block_builder.emit
        gate = emit(relax.op.clip(emit(relax.op.add(x, relax.const(np.float32(3)))), 0, 6))
        return emit(relax.op.divide(emit(relax.op.multiply(x, gate)), relax.const(np.float32(6))))

    def _quantise(self, node: Any, importer: Any, by_channel: bool = False) -> Any:
        """Arguments: the value, scale, zero point, (by channel: the axis,) limits, type."""
        from tvm import relax

        axis, (*limits, dtype) = (node.args[3], node.args[4:7]) if by_channel else (-1, node.args[3:6])
        name = str(dtype).removeprefix("torch.")
        scale, zero = (relax.const(v) for v in self._read_scaling(node, node.args[1], node.args[2], name))
        result = importer.block_builder.emit(
            relax.op.quantize(importer.env[node.args[0]], scale, zero, axis=axis, out_dtype=name)
        )
        low, high = (int(self._number(node, v)) for v in limits)
        full = np.iinfo(name)
        if (low, high) != (full.min, full.max):
            result = importer.block_builder.emit(relax.op.clip(result, low, high))
        return result

    def _dequantise(self, node: Any, importer: Any, by_channel: bool = False) -> Any:
        """Arguments: the value, scale, zero point, (by channel: the axis)."""
        from tvm import relax

        value, axis = importer.env[node.args[0]], node.args[3] if by_channel else -1
        constants = (relax.const(v) for v in self._read_scaling(node, node.args[1], node.args[2], str(value.ty.dtype)))
        return importer.block_builder.emit(relax.op.dequantize(value, *constants, axis=axis, out_dtype="float32"))

    def _read_scaling(self, node: Any, scale: Any, zero: Any, dtype: str) -> tuple[NDArray[Any], NDArray[Any]]:
        """float32 scale and a zero point of the stored type, from numbers or from the program's buffers."""
        scales, zeros = self._number(node, scale), self._number(node, zero)
        limits = np.iinfo(dtype)
        if zeros.min() < limits.min or zeros.max() > limits.max:
            raise TorchImportError(f"{node.name}: the zero points {zeros.tolist()} do not fit its type {dtype}")
        return scales.astype(np.float32), zeros.astype(dtype)

    def _number(self, node: Any, value: Any) -> NDArray[Any]:
        if isinstance(value, (int, float)):
            return np.array(value)
        stored = self._stored.get(getattr(value, "name", ""))
        if stored is None:
            raise TorchImportError(
                f"{node.name}: {value} is computed when the program runs; only static quantisation has a static plan"
            )
        found: NDArray[Any] = stored.detach().cpu().numpy()
        return found.reshape(()) if found.size == 1 and "per_tensor" in node.name else found
