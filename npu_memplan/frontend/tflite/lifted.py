"""A TFLite file to one IRModule: `main` in Relax, a PrimFunc for each NPU call and each host operator.

Invariant: everything the later stages need is in the module: names, quantisation and agents of
inputs, outputs, states and source operators are attributes of `main` (see `attributes.py`), weights
and command data are constants, and there is no host operator without an exact lowering.
"""

from __future__ import annotations

import hashlib
import importlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ethosu.arch import ACCELERATORS, Language, accelerator
from ...ethosu.program.primfunc import cache_program, to_primfunc
from ...ethosu.program.program import BufferRole
from ...exactness import NOT_BY_VELA, Code
from ...models.checks import ranged_as, shaped_as
from ...models.flatbuffer import UnsupportedModelError, read_file
from ...models.folding import fold_constants
from ...models.network import CpuOperator, Network
from ...models.subgraphs import reads_first, starting_as
from ...models.tflite import read_network
from ...models.vela import NpuCall
from ...options import NO_NPU
from ...request import ONLY_FLOATS
from ...vela.compiler import VelaOptions, VelaResult, compile_tflite, start_compile
from ...vela.cross_call import with_cross_call_tensors
from ...vela.lift import LiftError, arguments, lift_program
from ...vela.worker import VelaError
from ...vocabulary import TFLITE_RESHAPING
from ..attributes import BY_USER, forced_operators
from .description import (
    FLOATING,
    NONE,
    SLICING,
    activation_type,
    check_host_operators,
    check_on_host,
    complete_network,
    describe_tensor,
    doubt_reason,
    external_builtins,
    float_operators,
    host_reason,
    network_attributes,
    require_made,
    source_operators,
    with_constant_outputs,
    with_omitted_inputs,
)

if TYPE_CHECKING:
    from .main_builder import MainBuilder


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """A model as a module, and what Vela itself would have used for it (None: Vela did not run)."""

    module: Any  # tvm.IRModule
    network: Network
    vela: VelaResult | None = None
    notes: tuple[str, ...] = ()  # what a user should know of it


def import_tflite(
    model: bytes | Path,
    options: VelaOptions | None = None,
    host_ops: Sequence[str] = (),
    name: str = "",
    external: Mapping[str, int | None] = NONE,
    host_kernels: str = "",
) -> Imported:
    """Compile a TFLite model's NPU part with Vela and import the result.

    `host_ops` are TFLite operators (e.g. "SOFTMAX") to keep on the CPU; `external` those that C functions of somebody
    else's run there, with their bytes of scratch. A network that Vela has compiled already is imported as it is.
    Raises `NetworkError` (no TFLite file, damaged), `UnsupportedModelError` (operators that neither side can run),
    `HostOpsError`, `VelaError`, `LiftError`.
    """
    file, data, name = read_folded(model, name)
    source = complete_network(read_network(data, name), external, host_kernels)
    if options is not None:
        _check_target(source, options.accelerator)
    host_ops = (*host_ops, *external_builtins(source, external))
    if not source.npu_calls:
        floats = float_operators(source)
        check_on_host(source, floats, file)
        if len(floats) == len(source.operators):
            forced_operators(source, host_ops)
            kept = {operator.name: FLOATING for operator in source.cpu_operators}
            return Imported(from_network(source, kept=kept), source, notes=(f"{name} {ONLY_FLOATS}",))
    found = compiled_by_vela(data, options, host_ops, name)
    if found.vela is None:
        try:
            return Imported(from_network(source), source)
        except LiftError as error:
            raise LiftError(
                f"{name} is compiled for the NPU already, and its stream cannot be planned again: {error.reason}",
                "Compile the network that it was made from",
            ) from None
    # branches are run by the host, whatever Vela has made of them
    network = replace(complete_network(found.network, external, host_kernels), subgraphs=source.subgraphs)
    check_host_operators(network, found.vela.messages, found.kept, file)
    module = from_network(network, source, found.vela.messages, found.kept, found.vela.operators)
    return Imported(module, network, found.vela)


@dataclass(frozen=True, slots=True, eq=False)
class CompiledNetwork:
    """The result of Vela for a `source` network; `vela` is None for one that it had compiled before."""

    source: Network
    network: Network
    vela: VelaResult | None
    kept: Mapping[str, str]  # kinds of operators that were kept off the NPU, and why


def compiled_by_vela(data: bytes, options: VelaOptions | None, host_ops: Sequence[str], name: str) -> CompiledNetwork:
    """The network in `data` as Vela compiles it; see `import_tflite`, which refuses what our own C cannot run."""
    source = read_network(data, name)
    if source.npu_calls:
        require_made(source)
        return CompiledNetwork(source, source, None, {})
    packed = next((tensor for tensor in source.tensors if tensor.is_packed), None)
    if packed is not None:
        raise UnsupportedModelError(
            f"{name} has weights of 4 bits (tensor {describe_tensor(packed)}), which Vela cannot read; compile it with "
            "--npu-compiler tvm, or for the host alone with --accelerator none"
        )
    twice = next((i for i in source.outputs if source.outputs.count(i) > 1), None)
    if twice is not None:
        raise UnsupportedModelError(
            f"{name} returns tensor {describe_tensor(source.tensors[twice])} twice, and Vela returns it once; compile "
            "it with --npu-compiler tvm, or for the host alone with --accelerator none"
        )
    reshaped = next((o for o in source.cpu_operators if o.name in _OF_TWO and _reads_two_shapes(source, o)), None)
    if reshaped is not None:
        raise UnsupportedModelError(
            f"{name} has an operator {reshaped.name} (number {reshaped.index}) of one tensor in two shapes, which Vela "
            "reads in one; compile it with --npu-compiler tvm, or for the host alone with --accelerator none"
        )
    options = options or VelaOptions()
    kept = dict.fromkeys(forced_operators(source, host_ops), BY_USER)
    confused = _equal_weights(source)
    for operator in source.cpu_operators:
        reason = _OTHER_BIAS if operator.index in confused else None
        reason = reason or NOT_BY_VELA.get((operator.name, activation_type(source, operator)))
        reason = reason or _wrong_by_vela(source, operator, options)
        doubted = doubt_reason(Code.LIFTED, source, operator)
        if reason is None and doubted and host_reason(source, operator) is None:
            reason = doubted
        if reason is not None:
            kept.setdefault(operator.name, reason)
    if kept:
        options = replace(options, ignore_operators=tuple(kept))
    start_compile(data, options)
    importlib.import_module("tvm.relax")  # most of a second of work while Vela's process runs
    result = compile_tflite(data, options, name)  # picks up what was started
    for operator in source.cpu_operators if result.core == "legacy" else ():
        if wrong := _wrong_by_legacy_core(source, operator):
            raise VelaError(
                f"Vela's compiled core refuses {name}, and the stream of its legacy core is wrong for {wrong}. "
                "Compile with --npu-compiler tvm"
            )
    parsed = starting_as(with_omitted_inputs(result.parsed, source), source)
    parsed = shaped_as(reads_first(parsed, source), source)
    if len(parsed.outputs) != len(source.outputs):
        raise VelaError(
            f"Vela leaves outputs of {name} out: it returns {len(parsed.outputs)} of {len(source.outputs)}. "
            "Compile with --npu-compiler tvm"
        )
    network = ranged_as(with_constant_outputs(parsed, source), source)
    require_made(network)
    return CompiledNetwork(source, network, result, kept)


def _bools_across(network: Network) -> list[int]:
    """Tensors of bool that the NPU writes and the host reads, or the other way round: on the NPU true is -1."""
    made = {i for call in network.npu_calls for i in call.outputs}
    read = {i for call in network.npu_calls for i in call.inputs}
    found = {i for operator in network.cpu_operators for i in operator.inputs if i in made}
    found |= {i for operator in network.cpu_operators for i in operator.outputs if i in read}
    return sorted(i for i in found if network.tensors[i].dtype == "bool")


_BIAS = {"CONV_2D": 2, "DEPTHWISE_CONV_2D": 2, "FULLY_CONNECTED": 2, "TRANSPOSE_CONV": 3}  # place among the inputs


_OTHER_BIAS = "Vela's stream for it takes the biases of other weights that are equal"
_LSTM_WEIGHTS = [(place, 11 + place) for place in range(1, 5)] + [(place, -1) for place in range(5, 9)]


def _equal_weights(network: Network) -> set[int]:
    """Operators some of whose weights, of all or of a group, are stored twice with other biases: Vela 5.2 encodes
    weights and their biases once for all equal weights of equal scales.
    """
    biases, users = defaultdict[bytes, set[bytes]](set), defaultdict[bytes, set[int]](set)
    for operator in network.cpu_operators:
        places = [(1, _BIAS[operator.name])] if operator.name in _BIAS else []
        for place, bias_place in _LSTM_WEIGHTS if operator.name == "UNIDIRECTIONAL_SEQUENCE_LSTM" else places:
            weights, bias = _constant_at(network, operator, place), _constant_at(network, operator, bias_place)
            if not len(weights):
                continue
            groups = _group_count(network, operator)
            for part, others in zip(np.split(weights, groups), np.split(bias, groups), strict=True):
                key = hashlib.blake2b(part.tobytes()).digest()
                biases[key].add(others.tobytes())
                users[key].add(operator.index)
    return set().union(*(users[key] for key, found in biases.items() if len(found) > 1))


def _constant_at(network: Network, operator: CpuOperator, place: int) -> Any:
    """The bytes of the constant that is an operator's input at a place; none where there is no such constant."""
    index = operator.inputs[place] if 0 <= place < len(operator.inputs) else -1
    data = network.tensors[index].data if index >= 0 else None
    return np.zeros(0, np.uint8) if data is None else data


def _group_count(network: Network, operator: CpuOperator) -> int:
    if operator.name != "CONV_2D":
        return 1
    data, weights = (network.tensors[i].shape for i in operator.inputs[:2])
    return data[3] // weights[3]


def _wrong_by_vela(source: Network, operator: CpuOperator, vela: VelaOptions) -> str | None:
    """Why an operator of this accelerator is not Vela's; None where it may be."""
    bias = operator.inputs[_BIAS[operator.name] :][:1] if operator.name in _BIAS else ()
    narrow = bool(bias) and bias[0] >= 0 and source.tensors[bias[0]].dtype == "int32"
    u85 = accelerator(vela.accelerator).language is Language.U85
    if u85 and operator.name == "PRELU" and activation_type(source, operator) in ("int16", "uint8"):
        return "Vela's compiler refuses networks that have it, for Ethos-U85"
    if u85 and narrow and activation_type(source, operator) == "int16":
        return "Vela's stream for it on Ethos-U85 cuts multipliers to 15 bits where int16 data have biases of 32 bits"
    if operator.name == "CONV_2D" and _groups_of_images(source, operator):
        return "Vela's stream for it reads wrong elements of all images but one, as it is in groups"
    if operator.name == "QUANTIZE" and _moves_zero_points(source, operator):
        return "Vela makes it part of another operator, without its zero point or limits"
    if operator.name in SLICING and (reader := _misreader_of_part(source, operator, u85)):
        return f"Vela's stream for it has wrong elements where {reader} follows"
    if operator.name == "SOFTMAX" and _exceeds_differences(source, operator):
        return "Vela's stream for it saturates differences of its inputs that have more than 32 bits"
    if operator.name == "MEAN" and len(source.tensors[operator.inputs[0]].shape) > 4:
        return "Vela's stream for it takes other elements of five axes or more"
    if not u85 and operator.name == "REDUCE_MIN" and any(operator.outputs[0] in o.inputs for o in source.cpu_operators):
        return "Vela's stream for it, a maximum of differences, is wrong where an operator reads its result"
    if operator.name in _OF_TWO and _broadcasts_far(source, operator):
        return "Vela's stream for it takes other axes of the operand that has fewer"
    if u85 and operator.name == "RESIZE_NEAREST_NEIGHBOR" and _resizes_by_parts(source, operator):
        return "Vela's stream for it on Ethos-U85 takes other elements where extents are no multiples"
    if operator.name == "TRANSPOSE_CONV" and _strides_over_kernel(source, operator):
        return "Vela's stream for it moves results where its stride is longer than its kernel by two or more"
    if not u85 and _clamps_apart(source, operator):
        return "Vela's stream for it clamps uint8 results of several channels from each as if they were int8"
    return None


def _groups_of_images(network: Network, operator: CpuOperator) -> bool:
    """Whether it is a CONV_2D in groups, of several images; as many groups as channels are a depthwise convolution."""
    data, weights, made = (network.tensors[i].shape for i in (*operator.inputs[:2], *operator.outputs))
    return data[0] > 1 and weights[3] < data[3] and (weights[3] > 1 or made[3] > data[3])


def _moves_zero_points(network: Network, operator: CpuOperator) -> bool:
    """Whether it is a QUANTIZE from zero point 0 to another, between equal scales or types that differ, which Vela 5.2
    lets the operator before it do, or between types alone, which it leaves out.
    """
    data, made = (network.tensors[i] for i in (*operator.inputs, *operator.outputs))
    retyped, alike = data.dtype != made.dtype, bool(data.scale) and abs(made.scale / data.scale - 1) < 1e-6
    if data.zero_point == made.zero_point:
        return retyped and alike
    return not data.zero_point and (retyped or alike) and any(data.index in o.outputs for o in network.cpu_operators)


def _exceeds_differences(network: Network, operator: CpuOperator) -> bool:
    """Whether a SOFTMAX of int16 scales differences of 17 bits, in steps of 10/65535, by 2^15 or more."""
    data, options = network.tensors[operator.inputs[0]], operator.options("SoftmaxOptions")
    beta = 1.0 if options is None else options.Beta()
    return data.dtype == "int16" and data.scale * beta * 65535 / 10 >= 1 << 15


def _misreader_of_part(network: Network, operator: CpuOperator, u85: bool) -> str:
    """The operator that reads a part of this one, reshaped or not, and wrong elements of it; "" where none does."""
    kind, place = ("TRANSPOSE_CONV", 2) if u85 else ("BATCH_MATMUL", 0)
    parts = {*operator.outputs}
    for other in network.cpu_operators:
        if other.name == kind and other.inputs[place] in parts and operator.name != "UNPACK":  # whose parts are right
            return kind
        if other.inputs and other.inputs[0] in parts:
            if _has_multiplier(network, other):
                return "DEPTHWISE_CONV_2D with a multiplier"
            parts.update(other.outputs if other.name in TFLITE_RESHAPING else ())
    return ""


def _has_multiplier(network: Network, operator: CpuOperator) -> bool:
    """Whether it is a depthwise convolution that makes several channels of each of several."""
    if operator.name != "DEPTHWISE_CONV_2D":
        return False
    data, made = (network.tensors[i].shape for i in (operator.inputs[0], operator.outputs[0]))
    return 1 < data[-1] < made[-1]


_OF_TWO = frozenset(("ADD", "SUB", "MUL", "DIV", "MINIMUM", "MAXIMUM", "SQUARED_DIFFERENCE", "PRELU"))


def _broadcasts_far(network: Network, operator: CpuOperator) -> bool:
    """Whether a result of five axes or more has an operand with fewer, which is not one row alone."""
    rank = len(network.tensors[operator.outputs[0]].shape)
    shapes = [network.tensors[i].shape for i in operator.inputs]
    return rank > 4 and any(len(shape) < rank and any(n > 1 for n in shape[:-1]) for shape in shapes)


def _reads_two_shapes(network: Network, operator: CpuOperator) -> bool:
    """Whether its operands are one tensor in several shapes."""
    source = {o.outputs[0]: o.inputs[0] for o in network.cpu_operators if o.name in TFLITE_RESHAPING}
    roots = set[int]()
    for index in operator.inputs:
        while index in source:
            index = source[index]
        roots.add(index)
    return len(roots) < len({network.tensors[index].shape for index in operator.inputs})


def _resizes_by_parts(network: Network, operator: CpuOperator) -> bool:
    """Whether an extent of the result is no multiple of the input's, and neither corners nor centers are aligned."""
    options = operator.options("ResizeNearestNeighborOptions")
    if options is not None and (options.AlignCorners() or options.HalfPixelCenters()):
        return False
    data, made = (network.tensors[i].shape for i in (operator.inputs[0], operator.outputs[0]))
    return any(wide % narrow for narrow, wide in zip(data[1:3], made[1:3], strict=True))


def _strides_over_kernel(source: Network, operator: CpuOperator) -> bool:
    """Whether a transposed convolution with SAME padding leaves two or more places between the kernels of an axis."""
    options, (_, height, width, _) = operator.options("TransposeConvOptions"), source.tensors[operator.inputs[1]].shape
    if options is None or options.Padding():
        return False
    return bool(max(options.StrideH() - height, options.StrideW() - width) >= 2)


def _wrong_by_legacy_core(source: Network, operator: CpuOperator) -> str:
    """A transposed convolution with stride 1, whose columns and rows outside the input it reads as others; "" for what
    is right. It is right for odd kernels with SAME padding, which are not told apart here: native lowering has all of
    them. A STRIDED_SLICE that begins before the first element begins elsewhere.
    """
    if operator.name == "TRANSPOSE_CONV":
        options = operator.options("TransposeConvOptions")
        return "TRANSPOSE_CONV with stride 1" if options and 1 in (options.StrideH(), options.StrideW()) else ""
    if operator.name != "STRIDED_SLICE":
        return ""
    extents = source.tensors[operator.inputs[0]].shape
    constants = [tensor for i in operator.inputs[1:3] if (tensor := source.tensors[i]).data is not None]
    rows = [tensor.array().reshape(-1).tolist() for tensor in constants]
    outside = any(abs(bound) > extent for row in rows for bound, extent in zip(row, extents, strict=False))
    return "STRIDED_SLICE with bounds outside of its input" if outside else ""


def _clamps_apart(source: Network, operator: CpuOperator) -> bool:
    """A depthwise convolution of uint8 with a multiplier, whose fused activation Vela 5.2 makes a pool of its own."""
    if not _has_multiplier(source, operator) or activation_type(source, operator) != "uint8":
        return False
    options = operator.options("DepthwiseConv2DOptions")
    return bool(options and options.FusedActivationFunction())


def import_host_only(
    model: bytes | Path,
    name: str = "",
    external: Mapping[str, int | None] = NONE,
    host_kernels: str = "",
    in_rows: bool = False,
) -> Imported:
    """Import a TFLite model with every operator on the CPU; `external` as for `import_tflite`; `in_rows`: in turn, by
    rows, where that saves bytes.
    """
    file, data, name = read_folded(model, name)
    network = replace(complete_network(read_network(data, name), external, host_kernels), in_rows=in_rows)
    _check_target(network, NO_NPU)
    external_builtins(network, external)
    check_host_operators(network, (), {}, file)
    return Imported(from_network(network), network)


def _check_target(network: Network, target: str) -> None:
    """Refuses a network that was compiled for an NPU which `target` has not, or whose commands it does not take."""
    for call in network.npu_calls:
        names = [name for name, found in ACCELERATORS.items() if found.language is call.accelerator.language]
        if target not in names:
            raise UnsupportedModelError(
                f"{network.name} was compiled for an NPU already ({', '.join(names)}), whose command streams "
                f"--accelerator {target} cannot run; name the NPU that it was compiled for, or give the model that "
                "Vela was given"
            )


def read_folded(model: bytes | Path, name: str) -> tuple[bytes, bytes, str]:
    """The file, the same with operators of constants folded, and what to call it."""
    data = model if isinstance(model, bytes) else read_file(model)
    name = name or ("model" if isinstance(model, bytes) else model.name)
    return data, fold_constants(data, name), name


def from_network(
    network: Network,
    source: Network | None = None,
    messages: Sequence[str] = (),
    kept: Mapping[str, str] = MappingProxyType({}),
    served: Sequence[Mapping[int, int]] = (),
) -> Any:
    """The IRModule of a compiled network. `source` is the model it was compiled from, for names and reasons.

    `kept` are kinds of operators that were kept off the NPU, and why; `served` the source's operator of each kernel of
    each NPU call, by offset in its stream.
    """
    from .main_builder import MainBuilder

    network = with_cross_call_tensors(network)
    _check_calls(network)
    builder = MainBuilder(network)
    states = builder.states
    builder.one_value_a_state()

    of_call = dict(zip((call.index for call in network.npu_calls), served, strict=False))

    def emit(operator: NpuCall | CpuOperator) -> None:
        if isinstance(operator, NpuCall):
            add_npu_call(builder, operator, of_call.get(operator.index, {}))
        else:
            builder.host_operator(operator)

    operators = source_operators(network, source or network, messages, kept)
    return builder.build(emit, network_attributes(network, states, operators))


def _check_calls(network: Network) -> None:
    """Refuses a call whose results are not used (the file has lost something), or that shares bools with the host."""
    for tensor in _bools_across(network):
        raise LiftError(
            f"{network.name}: Vela's streams store true as -1, and an operator on the host has tensor "
            f"{describe_tensor(network.tensors[tensor])} too",
            "Compile the source model with --npu-compiler tvm",
        )
    for call in network.npu_calls:
        if not call.outputs and not any(part.updated for part in call.parts.values()):
            raise LiftError(
                f"NPU operator {call.index} of {network.name} has no output, and no later one reads what it leaves in "
                "the arena; compile the source model again"
            )


def add_npu_call(builder: MainBuilder, call: NpuCall, served: Mapping[int, int]) -> None:
    """Add a call of Vela's, lifted; `served`: the source's operator of each kernel, by offset in the stream."""
    from tvm import relax

    name = builder.function_name("npu")
    program = lift_program(builder.network, call, name, served)
    found = arguments(builder.network, call)
    given = [a for a in found if a.role is not BufferRole.OUTPUT]
    inputs = [builder.value(a.tensor) for a in given]
    updated = {a.tensor: position for position, a in enumerate(given) if a.part.updated}
    if call.read_only.nbytes:
        inputs.append(relax.const(call.read_only, "uint8"))
    outputs = [a.tensor for a in found if a.role is BufferRole.OUTPUT]
    builder.call(cache_program(to_primfunc(program), program), name, inputs, outputs, updated)
