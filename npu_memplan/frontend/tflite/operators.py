"""A TFLite model to Relax by TVM's frontend, operator by operator, with chosen ones as calls of exact host code.

Invariant: every operator of the file is either what TVM's converter makes of it (QDQ form), or one call of the
PrimFunc that `host_ops` makes of it; which, why, and which variables of `main` belong to it is recorded while it
is imported. States are parameters of `main`, as in every other import.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tflite
from tvm import ir, relax

from ...errors import NpuMemplanError, RefusalError, describe_error
from ...models.network import CpuOperator, Network
from ...models.vela import NpuCall
from ...names import node_of
from ...process.ending import raise_outside_cause
from ...process.incidents import is_ours, report_fault
from ..graph import named_after
from .described import network_attributes
from .main_builder import MainBuilder
from .on_host import check_on_host, host_reason
from .repairs import RepairedConverter, clear_stray_quantised_dimensions


@dataclass(frozen=True, slots=True, eq=False)
class RelaxImport:
    """An imported model: what became of each operator, by its index in the file."""

    module: Any  # tvm.IRModule
    on_host: Mapping[int, str]  # operators that are calls of host code, and why
    operator_of: Mapping[str, int]  # variable of main -> the operator it is part of
    updates: int = 0  # results of main, after the outputs, that are what states become


def import_operators(
    model: bytes,
    network: Network,
    host: Mapping[int, str],
    file: bytes | None = None,
    unmatched: Mapping[int, str] | None = None,
) -> RelaxImport:
    """Import `model`, which `network` was read from; `host` are operators that stay on the host, and why, `unmatched`
    those whose Relax operators no NPU pattern matched, and why.

    Unmatched and stateful operators, and those that TVM's frontend cannot import, become host code too, which
    partitioning may still take for the NPU. `UnsupportedModelError` names operators that `host_ops` cannot do either.
    """
    return _OperatorImporter(model, network, host, model if file is None else file, unmatched or {}).run()


# Quantised operators that partitioning takes for the NPU from what their host code says of itself.
_BY_HOST_CODE = frozenset(
    ("BATCH_TO_SPACE_ND", "BROADCAST_TO", "DEPTH_TO_SPACE", "LOG", "MIRROR_PAD", "NEG", "SPACE_TO_BATCH_ND",
     "SPACE_TO_DEPTH", "TILE")
)  # fmt: skip


class _NotImportedError(RefusalError):
    """TVM's frontend cannot import one operator; the message says why."""


class _OperatorImporter:
    def __init__(
        self, model: bytes, network: Network, host: Mapping[int, str], file: bytes, unmatched: Mapping[int, str]
    ) -> None:
        self.network, self.file = network, file
        self.main = MainBuilder(network, branches=False)
        self.kept = frozenset(host)
        self.host = {**unmatched, **host}
        self.last: dict[Any, int] = {}  # the variable that ends an operator's bindings -> the operator
        repaired, _ = clear_stray_quantised_dimensions(model)
        root = tflite.Model.GetRootAsModel(repaired, 0)
        self.graph = root.Subgraphs(0)
        self.converter = RepairedConverter(root, self.graph, self.main.block_builder)
        for operator in network.cpu_operators:
            reason = self._not_convertible(operator)
            if reason is not None:
                self.host.setdefault(operator.index, reason)
        check_on_host(network, self.host, file)

    def _not_convertible(self, operator: CpuOperator) -> str | None:
        """Why TVM's converter need not be tried; None when it may know the operator."""
        tensors = self.network.tensors_of(operator)
        if any(t.is_variable for t in tensors):
            return "it keeps state between runs, which TVM's TFLite frontend cannot express"
        if any(t.scales for t in tensors) and operator.name in _BY_HOST_CODE:
            return "no NPU lowering takes its host code"
        if operator.name not in self.converter.convert_map:
            return "TVM's TFLite frontend does not know it, and no NPU lowering takes its host code"
        if any(t.scales for t in tensors) and operator.name not in self.converter._SUPPORTED_QUANTIZED_OPS:
            return "TVM's TFLite frontend does not know it in quantised models, and no NPU lowering takes its host code"
        return None

    def run(self) -> RelaxImport:
        attributes = network_attributes(self.network, self.main.states, ())
        module = self.main.build(self._emit, attributes, return_updates=True)
        results = {str(variable.name): (index, str(variable.name)) for variable, index in self.last.items()}
        module, operator_of = named_after(module, results)
        return RelaxImport(module, self.host, operator_of, len(self.main.updated))

    def _emit(self, operator: NpuCall | CpuOperator) -> None:
        assert isinstance(operator, CpuOperator)  # compiled networks are refused before
        if operator.index not in self.host:
            try:
                self._convert(operator)
            except _NotImportedError as reason:
                self.host[operator.index] = str(reason)
                check_on_host(self.network, {operator.index: str(reason)}, self.file)
        if operator.index in self.host:
            self.main.host_operator(operator, for_good=operator.index in self.kept)
        made = operator.outputs or operator.inputs[:1]  # an update makes its state anew
        last = self.main.values.get(made[-1]) if made else None
        if isinstance(last, relax.Var):
            self.last.setdefault(last, operator.index)

    # ------------------------------------------------------------------ TVM's converter

    def _convert(self, operator: CpuOperator) -> None:
        """Let TVM convert `operator`; its outputs become values."""
        try:
            results = self._results(operator)
        except _NotImportedError:
            raise
        except Exception as error:  # the frontend raises whatever comes first: assertions, TVM errors, KeyError
            raise_outside_cause(error)
            sound = host_reason(self.network, operator) is None  # what contradicts itself may raise anything
            if sound and is_ours(error) and not isinstance(error, NpuMemplanError):
                report_fault(f"importing operator {operator.index} {operator.name}", error)
            raise _NotImportedError(f"TVM's TFLite frontend cannot import it: {describe_error(error)}") from error
        for index, result in results.items():
            if isinstance(result, relax.Var | ir.GenericConst):
                self.main.values[index] = result
            else:
                self.main.bind(index, result)

    def _results(self, operator: CpuOperator) -> dict[int, Any]:
        """What TVM's converter makes of an operator, by output tensor; empty when it keeps it to itself."""
        tensors, builder = self.network.tensors, self.main.block_builder
        for index in operator.inputs:
            if index in self.main.values:
                self.converter.made[index] = self._shaped(self.main.values[index], tensors[index].shape)
        made = self.converter.convert_map[operator.name](op=self.graph.Operators(operator.index))
        if made is None:
            return {}
        made = builder.normalize(made)
        if getattr(getattr(made, "op", None), "name", "") == "relax.call_dps_packed":
            raise _NotImportedError("TVM's TFLite frontend calls TVM's run time for it")
        parts = [made]
        if len(operator.outputs) > 1:
            whole = made if isinstance(made, relax.Tuple) else builder.emit(made)
            parts = [whole[i] for i in range(len(operator.outputs))]
        results = {}
        for index, part in zip(operator.outputs, map(builder.normalize, parts), strict=True):
            tensor = tensors[index]
            if str(part.ty.dtype) != tensor.dtype:
                raise _NotImportedError(
                    f"TVM's TFLite frontend imports it as {part.ty.dtype} instead of {tensor.dtype}"
                )
            results[index] = self._shaped(part, tensor.shape or (1,))
        return results

    def _shaped(self, value: Any, shape: tuple[int, ...]) -> Any:
        """`value` in another shape, where it has another: scalars are [1] outside of TVM's converter."""
        if tuple(int(d) for d in value.ty.shape) == shape:
            return value
        return self.main.block_builder.normalize(relax.op.reshape(value, shape))


@dataclass(slots=True)
class OperatorNames:
    """Called with a layer's output and the operators of its inputs (-1: none); answers with an index, or -1."""

    network: Network
    named: Mapping[str, int]  # Relax variable -> operator
    _labelled: dict[str, int] = field(init=False)
    _readers: dict[int, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self._labelled = {node_of(name): index for name, index in self.named.items()} | dict(self.named)
        readers: dict[int, list[int]] = {}
        for operator in self.network.operators:
            for tensor in operator.inputs:
                readers.setdefault(tensor, []).append(operator.index)
        self._readers = {
            operator.index: sorted({reader for tensor in operator.outputs for reader in readers.get(tensor, ())})
            for operator in self.network.operators
        }

    def __call__(self, output: str, inputs: tuple[int, ...]) -> int:
        """The operator that makes `output` of what `inputs` made."""
        if output in self._labelled:
            return self._labelled[output]
        claimed = set(self.named.values())
        following = [reader for source in inputs for reader in self._readers.get(source, ())]
        free = [reader for reader in following if reader not in claimed] or following
        return free[0] if free else max(inputs, default=-1)
