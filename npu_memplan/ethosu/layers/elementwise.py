"""Operations of two tensors, element by element: sums, products, comparisons, choices, squared differences.

Invariant: what is compared are the numbers that the reference compares: stored values where their order is the same,
else 32-bit numbers from a table of each operand. Stored values are moved as they are; any flag whose byte is not 0 is
true. Every intermediate is a number that TFLite's reference computes too; none of them saturates unless the result
does. Shapes have four dimensions; of two maps that meet, one has the size of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ...fixed_point import multiply_by_quantised
from ..lower.emit import EmitContext, LoweringError
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.operands import INT8, INT16, INT32, Arithmetic, LayerTensor, Operand, Output, TensorView, Window
from ..lower.scaling import UNITY, AddScales, Scale, add_scales, float32_value, mul_scale, quantise_multiplier
from ..reading import patterns as p
from ..reading.reader import Composite, Described, DescribedCall, LayerPart, Match, Reader, Record, RejectedError, plain
from ..stream.isa import ElementwiseMode, PoolMode


@dataclass(frozen=True, slots=True, eq=False)
class Abs(Layer):
    clamp: tuple[int, int]

    limits: ClassVar[Limits] = Limits()
    traits: ClassVar[StorageTraits] = StorageTraits()

    def emit(self, context: EmitContext) -> None:
        output = context.rescale_output(self.inputs[0], self.output, self.clamp)
        ifm, ofm = context.operand(self.inputs[0]), context.operand(self.output)
        context.builder.elementwise(ElementwiseMode.ABS, ifm, None, ofm, output)


@dataclass(frozen=True, slots=True, eq=False)
class OfTwo(Layer):
    """Base of the layers of two operands; the second one may be smaller (broadcast) or a constant, or the first."""

    clamp: tuple[int, int]

    limits: ClassVar[Limits] = Limits()

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        """One operand is in full size and in memory."""
        a, b = inputs
        if all(t.hwc != output.hwc for t in inputs):
            return f"both operands, {list(a.shape)} and {list(b.shape)}, would have to be broadcast"
        if a.data is not None and b.data is not None:
            return "both operands are constants"
        for tensor in inputs:
            if any(mine not in (1, whole) for mine, whole in zip(tensor.hwc, output.hwc, strict=True)):
                return f"its operand {list(tensor.shape)} cannot be broadcast to {list(output.shape)} by the NPU"
            if len(output.shape) == 4 and output.shape[0] != 1 and tensor.hwc != output.hwc:
                return "it broadcasts over a batch that is not 1"
        constant_first = a.data is not None or a.hwc != output.hwc
        if constant_first and b.hwc != output.hwc:
            return "its constant operand is larger than its other operand"
        return None

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        """Either layout, where nothing is broadcast."""
        names = (*self.inputs, self.output)
        same = len({tensors[name].shape for name in names}) == 1
        return StorageTraits(bricks=names if same else ())

    def _operands(self, context: EmitContext) -> tuple[LayerTensor, LayerTensor, Operand, Operand, Operand, bool]:
        """Both tensors and operands with the one in full size first, the result, and whether they changed places."""
        a, b, out = (context.tensors[name] for name in (*self.inputs, self.output))
        swap = a.data is not None or a.hwc != out.hwc  # of unlike ranks too: the NPU broadcasts its second operand only
        if swap:
            a, b = b, a
        ifm, ofm = context.operand(a.name), context.operand(out.name)
        return a, b, ifm, context.second_operand(b.name, ofm), ofm, swap


@dataclass(frozen=True, slots=True, eq=False)
class Binary(OfTwo):
    """Sum, difference, product, minimum or maximum."""

    mode: ElementwiseMode
    stated: AddScales | None = None  # of a product `ofm` alone; None: the tensors' scales say it

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        same = {(t.scale, t.zero_point) for t in (*inputs, output)}
        if (unfit := OfTwo.unsupported_reason(self, inputs, output)) is not None:
            return unfit
        if self.mode in (ElementwiseMode.MIN, ElementwiseMode.MAX) and len(same) > 1:
            return "minimum and maximum need equal scales and zero points"
        return None

    def emit(self, context: EmitContext) -> None:
        a, b, ifm, ifm2, ofm, swap = self._operands(context)
        out, elementwise = context.tensors[self.output], partial(context.builder.elementwise, self.mode, swap=swap)
        if self.mode in (ElementwiseMode.ADD, ElementwiseMode.SUB):
            scales = self.stated or add_scales(a.scale, b.scale, out.scale, ofm.bits)
            after_swap = swap and self.stated is None  # the operands that `scaled` counts
            elementwise(
                ifm,
                ifm2,
                ofm,
                context.output(self.clamp, scales.ofm),
                operand_scales=(scales.operand.register, 0),
                scaled_operand=3 - scales.scaled if after_swap else scales.scaled,
            )
        elif self.mode is ElementwiseMode.MUL:
            scale = (
                self.stated.ofm
                if self.stated
                else mul_scale(a.scale, b.scale, out.scale, ofm.bits, single=out.dtype == "uint8" and not context.real)
            )
            elementwise(ifm, ifm2, ofm, context.output(self.clamp, scale))
        else:
            elementwise(ifm, ifm2, ofm, Output(self.clamp, UNITY))


def _parse_absolute(reader: Reader, root: Any) -> Match:
    _, out, clamp, inputs = reader.of_real(root, "abs")
    return Match.for_layer(Abs("abs", ("0",), "out", clamp), out, *inputs)


def _parse(name: str, mode: ElementwiseMode, reader: Reader, root: Any) -> Match:
    _, out, clamp, inputs = reader.of_real(root, name, 2)
    return Match.for_layer(Binary(name, ("0", "1"), "out", clamp, mode), out, *inputs)


def _binary_composite(name: str, mode: ElementwiseMode) -> Composite:
    return Composite(name, partial(p.of_real, name, 2), partial(_parse, name, mode))


ELEMENTWISE_RECORD = Record(
    (Abs, Binary),
    (
        Composite("abs", partial(p.unary_patterns, "abs"), _parse_absolute),
        _binary_composite("maximum", ElementwiseMode.MAX),
        _binary_composite("minimum", ElementwiseMode.MIN),
        _binary_composite("multiply", ElementwiseMode.MUL),
        _binary_composite("subtract", ElementwiseMode.SUB),
        _binary_composite("add", ElementwiseMode.ADD),
    ),
)


_FRACTION_BITS = 7  # of the operands of TFLite's squared difference
_UNSCALED = (1, 1)  # operand scales of a difference of equal units


@dataclass(frozen=True, slots=True, eq=False)
class SquaredDifference(OfTwo):
    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        if (unfit := OfTwo.unsupported_reason(self, inputs, output)) is not None:
            return unfit
        return "its tensors are uint8; squares of differences need int8 or int16" if output.dtype == "uint8" else None

    def emit(self, context: EmitContext) -> None:
        """Both operands in units of twice the larger scale, or 1/128 of that, subtracted, multiplied by itself."""
        first, second, ifm, ifm2, ofm, _ = self._operands(context)
        result, builder = context.tensors[self.output], context.builder
        twice = 2 * max(float32_value(first.scale), float32_value(second.scale))
        a = self._with_fraction(context, "a", ifm, first, quantise_multiplier(float32_value(first.scale) / twice))
        b = self._with_fraction(context, "b", ifm2, second, quantise_multiplier(float32_value(second.scale) / twice))
        wide = result.dtype == "int16"
        limits, dtype, fraction = (INT32, "int32", 0) if wide else (INT16, "int16", _FRACTION_BITS)
        difference = builder.temporary(f"{self.output}_difference", ofm.view.shape, dtype)
        builder.elementwise(ElementwiseMode.SUB, a, b, difference, Output(limits, UNITY), operand_scales=_UNSCALED)
        square = quantise_multiplier(twice * twice / ((1 << 2 * fraction) * float32_value(result.scale)))
        output = Output(self.clamp, square)
        if wide:  # a product of int32 has no scale but a shift
            product = builder.temporary(f"{self.output}_product", ofm.view.shape, dtype)
            builder.elementwise(ElementwiseMode.MUL, difference, difference, product, Output(INT32, UNITY))
            nothing = builder.scalar(0, dtype)
            builder.elementwise(ElementwiseMode.ADD, product, nothing, ofm, output, operand_scales=_UNSCALED)
        else:
            builder.elementwise(ElementwiseMode.MUL, difference, difference, ofm, output)

    def _with_fraction(
        self, context: EmitContext, label: str, operand: Operand, tensor: LayerTensor, scale: Scale
    ) -> Operand:
        """`operand * scale` in int16, of int8 with 7 bits of fraction."""
        builder, bits = context.builder, 0 if tensor.dtype == "int16" else _FRACTION_BITS
        if tensor.data is not None:
            values = tensor.data.astype(np.int64) - tensor.zero_point
            scaled = multiply_by_quantised(values << bits, scale.multiplier, scale.exponent)
            view = builder.constant_view(scaled.astype(np.int16).reshape(operand.view.shape))
            return replace(operand, view=view, dtype="int16", zero_point=0, scalar=None)
        result = builder.temporary(f"{self.output}_{label}", operand.view.shape, "int16")
        if not bits:
            builder.pool(PoolMode.AVERAGE, operand, result, Window(), Output(INT16, scale))
        else:
            factor = builder.scalar(127, "int8", -1)  # 128
            builder.elementwise(ElementwiseMode.MUL, operand, factor, result, Output(INT16, scale))
        return result


def _squared_difference_patterns() -> Iterator[p.Pattern]:
    difference = p.op("subtract", p.dequantize(p.anything()), p.dequantize(p.anything()))
    yield from p.result_patterns(p.op("multiply", difference, difference))


def _parse_squared_difference(reader: Reader, root: Any) -> Match:
    if reader.arithmetic is Arithmetic.REAL:
        raise RejectedError("the NPU's operands have too few bits for a squared difference that is rounded once")
    out, real, clamp = reader.read_quantised(root)
    call = reader.need(reader.need(real, "multiply").args[0], "subtract")
    inputs = (reader.activation(call.args[i], str(i)) for i in range(2))
    return Match.for_layer(SquaredDifference("squared_difference", ("0", "1"), "out", clamp), out, *inputs)


SQUARED_DIFFERENCE_RECORD = Record(
    (SquaredDifference,), (Composite("squared_difference", _squared_difference_patterns, _parse_squared_difference),)
)


_MOST_IMAGES = 64
Shape = tuple[int, ...]


def four_dimensions(shape: Shape) -> Shape:
    """`shape` in four dimensions."""
    return (1,) * (4 - len(shape)) + shape


def broadcast_shape(first: Shape, second: Shape) -> Shape:
    """The shape of both; none where neither has it."""
    made = tuple(max(pair) for pair in zip(first, second, strict=True))
    fit = all(n in (1, m) for shape in (first, second) for n, m in zip(shape, made, strict=True))
    return made if fit and made in (first, second) else ()


def broadcast_problem(shapes: Sequence[Shape], joins: Sequence[tuple[Shape, Shape]]) -> str | None:
    """Why maps of `shapes`, of which the last is the result, cannot meet in these pairs, of which the last has it."""
    whole = shapes[-1]
    if not folds_images(shapes) and whole[0] > _MOST_IMAGES:
        return f"it broadcasts parts of {whole[0]} images; at most {_MOST_IMAGES} pay on the NPU"
    if not all(a and b and broadcast_shape(a, b) for a, b in joins) or broadcast_shape(*joins[-1]) != whole:
        stated = ", ".join(str(list(shape)) for shape in shapes[:-1])
        return f"its operands, {stated}, would have to be broadcast to {list(whole)} two at a time"
    return None


def folds_images(shapes: Sequence[Shape]) -> bool:
    """Whether rows of all images are rows of one: nothing is broadcast along only one of the two."""
    images, height = shapes[-1][:2]
    return images == 1 or all(shape[:2] in ((images, height), (1, 1)) for shape in shapes)


def image_views(context: EmitContext, names: Sequence[str], shapes: Sequence[Shape]) -> Iterator[list[TensorView]]:
    """The tensors as [H, W, C], the result last: all images as one, or of each what it needs."""
    views = [_dense_view(context.view(name), shape) for name, shape in zip(names, shapes, strict=True)]
    if folds_images(shapes):
        yield [_dense_view(view, (n * h, w, c)) for view, (n, h, w, c) in zip(views, shapes, strict=True)]
        return
    for image in range(shapes[-1][0]):
        yield [_image(view, image) for view in views]


def combine_maps(context: EmitContext, mode: ElementwiseMode, first: Operand, second: Operand, made: Operand) -> None:
    """One operation without scales."""
    info, swap = np.iinfo(made.dtype), first.view.shape != made.view.shape
    ifm, ifm2 = (second, first) if swap else (first, second)
    context.builder.elementwise(mode, ifm, ifm2, made, Output((int(info.min), int(info.max)), UNITY), swap=swap)


def combine_to_new(
    context: EmitContext, mode: ElementwiseMode, first: Operand, second: Operand, name: str, dtype: str
) -> Operand:
    """The same into a map of its own."""
    made = context.builder.temporary(name, broadcast_shape(first.view.shape, second.view.shape), dtype)
    combine_maps(context, mode, first, second, made)
    return made


def _dense_view(view: TensorView, shape: Shape) -> TensorView:
    found = view.reshape(shape)
    if found is None:
        raise LoweringError(f"the bytes of {view} are not dense: they cannot be read as {shape}")
    return found


def _image(view: TensorView, image: int) -> TensorView:
    """One of the images, or the one that is of all."""
    first = image * view.strides[0] if view.shape[0] > 1 else 0
    return replace(view, offset=view.offset + first, shape=view.shape[1:], strides=view.strides[1:])


_LEFT_SHIFT = 8  # of TFLite's operands
Numbers = tuple[int, ...]  # of each value of 8 bits, from the least on


@dataclass(frozen=True, slots=True, eq=False)
class ComparedMaps(Layer):
    """Whether the first is equal to, not equal to, at least or more than the second (CMP_EQ to CMP_GT)."""

    mode: ElementwiseMode
    numbers: tuple[Numbers, Numbers] | None  # that are compared of each operand; None: stored values

    limits: ClassVar[Limits] = Limits(results=frozenset(("bool",)))
    traits: ClassVar[StorageTraits] = StorageTraits(dense=True)  # its tensors are seen as images, or all of them as one
    only_u85: ClassVar[str] = "it compares values, which only Ethos-U85 does"

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        if inputs[0].dtype == "int16":
            return "its tensors are int16; values of 8 bits are compared"
        first, second, whole = (four_dimensions(tensor.shape) for tensor in (*inputs, output))
        return broadcast_problem((first, second, whole), ((first, second),))

    def emit(self, context: EmitContext) -> None:
        """Append the comparison and a mask: a true result has all bits set, of which the lowest stays."""
        names = (*self.inputs, self.output)
        tensors = [context.tensors[name] for name in names]
        for *views, made in image_views(context, names, [four_dimensions(tensor.shape) for tensor in tensors]):
            operands = [Operand(view, tensor.dtype) for view, tensor in zip(views, tensors, strict=False)]
            if self.numbers is not None:
                pairs = zip(operands, self.numbers, strict=True)
                operands = [_looked_up(context, operand, numbers, self.output) for operand, numbers in pairs]
            mask = combine_to_new(context, self.mode, operands[0], operands[1], f"{self.output}_mask", "int8")
            combine_maps(context, ElementwiseMode.AND, mask, context.builder.scalar(1, "int8"), Operand(made, "int8"))


def _looked_up(context: EmitContext, operand: Operand, numbers: Numbers, name: str) -> Operand:
    """The numbers of an operand's values, as int32."""
    made = context.builder.temporary(f"{name}_numbers", operand.view.shape, "int32")
    index = replace(made, zero_point=INT8[0] - int(np.iinfo(operand.dtype).min))  # tables are indexed by signed values
    output = Output(INT8, UNITY, table=np.array(numbers, np.int64))
    context.builder.pool(PoolMode.AVERAGE, operand, index, Window(), output)
    return made


def comparison_tables(numbers: tuple[Numbers, Numbers]) -> tuple[Numbers, Numbers] | None:
    """None where stored values are in the order of these numbers, and as different."""
    return None if numbers[0] == numbers[1] and (np.diff(numbers[0]) > 0).all() else numbers


# ---------------------------------------------------------------------- in Relax

_MODES = {  # the mode, and whether the operands change places
    "equal": (ElementwiseMode.CMP_EQ, False),
    "not_equal": (ElementwiseMode.CMP_NE, False),
    "greater": (ElementwiseMode.CMP_GT, False),
    "greater_equal": (ElementwiseMode.CMP_GE, False),
    "less": (ElementwiseMode.CMP_GT, True),
    "less_equal": (ElementwiseMode.CMP_GE, True),
}


def _comparison_patterns(name: str) -> Iterator[p.Pattern]:
    yield p.op(name, p.dequantize(p.anything()), p.dequantize(p.anything()))


def _parse_comparison(name: str, reader: Reader, root: Any) -> Match:
    call = reader.need(root, name)
    inputs = [reader.activation(operand, str(place)) for place, operand in enumerate(comparison_order(name, call.args))]
    layer = comparison(name, inputs[0][0], inputs[1][0], reader.arithmetic)
    return Match.for_layer(layer, plain(call, "out"), *inputs)


def comparison_order(name: str, operands: Sequence[Any]) -> Sequence[Any]:
    """The operands in the order in which the NPU compares them."""
    return operands[::-1] if _MODES[name][1] else operands


def comparison(
    name: str, first: LayerTensor, second: LayerTensor, arithmetic: Arithmetic = Arithmetic.TFLITE
) -> ComparedMaps:
    """The layer of a comparison, whose operands are in the order of the NPU."""
    same = (first.scale, first.zero_point, first.dtype) == (second.scale, second.zero_point, second.dtype)
    if arithmetic is Arithmetic.REAL:
        if not same:
            raise RejectedError("it compares real numbers of two scales or zero points")
        numbers = None
    else:
        numbers = comparison_tables((_numbers(first), _numbers(second)))
    return ComparedMaps(name, ("0", "1"), "out", _MODES[name][0], numbers)


def _numbers(tensor: LayerTensor) -> Numbers:
    """The numbers that TFLite's reference compares: in fixed point, with eight bits more than whole numbers."""
    if not 0 < tensor.scale < 1:
        raise RejectedError(f"its tensor has scale {tensor.scale}; the reference takes those below 1")
    if tensor.dtype == "int16":
        raise RejectedError("its tensors are int16; values of 8 bits are compared")
    least, most = tensor.limits
    values, scale = np.arange(least, most + 1, dtype=np.int64) - tensor.zero_point, quantise_multiplier(tensor.scale)
    made = multiply_by_quantised(values << _LEFT_SHIFT, scale.multiplier, scale.exponent)
    return tuple(int(v) for v in made)


COMPARISON_RECORD = Record(
    (ComparedMaps,),
    tuple(Composite(name, partial(_comparison_patterns, name), partial(_parse_comparison, name)) for name in _MODES),
)


@dataclass(frozen=True, slots=True, eq=False)
class Select(Layer):
    """An element of the second input where the first is true, else one of the third; any may be broadcast."""

    by_row: bool = False  # the flags are one for each index of the first dimension

    limits: ClassVar[Limits] = Limits(chooser=(0, frozenset(("bool",))))
    traits: ClassVar[StorageTraits] = StorageTraits(dense=True)  # its tensors are seen as images, or all of them as one
    only_u85: ClassVar[str] = "it masks bits, which only Ethos-U85 does"

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        flags, yes, no, whole = self._broadcast_shapes((*inputs, output))
        return broadcast_problem(
            (flags, yes, no, whole),
            ((flags, yes), (flags, no), (broadcast_shape(flags, yes), broadcast_shape(flags, no))),
        )

    def emit(self, context: EmitContext) -> None:
        """Append the operations: a mask of the flags, each input under the mask, and both joined."""
        names = (*self.inputs, self.output)
        tensors = tuple(context.tensors[name] for name in names)
        dtype = "int16" if tensors[-1].element_bytes == 2 else "int8"
        for flags, yes, no, made in image_views(context, names, self._broadcast_shapes(tensors)):
            zero, label = context.builder.scalar(0, "int8"), f"{self.output}_"
            mask = combine_to_new(context, ElementwiseMode.CMP_NE, Operand(flags, "int8"), zero, f"{label}mask", dtype)
            chosen = combine_to_new(context, ElementwiseMode.AND, Operand(yes, dtype), mask, f"{label}chosen", dtype)
            other = combine_to_new(context, ElementwiseMode.AND_NOT, Operand(no, dtype), mask, f"{label}other", dtype)
            combine_maps(context, ElementwiseMode.OR, chosen, other, Operand(made, dtype))

    def _broadcast_shapes(self, tensors: tuple[LayerTensor, ...]) -> list[Shape]:
        """The shapes with flags of rows in the first dimension."""
        shapes = [tensor.shape for tensor in tensors]
        if self.by_row:
            shapes[0] = (*shapes[0], *(1,) * (len(shapes[-1]) - 1))
        return [four_dimensions(shape) for shape in shapes]


def _parse_select(call: DescribedCall) -> LayerPart:
    names = ("condition", "first", "second" if call.has("second") else "first")  # a tensor twice is one parameter
    inputs = (call.operand(name) for name in names)
    layer = Select("select", ("0", "1", "2"), "out", bool(call.layer["by_row"]))
    return LayerPart.for_layer(layer, call.output(), *inputs)


SELECT_RECORD = Record((Select,), (Described("select", _parse_select),))
