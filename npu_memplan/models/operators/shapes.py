"""The shapes that operators give their results.

Invariant: a rule looks at shapes of inputs, at constants and at options alone, and gives the shapes that the reference
gives its results. `UnknownShapeError`: they depend on values that are known only when the model runs; `ShapeError`:
operands and options contradict each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import NpuMemplanError
from ..network import CpuOperator
from ..tensor import Tensor

Shape = tuple[int, ...]
Inputs = Sequence[Any]  # of Tensor, or None where an input is left out
Rule = Callable[[CpuOperator, Inputs], Sequence[Shape]]


class UnknownShapeError(NpuMemplanError):
    """A shape is known only when the operator runs."""


class ShapeError(NpuMemplanError):
    """Operands and options of an operator have no result; the message says why."""


def options_of(operator: CpuOperator, kind: str) -> Any:
    """The built-in options of an operator; `ShapeError` when the file has none."""
    found = operator.options(kind)
    _require_shape(found is not None, f"has no {kind}, which it cannot be without")
    return found


def _require_shape(condition: object, message: str) -> None:
    if not condition:
        raise ShapeError(message)


def _numbers(tensor: Tensor | None) -> list[int]:
    """The values of a constant."""
    if tensor is None or tensor.data is None or tensor.is_variable:
        raise UnknownShapeError("it is no constant")
    return [int(v) for v in tensor.array().reshape(-1)]


def _one_number(tensor: Tensor | None, what: str) -> int:
    values = _numbers(tensor)
    _require_shape(len(values) == 1, f"its {what} is {values}, not one number")
    return values[0]


def _axis(axis: int, rank: int) -> int:
    """A number of an axis, which may count from the last one backwards."""
    _require_shape(-rank <= axis < rank, f"its axis is {axis} of {rank} dimensions")
    return axis % rank


def _require_rank(tensor: Tensor, rank: int, what: str = "input") -> None:
    shape = tensor.shape
    _require_shape(
        len(shape) == rank, f"its {what}, tensor {tensor.index}, is {list(shape)}, which is not of rank {rank}"
    )


# ------------------------------------------------------------------ element by element


def input_shape(_: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """The shape of input 0."""
    return [inputs[0].shape]


def equal_shape(_: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """The one shape of all inputs."""
    shapes = [t.shape for t in inputs]
    _require_shape(len(set(shapes)) == 1, f"its inputs have the shapes {[list(s) for s in shapes]}, not one")
    return shapes[:1]


def broadcast_shapes(shapes: Sequence[Shape]) -> Shape:
    """The shape of tensors that are broadcast."""
    rank = max(len(shape) for shape in shapes)
    made = []
    for extents in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        wide = {extent for extent in extents if extent != 1}
        _require_shape(len(wide) <= 1, f"its inputs {' and '.join(str(list(s)) for s in shapes)} are not broadcast")
        made.append(next(iter(wide), 1))
    return tuple(made)


_MOST_BROADCAST = 6  # axes


def broadcast_inputs(_: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """All inputs, broadcast."""
    found = [t.shape for t in inputs]
    fits = len({*found}) == 1 or max(map(len, found)) <= _MOST_BROADCAST
    _require_shape(
        fits, f"its inputs of {max(map(len, found))} axes are broadcast; TFLite broadcasts {_MOST_BROADCAST}"
    )
    return [broadcast_shapes(found)]


def prelu_shape(_: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """Input 0, with slopes that are broadcast to it."""
    data, slopes = inputs[0].shape, inputs[1].shape
    _require_shape(broadcast_shapes([data, slopes]) == data, f"slopes {list(slopes)} are not broadcast to {list(data)}")
    return [data]


def select_shape(operator: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """SELECT and SELECT_V2: by element; with a condition of one axis SELECT chooses by row."""
    condition, yes, no = (t.shape for t in inputs)
    if operator.name == "SELECT" and len(condition) == 1 and yes == no and condition[0] in (1, *yes[:1]):
        return [yes]
    return [broadcast_shapes([condition, yes, no])]


# ------------------------------------------------------------------ windows and products


def _window_counts(options: Any, size: Sequence[int], kernel: Sequence[int], dilation: tuple[int, int]) -> list[int]:
    """How many windows fit along height and width."""
    made = []
    steps = (options.StrideH(), options.StrideW())
    for extent, taps, step, apart in zip(size, kernel, steps, dilation, strict=True):
        reach = (taps - 1) * apart + 1
        found = -(-extent // step) if options.Padding() == 0 else (extent - reach) // step + 1
        _require_shape(found > 0 and taps > 0, f"a window of {reach} does not fit along {extent} elements")
        made.append(found)
    return made


def _require_bias(inputs: Inputs, place: int, channels: int) -> None:
    bias = inputs[place] if place < len(inputs) else None
    if bias is not None:
        _require_shape(
            bias.shape == (channels,), f"its bias, tensor {bias.index}, is {list(bias.shape)}, not [{channels}]"
        )


def convolution_shape(operator: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """CONV_2D and DEPTHWISE_CONV_2D."""
    depthwise = operator.name == "DEPTHWISE_CONV_2D"
    options = options_of(operator, "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions")
    data, weights = inputs[:2]
    _require_rank(data, 4)
    _require_rank(weights, 4, "filter")
    images, *size, depth = data.shape
    channels, groups = (weights.shape[3], weights.shape[0]) if depthwise else (weights.shape[0], weights.shape[3])
    fits = groups == 1 and channels % max(depth, 1) == 0 if depthwise else depth % max(groups, 1) == 0
    fits = fits and (depthwise or channels % max(depth // max(groups, 1), 1) == 0)
    _require_shape(fits and depth and channels, f"its filter {list(weights.shape)} does not fit {depth} channels")
    if depthwise:  # by which kernels count
        many, count = options.DepthMultiplier(), channels // depth
        _require_shape(many == count, f"its depth multiplier is {many}, its filter has {count} for each channel")
    _require_bias(inputs, 2, channels)
    dilation = (options.DilationHFactor(), options.DilationWFactor())
    return [(images, *_window_counts(options, size, weights.shape[1:3], dilation), channels)]


def transposed_convolution(operator: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """TRANSPOSE_CONV: the shape that input 0 says, if input 2 is what a convolution makes of it."""
    options, weights, data = options_of(operator, "TransposeConvOptions"), inputs[1], inputs[2]
    _require_rank(data, 4)
    _require_rank(weights, 4, "filter")
    _require_bias(inputs, 3, weights.shape[0])
    shape = tuple(_numbers(inputs[0]))
    _require_shape(len(shape) == 4, f"its output is to be {list(shape)}, which is not of rank 4")
    _require_shape(
        data.shape[3] == weights.shape[3], f"its filter {list(weights.shape)} does not fit {list(data.shape)}"
    )
    made = (shape[0], *_window_counts(options, shape[1:3], weights.shape[1:3], (1, 1)))
    fits = made == data.shape[:3] and shape[3] == weights.shape[0]
    _require_shape(fits, f"input {list(data.shape)} and filter {list(weights.shape)} do not make {list(shape)}")
    return [shape]


def pool_shape(operator: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """A window over height and width."""
    options = options_of(operator, "Pool2DOptions")
    _require_rank(inputs[0], 4)
    images, *size, depth = inputs[0].shape
    return [(images, *_window_counts(options, size, (options.FilterHeight(), options.FilterWidth()), (1, 1)), depth)]


def fully_connected(operator: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """FULLY_CONNECTED: the input as rows that are as long as those of the weights."""
    options, shape = options_of(operator, "FullyConnectedOptions"), inputs[0].shape
    _require_rank(inputs[1], 2, "weights")
    units, depth = inputs[1].shape
    _require_bias(inputs, 2, units)
    size = math.prod(shape)
    _require_shape(depth and size % depth == 0, f"its input {list(shape)} is not cut into rows of {depth}")
    if options.KeepNumDims():
        _require_shape(shape and shape[-1] == depth, f"its input {list(shape)} does not end with rows of {depth}")
        return [(*shape[:-1], units)]
    return [(size // depth, units)]


def matrix_product(operator: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """BATCH_MATMUL: the last two axes as matrices, the others broadcast."""
    options, (a, b) = options_of(operator, "BatchMatMulOptions"), (t.shape for t in inputs)
    _require_shape(min(len(a), len(b)) >= 2, f"{list(a)} and {list(b)} are not two matrices")
    rows, depth = a[:-3:-1] if options.AdjX() else a[-2:]
    inner, columns = b[:-3:-1] if options.AdjY() else b[-2:]
    _require_shape(depth == inner, f"{list(a)} and {list(b)} have {depth} columns and {inner} rows")
    return [(*broadcast_shapes([a[:-2], b[:-2]]), rows, columns)]


def filtered_history(operator: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """SVDF."""
    rank = options_of(operator, "SVDFOptions").Rank()
    data, features, times, _, state = inputs
    for tensor, what in ((data, "input"), (features, "feature weights"), (times, "time weights"), (state, "state")):
        _require_rank(tensor, 2, what)
    (images, depth), (filters, columns), (rows, memory) = data.shape, features.shape, times.shape
    fits = rank > 0 and filters % rank == 0 and (columns, rows) == (depth, filters)
    _require_shape(
        fits, f"weights {list(features.shape)} and {list(times.shape)} of rank {rank} do not fit {depth} inputs"
    )
    wanted = (images, memory * filters)
    _require_shape(
        state.shape == wanted, f"its state, tensor {state.index}, is {list(state.shape)}, not {list(wanted)}"
    )
    _require_bias(inputs, 3, filters // rank)
    return [(images, filters // rank)]


def memory_cells(_: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """UNIDIRECTIONAL_SEQUENCE_LSTM: a hidden state for each time."""
    data, hidden, cell = inputs[0], inputs[18], inputs[19]
    _require_rank(data, 3)
    cells = inputs[2].shape[:1]
    for tensor in inputs[1:5]:
        wanted = (*cells, data.shape[2])
        _require_shape(
            tensor is None or tensor.shape == wanted,
            f"its weights, tensor {tensor and tensor.index}, are {list(tensor.shape) if tensor else []}, "
            f"not {list(wanted)}",
        )
    _require_rank(hidden, 2, "hidden state")
    _require_rank(cell, 2, "cell state")
    fits = cell.shape[1:] == cells
    _require_shape(fits, f"its cell state, tensor {cell.index}, is {list(cell.shape)} for {list(cells)} cells")
    return [(*data.shape[:2], hidden.shape[1])]


# ------------------------------------------------------------------ reductions


def _reduced_axes(tensor: Tensor, rank: int) -> set[int]:
    return {_axis(axis, rank) for axis in _numbers(tensor)} if rank else set()


def reduction_shape(operator: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """The input without the axes that input 1 names, or with extent 1 there."""
    keep, shape = options_of(operator, "ReducerOptions").KeepDims(), inputs[0].shape
    axes = _reduced_axes(inputs[1], len(shape))
    return [tuple(1 if i in axes else n for i, n in enumerate(shape) if keep or i not in axes)]


def without_axis(_: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """The input without the axis that input 1 names."""
    shape = inputs[0].shape
    axis = _axis(_one_number(inputs[1], "axis"), len(shape))
    return [(*shape[:axis], *shape[axis + 1 :])]


def top_k_shapes(_: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """TOPK_V2: values, and their places."""
    shape = inputs[0].shape
    _require_shape(shape, "its input has no axis")
    return [(*shape[:-1], _one_number(inputs[1], "number of results"))] * 2


# ------------------------------------------------------------------ moves


def reshape_shape(operator: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """RESHAPE."""
    if len(inputs) > 1 and inputs[1] is not None:
        wanted = _numbers(inputs[1])
    else:
        options = options_of(operator, "ReshapeOptions")
        wanted = [int(v) for v in options.NewShapeAsNumpy()] if options.NewShapeLength() else []
    size, known = math.prod(inputs[0].shape), math.prod(extent for extent in wanted if extent != -1)
    fits = wanted.count(-1) <= 1 and min(wanted, default=0) >= -1 and (-1 not in wanted or known)
    shape = tuple(size // known if extent == -1 else extent for extent in wanted) if fits else ()
    if wanted == [0]:  # a scalar, as old converters write it
        shape = ()
    _require_shape(fits and math.prod(shape) == size, f"its input {list(inputs[0].shape)} is not reshaped to {wanted}")
    return [shape]


def pad_shape(_: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """PAD and the like."""
    amounts, shape = _numbers(inputs[1]), inputs[0].shape
    fits = len(amounts) == 2 * len(shape) and min(amounts, default=0) >= 0
    _require_shape(fits, f"its input {list(shape)} is not padded by {amounts}")
    return [tuple(n + sum(amounts[2 * i : 2 * i + 2]) for i, n in enumerate(shape))]


def resize_shape(_: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR."""
    size = _numbers(inputs[1])
    _require_rank(inputs[0], 4)
    _require_shape(len(size) == 2 and min(size) > 0, f"its new size is {size}, not a height and a width")
    return [(inputs[0].shape[0], *size, inputs[0].shape[3])]


def expand_dims_shape(_: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """EXPAND_DIMS."""
    shape = inputs[0].shape
    at = _axis(_one_number(inputs[1], "axis"), len(shape) + 1)
    return [(*shape[:at], 1, *shape[at:])]


def squeeze_shape(operator: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """SQUEEZE."""
    options, shape = options_of(operator, "SqueezeOptions"), inputs[0].shape
    named = [int(v) for v in options.SqueezeDimsAsNumpy()] if options.SqueezeDimsLength() else None
    gone = {_axis(v, len(shape)) for v in named} if named is not None else {i for i, n in enumerate(shape) if n == 1}
    _require_shape(all(shape[i] == 1 for i in gone), f"its input {list(shape)} has extents other than 1 at {named}")
    return [tuple(n for i, n in enumerate(shape) if i not in gone)]


def concatenation_shape(operator: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """CONCATENATION."""
    shapes = [t.shape for t in inputs]
    axis = _axis(options_of(operator, "ConcatenationOptions").Axis(), len(shapes[0]))
    rests = {(*s[:axis], None, *s[axis + 1 :]) for s in shapes}
    text = " and ".join(str(list(s)) for s in shapes)
    _require_shape(len(rests) == 1, f"its inputs {text} are not joined along axis {axis}")
    return [(*shapes[0][:axis], sum(s[axis] for s in shapes), *shapes[0][axis + 1 :])]


def pack_shape(operator: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """PACK."""
    options, (shape,) = options_of(operator, "PackOptions"), equal_shape(operator, inputs)
    count, given = options.ValuesCount(), len(inputs)
    _require_shape(count == given, f"its options say that it packs {count} values, and it has {given} inputs")
    axis = _axis(options.Axis(), len(shape) + 1)
    return [(*shape[:axis], given, *shape[axis:])]


def unpack_shape(operator: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """UNPACK."""
    options, shape, made = options_of(operator, "UnpackOptions"), inputs[0].shape, len(operator.outputs)
    axis = _axis(options.Axis(), len(shape))
    fits = options.Num() == shape[axis] == made
    text = f"its options say that it makes {options.Num()} values, and it has {made} outputs"
    _require_shape(fits, f"{text} of {shape[axis]} places along axis {axis}")
    return [(*shape[:axis], *shape[axis + 1 :])] * made


def split_shapes(operator: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """SPLIT: equal parts."""
    shape, made = inputs[1].shape, len(operator.outputs)
    count = options_of(operator, "SplitOptions").NumSplits()
    _require_shape(count == made, f"its options say that it makes {count} parts, and it has {made} outputs")
    axis = _axis(_one_number(inputs[0], "axis"), len(shape))
    _require_shape(shape[axis] % made == 0, f"axis {axis} of {list(shape)} is not cut into {made} parts")
    return [(*shape[:axis], shape[axis] // made, *shape[axis + 1 :])] * made


def split_by_sizes(operator: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """SPLIT_V: parts of the sizes that input 1 says, of which one may be the rest."""
    shape, made, sizes = inputs[0].shape, len(operator.outputs), _numbers(inputs[1])
    count = options_of(operator, "SplitVOptions").NumSplits()
    _require_shape(count == made == len(sizes), f"it makes {count} parts of sizes {sizes}, and has {made} outputs")
    axis = _axis(_one_number(inputs[2], "axis"), len(shape))
    rest = shape[axis] - sum(size for size in sizes if size != -1)
    sizes = [rest if size == -1 else size for size in sizes]
    fits = min(sizes) >= 0 and sum(sizes) == shape[axis]
    _require_shape(fits, f"axis {axis} of {list(shape)} is not cut into parts of {sizes}")
    return [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]


def slice_shape(_: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """SLICE."""
    shape, begins, sizes = inputs[0].shape, _numbers(inputs[1]), _numbers(inputs[2])
    fits = len(shape) == len(begins) == len(sizes)
    made = [n - b if s == -1 else s for n, b, s in zip(shape, begins, sizes, strict=False)]
    fits = fits and all(b >= 0 and 0 <= s <= n - b for n, b, s in zip(shape, begins, made, strict=True))
    _require_shape(fits, f"its input {list(shape)} has no box of {sizes} at {begins}")
    return [tuple(made)]


def strided_slice_shape(operator: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """STRIDED_SLICE."""
    options, shape = options_of(operator, "StridedSliceOptions"), inputs[0].shape
    given = [_numbers(tensor) for tensor in inputs[1:4]]
    _require_shape(len({len(values) for values in given}) == 1, "its begin, end and strides differ in length")
    bounds = list(zip(*given, strict=True))
    whole, made, axis = options.EllipsisMask(), list[int](), 0
    new = options.NewAxisMask() & ~whole
    named = sum(not (new | whole) >> bit & 1 for bit in range(len(bounds)))
    _require_shape(named <= len(shape), f"it takes {named} axes of {len(shape)}")
    for bit, (first, last, stride) in enumerate(bounds):
        if whole >> bit & 1:
            left = len(shape) - axis - named
            made += shape[axis : axis + left]
            axis += left
        elif new >> bit & 1:
            made.append(1)
        else:
            _require_shape(stride, "it has a stride of 0")
            named -= 1
            start = None if options.BeginMask() >> bit & 1 else first
            stop = None if options.EndMask() >> bit & 1 else last
            extent = len(range(*slice(start, stop, stride).indices(shape[axis])))
            if not options.ShrinkAxisMask() >> bit & 1:  # with an offset, ends count from begins, whatever EndMask says
                made.append(len(range(0, last, stride)) if options.Offset() else extent)
            axis += 1
    return [(*made, *shape[axis:])]


def transpose_shape(_: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """TRANSPOSE."""
    shape, order = inputs[0].shape, _numbers(inputs[1])
    axes = [_axis(axis, len(shape)) for axis in order]
    _require_shape(sorted(axes) == list(range(len(shape))), f"{order} is no order of the axes of {list(shape)}")
    return [tuple(shape[axis] for axis in axes)]


def given_shape(_: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """FILL: the shape that input 0 says."""
    return [tuple(_numbers(inputs[0]))]


def broadcast_to(_: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """BROADCAST_TO."""
    shape, wanted = inputs[0].shape, tuple(_numbers(inputs[1]))
    fits = len(wanted) >= len(shape) and broadcast_shapes([shape, wanted]) == wanted
    _require_shape(fits, f"its input {list(shape)} is not broadcast to {list(wanted)}")
    return [wanted]


def broadcast_arguments(_: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """BROADCAST_ARGS: a shape, as long as the longer one."""
    for tensor in inputs:
        _require_rank(tensor, 1)
    return [(max(t.shape[0] for t in inputs),)]


def tile_shape(_: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """TILE."""
    shape, times = inputs[0].shape, _numbers(inputs[1])
    fits = len(shape) == len(times) and min(times, default=0) >= 0
    _require_shape(fits, f"its input {list(shape)} is not repeated {times} times")
    return [tuple(n * t for n, t in zip(shape, times, strict=True))]


def gather_shape(operator: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """GATHER."""
    options, data, indices = options_of(operator, "GatherOptions"), inputs[0].shape, inputs[1].shape
    axis, shared = _axis(options.Axis(), len(data)), options.BatchDims()
    shared += len(indices) if shared < 0 else 0
    fits = 0 <= shared <= min(axis, len(indices)) and data[:shared] == indices[:shared]
    _require_shape(fits, f"indices {list(indices)} and {list(data)} do not share {options.BatchDims()} dimensions")
    return [(*data[:axis], *indices[shared:], *data[axis + 1 :])]


def gathered_slices(_: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """GATHER_ND."""
    data, indices = inputs[0].shape, inputs[1].shape
    _require_shape(indices and indices[-1] <= len(data), f"indices {list(indices)} are no places of {list(data)}")
    return [(*indices[:-1], *data[indices[-1] :])]


def looked_up(_: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """EMBEDDING_LOOKUP: rows of input 1."""
    _require_rank(inputs[0], 1, "indices")
    _require_shape(len(inputs[1].shape) >= 2, f"{list(inputs[1].shape)} has no rows")
    return [(*inputs[0].shape, *inputs[1].shape[1:])]


def one_hot(operator: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """ONE_HOT."""
    shape, axis = inputs[0].shape, options_of(operator, "OneHotOptions").Axis()
    at = _axis(axis, len(shape) + 1)
    return [(*shape[:at], _one_number(inputs[1], "depth"), *shape[at:])]


def update_shape(_: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """DYNAMIC_UPDATE_SLICE: input 0, with input 1 somewhere in it."""
    data, update, places = (t.shape for t in inputs)
    fits = len(data) == len(update) and places == (len(data),)
    fits = fits and all(u <= n for u, n in zip(update, data, strict=True))
    _require_shape(fits, f"{list(update)} is not put into {list(data)} at {list(places)} places")
    return [data]


def scatter_shape(_: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """SCATTER_ND: the shape that input 2 says."""
    return [tuple(_numbers(inputs[2]))]


def of_depth(operator: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """DEPTH_TO_SPACE and SPACE_TO_DEPTH."""
    to_space = operator.name == "DEPTH_TO_SPACE"
    block = options_of(operator, "DepthToSpaceOptions" if to_space else "SpaceToDepthOptions").BlockSize()
    _require_rank(inputs[0], 4)
    images, height, width, depth = inputs[0].shape
    fits = block > 0 and (depth % (block * block) == 0 if to_space else height % block == width % block == 0)
    _require_shape(fits, f"its input {list(inputs[0].shape)} has no blocks of {block}")
    if to_space:
        return [(images, height * block, width * block, depth // (block * block))]
    return [(images, height // block, width // block, depth * block * block)]


def of_batches(operator: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND."""
    shape, block, borders = inputs[0].shape, _numbers(inputs[1]), _numbers(inputs[2])
    count = len(block)
    fits = count and min(block) > 0 and len(borders) == 2 * count and min(borders) >= 0 and len(shape) > count
    text = f"its input {list(shape)} with blocks {block} and borders {borders}"
    _require_shape(fits, f"{text} has no result")
    images, size, rest = shape[0], shape[1 : count + 1], shape[count + 1 :]
    edges = [sum(borders[2 * i : 2 * i + 2]) for i in range(count)]
    if operator.name == "SPACE_TO_BATCH_ND":
        wide = [n + e for n, e in zip(size, edges, strict=True)]
        _require_shape(all(n % b == 0 for n, b in zip(wide, block, strict=True)), f"{text} has no whole blocks")
        return [(images * math.prod(block), *(n // b for n, b in zip(wide, block, strict=True)), *rest)]
    made = [n * b - e for n, b, e in zip(size, block, edges, strict=True)]
    _require_shape(images % math.prod(block) == 0 and min(made) >= 0, f"{text} has no result")
    return [(images // math.prod(block), *made, *rest)]


# ------------------------------------------------------------------ shapes as values


def rank_of(_: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """SHAPE: as many numbers as the input has axes."""
    return [(len(inputs[0].shape),)]


def scalar_shape(_: CpuOperator, __: Inputs) -> Sequence[Shape]:
    """One number."""
    return [()]


def counted_up(_: CpuOperator, inputs: Inputs) -> Sequence[Shape]:
    """RANGE: from input 0 to input 1 by input 2."""
    for tensor in inputs:
        _numbers(tensor)
    given = [t.array().reshape(-1) for t in inputs]
    _require_shape(all(values.size == 1 for values in given), "its start, limit and step are not one number each")
    start, limit, step = (values[0].item() for values in given)
    _require_shape(step, "its step is 0")
    return [(max(0, math.ceil((limit - start) / step)),)]
