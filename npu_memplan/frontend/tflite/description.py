"""A TFLite network as attributes of `main`, what it needs, and what can run each of its operators.

Invariant: operators are those of the source model, in its order, whatever a compiler has made of them. An error names
every operator concerned, its tensors and why neither side can run it. Nothing but explanations depends on Vela's
wording; where what it printed is not understood, there is no reason. Whether the host can is decided by the very code
that would lower the operator. Whether the NPU can depends on shapes, too, which only compiling shows: what is stated
here is that its compilers support the operator in this type. A network without custom operators stays as it is, and TVM
is not imported for it. Vela's compiled core drops omitted optional inputs (-1) of the operators it leaves to the CPU,
and with them the positions that give the others their meaning: only operators whose present inputs are all accounted
for are changed.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from ...ethosu.lower.scaling import SQUASH_LIMIT, squash_scale
from ...ethosu.lower.tables import ROOT_BITS
from ...exactness import (
    EXACT_AS_A_WHOLE,
    HYBRID,
    HYBRID_LSTM,
    KEEP_STORED,
    LITERT,
    MICRO,
    Claim,
    Code,
    Exactness,
    hybrid_claim,
    operator_claim,
)
from ...fixed_point import LIMITS, divide_scales, largest_sum, largest_sums, multiply_by_quantised, quantise_multiplier
from ...models.flatbuffer import UnsupportedModelError
from ...models.network import (
    CpuOperator,
    Network,
    holds_intermediates,
    is_hybrid,
    resizes_beyond,
    without_reference,
)
from ...models.subgraphs import DONE_BEFORE, OF_VARIABLES, subgraphs_of
from ...models.tensor import FLOATS, Tensor
from ...models.tflite import read_network
from ...models.vela import NpuCall
from ...sizes import count_text
from ...vela.worker import VelaError
from ...vocabulary import TFLITE_RESHAPING
from ..attributes import HostOpsError, Quantised, SourceOperator, check_known, main_attributes
from .vela_faults import DOUBTED, first_reason


def check_host_operators(network: Network, messages: Sequence[str], kept: Mapping[str, str], file: bytes) -> None:
    """Refuse networks with host operators that have no exact lowering, in one error; `kept`: why on the host."""
    why = refusal_reasons(messages)
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
        f"{network.name} has {count_text(count, 'operator')} that neither the NPU nor the host can run:\n"
        + "\n".join(_group_text(members) for members in groups.values())
        + "\nreplace them in the model, or quantise them in a way that one side supports"
        + _external(network, reasons)
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
        """The key that operators refused for the same reasons share."""
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
    """The number of an operator, and its tensors, in `file`: those of the operator of its kind whose outputs have the
    same names; an operator that is not in the file has no number.
    """
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
    return number, "; ".join(describe_tensor(replace(t, index=numbers.get(t.name, -1))) for t in tensors)


def _external(network: Network, reasons: Mapping[int, str]) -> str:
    """The options that leave what cannot be run to the user's own C; none where a part of it runs subgraphs."""
    kinds = [o.name for o in network.cpu_operators if o.index in reasons and host_reason(network, o) is not None]
    if not _OF_SUBGRAPHS.isdisjoint(kinds):
        return ""
    words = ",".join(f"{kind}=0" for kind in dict.fromkeys(kinds))
    return f"; or leave them to C functions of your own: --host-ops {words}"


_OF_SUBGRAPHS = frozenset(("CALL_ONCE", "IF", "WHILE"))  # which no C function can run
FLOATING = "it computes in floating point"


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


def describe_tensor(tensor: Tensor) -> str:
    """A tensor for a message."""
    number = f"{tensor.index} " if tensor.index >= 0 else ""
    return f"{number}{tensor.name!r} {tensor.dtype}{list(tensor.shape)}"


_OPERATOR = re.compile(r"operator: (?P<kind>\w+), ofm: '(?P<tensor>.*)'")


def refusal_reasons(messages: Sequence[str]) -> dict[tuple[str, str], str]:
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


_SAME = 1e-5  # of a scale: files repeat one with other last bits
UNNAMED = "<unnamed>"  # what Vela calls a tensor without a name
COMPILED_BEFORE = Claim(reason="the file was compiled already; what it was made from is not in it")

EXTERNAL_FUNCTION = Claim(reason="an external C function, which is not here")
OWN_FUNCTION = Claim(reason="a C function of your own")


def network_attributes(
    network: Network, states: Mapping[int, str], operators: Sequence[SourceOperator]
) -> dict[str, Any]:
    """Attributes of `main`. `states`: state tensor -> name of its parameter; `operators` of the source model."""

    def quantisation_of(index: int) -> Quantised:
        tensor = network.tensors[index]
        start = b"" if tensor.initial is None else tensor.initial.tobytes()
        return Quantised(tensor.name, tensor.scale, tensor.zero_point, start, tensor.index_range)

    inputs, outputs = ([quantisation_of(i) for i in indices] for indices in (network.inputs, network.outputs))
    return main_attributes(inputs, outputs, {name: quantisation_of(i) for i, name in states.items()}, operators)


def source_operators(
    network: Network, source: Network, messages: Sequence[str], kept: Mapping[str, str]
) -> tuple[SourceOperator, ...]:
    """Every operator of `source`, and whether `network` still runs it on the host; `kept`: kinds, and why."""
    left = {_key(network, o) for o in network.cpu_operators}
    why = refusal_reasons(messages)
    found = []
    for operator in source.operators:
        if not isinstance(operator, CpuOperator):
            found.append(SourceOperator(f"npu call {operator.index}", "ethos-u", True, "", COMPILED_BEFORE))
            continue
        on_host = _key(source, operator) in left or not network.npu_calls
        reason = ""
        if on_host:
            reason = kept.get(operator.name) or unsupported_reason(why, operator.name, named_by(source, operator))
        known = known_of(Code.HOST if on_host else Code.LIFTED, source, operator)
        found.append(SourceOperator(operator_label(source, operator), operator.name, not on_host, reason, known))
    return tuple(found)


def doubt_reason(code: Code, network: Network, operator: CpuOperator) -> str:
    """Why `code` of an operator with these options or scales gives other numbers than its reference; "" if not."""
    if code is Code.LIFTED and (why := first_reason(DOUBTED, network, operator)):
        return why
    if code is Code.LOWERED and len(operator.inputs) == 1 and _joins_other_scales(network, operator):
        return "without others to join it is lowered as QUANTIZE, which rounds otherwise than float32"
    of_npus = code in (Code.LIFTED, Code.LOWERED)
    otherwise = _rescaled_reason(network, operator) or _held_to_litert(network, operator) if of_npus else ""
    return otherwise or _undefined_reason(network, operator)


def _held_to_litert(network: Network, operator: CpuOperator) -> str:
    """Why the NPU's operator is not that of LiteRT, which it is held to where tflite-micro refuses it."""
    if operator.name == HYBRID_LSTM and holds_intermediates(network, operator):
        return "its intermediate tensors have elements: tflite-micro refuses it, and LiteRT computes gates otherwise"
    if operator.name == "FULLY_CONNECTED" and network.tensors[operator.inputs[1]].is_packed_by_channel:
        return "its weights have 4 bits and a scale for each unit: tflite-micro refuses it, and LiteRT rounds once"
    return ""


def _unclipped_reason(operator: CpuOperator) -> str:
    """Why an LSTM of Vela's is unproven: its stream does not clip the cell, which may never be as large as the clip."""
    options = operator.options("UnidirectionalSequenceLSTMOptions") if operator.name == HYBRID_LSTM else None
    clip = options.CellClip() if options is not None else 0.0
    return f"Vela's stream for it does not clip the cell, the reference does at {clip:g}" if clip > 0 else ""


def _undefined_reason(network: Network, operator: CpuOperator) -> str:
    """Why the reference's own arithmetic is undefined; "" where it is not."""
    if operator.name == "DIV":
        return _shifts_too_far(*(network.tensors[i] for i in (*operator.inputs, *operator.outputs)))
    if operator.name == HYBRID_LSTM:
        return _overflow_of_gates(network, operator)
    if operator.name == "RESIZE_BILINEAR" and resizes_beyond(network, operator):
        return "the reference's step between places is rounded, and leads beyond the input, where it reads all the same"
    if operator.name == "RSQRT":
        return _shifted_root(*(network.tensors[i] for i in (*operator.inputs, *operator.outputs)))
    if operator.name in ("LOGISTIC", "TANH"):
        return _overflow_of_inputs(network.tensors[operator.inputs[0]])
    if operator.name in _OUTPUT_AXES:
        return _overflow_of_sums(network, operator)
    if operator.name not in _LARGEST_RESULTS:
        return ""
    made = network.tensors[operator.outputs[0]]
    read = [_largest_value(network.tensors[i]) for i in operator.inputs if i >= 0]
    count = max((math.prod(network.tensors[i].shape) for i in operator.inputs[:1]), default=1)
    if not made.scale or 0.0 in read[:1]:
        return ""
    return _overflow_of_results(_LARGEST_RESULTS[operator.name](read, count) / made.scale)


_MOST_STEPS = 2.0**30  # of the output: what the reference shifts to the left may have a bit more

_RELUS = ("RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1")
_LARGEST_RESULTS: Mapping[str, Callable[[Sequence[float], int], float]] = {
    **dict.fromkeys(
        ("ABS", "CONCATENATION", "ELU", "GELU", "HARD_SWISH", "LEAKY_RELU", "MEAN", "QUANTIZE", *_RELUS),
        lambda read, _: max(read),
    ),
    **dict.fromkeys(("ADD", "ADD_N", "SUB"), lambda read, _: sum(read)),
    **dict.fromkeys(("CUMSUM", "SUM"), lambda read, count: read[0] * count),
    "BATCH_MATMUL": lambda read, count: read[0] * read[1] * count,
    "MUL": lambda read, _: read[0] * read[1],
    "PRELU": lambda read, _: read[0] * max(1.0, read[1]),
    "SQUARE": lambda read, _: read[0] ** 2,
    "SQUARED_DIFFERENCE": lambda read, _: (read[0] + read[1]) ** 2,
}
"""At most the magnitude of an operator's results, by those of its inputs and the first one's elements."""


def _largest_value(tensor: Tensor) -> float:
    """The largest magnitude that a quantised tensor can hold; 0 where it is none."""
    if tensor.dtype not in LIMITS:
        return 0.0
    return tensor.scale * max(abs(limit - tensor.zero_point) for limit in LIMITS[tensor.dtype])


def _overflow_of_results(steps: float, what: str = "results") -> str:
    """Why results are undefined that reach so many steps of their scale; "" where they are not."""
    if steps < _MOST_STEPS:
        return ""
    return (
        f"its {what} can reach {steps:.3g} steps of their scale: the reference rescales them in 32 bits, and C does "
        "not say what comes of more"
    )


def _overflow_of_gates(network: Network, operator: CpuOperator) -> str:
    """Why the sums of an integer LSTM's gates are undefined, which the reference rescales to 2**-12."""
    steps = [0.0]
    for first, source in ((1, 0), (5, 18)):  # weights of four gates, and what they are multiplied by
        data = network.tensors[operator.inputs[source]]
        for weights in (network.tensors[i] for i in operator.inputs[first : first + 4] if i >= 0):
            if weights.dtype == "int8" and weights.data is not None:
                summed = largest_sum(weights.array(), np.zeros(1, np.int64), 1)
                steps.append(summed * weights.scale * _largest_value(data) * 2**12)
    return _overflow_of_results(max(steps), "gates")


_OUTPUT_AXES = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 0, "TRANSPOSE_CONV": 0}  # of their weights


def _overflow_of_sums(network: Network, operator: CpuOperator) -> str:
    """Why sums of products are undefined: the reference adds those of 8 bits in 32 bits, and rescales all into 32."""
    transposed = operator.name == "TRANSPOSE_CONV"
    data, weights = (network.tensors[i] for i in (operator.inputs[2 if transposed else 0], operator.inputs[1]))
    made = network.tensors[operator.outputs[0]]
    if not {weights.dtype, data.dtype} <= {"int8", "uint8", "int16"} or not made.scale:
        return ""
    added = [network.tensors[i] for i in operator.inputs[3 if transposed else 2 :][:1] if i >= 0]
    bias = (
        added[0].array().astype(np.int64).reshape(-1) if added and added[0].data is not None else np.zeros(1, np.int64)
    )
    largest = max(abs(limit - data.zero_point) for limit in LIMITS[data.dtype])
    axis = _OUTPUT_AXES[operator.name]
    products = math.prod(weights.shape) // max(weights.shape[axis], 1)
    most = int(np.abs(bias).max(initial=0)) + products * 255 * largest
    steps = np.array(weights.scales or (0.0,)) * data.scale / made.scale  # of the output, in a unit of each sum
    held = 2**31 if data.dtype != "int16" else math.inf
    if most < held and most * steps.max() < _MOST_STEPS:
        return ""  # whatever the weights are
    if weights.data is None:
        return _overflow_of_results(most * float(steps.max()))
    centred = weights.array().astype(np.int32) - weights.zero_point
    sums = largest_sums(np.moveaxis(centred, axis, 0), bias, largest)
    reached = int(sums.max(initial=0))
    if reached >= held:
        return (
            f"its sums can reach {reached:,}, which 32 bits do not hold: the reference adds in 32 bits, and C does not "
            "say what comes of it"
        )
    return _overflow_of_results(float((sums * steps).max(initial=0)))


def _shifted_root(data: Tensor, made: Tensor) -> str:
    """Why the roots of a RSQRT are undefined: the reference shifts them by more than 31; "" where they are not."""
    if made.dtype not in LIMITS or not data.scale or not made.scale:
        return ""
    ratio = 1 / (math.sqrt(data.scale) * made.scale)
    shift = ROOT_BITS - quantise_multiplier(min(ratio, 1.0))[1]
    if shift <= 31:
        return ""
    return (
        f"its output scale, {made.scale:.3g}, is large: the reference shifts 32 bits by {shift}, and C does not say "
        "what comes of it"
    )


def _overflow_of_inputs(data: Tensor) -> str:
    """Why an int16 LOGISTIC or TANH is undefined: its input in units of the table exceeds 32 bits; "" where it fits."""
    if data.dtype != "int16" or squash_scale(data.scale).multiplier < SQUASH_LIMIT:
        return ""
    return (
        f"its input scale, {data.scale:.3g}, is large: the reference multiplies in 32 bits, which do not hold the "
        "products, and C does not say what comes of it"
    )


def _shifts_too_far(a: Tensor, b: Tensor, made: Tensor) -> str:
    """The reason that a DIV shifts too far, or "": quotients near zero by large divisors are shifted by as many bits as
    their numerator and reciprocal leave free, less those of the scales.
    """
    if a.dtype not in ("int8", "uint8"):
        return ""
    ratio = a.scale / (b.scale * made.scale)
    largest = max(abs(limit - b.zero_point) for limit in LIMITS[b.dtype])
    if math.frexp(largest)[1] - 1 <= math.frexp(ratio)[1]:
        return ""
    return (
        f"the scale of its quotients, {ratio:.3g}, is small: for numerators near zero the reference shifts 32 bits by "
        "more than 31, and C does not say what comes of it"
    )


def _rescaled_reason(network: Network, operator: CpuOperator) -> str:
    """Why an NPU's compiler makes other numbers than the reference, which ignores scales; "" where it does not."""
    if operator.name not in KEEP_STORED or not operator.outputs:
        return ""
    made = network.tensors[operator.outputs[0]]
    if made.dtype == "uint8" and operator.name in ("CONCATENATION", "RELU6"):
        return ""  # LiteRT does rescale these
    several = operator.name in ("CONCATENATION", "PACK")
    data = operator.inputs if several else operator.inputs[1:2] if operator.name == "SPLIT" else operator.inputs[:1]
    for tensor in (network.tensors[i] for i in (*data, *operator.outputs)):
        if abs(tensor.scale - made.scale) > _SAME * made.scale or tensor.zero_point != made.zero_point:
            return (
                f"an NPU rescales it, from scale {tensor.scale:g} and zero point {tensor.zero_point} to {made.scale:g} "
                f"and {made.zero_point}, and the reference does not"
            )
    return ""


def known_of(code: Code, network: Network, operator: CpuOperator) -> Claim:
    """The claim on the results of an operator that `code` runs."""
    if operator.external_scratch_bytes is not None:
        return EXTERNAL_FUNCTION
    if operator.name in ("IF", "WHILE"):
        inner = [
            known_of(Code.HOST, graph, o) for _, graph in subgraphs_of(network, operator) for o in graph.cpu_operators
        ]
        return next((c for c in inner if c.exactness is not Exactness.EXACT), Claim(Exactness.EXACT, MICRO))
    if operator.is_custom and operator.name not in EXACT_AS_A_WHOLE:
        return OWN_FUNCTION
    if reason := without_reference(network, operator):
        return Claim(reason=reason)
    dtype = activation_type(network, operator)
    hybrid = code is Code.HOST and operator.name in (*HYBRID, HYBRID_LSTM) and is_hybrid(network, operator)
    found = hybrid_claim(operator.name) if hybrid else operator_claim(code, operator.name, dtype)
    made = [network.tensors[i].dtype for i in operator.outputs if i >= 0]
    if operator.name == "QUANTIZE" and found.reference and made == ["uint8"] and dtype != "int8":
        found = replace(found, reference=LITERT)  # tflite-micro makes uint8 of int8 alone
    other = doubt_reason(code, network, operator)
    if other:
        return Claim(reason=other)
    if _held_to_litert(network, operator):
        return replace(found, reference=LITERT)
    if code is Code.LIFTED and (why := _unclipped_reason(operator)):
        return Claim(Exactness.UNPROVEN, found.reference, why)
    if code is Code.LIFTED and found.exactness is Exactness.EXACT and _joins_other_scales(network, operator):
        return Claim(Exactness.STEP, found.reference, "the reference rescales in float32: Vela's stream rounds ties up")
    if code is Code.LIFTED and found.exactness is Exactness.EXACT and _has_ties(network, operator):
        return Claim(Exactness.STEP, found.reference, "Vela divides the scales in float32: ties differ")
    return found


def _has_ties(network: Network, operator: CpuOperator) -> bool:
    """Whether a RELU or MUL of int8 depends on how its scales are divided: in double precision by the reference."""
    made = network.tensors[operator.outputs[0]]
    if operator.name not in ("RELU", "MUL") or made.dtype != "int8":
        return False
    scales = [network.tensors[i].scale for i in operator.inputs]
    real = divide_scales(math.prod(scales), made.scale, single=False)
    rounded = divide_scales(float(np.prod(np.array(scales, np.float32))), made.scale, single=True)
    values = np.arange(1 - (1 << 8 * len(scales)), 1 << 8 * len(scales))  # of int8 without zero point, or of two
    ours, velas = (multiply_by_quantised(values, *quantise_multiplier(ratio)) for ratio in (real, rounded))
    return not np.array_equal(ours, velas)


def _joins_other_scales(network: Network, operator: CpuOperator) -> bool:
    """Whether a CONCATENATION of uint8 rescales an input."""
    if operator.name != "CONCATENATION" or network.tensors[operator.outputs[0]].dtype != "uint8":
        return False
    tensors = [network.tensors[index] for index in (*operator.inputs, *operator.outputs)]
    return len({(tensor.scale, tensor.zero_point) for tensor in tensors}) > 1


def activation_type(network: Network, operator: CpuOperator) -> str:
    """Type of the first input that is no constant, a quantised one if any; of the output when all are constants, and of
    what selects, whose first input is a condition."""
    if operator.name in ("SELECT", "SELECT_V2"):
        return network.tensors[operator.outputs[0]].dtype
    made = [network.tensors[i] for i in operator.inputs if i >= 0 and network.tensors[i].data is None]
    made.sort(key=lambda tensor: not tensor.scales)  # shapes and indices last
    return next((t.dtype for t in (*made, *(network.tensors[i] for i in operator.outputs))), "")


def operator_label(network: Network, operator: CpuOperator) -> str:
    """The name of an operator in reports: that of its first output, or its kind and number."""
    tensor = _first(network, operator)
    return (tensor.name if tensor else "") or f"{operator.name.lower()}_{operator.index}"


def named_by(network: Network, operator: CpuOperator) -> str:
    """The tensor that Vela names an operator by."""
    tensor = _first(network, operator)
    return (tensor.name if tensor else "") or UNNAMED


def _first(network: Network, operator: CpuOperator) -> Tensor | None:
    """The first output; of an operator without any, the first input: what it updates."""
    return next((network.tensors[i] for i in (*operator.outputs, *operator.inputs) if i >= 0), None)


def _key(network: Network, operator: CpuOperator) -> tuple[str, str, tuple[int, ...]]:
    tensor = _first(network, operator)
    return operator.name, named_by(network, operator), tensor.shape if tensor else ()


NONE: Mapping[str, int | None] = MappingProxyType({})


def complete_network(network: Network, external: Mapping[str, int | None] = NONE, host_kernels: str = "") -> Network:
    """`network` with own states of operators as tensors, and shapes that they imply (`host_ops.complete_operators`).

    Operators named in `external` are external C functions, with that many bytes of scratch; `host_kernels` is the
    option of that name.
    """
    if host_kernels:
        network = replace(network, host_kernels=host_kernels)
    if external:
        network = _mark_external(network, {name.casefold(): size or 0 for name, size in external.items()})
    if not any(operator.is_custom for operator in network.cpu_operators):
        return network
    from ..host_ops import complete_operators

    return complete_operators(network)


def _mark_external(network: Network, external: Mapping[str, int]) -> Network:
    operators = tuple(
        replace(operator, external_scratch_bytes=external[operator.name.casefold()])
        if isinstance(operator, CpuOperator) and operator.name.casefold() in external
        else operator
        for operator in network.operators
    )
    return replace(network, operators=operators)


def external_builtins(network: Network, external: Mapping[str, int | None]) -> tuple[str, ...]:
    """The operators of TFLite's own that `external` names; `HostOpsError` for names that cannot be external."""
    present = {operator.name.casefold(): operator for operator in network.cpu_operators}
    names = {name: operator.name for name, operator in present.items()}
    names |= {name: names[name.casefold()] for name in external if name.casefold() in names}  # however it is written
    check_known("--host-ops", external, names, f"{network.name} has no such operator")
    named = [present[name.casefold()] for name in external]
    for operator in named:
        if operator.name in _OF_SUBGRAPHS:
            raise HostOpsError(
                f"--host-ops {operator.name}=SIZE: {operator.name} runs subgraphs of {network.name}, which a C "
                "function cannot; replace it in the model"
            )
    return tuple(operator.name for operator in named if not operator.is_custom)


def with_omitted_inputs(network: Network, source: Network) -> Network:
    """`network` with every host operator's inputs at the positions they have in `source`."""
    originals: dict[tuple[object, ...], list[CpuOperator]] = defaultdict(list)
    for known in reversed(source.cpu_operators):
        originals[_key_completion(source, known)].append(known)
    operators: list[NpuCall | CpuOperator] = []
    for operator in network.operators:
        if isinstance(operator, NpuCall):
            operators.append(operator)
            continue
        found = originals[_key_completion(network, operator)]
        original = found.pop().inputs if found else ()
        present = [i for i in operator.inputs if i >= 0]
        if -1 in original and len(present) == sum(i >= 0 for i in original):
            rest = iter(present)
            operators.append(replace(operator, inputs=tuple(next(rest) if i >= 0 else -1 for i in original)))
        else:
            operators.append(operator)
    return replace(network, operators=tuple(operators))


def with_constant_outputs(network: Network, source: Network) -> Network:
    """`network` with the bytes of results that are constants in `source`: Vela leaves them without any."""
    tensors = list(network.tensors)
    for index, original in zip(network.outputs, source.outputs, strict=True):
        constant = source.tensors[original]
        if constant.data is not None and tensors[index].data is None:
            tensors[index] = replace(tensors[index], data=constant.data, shape=constant.shape)
    return replace(network, tensors=tuple(tensors))


def require_made(network: Network) -> None:
    """`VelaError` where Vela has left out what makes an output or an input of an operator (a padding that a convolution
    took in, and that is an output of the network as well)."""
    made = {*network.inputs, *(i for o in network.operators for i in o.outputs)}
    for index in (*network.outputs, *(i for o in network.operators for i in o.inputs)):
        if index < 0 or index in made:
            continue
        tensor = network.tensors[index]
        if tensor.data is None and not tensor.is_variable:
            raise VelaError(
                f"nothing in what Vela made of {network.name} makes tensor {tensor.name!r}, which the network needs; "
                "compile it with --npu-compiler tvm"
            )


def _key_completion(network: Network, operator: CpuOperator) -> tuple[object, ...]:
    if not operator.outputs:
        return (operator.name,)
    tensor = network.tensors[operator.outputs[0]]
    return operator.name, tensor.name, tensor.shape, tensor.dtype, tensor.scales


@dataclass(frozen=True, slots=True)
class Need:
    """`count` operators of one kind and type; `refused` is why the host has no code for one of them, if it has none."""

    kind: str
    dtype: str
    count: int
    lifted: Claim
    lowered: Claim
    host: Claim
    refused: str = ""

    @property
    def runs_on(self) -> str:
        """What runs it, at best."""
        if self.lifted.exactness is not Exactness.UNPROVEN or self.lowered.exactness is not Exactness.UNPROVEN:
            return "NPU" if self.refused else "NPU or host"
        return "nothing" if self.refused else "host"


def needs(network: Network) -> tuple[Need, ...]:
    """The needs of `network`, most frequent first; calls of the NPU in a compiled one count as `ethos-u`."""
    network = complete_network(network)
    groups: dict[tuple[str, str], list[CpuOperator]] = {}
    for operator in network.operators:
        if not isinstance(operator, NpuCall):
            dtype = activation_type(network, operator) if operator.inputs or operator.outputs else ""
            groups.setdefault((operator.name, dtype), []).append(operator)
    floats = float_operators(network)
    found = [_need(network, kind, dtype, members, floats) for (kind, dtype), members in groups.items()]
    found.sort(key=lambda need: (-need.count, need.kind, need.dtype))
    calls = len(network.npu_calls)
    compiled = Claim(reason="the file was compiled already")
    return (*((Need("ethos-u", "", calls, compiled, compiled, compiled),) if calls else ()), *found)


def _need(network: Network, kind: str, dtype: str, members: list[CpuOperator], floats: dict[int, str]) -> Need:
    refused = next((reason for o in members if (reason := host_reason(network, o)) is not None), "")
    unknown = Claim()
    on_npu = not any(operator.index in floats for operator in members)
    lifted, lowered = (operator_claim(code, kind, dtype) if on_npu else unknown for code in (Code.LIFTED, Code.LOWERED))
    return Need(kind, dtype, len(members), lifted, lowered, operator_claim(Code.HOST, kind, dtype), refused)
