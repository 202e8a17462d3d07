"""A TFLite file to one IRModule: `main` in Relax, a PrimFunc for each NPU call and each host operator.

Invariant: everything the later stages need is in the module: names, quantisation and agents of
inputs, outputs, states and source operators are attributes of `main` (see `attributes.py`), weights
and command data are constants, and there is no host operator without an exact lowering.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

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
from ...vela.placeholders import PLACEHOLDER, with_originals, with_placeholders
from ...vela.worker import VelaError
from ..attributes import BY_USER, forced_operators
from .description import (
    FLOATING,
    NONE,
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
from .vela_faults import KEPT, LEGACY, REFUSED, first_reason

if TYPE_CHECKING:
    from .main_builder import MainBuilder


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """A model as a module, and what Vela itself would have used for it (None: Vela did not run)."""

    module: Any  # tvm.IRModule
    network: Network
    vela: VelaResult | None = None
    notes: tuple[str, ...] = ()  # what a user should know of it
    kept: tuple[str, ...] = ()  # kinds of operators that Vela was not given


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
    return Imported(module, network, found.vela, kept=tuple(found.kept))


@dataclass(frozen=True, slots=True, eq=False)
class CompiledNetwork:
    """The result of Vela for a `source` network; `vela` is None for one that it had compiled before."""

    source: Network
    network: Network
    vela: VelaResult | None
    kept: Mapping[str, str]  # kinds of operators that were kept off the NPU, and why


def kept_from_vela(source: Network, npu: Language) -> dict[int, str]:
    """Operators that Vela is not given for this kind of NPU, by index, as its stream for them is wrong -> why."""
    kept: dict[int, str] = {}
    for operator in source.cpu_operators:
        reason = NOT_BY_VELA.get((operator.name, activation_type(source, operator)), "")
        reason = reason or first_reason(KEPT, source, operator, npu)
        doubted = "" if reason else doubt_reason(Code.LIFTED, source, operator)
        if doubted and host_reason(source, operator) is None:
            reason = doubted
        if reason:
            kept[operator.index] = reason
    return kept


def _kept_alone(source: Network, wrong: Collection[int], named: Sequence[str]) -> frozenset[int]:
    """The operators to keep of kinds of which Vela gets others; of those with states it gets none."""
    given = {o.name for o in source.cpu_operators if o.index not in wrong and o.name not in named}
    return frozenset(
        operator.index
        for operator in source.cpu_operators
        if operator.index in wrong
        and operator.name in given
        and not operator.intermediates
        and not any(tensor.is_variable for tensor in source.tensors_of(operator))
    )


def _run_vela(
    data: bytes, source: Network, options: VelaOptions, name: str, wrong: Collection[int], named: Sequence[str]
) -> VelaResult:
    """The result of Vela without operators that are `wrong`, and kinds that are `named`."""
    alone = _kept_alone(source, wrong, named)
    kinds = [o.name for o in source.cpu_operators if o.index in wrong and o.index not in alone]
    ignored = dict.fromkeys((*kinds, *named, *((PLACEHOLDER,) if alone else ())))
    options = replace(options, ignore_operators=tuple(ignored)) if ignored else options
    given = with_placeholders(data, alone) if alone else data
    start_compile(given, options)
    importlib.import_module("tvm.relax")  # most of a second of work while Vela's process runs
    result = compile_tflite(given, options, name)  # picks up what was started
    if not alone:
        return result
    network = with_originals(result.network, data)
    parsed = replace(read_network(network, f"{name} compiled by Vela"), name=name)
    return replace(result, network=network, parsed=parsed)


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
    options = options or VelaOptions()
    npu = accelerator(options.accelerator).language
    for operator in source.cpu_operators:
        if reason := first_reason(REFUSED, source, operator, npu):
            raise UnsupportedModelError(
                f"{name} has an operator {operator.name} (number {operator.index}) {reason}, which Vela reads in one; "
                "compile it with --npu-compiler tvm, or for the host alone with --accelerator none"
            )
    named, left = forced_operators(source, host_ops), kept_from_vela(source, npu)
    kept = {o.name: left[o.index] for o in source.cpu_operators if o.index in left} | dict.fromkeys(named, BY_USER)
    result = _run_vela(data, source, options, name, left, named)
    for operator in source.cpu_operators if result.core == "legacy" else ():
        if wrong := first_reason(LEGACY, source, operator):
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
