"""A TFLite file to one IRModule: `main` in Relax, a PrimFunc for each NPU call and each host operator.

Invariant: everything the later stages need is in the module: names, quantisation and agents of
inputs, outputs, states and source operators are attributes of `main` (see `attributes.py`), weights
and command data are constants, and there is no host operator without an exact lowering.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import NpuMemplanError
from ..ethosu.lift import arguments, lift
from ..ethosu.network import CpuOperator, NpuCall, VelaNetwork, read_network
from ..ethosu.primfunc import to_primfunc
from ..ethosu.program import BufferRole
from ..ethosu.vela import VelaOptions, VelaResult, compile_tflite, start_compile
from .attributes import main_attributes
from .checks import check_host_operators, check_not_float, forced_operators
from .names import NameTable
from .restore import with_omitted_inputs

# Operators that only give their input another shape: no code, the same bytes.
_RESHAPES = frozenset(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"))


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """A model as a module, and what Vela itself would have used for it (None: Vela was not asked)."""

    module: Any  # tvm.IRModule
    network: VelaNetwork
    vela: VelaResult | None = None


def import_tflite(
    model: bytes | Path, options: VelaOptions | None = None, host_ops: Sequence[str] = (), name: str = ""
) -> Imported:
    """Compile a TFLite model's NPU part with Vela and import the result.

    `host_ops` are TFLite operators (e.g. "SOFTMAX") to keep on the CPU. A network that Vela has compiled
    already is imported as it is. Raises `NetworkError` (no TFLite file, damaged), `FloatModelError`,
    `UnsupportedModelError` (operators that neither side can run), `HostOpsError`, `VelaError`, `LiftError`.
    """
    data, name = _read(model, name)
    source = read_network(data, name)
    if source.npu_calls:
        return Imported(from_network(source), source)
    check_not_float(source)
    options = options or VelaOptions()
    forced = forced_operators(source, host_ops)
    if forced:
        options = replace(options, ignore_operators=forced)
    with ThreadPoolExecutor(1) as beside:
        beside.submit(importlib.import_module, "tvm.relax")  # a second of work while Vela's process runs
        result = compile_tflite(data, options, name)
    network = with_omitted_inputs(read_network(result.network, name), source)
    check_host_operators(network, result.messages, forced)
    return Imported(from_network(network, source, result.messages, forced), network, result)


def start_import(model: bytes, options: VelaOptions, host_ops: Sequence[str] = (), name: str = "") -> None:
    """Let Vela begin in the background what an equal `import_tflite` will pick up; errors are left to that."""
    with contextlib.suppress(NpuMemplanError):
        source = read_network(model, name)
        if not source.npu_calls:
            start_compile(model, replace(options, ignore_operators=forced_operators(source, host_ops)))


def import_host_only(model: bytes | Path, name: str = "") -> Imported:
    """Import a TFLite model with every operator on the CPU."""
    data, name = _read(model, name)
    network = read_network(data, name)
    check_not_float(network)
    check_host_operators(network, (), ())
    return Imported(from_network(network), network)


def _read(model: bytes | Path, name: str) -> tuple[bytes, str]:
    if isinstance(model, bytes):
        return model, name or "model"
    from .checks import read_file

    return read_file(model), name or model.name


def from_network(
    network: VelaNetwork,
    source: VelaNetwork | None = None,
    messages: Sequence[str] = (),
    forced: Sequence[str] = (),
) -> Any:
    """The IRModule of a compiled network. `source` is the model it was compiled from, for names and reasons."""
    return _Builder(network, source or network, messages, forced).module()


class _Builder:
    def __init__(
        self, network: VelaNetwork, source: VelaNetwork, messages: Sequence[str], forced: Sequence[str]
    ) -> None:
        from tvm import relax

        self._relax = relax
        self._network = network
        self._source, self._messages, self._forced = source, messages, forced
        self._values: dict[int, Any] = {}  # tensor -> Relax variable
        self._builder = relax.BlockBuilder()
        self._names = NameTable()
        self._functions = NameTable()
        self._functions.take("main")

    def module(self) -> Any:
        network = self._network
        listed = [*network.inputs, *(s for s in network.states if s not in network.inputs)]
        parameters = []
        for index in listed:
            parameter = self._relax.Var(self._names.take(network.tensors[index].name or "tensor"), self._type(index))
            parameters.append(parameter)
            self._values[index] = parameter
        self._alias_states()
        states = {i: self._values[i].name for i in network.states}
        attributes = main_attributes(network, self._source, states, self._messages, self._forced)
        with self._builder.function("main", parameters, attrs=attributes):
            with self._builder.dataflow():
                for operator in network.operators:
                    if isinstance(operator, NpuCall):
                        self._npu_call(operator)
                    else:
                        self._host_operator(operator)
                outputs = [self._builder.emit_output(self._value(i)) for i in network.outputs]
            self._builder.emit_func_output(outputs[0] if len(outputs) == 1 else self._relax.Tuple(outputs))
        return self._builder.finalize()

    def _alias_states(self) -> None:
        """Vela lists every version of a state as a tensor of its own at the same place; they are one."""
        tensors = self._network.tensors
        homes = {tensors[i].arena_offset: i for i in self._network.states if tensors[i].arena_offset >= 0}
        for tensor in tensors:
            if tensor.is_variable and tensor.arena_offset in homes:
                self._values.setdefault(tensor.index, self._values[homes[tensor.arena_offset]])

    def _type(self, index: int) -> Any:
        tensor = self._network.tensors[index]
        return self._relax.TensorType(tensor.shape or (1,), tensor.dtype)

    def _value(self, index: int) -> Any:
        if index not in self._values:
            tensor = self._network.tensors[index]
            self._values[index] = self._relax.const(tensor.array().reshape(tensor.shape or (1,)), tensor.dtype)
        return self._values[index]

    def _call(self, function: Any, name: str, inputs: Sequence[Any], outputs: Sequence[int]) -> None:
        symbol = self._builder.add_func(function.with_attr("global_symbol", name), name)
        types = [self._type(i) for i in outputs]
        call = self._relax.call_tir(symbol, self._relax.Tuple(list(inputs)), types if len(types) > 1 else types[0])
        result = self._builder.emit(call, name_hint=self._names.take(self._label(outputs[0])))
        for position, index in enumerate(outputs):
            if len(outputs) == 1:
                self._values[index] = result
            else:
                item = self._relax.TupleGetItem(result, position)
                self._values[index] = self._builder.emit(item, name_hint=self._names.take(self._label(index)))

    def _label(self, index: int) -> str:
        return self._network.tensors[index].name or f"tensor{index}"

    def _npu_call(self, call: NpuCall) -> None:
        name = self._functions.take("npu")
        program = lift(self._network, call, name)
        found = arguments(self._network, call)
        inputs = [self._value(a.tensor) for a in found if a.role is not BufferRole.OUTPUT]
        if call.read_only.nbytes:
            inputs.append(self._relax.const(call.read_only, "uint8"))
        outputs = [a.tensor for a in found if a.role is BufferRole.OUTPUT]
        self._call(to_primfunc(program), name, inputs, outputs)

    def _host_operator(self, operator: CpuOperator) -> None:
        if operator.name in _RESHAPES and self._reshapes(operator):
            source, target = operator.inputs[0], operator.outputs[0]
            shape = self._network.tensors[target].shape or (1,)
            reshaped = self._relax.op.reshape(self._value(source), shape)
            self._values[target] = self._builder.emit(reshaped, name_hint=self._names.take(self._label(target)))
            return
        from .host_ops import lower_operator

        lowered = lower_operator(self._network, operator)
        inputs = [self._value(i) for i in lowered.inputs]
        inputs += [self._relax.const(c, c.dtype.name) for c in lowered.constants]
        self._call(lowered.primfunc, self._functions.take(lowered.name), inputs, lowered.outputs)

    def _reshapes(self, operator: CpuOperator) -> bool:
        source, target = (self._network.tensors[i] for i in (operator.inputs[0], operator.outputs[0]))
        return source.dtype == target.dtype and source.size_bytes == target.size_bytes
