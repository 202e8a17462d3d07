"""Small rewrites that give the patterns one form to look for.

Invariant: a normalised module computes the same values (float biases of quantised products aside, see `StoredForm`).
`split` becomes slices, so that each part can be a view of its own, and one part alone a reshape; no two operators share
a dequantisation; feature maps become NHWC; moves that only take channels become one. What a chain of moves does is
found by doing it to the elements' numbers, so no order of operators is known here; a chain is replaced only where every
pixel keeps its place and all take the same channels. Channel shuffles of grouped networks are such chains, over tensors
of five dimensions that no NPU operation walks. Float biases of quantised products become int32 in units of input scale
x weight scale: the accumulator's units, as ONNX exports store them. PyTorch (PT2E) keeps biases in float, pads and
reshapes float values, and adds a product to its bias; the patterns look for the other forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import ir, relax

from ...vocabulary import RESHAPING
from ..reading.reader import RejectedError, name_of, number, shape_of
from .layout import has_nchw, to_nhwc, with_arguments

_ORDERS = ("permute_dims", "take")  # chains of the others are views already
_MOVES = (*RESHAPING, *_ORDERS, "strided_slice")
_TYPES = ("int8", "uint8")  # that the NPU gathers


@relax.expr_functor.mutator
class ChainsToGathers(relax.PyExprMutator):  # type: ignore[misc]
    """One function at a time; what is left of a chain without readers is dead code."""

    def visit_call_(self, call: Any) -> Any:
        made = super().visit_call_(call)
        if name_of(call) not in _MOVES or str(call.ty.dtype) not in _TYPES:
            return made
        chain, sources = [call], [made.args[0]]
        while isinstance(sources[-1], relax.Var):
            before = self.lookup_binding(sources[-1])
            if name_of(before) not in _MOVES:
                break
            chain.append(before)
            sources.append(before.args[0])
        if len(chain) == 1 or not any(name_of(move) in _ORDERS for move in chain):
            return made
        try:
            for length in range(len(chain), 0, -1):
                source = sources[length - 1]
                channels = _channels(chain[length - 1 :: -1], shape_of(source.ty), shape_of(call.ty))
                if channels is not None:
                    return _take_channels(source, channels)
        except RejectedError:  # a shape that is not known
            pass
        return made


def _channels(moves: Sequence[Any], before: tuple[int, ...], after: tuple[int, ...]) -> NDArray[np.int32] | None:
    """The channel of [1, H, W, C] that each channel after `moves` is; None where they do something else, too."""
    if len(before) != 4 or len(after) != 4 or before[0] != 1 or before[:3] != after[:3]:
        return None
    numbers = np.arange(np.prod(before), dtype=np.int32).reshape(before)
    for move in moves:
        moved = _apply_move(move, numbers)
        if moved is None:
            return None
        numbers = moved
    pixels = numbers.reshape(-1, after[3])
    first = np.arange(len(pixels), dtype=np.int32)[:, None] * before[3]
    return pixels[0] if np.array_equal(pixels, first + pixels[0]) and pixels[0].max() < before[3] else None


def _apply_move(move: Any, values: NDArray[np.int32]) -> NDArray[np.int32] | None:
    """Apply `move` to `values`; None where its arguments are no constants."""
    name, attributes = name_of(move), move.attrs
    if name in RESHAPING:
        return values.reshape(shape_of(move.ty))
    if name == "permute_dims":
        axes = range(values.ndim)[::-1] if attributes.axes is None else attributes.axes
        return np.transpose(values, tuple(int(axis) for axis in axes))
    if name == "take":
        places = getattr(move.args[1], "value", None)
        if places is None or attributes.axis is None:
            return None
        return np.take(values, np.asarray(places.numpy(), np.int32), int(attributes.axis))
    written = [list(a.fields) for a in move.args[1:] if isinstance(a, relax.Tuple)]
    axes, begins, ends, *steps = ([int(number(v)) for v in fields] for fields in written)
    box = [slice(None)] * values.ndim
    for i, axis in enumerate(axes):
        box[axis] = slice(begins[i], ends[i], steps[0][i] if steps else 1)
    cut = values[tuple(box)]
    return cut if cut.shape == shape_of(move.ty) else None


def _take_channels(source: Any, channels: NDArray[np.int32]) -> Any:
    """`channels` of `source`, as a view where they are together."""
    first, depth = int(channels[0]), len(channels)
    if not np.array_equal(channels, np.arange(first, first + depth)):
        return relax.op.take(source, relax.const(channels), axis=3)
    if depth == shape_of(source.ty)[3]:
        return source
    return relax.op.strided_slice(source, [3], [first], [first + depth], [1], assume_inbound=True)


_MOVES_STORED_FORM = (
    "reshape",
    "flatten",
    "permute_dims",
    "squeeze",
    "expand_dims",
    "strided_slice",
    "nn.pad",
    "image.resize2d",
)
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
            return self._add_stored_bias(call)
        return call

    def _bound(self, expression: Any) -> Any:
        return self.lookup_binding(expression) if isinstance(expression, relax.Var) else expression

    # ------------------------------------------------------------------ moves

    def _quantized_move(self, call: Any) -> Any:
        """quantize(move(x)) is move(quantize(x)), and that of the same dequantisation is what was stored."""
        move = self._bound(call.args[0])
        if name_of(move) not in _MOVES_STORED_FORM or not _moves_values(move):
            return call
        stored = self._stored_variable(move.args[0], call)
        if stored is None:
            first = with_arguments(call, [move.args[0], *call.args[1:]])
            stored = self.builder_.emit(first, name_hint=f"{self.variable}_use")
        if name_of(move) == "nn.pad":
            return self._pad_stored(move, stored, call)
        return with_arguments(move, [stored, *move.args[1:]])

    def _stored_variable(self, real: Any, call: Any) -> Any:
        """The variable that `real` dequantises with the numbers with which `call` quantises; else None."""
        inner = self._bound(real)
        if name_of(inner) != "dequantize" or not isinstance(inner.args[0], relax.Var):
            return None
        pairs = zip(inner.args[1:], call.args[1:], strict=True)
        same = all(_scalar(a) is not None and _scalar(a) == _scalar(b) for a, b in pairs)
        return inner.args[0] if same and str(inner.args[0].ty.dtype) == str(call.ty.dtype) else None

    def _pad_stored(self, pad: Any, stored: Any, call: Any) -> Any:
        scale, zero = float(_scalar(call.args[1])), int(_scalar(call.args[2]))
        limits = np.iinfo(str(call.ty.dtype))
        value = int(np.clip(np.rint(float(pad.attrs.pad_value) / scale) + zero, limits.min, limits.max))
        return relax.op.nn.pad(stored, [int(w) for w in pad.attrs.pad_width], pad_mode="constant", pad_value=value)

    # ------------------------------------------------------------------ biases

    def _add_stored_bias(self, call: Any) -> Any:
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
            reshaped = with_arguments(reshape, [stored, *reshape.args[1:]])
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


@relax.expr_functor.mutator
class _Parts(relax.PyExprMutator):  # type: ignore[misc]
    """Splits become slices; one part alone is what it is a part of."""

    def visit_tuple_getitem_(self, item: Any) -> Any:
        source = item.tuple_value
        found = self.lookup_binding(source) if isinstance(source, relax.Var) else source
        if name_of(found) == "split":
            axis = int(found.attrs.axis) % len(found.args[0].ty.shape)
            widths = [shape_of(field)[axis] for field in found.ty.fields]
            begin = sum(widths[: item.index])
            return relax.op.strided_slice(
                found.args[0], [axis], [begin], [begin + widths[item.index]], [1], assume_inbound=True
            )
        return super().visit_tuple_getitem_(item)

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if name_of(call) == "split" and int(getattr(call.attrs.indices_or_sections, "value", 0)) == 1:
            return relax.op.reshape(call.args[0], call.args[0].ty.shape)  # there is no tuple of it
        joined: Any = call.args[0] if name_of(call) == "concat" else None
        joined = joined.fields if isinstance(joined, relax.Tuple) else ()
        return relax.op.reshape(joined[0], joined[0].ty.shape) if len(joined) == 1 else call


@relax.expr_functor.mutator
class _OneDequantiseForEachUse(relax.PyExprMutator):  # type: ignore[misc]
    """Frontends that share a dequantisation between consumers would keep each pattern from owning its own."""

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        return with_arguments(call, [self._own(a) for a in call.args])

    def visit_tuple_(self, fields: Any) -> Any:
        return relax.Tuple([self._own(f) for f in super().visit_tuple_(fields).fields])

    def _own(self, argument: Any) -> Any:
        bound: Any = self.lookup_binding(argument) if isinstance(argument, relax.Var) else None
        if name_of(bound) == "dequantize":
            # a name that no variable of the module has: reasons for rejections are kept by name
            again = ir.Call(bound.op, bound.args, bound.attrs, bound.ty_args, ret_ty=bound.ty)
            return self.builder_.emit(again, name_hint=f"{argument.name}_use")
        return argument


def normalise(mod: Any) -> Any:
    """`mod` in the form that the patterns expect."""
    mod = _mutate(_mutate(mod, _Parts), StoredForm)
    if has_nchw(mod):
        mod = to_nhwc(mod)
    mod = _mutate(mod, ChainsToGathers)
    mod = _mutate(mod, _OneDequantiseForEachUse)
    return relax.transform.DeadCodeElimination()(relax.transform.CanonicalizeBindings()(mod))


def _mutate(mod: Any, pass_: Any) -> Any:
    mutator = pass_(mod)
    for variable, function in mod.functions.items():
        if isinstance(function, relax.Function):
            mutator.builder_.update_func(variable, mutator.visit_expr(function))
    return mutator.builder_.get()
