"""Whether the host can run what the NPU does not: said for all operators at once, before anything is built.

Invariant: an error names every operator concerned, its tensors and why neither side can run it. Nothing but
explanations depends on Vela's wording; where what it printed is not understood, there is no reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...models.flatbuffer import UnsupportedModelError
from ...models.network import CpuOperator, Network
from ...models.tensor import FLOATS, Tensor
from ...models.tflite import read_network
from ...models.variables import DONE_BEFORE, OF_VARIABLES
from ...sizes import counted
from ...vocabulary import TFLITE_RESHAPING
from .branches import subgraphs_of


def check_host_operators(network: Network, messages: Sequence[str], kept: Mapping[str, str], file: bytes) -> None:
    """Refuse networks with host operators that have no exact lowering; one error for all of them.

    `kept` are kinds of operators that were kept off the NPU, and why; `file` is the user's.
    """
    why = refusals(messages)
    reasons = {}
    for operator in network.cpu_operators:
        output = network.tensors[operator.outputs[0]].name if operator.outputs else ""
        found = kept.get(operator.name) or unsupported_reason(why, operator.name, output)
        reasons[operator.index] = found or "Vela left it to the CPU"
    check_on_host(network, reasons, file)


def check_on_host(network: Network, reasons: Mapping[int, str], file: bytes) -> None:
    """Refuse operators without an exact host lowering; `reasons` are why the NPU does not run them, by index.

    The message counts them by kind and reasons; its details are all of them. Both have the numbers of the user's
    `file`, of which constants may have been folded or Vela's result made.
    """
    groups: dict[tuple[str, str, str], list[_Refused]] = {}
    for operator in network.cpu_operators:
        if operator.index not in reasons or (reason := host_reason(network, operator)) is None:
            continue
        refused = _Refused(operator.name, *_as_in(file, network, operator), reasons[operator.index], reason)
        groups.setdefault(refused.key, []).append(refused)
    if not groups:
        return
    count = sum(map(len, groups.values()))
    error = UnsupportedModelError(
        f"{network.name} has {counted(count, 'operator')} that neither the NPU nor the host can run:\n"
        + "\n".join(_group_text(members) for members in groups.values())
        + "\nreplace them in the model, or quantise them in a way that one side supports; or leave them to C "
        f"functions of your own: {_external(network, reasons)}"
        + ("" if count == len(groups) else "; --verbose lists every operator with its tensors")
    )
    error.details = "\n".join(_group_text([one]) for members in groups.values() for one in members)
    raise error


_NUMBERS = 8  # of operators in one line
_OF_ONE = re.compile(r"'[^']*'|\[[^\]]*\]|\b\d+\b")  # names, shapes and figures in a reason


@dataclass(frozen=True, slots=True)
class _Refused:
    """An operator that neither side can run; `number` and `tensors` as in the user's file."""

    kind: str
    number: str
    tensors: str
    npu: str
    host: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What operators refused for the same reasons share."""
        return self.kind, _OF_ONE.sub("", self.npu), _OF_ONE.sub("", self.host)


def _group_text(members: Sequence[_Refused]) -> str:
    """Operators of one kind that are refused for the same reasons: their numbers, and the first one's tensors and
    reasons."""
    first = members[0]
    numbers = ", ".join(refused.number for refused in members[:_NUMBERS])
    more = f" and {len(members) - _NUMBERS} more" if len(members) > _NUMBERS else ""
    one = len(members) == 1
    kind = first.kind
    heading = f"operator {numbers} {kind}" if one else f"{len(members)} x {kind}: operators {numbers}{more}"
    tensors = f"tensors{'' if one else f' of {first.number}'}: {first.tensors}"
    return f"  {heading}\n    {tensors}\n    NPU: {first.npu}\n    host: {first.host}"


def _as_in(file: bytes, network: Network, operator: CpuOperator) -> tuple[str, str]:
    """The number of an operator, and its tensors, in `file`: the operator of its kind that makes tensors of its names;
    what is not in the file has no number."""
    numbers = {tensor.name: tensor.index for tensor in reversed(read_network(file, network.name).tensors)}
    made = [network.tensors[i].name for i in operator.outputs]
    number = next(
        (
            str(known.index)
            for known in read_network(file, network.name).cpu_operators
            if known.name == operator.name and [numbers.get(name) for name in made] == list(known.outputs)
        ),
        "(not of the file)",
    )
    tensors = network.tensors_of(operator)
    return number, "; ".join(described(replace(t, index=numbers.get(t.name, -1))) for t in tensors)


def _external(network: Network, reasons: Mapping[int, str]) -> str:
    """The options that leave what cannot be run to the user's own C."""
    kinds = [o.name for o in network.cpu_operators if o.index in reasons and host_reason(network, o) is not None]
    return " ".join(f"--external {kind}" for kind in dict.fromkeys(kinds))


FLOATING = "it computes in floating point"
ONLY_FLOATS = "computes in floating point throughout, so nothing of it runs on the NPU: quantise it to int8 for that"


def float_operators(network: Network) -> dict[int, str]:
    """Operators that no NPU runs because a tensor of theirs is a float, by index, with that reason."""
    return {
        operator.index: FLOATING
        for operator in network.cpu_operators
        if any(tensor.dtype in FLOATS for tensor in network.tensors_of(operator))
    }


def host_reason(network: Network, operator: CpuOperator) -> str | None:
    """Why an operator has no exact host code; None when it has, or needs none."""
    if operator.name in DONE_BEFORE:
        return None
    if operator.name in TFLITE_RESHAPING and operator.inputs:
        source, target = (network.tensors[i] for i in (operator.inputs[0], operator.outputs[0]))
        if source.dtype == target.dtype:
            return None
    if operator.name in ("IF", "WHILE"):
        return _branch_reason(network, operator)
    from ..host_ops import unsupported_reason

    return unsupported_reason(network, operator)


def _branch_reason(network: Network, operator: CpuOperator) -> str | None:
    """Why the host cannot run one of the subgraphs of an IF or a WHILE; None when it can."""
    try:
        subgraphs = subgraphs_of(network, operator)
    except UnsupportedModelError as error:
        return str(error)
    for number, graph in subgraphs:
        if graph.npu_calls:
            return f"subgraph {number} was compiled for the NPU, and branches are for the host"
        for inner in graph.cpu_operators:
            stands = "it stands in a branch or a loop" if inner.name in OF_VARIABLES else None
            reason = stands or host_reason(graph, inner)
            if reason is not None:
                return f"operator {inner.index} {inner.name} of subgraph {number}: {reason}"
    from ..host_ops import unsupported_reason

    return unsupported_reason(network, operator) if operator.name == "WHILE" else None


def described(tensor: Tensor) -> str:
    """A tensor for a message."""
    number = f"{tensor.index} " if tensor.index >= 0 else ""
    return f"{number}{tensor.name!r} {tensor.dtype}{list(tensor.shape)}"


_OPERATOR = re.compile(r"operator: (?P<kind>\w+), ofm: '(?P<tensor>.*)'")


def refusals(messages: Sequence[str]) -> dict[tuple[str, str], str]:
    """(operator kind, name of its output tensor) -> Vela's reason."""
    found: dict[tuple[str, str], str] = {}
    current: tuple[str, str] | None = None
    for line in messages:
        match = _OPERATOR.search(line)
        if match:
            current = match["kind"], match["tensor"]
            found.pop(current, None)  # another operator of the same name: its reason, not both
        elif current is not None and line.startswith(("Reason:", "- ", " ")):
            text = line.removeprefix("Reason:").strip(" -")
            found[current] = f"{found[current]} {text}" if current in found else text
        elif current is not None and current in found and not line.startswith(("Warning", "Tensor", "Info")):
            found[current] += f" {line.strip()}"
        else:
            current = None
    return found


def unsupported_reason(found: Mapping[tuple[str, str], str], kind: str, tensor: str) -> str:
    """Vela's reason for one operator; it renames outputs with a fused activation, and repeats itself by kind."""
    for key in ((kind, tensor), (kind, f"{tensor}_act")):
        if key in found:
            return found[key]
    return next((reason for (other, _), reason in found.items() if other == kind), "")
