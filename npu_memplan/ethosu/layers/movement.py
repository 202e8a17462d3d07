"""Stored values at other places: reshapes, slices, pads, concatenations, transpositions, tiles, reversals, gathers.

Invariant: the boxes of the output do not overlap and cover it; no box steps through channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..arch import Architecture, Language
from ..lower.emit import Builder, EmitContext, LoweringError, reshape_operand
from ..lower.emit_u85 import permute, store_in_order
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.operands import LayerTensor, Operand, Output, Padding, TensorView, Window
from ..lower.scaling import quantise_multiplier
from ..reading import patterns as p
from ..reading.patterns import alone
from ..reading.reader import (
    Composite,
    Described,
    DescribedCall,
    LayerPart,
    Match,
    Reader,
    Record,
    RejectedError,
    is_variable,
    number,
    plain,
)
from ..stream.isa import BRICK_CHANNELS, StoredBackwards


@dataclass(frozen=True, slots=True, eq=False)
class Reshape(Layer):
    limits: ClassVar[Limits] = Limits()

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        shape = tensors[self.output].shape
        return StorageTraits(moves=True, flat=True, keeps_scale=True, view=lambda source: source.reshape(shape))

    def emit(self, context: EmitContext) -> None:
        if self.output in context.storage.copies:
            seen = context.view(self.output).reshape(context.tensors[self.inputs[0]].shape)
            assert seen is not None  # an own buffer is dense
            context.copy(context.view(self.inputs[0]), seen, context.tensors[self.output].dtype)


def _reshape_patterns() -> Iterator[p.Pattern]:
    yield from p.alone("reshape", 2)
    yield from p.alone("expand_dims")
    yield from p.alone("squeeze")


def _parse_reshape(reader: Reader, root: Any) -> Match:
    call, tensor, out = reader.read_move(root, "reshape", "expand_dims", "squeeze")
    return Match(Reshape("reshape", ("0",), "out"), {"0": tensor, "out": out}, (call.args[0],))


RESHAPE_RECORD = Record((Reshape,), (Composite("reshape", _reshape_patterns, _parse_reshape),))


_MAX_CHANNELS = 64
_FEW_PLANES = 8  # more take longer together than one after the other
_TO_PIXELS, _TO_PLANES = (1, 2, 0), (2, 0, 1)


@dataclass(frozen=True, slots=True, eq=False)
class Transpose(Layer):
    """Dimensions in another order: output dimension i is input dimension `axes[i]`."""

    axes: tuple[int, ...]

    limits: ClassVar[Limits] = Limits()
    traits: ClassVar[StorageTraits] = StorageTraits(moves=True, keeps_scale=True)  # always a copy: channels stay dense

    def unsupported_by(self, target: Architecture, inputs: tuple[LayerTensor, ...]) -> str | None:
        """The reason to leave it to the host: where results are stored in order only, each channel is an operation."""
        if target.language is Language.U85:
            return None
        shape = inputs[0].shape
        if self.axes[-1] == len(shape) - 1:
            return None
        if min(shape[-1], shape[self.axes[-1]]) > _MAX_CHANNELS:
            return f"it transposes more than {_MAX_CHANNELS} channels"
        if len(shape) == 4 and (shape[self.axes[0]] != 1 or self.axes[0] != 0):
            return "it moves the batch"
        return None

    def emit(self, context: EmitContext) -> None:
        """One operation that stores its results in another order, or one convolution where planes and pixels are few,
        which may be made in stripes; else a copy of rows whose channels stay, or a copy for each channel of the side
        that has fewer.
        """
        source, target = context.view(self.inputs[0]), context.view(self.output)
        dtype = context.tensors[self.output].dtype
        orders = context.builder.accelerator.language is Language.U85
        inner = tuple(axis - len(self.axes) + 3 for axis in self.axes[-3:])
        if inner in (_TO_PIXELS, _TO_PLANES) and not (orders and context.for_cycles):
            planes, pixels = (source, target) if inner == _TO_PIXELS else (target, source)
            both = _in_bricks(planes, pixels)
            if both is not None:
                seen = [Operand(view, dtype) for view in both]
                _interleave(context.builder, seen[0], seen[1], inner == _TO_PIXELS)
                return
        if orders:
            permute(context.builder, source, target, self.axes, dtype)
            return
        if self.axes[-1] == len(self.axes) - 1:
            context.copy(source.permute(self.axes), target, dtype)
            return
        if source.shape[-1] < target.shape[-1]:
            order = tuple(self.axes.index(axis) for axis in range(len(self.axes)))
            target = target.permute(order)
        else:
            source = source.permute(self.axes)
        for channel in range(source.shape[-1]):
            context.copy(source.channel_view(channel), target.channel_view(channel), dtype)


def _in_bricks(planes: TensorView, pixels: TensorView) -> tuple[TensorView, TensorView] | None:
    """[C, H, W] as bricks of 16 columns, one a plane, and [H, W, C]; None where the bytes are not laid out so."""
    (height, width, depth), size = pixels.shape[-3:], pixels.element_bytes
    dense = planes.is_dense and pixels.is_dense and planes.offset % BRICK_CHANNELS == 0
    if not dense or width % BRICK_CHANNELS or depth > _FEW_PLANES or size > 1:
        return None
    shape = (height, width // BRICK_CHANNELS, BRICK_CHANNELS * depth)
    strides = (width, BRICK_CHANNELS, height * width)
    columns = pixels.reshape(shape)
    assert columns is not None  # it is dense
    return replace(planes, shape=shape, strides=strides, brick=True), columns


def _interleave(builder: Builder, planes: Operand, pixels: Operand, to_pixels: bool) -> None:
    """Stored values to other channels: sums of one value each."""
    channels, info = planes.shape.depth, np.iinfo(planes.dtype)
    ones = np.eye(channels, dtype=np.int16).reshape(-1, BRICK_CHANNELS, channels)
    weights = ones.transpose(1, 0, 2).reshape(channels, channels)  # one in each row: the channel of `planes`
    ifm, ofm, weights = (planes, pixels, weights) if to_pixels else (pixels, planes, weights.T)
    output, none = Output((int(info.min), int(info.max))), np.zeros(channels, np.int64)
    weights = weights.reshape(channels, 1, 1, channels)
    builder.convolve(ifm, ofm, Window(), output, weights, none, [quantise_multiplier(1.0)], depthwise=False)


def _parse_transpose(reader: Reader, root: Any) -> Match:
    call, tensor, out = reader.read_move(root, "permute_dims")
    rank = len(tensor.shape)
    axes = tuple(range(rank))[::-1] if call.attrs.axes is None else tuple(int(a) % rank for a in call.attrs.axes)
    layer = Transpose("transpose", ("0",), "out", axes)
    return Match(layer, {"0": tensor, "out": out}, (call.args[0],))


TRANSPOSE_RECORD = Record((Transpose,), (Composite("transpose", partial(alone, "permute_dims"), _parse_transpose),))


@dataclass(frozen=True, slots=True, eq=False)
class Slice(Layer):
    """A strided box of the input: one start and step for each dimension."""

    begin: tuple[int, ...]
    step: tuple[int, ...]

    limits: ClassVar[Limits] = Limits()

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        shape = tensors[self.output].shape
        return StorageTraits(moves=True, keeps_scale=True, view=lambda source: source.box(self.begin, shape, self.step))

    def emit(self, context: EmitContext) -> None:
        if self.output in context.storage.copies:
            out = context.tensors[self.output]
            source = context.view(self.inputs[0]).box(self.begin, out.shape, self.step)
            if source is None:
                raise LoweringError(f"slice {self.name} steps through channels, which the NPU cannot")
            context.copy(source, context.view(self.output), out.dtype)


def _patterns_slice() -> Iterator[p.Pattern]:
    for arguments in (4, 5):  # without steps, and with them
        yield from p.alone("strided_slice", arguments)


def _parse_slice(reader: Reader, root: Any) -> Match:
    call, tensor, out = reader.read_move(root, "strided_slice")
    rank = len(tensor.shape)
    written = [fields for a in call.args[1:] if (fields := reader.fields(a)) is not None]
    axes, begins, _ends, *steps = ([int(number(v)) for v in fields] for fields in written)
    begin, step = [0] * rank, [1] * rank
    for position, axis in enumerate(axes):
        extent = tensor.shape[axis]
        start = begins[position] + (extent if begins[position] < 0 else 0)
        begin[axis] = min(max(start, 0), extent)
        step[axis] = steps[0][position] if steps else 1
    if any(s < 1 for s in step):
        raise RejectedError("it runs backwards")
    if step[-1] != 1:
        raise RejectedError(f"it steps by {step[-1]} through the channels")
    layer = Slice("slice", ("0",), "out", tuple(begin), tuple(step))
    return Match(layer, {"0": tensor, "out": out}, (call.args[0],))


SLICE_RECORD = Record((Slice,), (Composite("slice", _patterns_slice, _parse_slice),))


@dataclass(frozen=True, slots=True, eq=False)
class Pad(Layer):
    """The input inside a border of the stored value `value`."""

    padding: Padding
    value: int = 0
    channels: tuple[int, int] = (0, 0)  # before the input's and after them

    limits: ClassVar[Limits] = Limits(one_image=True)

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        """Its input is made inside of the border where it has no other reader."""
        return StorageTraits(moves=True, keeps_scale=True, begin=partial(self._begin, tensors))

    def _begin(self, tensors: Mapping[str, LayerTensor], index: int) -> tuple[int, ...]:
        begin = [0] * len(tensors[self.output].shape)
        begin[-3:] = self.padding.top, self.padding.left, self.channels[0]
        return tuple(begin)

    def emit(self, context: EmitContext) -> None:
        """The border, and the input unless it is there already."""
        whole, out, pad = context.view(self.output), context.tensors[self.output], self.padding
        source = context.tensors[self.inputs[0]]
        _, height, width, depth = out.shape
        _, inner_height, inner_width, inner_depth = source.shape
        if context.storage.embedded.get(self.inputs[0]) != self.output:
            target = whole.box(self._begin(context.tensors, 0), source.shape)
            assert target is not None
            context.copy(context.view(self.inputs[0]), target, out.dtype)
        borders = (
            ((0, 0, 0, 0), (1, pad.top, width, depth)),
            ((0, height - pad.bottom, 0, 0), (1, pad.bottom, width, depth)),
            ((0, pad.top, 0, 0), (1, inner_height, pad.left, depth)),
            ((0, pad.top, pad.left + inner_width, 0), (1, inner_height, pad.right, depth)),
        )
        for begin, shape in borders:
            if all(shape):
                target = whole.box(begin, shape)
                assert target is not None
                border = np.full(shape, self.value, out.dtype)
                context.copy(context.builder.constant_view(border), target, out.dtype)
        for first, count in ((0, self.channels[0]), (self.channels[0] + inner_depth, self.channels[1])):
            for begun in range(0, count, inner_depth):  # made of the input's bytes: no constants
                shape = (1, inner_height, inner_width, min(inner_depth, count - begun))
                target = whole.box((0, pad.top, pad.left, first + begun), shape)
                read = context.view(self.inputs[0]).box((0, 0, 0, 0), shape)
                assert target is not None
                assert read is not None  # neither is in bricks
                context.copy(read, target, out.dtype, (self.value, self.value))


def _parse_pad(reader: Reader, root: Any) -> Match:
    call, tensor, out = reader.read_move(root, "nn.pad")
    widths = [int(w) for w in call.attrs.pad_width]
    if len(tensor.shape) != 4 or any(widths[:2]) or min(widths) < 0:
        raise RejectedError(f"it pads {widths} in front of and behind each dimension; only images fit, not their batch")
    if str(call.attrs.pad_mode) != "constant":
        raise RejectedError(f"its mode is {call.attrs.pad_mode}; only constant padding fits the NPU")
    padding = Padding(widths[2], widths[4], widths[3], widths[5])
    value = int(float(call.attrs.pad_value))
    return Match(
        Pad("pad", ("0",), "out", padding, value, (widths[6], widths[7])), {"0": tensor, "out": out}, (call.args[0],)
    )


PAD_RECORD = Record((Pad,), (Composite("pad", partial(alone, "nn.pad"), _parse_pad),))


@dataclass(frozen=True, slots=True, eq=False)
class Concat(Layer):
    """Inputs side by side along `axis` (negative: from the last)."""

    axis: int

    limits: ClassVar[Limits] = Limits()

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        return None if len(output.shape) >= 1 else "it concatenates scalars"

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        return StorageTraits(moves=True, keeps_scale=True, begin=partial(self._begin, tensors), gathers=True)

    def _begin(self, tensors: Mapping[str, LayerTensor], index: int) -> tuple[int, ...]:
        begin = [0] * len(tensors[self.output].shape)
        axis = self.axis % len(begin)
        begin[axis] = sum(tensors[name].shape[axis] for name in self.inputs[:index])
        return tuple(begin)

    def emit(self, context: EmitContext) -> None:
        """A copy or a rescale of every input that is not in its place already."""
        whole, out = context.view(self.output), context.tensors[self.output]
        for index, name in enumerate(self.inputs):
            if context.storage.embedded.get(name) == self.output:
                continue
            tensor = context.tensors[name]
            target = whole.box(self._begin(context.tensors, index), tensor.shape)
            assert target is not None  # concatenations are dense
            if (tensor.scale, tensor.zero_point) == (out.scale, out.zero_point):
                context.copy(context.view(name), target, out.dtype)
            else:
                context.rescale(name, target, self.output)


def _patterns_concat(count: int) -> Iterator[p.Pattern]:
    """Patterns of a concatenation of `count` inputs."""
    yield p.op("concat", p.fields(*(p.anything() for _ in range(count))))
    yield from p.result_patterns(p.op("concat", p.fields(*(p.dequantize(p.anything()) for _ in range(count)))))


def _parse_concat(reader: Reader, root: Any) -> Match:
    call = reader.call(root, "concat")
    if call is None:
        call, out, *_ = reader.of_real(root, "concat", 0)
        inputs = [reader.activation(field, str(i)) for i, field in enumerate(_tuple_fields(reader, call))]
    else:
        out = plain(call, "out")
        inputs = [(plain(field, str(i)), field) for i, field in enumerate(_tuple_fields(reader, call))]
    if not all(is_variable(variable) for _, variable in inputs):
        raise RejectedError("it concatenates constants")
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis)
    return Match.for_layer(Concat("concat", tuple(tensor.name for tensor, _ in inputs), "out", axis), out, *inputs)


def _tuple_fields(reader: Reader, call: Any) -> list[Any]:
    found = reader.fields(call.args[0])
    if found is None:
        raise RejectedError("it concatenates a tuple that is not written out")
    return found


CONCAT_RECORD = Record((Concat,), (Composite("concat", _patterns_concat, _parse_concat, joins="concat"),))


_MOST_ONES = 1 << 18  # weights, one of each row of which is 1: more take longer than the host's copies, and to encode


@dataclass(frozen=True, slots=True, eq=False)
class ChannelGather(Layer):
    """Channel i of the output is channel `places[i]` of the input."""

    places: tuple[int, ...]

    limits: ClassVar[Limits] = Limits()

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        """Sums of stored values are of 8 bits; each takes a weight for every channel of the input."""
        if output.dtype == "int16":
            return "its tensors are int16; channels of 8 bits are gathered"
        count = len(self.places) * inputs[0].shape[-1]
        return f"it takes {count:,} weights, more than {_MOST_ONES:,}" if count > _MOST_ONES else None

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        return StorageTraits(bricks=(*self.inputs, self.output), keeps_scale=True)

    def emit(self, context: EmitContext) -> None:
        """Sums of one stored value each."""
        ifm, ofm = context.operand(self.inputs[0], raw=True), context.operand(self.output, raw=True)
        weights = np.eye(ifm.shape.depth, dtype=np.int16)[list(self.places)]
        context.builder.convolve(
            ifm,
            ofm,
            Window(),
            Output(context.tensors[self.output].limits),
            weights.reshape(len(self.places), 1, 1, -1),
            np.zeros(len(self.places), np.int64),
            [quantise_multiplier(1.0)],
            depthwise=False,
        )


def _parse_gather(reader: Reader, root: Any) -> Match:
    call, tensor, out = reader.read_move(root, "take")
    places, rank = reader.array(call.args[1]), len(tensor.shape)
    axis = None if call.attrs.axis is None else int(call.attrs.axis) % rank
    if places is None or axis != rank - 1 or places.ndim != 1:
        raise RejectedError("it gathers other things than channels at constant places")
    layer = ChannelGather("gather", ("0",), "out", tuple(int(place) for place in places))
    return Match(layer, {"0": tensor, "out": out}, (call.args[0],))


GATHER_RECORD = Record((ChannelGather,), (Composite("gather", partial(alone, "take", 2), _parse_gather),))


_MOST_COPIES = 64  # an operation each; more take longer than the host


class Box(NamedTuple):
    """Elements `begin + i * step` of each axis, for i below `shape`."""

    begin: tuple[int, ...]
    shape: tuple[int, ...]
    step: tuple[int, ...]


Move = tuple[Box, Box]  # of the input, of the output


@dataclass(frozen=True, slots=True, eq=False)
class Rearrange(Layer):
    """Each box of the input in its place of the output."""

    moves: tuple[Move, ...]

    limits: ClassVar[Limits] = Limits()
    traits: ClassVar[StorageTraits] = StorageTraits(keeps_scale=True)

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        count = sum(math.prod(box.shape[:-3]) for box, _ in self.moves)
        return f"it takes {count} copies; at most {_MOST_COPIES} pay on the NPU" if count > _MOST_COPIES else None

    def emit(self, context: EmitContext) -> None:
        source, target = context.view(self.inputs[0]), context.view(self.output)
        for read, written in self.moves:
            context.copy(_part(source, read), _part(target, written), context.tensors[self.output].dtype)


def _part(view: TensorView, box: Box) -> TensorView:
    found = view.box(*box)
    if found is None:
        raise LoweringError(f"{view} has no box {box}")
    return found


def pick_moves(places: Sequence[Sequence[int]]) -> Iterator[Move]:
    """Axis i of the output is `places[i]` of axis i of the input."""
    last = len(places) - 1
    runs = [list(_runs(axis, number == last)) for number, axis in enumerate(places)]
    for parts in product(*runs):
        begins, froms, steps, counts = zip(*parts, strict=True)
        yield Box(froms, counts, steps), Box(begins, counts, (1,) * len(counts))


def _runs(places: Sequence[int], dense: bool) -> Iterator[tuple[int, int, int, int]]:
    """Places in equal steps (1 where `dense`): first place in the output, in the input, the step, how many."""
    first = 0
    while first < len(places):
        stop = first + 1
        step = places[stop] - places[first] if stop < len(places) else 1
        if step < 1 or (dense and step != 1):
            step = 1
        while stop < len(places) and places[stop] - places[stop - 1] == step:
            stop += 1
        yield first, places[first], step, stop - first
        first = stop


def depth_and_space(packed: tuple[int, ...], block: int) -> Iterator[Move]:
    """Boxes of what has blocks as channels, whose shape is `packed`, and of what has them as places."""
    *outer, channels = packed
    shape = (*outer, channels // block**2)
    for row, column in product(range(block), repeat=2):
        first = (row * block + column) * shape[-1]
        yield Box((0, 0, 0, first), shape, (1, 1, 1, 1)), Box((0, row, column, 0), shape, (1, block, block, 1))


def batch_and_space(
    image: tuple[int, ...], batch: tuple[int, ...], block: tuple[int, int], before: tuple[int, int]
) -> Iterator[Move]:
    """Boxes of images, in which places of a block lie next to each other, and of a batch that has images of each such
    place; `before`: rows and columns that the batch has before the images.
    """
    for place, phase in enumerate(product(*map(range, block))):
        spans = [_places_within(phase[i] - before[i], block[i], image[1 + i], batch[1 + i]) for i in range(2)]
        if not all(count for _, count in spans):
            continue
        firsts, counts = zip(*spans, strict=True)
        shape = (image[0], *counts, image[3])
        row, column = (phase[i] - before[i] + firsts[i] * block[i] for i in range(2))
        yield Box((0, row, column, 0), shape, (1, *block, 1)), Box((place * image[0], *firsts, 0), shape, (1, 1, 1, 1))


def _places_within(offset: int, step: int, extent: int, count: int) -> tuple[int, int]:
    """The first of the numbers i below `count` for which `offset + i * step` is within `extent`, and how many are."""
    first = max(0, -(offset // step))
    return first, max(0, min(count, -((offset - extent) // step)) - first)


# ---------------------------------------------------------------------- in Relax


def _rearrange(call: DescribedCall, name: str, moves: Sequence[Move]) -> LayerPart:
    return LayerPart.for_layer(Rearrange(name, ("0",), "out", tuple(moves)), call.output(), call.activation("input"))


def _parse_picks(call: DescribedCall) -> LayerPart:
    if not call.layer["places"]:
        raise RejectedError("its tensor has no dimensions")
    return _rearrange(call, "pick", list(pick_moves(call.layer["places"])))


def _depth_and_space(call: DescribedCall) -> LayerPart:
    to_space = bool(call.layer["to_space"])
    packed = (call.activation("input") if to_space else call.output()).shape
    if len(packed) != 4:
        raise RejectedError(f"its tensor has {len(packed)} dimensions instead of 4")
    moves = depth_and_space(packed, int(call.layer["block"]))
    return _rearrange(call, "depth_and_space", [m if to_space else (m[1], m[0]) for m in moves])


def _batch_and_space(call: DescribedCall) -> LayerPart:
    to_batch = bool(call.layer["to_batch"])
    image, batch = call.activation("input").shape, call.output().shape
    if not to_batch:
        image, batch = batch, image
    if len(image) != 4:
        raise RejectedError(f"its tensor has {len(image)} dimensions instead of 4")
    rows, columns = (int(n) for n in call.layer["block"])
    top, _, left, _ = (int(n) for n in call.layer["borders"])
    moves = batch_and_space(image, batch, (rows, columns), (top, left))
    return _rearrange(call, "batch_and_space", [m if to_batch else (m[1], m[0]) for m in moves])


REARRANGE_RECORD = Record(
    (Rearrange,),
    (
        Described("picked", _parse_picks),
        Described("depth_and_space", _depth_and_space),
        Described("batch_and_space", _batch_and_space),
    ),
)


_MAX_EXTENT = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Reverse(Layer):
    """Backwards along the dimensions `first` to `last`, which are next to each other and so one axis."""

    first: int
    last: int

    limits: ClassVar[Limits] = Limits()
    traits: ClassVar[StorageTraits] = StorageTraits(dense=True, keeps_scale=True)
    only_u85: ClassVar[str] = "it stores values backwards, which only Ethos-U85 does"

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        shape = self._seen(inputs[0].shape)
        if max(shape) > _MAX_EXTENT:
            return f"it is seen as {list(shape)}, of which an extent is above {_MAX_EXTENT}"
        return None

    def emit(self, context: EmitContext) -> None:
        whole = context.tensors[self.inputs[0]].shape
        shape = self._seen(whole)
        ifm, ofm = (reshape_operand(context.operand(name, raw=True), shape) for name in (self.inputs[0], self.output))
        backwards = StoredBackwards.W if math.prod(whole[: self.first]) > 1 else StoredBackwards.H
        store_in_order(context.builder, ifm, ofm, backwards=backwards)

    def _seen(self, shape: tuple[int, ...]) -> tuple[int, int, int]:
        """The sizes with the axis as columns, or as rows where no dimension is before it: those take half the time."""
        parts = (shape[: self.first], shape[self.first : self.last + 1], shape[self.last + 1 :])
        outer, count, inner = (math.prod(part) for part in parts)
        return (outer, count, inner) if outer > 1 else (count, 1, inner)


def _parse_reverse(call: DescribedCall) -> LayerPart:
    layer = Reverse("reverse", ("0",), "out", int(call.layer["first"]), int(call.layer["last"]))
    return LayerPart.for_layer(layer, call.output(), call.activation("input"))


REVERSE_RECORD = Record((Reverse,), (Described("reverse", _parse_reverse),))
