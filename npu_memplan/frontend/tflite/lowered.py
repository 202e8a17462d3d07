"""A TFLite file to one IRModule by our own layers: no Vela stream.

Invariant: the module has the same form and the same attributes as the one that `tflite.import_tflite` lifts from
Vela's stream, so nothing that uses this module depends on which compiler made it. Every operator of the file is either
layers in a function for the NPU, or one call of the PrimFunc that `host_ops` makes of it; which, and why, is in main's
attributes. A function for the NPU is called once all that it reads is made; what nobody reads is not computed. States
are parameters of `main`, as in every other import; what touches one keeps its order.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...ethosu.arch import Architecture
from ...ethosu.arch import accelerator as find_accelerator
from ...ethosu.grouping import Node, NodeGroup, group_nodes
from ...ethosu.layers.movement import ChannelGather, Reshape, Slice
from ...ethosu.layers.resize import resize
from ...ethosu.lower.layer import LayerGraph
from ...ethosu.lower.operands import LayerTensor
from ...ethosu.reading.reader import LayerPart, RejectedError, require_fit
from ...exactness import Code
from ...models.folding import EVALUATORS
from ...models.network import CpuOperator, Network
from ...models.subgraphs import DONE_BEFORE, OF_VARIABLES
from ...models.tflite import read_network
from ...models.vela import NpuCall
from ...names import Names, legal_name
from ...request import ONLY_FLOATS
from ...vocabulary import ORDER_PEAKS, TFLITE_RESHAPING
from ..attributes import BY_USER, SourceOperator, forced_operators
from ..errors import FormatError
from .description import (
    FLOATING,
    NONE,
    check_on_host,
    complete_network,
    doubt_reason,
    external_builtins,
    float_operators,
    host_reason,
    known_of,
    network_attributes,
    operator_label,
)
from .layers import OperatorReader, read_operator
from .lifted import Imported, from_network, read_folded
from .main_builder import MainBuilder

if TYPE_CHECKING:
    from ...ethosu.lowering import LoweringTarget


@dataclass(frozen=True, slots=True)
class Layers:
    """Layers of an operator that belong together, the last of which makes one of its results."""

    parts: Sequence[LayerPart]
    operator: CpuOperator


Member = Layers | CpuOperator


@dataclass(frozen=True, slots=True)
class NpuGroup:
    """A function for the NPU: its layers, and the operator of the file that each output of one belongs to."""

    graph: LayerGraph
    operator_of: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A network in parts for the NPU and the host, which do not depend on what it is lowered for."""

    network: Network
    groups: Sequence[NodeGroup[Member]]
    names: Mapping[int, str]  # of tensors, by index
    left: Mapping[int, str]  # operators on the host, and why

    def steps(self) -> list[CpuOperator | NpuGroup]:
        """Functions for the NPU and operators of the host, in their order."""
        readers: dict[str, set[int]] = {self.names[index]: {-1} for index in self.network.outputs}
        for number, group in enumerate(self.groups):
            for node in group.nodes:
                for tensor in _tensors_read(node.content, self.names):
                    readers.setdefault(tensor, set()).add(number)
        found: list[CpuOperator | NpuGroup] = []
        for number, group in enumerate(self.groups):
            members = [node.content for node in group.nodes]
            layers = [member for member in members if isinstance(member, Layers)]
            if not layers:
                found += [member for member in members if isinstance(member, CpuOperator)]
                continue
            wanted = {tensor for tensor, by in readers.items() if by != {number}}
            name = f"ethosu_{sum(isinstance(step, NpuGroup) for step in found)}"
            operator_of = {part.output.name: member.operator.index for member in layers for part in member.parts}
            found.append(NpuGroup(layer_graph(name, layers, wanted), operator_of))
        return found


def build_module(
    model: bytes | Path,
    accelerator: str = "ethos-u55-256",
    host_ops: Sequence[str] = (),
    name: str = "",
    lowering_target: LoweringTarget | None = None,
    external: Mapping[str, int | None] = NONE,
    host_kernels: str = "",
    known: dict[object, Partitioned] | None = None,
) -> Imported:
    """Read, partition and lower `model` for `accelerator`.

    `host_ops` are TFLite operators to keep on the CPU, `external` those that external C functions run there;
    `lowering_target` says what it is lowered for (None: few bytes, in the default system); `known` keeps what was
    partitioned, for the next target. Raises `NetworkError` for files that
    are no TFLite, `FormatError` for those that Vela has compiled, `HostOpsError`, `UnsupportedModelError` for
    operators that neither side can run, `LoweringError` where a layer defeats the lowering.
    """
    from ...ethosu.lowering import LoweringTarget

    file, data, name = read_folded(model, name)
    key = file, accelerator, tuple(host_ops), name, tuple(external.items()), host_kernels
    parts = None if known is None else known.get(key)
    if parts is None:
        network = complete_network(read_network(data, name), external, host_kernels)
        if network.npu_calls:
            raise FormatError(
                f"{name} is compiled by Vela already, and native lowering needs the network that it was made from; "
                "leave --npu-compiler and --stripes out to plan its stream again"
            )
        floats = float_operators(network)
        forced = _host_reasons(network, (*host_ops, *external_builtins(network, external)), floats)
        check_on_host(network, forced, file)
        if len(floats) == len(network.operators):
            kept = {operator.name: FLOATING for operator in network.cpu_operators}
            return Imported(from_network(network, kept=kept), network, notes=(f"{name} {ONLY_FLOATS}",))
        parts = partition_network(network, find_accelerator(accelerator), forced)
        check_on_host(network, parts.left, file)
        if known is not None:
            known[key] = parts
    return Imported(_lower_parts(parts, accelerator, lowering_target or LoweringTarget()), parts.network)


def _host_reasons(network: Network, host_ops: Sequence[str], floats: Mapping[int, str]) -> dict[int, str]:
    """Operators that stay on the host, and why: kind, types, or results that native lowering may not give."""
    names = forced_operators(network, host_ops)
    forced = {**floats, **{o.index: BY_USER for o in network.cpu_operators if o.name in names}}
    for operator in network.cpu_operators:
        doubted = doubt_reason(Code.LOWERED, network, operator)
        if doubted and host_reason(network, operator) is None:
            forced.setdefault(operator.index, doubted)
    return forced


# ---------------------------------------------------------------------- what runs where


def partition_network(network: Network, target: Architecture, forced: Mapping[int, str]) -> Partitioned:
    """The network in functions for the NPU `target` and operators of the host, among them those in `forced`."""
    unique = Names()
    names = {
        tensor.index: unique.unique_name(legal_name(tensor.name or f"tensor{tensor.index}"))
        for tensor in network.tensors
    }
    moves = _Moves(network, target, names, forced)
    layers: dict[int, list[LayerPart]] = {}
    left = dict(forced)
    for operator in network.cpu_operators:
        if operator.index in forced or operator.name in DONE_BEFORE:
            continue
        joined = moves.join(operator)
        try:
            layers[operator.index] = joined or read_operator(OperatorReader(network, operator, names), target)
        except RejectedError as reason:
            left[operator.index] = str(reason)
    nodes = _used_nodes(list(_nodes(network, names, layers)), names, [names[i] for i in network.outputs])
    used = {node.content.index for node in nodes if isinstance(node.content, CpuOperator)}
    for operator in network.cpu_operators:
        views = operator.name in TFLITE_RESHAPING and operator.index not in forced
        if operator.index not in used or views or operator.name in DONE_BEFORE:
            left.pop(operator.index, None)
    left |= {o.index: _OF_STATE for o in network.cpu_operators if o.name in OF_VARIABLES}
    left |= {o.index: "" for o in network.cpu_operators if o.name in DONE_BEFORE}
    return Partitioned(network, group_nodes(nodes), names, left)


_OF_STATE = "it keeps state between runs, which no NPU layer does"


def _nodes(network: Network, names: Mapping[int, str], layers: Mapping[int, list[LayerPart]]) -> Iterator[Node[Member]]:
    """The layers, and the operators that have none, in order; what touches a state comes behind who did before."""
    state_of = {names[i]: names[i] for i in network.states}  # of what shows its bytes
    holders: dict[str, tuple[Hashable, list[Hashable]]] = {}  # of a state: what made it anew, and what has read that
    for operator in network.cpu_operators:
        if operator.name in DONE_BEFORE:
            continue
        given = [names[i] for i in (*operator.inputs, *operator.states) if i >= 0]
        results = [names[i] for i in operator.outputs]
        made: list[Hashable] = [*results]
        reads: dict[str, list[Hashable]] = {}
        for tensor, state in ((tensor, state_of[tensor]) for tensor in given if tensor in state_of):
            last, readers = holders.setdefault(state, (state, []))
            if operator.name in _LOOKING or tensor != state:
                readers += made
                reads[tensor] = [last]
                state_of |= dict.fromkeys(results, state) if operator.name in _LOOKING else {}
            else:
                changed = (state, operator.index)
                holders[state] = changed, []
                reads[tensor] = [last, *readers]
                made.append(changed)
        if operator.index not in layers:
            yield Node(operator, False, made, [v for tensor in given for v in (tensor, *reads.get(tensor, ()))])
            continue
        parts = list[LayerPart]()
        for part in layers[operator.index]:
            parts.append(part)
            if part.output.name in made:
                before = [t.name for p in parts for t in p.inputs]
                order = [v for tensor in before for v in (tensor, *reads.get(tensor, ()))]
                makes = [*(p.output.name for p in parts), *made[len(operator.outputs) :]]
                yield Node(Layers(tuple(parts), operator), True, makes, order)
                parts = []


_LOOKING = TFLITE_RESHAPING | {"READ_VARIABLE"}  # what they make may be the bytes that they read


def _tensors_read(member: Member, names: Mapping[int, str]) -> list[str]:
    """The tensors that a node needs, which are less than those that it comes behind."""
    if isinstance(member, CpuOperator):
        return [names[i] for i in (*member.inputs, *member.states) if i >= 0]
    return [tensor.name for part in member.parts for tensor in part.inputs]


def _used_nodes(nodes: Sequence[Node[Member]], names: Mapping[int, str], results: Sequence[str]) -> list[Node[Member]]:
    """Nodes that the results need, and those that change a state."""
    kept: list[Node[Member]] = []
    used: set[Hashable] = set(results)
    for node in reversed(nodes):
        if used.intersection(node.makes) or any(isinstance(value, tuple) for value in node.makes):
            kept.append(node)
            used.update(_tensors_read(node.content, names))
    return kept[::-1]


# ---------------------------------------------------------------------- chains of moves

_ORDERS = frozenset(("TRANSPOSE", "GATHER"))  # chains of the others are views already
_REPEATING = frozenset(("TILE", "BROADCAST_TO"))
_MOVES = TFLITE_RESHAPING | _ORDERS | _REPEATING | {"SLICE", "STRIDED_SLICE", "SPLIT", "SPLIT_V"}
_LONGEST = 32  # operators in a chain: what each adds is tried with all before it
_GATHERED, _ENLARGED = ("int8", "uint8"), ("int8", "uint8", "int16")


@dataclass(frozen=True, slots=True)
class _Moves:
    """Chains of operators that only move values, as one layer.

    What a chain does is found by doing it to the numbers of the elements, so no order of operators is known here.
    Channel shuffles are such chains, over tensors of five dimensions that no NPU operation walks; so are repetitions
    of rows and columns, which become one nearest resize.
    """

    network: Network
    target: Architecture
    names: Mapping[int, str]
    forced: Mapping[int, str]
    _makers: dict[int, CpuOperator] = field(init=False, default_factory=dict)

    def join(self, operator: CpuOperator) -> list[LayerPart]:
        """The layer of what `operator` and those before it do, of as many as there are; empty where there is none."""
        chain, made = list[tuple[CpuOperator, int]](), operator.outputs[0] if len(operator.outputs) == 1 else -1
        self._makers.update(dict.fromkeys(operator.outputs, operator))
        if made < 0:
            return []
        while len(chain) < _LONGEST and (move := self._makers.get(made)) is not None:
            if move.name not in _MOVES or move.index in self.forced:
                break
            chain.append((move, made))
            made = move.inputs[1 if move.name == "SPLIT" else 0]
        kinds = {move.name for move, _ in chain}
        if len(chain) < 2 or not kinds & (_ORDERS | _REPEATING):
            return []
        for length in range(len(chain), 1, -1):
            part = self._layer(chain[length - 1 :: -1])
            if part is not None:
                return [part]
        return []

    def _layer(self, moves: Sequence[tuple[CpuOperator, int]]) -> LayerPart | None:
        first, (_, last) = moves[0][0], moves[-1]
        tensors = self.network.tensors
        source, result = tensors[first.inputs[1 if first.name == "SPLIT" else 0]], tensors[last]
        before, after = source.shape, result.shape
        if source.data is not None or len(before) != 4 or len(after) != 4 or before[0] != 1 or after[0] != 1:
            return None
        enlarges = after[1:3] == (2 * before[1], 2 * before[2]) and before[3] == after[3]
        types = _ENLARGED if enlarges else _GATHERED
        if not (enlarges or before[1:3] == after[1:3]) or source.dtype not in types:
            return None
        numbers = np.arange(np.prod(before), dtype=np.int32).reshape(before)
        made = self._move_numbers(moves, numbers)
        if made is None or made.shape != after:
            return None
        data, out = (
            LayerTensor(self.names[t.index], t.shape, t.dtype, t.scale if t.scales else 1.0, t.zero_point)
            for t in (source, result)
        )
        if enlarges:
            if not np.array_equal(made, numbers.repeat(2, 1).repeat(2, 2)):
                return None
            part = LayerPart.for_layer(resize(data, out, "asymmetric", "floor"), out, data)
        else:
            pixels = made.reshape(-1, after[3])
            starts = np.arange(len(pixels), dtype=np.int32)[:, None] * before[3]
            if not np.array_equal(pixels, starts + pixels[0]) or pixels[0].max() >= before[3]:
                return None
            part = _channels(data, out, pixels[0])
        try:
            require_fit(part.layer, part.inputs, part.output, self.target)
        except RejectedError:
            return None
        return part

    def _move_numbers(self, moves: Sequence[tuple[CpuOperator, int]], values: NDArray[Any]) -> NDArray[Any] | None:
        """What moves make of values; None where their arguments are no constants."""
        for move, made in moves:
            inputs = [self.network.tensors[i] if i >= 0 else None for i in move.inputs]
            place = 1 if move.name == "SPLIT" else 0
            if any(t is not None and t.data is None for i, t in enumerate(inputs) if i != place):
                return None
            whole = inputs[place]
            assert whole is not None
            stored = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
            inputs[place] = replace(whole, shape=values.shape, dtype="int32", data=stored)
            found = EVALUATORS[move.name](move, inputs, [self.network.tensors[i] for i in move.outputs])
            if found is None:
                return None
            values = found[move.outputs.index(made)]
        return values


def _channels(data: LayerTensor, out: LayerTensor, channels: NDArray[Any]) -> LayerPart:
    """`channels` of a map, as a view where they are together."""
    first, depth = int(channels[0]), len(channels)
    if not np.array_equal(channels, np.arange(first, first + depth)):
        return LayerPart.for_layer(ChannelGather("gather", (), "", tuple(int(c) for c in channels)), out, data)
    if depth == data.shape[3]:
        return LayerPart.for_layer(Reshape("reshape", (), ""), out, data)
    return LayerPart.for_layer(Slice("slice", (), "", (0, 0, 0, first), (1, 1, 1, 1)), out, data)


# ---------------------------------------------------------------------- the module


def _lower_parts(parts: Partitioned, accelerator: str, lowering_target: LoweringTarget) -> Any:
    """The module of a network in parts."""
    from tvm import relax

    from ...ethosu.lowering import lower
    from ...ethosu.program.primfunc import cache_program, to_primfunc

    network, target = parts.network, find_accelerator(accelerator)
    builder = MainBuilder(network, branches=False)
    index_of = {name: index for index, name in parts.names.items()}
    peaks: dict[str, list[int]] = {}

    def emit(step: NpuCall | CpuOperator | NpuGroup) -> None:
        if isinstance(step, CpuOperator):
            builder.host_operator(step)
            return
        assert isinstance(step, NpuGroup)
        graph, operator_of = step.graph, step.operator_of
        lowered = lower(graph, target, lowering_target, lambda made, read: operator_of.get(made, max(read, default=-1)))
        if lowered.order_peaks is not None:
            peaks[graph.name] = list(lowered.order_peaks)
        given = [builder.pool_value(index_of[tensor]) for tensor in graph.inputs]
        if lowered.constants:
            given.append(relax.const(np.frombuffer(lowered.constants, np.uint8)))
        primfunc = cache_program(to_primfunc(lowered.program), lowered.program)
        outputs = [index_of[tensor] for tensor in graph.outputs]
        builder.call(primfunc, builder.function_name(graph.name), given, outputs)

    described = [
        SourceOperator(
            operator_label(network, o),
            o.name,
            o.index not in parts.left,
            parts.left.get(o.index, ""),
            known_of(Code.HOST if o.index in parts.left else Code.LOWERED, network, o),
        )
        for o in network.cpu_operators
    ]
    attributes = network_attributes(network, builder.states, described)
    module = builder.build(emit, attributes, parts.steps())
    if peaks:
        main = module.get_global_var("main")
        module.update_func(main, module[main].with_attr(ORDER_PEAKS, peaks))
    return module


def layer_graph(name: str, members: Sequence[Layers], wanted: Collection[str]) -> LayerGraph:
    """The graph of some layers, whose results are what they make of `wanted`."""
    parts = [part for member in members for part in member.parts]
    made = {part.output.name for part in parts}
    tensors = {tensor.name: tensor for part in parts for tensor in (*part.inputs, part.output)}
    given = dict.fromkeys(t.name for part in parts for t in part.inputs if t.data is None and t.name not in made)
    outputs = tuple(part.output.name for part in parts if part.output.name in wanted)
    return LayerGraph(name, tensors, tuple(given), outputs, tuple(part.layer for part in parts))
