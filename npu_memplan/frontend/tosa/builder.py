"""Layers from TOSA's operators: shapes with more dimensions than layers have, operands, and scales of RESCALE.

Invariant: a tensor in another shape here has the same elements in the same order. A tensor that operators read with
several zero points is one view for each; what is built passed every limit of the NPU. Nothing is assumed: what is no
constant, or has a form that no layer takes, is a `RejectedError`. A scale is returned only where its results are
TOSA's: by the same formula, or because all pairs of 8-bit operands were tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ethosu.arch import Architecture
from ...ethosu.layers.activation import Lookup
from ...ethosu.layers.elementwise import OfTwo
from ...ethosu.layers.movement import Concat, Reshape, Slice
from ...ethosu.lower.layer import Layer, problem
from ...ethosu.lower.operands import LayerTensor, Padding
from ...ethosu.lower.scaling import AddScales, Scale
from ...ethosu.reading.reader import RejectedError
from ...models.tosa import TosaGraph, TosaOperator
from ...names import Names

Shape = tuple[int, ...]
MOST = 4  # dimensions of a layer's tensor


def stored_shape(shape: Shape) -> Shape:
    """The shape in one to four dimensions: the first ones are one, where there are more."""
    return shape or (1,) if len(shape) <= MOST else (prod(shape[: 1 - MOST]), *shape[1 - MOST :])


def image_shape(shape: Shape) -> Shape:
    """The shape of one image: all but the last two dimensions are its rows."""
    return (1, prod(shape[:-2]), *(1,) * (2 - len(shape)), *shape[-2:])


def group_axes(shape: Shape, axes: Sequence[int]) -> Shape:
    """The shape in three dimensions: those before `axes`, which are neighbours, these, and those after."""
    first, after = min(axes), max(axes) + 1
    return prod(shape[:first]), prod(shape[first:after]), prod(shape[after:])


def join_axes(shape: Shape, axes: Shape) -> tuple[Shape, Shape]:
    """The same permutation without extents of 1, where dimensions that stay neighbours are one."""
    long = [axis for axis in axes if shape[axis] > 1]
    rank = {axis: place for place, axis in enumerate(sorted(long))}  # among those that are not 1 long
    begins = [i for i, axis in enumerate(long) if i == 0 or rank[axis] != rank[long[i - 1]] + 1]
    runs = [long[a:b] for a, b in pairwise((*begins, len(long)))]
    ordered = sorted(runs)
    return tuple(prod(shape[axis] for axis in run) for run in ordered), tuple(ordered.index(run) for run in runs)


def neighbour_swaps(shape: Shape, axes: Shape) -> list[tuple[Shape, Shape]]:
    """The permutation as one after the other, each of two neighbours inside at most four dimensions."""
    order, found = list(range(len(axes))), []
    for place, axis in enumerate(axes):
        at = order.index(axis)
        if at == place:
            continue
        front, inner = prod(shape[a] for a in order[:place]), prod(shape[a] for a in order[at + 1 :])
        sizes = (front, prod(shape[a] for a in order[place:at]), shape[axis], inner)
        found.append(join_axes(sizes, (0, 2, 1, 3)))
        order.insert(place, order.pop(at))
    return found


STORED = frozenset(("int8", "int16"))  # types that a tensor between layers may have
EVERY_BYTE: NDArray[np.int64] = np.arange(-128, 128, dtype=np.int64)  # that an int8 tensor may have

Clamp = tuple[int, int]


@dataclass(slots=True, eq=False)
class GraphBuilder:
    """Builds a layer graph from a TOSA graph; tensors moved into each other share a zero point."""

    graph: TosaGraph
    target: Architecture
    made_by: Mapping[int, TosaOperator]  # tensor -> the operator that makes it
    zero_points: Mapping[int, int]
    tensors: dict[str, LayerTensor] = field(default_factory=dict)
    layers: list[Layer] = field(default_factory=list)
    operator_of: dict[str, int] = field(default_factory=dict)  # a layer's output -> operator of the file
    _names: Names = field(default_factory=Names)
    _known: dict[tuple[int, int], str] = field(default_factory=dict)  # tensor and zero point -> name

    def read(self, index: int, zero: int | None = None) -> str:
        """The name of a tensor as a reader sees it: with the zero point `zero`, or with that which it has."""
        own = self.zero_points.get(index, 0)
        zero = own if zero is None else zero
        if (index, zero) in self._known:
            return self._known[index, zero]
        constant = self.graph.constants.get(index)
        if constant is not None:
            return self.declare(index, zero, constant)
        if zero != own:
            source = self.read(index)
            name = self.declare(index, zero)
            self.layers.append(Reshape(f"reshape:{name}", (source,), name))
            return name
        if index not in self.graph.network.inputs:
            raise RejectedError(f"it reads {self.graph.tensor(index).name!r}, of which no layer makes 8 bits")
        return self.declare(index, zero)

    def move_source(self, index: int) -> str:
        """The name of a tensor that is moved as it is stored; `RejectedError` for a constant."""
        if index in self.graph.constants:
            raise RejectedError(f"it moves the constant {self.graph.tensor(index).name!r}")
        return self.read(index)

    def declare(self, index: int, zero: int, data: Any = None) -> str:
        """A name for a tensor with this zero point, from now on."""
        tensor = self.graph.tensor(index)
        name = self._names.unique_name(tensor.name or f"tensor{index}")
        data = data if data is None else data.reshape(stored_shape(tensor.shape))
        self.tensors[name] = LayerTensor(name, stored_shape(tensor.shape), tensor.dtype, 1.0, zero, data)
        self._known[index, zero] = name
        return name

    def add(self, operator: TosaOperator, layer: Layer, zero: int | None = None) -> None:
        """Append `layer`, which makes the output of `operator`, with the zero point `zero` if it states one."""
        index = operator.outputs[0]
        own = self.zero_points.get(index, 0)
        name = self.declare(index, own if zero is None else zero)
        self._append_layer(operator, replace(layer, name=f"{layer.name}:{name}", output=name))
        if zero is not None and zero != own:
            view = self.declare(index, own)
            self.layers.append(Reshape(f"reshape:{view}", (name,), view))

    def _append_layer(self, operator: TosaOperator, layer: Layer) -> None:
        inputs = tuple(self.tensors[i] for i in layer.inputs)
        reason = problem(layer, inputs, self.tensors[layer.output]) or layer.unsupported_by(self.target, inputs)
        if reason and (isinstance(layer, OfTwo) or layer.limits.one_image) and self._has_images(layer):
            self._append_images(operator, layer)
            return
        if reason:
            raise RejectedError(reason)
        self.layers.append(layer)
        self.operator_of[layer.output] = operator.index

    def _has_images(self, layer: Layer) -> bool:
        """Whether the output of a layer is several images, of each of which every input has one, or one for all."""
        shapes = [self.tensors[name].shape for name in (layer.output, *layer.inputs)]
        count = shapes[0][0]
        return count > 1 and all(len(shape) == MOST and shape[0] in (1, count) for shape in shapes)

    def _append_images(self, operator: TosaOperator, layer: Layer) -> None:
        """The layer once for each image, and the results one after the other."""
        made = self.tensors[layer.output]
        images = [self._image(made, index, None) for index in range(made.shape[0])]
        for index, image in enumerate(images):
            names = []
            for name in layer.inputs:
                whole = self.tensors[name]
                if whole.shape[0] == 1:
                    names.append(name)
                    continue
                part = self._image(whole, index, whole.data)
                names.append(part)
                if whole.data is None:
                    self.layers.append(Slice(f"slice:{part}", (name,), part, (index, 0, 0, 0), (1,) * MOST))
            self._append_layer(
                operator, replace(layer, name=f"{layer.name}:{image}", inputs=tuple(names), output=image)
            )
        self._append_layer(operator, Concat(f"concat:{made.name}", tuple(images), made.name, -MOST))

    def _image(self, whole: LayerTensor, index: int, data: NDArray[Any] | None) -> str:
        name = self._names.unique_name(f"{whole.name}_{index}")
        values = None if data is None else data[index : index + 1]
        self.tensors[name] = replace(whole, name=name, shape=(1, *whole.shape[1:]), data=values)
        return name

    def looked_up(self, operator: TosaOperator, index: int, zero: int, table: NDArray[np.int64]) -> str:
        """The name of an int8 tensor whose values are looked up for `operator`, with the zero point `zero`."""
        if np.array_equal(table, EVERY_BYTE):
            return self.read(index, zero)
        name = self.tensor_like(index, zero)
        self._append_layer(operator, Lookup(f"table:{name}", (self.read(index),), name, tuple(int(v) for v in table)))
        return name

    def tensor_like(
        self, index: int, zero: int, values: NDArray[np.int64] | None = None, shape: tuple[int, ...] = ()
    ) -> str:
        """The name of a tensor of its own of the type of tensor `index`, in its shape or another, with these values."""
        tensor = self.graph.tensor(index)
        shape, dtype = shape or stored_shape(tensor.shape), tensor.dtype if tensor.dtype in STORED else "int8"
        name = self._names.unique_name(f"{tensor.name or f'tensor{index}'}_{dtype}")
        data = None if values is None else values.astype(dtype).reshape(shape)
        self.tensors[name] = LayerTensor(name, shape, dtype, 1.0, zero, data)
        return name

    def reshape(self, name: str, shape: tuple[int, ...]) -> str:
        """The name of the same values in another shape."""
        tensor = self.tensors[name]
        if tensor.shape == shape:
            return name
        view = self._names.unique_name(f"{name}_reshaped")
        self.tensors[view] = replace(tensor, name=view, shape=shape, data=None)
        self.layers.append(Reshape(f"reshape:{view}", (name,), view))
        return view

    def add_reshaped(
        self, operator: TosaOperator, layer: Layer, shape: tuple[int, ...], zero: int | None = None
    ) -> None:
        """Append `layer`, which makes the output of `operator` in another shape, with the zero point it states."""
        if shape == stored_shape(self.shape(operator.outputs[0])):
            self.add(operator, layer, zero)
        else:
            own = self.zero_points.get(operator.outputs[0], 0) if zero is None else zero
            self.add(operator, Reshape("reshape", (self.append_between(operator, layer, own, shape),), ""), zero)

    def append_between(self, operator: TosaOperator, layer: Layer, zero: int, shape: tuple[int, ...]) -> str:
        """Append `layer`, whose output has the type of that of `operator` and another shape; the name of that."""
        name = self.tensor_like(operator.outputs[0], zero, None, shape)
        self._append_layer(operator, replace(layer, name=f"{layer.name}:{name}", output=name))
        return name

    def beside(self, operator: TosaOperator, layer: Layer, name: str, shape: tuple[int, ...]) -> str:
        """Append `layer`, whose output is as the tensor `name` but for its shape; the name of that."""
        made = self._names.unique_name(f"{name}_moved")
        self.tensors[made] = replace(self.tensors[name], name=made, shape=shape, data=None)
        self._append_layer(operator, replace(layer, name=f"{layer.name}:{made}", output=made))
        return made

    def shape(self, index: int) -> tuple[int, ...]:
        return self.graph.tensor(index).shape

    def dtype(self, index: int) -> str:
        return self.graph.tensor(index).dtype

    def limits(self, index: int) -> tuple[int, int]:
        """The least and the largest value of a tensor's type."""
        if self.dtype(index) == "bool":
            return 0, 1
        info = np.iinfo(self.dtype(index))
        return int(info.min), int(info.max)

    def producer(self, index: int, *kinds: str) -> TosaOperator:
        """The operator that makes a tensor; `RejectedError` where it is of none of these kinds."""
        made = self.made_by.get(index)
        if made is None or made.kind not in kinds:
            what = "no operator makes" if made is None else f"{made.kind} makes"
            raise RejectedError(f"{what} its operand {self.graph.tensor(index).name!r}; {' or '.join(kinds)} may")
        return made

    def constant(self, index: int) -> Any:
        """The values of a constant; `RejectedError` of what is none."""
        values = self.graph.constants.get(index)
        if values is None:
            raise RejectedError(f"its operand {self.graph.tensor(index).name!r} is no constant")
        return values

    def scalar_value(self, index: int) -> int:
        """The value of a constant of one element."""
        values = self.constant(index).reshape(-1)
        if len(values) != 1:
            raise RejectedError(f"its operand {self.graph.tensor(index).name!r} has {len(values)} elements, not one")
        return int(values[0])


Emitter = Callable[[GraphBuilder, TosaOperator, Clamp], None]
"""Adds the layer that makes the output of an operator, of which a CLAMP may limit the results."""


_INT32 = (-(1 << 31), (1 << 31) - 1)

_OPERAND_BITS, _HEADROOM = 19, 20  # the NPU shifts an 8-bit operand that it does not multiply; what its multiplier has
_WORD_BITS = 14  # the same of 16 bits
_VALUES = np.arange(256, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Rescaling:
    """The numbers of a RESCALE: `(x - input_zero) * scale + output_zero`, rounded once or twice."""

    scales: tuple[Scale, ...]  # one, or one for each channel
    input_zero: int
    output_zero: int
    twice: bool

    @property
    def scale(self) -> Scale:
        """The only scale; `RejectedError` where there are several."""
        if len(self.scales) != 1:
            raise RejectedError("a scale for each channel is of a sum with weights only")
        return self.scales[0]

    def __call__(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """`values` rescaled, not yet narrowed."""
        moved, (multiplier, shift) = values - self.input_zero, (self.scale.multiplier, self.scale.shift)
        half = np.full_like(moved, 1 << (shift - 1))
        if self.twice and shift > 31:
            half += np.where(moved < 0, -(1 << 30), 1 << 30)
        result: NDArray[np.int64] = ((moved * multiplier + half) >> shift) + self.output_zero
        return result

    @property
    def left_shift(self) -> int | None:
        """The bits by which it shifts to the left and does nothing else; None where it does anything else."""
        multiplier, shift = self.scale.multiplier, self.scale.shift
        bits = multiplier.bit_length() - 1
        return bits - shift if multiplier == 1 << bits and bits >= shift and self.output_zero == 0 else None


@dataclass(frozen=True, slots=True)
class TosaSum:
    """ADD or SUB of two rescaled 8-bit operands, rescaled, with the types' least and largest values."""

    first: Rescaling
    second: Rescaling
    output: Rescaling
    subtract: bool
    limits: tuple[int, int]

    def npu_scales(self) -> AddScales | None:
        """Scales with which one operation of the NPU makes the same of all pairs of operands; None: there are none."""
        if self.limits[0] < -128:
            return self._shifted_alike()
        wanted = self._results(self.first(self._all_values(0)), self.second(self._all_values(1)), self.output.scale)
        for place, (shifted, scaled) in enumerate(((self.second, self.first), (self.first, self.second)), 1):
            by = shifted.left_shift
            if by is None or scaled.output_zero:
                continue
            less = by - _OPERAND_BITS
            ofm = Scale(self.output.scale.multiplier, self.output.scale.shift - less)
            for operand in _operands(Scale(scaled.scale.multiplier, scaled.scale.shift + less)):
                if not (0 <= ofm.shift < 64 and 0 <= operand.shift < 64):
                    continue
                made = [rescaled << _OPERAND_BITS for rescaled in (self._move_weights(0), self._move_weights(1))]
                made[place - 1] = _by_npu(self._move_weights(place - 1), operand)
                if np.array_equal(self._results(made[0], made[1], ofm), wanted):
                    return AddScales(operand, ofm, place)
        return None

    def _shifted_alike(self) -> AddScales | None:
        """The scales of operands of 16 bits that are shifted by as many bits, in TOSA and by the NPU."""
        by = self.first.left_shift
        if by is None or by != self.second.left_shift or by > _WORD_BITS:
            return None
        less = by - _WORD_BITS
        scale = self.output.scale
        return AddScales(Scale(1 << 30, 16), Scale(scale.multiplier, scale.shift - less), 2)

    def _all_values(self, place: int) -> NDArray[np.int64]:
        """All values of an operand, the second one's across."""
        values = _VALUES + self.limits[0]
        return values[:, None] if place == 0 else values[None, :]

    def _move_weights(self, place: int) -> NDArray[np.int64]:
        return self._all_values(place) - (self.first, self.second)[place].input_zero

    def _results(self, a: NDArray[np.int64], b: NDArray[np.int64], scale: Scale) -> NDArray[Any]:
        total = np.clip(a - b if self.subtract else a + b, *_INT32)
        made = Rescaling((scale,), 0, self.output.output_zero, self.output.twice)(total)
        return np.clip(made, *self.limits)


def _operands(scale: Scale) -> list[Scale]:
    """Scales of the NPU's multiplied operand that may do what `scale` says: rounded once where its shift allows it."""
    multiplier, shift = scale.multiplier, scale.shift
    found = [scale]
    while shift + _HEADROOM > 31 and shift > 0:
        multiplier, shift = multiplier >> 1, shift - 1
    if (multiplier, shift) != (scale.multiplier, scale.shift):
        found = [Scale(multiplier, shift), Scale(multiplier + 1, shift), scale]
    return found


def _by_npu(values: NDArray[np.int64], scale: Scale) -> NDArray[np.int64]:
    """An operand of a sum as the NPU multiplies it: with 20 bits of headroom, rounded twice by shifts above 31."""
    shift = min(scale.shift + _HEADROOM, 63)
    product = values * (scale.multiplier << _HEADROOM)
    first = min(shift, 31)
    half = product + ((1 << first) >> 1) >> first
    rest = shift - first
    if not rest:
        return half
    made: NDArray[np.int64] = half + (1 << (rest - 1)) - (half < 0) >> rest
    return made


# Where these have the zero point of their input, and AVG_POOL2D that of its output.
INPUT_ZERO = {"CONV2D": 3, "DEPTHWISE_CONV2D": 3, "TRANSPOSE_CONV2D": 3, "MATMUL": 2, "AVG_POOL2D": 1}
_PICKS = ("MAX_POOL2D", "CLAMP", "REDUCE_MAX", "REDUCE_MIN")
MOVES = frozenset(
    (
        "RESHAPE",
        "TRANSPOSE",
        "SLICE",
        "CONCAT",
        "PAD",
        "TILE",
        "IDENTITY",
        "RESIZE",
        "REVERSE",
        "GATHER",
        "SCATTER",
        *_PICKS,
    )
)
_DOUBLE = 3  # RoundingMode


def rescale_numbers(builder: GraphBuilder, operator: TosaOperator) -> Rescaling:
    """The numbers of a RESCALE of signed values."""
    if operator.flag(3) or operator.flag(4):
        raise RejectedError("it rescales unsigned numbers")
    _, multipliers, shifts, before, after = operator.inputs
    pairs = zip(builder.constant(multipliers).reshape(-1), builder.constant(shifts).reshape(-1), strict=True)
    scales = tuple(Scale(int(m), int(s)) for m, s in pairs)
    if not scales or any(not 0 <= s.multiplier < 1 << 31 or not 2 <= s.shift <= 62 for s in scales):
        raise RejectedError("its multipliers or shifts are beyond 31 bits and 2..62")
    twice = operator.number(1) == _DOUBLE and any(s.shift > 31 for s in scales)
    return Rescaling(scales, builder.scalar_value(before), builder.scalar_value(after), twice)


def widened_source(builder: GraphBuilder, index: int) -> tuple[int, Rescaling]:
    """The tensor of 8 or 16 bits of which a RESCALE makes the 32-bit tensor `index`, and how."""
    operator = builder.producer(index, "RESCALE")
    source = operator.inputs[0]
    if builder.dtype(source) not in STORED:
        name = builder.graph.tensor(source).name
        raise RejectedError(f"its operand {name!r} is {builder.dtype(source)}, not of 8 or 16 bits")
    return source, rescale_numbers(builder, operator)


def shifted_source(builder: GraphBuilder, index: int) -> tuple[int, int, int]:
    """The same of a RESCALE that only shifts to the left: the tensor, its zero point, the bits."""
    source, rescaling = widened_source(builder, index)
    bits = rescaling.left_shift
    if bits is None:
        raise RejectedError(f"its operand {builder.graph.tensor(source).name!r} is rescaled by more than a shift")
    return source, rescaling.input_zero, bits


def later(scale: Scale, bits: int) -> Scale:
    """`scale` of values that are shifted to the left by `bits` before it."""
    if scale.shift < bits:
        raise RejectedError(f"its scale has a shift of {scale.shift}, which has to be {bits} at least")
    return Scale(scale.multiplier, scale.shift - bits)


def times(scale: Scale, factor: int) -> Scale:
    """`scale` of values that are multiplied by `factor` before it."""
    multiplier, shift = scale.multiplier * factor, scale.shift
    while multiplier >= 1 << 31 and multiplier % 2 == 0 and shift:
        multiplier, shift = multiplier // 2, shift - 1
    if not 0 <= multiplier < 1 << 31:
        raise RejectedError(f"its scale of {scale.multiplier} times {factor} is no number of 31 bits")
    return Scale(multiplier, shift)


def window_padding(values: tuple[int, ...]) -> Padding:
    """The padding of a window, from TOSA's order: top, bottom, left, right."""
    top, bottom, left, right = values
    return Padding(top, left, bottom, right)


def stride_of(builder: GraphBuilder, operator: TosaOperator, values: tuple[int, ...]) -> tuple[int, int]:
    """Strides as far as they matter: one window needs none."""
    _, height, width, _ = builder.shape(operator.outputs[0])
    return 1 if height == 1 else values[0], 1 if width == 1 else values[1]


def clamp_of(builder: GraphBuilder, operator: TosaOperator) -> tuple[int, int]:
    """The limits of a CLAMP, which its attribute has as the bytes of one number each."""
    dtype = np.dtype(builder.dtype(operator.outputs[0]))
    held = [operator.bytes_of(slot)[: dtype.itemsize] for slot in (0, 1)]
    if any(len(data) < dtype.itemsize for data in held):
        raise RejectedError("its limits have fewer bytes than a number of its type")
    low, high = (int(np.frombuffer(data, dtype.newbyteorder("<"))[0]) for data in held)
    return low, high


def rounds_twice(builder: GraphBuilder) -> bool:
    """Whether all RESCALEs round twice; `RejectedError` where only some do."""
    every = [o for o in builder.graph.operators if o.kind == "RESCALE"]
    found = {rescale_numbers(builder, o).twice for o in every if builder.dtype(o.outputs[0]) != "int32"}
    if len(found) > 1:
        raise RejectedError("some of its RESCALEs round once, others twice")
    return found == {True}


def zero_points_of(builder: GraphBuilder) -> dict[int, int]:
    """The zero point of each tensor that an operator states one of, and of those it is moved to or from."""
    group: dict[int, int] = {}

    def root(index: int) -> int:
        while group.setdefault(index, index) != index:
            index = group[index]
        return index

    for operator in builder.graph.operators:
        if operator.kind in MOVES:
            moved = operator.inputs if operator.kind == "CONCAT" else operator.inputs[:1]
            for index in moved:
                if index not in builder.graph.constants:
                    group[root(index)] = root(operator.outputs[0])
    stated: dict[int, int] = {}
    for operator in builder.graph.operators:
        for index, zero in _stated_zero_points(builder, operator):
            stated.setdefault(root(index), zero)
    return {index: stated[root(index)] for index in list(group) if root(index) in stated}


def _stated_zero_points(builder: GraphBuilder, operator: TosaOperator) -> list[tuple[int, int]]:
    """Tensors, and the zero points with which an operator reads or makes them."""
    ends = (operator.inputs[0], operator.outputs[0]) if operator.inputs else ()
    if operator.kind == "RESCALE":
        zeros = [builder.scalar_value(operator.inputs[i]) for i in (3, 4)]
        return [(i, z) for i, z in zip(ends, zeros, strict=True) if builder.dtype(i) in STORED]
    if operator.kind in INPUT_ZERO and operator.kind != "AVG_POOL2D":
        maps = [i for i in (0, 1) if i == 0 or operator.inputs[i] not in builder.graph.constants]
        maps = maps if operator.kind == "MATMUL" else [0]
        return [
            (operator.inputs[i], builder.scalar_value(operator.inputs[INPUT_ZERO[operator.kind] + i])) for i in maps
        ]
    return []
