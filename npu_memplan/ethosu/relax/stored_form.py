"""Work that float graphs do between a dequantisation and a quantisation, on stored values instead.

Invariant: every value stays what it was, but for float biases of quantised products, which become int32 in
units of input scale x weight scale: the accumulator's units, as TFLite and ONNX exports store them. PyTorch
(PT2E) keeps biases in float, pads and reshapes float values, and adds a product to its bias; the patterns
look for the other forms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import ir, relax

from ..reading.reader import name_of

_MOVES = ("reshape", "flatten", "permute_dims", "squeeze", "expand_dims", "strided_slice", "nn.pad", "image.resize2d")
_PRODUCTS = ("nn.conv2d", "nn.conv2d_transpose", "matmul")
_INT32 = np.iinfo(np.int32)


@relax.expr_functor.mutator
class StoredForm(relax.PyExprMutator):  # type: ignore[misc]
    """One function at a time; `normalise` runs it first. What is added has names that no variable has yet."""

    def visit_var_binding_(self, binding: Any) -> None:
        self.variable = str(binding.var.name)
        super().visit_var_binding_(binding)

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        name = name_of(call)
        if name == "quantize" and _scalar(call.args[1]) is not None:
            return self._quantized_move(call)
        if name == "add":
            return self._biased(call)
        return call

    def _bound(self, expression: Any) -> Any:
        return self.lookup_binding(expression) if isinstance(expression, relax.Var) else expression

    # ------------------------------------------------------------------ moves

    def _quantized_move(self, call: Any) -> Any:
        """quantize(move(x)) is move(quantize(x)), and that of the same dequantisation is what was stored."""
        move = self._bound(call.args[0])
        if name_of(move) not in _MOVES or not _moves_values(move):
            return call
        stored = self._stored(move.args[0], call)
        if stored is None:
            first = ir.Call(call.op, [move.args[0], *call.args[1:]], call.attrs)
            stored = self.builder_.emit(first, name_hint=f"{self.variable}_use")
        if name_of(move) == "nn.pad":
            return self._padded(move, stored, call)
        return ir.Call(move.op, [stored, *move.args[1:]], move.attrs)

    def _stored(self, real: Any, call: Any) -> Any:
        """The variable that `real` dequantises with the numbers with which `call` quantises; else None."""
        inner = self._bound(real)
        if name_of(inner) != "dequantize" or not isinstance(inner.args[0], relax.Var):
            return None
        pairs = zip(inner.args[1:], call.args[1:], strict=True)
        same = all(_scalar(a) is not None and _scalar(a) == _scalar(b) for a, b in pairs)
        return inner.args[0] if same and str(inner.args[0].ty.dtype) == str(call.ty.dtype) else None

    def _padded(self, pad: Any, stored: Any, call: Any) -> Any:
        scale, zero = float(_scalar(call.args[1])), int(_scalar(call.args[2]))
        limits = np.iinfo(str(call.ty.dtype))
        value = int(np.clip(np.rint(float(pad.attrs.pad_value) / scale) + zero, limits.min, limits.max))
        return relax.op.nn.pad(stored, [int(w) for w in pad.attrs.pad_width], pad_mode="constant", pad_value=value)

    # ------------------------------------------------------------------ biases

    def _biased(self, call: Any) -> Any:
        """A quantised product plus its bias, in this order and with a stored bias."""
        product, bias = call.args
        if name_of(self._bound(product)) not in _PRODUCTS:
            product, bias = bias, product
        found = self._bound(product)
        if name_of(found) not in _PRODUCTS:
            return call
        scales = self._accumulator_scales(found)
        constant, reshape = self._constant(bias)
        if scales is None or constant is None or constant.ndim != 1 or scales.size not in (1, constant.size):
            return call if product is call.args[0] else relax.op.add(product, bias)
        values = np.rint(constant / scales)
        if values.min() < _INT32.min or values.max() > _INT32.max:
            return call
        units = scales.astype(np.float32)
        units = units.reshape(()) if units.size == 1 else units
        zeros = relax.const(np.zeros(units.shape, np.int32))
        stored = relax.op.dequantize(relax.const(values.astype(np.int32)), relax.const(units), zeros, axis=0)
        stored = self.builder_.emit(stored, name_hint=f"{self.variable}_bias")
        if reshape is not None:
            reshaped = ir.Call(reshape.op, [stored, *reshape.args[1:]], reshape.attrs)
            stored = self.builder_.emit(reshaped, name_hint=f"{self.variable}_bias")
        return relax.op.add(product, stored)

    def _accumulator_scales(self, product: Any) -> Any:
        """Input scale x weight scale(s) of a product of dequantised operands, float64; else None."""
        data, weights = (self._bound(a) for a in product.args[:2])
        if name_of(weights) == "permute_dims":
            weights = self._bound(weights.args[0])
        if name_of(data) != "dequantize" or name_of(weights) != "dequantize":
            return None
        scale, per_channel = _scalar(data.args[1]), weights.args[1]
        if scale is None or not isinstance(per_channel, ir.GenericConst):
            return None
        return np.float64(scale) * per_channel.value.numpy().reshape(-1).astype(np.float64)

    def _constant(self, bias: Any) -> tuple[Any, Any]:
        """A float constant and the reshape around it, if any."""
        found = self._bound(bias)
        reshape = found if name_of(found) == "reshape" else None
        if reshape is not None:
            found = self._bound(reshape.args[0])
        if not isinstance(found, ir.GenericConst) or str(found.ty.dtype) != "float32":
            return None, None
        return found.value.numpy().astype(np.float64), reshape


def _moves_values(call: Any) -> bool:
    """Whether a call makes no values of its own, but for a constant border."""
    attributes = call.attrs
    border, method = (str(getattr(attributes, name, "")) for name in ("pad_mode", "method"))
    return border in ("", "constant") and method in ("", "nearest_neighbor")


def _scalar(expression: Any) -> Any:
    """The element of a constant of one element; else None."""
    if not isinstance(expression, ir.GenericConst):
        return None
    values = expression.value.numpy()
    return values.reshape(-1)[0] if values.size == 1 else None
