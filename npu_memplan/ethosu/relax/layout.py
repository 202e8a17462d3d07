"""NCHW modules (ONNX, PyTorch) to NHWC, at the level of the quantised graph.

Invariant: the module computes the same values and keeps its signature, and an operator's variable keeps its name.
Feature maps between operators are NHWC; a transpose stands only where an operator needs the original order, and there
it moves stored (8-bit) values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import ir, relax

from ..reading.reader import bindings_of, name_of

_TO_NHWC, _TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
_WINDOWS = ("nn.conv2d", "nn.max_pool2d", "nn.avg_pool2d")
_ELEMENTWISE = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "abs", "exp", "sigmoid", "tanh", "clip"),
    *("nn.relu", "nn.leakyrelu", "quantize", "dequantize", "astype"),
)
_AXES = {0: 0, 1: 3, 2: 1, 3: 2}
# operators of one map: what of their attributes changes with it
_RELAID: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    **dict.fromkeys(_WINDOWS[1:], lambda _: {"layout": "NHWC", "out_layout": "NHWC"}),
    "mean": lambda attributes: {"axis": sorted(_AXES[int(a) % 4] for a in attributes.axis)},
    "nn.softmax": lambda attributes: {"axis": _AXES[int(attributes.axis) % 4]},
    "nn.pad": lambda attributes: {"pad_width": [int(attributes.pad_width[i]) for i in (0, 1, 4, 5, 6, 7, 2, 3)]},
    "image.resize2d": lambda _: {"layout": "NHWC"},
}


@dataclass(slots=True)
class _Value:
    """One tensor: the forms it exists in, and what it was dequantised from."""

    nchw: Any = None
    nhwc: Any = None
    source: Any = None  # variable of the stored tensor in the old function, when this is its dequantisation
    call: Any = None  # the dequantize call


def has_nchw(mod: Any) -> bool:
    """Whether a window operator of main is laid out NCHW."""
    return any(name_of(b.value) in _WINDOWS and _layout(b.value) == "NCHW" for b in bindings_of(mod["main"]))


def to_nhwc(mod: Any) -> Any:
    """`mod` with main's feature maps in NHWC."""
    main = mod["main"]
    builder = relax.BlockBuilder()
    converter = _Converter(builder, {b.var: b.value for b in bindings_of(main)})
    parameters = [relax.Var(p.name, p.ty) for p in main.params]
    for old, new in zip(main.params, parameters, strict=True):
        converter.values[old] = _Value(nchw=new)
    with builder.function("main", parameters, attrs=dict(main.attrs.items()) if main.attrs else None):
        with builder.dataflow():
            for binding in bindings_of(main):
                converter.bind(binding.var, binding.value)
            result = converter.result(main.body.body)
            outputs = [builder.emit_output(r, str(getattr(main.body.body, "name", ""))) for r in result]
        builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
    made = builder.finalize()
    for variable, function in mod.functions.items():
        if variable.name_hint != "main":
            made[variable] = function
    return relax.transform.DeadCodeElimination()(made)


def _layout(call: Any) -> str:
    return str(call.attrs.data_layout if name_of(call) == "nn.conv2d" else call.attrs.layout)


def with_arguments(call: Any, arguments: list[Any]) -> Any:
    """`call` of other arguments; what it is told of the type of its result stays, as of `call_tir`."""
    return ir.Call(call.op, arguments, call.attrs, call.ty_args)


def _rebuild_call(call: Any, arguments: list[Any], **changed: Any) -> Any:
    """`call` of other arguments, with these of its attributes changed."""
    known = type(call.attrs).__tvm_ffi_type_info__
    attributes = {field.name: getattr(call.attrs, field.name) for field in known.fields}
    return ir.Call(call.op, arguments, ir.make_node(known.type_key, **attributes | changed))


def _variables(arguments: Iterable[Any]) -> list[Any]:
    """The variables among arguments and in tuples of them."""
    fields = [f for a in arguments for f in (a.fields if isinstance(a, relax.Tuple) else (a,))]
    return [f for f in fields if isinstance(f, relax.Var)]


def _reads(value: Any, variable: Any) -> bool:
    return isinstance(value, ir.Call) and any(v.same_as(variable) for v in _variables(value.args))


def _fits(call: Any) -> bool:
    """Whether a transpose convolution is one that the NPU runs."""
    a = call.attrs
    numbers = [[int(n) for n in values] for values in (a.strides, a.dilation)]
    return numbers in ([[1, 1], [1, 1]], [[2, 2], [1, 1]]) and int(a.groups) == 1


class _Converter:
    def __init__(self, builder: Any, bindings: dict[Any, Any]) -> None:
        self.builder = builder
        self.bindings = bindings  # of the old function
        self.values: dict[Any, _Value] = {}

    # ------------------------------------------------------------------ forms

    def to_nchw(self, expression: Any) -> Any:
        """An old expression in its original order."""
        if not isinstance(expression, relax.Var):
            return expression
        value = self.values[expression]
        if value.nchw is None and value.source is not None:
            value.nchw = self._dequantize(value.call, self.to_nchw(value.source), f"{expression.name}_use")
        if value.nchw is None:
            value.nchw = self._move(value.nhwc, _TO_NCHW, f"{expression.name}_nchw")
        return value.nchw

    def to_nhwc(self, expression: Any) -> Any:
        """An old 4-D expression with its channels last."""
        if isinstance(expression, ir.GenericConst):
            data = expression.value.numpy()
            return relax.const(np.ascontiguousarray(data.transpose(_TO_NHWC))) if data.ndim == 4 else expression
        value = self.values[expression]
        if value.nhwc is None and value.source is not None:
            value.nhwc = self._dequantize(value.call, self.to_nhwc(value.source), f"{expression.name}_use")
        if value.nhwc is None:
            value.nhwc = self._move(value.nchw, _TO_NHWC, f"{expression.name}_nhwc")
        return value.nhwc

    def _move(self, expression: Any, order: tuple[int, ...], name: str) -> Any:
        shape = [int(d) for d in expression.ty.shape]
        target = [shape[axis] for axis in order]
        long = [axis for axis in order if shape[axis] != 1]
        kept = long == sorted(long)  # the axes, not their extents: 16 x 16 x 16 does change its order
        moved = relax.op.reshape(expression, target) if kept else relax.op.permute_dims(expression, list(order))
        return self.builder.emit(moved, name_hint=name)

    def _dequantize(self, call: Any, source: Any, name: str) -> Any:
        return self.builder.emit(relax.op.dequantize(source, call.args[1], call.args[2], axis=0), name_hint=name)

    # ------------------------------------------------------------------ bindings

    def bind(self, variable: Any, expression: Any) -> None:
        if isinstance(expression, relax.Var):
            self.values[variable] = self.values[expression]
            return
        name = name_of(expression)
        if name in _WINDOWS and _layout(expression) == "NCHW":
            converted = self._convert_conv2d(expression) if name == "nn.conv2d" else self._of_map(expression)
            self.values[variable] = _Value(nhwc=self.builder.emit(converted, name_hint=variable.name))
        elif name == "dequantize" and self._is_stored(expression):
            self.values[variable] = _Value(source=expression.args[0], call=expression)
        elif (
            name in ("reshape", "flatten", "permute_dims") and self._find_dequantisation(expression.args[0]) is not None
        ):
            self._move_stored(variable, expression)
        elif self._is_map(variable) and (converter := self._converter_of(name, expression, variable)) is not None:
            self.values[variable] = _Value(nhwc=self.builder.emit(converter(expression), name_hint=variable.name))
        elif name == "mean" and self._leaves_channels(expression):
            self.values[variable] = _Value(nchw=self.builder.emit(self._of_map(expression), name_hint=variable.name))
        else:
            arguments = [self._plain(a) for a in expression.args] if isinstance(expression, ir.Call) else None
            call = expression if arguments is None else with_arguments(expression, arguments)
            self.values[variable] = _Value(nchw=self.builder.emit(self._rebuild(call), name_hint=variable.name))

    def _plain(self, argument: Any) -> Any:
        if isinstance(argument, relax.Tuple):
            return relax.Tuple([self.to_nchw(f) for f in argument.fields])
        return self.to_nchw(argument)

    def _rebuild(self, expression: Any) -> Any:
        if isinstance(expression, relax.Tuple):
            return self._plain(expression)
        if isinstance(expression, relax.TupleGetItem):
            return relax.TupleGetItem(self.to_nchw(expression.tuple_value), expression.index)
        return expression

    def _is_stored(self, call: Any) -> bool:
        """A dequantisation with one scale, of a tensor that is no constant."""
        return isinstance(call.args[0], relax.Var) and len(call.args[1].ty.shape) == 0

    def _find_dequantisation(self, expression: Any) -> Any:
        return self.values[expression].source if isinstance(expression, relax.Var) else None

    def _move_stored(self, variable: Any, call: Any) -> None:
        """Reshape and transpose stored values, and dequantise after it."""
        value = self.values[call.args[0]]
        moved = with_arguments(call, [self.to_nchw(value.source), *call.args[1:]])
        stored = relax.Var(f"{variable.name}_stored", relax.TensorType(variable.ty.shape, value.source.ty.dtype))
        self.values[stored] = _Value(nchw=self.builder.emit(moved, name_hint=stored.name))
        self.values[variable] = _Value(source=stored, call=value.call)

    def _is_map(self, variable: Any) -> bool:
        return isinstance(variable.ty, relax.TensorType) and len(variable.ty.shape) in (3, 4)

    def _converter_of(self, name: str, call: Any, variable: Any) -> Callable[[Any], Any] | None:
        """How `call` is written over NHWC maps; None when it has to stay in its own order."""
        operands = _variables(call.args) if isinstance(call, ir.Call) else []
        maps = [o for o in operands if len(o.ty.shape) == 4]
        if name == "nn.pad" and maps and not any(int(w) for w in list(call.attrs.pad_width)[:4]):
            return self._of_map  # of height and width: an image on its way to a convolution
        if not maps or not any(self._is_nhwc(o) for o in maps):
            return None
        if name in _ELEMENTWISE and all(len(o.ty.shape) in (0, 4) for o in operands):
            return self._convert_elementwise
        if name == "concat":
            return self._convert_concat if len(maps) == len(call.args[0].fields) else None
        if name == "nn.conv2d_transpose" and not (_fits(call) and self._becomes_stored(variable)):
            return None  # TVM's host code has NCHW only
        if name in _RELAID and name not in _WINDOWS:
            return self._of_map
        return {"strided_slice": self._strided_slice, "nn.conv2d_transpose": self._conv2d_transpose}.get(name)

    def _becomes_stored(self, variable: Any) -> bool:
        """Whether a product is of stored values and goes to a quantisation alone, after its bias and activation."""
        product = self.bindings[variable]
        operands = [self.bindings.get(a) for a in product.args[:2]]
        if any(name_of(o) != "dequantize" for o in operands):
            return False
        while True:
            users = [v for v, value in self.bindings.items() if _reads(value, variable)]
            if len(users) != 1:
                return False
            variable = users[0]
            if name_of(self.bindings[variable]) not in ("add", "nn.relu", "clip"):
                return name_of(self.bindings[variable]) == "quantize"

    def _is_nhwc(self, expression: Any) -> bool:
        value = self.values[expression]
        return value.nhwc is not None or (value.source is not None and self._is_nhwc(value.source))

    # ------------------------------------------------------------------ operators

    def _convert_elementwise(self, call: Any) -> Any:
        name = name_of(call)
        if name in ("quantize", "dequantize"):
            axis = 0 if len(call.args[1].ty.shape) == 0 else _AXES[int(call.attrs.axis) % 4]
            return _rebuild_call(call, [self.to_nhwc(call.args[0]), *call.args[1:]], axis=axis)
        return with_arguments(call, [self._operand(a) for a in call.args])

    def _operand(self, argument: Any) -> Any:
        """A map in NHWC; a bias of shape [1, C, 1, 1] as [C]."""
        shape = getattr(argument.ty, "shape", None)
        if shape is None or len(shape) != 4:
            return self.to_nchw(argument)
        if isinstance(argument, relax.Var):
            value = self.values[argument]
            bound: Any = self.builder.lookup_binding(value.nchw) if value.nchw is not None else None
            if name_of(bound) == "reshape" and list(map(int, bound.args[0].ty.shape)) == [int(shape[1])]:
                return bound.args[0]
        return self.to_nhwc(argument)

    def _convert_conv2d(self, call: Any) -> Any:
        order = [str(call.attrs.kernel_layout).index(letter) for letter in "OHWI"]
        arguments = [self.to_nhwc(call.args[0]), self._weights(call.args[1], order)]
        return _rebuild_call(call, arguments, data_layout="NHWC", kernel_layout="OHWI", out_layout="NHWC")

    def _weights(self, expression: Any, order: list[int]) -> Any:
        """Dequantised constant weights with their constant transposed; anything else by a transpose."""
        plain = self.to_nchw(expression)
        bound: Any = self.builder.lookup_binding(plain) if isinstance(plain, relax.Var) else plain
        if name_of(bound) != "dequantize" or not isinstance(bound.args[0], ir.GenericConst):
            return self.builder.emit(relax.op.permute_dims(plain, order))
        data = np.ascontiguousarray(bound.args[0].value.numpy().transpose(order))
        axis = order.index(int(bound.attrs.axis) % 4)
        weights = relax.op.dequantize(relax.const(data), bound.args[1], bound.args[2], axis=axis)
        return self.builder.emit(weights, name_hint=f"{plain.name}_use")

    def _of_map(self, call: Any) -> Any:
        return _rebuild_call(call, [self.to_nhwc(call.args[0]), *call.args[1:]], **_RELAID[name_of(call)](call.attrs))

    def _leaves_channels(self, call: Any) -> bool:
        """Whether a mean of a map in NHWC has no dimensions but batch and channels, in this order."""
        source = call.args[0]
        if len(source.ty.shape) != 4 or bool(call.attrs.keepdims) or not self._is_nhwc(source):
            return False
        return sorted(int(a) % 4 for a in call.attrs.axis) == [2, 3]

    def _convert_concat(self, call: Any) -> Any:
        return relax.op.concat([self.to_nhwc(f) for f in call.args[0].fields], axis=_AXES[int(call.attrs.axis) % 4])

    def _strided_slice(self, call: Any) -> Any:
        axes = [relax.prim_value(_AXES[int(a) % 4]) for a in call.args[1].fields]
        return with_arguments(call, [self.to_nhwc(call.args[0]), relax.Tuple(axes), *call.args[2:]])

    def _conv2d_transpose(self, call: Any) -> Any:
        arguments = [self.to_nhwc(call.args[0]), self.to_nchw(call.args[1])]
        return _rebuild_call(call, arguments, data_layout="NHWC", out_layout="NHWC")

    def result(self, expression: Any) -> list[Any]:
        """The function's results in their original order."""
        value = self.values.get(expression) if isinstance(expression, relax.Var) else None
        if value is not None and value.nchw is not None and isinstance(value.nchw.ty, relax.TupleType):
            return [relax.TupleGetItem(value.nchw, i) for i in range(len(value.nchw.ty.fields))]
        fields = list(expression.fields) if isinstance(expression, relax.Tuple) else [expression]
        return [self.to_nchw(f) for f in fields]
