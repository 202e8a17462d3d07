"""An ONNX file to one IRModule: TVM's frontend, then our partitioning and lowering, or the host alone.

Invariant: the module has the same form and the same attributes as one made from a TFLite file, so nothing
behind this module knows the difference. Quantised models are QDQ exports; their inputs and outputs keep the
types they have in the file (float as a rule: the host quantises and dequantises at the border).
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import NpuMemplanError
from ..options import NO_NPU
from .attributes import STATES, SourceOperator
from .checks import HostOpsError, UnsupportedModelError, read_file
from .tvm_npu import TvmFrontendError, legalize_host

SUFFIX = ".onnx"


class OnnxError(NpuMemplanError):
    """An ONNX file is damaged, cannot be imported, or the package onnx is not installed."""


class DynamicShapeError(OnnxError):
    """A graph input of an ONNX model has a dimension that is not a number."""


# ONNX operator -> the Relax operator of its import, and its kinds of composites (relax/patterns.py), for --host-ops
_KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "CONV": ("nn.conv2d", ("conv2d",)),
    "CONVTRANSPOSE": ("nn.conv2d_transpose", ("transpose_conv",)),
    "GEMM": ("matmul", ("fully_connected",)),
    "MATMUL": ("matmul", ("fully_connected",)),
    "AVERAGEPOOL": ("nn.avg_pool2d", ("average_pool", "real_average_pool")),
    "GLOBALAVERAGEPOOL": ("mean", ("mean",)),
    "REDUCEMEAN": ("mean", ("mean",)),
    "MAXPOOL": ("nn.max_pool2d", ("max_pool",)),
    "SOFTMAX": ("nn.softmax", ("softmax",)),
    "ADD": ("add", ("add",)),
    "SUB": ("subtract", ("subtract",)),
    "MUL": ("multiply", ("multiply",)),
    "MIN": ("minimum", ("minimum",)),
    "MAX": ("maximum", ("maximum",)),
    "CONCAT": ("concat", ("concat",)),
    "SIGMOID": ("sigmoid", ("sigmoid",)),
    "TANH": ("tanh", ("tanh",)),
    "LEAKYRELU": ("nn.leakyrelu", ("leaky_relu",)),
}
_BORDER = "it converts what operators on the host read or write"


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


def import_onnx(proto: Any, name: str) -> Any:
    """TVM's own import of a checked model: an IRModule in Relax. Raises `TvmFrontendError`."""
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    from ..relax import Arithmetic, with_arithmetic

    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            module = from_onnx(proto)
            module = relax.transform.DecomposeOpsForInference()(module)
            # no constant folding here: the dequantisations of weights must reach the partitioning
            module = relax.transform.DeadCodeElimination()(module)
            return with_arithmetic(module, Arithmetic.REAL)
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
    module = import_onnx(proto, name)
    left: dict[str, str] = {}
    if accelerator == NO_NPU:
        operators = _operators(module, {}, "no NPU was asked for")
    else:
        from ..relax import host_operators, lower_for_ethosu, partition_for_ethosu

        excluded = tuple(dict.fromkeys(kind for op in forced for kind in _KINDS[op][1]))
        module = partition_for_ethosu(module, accelerator, exclude=excluded)
        by_user = {_KINDS[op][0] for op in forced}
        left = {
            o.name: "kept on the CPU by --host-ops" if o.kind in by_user else o.reason for o in host_operators(module)
        }
        operators = _operators(module, left, _BORDER)
        module = lower_for_ethosu(module, accelerator, fast_region)
    advice = "replace them in the model by operators of static shapes"
    return _described(legalize_host(module, left, name, advice), proto, operators)


def _forced(proto: Any, host_ops: Sequence[str], name: str) -> tuple[str, ...]:
    """The ONNX operators of `host_ops`, once each; `HostOpsError` for those that cannot be named."""
    present = {node.op_type.upper() for node in proto.graph.node}
    for wanted in host_ops:
        if wanted not in present or wanted not in _KINDS:
            raise HostOpsError(
                f"--host-ops names {wanted!r}, but {name} has no such operator that the NPU could run; "
                f"it has: {', '.join(sorted(present & set(_KINDS)))}"
            )
    return tuple(dict.fromkeys(host_ops))


def _operators(module: Any, reasons: Mapping[str, str], default: str) -> tuple[SourceOperator, ...]:
    """What main does, in program order: the composites inside of NPU functions, and the calls left in Relax."""
    from tvm import ir, relax

    from ..relax.partition import is_offloaded, kind_of

    found: list[SourceOperator] = []
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            call, label = binding.value, str(binding.var.name)
            if not isinstance(call, ir.Call):
                continue
            if isinstance(call.op, ir.GlobalVar) and is_offloaded(module[call.op]):
                for inner in (b for part in module[call.op].body.blocks for b in part.bindings):
                    if isinstance(inner.value, relax.Function):
                        kind = kind_of(str(inner.value.attrs["Composite"]))
                        found.append(SourceOperator(f"{label}.{len(found)}", kind.upper(), True, ""))
            elif isinstance(call.op, ir.Op):
                kind = call.op.name.removeprefix("relax.").removeprefix("nn.").upper()
                found.append(SourceOperator(label, kind, False, reasons.get(label, default)))
    return tuple(found)


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
    attributes["npu.operator_names"] = [o.name for o in operators]
    attributes["npu.operator_kinds"] = [o.kind for o in operators]
    attributes["npu.operator_agents"] = ["npu" if o.on_npu else "host" for o in operators]
    attributes["npu.operator_reasons"] = [o.reason for o in operators]
    for unwanted in ("params", "num_input"):
        main = main.without_attr(unwanted)
    module.update_func(module.get_global_var("main"), main.with_attr(attributes))
    return module


def _last_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[-1].strip()
