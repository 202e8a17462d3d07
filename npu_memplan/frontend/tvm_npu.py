"""A TFLite file to one IRModule by TVM's frontend, our partitioning and our lowering: no Vela stream.

Invariant: the module has the same form and the same attributes as the one that `tflite.import_tflite` lifts
from Vela's stream, so nothing behind this module knows which compiler made it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import NpuMemplanError
from ..ethosu.network import VelaNetwork, read_network
from .attributes import SourceOperator, main_attributes
from .checks import UnsupportedModelError, check_not_float, forced_operators, read_file
from .tflite import Imported


class TvmFrontendError(NpuMemplanError):
    """TVM's TFLite frontend cannot import a model."""


# TFLite operator -> the Relax operators its import is made of that carry its work
_KINDS: dict[str, tuple[str, ...]] = {
    "CONV_2D": ("nn.conv2d",),
    "DEPTHWISE_CONV_2D": ("nn.conv2d",),
    "TRANSPOSE_CONV": ("nn.conv2d_transpose",),
    "FULLY_CONNECTED": ("matmul",),
    "AVERAGE_POOL_2D": ("nn.avg_pool2d",),
    "MAX_POOL_2D": ("nn.max_pool2d",),
    "SOFTMAX": ("nn.softmax",),
    "MEAN": ("mean",),
    "SUB": ("subtract",),
    "MUL": ("multiply",),
    "MINIMUM": ("minimum",),
    "MAXIMUM": ("maximum",),
    "ABS": ("abs",),
    "PAD": ("nn.pad",),
    "PADV2": ("nn.pad",),
    "CONCATENATION": ("concat",),
    "STRIDED_SLICE": ("strided_slice",),
    "SPLIT": ("split",),
    "RESIZE_NEAREST_NEIGHBOR": ("image.resize2d",),
    "RESIZE_BILINEAR": ("image.resize2d",),
    "LOGISTIC": ("sigmoid",),
    "TANH": ("tanh",),
    "LEAKY_RELU": ("nn.leakyrelu",),
    "EXP": ("exp",),
    "HARD_SWISH": ("divide",),
    "ADD": ("add",),
}
_STATEFUL = ("SVDF", "UNIDIRECTIONAL_SEQUENCE_LSTM", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE")


def build_module(
    model: bytes | Path,
    accelerator: str = "ethos-u55-256",
    host_ops: Sequence[str] = (),
    name: str = "",
    fast_region: int = -1,
) -> Imported:
    """Import, partition and lower `model` for `accelerator`.

    `host_ops` are TFLite operators to keep on the CPU; `fast_region` is the NPU region that feature maps should
    prefer when there are several pools. Raises `NetworkError` for files that are no TFLite,
    `TvmFrontendError` for what TVM cannot import, `LoweringError` where a layer defeats the lowering.
    """
    from ..relax import host_operators, lower_for_ethosu, partition_for_ethosu
    from .repairs import round_integer_averages

    data = model if isinstance(model, bytes) else read_file(model)
    name = name or ("model" if isinstance(model, bytes) else model.name)
    network = read_network(data, name)
    if network.npu_calls:
        raise TvmFrontendError(f"{name} is compiled by Vela already; use --npu-compiler vela to import it")
    check_not_float(network)
    forced = forced_operators(network, host_ops)
    mod = _import(data, network)
    partitioned = partition_for_ethosu(mod, accelerator, exclude=_excluded(forced))
    left = {o.name: o.reason for o in host_operators(partitioned)}
    operators = _operators(network, mod, left, forced)
    module = lower_for_ethosu(partitioned, accelerator, fast_region)
    module = legalize_host(round_integer_averages(module), left, name)
    return Imported(_described(module, network, operators), network)


def _import(data: bytes, network: VelaNetwork) -> Any:
    from .repairs import import_relax

    stateful = sorted({o.name for o in network.cpu_operators if o.name in _STATEFUL})
    if stateful or network.states:
        raise TvmFrontendError(
            f"{network.name} keeps state between runs ({', '.join(stateful) or 'variable tensors'}), which TVM's "
            "TFLite frontend cannot express; compile it with --npu-compiler vela"
        )
    try:
        return import_relax(data)
    except Exception as error:  # the frontend raises whatever comes first: assertions, TVM errors, KeyError
        text = str(error).strip() or type(error).__name__
        raise TvmFrontendError(
            f"TVM's TFLite frontend cannot import {network.name}: {text.splitlines()[-1]}; "
            "compile it with --npu-compiler vela"
        ) from error


def _excluded(forced: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(kind for name in forced for kind in _COMPOSITES.get(name, ())))


# TFLite operator -> kinds of composites (relax/patterns.py)
_COMPOSITES = {
    "CONV_2D": ("conv2d",),
    "DEPTHWISE_CONV_2D": ("conv2d",),
    "TRANSPOSE_CONV": ("transpose_conv",),
    "FULLY_CONNECTED": ("fully_connected",),
    "AVERAGE_POOL_2D": ("average_pool", "real_average_pool"),
    "MAX_POOL_2D": ("max_pool",),
    "SOFTMAX": ("softmax",),
    "MEAN": ("mean",),
    "ADD": ("add",),
    "SUB": ("subtract",),
    "MUL": ("multiply",),
    "MINIMUM": ("minimum",),
    "MAXIMUM": ("maximum",),
    "PAD": ("pad",),
    "CONCATENATION": ("concat",),
    "LOGISTIC": ("sigmoid",),
    "TANH": ("tanh",),
    "LEAKY_RELU": ("leaky_relu",),
    "RESHAPE": ("reshape",),
    "TRANSPOSE": ("transpose",),
}


def _operators(
    network: VelaNetwork, mod: Any, left: dict[str, str], forced: Sequence[str]
) -> tuple[SourceOperator, ...]:
    """The model's operators; the n-th operator of a kind is the n-th call of its Relax kind."""
    calls: dict[str, list[str]] = {}
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            operator = getattr(getattr(binding.value, "op", None), "name", "")
            calls.setdefault(operator.removeprefix("relax."), []).append(str(binding.var.name))
    # additions of biases are additions too: count only those whose operands are both activations
    calls["add"] = [n for n in calls.get("add", ()) if n in left or not _is_bias(mod, n)]
    seen: dict[str, int] = {}
    found = []
    for operator in network.cpu_operators:
        reason = ""
        for kind in _KINDS.get(operator.name, ()):
            position = seen.get(kind, 0)
            seen[kind] = position + 1
            names = calls.get(kind, [])
            if position < len(names) and names[position] in left:
                reason = "kept on the CPU by --host-ops" if operator.name in forced else left[names[position]]
        tensor = network.tensors[operator.outputs[0]]
        found.append(SourceOperator(tensor.name, operator.name, not reason, reason))
    return tuple(found)


def _is_bias(mod: Any, name: str) -> bool:
    """Whether the addition bound to `name` adds a dequantised constant of one dimension."""
    bindings = {str(b.var.name): b for block in mod["main"].body.blocks for b in block.bindings}
    call = bindings[name].value
    return len(call.args[1].ty.shape) == 1 and len(call.args[0].ty.shape) > 1


def legalize_host(
    module: Any, left: Mapping[str, str], name: str, advice: str = "compile it with --npu-compiler vela"
) -> Any:
    """What is left in Relax becomes PrimFuncs, as TVM's own legalisation writes them.

    `left` are the reasons why operators are not on the NPU, by variable. `UnsupportedModelError` names those
    that TVM has no code for either.
    """
    from tvm import ir, relax

    legal = relax.transform.LegalizeOps()(relax.transform.FoldConstant()(module))
    stuck = []
    for block in legal["main"].body.blocks:
        for binding in block.bindings:
            call = binding.value
            if isinstance(call, ir.Call) and isinstance(call.op, ir.Op) and call.op.name not in _PLANNED:
                variable = str(binding.var.name)
                reason = left.get(variable, "no NPU operation does it")
                packed = getattr(call.args[0], "global_symbol", "") if call.args else ""  # a call into TVM's run time
                stuck.append(
                    f"  {packed or call.op.name.removeprefix('relax.')} {variable} {_shape(binding.var)}: {reason}"
                )
    if stuck:
        raise UnsupportedModelError(
            f"{name} has operators that neither the NPU nor TVM's host code can run:\n"
            + "\n".join(stuck)
            + f"\n{advice}"
        )
    return legal


def _shape(variable: Any) -> str:
    """Shape of a tensor for a message; whatever else a call results in as TVM writes it."""
    shape = getattr(variable.ty, "shape", None)
    return f"[{', '.join(map(str, shape))}]" if shape is not None else str(variable.ty)


# calls of main that the planner understands: PrimFuncs, and other shapes of the same bytes
_PLANNED = frozenset(("relax.call_tir", "relax.reshape", "relax.expand_dims", "relax.squeeze", "relax.flatten"))


def _described(module: Any, network: VelaNetwork, operators: Sequence[SourceOperator]) -> Any:
    """`main` with the attributes that every frontend gives it."""
    main = module["main"]
    attributes = main_attributes(network, network, {}, (), ())
    attributes["npu.operator_names"] = [o.name for o in operators]
    attributes["npu.operator_kinds"] = [o.kind for o in operators]
    attributes["npu.operator_agents"] = ["npu" if o.on_npu else "host" for o in operators]
    attributes["npu.operator_reasons"] = [o.reason for o in operators]
    for unwanted in ("params", "num_input"):
        main = main.without_attr(unwanted)
    module.update_func(module.get_global_var("main"), main.with_attr(attributes))
    return module
