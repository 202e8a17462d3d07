"""Operators that only move elements: PAD, RESHAPE, CONCATENATION, SPLIT, SLICE, TRANSPOSE, PACK, ...

Invariant: no arithmetic on elements, so every element type of TFLite is taken; where the
operator could rescale (CONCATENATION), different scales are refused as the reference does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...fixed_point.multiplier import f32, round_half_away
from ...models.tensor import Tensor
from .common import EIGHT_BITS, flat_values, inside
from .elementwise import broadcast
from .operator import Lowering, UnsupportedOperatorError, lowering
from .tir import Expr, both, cast, clamp, const, load, raw_load, real, unflatten


def same_type(tensors: Sequence[Tensor]) -> None:
    """Refuses tensors of different element types."""
    for tensor in tensors:
        if tensor.dtype != tensors[0].dtype:
            raise UnsupportedOperatorError(
                f"tensor {tensor.name!r} is {tensor.dtype}, but {tensors[0].name!r} is {tensors[0].dtype}"
            )


def _axis(axis: int, rank: int) -> int:
    found = axis + rank if axis < 0 else axis
    if not 0 <= found < max(rank, 1):
        raise UnsupportedOperatorError(f"axis {axis} does not exist in {rank} dimensions")
    return found


@lowering("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
def reshape(work: Lowering) -> None:
    """The same elements in the same order."""
    data, output = work.tensor(0), work.output()
    same_type((data, output))
    count = math.prod(output.shape)
    if math.prod(data.shape) != count:
        raise UnsupportedOperatorError(f"shapes {list(data.shape)} and {list(output.shape)} differ in size")
    function = work.function
    source, target = work.read(0, "input"), work.write()
    with function.loop(count, "i") as i:
        function.store(target, raw_load(source, unflatten(i, data.shape)), *unflatten(i, output.shape))


def _before(work: Lowering, data: Tensor) -> list[int]:
    """What a padding puts in front of each axis."""
    amounts = flat_values(work, 1)
    if len(amounts) != 2 * len(data.shape):
        raise UnsupportedOperatorError(f"it pads {len(amounts) // 2} dimensions, its input has {len(data.shape)}")
    return amounts[::2]


@lowering("SHAPE")
def shape(work: Lowering) -> None:
    """The extents of the input, which are known when compiling."""
    output = work.output()
    if output.dtype not in ("int32", "int64"):
        raise UnsupportedOperatorError(f"output {output.name!r} is {output.dtype}, not int32 or int64")
    extents = work.table("extents", np.array(work.tensor(0).shape, output.dtype))
    target = work.write()
    with work.function.grid(output.shape) as place:
        work.function.store(target, raw_load(extents, place), *place)


@lowering("PAD", "PADV2")
def pad(work: Lowering) -> None:
    """The input in the middle of a larger output; the rest is the zero point or a given value."""
    data, output = work.tensor(0), work.output()
    same_type((data, output))
    before = _before(work, data)
    value: float = output.zero_point if data.dtype in EIGHT_BITS else 0
    if work.optional(2) is not None:
        value = np.asarray(work.constant(2, "the value that it pads with")).reshape(-1)[0].item()
    padding = real(value, output.dtype) if output.dtype.startswith("float") else const(int(value), output.dtype)
    function = work.function
    source, target = work.read(0, "input"), work.write()
    # Element by element of the output, so that it may trail the part of the input that is read already.
    with function.grid(output.shape) as place:
        origin = [p - const(b) if b else p for p, b in zip(place, before, strict=True)]
        sides = zip(origin, before, data.shape, output.shape, strict=True)
        covered = both(*(inside(o, -b, wide - 1 - b, size) for o, b, size, wide in sides))
        with function.when(covered):
            function.store(target, raw_load(source, origin), *place)
        if covered is not None:
            with function.otherwise():
                function.store(target, padding, *place)


@lowering("MIRROR_PAD")
def mirror_pad(work: Lowering) -> None:
    """The input, continued by its mirror image; the positions are tables."""
    import tflite

    offset = 0 if work.options(tflite.MirrorPadOptions).Mode() == 1 else 1  # symmetric repeats the border
    data, output = work.tensor(0), work.output()
    same_type((data, output))
    before = _before(work, data)
    function = work.function
    source = work.read(0, "input")
    tables = []
    for axis, (first, size) in enumerate(zip(before, data.shape, strict=True)):
        places = np.arange(output.shape[axis]) - first
        places = np.where(places < 0, offset - 1 - places, places)
        places = np.where(places >= size, 2 * size - 1 - offset - places, places)
        tables.append(work.table(f"axis{axis}", places.astype(np.int32)) if output.shape[axis] != size else None)
    target = work.write()
    with function.grid(output.shape) as place:
        moved = [p if t is None else raw_load(t, [p]) for p, t in zip(place, tables, strict=True)]
        function.store(target, raw_load(source, moved), *place)


@lowering("BROADCAST_TO")
def broadcast_to(work: Lowering) -> None:
    """The input repeated along axes of extent 1."""
    data, output = work.tensor(0), work.output()
    same_type((data, output))
    function = work.function
    source, target = work.read(0, "input"), work.write()
    with function.grid(output.shape) as place:
        function.store(target, raw_load(source, broadcast(place, data, output)), *place)


@lowering("GATHER")
def gather(work: Lowering) -> None:
    """Slices of the input along an axis, chosen by indices that are only known when running.

    An index outside of the axis, at which LiteRT stops and TFLite Micro reads other memory, reads the nearest slice.
    """
    import tflite

    options = work.options(tflite.GatherOptions)
    data, indices, output = work.tensor(0), work.tensor(1), work.output()
    same_type((data, output))
    axis = _axis(options.Axis(), len(data.shape))
    shared, rank = options.BatchDims(), len(indices.shape)  # axes that both have
    shared += rank if shared < 0 else 0
    if indices.dtype not in ("int16", "int32", "int64") or not 0 <= shared <= min(axis, rank):
        raise UnsupportedOperatorError(f"its indices are {indices.dtype}, with {options.BatchDims()} batch dimensions")
    wanted = (*data.shape[:axis], *indices.shape[shared:], *data.shape[axis + 1 :])
    if output.shape != wanted:
        raise UnsupportedOperatorError(f"it gives shape {list(wanted)}, the output has {list(output.shape)}")
    function = work.function
    source, chosen, target = work.read(0, "input"), work.read(1, "indices"), work.write()
    behind = axis + rank - shared
    with function.grid(output.shape) as place:
        found = cast(raw_load(chosen, [*place[:shared], *place[axis:behind]]), "int32")
        index = clamp(found, 0, max(data.shape[axis] - 1, 0))
        function.store(target, raw_load(source, [*place[:axis], index, *place[behind:]]), *place)


@lowering("CONCATENATION")
def concatenation(work: Lowering) -> None:
    """The inputs one after the other along an axis."""
    import tflite

    options = work.options(tflite.ConcatenationOptions)
    if options.FusedActivationFunction() != 0:
        raise UnsupportedOperatorError("it has a fused activation")
    output = work.output()
    axis = _axis(options.Axis(), len(output.shape))
    parts = [work.tensor(i) for i in range(len(work.operator.inputs))]
    same_type([output, *parts])
    function = work.function
    sources = [work.read(i, f"input{i}") for i in range(len(parts))]
    tables = [
        work.table(f"rescaled{i}", t) if (t := _rescaled(p, output)) is not None else None for i, p in enumerate(parts)
    ]
    target = work.write()
    start = 0
    for part, source, table in zip(parts, sources, tables, strict=True):
        with function.grid(part.shape) as place:
            value = raw_load(source, place)
            function.store(
                target, value if table is None else load(table, cast(value, "int32")), *_moved(place, axis, start)
            )
        start += part.shape[axis]


def _rescaled(part: Tensor, output: Tensor) -> npt.NDArray[np.uint8] | None:
    """What each stored value of a part becomes in the output; None where that is itself.

    LiteRT rescales uint8, in float32, its product rounded before the sum; no reference does it with int8.
    """
    if part.dtype not in EIGHT_BITS or (part.scale == output.scale and part.zero_point == output.zero_point):
        return None
    if part.dtype != "uint8":
        raise UnsupportedOperatorError(f"input {part.name!r} has another scale or zero point than the output")
    scale = f32(part.scale) * (f32(1) / f32(output.scale))
    real_values = np.arange(256).astype(np.float32) * scale + f32(-part.zero_point) * scale
    values = [min(max(round_half_away(v) + output.zero_point, 0), 255) for v in real_values.tolist()]
    return np.array(values, np.uint8)


@lowering("SPLIT", "SPLIT_V")
def split(work: Lowering) -> None:
    """Parts of the input along an axis."""
    position, axis_position = (1, 0) if work.operator.name == "SPLIT" else (0, 2)
    data = work.tensor(position)
    axis = _axis(flat_values(work, axis_position)[0], len(data.shape))
    outputs = [work.output(i) for i in range(len(work.operator.outputs))]
    same_type([data, *outputs])
    function = work.function
    source = work.read(position, "input")
    targets = [work.write(i, f"output{i}") for i in range(len(outputs))]
    start = 0
    for part, target in zip(outputs, targets, strict=True):
        with function.grid(part.shape) as place:
            function.store(target, raw_load(source, _moved(place, axis, start)), *place)
        start += part.shape[axis]


@lowering("SLICE")
def slice_(work: Lowering) -> None:
    """A box of the input."""
    data, output = work.tensor(0), work.output()
    same_type((data, output))
    begin = flat_values(work, 1)
    _copy_box(work, begin, [1] * len(begin), output.shape, list(range(len(begin))))


@lowering("STRIDED_SLICE")
def strided_slice(work: Lowering) -> None:
    """Every n-th element of a box; constant bounds, one for each axis, new axis or run of whole axes (an ellipsis)."""
    import tflite

    options = work.options(tflite.StridedSliceOptions)
    data, output = work.tensor(0), work.output()
    same_type((data, output))
    bounds = list(zip(*(flat_values(work, i) for i in (1, 2, 3)), strict=True))
    new, whole = options.NewAxisMask() & ~options.EllipsisMask(), options.EllipsisMask()
    named = sum(not (new | whole) >> bit & 1 for bit in range(len(bounds)))
    starts: list[int] = []
    strides: list[int] = []
    extents: list[int] = []
    axes: list[int | None] = []  # of the input, for each of the output
    for bit, (first, last, stride) in enumerate([*bounds, (0, 0, 1)]):
        axis = len(starts)
        if bit == len(bounds) or whole >> bit & 1:  # what is left out at the end is whole as well
            rest = range(axis, len(data.shape) - (named if bit < len(bounds) else 0))
            starts += [0] * len(rest)
            strides += [1] * len(rest)
            axes += rest
            extents += [data.shape[a] for a in rest]
        elif new >> bit & 1:
            axes.append(None)
            extents.append(1)
        else:
            named -= 1
            size, forward = data.shape[axis], stride > 0
            low, high = (0, size) if forward else (-1, size - 1)
            start = (0 if forward else size - 1) if options.BeginMask() >> bit & 1 else _clamped(first, size, low, high)
            stop = (size if forward else -1) if options.EndMask() >> bit & 1 else _clamped(last, size, low, high)
            starts.append(start)
            strides.append(stride)
            if not options.ShrinkAxisMask() >> bit & 1:
                axes.append(axis)
                extents.append(max(0, -(-(stop - start) // stride)))
    if tuple(extents) != output.shape:
        raise UnsupportedOperatorError(f"its bounds give shape {extents}, the output has {list(output.shape)}")
    _copy_box(work, starts, strides, output.shape, axes)


def _clamped(value: int, size: int, low: int, high: int) -> int:
    return min(max(value + size if value < 0 else value, low), high)


def _copy_box(
    work: Lowering, start: list[int], stride: list[int], shape: tuple[int, ...], axes: Sequence[int | None]
) -> None:
    """output[place] = input[start + stride * place]; `axes[i]`: the input axis of output axis i, None of a new one."""
    function = work.function
    source, target = work.read(0, "input"), work.write()
    with function.grid(shape) as place:
        indices: list[Expr] = [const(s) for s in start]
        for p, axis in zip(place, axes, strict=True):
            if axis is not None:
                indices[axis] = p * const(stride[axis]) + const(start[axis])
        function.store(target, raw_load(source, indices), *place)


@lowering("REVERSE_V2")
def reverse(work: Lowering) -> None:
    """The input with the order along some axes reversed."""
    data, output = work.tensor(0), work.output()
    same_type((data, output))
    rank = len(data.shape)
    reversed_axes = {_axis(a, rank) for a in flat_values(work, 1)}
    if max(reversed_axes) - min(reversed_axes) >= len(reversed_axes):
        raise UnsupportedOperatorError(f"it reverses axes {sorted(reversed_axes)}, which are not next to each other")
    starts = [extent - 1 if a in reversed_axes else 0 for a, extent in enumerate(data.shape)]
    _copy_box(work, starts, [-1 if a in reversed_axes else 1 for a in range(rank)], data.shape, list(range(rank)))


@lowering("TRANSPOSE")
def transpose(work: Lowering) -> None:
    """Axes in another order."""
    data, output = work.tensor(0), work.output()
    same_type((data, output))
    order = [_axis(a, len(data.shape)) for a in flat_values(work, 1)]
    function = work.function
    source, target = work.read(0, "input"), work.write()
    with function.grid(output.shape) as place:
        indices: list[Expr] = [const(0)] * len(order)
        for p, axis in zip(place, order, strict=True):
            indices[axis] = p
        function.store(target, raw_load(source, indices), *place)


@lowering("PACK")
def pack(work: Lowering) -> None:
    """Inputs of one shape along a new axis."""
    import tflite

    output = work.output()
    axis = _axis(work.options(tflite.PackOptions).Axis(), len(output.shape))
    parts = [work.tensor(i) for i in range(len(work.operator.inputs))]
    same_type([output, *parts])
    function = work.function
    sources = [work.read(i, f"input{i}") for i in range(len(parts))]
    target = work.write()
    for number, (part, source) in enumerate(zip(parts, sources, strict=True)):
        with function.grid(part.shape) as place:
            function.store(target, raw_load(source, place), *place[:axis], number, *place[axis:])


@lowering("UNPACK")
def unpack(work: Lowering) -> None:
    """Slices of the input along an axis, which goes."""
    import tflite

    data = work.tensor(0)
    axis = _axis(work.options(tflite.UnpackOptions).Axis(), len(data.shape))
    outputs = [work.output(i) for i in range(len(work.operator.outputs))]
    same_type([data, *outputs])
    function = work.function
    source = work.read(0, "input")
    targets = [work.write(i, f"output{i}") for i in range(len(outputs))]
    for number, (part, target) in enumerate(zip(outputs, targets, strict=True)):
        with function.grid(part.shape) as place:
            function.store(target, raw_load(source, [*place[:axis], const(number), *place[axis:]]), *place)


def _moved(place: list[Expr], axis: int, start: int) -> list[Expr]:
    return [p + const(start) if i == axis and start else p for i, p in enumerate(place)]
