"""A TFLite file to one IRModule by TVM's frontend, our partitioning and our lowering: no Vela stream.

Invariant: the module has the same form and the same attributes as the one that `tflite.import_tflite` lifts from
Vela's stream, so nothing that uses this module depends on which compiler made it. Every operator of the file is either
what TVM's converter makes of it (QDQ form), or one call of the PrimFunc that `host_ops` makes of it; which, why, and
which variables of `main` belong to it is recorded while it is imported. States are parameters of `main`, as in every
other import. Nothing of TVM is changed: a repair is a method of our converter, or works on the model's bytes or on the
imported module. Each says what TVM does today and how to see that it has become unnecessary.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tflite
from tvm import ir, relax
from tvm.relax.frontend.tflite import tflite_frontend

from ...errors import NpuMemplanError, RefusalError, describe_error
from ...ethosu.reading.reader import name_of
from ...exactness import Code
from ...fixed_point import activation_range
from ...models.network import CpuOperator, Network
from ...models.subgraphs import DONE_BEFORE, OF_VARIABLES
from ...models.tflite import read_network
from ...models.vela import NpuCall
from ...names import node_of
from ...process.ending import raise_lack_of_memory
from ...process.incidents import is_ours, report_fault
from ...request import ONLY_FLOATS
from ...vocabulary import RESHAPING
from ..attributes import BY_USER, SourceOperator, forced_operators, operator_attributes
from ..errors import FormatError
from ..graph import named_after
from ..legalize import legalize_host
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
from .lifted import Imported, from_network, read_folded
from .main_builder import MainBuilder, settle_states

if TYPE_CHECKING:
    from ...ethosu.lowering import LoweringTarget
    from ...models.network import Network


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A network in parts for the NPU and the host, which do not depend on what it is lowered for."""

    network: Network
    imported: RelaxImport
    module: Any
    left: Mapping[int, str]  # operators on the host, and why
    on_host: Mapping[int, str]  # those with exact code there


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
    """Import, partition and lower `model` for `accelerator`.

    `host_ops` are TFLite operators to keep on the CPU, `external` those that external C functions run there;
    `lowering_target` says what it is lowered for (None: few bytes, in the default system); `known` keeps what was
    partitioned, for the next target. Raises `NetworkError` for files that
    are no TFLite, `FormatError` for those that Vela has compiled, `HostOpsError`, `UnsupportedModelError` for
    operators that neither side can run, `LoweringError` where a layer defeats the lowering.
    """
    from ...ethosu.lowering import LoweringTarget
    from ...ethosu.relax.lowering import lower_for_ethosu

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
        parts = _partition_network(network, file, data, accelerator, forced)
        if known is not None:
            known[key] = parts
    network, left = parts.network, parts.left
    operators = OperatorNames(network, parts.imported.operator_of)
    module = lower_for_ethosu(parts.module, accelerator, lowering_target or LoweringTarget(), operators)
    reasons = {variable: left[index] for variable, index in parts.imported.operator_of.items() if index in left}
    module = legalize_host(round_integer_averages(module), reasons, name)
    described = [
        SourceOperator(
            operator_label(network, o),
            o.name,
            o.index not in left,
            left.get(o.index, ""),
            known_of(_code_of(o.index, left, parts.on_host), network, o),
        )
        for o in network.cpu_operators
    ]
    main = settle_states(module["main"], parts.imported.updates).with_attr(operator_attributes(described))
    module.update_func(module.get_global_var("main"), main)
    return Imported(module, network)


def _host_reasons(network: Network, host_ops: Sequence[str], floats: Mapping[int, str]) -> dict[int, str]:
    """Operators that stay on the host, and why: kind, types, or results that native lowering may not give."""
    names = forced_operators(network, host_ops)
    forced = {**floats, **{o.index: BY_USER for o in network.cpu_operators if o.name in names}}
    for operator in network.cpu_operators:
        doubted = doubt_reason(Code.LOWERED, network, operator)
        if doubted and host_reason(network, operator) is None:
            forced.setdefault(operator.index, doubted)
    return forced


def _partition_network(
    network: Network, file: bytes, data: bytes, accelerator: str, forced: Mapping[int, str]
) -> Partitioned:
    """`network` of `file`, or of the `data` that is read of it, with operators in `forced` on the host."""

    imported = import_operators(data, network, forced, file)
    partitioned = _partition_module(imported, accelerator, forced)
    left = _host_remainder(partitioned, imported)
    exact = {i: why for i, why in left.items() if host_reason(network, network.cpu_operators[i]) is None}
    if exact.keys() - imported.on_host.keys():
        imported = import_operators(data, network, forced, file, unmatched=exact)
        partitioned = _partition_module(imported, accelerator, forced)
        left = _host_remainder(partitioned, imported)
    left |= forced
    on_host = dict(imported.on_host) | {o.index: "" for o in network.cpu_operators if o.name in DONE_BEFORE}
    left |= {i: why for i, why in on_host.items() if network.cpu_operators[i].name in OF_VARIABLES}
    return Partitioned(network, imported, partitioned, left, on_host)


def _code_of(index: int, left: Mapping[int, str], on_host: Mapping[int, str]) -> Code:
    """The code that an operator got: `left` are not on the NPU, and those `on_host` have exact code."""
    if index not in left:
        return Code.LOWERED
    return Code.HOST if index in on_host else Code.TVM


def _partition_module(imported: RelaxImport, accelerator: str, forced: Mapping[int, str]) -> Any:
    """The module in parts for the NPU and the host; of `forced` also what is no call, but a reshape."""
    from ...ethosu.relax.partition import partition_for_ethosu

    keep = {variable: forced[index] for variable, index in imported.operator_of.items() if index in forced}
    return partition_for_ethosu(imported.module, accelerator, keep=keep)


def _host_remainder(partitioned: Any, imported: RelaxImport) -> dict[int, str]:
    """Operators that a partitioned `main` still calls, by their index in the file, and why."""
    from ...ethosu.relax.partition import NO_PATTERN, HostOperator, remaining_operators

    parts: dict[int, list[HostOperator]] = {}
    for part in remaining_operators(partitioned):
        index = imported.operator_of.get(part.name, -1)
        if index >= 0 and part.kind not in RESHAPING:
            parts.setdefault(index, []).append(part)
    # the part that does the work has the best reason
    left = {i: next((p for p in found if not p.only_carries), found[0]).reason for i, found in parts.items()}
    return left | {i: why for i, why in imported.on_host.items() if left.get(i) == NO_PATTERN}


# TVM 0.27 keeps an allow-list of operators that may be quantised. These only move elements, so their float
# converters are right for stored values as they are. Unnecessary when `PAD` is in
# OperatorConverter._SUPPORTED_QUANTIZED_OPS (tests/relax_npu/test_repairs.py then fails).
MOVING_OPERATORS = frozenset(
    (
        *("PAD", "PADV2", "MIRROR_PAD", "TRANSPOSE", "SQUEEZE", "EXPAND_DIMS", "STRIDED_SLICE", "SLICE", "SPLIT"),
        *("SPLIT_V", "PACK", "UNPACK", "GATHER", "RESIZE_NEAREST_NEIGHBOR", "SPACE_TO_DEPTH", "DEPTH_TO_SPACE"),
        *("BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND", "SHAPE", "TILE"),
    )
)


def clear_stray_quantised_dimensions(model: bytes) -> tuple[bytes, int]:
    """Set `quantized_dimension` to 0 where it means nothing: one scale, or no such dimension; (model, how many).

    Old converters wrote the weights' dimension (3) on one-dimensional biases and on weights with one scale.
    TVM 0.27 then dequantises along an axis that does not exist, or refuses the weights. Unnecessary when TVM
    ignores the field of per-tensor quantisation, as tflite-micro does.
    """
    data = bytearray(model)
    root = tflite.Model.GetRootAsModel(data, 0)
    changed = 0
    for graph in (root.Subgraphs(i) for i in range(root.SubgraphsLength())):
        for tensor in (graph.Tensors(i) for i in range(graph.TensorsLength())):
            quantisation = tensor.Quantization()
            if quantisation is None or quantisation.QuantizedDimension() == 0:
                continue
            if quantisation.ScaleLength() > 1 and quantisation.QuantizedDimension() < tensor.ShapeLength():
                continue
            field = quantisation._tab.Offset(16)  # vtable slot of quantized_dimension
            struct.pack_into("<i", data, quantisation._tab.Pos + field, 0)
            changed += 1
    return bytes(data), changed


_LIMITING = (
    tflite.ActivationFunctionType.RELU,
    tflite.ActivationFunctionType.RELU_N1_TO_1,
    tflite.ActivationFunctionType.RELU6,
)


class _Tensor(tflite.Tensor):  # type: ignore[misc]
    """A tensor of the file; one without a scale has no quantisation.

    TVM 0.27 looks for the first of no zero points where a file's tensors of shapes have empty tables. Unnecessary when
    `test_empty_tables_of_scales` passes without it.
    """

    def Quantization(self) -> Any:
        found = super().Quantization()
        return found if found is not None and found.ScaleLength() else None


class _Graph(tflite.SubGraph):  # type: ignore[misc]
    def Tensors(self, j: int) -> Any:
        table, tensor = super().Tensors(j)._tab, _Tensor()
        tensor.Init(table.Bytes, table.Pos)
        return tensor


class RepairedConverter(tflite_frontend.OperatorConverter):  # type: ignore[misc]
    """TVM's converter for one subgraph, which takes the values made so far from `made`, by tensor index.

    TVM 0.27 looks tensors up by name, so two of one name become one. Unnecessary when
    `test_tensors_go_by_their_index_not_by_their_name` passes without `has_expr` and `get_expr`.
    """

    _SUPPORTED_QUANTIZED_OPS = tflite_frontend.OperatorConverter._SUPPORTED_QUANTIZED_OPS | MOVING_OPERATORS

    def __init__(self, model: Any, subgraph: Any, builder: Any) -> None:
        graph = _Graph()
        graph.Init(subgraph._tab.Bytes, subgraph._tab.Pos)
        super().__init__(model, graph, tflite_frontend.ExprTable(), builder)
        self.made: dict[int, Any] = {}  # tensor -> Relax value

    def has_expr(self, input_tensor_idx: int) -> bool:
        """Whether the tensor is made already; the others are constants."""
        return input_tensor_idx in self.made

    def get_expr(self, input_tensor_idx: int) -> Any:
        """The value of a tensor; converters of one input take it for made, though it may be a constant."""
        if input_tensor_idx in self.made:
            return self.made[input_tensor_idx]
        (constant,) = self.get_tensors([input_tensor_idx])
        return self.get_tensor_expr(constant)

    def get_tensor_value(self, tensor_wrapper: Any, is_sparse: bool = False) -> Any:
        """The value of a constant, whose further bytes are padding. Unnecessary when `test_padded_constants` passes."""
        kind = np.dtype(self.get_tensor_type_as_numpy(tensor_wrapper))
        tensor = tensor_wrapper.tensor
        shape = [int(tensor.Shape(i)) for i in range(tensor.ShapeLength())]  # none: a scalar
        data = tensor_wrapper.buffer.DataAsNumpy()
        if is_sparse or isinstance(data, int) or len(data) <= math.prod(shape) * kind.itemsize:
            return super().get_tensor_value(tensor_wrapper, is_sparse)
        return np.frombuffer(data, dtype=kind, count=math.prod(shape)).reshape(shape)

    def dequantize(self, expr: Any, tensor: Any) -> Any:
        """Dequantise by a product of floats where the stored values are int64: biases of int16 activations.

        TVM 0.27's `dequantize` has no int64. Unnecessary when a model with them imports without this repair.
        """
        if tensor.tensor.Type() != tflite.TensorType.INT64:
            return super().dequantize(expr, tensor)
        return relax.op.multiply(relax.op.astype(expr, "float32"), tensor.qnn_params["scale"])

    def convert_qnn_fused_activation_function(
        self, expr: Any, fused_activation_fn: int, scale: float, zero_point: int, dtype: str
    ) -> Any:
        """Stored values inside of the limits that TFLite gives a fused activation.

        TVM 0.27 divides a limit by the scale in double precision and rounds half to even; TFLite divides in single
        precision and rounds half away from zero. Unnecessary when `test_fused_limits_near_a_half` passes without it.
        """
        if fused_activation_fn == tflite.ActivationFunctionType.NONE:
            return expr
        if fused_activation_fn not in _LIMITING:
            raise NpuMemplanError("its fused activation has no limits of stored values")
        low, high = activation_range(fused_activation_fn, float(scale), int(zero_point), dtype)
        return relax.op.clip(expr, min=low, max=high)

    def convert_gather(self, op: Any) -> Any:
        """Elements at constant places of one axis.

        TVM 0.27 looks at every element of the output in Python, and forgets batch dimensions. Unnecessary when
        `test_gather_of_constant_places` passes without it.
        """
        table, options = op.BuiltinOptions(), tflite.GatherOptions()
        options.Init(table.Bytes, table.Pos)
        data, places = self.get_input_tensors(op)
        if self.has_expr(places.tensor_idx) or options.BatchDims():
            raise NpuMemplanError("its places are computed, or differ from one batch to the next")
        indices = self.get_tensor_value(places).astype(np.int32)
        axis, extent = options.Axis(), data.tensor.Shape(options.Axis() % data.tensor.ShapeLength())
        if indices.size == 0 or indices.min() < 0 or indices.max() >= extent:
            raise NpuMemplanError(f"its places are not within 0..{extent - 1}")
        return relax.op.take(self.get_tensor_expr(data), relax.const(indices), axis=axis)

    def convert_reshape(self, op: Any) -> Any:
        """The stored values of its input, in the shape of its output.

        TVM 0.27 rescales uint8 values whose output has another scale; TFLite copies them. Unnecessary when
        `test_reshape_copies_stored_values` passes without it.
        """
        shape = self.get_tensor_shape(self.get_output_tensors(op)[0])
        return relax.op.reshape(self.get_tensor_expr(self.get_input_tensors(op)[0]), [int(d) for d in shape])

    def convert_softmax(self, op: Any) -> Any:
        """Softmax of its input as it is; one whose input is scaled by a beta is refused.

        TVM 0.27 forgets beta. Unnecessary when `test_softmax_keeps_its_beta` passes without it.
        """
        table = op.BuiltinOptions()
        options = tflite.SoftmaxOptions()
        options.Init(table.Bytes, table.Pos)
        if options.Beta() != 1.0:
            raise NpuMemplanError(f"it forgets the softmax's beta of {options.Beta():g}")
        return super().convert_softmax(op)

    def convert_strided_slice(self, op: Any) -> Any:
        """A box whose ends are places; one whose ends count from its begins is refused.

        TVM 0.27 forgets that they may. Unnecessary when `test_ends_that_count_from_begins` passes without it.
        """
        table, options = op.BuiltinOptions(), tflite.StridedSliceOptions()
        options.Init(table.Bytes, table.Pos)
        if options.Offset():
            raise NpuMemplanError("it forgets that its ends count from its begins")
        return super().convert_strided_slice(op)

    def convert_transpose_conv(self, op: Any) -> Any:
        """Convert with the limits of its activation. Unnecessary when `test_fused_limits_near_a_half` passes."""
        table, options = op.BuiltinOptions(), tflite.TransposeConvOptions()
        options.Init(table.Bytes, table.Pos)
        made, activation = super().convert_transpose_conv(op), options.FusedActivationFunction()
        quantisation = self.get_output_tensors(op)[0].tensor.Quantization()
        if quantisation is None:
            return self.convert_fused_activation_function(made, activation)
        made = self.bb.normalize(made)
        scale, zero_point = quantisation.Scale(0), quantisation.ZeroPoint(0) if quantisation.ZeroPointLength() else 0
        return self.convert_qnn_fused_activation_function(made, activation, scale, zero_point, str(made.ty.dtype))

    def convert_fully_connected(self, op: Any) -> Any:
        """Fully connected with its input as [rows, K].

        TFLite flattens the input whatever its rank; TVM 0.27 multiplies it as it is and fails on 3-D inputs.
        Unnecessary when micro_speech_quantized imports without this repair.
        """
        data, weights = self.get_input_tensors(op)[:2]
        shape = [int(d) for d in tflite_frontend.to_int_list(self.get_tensor_shape(data))]
        columns = int(tflite_frontend.to_int_list(self.get_tensor_shape(weights))[1])
        if len(shape) <= 2 and shape[-1] == columns:
            return super().convert_fully_connected(op)
        value = self.get_tensor_expr(data)
        self.made[data.tensor_idx] = self.bb.normalize(relax.op.reshape(value, (math.prod(shape) // columns, columns)))
        try:
            result = super().convert_fully_connected(op)
        finally:
            self.made[data.tensor_idx] = value
        output = self.get_output_tensors(op)[0]
        wanted = [int(d) for d in tflite_frontend.to_int_list(self.get_tensor_shape(output))]
        result = self.bb.normalize(result)
        return result if [int(d) for d in result.ty.shape] == wanted else relax.op.reshape(result, wanted)


@relax.expr_functor.mutator
class _RoundAverages(relax.PyExprMutator):  # type: ignore[misc]
    """astype(int8) of an int32 average becomes a rounded one."""

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        pool: Any = self._bound(call.args[0]) if name_of(call) == "astype" else None
        source: Any = self._bound(pool.args[0]) if name_of(pool) == "nn.avg_pool2d" else None
        if name_of(source) != "astype" or str(pool.args[0].ty.dtype) != "int32":
            return call
        real = self.builder_.emit(relax.op.astype(source.args[0], "float32"))
        mean = self.builder_.emit(ir.Call(pool.op, [real], pool.attrs))
        # half away from zero: TVM's round goes to even
        sign = self.builder_.emit(relax.op.sign(mean))
        half = self.builder_.emit(relax.op.add(relax.op.abs(mean), relax.const(0.5, "float32")))
        rounded = self.builder_.emit(relax.op.multiply(sign, relax.op.floor(half)))
        return relax.op.astype(rounded, call.ty.dtype)

    def _bound(self, expression: Any) -> Any:
        return self.lookup_binding(expression) if isinstance(expression, relax.Var) else expression


def round_integer_averages(mod: Any) -> Any:
    """Average pools that stay on the host round as TFLite does.

    TVM 0.27 imports a quantised AVERAGE_POOL_2D as an int32 pool, which truncates: up to half of the elements
    are one too small in magnitude. Unnecessary when the frontend rounds. Run it after partitioning: the NPU's
    pattern is the integer form.
    """
    mutator = _RoundAverages(mod)
    for variable, function in mod.functions.items():
        if isinstance(function, relax.Function) and not (function.attrs and "Codegen" in function.attrs):
            mutator.builder_.update_func(variable, mutator.visit_expr(function))
    return mutator.builder_.get()


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
            raise_lack_of_memory(error)
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
        """The results of TVM's converter for an operator, by output tensor; empty when it keeps it to itself."""
        tensors, builder = self.network.tensors, self.main.block_builder
        for index in operator.inputs:
            if index in self.main.values:
                self.converter.made[index] = self._shape_value(self.main.values[index], tensors[index].shape)
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
            results[index] = self._shape_value(part, tensor.shape or (1,))
        return results

    def _shape_value(self, value: Any, shape: tuple[int, ...]) -> Any:
        """`value` in another shape, where it has another: scalars are [1] outside of TVM's converter."""
        if tuple(int(d) for d in value.ty.shape) == shape:
            return value
        return self.main.block_builder.normalize(relax.op.reshape(value, shape))


@dataclass(slots=True)
class OperatorNames:
    """The operator of the source model that a layer belongs to: a callable of the layer's output and its inputs'
    operators.

    Operators are indices; -1: none.
    """

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
