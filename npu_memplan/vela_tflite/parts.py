"""A network as TFLite Micro will run it: NPU functions and CPU operators in order, whichever compiler chose them, as
one IRModule.

Invariant: every operator of the network is in exactly one step; a function's parameters are tensors of the network. No
group for the NPU needs the result of an operator outside that itself needs a result of the group, and the operators of
a group hang together by tensors that they make. An operator of TFLite Micro only says what it touches: all it reads and
all it writes at one point of time, so what it writes never overlaps what it reads; what it needs besides is TFLite
Micro's to find around the plan. A reshape of TFLite Micro copies nothing when both its tensors are the same bytes, so
they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from ..ethosu.program.primfunc import to_primfunc
from ..ethosu.program.program import BufferRole
from ..extract import prepare
from ..extract.program import Fixed, View, result_views
from ..extract.walk import walk
from ..frontend.attributes import operators_of
from ..frontend.host_ops.tir import Function, cast, first_of, int_constant
from ..frontend.load import lowered_for
from ..frontend.start import vela_options
from ..frontend.tflite.description import network_attributes
from ..frontend.tflite.lifted import compiled_by_vela
from ..frontend.tflite.main_builder import MainBuilder
from ..models.flatbuffer import UnsupportedModelError
from ..models.folding import fold_constants
from ..models.network import CpuOperator, Network
from ..models.operators.validation import ContradictionError, validate_network
from ..models.subgraphs import DONE_BEFORE, OF_VARIABLES, kept_variables
from ..models.tensor import Tensor
from ..models.tflite import read_network
from ..models.vela import NpuCall
from ..models.vela_file import rebuild_file
from ..request import Request
from ..vela.cross_call import with_cross_call_tensors
from ..vela.lift import arguments, lift_program
from ..vocabulary import OPERATORS, TFLITE_RESHAPING, UNTIMED, is_npu


@dataclass(frozen=True, slots=True, eq=False)
class NpuPart:
    """A function for the NPU, not planned yet. Tensors are those of the network, by index."""

    primfunc: Any
    constants: bytes
    reads: tuple[int, ...]  # of its parameters before the constants: inputs and states
    writes: tuple[int, ...]  # of its last parameters
    inputs: tuple[int, ...]  # as the operator in the file lists them; versions of a state come several times
    outputs: tuple[int, ...]
    updates: tuple[int, ...] = ()  # of what it reads: it changes them in place


Part = NpuPart | CpuOperator


@dataclass(frozen=True, slots=True, eq=False)
class Divided:
    """The network in `data`, and its steps."""

    data: bytes
    network: Network
    steps: tuple[Part, ...]
    vela_arena_bytes: int  # what Vela would take for it; 0: it did not run
    notes: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()  # kinds of operators that Vela was not given


def divide_network(data: bytes, name: str, request: Request) -> Divided:
    """`data` by the compiler that the request names; a file that Vela has compiled already as it is."""
    if read_network(data, name).npu_calls or request.options.npu_compiler == "vela":
        return _by_vela(data, name, request)
    return _by_lowering(fold_constants(data, name), name, request)


# -- Vela ---------------------------------------------------------------------------------------------


def _by_vela(data: bytes, name: str, request: Request) -> Divided:
    from ..vela.compiler import arena_bytes

    found = compiled_by_vela(data, vela_options(request.options), request.options.host_ops, name)
    for _, variable in kept_variables(found.network):
        raise UnsupportedModelError(
            f"{name}: Vela keeps variable {variable!r} in the arena, and TFLite Micro keeps no such tensor between "
            "inferences; compile it with --npu-compiler tvm"
        )
    try:
        validate_network(replace(found.network, by_vela=False))  # which the new file is not
    except ContradictionError as error:
        raise UnsupportedModelError(
            f"{name}: Vela leaves an operator to the CPU with a tensor of another shape: {error}; compile it with "
            "--npu-compiler tvm"
        ) from None
    network, content = with_cross_call_tensors(found.network), data if found.vela is None else found.vela.network
    served = iter(() if found.vela is None else found.vela.operators)
    steps: list[Part] = []
    for operator in network.operators:
        if isinstance(operator, CpuOperator):
            steps.append(operator)
            continue
        program = lift_program(network, operator, f"npu{len(steps)}", next(served, {}))
        steps.append(_lift_part(network, operator, to_primfunc(program)))
    arenas = arena_bytes(network, [pool.name for pool in request.pools])
    return Divided(content, network, tuple(steps), next(iter(arenas.values()), 0), kept=tuple(found.kept))


def _lift_part(network: Network, call: NpuCall, primfunc: Any) -> NpuPart:
    listed = arguments(network, call)
    reads = tuple(a.tensor for a in listed if a.role is not BufferRole.OUTPUT)
    writes = tuple(a.tensor for a in listed if a.role is BufferRole.OUTPUT)
    updates = tuple(a.tensor for a in listed if a.part.updated)
    return NpuPart(primfunc, call.read_only.tobytes(), reads, writes, call.inputs, call.outputs, updates)


# -- native lowering -----------------------------------------------------------------------------------


def _by_lowering(data: bytes, name: str, request: Request) -> Divided:
    """The whole network says what runs where; each part for the NPU then is lowered as a network of its own."""
    from ..frontend.tflite.lowered import build_module

    options = request.options
    lowering_target = lowered_for(request)
    whole = build_module(data, options.accelerator, options.host_ops, name, lowering_target).module
    network = read_network(data, name)
    on_npu = [operator.on_npu for operator in operators_of(whole["main"])]
    steps: list[Part] = []
    alone: list[CpuOperator] = []
    for group in in_order(network, on_npu):
        part = _lower_part(data, network, group, request) if any(on_npu[o.index] for o in group) else None
        steps += group if part is None else [part]
        if part is None and on_npu[group[0].index]:
            alone += [operator for operator in group if operator.name not in NO_WORK]
    kinds = ", ".join(sorted({operator.name for operator in alone}))
    reason = (
        f"{len(alone)} operators that the NPU could run stay on the CPU ({kinds}): they are no function on their own"
    )
    notes = (reason,) if alone else ()
    return Divided(data, network, tuple(steps), 0, notes)


def _lower_part(data: bytes, network: Network, operators: Sequence[CpuOperator], request: Request) -> NpuPart | None:
    """The operators as one function for the NPU; None when they are none without the rest of the network, or when
    nobody needs their results."""
    from ..frontend.tflite.lowered import build_module

    made = {tensor for operator in operators for tensor in operator.outputs}
    inside = {operator.index for operator in operators}
    used = [t for o in operators for t in o.inputs if t >= 0 and network.tensors[t].data is None and t not in made]
    given = [t for t in dict.fromkeys(used) if not network.tensors[t].is_variable]
    requested = {t for o in network.cpu_operators if o.index not in inside for t in o.inputs} | set(network.outputs)
    results = [t for o in operators for t in o.outputs if t in requested]
    if not results:
        return None
    name = f"{network.name}, operators {operators[0].index} to {operators[-1].index}"
    cut = rebuild_file(data, operators, given, results)
    alone = read_network(cut, name)
    lowering_target = lowered_for(request)
    module = build_module(cut, request.options.accelerator, (), name, lowering_target).module
    program = walk(prepare(module))
    if [is_npu(call.primfunc) for call in program.calls] != [True]:
        return None
    (call,) = program.calls
    states = [_find_state(network, used, alone.tensors[i].name) for i in alone.states]
    tensor_of = dict(zip(program.inputs, (*given, *states), strict=True))
    for leaf, index in zip(result_views(program.result), results, strict=True):
        if not isinstance(leaf, View):
            return None  # it is a constant
        tensor_of[leaf.tensor] = index
    arguments_, constants = [], b""
    for argument in call.arguments:
        if isinstance(argument, Fixed):
            constants = np.ascontiguousarray(argument.expr.value.numpy()).tobytes()
        elif isinstance(argument, View):
            arguments_.append(tensor_of[argument.tensor])
    writes = tuple(t for t in arguments_ if t in made)
    reads = tuple(t for t in arguments_ if t not in made)
    operators_of_part = [operators[int(i)].index if int(i) >= 0 else -1 for i in call.primfunc.attrs.get(OPERATORS, ())]
    primfunc = call.primfunc.with_attr(OPERATORS, operators_of_part) if operators_of_part else call.primfunc
    return NpuPart(primfunc, constants, reads, writes, reads, writes)


def _find_state(network: Network, candidates: Sequence[int], name: str) -> int:
    """The state called `name` among `candidates`."""
    return next(i for i in candidates if network.tensors[i].is_variable and network.tensors[i].name == name)


def as_network(divided_: Divided) -> Network:
    """The network with one operator a step, which names only the tensors that the plan places.

    Constants, and states that only CPU operators have, are TFLite Micro's own business. A tensor of one byte from each
    operator that reads or assigns a variable to the next one keeps them in their order; it is behind those of the
    network.
    """
    network = divided_.network
    shared = {t for s in divided_.steps if isinstance(s, NpuPart) for t in (*s.reads, *s.writes)}
    tensors = list(network.tensors)

    def is_planned(tensor: int) -> bool:
        known = network.tensors[tensor] if tensor >= 0 else None
        return known is not None and known.data is None and (not known.is_variable or tensor in shared)

    def view(number: int, step: Part) -> CpuOperator:
        if isinstance(step, NpuPart):
            return CpuOperator(number, "ethos-u", 32, step.reads, step.writes)
        reads = tuple(dict.fromkeys(t for t in step.inputs if is_planned(t)))
        writes = tuple(t for t in step.outputs if is_planned(t))
        if step.name in OF_VARIABLES - DONE_BEFORE:
            last = len(tensors)
            reads, writes = (*reads, *range(len(network.tensors), last)[-1:]), (*writes, last)
            tensors.append(Tensor(last, f"order_of_variables_{last}", (1,), "int8"))
        return replace(step, index=number, inputs=reads, outputs=writes)

    steps = tuple(view(number, step) for number, step in enumerate(divided_.steps))
    outputs = tuple(t for t in network.outputs if is_planned(t))
    return replace(network, tensors=tuple(tensors), operators=steps, outputs=outputs)


NO_WORK = frozenset((*TFLITE_RESHAPING, "SHAPE"))  # alone they are nothing that an NPU could do


def in_order(network: Network, on_npu: Sequence[bool]) -> Iterator[tuple[CpuOperator, ...]]:
    """Steps: the operators of a group for the NPU, as early as can be, or one operator for the CPU."""
    producers = _producers(network)
    waiting = {operator.index: operator for operator in network.cpu_operators}
    npu = {o.index for o in network.cpu_operators if on_npu[o.index] and o.name != "SHAPE"}

    def ready(index: int) -> bool:
        return all(producer not in waiting for producer in producers[index])

    while waiting:
        batch: list[CpuOperator] = []
        for index in [i for i in waiting if i in npu]:  # in the file's order, which is one of execution
            if all(producer not in waiting or producer in {o.index for o in batch} for producer in producers[index]):
                batch.append(waiting[index])
        for group in _connected_operators(batch, producers):
            for operator in group:
                del waiting[operator.index]
            if all(operator.name in NO_WORK for operator in group):
                yield from ((operator,) for operator in group)
            else:
                yield group
        for index in [i for i in waiting if i not in npu]:
            if ready(index):
                yield (waiting.pop(index),)


def _connected_operators(
    batch: Sequence[CpuOperator], producers: dict[int, list[int]]
) -> list[tuple[CpuOperator, ...]]:
    """The operators of `batch` that reach each other by what one makes for the other."""
    component = {operator.index: operator.index for operator in batch}
    for operator in batch:
        for producer in (m for m in producers[operator.index] if m in component):
            old, new = component[operator.index], component[producer]
            component = {index: new if found == old else found for index, found in component.items()}
    found: dict[int, list[CpuOperator]] = {}
    for operator in batch:
        found.setdefault(component[operator.index], []).append(operator)
    return [tuple(group) for group in found.values()]


def _producers(network: Network) -> dict[int, list[int]]:
    """The operators before which each operator cannot run: those that make what it reads, and of variables, whose
    content no tensor shows, the one before it in the file.
    """
    producer = {tensor: operator.index for operator in network.cpu_operators for tensor in operator.outputs}
    found = {
        operator.index: [producer[t] for t in operator.inputs if t in producer and producer[t] != operator.index]
        for operator in network.cpu_operators
    }
    of_variables = [operator.index for operator in network.cpu_operators if operator.name in OF_VARIABLES]
    for before, after in pairwise(of_variables):
        found[after].append(before)
    return found


def step_name(number: int) -> str:
    """The function of a step."""
    return f"step{number}"


def as_module(divided: Divided) -> Any:
    """The module; function `step_name(i)` is step i, but for reshapes, which are none."""
    from tvm import relax

    network = as_network(divided)
    builder = MainBuilder(network)
    builder.one_value_a_state()

    def emit(step: NpuCall | CpuOperator) -> None:
        part = divided.steps[step.index]
        inputs = [builder.value(i) for i in step.inputs]
        if isinstance(part, NpuPart):
            if part.constants:
                inputs.append(relax.const(np.frombuffer(part.constants, np.uint8)))
            updated = {tensor: step.inputs.index(tensor) for tensor in part.updates}
            builder.call(part.primfunc, step_name(step.index), inputs, part.writes, updated)
        elif _is_view(network, part, step.inputs):
            target = step.outputs[0]
            builder.bind(target, relax.op.reshape(inputs[0], network.tensors[target].shape or (1,)))
        elif step.outputs:
            tensors = ([network.tensors[i] for i in indices] for indices in (step.inputs, step.outputs))
            builder.call(_touching(*tensors), step_name(step.index), inputs, step.outputs)

    return builder.build(emit, network_attributes(network, builder.states, ()))


def _is_view(network: Network, operator: CpuOperator, inputs: Sequence[int]) -> bool:
    """Whether the planned inputs are the one tensor that a reshape sees in another shape."""
    alone = operator.name == "RESHAPE" and operator.inputs and tuple(inputs) == operator.inputs[:1]
    return bool(alone) and network.keeps_bytes(operator)


def _touching(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Any:
    """A PrimFunc that reads of every input and writes to every output, in one statement."""
    function = Function()
    sources = [function.buffer(f"input{i}", t.shape, t.dtype) for i, t in enumerate(inputs)]
    targets = [function.buffer(f"output{i}", t.shape, t.dtype) for i, t in enumerate(outputs)]
    with function.loop(2):
        for target in targets:
            dtype = str(target.dtype)
            value = cast(0, "int32")
            for source in sources:
                value = value + cast(first_of(source), "int32")
            function.store(target, cast(value, dtype), *[int_constant(0)] * len(target.shape))
    return function.finish([*sources, *targets], "cpu").with_attr(UNTIMED, 1)
