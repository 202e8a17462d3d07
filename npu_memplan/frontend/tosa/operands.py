"""Operands of TOSA's operators: dimensions, shapes, and what else they have.

What operators of TOSA have in addition to their tensors: rescalings, zero points, windows.

Invariant: nothing is assumed: what is no constant, or has a form that no layer takes, is a `RejectedError`.
"""

from __future__ import annotations

import numpy as np

from ...ethosu.lower.operands import Padding
from ...ethosu.lower.scaling import Scale
from ...ethosu.reading.reader import RejectedError
from ...models.tosa import TosaOperator
from .builder import STORED, GraphBuilder
from .rescaling import Rescaling

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
    return Rescaling(scales, builder.scalar(before), builder.scalar(after), twice)


def widened(builder: GraphBuilder, index: int) -> tuple[int, Rescaling]:
    """The tensor of 8 or 16 bits of which a RESCALE makes the 32-bit tensor `index`, and how."""
    operator = builder.producer(index, "RESCALE")
    source = operator.inputs[0]
    if builder.dtype(source) not in STORED:
        name = builder.graph.tensor(source).name
        raise RejectedError(f"its operand {name!r} is {builder.dtype(source)}, not of 8 or 16 bits")
    return source, rescale_numbers(builder, operator)


def shifted(builder: GraphBuilder, index: int) -> tuple[int, int, int]:
    """The same of a RESCALE that only shifts to the left: the tensor, its zero point, the bits."""
    source, rescaling = widened(builder, index)
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
    """TOSA's order is top, bottom, left, right."""
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
    """The zero point of each tensor of the graph that an operator states one of, and of those it is moved to or from.

    Where operators state several, the first one's.
    """
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
        zeros = [builder.scalar(operator.inputs[i]) for i in (3, 4)]
        return [(i, z) for i, z in zip(ends, zeros, strict=True) if builder.dtype(i) in STORED]
    if operator.kind in INPUT_ZERO and operator.kind != "AVG_POOL2D":
        maps = [i for i in (0, 1) if i == 0 or operator.inputs[i] not in builder.graph.constants]
        maps = maps if operator.kind == "MATMUL" else [0]
        return [(operator.inputs[i], builder.scalar(operator.inputs[INPUT_ZERO[operator.kind] + i])) for i in maps]
    return []
