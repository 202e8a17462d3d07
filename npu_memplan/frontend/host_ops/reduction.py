"""MEAN, SUM, REDUCE_MAX, REDUCE_MIN, ARG_MAX and ARG_MIN.

Invariant: sums are exact int32; the division by the number of elements is part of the one
multiplier that also rescales.
"""

from __future__ import annotations

import math

from ...fixed_point.multiplier import LIMITS, quantise_multiplier
from .common import ACTIVATION_TYPES, EIGHT_BITS, flat_values, require_same_type
from .fixed_tir import multiply_by_quantised
from .operator import Lowering, UnsupportedOperatorError, lowering
from .tir import Expr, clamp, const, largest, load, select, smallest


def axes_of(work: Lowering, rank: int) -> list[int]:
    """The axes that an operator reduces, each once, ascending."""
    axes = sorted({a + rank if a < 0 else a for a in flat_values(work, 1)})
    if any(not 0 <= a < rank for a in axes):
        raise UnsupportedOperatorError(f"it reduces axes {axes} of {rank} dimensions")
    return axes


def joined(rank: int, axes: list[int], kept: list[Expr], reduced: list[Expr]) -> list[Expr]:
    """Indices of an input element, from those of the kept and of the reduced axes."""
    outer, inner = iter(kept), iter(reduced)
    return [next(inner) if axis in axes else next(outer) for axis in range(rank)]


@lowering("MEAN", "SUM")
def mean(work: Lowering) -> None:
    """Sum or mean over some axes."""
    data, output = work.tensor(0), work.output()
    require_same_type((data, output), ACTIVATION_TYPES)
    rank = len(data.shape)
    axes = axes_of(work, rank)
    count = math.prod(data.shape[a] for a in axes)
    multiplier, shift = quantise_multiplier(data.scale / output.scale)
    if work.operator.name == "MEAN":
        bits = min(count.bit_length() - 1, 32, 31 + shift)
        multiplier, shift = (multiplier << bits) // count, shift - bits
    low, high = LIMITS[output.dtype]
    function = work.function
    source, target = work.read(0, "input"), work.write()
    total = function.local("sum")
    kept = [data.shape[a] for a in range(rank) if a not in axes]
    with function.grid(kept) as place:
        total.set(const(0))
        with function.grid([data.shape[a] for a in axes], "rstuvw") as inner:
            total.add(load(source, *joined(rank, axes, place, inner)))
        centred = total.get() - const(data.zero_point * count)
        value = multiply_by_quantised(function, centred, multiplier, shift) + const(output.zero_point)
        function.store(target, clamp(value, low, high), *output_place(output.shape, rank, axes, place))


@lowering("REDUCE_MAX", "REDUCE_MIN")
def reduce_extremum(work: Lowering) -> None:
    """Largest or smallest element over some axes."""
    data, output = work.tensor(0), work.output()
    kind = require_same_type((data, output), EIGHT_BITS)
    if data.scale != output.scale or data.zero_point != output.zero_point:
        raise UnsupportedOperatorError("its output has another scale or zero point than its input")
    rank = len(data.shape)
    axes = axes_of(work, rank)
    is_max = work.operator.name == "REDUCE_MAX"
    choose = largest if is_max else smallest
    function = work.function
    source, target = work.read(0, "input"), work.write()
    best = function.local("best")
    with function.grid([data.shape[a] for a in range(rank) if a not in axes]) as place:
        best.set(const(LIMITS[kind][0 if is_max else 1]))
        with function.grid([data.shape[a] for a in axes], "rstuvw") as inner:
            best.set(choose(best.get(), load(source, *joined(rank, axes, place, inner))))
        function.store(target, best.get(), *output_place(output.shape, rank, axes, place))


def output_place(shape: tuple[int, ...], rank: int, axes: list[int], place: list[Expr]) -> list[Expr]:
    """Indices of an output element; reduced axes may be kept with extent 1."""
    if len(shape) == rank:
        return joined(rank, axes, place, [const(0)] * len(axes))
    return place


@lowering("ARG_MAX", "ARG_MIN")
def arg_extremum(work: Lowering) -> None:
    """Index of the first largest or smallest element along an axis."""
    data, output = work.tensor(0), work.output()
    require_same_type((data,), EIGHT_BITS, scaled=False)
    if output.dtype not in ("int32", "int64"):
        raise UnsupportedOperatorError(f"output {output.name!r} is {output.dtype}, not int32 or int64")
    axis = flat_values(work, 1)[0] % max(len(data.shape), 1)
    function = work.function
    source, target = work.read(0, "input"), work.write()
    is_max = work.operator.name == "ARG_MAX"
    choose = largest if is_max else smallest
    best, where = function.local("best"), function.local("where")
    with function.grid([extent for a, extent in enumerate(data.shape) if a != axis]) as place:
        best.set(load(source, *place[:axis], 0, *place[axis:]))
        where.set(const(0))
        with function.loop(data.shape[axis], "k") as k:
            value = function.bind(load(source, *place[:axis], k, *place[axis:]), "value")
            better = value > best.get() if is_max else value < best.get()
            where.set(select(better, k, where.get()))
            best.set(choose(best.get(), value))
        function.store(target, where.get(), *place)
