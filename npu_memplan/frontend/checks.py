"""What makes a model impossible to import, said before anything else is tried.

Invariant: an error names every operator concerned, its tensors and why neither side can run it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..errors import NpuMemplanError
from ..models.file import UnsupportedModelError
from ..models.network import CpuOperator, Network
from ..models.tensor import Tensor
from ..vocabulary import TFLITE_RESHAPING
from .reasons import refusal, refusals

_FLOATS = ("float32", "float16", "float64")


class FloatModelError(NpuMemplanError):
    """A model computes in floating point."""


class HostOpsError(NpuMemplanError):
    """`--host-ops` names an operator that does not exist or that the model does not have."""


def check_not_float(network: Network) -> None:
    """Refuse models whose operators compute on float tensors (quantise/dequantise at the border aside)."""
    found = []
    for operator in network.cpu_operators:
        tensors = [t for t in _tensors(network, operator) if t.dtype in _FLOATS]
        if tensors and host_reason(network, operator) is not None:
            found.append(f"  operator {operator.index} {operator.name}: {_describe(tensors[0])}")
    if found:
        raise FloatModelError(
            f"{network.name} is a float model: {len(found)} of its {len(network.cpu_operators)} operators compute on "
            "floating-point tensors, which neither the NPU nor the host operators do:\n"
            + "\n".join(_shortened(found))
            + "\nquantise it to full integer (int8) and convert it again"
        )


def forced_operators(network: Network, names: Sequence[str]) -> tuple[str, ...]:
    """`names` as Vela wants them, each once; `HostOpsError` for names the model has no operator of."""
    wanted = tuple(dict.fromkeys(name.strip().upper() for name in names if name.strip()))
    present = sorted({o.name for o in network.cpu_operators})
    for name in wanted:
        if name not in present:
            raise HostOpsError(
                f"--host-ops names {name!r}, but {network.name} has no such operator; it has: {', '.join(present)}"
            )
    return wanted


def check_host_operators(network: Network, messages: Sequence[str], kept: Mapping[str, str]) -> None:
    """Refuse networks with host operators that have no exact lowering; one error for all of them.

    `kept` are kinds of operators that were kept off the NPU, and why.
    """
    why = refusals(messages)
    reasons = {}
    for operator in network.cpu_operators:
        output = network.tensors[operator.outputs[0]].name if operator.outputs else ""
        found = kept.get(operator.name) or refusal(why, operator.name, output)
        reasons[operator.index] = found or "Vela left it to the CPU"
    check_on_host(network, reasons)


def check_on_host(network: Network, reasons: Mapping[int, str]) -> None:
    """Refuse operators without an exact host lowering; `reasons` are why the NPU does not run them, by index."""
    found = []
    for operator in network.cpu_operators:
        if operator.index not in reasons or (reason := host_reason(network, operator)) is None:
            continue
        tensors = "; ".join(_describe(t) for t in _tensors(network, operator))
        found.append(f"  operator {operator.index} {operator.name}\n    tensors: {tensors}\n"
                     f"    NPU: {reasons[operator.index]}\n    host: {reason}")  # fmt: skip
    if found:
        raise UnsupportedModelError(
            f"{network.name} has {len(found)} operators that neither the NPU nor the host can run:\n"
            + "\n".join(found)
            + "\nreplace them in the model, or quantise them in a way that one side supports"
        )


def host_reason(network: Network, operator: CpuOperator) -> str | None:
    """Why an operator has no exact host code; None when it has."""
    if operator.name in TFLITE_RESHAPING and operator.inputs:
        source, target = (network.tensors[i] for i in (operator.inputs[0], operator.outputs[0]))
        if source.dtype == target.dtype and source.dtype not in _FLOATS:
            return None
    from .host_ops import unsupported_reason

    return unsupported_reason(network, operator)


def _tensors(network: Network, operator: CpuOperator) -> Iterator[Tensor]:
    for index in (*operator.inputs, *operator.outputs):
        if index >= 0:
            yield network.tensors[index]


def _describe(tensor: Tensor) -> str:
    return f"{tensor.index} {tensor.name!r} {tensor.dtype}{list(tensor.shape)}"


def _shortened(lines: Sequence[str], most: int = 12) -> list[str]:
    if len(lines) <= most:
        return list(lines)
    return [*lines[:most], f"  ... and {len(lines) - most} more"]
