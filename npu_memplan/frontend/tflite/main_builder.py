"""Build `main` of a TFLite network, one operator after another; every TFLite import builds it here.

Invariant: `values` holds the Relax value of every tensor made so far, by tensor index, in the shape and type that the
file declares (scalars are [1]). Variable tensors are parameters after the inputs; the caller of a function with one
lets it update the state in place. An update comes after every binding that uses what the state held before; nothing
else moves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tvm import ir, relax

from ...ethosu.reading.reader import bindings_of, name_of
from ...models.flatbuffer import UnsupportedModelError
from ...models.network import CpuOperator, Network
from ...models.subgraphs import DONE_BEFORE, branches_of, may_look
from ...names import Names, legal_name
from ...vocabulary import RELAX_VIEWS, TFLITE_RESHAPING


def settle_states(main: Any) -> Any:
    """`main` with every update of a state where it may be."""
    bindings = bindings_of(main)
    updates = [b for b in bindings if _is_update(b.value)]
    if not updates:
        return main
    for update in updates:
        bindings = _move_update(bindings, update)
    body = relax.SeqExpr([relax.BindingBlock(bindings)], main.body.body)
    return relax.Function(main.params, body, main.body.body.ty, main.is_pure, main.attrs)


def _is_update(value: Any) -> bool:
    return name_of(value) == "call_tir_inplace"


def _move_update(bindings: Sequence[Any], update: Any) -> list[Any]:
    """`update` after the last binding that looks at the bytes as they were before it."""
    arguments = update.value.args[1].fields
    old = {arguments[int(i)] for i in update.value.attrs.inplace_indices if int(i) >= 0}
    place = next(i for i, b in enumerate(bindings) if b is update)
    last = place
    for index, binding in enumerate(bindings):
        if binding is update or not old & set(relax.analysis.free_vars(binding.value)):
            continue
        if _is_other_name(binding.value):
            old.add(binding.var)
        last = max(last, index)
    for between in bindings[place + 1 : last + 1]:
        if update.var in relax.analysis.free_vars(between.value):
            raise UnsupportedModelError(
                f"state {update.var.name!r} is read anew while something still needs what it held before; no order of "
                "the operators does both in place: copy the old content in the model"
            )
    return [*bindings[:place], *bindings[place + 1 : last + 1], update, *bindings[last + 1 :]]


def _is_other_name(value: Any) -> bool:
    """Whether a binding is another name for the same bytes."""
    return isinstance(value, ir.Var) or f"relax.{name_of(value)}" in RELAX_VIEWS


@contextlib.contextmanager
def _left_closed(builder: Any) -> Iterator[None]:
    """Close the blocks that an error leaves open; TVM would warn of them on stderr."""
    try:
        yield
    except BaseException:
        builder._end_block()
        raise


class MainBuilder:
    """Parameters first, then `build`, which hands every operator to the caller in the file's order."""

    def __init__(self, network: Network, outer: MainBuilder | None = None, branches: bool = True) -> None:
        """Build `main`, or a branch that `outer` is in, whose inputs are then put into `values`.

        Without `branches` an IF is one function, as it is inside of a branch: `main` stays one dataflow.
        """
        self.network = network
        self._branches = branches and outer is None
        self.block_builder: Any = relax.BlockBuilder() if outer is None else outer.block_builder
        self.values: dict[int, Any] = {}
        self._names: Names = Names() if outer is None else outer._names
        self._functions: Names = Names(("main",)) if outer is None else outer._functions
        if outer is not None:
            return
        for index in (*network.inputs, *network.states):
            if index not in self.values:
                self.values[index] = relax.Var(
                    self._names.unique_name(legal_name(self._label(index))), self.type_of(index)
                )
        self._parameters = list(self.values.values())

    @property
    def states(self) -> dict[int, str]:
        """State tensors and the names of their parameters."""
        return {index: str(self.values[index].name) for index in self.network.states}

    def build(
        self, emit: Callable[[Any], None], attributes: Mapping[str, Any], steps: Sequence[Any] | None = None
    ) -> Any:
        """The finished module; `emit` adds one step (None: of the operators) and leaves its outputs in `values`."""
        builder = self.block_builder
        branches = self._branches and any(operator.name == "IF" for operator in self.network.cpu_operators)
        steps = self.network.operators if steps is None else steps
        with builder.function("main", self._parameters, attrs=dict(attributes)), _left_closed(builder):
            if branches:  # which no dataflow has
                for step in steps:
                    emit(step)
            with builder.dataflow():
                for step in () if branches else steps:
                    emit(step)
                outputs = [builder.emit_output(self.pool_value(i)) for i in self.network.outputs]
            builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
        module = builder.finalize()
        module.update_func(module.get_global_var("main"), settle_states(module["main"]))
        return module

    def pool_value(self, index: int) -> Any:
        """The value of a tensor that has to be in a pool; of one that is a constant, a copy."""
        value = self.value(index)
        if isinstance(value, relax.Var):
            return value
        self.host_call(CpuOperator(-1, "RESHAPE", -1, (index,), (index,)))  # which copies
        return self.values[index]

    def type_of(self, index: int) -> Any:
        """Relax type of a tensor."""
        tensor = self.network.tensors[index]
        return relax.TensorType(tensor.shape or (1,), tensor.dtype)

    def value(self, index: int) -> Any:
        """Relax value of a tensor that exists; constants are made on first use."""
        if index not in self.values:
            tensor = self.network.tensors[index]
            self.values[index] = relax.const(tensor.array().reshape(tensor.shape or (1,)), tensor.dtype)
        return self.values[index]

    def bind(self, index: int, expression: Any) -> Any:
        """Let `expression` be tensor `index`; its variable."""
        name = self._names.unique_name(legal_name(self._label(index)))
        self.values[index] = self.block_builder.emit(expression, name_hint=name)
        return self.values[index]

    def function_name(self, wanted: str) -> str:
        """A free name for a function, `wanted` when it is free."""
        return self._functions.unique_name(legal_name(wanted))

    def call(
        self,
        function: Any,
        name: str,
        inputs: Sequence[Any],
        outputs: Sequence[int],
        updated: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """Call a PrimFunc as `name`, a free one; its results become the tensors `outputs`.

        `updated`: tensors that it changes in place, and their positions in `inputs`.
        """
        if function.attrs.get("global_symbol") != name:
            function = function.with_attr("global_symbol", name)
        symbol = self.block_builder.add_func(function, name)
        made = [*outputs, *updated]
        types = [self.type_of(i) for i in made]
        arguments = relax.Tuple(list(inputs))
        if updated:
            places = [*(-1 for _ in outputs), *updated.values()]
            call = relax.call_tir_inplace(symbol, arguments, places, types if len(types) > 1 else types[0])
        else:
            call = relax.call_tir(symbol, arguments, types if len(types) > 1 else types[0])
        self._bind_all(made, call)

    def _bind_all(self, tensors: Sequence[int], expression: Any) -> None:
        """Let `expression` be the one tensor, or a tuple of several."""
        result = self.bind(tensors[0], expression)
        for position, index in enumerate(tensors if len(tensors) > 1 else ()):
            self.bind(index, relax.TupleGetItem(result, position))

    def one_value_a_state(self) -> None:
        """Give all versions of a state one value: Vela lists each as a tensor of its own at the same place."""
        tensors = self.network.tensors
        homes = {tensors[i].arena_offset: i for i in self.network.states if tensors[i].arena_offset >= 0}
        for tensor in tensors:
            if tensor.is_variable and tensor.arena_offset in homes:
                self.values.setdefault(tensor.index, self.values[homes[tensor.arena_offset]])

    def host_operator(self, operator: CpuOperator) -> None:
        """Call the exact host code of an operator; those that only change a shape are reshapes."""
        if operator.name in DONE_BEFORE:
            return
        if operator.name == "IF" and self._branches:
            self._add_if(operator)
            return
        looks = operator.name == "READ_VARIABLE" and may_look(self.network, operator)
        if looks or (operator.name in TFLITE_RESHAPING and self.network.keeps_bytes(operator)):
            target, source = operator.outputs[0], self.value(operator.inputs[0])
            shape = self.network.tensors[target].shape or (1,)
            if isinstance(source, relax.Var):
                self.bind(target, relax.op.reshape(source, shape))
            else:
                self.values[target] = relax.const(source.value.numpy().reshape(shape))
            return
        self.host_call(operator)

    def host_call(self, operator: CpuOperator) -> None:
        """Call the host code of an operator, also where it only changes a shape; of several, behind their last one."""
        from ..host_ops import lower_operator
        from ..host_ops.cascade import find_cascades, lower_cascade

        cascades = find_cascades(self.network)
        cascade = cascades.get(operator.index)
        if cascade is None and operator.index in cascades:
            return
        if cascade is not None:
            lowered = lower_cascade(self.network, cascade, operator)
        else:
            lowered = lower_operator(self.network, operator)
        inputs = [self.value(i) for i in lowered.inputs]
        inputs += [relax.const(c, c.dtype.name) for c in lowered.constants]
        state = {} if lowered.outputs else {lowered.inputs[0]: 0}  # its new content is all that it makes
        self.call(lowered.primfunc, self.function_name(lowered.name), inputs, lowered.outputs, state)

    def _add_if(self, operator: CpuOperator) -> None:
        """Either of two subgraphs, whose operators the host runs; one alone where the condition is a constant."""
        builder = self.block_builder
        condition = self.network.tensors[operator.inputs[0]]
        given = [self.value(index) for index in operator.inputs[1:]]
        graphs = [graph for _, graph in branches_of(self.network, operator)]
        if condition.data is not None:
            graph = graphs[0 if condition.array().any() else 1]
            side = MainBuilder(graph, self)
            side.values.update(zip(graph.inputs, given, strict=True))
            for inner in graph.cpu_operators:
                side.host_operator(inner)
            self.values.update(zip(operator.outputs, map(side.value, graph.outputs), strict=True))
            return
        sides = []
        for graph in graphs:
            side = MainBuilder(graph, self)
            side.values.update(zip(graph.inputs, given, strict=True))
            builder._begin_binding_block()
            with _left_closed(builder):
                for inner in graph.cpu_operators:
                    side.host_operator(inner)
                made = [side.value(index) for index in graph.outputs]
                results = [builder.emit(value) for value in made]  # names of the branch's own
            body = results[0] if len(results) == 1 else relax.Tuple(results)
            sides.append(relax.SeqExpr([builder._end_block()], body))
        self._bind_all(operator.outputs, relax.If(self.value(operator.inputs[0]), *sides))

    def _label(self, index: int) -> str:
        return self.network.tensors[index].name or f"tensor{index}"
