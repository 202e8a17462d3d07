"""WHILE, and IF inside of something else: subgraphs of the file inside one function.

Invariant: the operators of a subgraph are their own host code, on buffers of this function, which are planned with
everything else; what goes from one turn to the next is in the operator's outputs. IF as a whole is an `if`
of `main` where passes take one (see `MainBuilder`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from ...models.network import CpuOperator, Network
from ...models.variables import OF_VARIABLES
from ...vocabulary import C_SOURCES
from ..tflite.branches import branches_of, turns_of
from .operator import Lowering, UnsupportedOperatorError, lower_operator, lowering
from .tir import Buffer, const, raw_load, unflatten

_Copies = list[tuple[Buffer, Buffer]]  # (from, to)


class _Inlined:
    """A subgraph's operators as statements of the function that `work` builds."""

    def __init__(self, work: Lowering, number: int, graph: Network) -> None:
        self.work, self.number, self.graph = work, number, graph
        self._constants: dict[int, Buffer] = {}

    def emit(self, given: Sequence[Buffer]) -> list[Buffer]:
        """The statements, here; what the subgraph gives for these inputs."""
        values = dict(zip(self.graph.inputs, given, strict=True))

        def value(index: int) -> Buffer:
            if index not in values and self.graph.tensors[index].data is not None:
                values[index] = self._constant(index)
            if index not in values:
                raise UnsupportedOperatorError(f"tensor {index} of subgraph {self.number} is read before it is made")
            return values[index]

        for operator in self.graph.cpu_operators:
            self._operator(operator, value, values)
        return [value(index) for index in self.graph.outputs]

    def _operator(self, operator: CpuOperator, value: Callable[[int], Buffer], values: dict[int, Buffer]) -> None:
        what = f"operator {operator.index} {operator.name} of subgraph {self.number}"
        if operator.name in OF_VARIABLES:
            raise UnsupportedOperatorError(f"{what}: a variable inside a loop or a branch")
        try:
            lowered = lower_operator(self.graph, operator)
        except UnsupportedOperatorError as error:
            raise UnsupportedOperatorError(f"{what}: {error}") from None
        function = lowered.primfunc
        if lowered.states or C_SOURCES in function.attrs:
            raise UnsupportedOperatorError(f"{what} keeps a state, or is a C function; neither is taken inside a loop")
        constants = [self.work.table(f"g{self.number}_{p.name}", c) for p, c in self._tables(lowered)]
        for index in lowered.outputs:
            tensor = self.graph.tensors[index]
            values[index] = self.work.function.inner(f"g{self.number}_t{index}", tensor.shape, tensor.dtype)
        buffers = [*map(value, lowered.inputs), *constants, *(values[i] for i in lowered.outputs)]
        table = dict(zip(function.params, buffers, strict=True))
        self.work.function.inline(tvm_ffi.structural_map(function.body, (ir.Var, lambda v: table.get(v, v))))

    def _tables(self, lowered: Any) -> list[tuple[Any, Any]]:
        parameters = list(lowered.primfunc.params)[len(lowered.inputs) :]
        return list(zip(parameters, lowered.constants, strict=False))

    def _constant(self, index: int) -> Buffer:
        if index not in self._constants:
            array = self.graph.tensors[index].array()
            self._constants[index] = self.work.table(f"g{self.number}_c{index}", array.reshape(array.shape or (1,)))
        return self._constants[index]


def _copy(work: Lowering, pairs: _Copies) -> None:
    for source, target in pairs:
        shape = [int(extent) for extent in target.shape]
        with work.function.loop(math.prod(shape), "i") as i:
            place = unflatten(i, shape)
            work.function.store(target, raw_load(source, place), *place)


def _moves(work: Lowering, results: Sequence[Buffer], targets: Sequence[Buffer]) -> _Copies:
    """Copies of all results; those that another one would overwrite first are put aside."""
    pairs: _Copies = []
    for position, (result, target) in enumerate(zip(results, targets, strict=True)):
        if result is target:
            continue
        if any(result is other for other in targets):
            aside = work.function.inner(f"aside{position}", [int(n) for n in result.shape], str(result.dtype))
            _copy(work, [(result, aside)])
            result = aside
        pairs.append((result, target))
    return pairs


@lowering("WHILE")
def loop(work: Lowering) -> None:
    """The second subgraph again and again, as long as the first one says so of what it made."""
    condition, body = (_Inlined(work, *found) for found in turns_of(work.network, work.operator))
    count, work.name = len(work.operator.inputs), "loop"
    given = [work.read(i, f"input{i}") for i in range(count)]
    kept = [work.write(i, f"output{i}") for i in range(count)]
    function = work.function
    _copy(work, list(zip(given, kept, strict=True)))
    again = function.scratch("again", (1,), "bool")
    _copy(work, [(condition.emit(kept)[0], again)])
    with function.repeat(raw_load(again, [const(0)])):
        _copy(work, _moves(work, body.emit(kept), kept))
        _copy(work, [(condition.emit(kept)[0], again)])


@lowering("IF")
def choose(work: Lowering) -> None:
    """One of two subgraphs."""
    then, other = (_Inlined(work, *found) for found in branches_of(work.network, work.operator))
    work.name = "branch"
    condition = work.read(0, "condition")
    given = [work.read(i, f"input{i}") for i in range(1, len(work.operator.inputs))]
    targets = [work.write(i, f"output{i}") for i in range(len(work.operator.outputs))]
    with work.function.when(tirx.Cast("bool", raw_load(condition, [const(0)]))):
        _copy(work, list(zip(then.emit(given), targets, strict=True)))
    with work.function.otherwise():
        _copy(work, list(zip(other.emit(given), targets, strict=True)))
