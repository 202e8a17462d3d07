"""Variables as states, and subgraphs that run as a bool says: VAR_HANDLE, CALL_ONCE, IF and WHILE.

Invariant: each variable of a network is one variable tensor, the one that its first VAR_HANDLE makes; operators that
read or assign it name that tensor, and VAR_HANDLE and CALL_ONCE are left without tensors, as what they do is done
before the first inference. Unassigned variables start as tflite-micro's `MicroResourceVariables` does: every byte is
the low byte of the zero point. A subgraph of IF or WHILE has operators of the host alone and no state, does not run
itself, and its inputs and outputs fit the operator.

For Ethos-U85 Vela takes VAR_HANDLE, READ_VARIABLE and ASSIGN_VARIABLE into its streams: such a variable is left as an
input of a call, or an output, or both with the same name and place, and the subgraph of CALL_ONCE, if there is one, is
a stream too, which writes their initial values. Each of them is a variable tensor here that a READ_VARIABLE copies into
the arena before the NPU call that reads it, and an ASSIGN_VARIABLE out of it after a call that makes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..names import printable_text
from ..sizes import count_text
from .checks import DamagedError
from .flatbuffer import UnsupportedModelError
from .network import CpuOperator, Network
from .tensor import Tensor
from .vela import NpuCall

DONE_BEFORE = frozenset(("VAR_HANDLE", "CALL_ONCE"))  # nothing is left of them in an inference
OF_VARIABLES = DONE_BEFORE | {"READ_VARIABLE", "ASSIGN_VARIABLE"}
_Key = tuple[bytes, bytes]  # container, shared name


def with_variables(network: Network, subgraphs: Sequence[Network]) -> Network:
    """`network` with its variables as states; `subgraphs` are all of the file's, by their index there."""
    handles = _variable_handles(network)
    if not any(o.name in OF_VARIABLES for o in network.cpu_operators):
        return network
    home: dict[_Key, int] = {}
    for index, key in handles.items():
        home.setdefault(key, index)
    state_of = {index: home[key] for index, key in handles.items()}
    moved = [_rename_states(o, state_of) if isinstance(o, CpuOperator) else o for o in network.operators]
    initial = _initial_values(network, subgraphs)
    tensors = list(network.tensors)
    for key, index in home.items():
        tensors[index] = _state(network, key, index, moved, initial.get(key))
    return replace(network, tensors=tuple(tensors), operators=tuple(moved))


def variable_copies(operator: CpuOperator) -> tuple[tuple[int, int], ...]:
    """(source, target) of what an operator of variables copies: a state to a tensor, or the reverse."""
    if operator.name == "READ_VARIABLE":
        return ((operator.inputs[0], operator.outputs[0]),)
    return ((operator.inputs[1], operator.inputs[0]),) if operator.name == "ASSIGN_VARIABLE" else ()


def may_look(network: Network, read: CpuOperator) -> bool:
    """Whether what READ_VARIABLE makes may be the state itself: nothing names the state again once it is assigned."""
    later = [o for o in network.operators if isinstance(o, CpuOperator) and o.inputs[:1] == read.inputs[:1]]
    later = later[later.index(read) + 1 :]
    assigned = next((i for i, o in enumerate(later) if o.name == "ASSIGN_VARIABLE"), len(later))
    return not later[assigned + 1 :] and read.outputs[0] not in network.outputs


def reads_first(network: Network, source: Network) -> Network:
    """`network`, which Vela made of `source`, with variables read before they are assigned, once, as in `source`."""
    assigned: set[int] = set()
    for operator in source.cpu_operators:
        if operator.name == "ASSIGN_VARIABLE":
            if operator.inputs[0] in assigned:
                raise UnsupportedModelError(
                    f"{source.name}: operator {operator.index} assigns variable "
                    f"{source.tensors[operator.inputs[0]].name!r} again; Vela takes no notice of the order: assign it "
                    "once, or compile with --npu-compiler tvm"
                )
            assigned.add(operator.inputs[0])
        elif operator.name == "READ_VARIABLE" and operator.inputs[0] in assigned:
            raise UnsupportedModelError(
                f"{source.name} reads variable {source.tensors[operator.inputs[0]].name!r} after it has assigned it, "
                "which Vela takes no notice of: it would read the old content; compile it with --npu-compiler tvm"
            )
    if not assigned:
        return network
    reads = tuple(o for o in network.cpu_operators if o.name == "READ_VARIABLE")
    return replace(network, operators=(*reads, *(o for o in network.operators if o not in reads)))


def _variable_handles(network: Network) -> dict[int, _Key]:
    """Tensor that a VAR_HANDLE makes -> the variable it names."""
    found = {}
    for operator in network.cpu_operators:
        if operator.name == "VAR_HANDLE":
            options = operator.options("VarHandleOptions")
            if options is None or len(operator.outputs) != 1:
                raise DamagedError(f"operator {operator.index} VAR_HANDLE names no variable")
            found[operator.outputs[0]] = (options.Container() or b"", options.SharedName() or b"")
    return found


def _rename_states(operator: CpuOperator, state_of: dict[int, int]) -> CpuOperator:
    if operator.name in DONE_BEFORE:
        return replace(operator, inputs=(), outputs=())
    if operator.name not in ("READ_VARIABLE", "ASSIGN_VARIABLE"):
        return operator
    _check_variable(operator, state_of)
    return replace(operator, inputs=(state_of[operator.inputs[0]], *operator.inputs[1:]))


def _check_variable(operator: CpuOperator, handles: dict[int, Any]) -> None:
    wanted = (1, 1) if operator.name == "READ_VARIABLE" else (2, 0)
    if (len(operator.inputs), len(operator.outputs)) != wanted:
        raise DamagedError(
            f"operator {operator.index} {operator.name} has {count_text(len(operator.inputs), 'input')} and "
            f"{count_text(len(operator.outputs), 'output')}, not {wanted[0]} and {wanted[1]}"
        )
    if operator.inputs[0] not in handles or -1 in operator.inputs:
        raise UnsupportedModelError(
            f"operator {operator.index} {operator.name}: its variable is not named by a VAR_HANDLE of the same "
            "subgraph; only such variables can be planned"
        )


def _initial_values(network: Network, subgraphs: Sequence[Network]) -> dict[_Key, Tensor]:
    """The values that CALL_ONCE assigns: constants, by the variable's name."""
    found: dict[_Key, Tensor] = {}
    handles, used = _variable_handles(network), set[_Key]()
    for operator in network.cpu_operators:
        if operator.name in ("READ_VARIABLE", "ASSIGN_VARIABLE"):
            used.update(handles[index] for index in operator.inputs[:1] if index in handles)
        if operator.name != "CALL_ONCE":
            continue
        options = operator.options("CallOnceOptions")
        number = options.InitSubgraphIndex() if options is not None else -1
        if not 0 < number < len(subgraphs):
            raise DamagedError(f"operator {operator.index} CALL_ONCE calls subgraph {number} of {len(subgraphs)}")
        assigned = _assigned_states(subgraphs[number], number)
        late = sorted(used & assigned.keys())
        if late and not network.by_vela:  # Vela puts the operator behind
            raise UnsupportedModelError(
                f"operator {operator.index} CALL_ONCE assigns variable {printable_text(late[0][1])!r} after the first "
                "inference has used it; variables are initialised before: put CALL_ONCE first"
            )
        found |= assigned
    return found


def _assigned_states(graph: Network, number: int) -> dict[_Key, Tensor]:
    handles = _variable_handles(graph)
    found = {}
    for operator in graph.cpu_operators:
        if operator.name == "VAR_HANDLE":
            continue
        constant = operator.name == "ASSIGN_VARIABLE" and graph.tensors[operator.inputs[-1]].data is not None
        if not constant:
            raise UnsupportedModelError(
                f"the initialisation of {graph.name} (subgraph {number}) does more than assign constants: its operator "
                f"{operator.index} is {operator.name}; assign constants, or do it in the network itself"
            )
        _check_variable(operator, handles)
        found[handles[operator.inputs[0]]] = graph.tensors[operator.inputs[1]]
    return found


def _state(network: Network, key: _Key, index: int, operators: Sequence[Any], initial: Tensor | None) -> Tensor:
    """The tensor of one variable, in the form that is read or assigned first."""
    users = [o for o in operators if isinstance(o, CpuOperator) and o.inputs[:1] == (index,)]
    values = [network.tensors[(*o.inputs[1:], *o.outputs)[0]] for o in users]
    assigned = [network.tensors[o.inputs[1]] for o in users if o.name == "ASSIGN_VARIABLE"]
    values += [initial] if initial is not None else []
    if not values:
        return network.tensors[index]  # it is not used
    name, first = printable_text(key[1]), values[0]
    if not assigned and initial is None:
        raise UnsupportedModelError(
            f"variable {name!r} is read and never assigned, so that its content is not defined; assign it in the "
            "subgraph of CALL_ONCE"
        )
    for value in values:
        if (value.size_bytes, value.dtype) != (first.size_bytes, first.dtype):
            raise DamagedError(
                f"variable {name!r} is {first.dtype}{list(first.shape)} and {value.dtype}{list(value.shape)}"
            )
    default = (*assigned, *values)[0].zero_point & 0xFF
    known = None if initial is None else initial.data
    content = np.full(first.size_bytes, default, np.uint8) if known is None else known
    state = replace(first, index=index, name=name, data=None, is_variable=True, arena_offset=-1)
    return state if np.array_equal(content, state.start()) else replace(state, initial=content)


def with_kept_variables(network: Network) -> Network:
    """`network` with such variables as states, of unknown content; itself where it has none."""
    import tflite

    codes = tflite.BuiltinOperator
    uses = {call.index: _kept_variables(network, call) for call in network.npu_calls}
    if not any(read or written for read, written in uses.values()):
        return network
    tensors, operators = list(network.tensors), []
    number, state_of = len(network.operators), dict[str, int]()

    def state_tensor(tensor: int) -> int:
        """The variable that an input or output of a call stands for."""
        kept = tensors[tensor]
        if kept.name not in state_of:
            state_of[kept.name] = len(tensors)
            tensors.append(replace(kept, index=len(tensors), arena_offset=-1, is_variable=True))
        return state_of[kept.name]

    for operator in network.operators:
        reads, assigns = [], []
        read, written = uses.get(operator.index, ((), ())) if isinstance(operator, NpuCall) else ((), ())
        for index in read:
            reads.append(CpuOperator(number, "READ_VARIABLE", codes.READ_VARIABLE, (state_tensor(index),), (index,)))
            number += 1
        for index in written:
            assigns.append(
                CpuOperator(number, "ASSIGN_VARIABLE", codes.ASSIGN_VARIABLE, (state_tensor(index), index), ())
            )
            number += 1
        operators += [*reads, operator, *assigns]
    return replace(network, tensors=tuple(tensors), operators=tuple(operators))


def starting_as(network: Network, source: Network) -> Network:
    """`network`, which Vela made of `source`; its kept variables start with what they start with in `source`.

    `UnsupportedModelError` where `source` has no variable of that name, or has an operator that takes the old content
    of one and that the assigned value does not depend on: Vela may have overwritten it by then.
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
    takers: dict[int, set[int]] = {}  # variable -> the operators that take its old content
    behind: dict[int, frozenset[int]] = {}  # tensor -> those takers that it depends on
    gone: set[int] = set()

    def refuse_overwritten(who: str, variable: int) -> None:
        raise UnsupportedModelError(
            f"{source.name}: {who} the old content of variable {source.tensors[variable].name!r}, and Vela, which "
            "keeps one copy of it on this NPU, may have overwritten that by then: assign what depends on it, or "
            "compile with --npu-compiler tvm"
        )

    for operator in source.cpu_operators:
        taken = {looks_at[i] for i in operator.inputs if i in looks_at}
        if operator.name == "ASSIGN_VARIABLE":
            variable, value = operator.inputs
            gone.add(variable)
            late = sorted(takers.get(variable, set()) - behind.get(value, frozenset()))
            if late:
                refuse_overwritten(f"operator {late[0]} takes", variable)
        elif operator.name == "READ_VARIABLE":
            looks_at[operator.outputs[0]] = operator.inputs[0]
            taken = set()
        elif operator.name in _VIEWS and taken:
            looks_at[operator.outputs[0]] = looks_at[operator.inputs[0]]
            taken = set()
        for variable in taken:
            if variable in gone:
                refuse_overwritten(f"operator {operator.index} {operator.name} takes", variable)
            takers.setdefault(variable, set()).add(operator.index)
        here = frozenset({operator.index} if taken else ())
        here = here.union(*(behind.get(i, frozenset()) for i in operator.inputs))
        behind.update(dict.fromkeys(operator.outputs, here))
    for index in source.outputs:
        if looks_at.get(index) in gone:
            refuse_overwritten("it returns", looks_at[index])


_VIEWS = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")  # whose result may be the input itself


def kept_variables(network: Network) -> Iterator[tuple[int, str]]:
    """State and name of each variable that `with_kept_variables` found."""
    for index in network.states:
        tensor = network.tensors[index]
        if tensor.name.startswith(_PREFIX):
            yield index, tensor.name.removeprefix(_PREFIX)


_PREFIX = "0:"  # of names that Vela gives to variables: the container, then the name


def _kept_variables(network: Network, call: NpuCall) -> tuple[list[int], list[int]]:
    """Inputs of the call that are variables which no other operator makes, and outputs that are variables which no
    other operator reads: those of one name and form are one variable.
    """
    given = {*network.inputs, *(i for o in network.operators for i in o.outputs)}
    needed = {*network.outputs, *(i for o in network.operators for i in o.inputs)}

    def indices_beyond(indices: Sequence[int], others: set[int]) -> list[int]:
        found = (network.tensors[i] for i in indices if i not in others)
        return [t.index for t in found if t.name.startswith(_PREFIX) and t.data is None]

    return indices_beyond(call.inputs, given), indices_beyond(call.outputs, needed)


def branches_of(network: Network, operator: CpuOperator) -> list[tuple[int, Network]]:
    """Number and subgraph of both branches; `UnsupportedModelError` where they do not fit."""
    options = operator.options("IfOptions")
    numbers = (-1, -1) if options is None else (options.ThenSubgraphIndex(), options.ElseSubgraphIndex())
    tensors = [network.tensors[i] for i in (*operator.inputs[1:], *operator.outputs)]
    return [(number, _read_subgraph(network, number, tensors)) for number in numbers]


def turns_of(network: Network, operator: CpuOperator) -> list[tuple[int, Network]]:
    """Number and subgraph of a loop's condition and of its body; `UnsupportedModelError` where they do not fit."""
    options = operator.options("WhileOptions")
    numbers = (-1, -1) if options is None else (options.CondSubgraphIndex(), options.BodySubgraphIndex())
    if len(operator.inputs) != len(operator.outputs) or -1 in operator.inputs:
        raise UnsupportedModelError(
            f"it has {count_text(len(operator.inputs), 'input')} and {count_text(len(operator.outputs), 'output')}"
        )
    state = [network.tensors[i] for i in operator.inputs]
    kept = [network.tensors[i] for i in operator.outputs]
    condition = _read_subgraph(network, numbers[0], state, returned=False)
    if [condition.tensors[i].dtype for i in condition.outputs] != ["bool"]:
        raise UnsupportedModelError(f"its condition, subgraph {numbers[0]}, does not give one bool")
    return [(numbers[0], condition), (numbers[1], _read_subgraph(network, numbers[1], [*state, *kept]))]


def subgraphs_of(network: Network, operator: CpuOperator) -> list[tuple[int, Network]]:
    """Number and subgraph of all that an IF or a WHILE runs; of other operators none."""
    if operator.name == "IF":
        return branches_of(network, operator)
    return turns_of(network, operator) if operator.name == "WHILE" else []


def _read_subgraph(network: Network, number: int, outer: Sequence[Tensor], returned: bool = True) -> Network:
    """Subgraph `number`, whose inputs (and outputs, if `returned`) are as `outer`; it may run others, not itself."""
    if not 0 < number < len(network.subgraphs):
        raise UnsupportedModelError(f"it runs subgraph {number}; there are {len(network.subgraphs)}")
    graph = network.subgraphs[number]
    inner = [graph.tensors[i] for i in (*graph.inputs, *(graph.outputs if returned else ()))]
    if [(t.shape, t.dtype) for t in inner] != [(t.shape, t.dtype) for t in outer] or not graph.outputs:
        inside, outside = (", ".join(f"{t.dtype}{list(t.shape)}" for t in side) for side in (inner, outer))
        raise UnsupportedModelError(
            f"subgraph {number} has other inputs or outputs than the operator: {inside}, and not {outside}; "
            "convert the model again with the same on both sides, variables read and assigned outside"
        )
    within = list(network.subgraphs)
    within[number] = replace(graph, inputs=(), outputs=(), operators=())
    return replace(graph, subgraphs=tuple(within))
