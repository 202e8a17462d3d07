"""Operators that only move or choose elements: PAD, RESHAPE, CONCATENATION, TRANSPOSE, SELECT, GATHER_ND, TILE, ...

Invariant: no arithmetic on elements, so every element type of TFLite is taken; where the operator could rescale
(CONCATENATION), different scales are refused as by the reference. READ_VARIABLE and ASSIGN_VARIABLE copy between a
state and a tensor, byte for byte and in their order, whatever the shapes. Every element is copied as it is, from one
place of the input. An index outside of its axis, which the reference stops at, reads the nearest place: no other
memory. What depends on shapes alone is a table that is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...fixed_point import joined_uint8
from ...models.tensor import Tensor
from .common import EIGHT_BITS, bounds_check, flat_values, nhwc_shape, one_value
from .elementwise import broadcast
from .operator import Lowering, lowering, require_supported
from .tir import Buffer, Expr, both, cast, clamp, first_of, floor_div, floor_mod, int_constant, load, number, raw_load


def same_type(tensors: Sequence[Tensor]) -> None:
    """Refuses tensors of different element types."""
    first = tensors[0]
    for tensor in tensors:
        message = f"tensor {tensor.name!r} is {tensor.dtype}, but {first.name!r} is {first.dtype}"
        require_supported(tensor.dtype == first.dtype, message)


def pair(work: Lowering) -> tuple[Tensor, Tensor]:
    """Input 0 and the output, of one type."""
    data, output = work.tensor(0), work.output()
    same_type((data, output))
    return data, output


def move_elements(work: Lowering, where: Callable[[list[Expr]], Sequence[Expr]]) -> None:
    """output[place] = input[where(place)]."""
    source = work.read(0, "input")
    work.fill(lambda place: raw_load(source, where(place)))


def describe_picked(work: Lowering, places: Sequence[npt.NDArray[np.integer]]) -> None:
    """Say that each axis of the output is `places` of that axis of the input."""
    if work.tensor(0).scales:
        work.describe("picked", places=[[int(p) for p in axis] for axis in places])


def describe_taken(work: Lowering, data: Tensor, indices: Tensor, axis: int, shared: int = 0) -> None:
    """Say that `indices` choose slices of `data` along an axis; the first `shared` dimensions are of both."""
    computed = data.data is None or indices.data is None
    if data.scales and computed and 0 not in work.output().shape:
        work.describe("taken_rows", axis=axis, shared=shared)


def _axis(axis: int, rank: int) -> int:
    found = axis + rank if axis < 0 else axis
    require_supported(0 <= found < max(rank, 1), f"axis {axis} does not exist in {rank} dimensions")
    return found


@lowering("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
def lower_reshape(work: Lowering) -> None:
    """The same elements in the same order."""
    data, output = pair(work)
    fits = math.prod(data.shape) == math.prod(output.shape)
    require_supported(fits, f"shapes {list(data.shape)} and {list(output.shape)} differ in size")
    work.function.copy(work.read(0, "input"), work.write())


def _padding_before(work: Lowering, data: Tensor) -> list[int]:
    """The elements that a padding puts before each axis."""
    amounts, rank = flat_values(work, 1), len(data.shape)
    require_supported(len(amounts) == 2 * rank, f"it pads {len(amounts) // 2} dimensions, its input has {rank}")
    return amounts[::2]


@lowering("SHAPE")
def lower_shape(work: Lowering) -> None:
    """The extents of the input, which are known when compiling."""
    output = work.output()
    require_supported(
        output.dtype in ("int32", "int64"), f"output {output.name!r} is {output.dtype}, not int32 or int64"
    )
    rank = len(work.tensor(0).shape)
    require_supported(output.shape == (rank,), f"its input has {rank} extents, its output is {list(output.shape)}")
    extents = work.table("extents", np.array(work.tensor(0).shape, output.dtype))
    work.fill(lambda place: raw_load(extents, place))


@lowering("PAD", "PADV2")
def lower_pad(work: Lowering) -> None:
    """The input in the middle of a larger output; the rest is the zero point or a given value."""
    data, output = pair(work)
    before = _padding_before(work, data)
    require_supported(
        len(output.shape) == len(data.shape),
        f"its input has {len(data.shape)} dimensions, its output {len(output.shape)}",
    )
    padded = [b + size + a for b, size, a in zip(before, data.shape, flat_values(work, 1)[1::2], strict=True)]
    require_supported(padded == list(output.shape), f"its input padded is {padded}, its output {list(output.shape)}")
    value: float = output.zero_point if data.dtype in EIGHT_BITS else 0
    if work.optional(2) is not None:
        values = np.asarray(work.constant(2, "the value that it pads with")).reshape(-1)
        require_supported(values.size, "the value that it pads with is none")
        value = values[0].item()
    padding = number(value, output.dtype)
    function = work.function
    source, target = work.read(0, "input"), work.write()
    # Element by element of the output, so that it may trail the part of the input that is read already.
    with function.grid(output.shape) as place:
        origin = [p - int_constant(b) for p, b in zip(place, before, strict=True)]
        sides = zip(origin, before, data.shape, output.shape, strict=True)
        covered = both(*(bounds_check(o, -b, wide - 1 - b, size) for o, b, size, wide in sides))
        with function.when(covered):
            function.store(target, raw_load(source, origin), *place)
        if covered is not None:
            with function.else_branch():
                function.store(target, padding, *place)


@lowering("MIRROR_PAD")
def mirror_pad(work: Lowering) -> None:
    """The input, continued by its mirror image; the positions are tables."""
    offset = 0 if work.options("MirrorPadOptions").Mode() == 1 else 1  # symmetric repeats the border
    data, output = pair(work)
    before = _padding_before(work, data)
    fits = len(output.shape) == len(data.shape)
    require_supported(fits, f"its input is {list(data.shape)}, its output {list(output.shape)}")
    source = work.read(0, "input")
    tables, picked = [], []
    for axis, (first, size) in enumerate(zip(before, data.shape, strict=True)):
        places = np.arange(output.shape[axis]) - first
        places = np.where(places < 0, offset - 1 - places, places)
        places = np.where(places >= size, 2 * size - 1 - offset - places, places)
        picked.append(places)
        tables.append(work.table(f"axis{axis}", places.astype(np.int32)) if output.shape[axis] != size else None)

    describe_picked(work, picked)

    def mirror(place: list[Expr]) -> Expr:
        return raw_load(source, [p if t is None else raw_load(t, [p]) for p, t in zip(place, tables, strict=True)])

    work.fill(mirror)


@lowering("BROADCAST_TO")
def broadcast_to(work: Lowering) -> None:
    """The input repeated along axes of extent 1."""
    data, output = pair(work)
    move_elements(work, lambda place: broadcast(place, data, output))
    if len(data.shape) == len(output.shape):
        describe_picked(work, [np.arange(o) % i for i, o in zip(data.shape, output.shape, strict=True)])


@lowering("GATHER")
def lower_gather(work: Lowering) -> None:
    """Slices of the input along an axis by computed indices; one outside of the axis reads the nearest slice."""
    options = work.options("GatherOptions")
    (data, output), indices = pair(work), work.tensor(1)
    axis = _axis(options.Axis(), len(data.shape))
    shared, rank = options.BatchDims(), len(indices.shape)  # axes that both have
    shared += rank if shared < 0 else 0
    fits = indices.dtype in ("int16", "int32", "int64") and 0 <= shared <= min(axis, rank)
    require_supported(fits, f"its indices are {indices.dtype}, with {options.BatchDims()} batch dimensions")
    wanted = (*data.shape[:axis], *indices.shape[shared:], *data.shape[axis + 1 :])
    require_supported(output.shape == wanted, f"it gives shape {list(wanted)}, the output has {list(output.shape)}")
    source, places = work.read(0, "input"), work.read(1, "indices")
    after = axis + rank - shared
    if indices.data is not None and rank == 1 and not shared:
        picked = [np.arange(extent) for extent in data.shape]
        picked[axis] = np.clip(flat_values(work, 1), 0, data.shape[axis] - 1)
        describe_picked(work, picked)
    else:
        describe_taken(work, data, indices, axis, shared)

    def slice_of(place: list[Expr]) -> Expr:
        index = chosen(places, [*place[:shared], *place[axis:after]], data.shape[axis])
        return raw_load(source, [*place[:axis], index, *place[after:]])

    work.fill(slice_of)


def chosen(indices: Buffer, place: list[Expr], extent: int) -> Expr:
    """An index of an axis of `extent` places, as an int32; one outside of it is the nearest place's."""
    return clamp(cast(raw_load(indices, place), "int32"), 0, max(extent - 1, 0))


@lowering("CONCATENATION")
def lower_concatenation(work: Lowering) -> None:
    """The inputs one after the other along an axis."""
    options = work.options("ConcatenationOptions")
    require_supported(options.FusedActivationFunction() == 0, "it has a fused activation")
    parts, output = work.tensors(), work.output()
    axis = _axis(options.Axis(), len(output.shape))
    same_type([output, *parts])
    _require_whole(parts, output, axis)
    sources = work.read_all()
    tables = [
        work.table(f"rescaled{i}", t) if (t := _rescale_table(p, output)) is not None else None
        for i, p in enumerate(parts)
    ]
    target = work.write()
    for (place, whole), source, table in zip(_parts(work, parts, axis), sources, tables, strict=True):
        value = raw_load(source, place)
        value = value if table is None else load(table, cast(value, "int32"))
        work.function.store(target, value, *whole)


def _rescale_table(part: Tensor, output: Tensor) -> npt.NDArray[np.uint8] | None:
    """A table of the output for each stored uint8 value of a part, as LiteRT rescales it; None: it stays."""
    if part.dtype not in EIGHT_BITS or (part.scale == output.scale and part.zero_point == output.zero_point):
        return None
    require_supported(part.dtype == "uint8", f"input {part.name!r} has another scale or zero point than the output")
    require_supported(part.scale > 0 and output.scale > 0, "it has tensors that are not quantised")
    return np.array(joined_uint8((part.scale, part.zero_point), (output.scale, output.zero_point)), np.uint8)


def _require_whole(parts: Sequence[Tensor], whole: Tensor, axis: int, stacked: bool = False) -> None:
    """Refuses parts that do not make `whole` along `axis`, which only the whole has where they are `stacked`."""
    for part in parts:
        rest = [*part.shape[:axis], *part.shape[axis + (not stacked) :]]
        fits = len(part.shape) + stacked == len(whole.shape) and rest == [*whole.shape[:axis], *whole.shape[axis + 1 :]]
        require_supported(fits, f"{list(part.shape)} is no part of {list(whole.shape)} along axis {axis}")
    total = len(parts) if stacked else sum(part.shape[axis] for part in parts)
    require_supported(
        total == whole.shape[axis], f"its parts have {total} places along axis {axis}, not {whole.shape[axis]}"
    )


def _parts(
    work: Lowering, parts: Sequence[Tensor], axis: int, stacked: bool = False
) -> Iterator[tuple[list[Expr], list[Expr]]]:
    """A place of each part along `axis`, in a loop over all of its places, and that place of the whole."""
    start = 0
    for part in parts:
        with work.function.grid(part.shape) as place:
            if stacked:
                yield place, [*place[:axis], int_constant(start), *place[axis:]]
            else:
                yield place, [p + int_constant(start) if i == axis and start else p for i, p in enumerate(place)]
        start += 1 if stacked else part.shape[axis]


@lowering("SPLIT", "SPLIT_V", "UNPACK")
def take_apart(work: Lowering) -> None:
    """Parts of the input along an axis, or slices along one, which goes."""
    position = 1 if work.operator.name == "SPLIT" else 0
    data, outputs, stacked = work.tensor(position), work.outputs(), work.operator.name == "UNPACK"
    axis = work.options("UnpackOptions").Axis() if stacked else one_value(work, 0 if position else 2)
    axis = _axis(axis, len(data.shape))
    same_type([data, *outputs])
    _require_whole(outputs, data, axis, stacked)
    source, targets = work.read(position, "input"), work.write_all("output")
    for (place, whole), target in zip(_parts(work, outputs, axis, stacked), targets, strict=True):
        work.function.store(target, raw_load(source, whole), *place)


@lowering("SLICE")
def lower_slice(work: Lowering) -> None:
    """A box of the input."""
    data, output = pair(work)
    begin = flat_values(work, 1)
    box = zip(begin, output.shape, data.shape, strict=False)
    fits = len(begin) == len(output.shape) == len(data.shape) and all(b >= 0 and b + n <= size for b, n, size in box)
    require_supported(fits, f"its box at {begin} of {list(output.shape)} does not lie in {list(data.shape)}")
    _copy_box(work, begin, [1] * len(begin), list(range(len(begin))))


@lowering("STRIDED_SLICE")
def strided_slice(work: Lowering) -> None:
    """Every n-th element of a box; constant bounds, one for each axis, new axis or run of whole axes (an ellipsis)."""
    options = work.options("StridedSliceOptions")
    data, output = pair(work)
    given = [flat_values(work, i) for i in (1, 2, 3)]
    require_supported(len({len(values) for values in given}) == 1, "its begin, end and strides differ in length")
    bounds = list(zip(*given, strict=True))
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
            require_supported(axis < len(data.shape), f"it takes {axis + 1} axes of {len(data.shape)}")
            require_supported(stride, "it has a stride of 0")
            size, forward = data.shape[axis], stride > 0
            low, high = (0, size) if forward else (-1, size - 1)
            start = (0 if forward else size - 1) if options.BeginMask() >> bit & 1 else _clamp(first, size, low, high)
            stop = (size if forward else -1) if options.EndMask() >> bit & 1 else _clamp(last, size, low, high)
            if options.Offset():  # its ends count from its begins
                left_out = (options.BeginMask() | options.EndMask()) >> bit & 1
                plain = not left_out and first >= 0 and forward and 0 <= start + last <= size
                require_supported(
                    plain, f"its ends count from its begins, and {first} and {last} are no part of axis {axis}"
                )
                stop = start + last
            starts.append(start)
            strides.append(stride)
            if not options.ShrinkAxisMask() >> bit & 1:
                axes.append(axis)
                extents.append(max(0, -(-(stop - start) // stride)))
    fits = tuple(extents) == output.shape
    require_supported(fits, f"its bounds give shape {extents}, the output has {list(output.shape)}")
    _copy_box(work, starts, strides, axes)


def _clamp(value: int, size: int, low: int, high: int) -> int:
    return min(max(value + size if value < 0 else value, low), high)


def _copy_box(work: Lowering, start: list[int], stride: list[int], axes: Sequence[int | None]) -> None:
    """output[place] = input[start + stride * place]; `axes[i]`: the input axis of output axis i, None of a new one."""

    def indices(place: list[Expr]) -> list[Expr]:
        found: list[Expr] = [int_constant(s) for s in start]
        for p, axis in zip(place, axes, strict=True):
            if axis is not None:
                found[axis] = p * int_constant(stride[axis]) + int_constant(start[axis])
        return found

    move_elements(work, indices)


@lowering("REVERSE_V2")
def lower_reverse(work: Lowering) -> None:
    """The input with the order along some axes reversed."""
    data, output = pair(work)
    require_supported(data.shape == output.shape, f"its input is {list(data.shape)}, its output {list(output.shape)}")
    rank = len(data.shape)
    reversed_axes = {_axis(a, rank) for a in flat_values(work, 1)}
    require_supported(reversed_axes, "it reverses no axis")
    together = max(reversed_axes) - min(reversed_axes) < len(reversed_axes)
    require_supported(together, f"it reverses axes {sorted(reversed_axes)}, which are not next to each other")
    if data.scales:
        work.describe("reverse", first=min(reversed_axes), last=max(reversed_axes))
    starts = [extent - 1 if a in reversed_axes else 0 for a, extent in enumerate(data.shape)]
    _copy_box(work, starts, [-1 if a in reversed_axes else 1 for a in range(rank)], list(range(rank)))


@lowering("TRANSPOSE")
def lower_transpose(work: Lowering) -> None:
    """Axes in another order."""
    data, output = pair(work)
    order = [_axis(a, len(data.shape)) for a in flat_values(work, 1)]
    fits = sorted(order) == list(range(len(data.shape))) and [data.shape[a] for a in order] == list(output.shape)
    require_supported(fits, f"the order {order} of {list(data.shape)} does not give {list(output.shape)}")
    _copy_box(work, [0] * len(order), [1] * len(order), order)


@lowering("PACK")
def lower_pack(work: Lowering) -> None:
    """Inputs of one shape along a new axis."""
    output, parts = work.output(), work.tensors()
    axis = _axis(work.options("PackOptions").Axis(), len(output.shape))
    same_type([output, *parts])
    _require_whole(parts, output, axis, stacked=True)
    sources, target = work.read_all(), work.write()
    for (place, whole), source in zip(_parts(work, parts, axis, stacked=True), sources, strict=True):
        work.function.store(target, raw_load(source, place), *whole)


@lowering("READ_VARIABLE", "ASSIGN_VARIABLE")
def copy_variable(work: Lowering) -> None:
    """Input: the state; or inputs: the state, which is written, and the value."""
    if work.operator.name == "READ_VARIABLE":
        source, target = work.read(0, "state"), work.write()
    else:
        target, source = work.state_buffer(0, "state"), work.read(1, "value")
    here, there = ([int(n) for n in buffer.shape] for buffer in (source, target))
    if here != there:
        work.function.copy(source, target)
        return
    with work.function.grid(here) as place:
        work.function.store(target, raw_load(source, place), *place)


@lowering("DEPTH_TO_SPACE", "SPACE_TO_DEPTH")
def depth_and_space(work: Lowering) -> None:
    """Blocks of `block` x `block` places become channels, or channels become places."""
    to_space = work.operator.name == "DEPTH_TO_SPACE"
    options = work.options("DepthToSpaceOptions" if to_space else "SpaceToDepthOptions")
    block = options.BlockSize()
    data, output = pair(work)
    require_supported(block > 0, f"a block of {block}")
    packed_shape, spread_shape = (
        (nhwc_shape(data), nhwc_shape(output)) if to_space else (nhwc_shape(output), nhwc_shape(data))
    )
    images, height, width, depth = spread_shape
    fits = height % block == width % block == 0
    fits = fits and packed_shape == (images, height // block, width // block, depth * block * block)
    require_supported(fits, f"blocks of {block} do not turn {list(data.shape)} into {list(output.shape)}")
    work.describe("depth_and_space", block=block, to_space=int(to_space))
    function = work.function
    source, target = work.read(0, "input"), work.write()
    with function.grid(output.shape if to_space else data.shape, "nyxc") as (n, y, x, c):
        channel = (floor_mod(y, block) * block + floor_mod(x, block)) * depth + c
        packed, spread = (n, floor_div(y, block), floor_div(x, block), channel), (n, y, x, c)
        here, there = (packed, spread) if to_space else (spread, packed)
        function.store(target, raw_load(source, here), *there)


@lowering("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")
def batch_and_space(work: Lowering) -> None:
    """Places of a block become images of a batch; or the reverse, before cropping."""
    to_batch = work.operator.name == "SPACE_TO_BATCH_ND"
    data, output = pair(work)
    block, borders = flat_values(work, 1), flat_values(work, 2)
    image, batch = (data, output) if to_batch else (output, data)
    images, height, width, channels = nhwc_shape(image)
    batches, rows, columns, depth = nhwc_shape(batch)
    fits = len(block) == 2 and len(borders) == 4 and images > 0 and batches == images * block[0] * block[1]
    require_supported(fits, f"blocks {block} do not turn {images} images into {batches}")
    extents = tuple(extent + sum(borders[2 * i : 2 * i + 2]) for i, extent in enumerate((height, width)))
    fits = channels == depth and min(*block, *borders, 1) >= 0 and extents == (rows * block[0], columns * block[1])
    require_supported(
        fits, f"blocks {block} and borders {borders} do not turn {list(data.shape)} into {list(output.shape)}"
    )
    # The padding value is not initialised: TFLite Micro gives other numbers from run to run.
    require_supported(not to_batch or not any(borders), "it pads, and the reference kernel does not say with what")
    work.describe("batch_and_space", block=block, borders=borders, to_batch=int(to_batch))
    function = work.function
    source, target = work.read(0, "input"), work.write()
    with function.grid((batches, rows, columns, depth), "byxc") as (b, y, x, c):
        place = floor_div(b, images)
        row = function.bind(y * block[0] + floor_div(place, block[1]) - borders[0], "row")
        column = function.bind(x * block[1] + floor_mod(place, block[1]) - borders[2], "column")
        of_image, of_batch = (floor_mod(b, images), row, column, c), (b, y, x, c)
        here, there = (of_image, of_batch) if to_batch else (of_batch, of_image)
        cropped = None if to_batch else both(row >= 0, row < height, column >= 0, column < width)
        with function.when(cropped):
            function.store(target, raw_load(source, here), *there)


def _require_indices(tensor: Tensor) -> None:
    require_supported(tensor.dtype in ("int32", "int64"), f"its indices are {tensor.dtype}, not int32 or int64")


@lowering("SELECT", "SELECT_V2")
def select_elements(work: Lowering) -> None:
    """An element of input 1 where input 0 is true, else one of input 2."""
    condition, yes, no, output = work.tensor(0), work.tensor(1), work.tensor(2), work.output()
    same_type((output, yes, no))
    require_supported(condition.dtype == "bool", f"input {condition.name!r} is {condition.dtype}, not bool")
    by_row = work.operator.name == "SELECT" and len(condition.shape) == 1 < len(output.shape)
    computed = any(tensor.data is None for tensor in (condition, yes, no))
    if output.scales and computed and 0 not in output.shape:
        work.describe("select", by_row=int(by_row and condition.shape[0] > 1))
    function = work.function
    tests, first, second = work.read(0, "condition"), work.read(1, "first"), work.read(2, "second")
    target = work.write()
    with function.grid(output.shape) as place:
        where = [place[0]] if by_row and condition.shape[0] > 1 else broadcast(place, condition, output)
        with function.when(raw_load(tests, where)):
            function.store(target, raw_load(first, broadcast(place, yes, output)), *place)
        with function.else_branch():
            function.store(target, raw_load(second, broadcast(place, no, output)), *place)


@lowering("GATHER_ND")
def gather_slices(work: Lowering) -> None:
    """Slices of the input; the last axis of the indices is a place in its first axes."""
    (data, output), indices = pair(work), work.tensor(1)
    _require_indices(indices)
    require_supported(indices.shape, "its indices have no axis")
    outer, depth = len(indices.shape) - 1, indices.shape[-1]
    fits = depth <= len(data.shape) and output.shape == (*indices.shape[:-1], *data.shape[depth:])
    message = f"indices {list(indices.shape)} into {list(data.shape)} do not give {list(output.shape)}"
    require_supported(fits, message)
    if data.scales and (data.data is None or indices.data is None) and depth and 0 not in output.shape:
        work.describe("taken_slices", depth=depth)
    source, places = work.read(0, "input"), work.read(1, "indices")

    def slice_of(place: list[Expr]) -> Expr:
        first = [chosen(places, [*place[:outer], int_constant(i)], data.shape[i]) for i in range(depth)]
        return raw_load(source, [*first, *place[outer:]])

    work.fill(slice_of)


@lowering("EMBEDDING_LOOKUP")
def look_up(work: Lowering) -> None:
    """Rows of input 1 by the indices of input 0."""
    data = work.tensor(1)
    same_type((data, work.output()))
    describe_taken(work, data, work.tensor(0), axis=0)
    work.fill(row_lookup(work))


def row_lookup(work: Lowering) -> Callable[[list[Expr]], Expr]:
    """A function from the place of an output element to its element of input 1."""
    indices, data, output = work.tensor(0), work.tensor(1), work.output()
    _require_indices(indices)
    fits = len(indices.shape) == 1 and output.shape == (*indices.shape, *data.shape[1:])
    require_supported(fits, f"{list(indices.shape)} rows of {list(data.shape)} are not {list(output.shape)}")
    places, source = work.read(0, "indices"), work.read(1, "input")
    return lambda place: raw_load(source, [chosen(places, place[:1], data.shape[0]), *place[1:]])


@lowering("ONE_HOT")
def one_hot(work: Lowering) -> None:
    """The value of input 2 where an index is the place along a new axis, elsewhere that of input 3."""
    indices, yes, no, output = work.tensor(0), work.tensor(2), work.tensor(3), work.output()
    same_type((output, yes, no))
    _require_indices(indices)
    rank = len(output.shape)
    require_supported(rank, "its output has no axis")
    axis = work.options("OneHotOptions").Axis()
    require_supported(-1 <= axis < rank, f"its axis is {axis}, its output {list(output.shape)}")
    axis %= rank
    require_supported(rank == len(indices.shape) + 1, f"indices {list(indices.shape)} do not give {list(output.shape)}")
    function = work.function
    places, on, off, target = work.read(0, "indices"), work.read(2, "on"), work.read(3, "off"), work.write()
    with function.grid(output.shape) as place:
        index = cast(raw_load(places, [*place[:axis], *place[axis + 1 :]]), "int32")
        with function.when(index == cast(place[axis], "int32")):
            function.store(target, first_of(on), *place)
        with function.else_branch():
            function.store(target, first_of(off), *place)


@lowering("FILL")
def lower_fill(work: Lowering) -> None:
    """One value everywhere."""
    same_type((work.tensor(1), work.output()))
    value = first_of(work.read(1, "value"))
    work.fill(lambda _: value)


@lowering("ZEROS_LIKE")
def lower_zeros(work: Lowering) -> None:
    """Zeros in the input's shape."""
    _, output = pair(work)
    work.fill(lambda _: number(0, output.dtype))


def _broadcast(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of two that are broadcast."""
    rank = max(len(first), len(second))
    pairs = list(zip(*((1,) * (rank - len(s)) + s for s in (first, second)), strict=True))
    require_supported(
        all(a == b or 1 in (a, b) for a, b in pairs), f"shapes {list(first)} and {list(second)} are not broadcast"
    )
    return tuple(b if a == 1 else a for a, b in pairs)


@lowering("RANK", "RANGE", "BROADCAST_ARGS")
def write_known(work: Lowering) -> None:
    """A number of axes, numbers from a start to a limit, the shape of two that are broadcast: all known here."""
    output = work.output()
    values: npt.NDArray[Any]
    if work.operator.name == "RANK":
        values = np.array(len(work.tensor(0).shape))
    elif work.operator.name == "RANGE":
        given = [work.constant(i, f"input {i}") for i in range(3)]
        require_supported(all(v.size for v in given), "it lacks a start, a limit or a step")
        start, limit, delta = (work.constant(i, f"input {i}").reshape(-1)[0].item() for i in range(3))
        wanted = math.prod(output.shape)
        fits = delta != 0 and abs((limit - start) / delta) <= wanted + 1
        require_supported(fits, f"from {start} to {limit} by {delta}, its output has {list(output.shape)}")
        values = np.arange(start, limit, delta)
    else:
        shapes = (tuple(work.constant(i, f"input {i}").reshape(-1).tolist()) for i in range(2))
        values = np.array(_broadcast(*shapes))
    fits = values.size == int(np.prod(output.shape))
    require_supported(fits, f"it makes {values.size} numbers, its output has {list(output.shape)}")
    table = work.table("values", values.astype(output.dtype).reshape(output.shape))
    work.fill(lambda place: raw_load(table, place))


@lowering("TILE")
def lower_tile(work: Lowering) -> None:
    """The input several times along each axis."""
    data, output = pair(work)
    fits = len(data.shape) == len(output.shape) and all(data.shape)
    fits = fits and not any(o % max(i, 1) for i, o in zip(data.shape, output.shape, strict=True))
    if work.tensor(1).data is not None:
        times = flat_values(work, 1)
        fits = fits and [i * n for i, n in zip(data.shape, times, strict=False)] == list(output.shape)
    require_supported(fits, f"{list(data.shape)} does not fill {list(output.shape)}")

    describe_picked(work, [np.arange(o) % i for i, o in zip(data.shape, output.shape, strict=True)])

    def origin(place: list[Expr]) -> list[Expr]:
        axes = zip(place, data.shape, output.shape, strict=True)
        return [p if inner == outer else floor_mod(p, inner) for p, inner, outer in axes]

    move_elements(work, origin)


@lowering("DYNAMIC_UPDATE_SLICE")
def update_slice(work: Lowering) -> None:
    """Input 0 with input 1 in it, from the place that input 2 says; it is moved so that all of it is inside."""
    data, update, at, output = work.tensor(0), work.tensor(1), work.tensor(2), work.output()
    same_type((data, update, output))
    rank = len(data.shape)
    fits = at.dtype in ("int32", "int64") and len(update.shape) == rank and at.shape == (rank,)
    fits = fits and output.shape == data.shape
    require_supported(fits, f"{list(update.shape)} is put into {list(data.shape)} at {at.dtype}s")
    function = work.function
    source, part, places = work.read(0, "input"), work.read(1, "update"), work.read(2, "places")
    target = work.write()
    starts = [
        function.bind(chosen(places, [int_constant(axis)], wide - narrow + 1), "start")
        for axis, (wide, narrow) in enumerate(zip(data.shape, update.shape, strict=True))
    ]
    with function.grid(output.shape) as place:
        inner = [function.bind(p - start, "inner") for p, start in zip(place, starts, strict=True)]
        with function.when(both(*(both(i >= 0, i < extent) for i, extent in zip(inner, update.shape, strict=True)))):
            function.store(target, raw_load(part, inner), *place)
        with function.else_branch():
            function.store(target, raw_load(source, place), *place)
