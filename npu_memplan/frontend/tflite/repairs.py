"""Repairs of what TVM 0.27's TFLite frontend refuses or gets wrong, each small and named.

Invariant: nothing of TVM is changed: a repair is a method of our converter, or works on the model's bytes or on
the imported module. Each says what TVM does today and how to see that it has become unnecessary.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import tflite
from tvm import ir, relax
from tvm.relax.frontend.tflite import tflite_frontend

from ...errors import NpuMemplanError
from ...ethosu.reading.reader import name_of
from ...fixed_point.multiplier import activation_range

# TVM 0.27 keeps an allow-list of operators that may be quantised. These only move elements, so their float
# converters are right for stored values as they are. Unnecessary when `PAD` is in
# OperatorConverter._SUPPORTED_QUANTIZED_OPS (the test `test_tvm_still_refuses_quantised_pad` then fails).
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
    """TVM's converter for one subgraph, which takes what exists so far from `made`, by tensor index.

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
        """The value of a constant; bytes after it are padding.

        TVM 0.27 wants as many bytes as the shape needs. Unnecessary when `test_padded_constants` passes without it.
        """
        kind = np.dtype(self.get_tensor_type_as_numpy(tensor_wrapper))
        tensor = tensor_wrapper.tensor
        shape = [int(tensor.Shape(i)) for i in range(tensor.ShapeLength())]  # none: a scalar
        data = tensor_wrapper.buffer.DataAsNumpy()
        if is_sparse or isinstance(data, int) or len(data) <= math.prod(shape) * kind.itemsize:
            return super().get_tensor_value(tensor_wrapper, is_sparse)
        return np.frombuffer(data, dtype=kind, count=math.prod(shape)).reshape(shape)

    def dequantize(self, expr: Any, tensor: Any) -> Any:
        """As a product of floats where the stored values are int64: biases of int16 activations.

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
        """With the limits of its fused activation.

        TVM 0.27 forgets them. Unnecessary when `test_fused_limits_near_a_half` passes without it.
        """
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
