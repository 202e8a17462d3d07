"""WHILE, and IF inside of something else: subgraphs of the file inside one function.

Invariant: the operators of a subgraph are their own host code, on buffers of this function, which are planned with
everything else; what goes from one iteration to the next is in the operator's outputs. IF as a whole is an `if` of
`main` where passes take one (see `MainBuilder`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from ...models.network import CpuOperator, Network
from ...models.subgraphs import OF_VARIABLES, branches_of, turns_of
from ...vocabulary import C_SOURCES
from .operator import Lowering, UnsupportedOperatorError, lower_with_own_variables, lowering
from .tir import Buffer, int_constant, raw_load


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
            lowered = lower_with_own_variables(self.graph, operator)
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
        self.work.function.add(tvm_ffi.structural_map(function.body, (ir.Var, lambda v: table.get(v, v))))

    def _tables(self, lowered: Any) -> list[tuple[Any, Any]]:
        parameters = list(lowered.primfunc.params)[len(lowered.inputs) :]
        return list(zip(parameters, lowered.constants, strict=False))

    def _constant(self, index: int) -> Buffer:
        if index not in self._constants:
            array = self.graph.tensors[index].array()
            self._constants[index] = self.work.table(f"g{self.number}_c{index}", array.reshape(array.shape or (1,)))
        return self._constants[index]


def _copy(work: Lowering, pairs: Iterable[tuple[Buffer, Buffer]]) -> None:
    for source, target in pairs:
        work.function.copy(source, target)


def _order_moves(work: Lowering, results: Sequence[Buffer], targets: Sequence[Buffer]) -> list[tuple[Buffer, Buffer]]:
    """Copies of all results; a result that another copy would overwrite before is copied to scratch first."""
    pairs = []
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
def lower_loop(work: Lowering) -> None:
    """Repeat the second subgraph as long as the first one is true of its results."""
    condition, body = (_Inlined(work, *found) for found in turns_of(work.network, work.operator))
    work.name = "loop"
    given, kept = work.read_all(), work.write_all("output")
    _copy(work, zip(given, kept, strict=True))
    again = work.function.scratch("again", (1,), "bool")
    _copy(work, [(condition.emit(kept)[0], again)])
    with work.function.repeat(raw_load(again, [int_constant(0)])):
        _copy(work, _order_moves(work, body.emit(kept), kept))
        _copy(work, [(condition.emit(kept)[0], again)])


@lowering("IF")
def lower_choose(work: Lowering) -> None:
    """Lower an IF: one of two subgraphs."""
    then, other = (_Inlined(work, *found) for found in branches_of(work.network, work.operator))
    work.name = "branch"
    condition = work.read(0, "condition")
    given, targets = work.read_all(1), work.write_all("output")
    with work.function.when(tirx.Cast("bool", raw_load(condition, [int_constant(0)]))):
        _copy(work, zip(then.emit(given), targets, strict=True))
    with work.function.else_branch():
        _copy(work, zip(other.emit(given), targets, strict=True))
