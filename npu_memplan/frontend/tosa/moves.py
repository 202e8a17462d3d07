"""Layers of operators that move, choose or resize stored values, and functions of one value as tables.

Invariant: flags are 0 and 1 as TOSA has them; what is compared are the 32-bit numbers of the file. Positions are the
specification's, `(index * denominator + offset) / numerator`; the nearest one is taken, halves the next one, or both
neighbours by weights. Stored values stay what they are, but for those that a CLAMP limits. Values are what TOSA's
operators make of every 8-bit number; where one would not fit 32 bits, which TOSA leaves open, the graph is refused.
Results of int16 are those of TOSA's TABLE and RESCALE for every one of 65,536 values, which are all tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ethosu.layers.activation import Interpolation, Lookup
from ...ethosu.layers.elementwise import ComparedMaps, Numbers, Select, comparison_tables
from ...ethosu.layers.indexed import PlacedRows, TakenRows
from ...ethosu.layers.movement import Concat, Pad, Reshape, Reverse, Slice, Transpose
from ...ethosu.layers.pool import PoolKind, PoolLayer
from ...ethosu.layers.resize import Phase, Resize
from ...ethosu.lower.operands import INT8, Padding
from ...ethosu.lower.scaling import Scale
from ...ethosu.reading.reader import RejectedError
from ...ethosu.stream.isa import ElementwiseMode
from ...models.tosa import TosaOperator
from .builder import (
    EVERY_BYTE,
    MOST,
    Clamp,
    Emitter,
    GraphBuilder,
    Rescaling,
    clamp_of,
    group_axes,
    image_shape,
    join_axes,
    neighbour_swaps,
    rescale_numbers,
)

_INT32 = np.iinfo(np.int32)
PAIRS: dict[str, Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[Any]]] = {
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "MAXIMUM": np.maximum,
    "MINIMUM": np.minimum,
}
FUNCTIONS = frozenset(("ABS", "NEGATE", "RESCALE", *PAIRS))


@dataclass(frozen=True, slots=True, eq=False)
class ByteFunction:
    """The 32-bit values that are made of each value of the int8 tensor `source`, from -128 on."""

    source: int
    values: NDArray[np.int64]


def byte_function(builder: GraphBuilder, index: int, before: int) -> ByteFunction | None:
    """How 32-bit tensor `index` follows from one int8 tensor before operator `before`; None: it does not."""
    made = builder.made_by.get(index)
    if made is None or made.index >= before or made.kind not in FUNCTIONS or not made.inputs:
        return None
    if builder.dtype(index) != "int32":
        return None  # its values would have been narrowed
    if made.kind in PAIRS:
        return _of_constant(builder, made)
    source, values = made.inputs[0], EVERY_BYTE
    if made.kind != "RESCALE" or builder.dtype(source) != "int8":
        known = byte_function(builder, source, made.index)
        if known is None:
            return None
        source, values = known.source, known.values
    elif source in builder.graph.constants:
        return None
    if made.kind == "RESCALE":
        return _fitting(made, source, rescale_numbers(builder, made)(values))
    if made.kind == "NEGATE" and any(builder.scalar_value(zero) for zero in made.inputs[1:]):
        return None
    return _fitting(made, source, np.abs(values) if made.kind == "ABS" else -values)


def _of_constant(builder: GraphBuilder, operator: TosaOperator) -> ByteFunction | None:
    """An operator of two values, of which one is one constant."""
    pair = operator.inputs[:2]
    if operator.kind == "MUL" and builder.scalar_value(operator.inputs[2]):
        return None
    for place, index in enumerate(pair):
        constant = constant_values(builder, pair[1 - place])
        if constant is None or constant.size != 1:
            continue
        known = byte_function(builder, index, operator.index)
        if known is not None:
            operands = [known.values, constant.reshape(1)]
            return _fitting(operator, known.source, PAIRS[operator.kind](*(operands[::-1] if place else operands)))
    return None


def constant_values(builder: GraphBuilder, index: int) -> NDArray[np.int64] | None:
    """The values of a 32-bit tensor that is constant, or a RESCALE of a stored constant; None of others."""
    known = builder.graph.constants.get(index)
    if known is not None:
        return known.astype(np.int64)
    made = builder.made_by.get(index)
    if made is None or made.kind != "RESCALE" or not made.inputs:
        return None
    stored = builder.graph.constants.get(made.inputs[0])
    if stored is None or stored.dtype not in (np.int8, np.int16):
        return None
    return rescale_numbers(builder, made)(stored.astype(np.int64))


def _fitting(operator: TosaOperator, source: int, values: NDArray[Any]) -> ByteFunction:
    if values.min() < _INT32.min or values.max() > _INT32.max:
        raise RejectedError(f"operator {operator.index} ({operator.kind}) makes values beyond 32 bits")
    return ByteFunction(source, values)


_LINES, _STEP_BITS = 512, 7
_INT16 = np.iinfo(np.int16)


def byte_table(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """TABLE of int8."""
    entries = builder.constant(operator.inputs[1]).reshape(-1).astype(np.int64)
    table = tuple(int(v) for v in np.clip(entries, *clamp))
    builder.add(operator, Lookup("table", (builder.move_source(operator.inputs[0]),), "", table))


def emit_negate(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """NEGATE of int8, as a table."""
    if builder.dtype(operator.inputs[0]) != "int8":
        raise RejectedError(f"it negates {builder.dtype(operator.inputs[0])}, not int8")
    before, after = (builder.scalar_value(zero) for zero in operator.inputs[1:])
    table = tuple(int(v) for v in np.clip(after + before - EVERY_BYTE, *clamp))
    builder.add(operator, Lookup("negate", (builder.move_source(operator.inputs[0]),), "", table), after)


def word_table(
    builder: GraphBuilder, operator: TosaOperator, computed: TosaOperator, numbers: Rescaling, clamp: Clamp
) -> None:
    """TABLE of int16, whose results have 7 bits of fraction, and the RESCALE that rounds them."""
    entries = builder.constant(computed.inputs[1]).reshape(-1).astype(np.int64)
    types = builder.dtype(computed.inputs[0]), builder.dtype(operator.outputs[0])
    if types != ("int16", "int16") or len(entries) != _LINES + 1:
        raise RejectedError(f"it makes {types[1]} of {types[0]} with {len(entries)} entries; int16 of int16 fits")
    base, slope = entries[:-1, None], np.diff(entries)[:, None]
    if slope.min() < _INT16.min or slope.max() > _INT16.max:
        raise RejectedError("a line of its table rises by more than 16 bits")
    lines = (base << _STEP_BITS) + slope * np.arange(1 << _STEP_BITS)
    wanted = np.clip(numbers(lines), *clamp)
    if not np.array_equal(lines + (1 << _STEP_BITS - 1) >> _STEP_BITS, wanted):
        raise RejectedError("its RESCALE does more than round 7 bits of fraction")
    words = tuple(int(v) for v in ((slope << 16) | (base & 0xFFFF)).reshape(-1))
    builder.add(
        operator, Interpolation("table", (builder.read(computed.inputs[0], 0),), "", words), numbers.output_zero
    )


_MODES = {"EQUAL": ElementwiseMode.CMP_EQ, "GREATER": ElementwiseMode.CMP_GT, "GREATER_EQUAL": ElementwiseMode.CMP_GE}


def _emit_comparison(mode: ElementwiseMode, builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    names, numbers = zip(*(_compared_operand(builder, operator, index) for index in operator.inputs), strict=True)
    both = comparison_tables((numbers[0], numbers[1]))
    builder.add(operator, ComparedMaps(operator.kind.lower(), (names[0], names[1]), "", mode, both))


def _compared_operand(builder: GraphBuilder, operator: TosaOperator, index: int) -> tuple[str, Numbers]:
    """The name of an int8 tensor, and the 32-bit number that each of its values stands for in tensor `index`."""
    constant = constant_values(builder, index)
    if constant is not None:
        values, places = np.unique(constant.reshape(-1), return_inverse=True)
        if len(values) > 1 << 8:
            raise RejectedError(f"it compares with {len(values)} constants; at most 256 are told apart")
        numbers = tuple(int(v) for v in values) + (int(values[-1]),) * (256 - len(values))
        return builder.tensor_like(index, 0, places + INT8[0]), numbers
    known = byte_function(builder, index, operator.index)
    if known is None or builder.shape(known.source) != builder.shape(index):
        raise RejectedError(f"its operand {builder.graph.tensor(index).name!r} is no function of one int8 tensor")
    return builder.read(known.source), tuple(int(v) for v in known.values)


def _emit_select(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    flags, yes, no = (builder.read(index) for index in operator.inputs)
    builder.add(operator, Select("select", (flags, yes, no), ""))


CHOOSING: dict[str, Emitter] = {
    **{kind: partial(_emit_comparison, mode) for kind, mode in _MODES.items()},
    "SELECT": _emit_select,
}


_NEAREST, _BILINEAR = 1, 2  # ResizeMode
_MOST = 16  # output positions for one of the input


def resized_shape(operator: TosaOperator, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of its result."""
    extents = []
    for axis, (numerator, denominator, offset, border) in enumerate(_resize_axes(operator)):
        last = (shape[1 + axis] - 1) * numerator - offset + border
        if last < 0 or last % denominator:
            raise RejectedError(f"its positions do not end at the border {border}")
        extents.append(last // denominator + 1)
    return shape[0], extents[0], extents[1], shape[3]


def nearest_layer(builder: GraphBuilder, operator: TosaOperator) -> Resize:
    """The layer of a RESIZE that picks values."""
    if operator.number(0) != _NEAREST:
        raise RejectedError("it mixes neighbours; those that pick the nearest are taken")
    return _layer(builder, operator, mixes=False)


def mixed_layer(builder: GraphBuilder, operator: TosaOperator, scale: Scale) -> Resize:
    """The layer of a RESIZE that mixes neighbours, whose sums are multiplied by `scale`."""
    if operator.number(0) != _BILINEAR or builder.dtype(operator.inputs[0]) != "int8":
        raise RejectedError(f"RESIZE makes {builder.dtype(operator.outputs[0])} of {builder.dtype(operator.inputs[0])}")
    (rows, *_), (columns, *_) = _resize_axes(operator)
    if scale.multiplier * rows * columns != 1 << scale.shift:
        raise RejectedError(f"its sums are not divided by {rows * columns}, which its weights add up to")
    return _layer(builder, operator, mixes=True)


def _layer(builder: GraphBuilder, operator: TosaOperator, mixes: bool) -> Resize:
    shape, wanted = builder.shape(operator.inputs[0]), builder.shape(operator.outputs[0])
    rows, columns = (
        _resize_phases(numerator, denominator, offset, (shape[1 + axis], wanted[1 + axis]), mixes)
        for axis, (numerator, denominator, offset, _) in enumerate(_resize_axes(operator))
    )
    return Resize("resize", (builder.move_source(operator.inputs[0]),), "", rows, columns, halves_up=mixes)


def _resize_axes(operator: TosaOperator) -> list[tuple[int, int, int, int]]:
    """Numerator, denominator, offset and border along height and width."""
    scale, offset, border = operator.shapes
    found = [(scale[2 * axis], scale[2 * axis + 1], offset[axis], border[axis]) for axis in (0, 1)]
    if any(numerator < 1 or denominator < 1 for numerator, denominator, _, _ in found):
        raise RejectedError(f"its scale is {list(scale)}")
    return found


def _resize_phases(
    numerator: int, denominator: int, offset: int, sizes: tuple[int, int], mixes: bool
) -> tuple[Phase, ...]:
    size, wanted = sizes
    factor, rest = divmod(numerator, denominator)
    if rest or factor > _MOST or wanted != factor * size:
        raise RejectedError(f"it makes {wanted} positions of {size}; the NPU makes up to {_MOST} of each")
    phases = []
    for index in range(factor):
        first, part = divmod(index * denominator + offset, numerator)
        weight = Fraction(part, numerator)
        if not mixes:
            first, weight = first + (2 * part >= numerator), Fraction(0)
        if not -1 <= first <= 1 - mixes:
            raise RejectedError(f"its offset {offset} is more than one position")
        if weight.denominator & (weight.denominator - 1):
            raise RejectedError(f"it mixes neighbours by parts of {weight.denominator}; only powers of two are exact")
        phases.append(Phase(first, weight.numerator, weight.denominator))
    return tuple(phases)


def _emit_clamp(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """A clamp of a tensor that others read too: a maximum of one element."""
    low, high = clamp_of(builder, operator)
    both = max(low, clamp[0]), min(high, clamp[1])
    shape = image_shape(builder.shape(operator.outputs[0]))
    image = builder.reshape(builder.move_source(operator.inputs[0]), shape)
    builder.add_reshaped(operator, PoolLayer("clamp", (image,), "", PoolKind.MAX, (1, 1), both), shape)


def _emit_reshape(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    builder.add(operator, Reshape("reshape", (builder.move_source(operator.inputs[0]),), ""))


def _emit_transpose(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """Emit a transpose: where no layer does it at once, neighbours change places, one pair after the other."""
    stated, name = (builder.shape(operator.inputs[0]), operator.numbers(0)), builder.move_source(operator.inputs[0])
    shape, axes = join_axes(*stated)
    if len(axes) < 2:
        builder.add(operator, Reshape("reshape", (name,), ""))
        return
    zero = builder.zero_points.get(operator.outputs[0], 0)
    at_once = next((step for step in (stated, (shape, axes)) if _fits(builder, name, *step)), None)
    steps = [at_once] if at_once else neighbour_swaps(shape, axes)
    for place, (shape, axes) in enumerate(steps, 1):
        layer = Transpose("transpose", (builder.reshape(name, shape),), "", axes)
        made = tuple(shape[axis] for axis in axes)
        if place == len(steps):
            builder.add_reshaped(operator, layer, made)
        else:
            name = builder.append_between(operator, layer, zero, made)


def _fits(builder: GraphBuilder, name: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    seen = replace(builder.tensors[name], shape=shape)
    return len(axes) <= MOST and Transpose("", (name,), "", axes).unsupported_by(builder.target, (seen,)) is None


def _emit_slice(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    begin, shape = operator.shapes[0] if operator.shapes else (), builder.shape(operator.inputs[0])
    if len(begin) != len(shape):
        raise RejectedError("its start is no constant")
    name, made = builder.move_source(operator.inputs[0]), builder.shape(operator.outputs[0])
    if len(begin) <= MOST:
        builder.add(operator, Slice("slice", (name,), "", begin, (1,) * len(begin)))
        return
    zero = builder.zero_points.get(operator.outputs[0], 0)
    for axis, extent in enumerate(made):  # one after the other
        if extent < shape[axis]:
            whole = group_axes(shape, (axis,))
            shape = (*shape[:axis], extent, *shape[axis + 1 :])
            layer = Slice("slice", (builder.reshape(name, whole),), "", (0, begin[axis], 0), (1, 1, 1))
            name = builder.append_between(operator, layer, zero, group_axes(shape, (axis,)))
    builder.add(operator, Reshape("reshape", (name,), ""))


def _emit_concat(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    names, made = [builder.move_source(i) for i in operator.inputs], builder.shape(operator.outputs[0])
    axis = operator.number(0)
    if len(made) > MOST:
        seen = [group_axes(builder.shape(i), (axis,)) for i in operator.inputs]
        names = [builder.reshape(name, shape) for name, shape in zip(names, seen, strict=True)]
        made, axis = group_axes(made, (axis,)), 1
    builder.add_reshaped(operator, Concat("concat", tuple(names), "", axis - len(made)), made)


def _emit_tile(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """Repeated along one axis after the other."""
    name, shape = builder.move_source(operator.inputs[0]), builder.shape(operator.inputs[0])
    zero = builder.zero_points.get(operator.outputs[0], 0)
    for axis, count in enumerate(operator.shapes[0]):
        if count > 1:
            seen = builder.reshape(name, group_axes(shape, (axis,)))
            shape = (*shape[:axis], shape[axis] * count, *shape[axis + 1 :])
            name = builder.append_between(
                operator, Concat("tile", (seen,) * count, "", -2), zero, group_axes(shape, (axis,))
            )
    builder.add(operator, Reshape("reshape", (name,), ""))


def _emit_resize(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    builder.add(operator, nearest_layer(builder, operator))


def _emit_pad(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    stated = operator.shapes[0] if operator.shapes else ()
    widths = (0,) * (8 - len(stated)) + stated
    if len(widths) != 8 or any(widths[:2]) or min(widths) < 0:
        raise RejectedError(f"it pads {list(stated)} in front of and behind each dimension; images fit, not batches")
    padding = Padding(widths[2], widths[4], widths[3], widths[5])
    value = builder.scalar_value(operator.inputs[1])
    shape, made = (
        shape if len(shape) == MOST else image_shape(shape)
        for shape in (builder.shape(i) for i in (operator.inputs[0], operator.outputs[0]))
    )
    image = builder.reshape(builder.move_source(operator.inputs[0]), shape)
    builder.add_reshaped(operator, Pad("pad", (image,), "", padding, value, (widths[6], widths[7])), made)


def _emit_reverse(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """Backwards along one axis, with what is before and after it as one axis each."""
    shape, axis = group_axes(builder.shape(operator.inputs[0]), (operator.number(0),)), 1
    name = builder.reshape(builder.move_source(operator.inputs[0]), shape)
    builder.add_reshaped(operator, Reverse("reverse", (name,), "", axis, axis), shape)


def _taken_rows(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """GATHER of each image's rows, which also are of a constant."""
    values, indices = operator.inputs
    chosen = builder.reshape(_indices(builder, indices), builder.shape(indices))
    builder.add(operator, TakenRows("gather", (builder.read(values), chosen), "", axis=1, shared=1))


def _placed_rows(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """SCATTER; its indices do not repeat."""
    values, indices, rows = operator.inputs
    chosen = builder.reshape(_indices(builder, indices), builder.shape(indices))
    builder.add(operator, PlacedRows("scatter", (builder.read(values), chosen, builder.read(rows)), ""))


def _indices(builder: GraphBuilder, index: int) -> str:
    """The name of a tensor with the indices in their order, before it got its shape."""
    made = builder.made_by.get(index)
    while made is not None and made.kind in ("RESHAPE", "IDENTITY"):
        index = made.inputs[0]
        made = builder.made_by.get(index)
    return builder.read(index)


MOVES: dict[str, Emitter] = {
    "CLAMP": _emit_clamp,
    "RESHAPE": _emit_reshape,
    "IDENTITY": _emit_reshape,
    "TRANSPOSE": _emit_transpose,
    "SLICE": _emit_slice,
    "CONCAT": _emit_concat,
    "PAD": _emit_pad,
    "TILE": _emit_tile,
    "RESIZE": _emit_resize,
    "REVERSE": _emit_reverse,
    "GATHER": _taken_rows,
    "SCATTER": _placed_rows,
}
