"""A TFLite file to one IRModule by TVM's frontend, our partitioning and our lowering: no Vela stream.

Invariant: the module has the same form and the same attributes as the one that `tflite.import_tflite` lifts
from Vela's stream, so nothing behind this module knows which compiler made it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import NpuMemplanError
from ..exactness import Code, claim
from ..models.file import UnsupportedModelError, read_file
from ..models.tflite import read_network
from ..vocabulary import RESHAPING
from .attributes import BY_USER, SourceOperator, activation_type, operator_attributes, operator_label
from .checks import check_not_float, check_on_host, forced_operators, host_reason
from .tflite import Imported

if TYPE_CHECKING:
    from .relax_import import RelaxImport


class TvmFrontendError(NpuMemplanError):
    """TVM's TFLite frontend cannot import a model."""


def build_module(
    model: bytes | Path,
    accelerator: str = "ethos-u55-256",
    host_ops: Sequence[str] = (),
    name: str = "",
    fast_region: int = -1,
) -> Imported:
    """Import, partition and lower `model` for `accelerator`.

    `host_ops` are TFLite operators to keep on the CPU; `fast_region` is the NPU region that feature maps should
    prefer when there are several pools. Raises `NetworkError` for files that are no TFLite, `TvmFrontendError` for
    those that Vela has compiled, `HostOpsError`, `FloatModelError`, `UnsupportedModelError` for operators that
    neither side can run, `LoweringError` where a layer defeats the lowering.
    """
    from ..relax import lower_for_ethosu
    from .relax_import import import_operators
    from .repairs import round_integer_averages

    data = model if isinstance(model, bytes) else read_file(model)
    name = name or ("model" if isinstance(model, bytes) else model.name)
    network = read_network(data, name)
    if network.npu_calls:
        raise TvmFrontendError(f"{name} is compiled by Vela already; use --npu-compiler vela to import it")
    check_not_float(network)
    names = forced_operators(network, host_ops)
    forced = {o.index: BY_USER for o in network.cpu_operators if o.name in names}
    check_on_host(network, forced)
    imported = import_operators(data, network, forced)
    partitioned = _partitioned(imported, accelerator, forced)
    left = _left(partitioned, imported)
    exact = {i: why for i, why in left.items() if host_reason(network, network.cpu_operators[i]) is None}
    if exact.keys() - imported.on_host.keys():
        imported = import_operators(data, network, forced | exact)
        partitioned = _partitioned(imported, accelerator, forced)
        left = _left(partitioned, imported)
    left |= forced
    module = lower_for_ethosu(partitioned, accelerator, fast_region)
    reasons = {variable: left[index] for variable, index in imported.operator_of.items() if index in left}
    module = legalize_host(round_integer_averages(module), reasons, name)
    operators = [
        SourceOperator(
            operator_label(network, o),
            o.name,
            o.index not in left,
            left.get(o.index, ""),
            claim(_code(o.index, left, imported.on_host), o.name, activation_type(network, o)),
        )
        for o in network.cpu_operators
    ]
    main = module["main"].with_attr(operator_attributes(operators))
    module.update_func(module.get_global_var("main"), main)
    return Imported(module, network)


def _code(index: int, left: Mapping[int, str], on_host: Mapping[int, str]) -> Code:
    """Whose code an operator got: `left` are not on the NPU, and those `on_host` have exact code."""
    if index not in left:
        return Code.LOWERED
    return Code.HOST if index in on_host else Code.TVM


def _partitioned(imported: RelaxImport, accelerator: str, forced: Mapping[int, str]) -> Any:
    """The module in parts for the NPU and the host; of `forced` also what is no call, but a reshape."""
    from ..relax import partition_for_ethosu

    keep = {variable: forced[index] for variable, index in imported.operator_of.items() if index in forced}
    return partition_for_ethosu(imported.module, accelerator, keep=keep)


def _left(partitioned: Any, imported: RelaxImport) -> dict[int, str]:
    """Operators that a partitioned `main` still calls, by their index in the file, and why."""
    from ..relax.partition import NO_PATTERN, HostOperator, remaining_operators

    parts: dict[int, list[HostOperator]] = {}
    for part in remaining_operators(partitioned):
        index = imported.operator_of.get(part.name, -1)
        if index >= 0 and part.kind not in RESHAPING:
            parts.setdefault(index, []).append(part)
    # the part that does the work knows best why it was rejected
    left = {i: next((p for p in found if not p.carries), found[0]).reason for i, found in parts.items()}
    return left | {i: why for i, why in imported.on_host.items() if left.get(i) == NO_PATTERN}


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


# calls of main that the planner understands: PrimFuncs and views
_PLANNED = frozenset(("relax.call_tir", *(f"relax.{name}" for name in RESHAPING)))
