"""An ONNX file to one IRModule: TVM's frontend, then our partitioning and lowering, or the host alone.

Invariant: the module has the same form and the same attributes as one made from a TFLite file, so nothing
behind this module knows the difference. Quantised models are QDQ exports; their inputs and outputs keep the
types they have in the file (float as a rule: the host quantises and dequantises at the border).
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import NpuMemplanError
from ..options import NO_NPU
from .attributes import BY_USER, STATES, SourceOperator, operator_attributes
from .checks import HostOpsError, UnsupportedModelError, read_file
from .onnx_operators import CONVERSIONS, onnx_operators
from .tvm_npu import TvmFrontendError, legalize_host

if TYPE_CHECKING:
    from .onnx_import import OnnxImport

SUFFIX = ".onnx"


class OnnxError(NpuMemplanError):
    """An ONNX file is damaged, cannot be imported, or the package onnx is not installed."""


class DynamicShapeError(OnnxError):
    """A graph input of an ONNX model has a dimension that is not a number."""


def is_onnx(path: Path) -> bool:
    """Whether a model file is taken as ONNX: by its name, because the format has no signature."""
    return path.suffix.lower() == SUFFIX


def read_onnx(model: bytes | Path, name: str = "") -> Any:
    """The checked `ModelProto` of a file with static input shapes, its external data loaded.

    Raises `OnnxError` (no package, damaged, or not valid ONNX), `DynamicShapeError`, `UnsupportedModelError`
    (control flow).
    """
    try:
        import onnx
        from onnx.external_data_helper import load_external_data_for_model
    except ImportError as error:
        raise OnnxError("reading ONNX needs the package onnx: pip install 'npu_memplan[onnx]'") from error
    data = model if isinstance(model, bytes) else read_file(model)
    name = name or ("model" if isinstance(model, bytes) else model.name)
    try:
        proto = onnx.load_model_from_string(data)
        if not isinstance(model, bytes):
            load_external_data_for_model(proto, str(model.parent))
        onnx.checker.check_model(proto)
    except Exception as error:  # protobuf's and the checker's errors share no class
        raise OnnxError(f"{name} is no readable ONNX model: {_last_line(error)}; export it again") from error
    branching = sorted({node.op_type for node in proto.graph.node} & {"If", "Loop", "Scan"})
    if branching:
        raise UnsupportedModelError(
            f"{name} has {', '.join(branching)}: a compiled model is one straight line of calls; export it without "
            "control flow, or plan its Relax module with npu_memplan.transform.PlanMemory"
        )
    _check_static(proto, name)
    return proto


def _check_static(proto: Any, name: str) -> None:
    stored = {tensor.name for tensor in proto.graph.initializer}
    for value in proto.graph.input:
        if value.name in stored:
            continue
        kind = value.type.tensor_type
        if not value.type.HasField("tensor_type") or not kind.HasField("shape"):
            raise DynamicShapeError(f"input {value.name!r} of {name} is no tensor of known rank")
        dims = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in kind.shape.dim]
        open_dims = [f"{i} ({d})" for i, d in enumerate(dims) if not isinstance(d, int) or d < 1]
        if open_dims:
            raise DynamicShapeError(
                f"input {value.name!r} of {name} has the shape [{', '.join(map(str, dims))}]: dimension "
                f"{', '.join(open_dims)} is not a positive number, and a static plan needs all; set them with "
                "onnx.tools.update_model_dims or export the model with fixed shapes"
            )


def import_onnx(proto: Any, name: str) -> OnnxImport:
    """TVM's own import of a checked model, in Relax. Raises `TvmFrontendError`."""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            from .onnx_import import import_nodes

            return import_nodes(proto)
    except Exception as error:  # the frontend raises whatever comes first
        raise TvmFrontendError(f"TVM's ONNX frontend cannot import {name}: {_last_line(error)}") from error


def build_onnx_module(
    model: bytes | Path,
    accelerator: str = NO_NPU,
    host_ops: Sequence[str] = (),
    name: str = "",
    fast_region: int = -1,
) -> Any:
    """Import `model` and lower it for `accelerator` ("none": everything on the host).

    `host_ops` are ONNX operators to keep on the CPU; `fast_region` as for the TFLite build. Raises `OnnxError`,
    `TvmFrontendError`, `HostOpsError`, `UnsupportedModelError`, `LoweringError`.
    """
    name = name or ("model" if isinstance(model, bytes) else model.name)
    proto = read_onnx(model, name)
    forced = _forced(proto, host_ops, name)
    imported = import_onnx(proto, name)
    module = imported.module
    left: dict[str, str] = {}
    if accelerator == NO_NPU:
        operators = onnx_operators(proto, imported.node_of, None)
    else:
        from ..relax import Arithmetic, lower_for_ethosu, partition_for_ethosu, with_arithmetic
        from ..relax.partition import remaining_operators

        keep = {v: BY_USER for v, node in imported.node_of.items() if node in forced}
        module = partition_for_ethosu(with_arithmetic(module, Arithmetic.REAL), accelerator, keep=keep)
        remaining = remaining_operators(module)
        left = {o.name: o.reason for o in remaining}
        operators = onnx_operators(proto, imported.node_of, remaining)
        module = lower_for_ethosu(module, accelerator, fast_region)
    advice = "replace them in the model by operators of static shapes"
    return _described(legalize_host(module, left, name, advice), proto, operators)


def _forced(proto: Any, host_ops: Sequence[str], name: str) -> frozenset[int]:
    """Nodes of the operators in `host_ops`; `HostOpsError` for operators that are not there."""
    kinds = {node.op_type.upper(): node.op_type for node in proto.graph.node if node.op_type not in CONVERSIONS}
    for wanted in host_ops:
        if wanted not in kinds:
            raise HostOpsError(
                f"--host-ops names {wanted!r}, but {name} has no such operator that the NPU could run; "
                f"it has: {', '.join(sorted(kinds.values()))}"
            )
    return frozenset(i for i, node in enumerate(proto.graph.node) if node.op_type.upper() in host_ops)


def _described(module: Any, proto: Any, operators: Sequence[SourceOperator]) -> Any:
    """`main` with the attributes that every frontend gives it; float inputs and outputs have scale 0."""
    main = module["main"]
    stored = {tensor.name for tensor in proto.graph.initializer}
    attributes: dict[str, Any] = {STATES: []}
    groups = {
        "input": [v.name for v in proto.graph.input if v.name not in stored],
        "output": [v.name for v in proto.graph.output],
        "state": [],
    }
    for kind, names in groups.items():
        attributes[f"npu.{kind}_names"] = names
        attributes[f"npu.{kind}_scales"] = [(0.0).hex()] * len(names)
        attributes[f"npu.{kind}_zero_points"] = [0] * len(names)
    attributes |= operator_attributes(operators)
    for unwanted in ("params", "num_input"):
        main = main.without_attr(unwanted)
    module.update_func(module.get_global_var("main"), main.with_attr(attributes))
    return module


def _last_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[-1].strip()
