"""Variables that Vela keeps in the arena, as states.

Invariant: afterwards each of them is a variable tensor that a READ_VARIABLE copies into the arena before the NPU call
that uses it, and an ASSIGN_VARIABLE out of it behind the call. For Ethos-U85 Vela takes VAR_HANDLE, READ_VARIABLE and
ASSIGN_VARIABLE into its streams: such a variable is left as an input and as an output of one call with the same name
and place, and what CALL_ONCE calls, if anything, is a stream too, which makes what they start with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .file import UnsupportedModelError
from .network import CpuOperator, Network
from .vela import NpuCall


def with_kept_variables(network: Network) -> Network:
    """`network` with such variables as states, of unknown content; itself where it has none."""
    import tflite

    codes = tflite.BuiltinOperator
    pairs = {call.index: tuple(_kept(network, call)) for call in network.npu_calls}
    if not any(pairs.values()):
        return network
    tensors, operators = list(network.tensors), []
    number = len(network.operators)
    for operator in network.operators:
        reads, assigns = [], []
        for read, written in pairs.get(operator.index, ()) if isinstance(operator, NpuCall) else ():
            state = len(tensors)
            tensors.append(replace(tensors[read], index=state, arena_offset=-1, is_variable=True))
            reads.append(CpuOperator(number, "READ_VARIABLE", codes.READ_VARIABLE, (state,), (read,)))
            assigns.append(CpuOperator(number + 1, "ASSIGN_VARIABLE", codes.ASSIGN_VARIABLE, (state, written), ()))
            number += 2
        operators += [*reads, operator, *assigns]
    return replace(network, tensors=tuple(tensors), operators=tuple(operators))


def starting_as(network: Network, source: Network) -> Network:
    """`network`, which Vela made of `source`; its kept variables start with what they start with in `source`.

    `UnsupportedModelError` where `source` has no variable of that name, or looks at the old content of one after it has
    assigned it: Vela has overwritten it by then.
    """
    if any(kept_variables(network)):
        _check_order(source)
    starts = {source.tensors[i].name: source.tensors[i].start() for i in source.states}
    tensors = list(network.tensors)
    for state, name in kept_variables(network):
        content = starts.get(name)
        if content is None or content.size != tensors[state].size_bytes:
            raise UnsupportedModelError(
                f"{source.name}: Vela keeps a variable {name!r} in its arena, and what it starts with is not known; "
                "compile it with --accelerator none"
            )
        tensors[state] = replace(tensors[state], initial=content)
    return replace(network, tensors=tuple(tensors))


def _check_order(source: Network) -> None:
    looks_at: dict[int, int] = {}  # tensor -> the variable that it shows
    gone: set[int] = set()
    for operator in source.cpu_operators:
        late = [looks_at[i] for i in operator.inputs if looks_at.get(i) in gone]
        if late:
            raise UnsupportedModelError(
                f"{source.name}: operator {operator.index} {operator.name} takes the old content of variable "
                f"{source.tensors[late[0]].name!r} after it was assigned; Vela keeps one copy of it on this NPU and "
                "has overwritten that by then: assign it later, or compile with --accelerator none"
            )
        if operator.name == "ASSIGN_VARIABLE":
            gone.add(operator.inputs[0])
        elif operator.name == "READ_VARIABLE":
            looks_at[operator.outputs[0]] = operator.inputs[0]
        elif operator.name in _VIEWS and operator.inputs[0] in looks_at:
            looks_at[operator.outputs[0]] = looks_at[operator.inputs[0]]


_VIEWS = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")  # whose result may be the input itself


def kept_variables(network: Network) -> Iterator[tuple[int, str]]:
    """State and name of each variable that `with_kept_variables` found."""
    for index in network.states:
        tensor = network.tensors[index]
        if tensor.name.startswith(_PREFIX):
            yield index, tensor.name.removeprefix(_PREFIX)


_PREFIX = "0:"  # of names that Vela gives to variables: the container, then the name


def _kept(network: Network, call: NpuCall) -> Iterator[tuple[int, int]]:
    """(input, output) of the call for each variable."""
    tensors = network.tensors
    outputs = {tensors[i].name: i for i in call.outputs}
    given = {*network.inputs, *(i for o in network.operators for i in o.outputs)}
    for index in call.inputs:
        tensor = tensors[index]
        same = outputs.get(tensor.name)
        if same is None or index in given or not tensor.name.startswith(_PREFIX) or tensor.data is not None:
            continue
        if (tensor.shape, tensor.dtype) == (tensors[same].shape, tensors[same].dtype):
            yield index, same
