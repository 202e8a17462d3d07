"""What `main` says about its model: names, quantisation, who runs which operator.

Invariant: attributes are strings, ints and lists of them only, so that TVMScript text keeps them bit for bit;
scales are C99 hex floats (`float.fromhex` reads them).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..exactness import Claim, Code, Exactness, claim
from ..models.network import CpuOperator, Network
from ..models.tensor import Tensor
from ..vocabulary import STATES
from .reasons import refusal, refusals

UNNAMED = "<unnamed>"  # what Vela calls a tensor without a name
BY_USER = "kept on the CPU by --host-ops"
COMPILED_BEFORE = Claim(reason="the file was compiled already; what it was made from is not in it")


@dataclass(frozen=True, slots=True)
class Quantised:
    """An input, output or state of a model as `main` describes it."""

    name: str  # the tensor's name in the source file
    scale: float  # 0.0: not quantised
    zero_point: int


@dataclass(frozen=True, slots=True)
class SourceOperator:
    """An operator of the source model: `reason` says why it is not on the NPU, if it is not.

    `claim` is what is known of its results.
    """

    name: str  # of its first output tensor
    kind: str
    on_npu: bool
    reason: str
    claim: Claim


def main_attributes(network: Network, states: Mapping[int, str], operators: Sequence[SourceOperator]) -> dict[str, Any]:
    """Attributes of `main`. `states`: state tensor -> name of its parameter; `operators` of the source model."""
    groups = {"input": network.inputs, "output": network.outputs, "state": tuple(states)}
    attributes: dict[str, Any] = {STATES: list(states.values())}
    for kind, indices in groups.items():
        tensors = [network.tensors[i] for i in indices]
        attributes[f"npu.{kind}_names"] = [t.name for t in tensors]
        attributes[f"npu.{kind}_scales"] = [t.scale.hex() for t in tensors]
        attributes[f"npu.{kind}_zero_points"] = [t.zero_point for t in tensors]
    return attributes | operator_attributes(operators)


def operator_attributes(operators: Sequence[SourceOperator]) -> dict[str, Any]:
    """The part of main's attributes that lists the source model's operators."""
    return {
        "npu.operator_names": [o.name for o in operators],
        "npu.operator_kinds": [o.kind for o in operators],
        "npu.operator_agents": ["npu" if o.on_npu else "host" for o in operators],
        "npu.operator_reasons": [o.reason for o in operators],
        "npu.operator_exactness": [o.claim.exactness.value for o in operators],
        "npu.operator_references": [o.claim.reference for o in operators],
        "npu.operator_doubts": [o.claim.reason for o in operators],
    }


def quantised(main: Any, kind: str) -> tuple[Quantised, ...]:
    """The "input", "output" or "state" tensors of a `main`, in order."""
    columns = [list(main.attrs[f"npu.{kind}_{column}"]) for column in ("names", "scales", "zero_points")]
    return tuple(
        Quantised(str(name), float.fromhex(str(scale)), int(zero)) for name, scale, zero in zip(*columns, strict=True)
    )


def operators_of(main: Any) -> tuple[SourceOperator, ...]:
    """The source model's operators as `main` describes them."""
    names = ("names", "kinds", "agents", "reasons", "exactness", "references", "doubts")
    columns = [[str(cell) for cell in main.attrs[f"npu.operator_{name}"]] for name in names]
    return tuple(
        SourceOperator(name, kind, agent == "npu", reason, Claim(Exactness(exactness), reference, doubt))
        for name, kind, agent, reason, exactness, reference, doubt in zip(*columns, strict=True)
    )


def source_operators(
    network: Network, source: Network, messages: Sequence[str], kept: Mapping[str, str]
) -> tuple[SourceOperator, ...]:
    """Every operator of `source`, and whether `network` still runs it on the host.

    `kept` are kinds of operators that were kept off the NPU, and why.
    """
    left = {_key(network.tensors[o.outputs[0]], o) for o in network.cpu_operators if o.outputs}
    why = refusals(messages)
    found = []
    for operator in source.operators:
        if not isinstance(operator, CpuOperator):
            found.append(SourceOperator(f"npu call {operator.index}", "ethos-u", True, "", COMPILED_BEFORE))
            continue
        tensor = source.tensors[operator.outputs[0]]
        on_host = _key(tensor, operator) in left or not network.npu_calls
        reason = ""
        if on_host:
            reason = kept.get(operator.name) or refusal(why, operator.name, tensor.name or UNNAMED)
        known = claim(Code.HOST if on_host else Code.LIFTED, operator.name, activation_type(source, operator))
        found.append(SourceOperator(operator_label(source, operator), operator.name, not on_host, reason, known))
    return tuple(found)


def activation_type(network: Network, operator: CpuOperator) -> str:
    """Type of the first input that is no constant, a quantised one if any; of the output when all are constants."""
    made = [network.tensors[i] for i in operator.inputs if i >= 0 and network.tensors[i].data is None]
    made.sort(key=lambda tensor: not tensor.scales)  # shapes and indices last
    return (*made, *(network.tensors[i] for i in operator.outputs))[0].dtype


def operator_label(network: Network, operator: CpuOperator) -> str:
    """What reports call an operator: the name of its first output, or its kind and number."""
    return network.tensors[operator.outputs[0]].name or f"{operator.name.lower()}_{operator.index}"


def _key(tensor: Tensor, operator: CpuOperator) -> tuple[str, str, tuple[int, ...]]:
    return operator.name, tensor.name or UNNAMED, tensor.shape
