"""MEAN, SUM, REDUCE_MAX, REDUCE_MIN, ARG_MAX, ARG_MIN, CUMSUM, ADD_N, and of plain numbers REDUCE_PROD, _ANY and _ALL.

Invariant: elements are met in the order in which they lie in memory. Sums of stored numbers are exact int32; the
division by the number of elements is part of the one multiplier that also rescales. What ADD_N and CUMSUM add is
brought to twice the scale with 20 more bits, and rescaled once.
"""

from __future__ import annotations

import math
import operator as of
from collections.abc import Callable
from typing import Any

from tvm import tirx

from ...fixed_point.multiplier import LIMITS, quantise_multiplier
from ...models.tensor import Tensor
from .common import ACTIVATION_TYPES, EIGHT_BITS, as_it_is, ends, flat_values, require_same_type, stored
from .fixed_tir import multiply_by_quantised
from .operator import Lowering, lowering, require
from .plain.numbers import NUMBERS, REAL, least, most, same, wrapped
from .tir import Expr, LocalScalar, cast, clamp, const, dtype_of, largest, load, number, raw_load, select, smallest


def axes_of(work: Lowering) -> list[int]:
    """The axes that an operator reduces, each once, ascending."""
    rank = len(work.tensor(0).shape)
    axes = sorted({a + rank if a < 0 else a for a in flat_values(work, 1)})
    require(all(0 <= a < rank for a in axes), f"it reduces axes {axes} of {rank} dimensions")
    return axes


def _joined(rank: int, axes: list[int], kept: list[Expr], reduced: list[Expr]) -> list[Expr]:
    """Indices of an input element, from those of the kept and of the reduced axes."""
    outer, inner = iter(kept), iter(reduced)
    return [next(inner) if axis in axes else next(outer) for axis in range(rank)]


def reduce(
    work: Lowering,
    name: str,
    start: Expr,
    join: Callable[[Expr, Expr], Expr],
    result: Callable[[Expr], Expr] = lambda total: total,
) -> None:
    """output = result(total), where total = join(total, element) for each element over some axes, from `start` on."""
    data, output, axes = work.tensor(0), work.output(), axes_of(work)
    function, rank = work.function, len(data.shape)
    source, target = work.read(0, "input"), work.write()
    total = function.local(name, dtype_of(start))
    with function.grid([data.shape[a] for a in range(rank) if a not in axes]) as place:
        total.set(start)
        with function.grid([data.shape[a] for a in axes], "rstuvw") as inner:
            total.set(join(total.get(), raw_load(source, _joined(rank, axes, place, inner))))
        if len(output.shape) == rank:  # reduced axes are kept with extent 1
            place = _joined(rank, axes, place, [const(0)] * len(axes))
        function.store(target, result(total.get()), *place)


@lowering("MEAN", "SUM")
def mean(work: Lowering) -> None:
    """Sum or mean over some axes."""
    data, output = ends(work, ACTIVATION_TYPES)
    count = math.prod(data.shape[a] for a in axes_of(work))
    multiplier, shift = quantise_multiplier(data.scale / output.scale)
    if work.operator.name == "MEAN":
        bits = min(count.bit_length() - 1, 32, 31 + shift)
        multiplier, shift = (multiplier << bits) // count, shift - bits

    def result(total: Expr) -> Expr:
        centred = total - const(data.zero_point * count)
        value = multiply_by_quantised(work.function, centred, multiplier, shift) + const(output.zero_point)
        return clamp(value, *LIMITS[output.dtype])

    reduce(work, "sum", const(0), lambda total, element: total + cast(element, "int32"), result)


@lowering("REDUCE_MAX", "REDUCE_MIN")
def reduce_extremum(work: Lowering) -> None:
    """Largest or smallest element over some axes."""
    data, output = ends(work, EIGHT_BITS)
    low, high = LIMITS[data.dtype]
    alike = data.scale == output.scale and data.zero_point == output.zero_point
    require(alike, "its output has another scale or zero point than its input")
    start, choose = (low, largest) if work.operator.name == "REDUCE_MAX" else (high, smallest)
    reduce(work, "best", const(start), lambda best, element: choose(best, cast(element, "int32")))


@lowering("ARG_MAX", "ARG_MIN")
def arg_extremum(work: Lowering) -> None:
    """Index of the first largest or smallest element along an axis."""
    require_same_type((work.tensor(0),), EIGHT_BITS, scaled=False)
    choose = largest if work.operator.name == "ARG_MAX" else smallest

    def update(best: LocalScalar, where: LocalScalar, value: Expr, k: Expr, better: Expr) -> None:
        where.set(select(better, k, where.get()))
        best.set(choose(best.get(), value))

    search(work, "int32", update)


def search(work: Lowering, dtype: str, update: Callable[[LocalScalar, LocalScalar, Expr, Expr, Expr], None]) -> None:
    """ARG_MAX and ARG_MIN; `update` sets the best value and its place by a value, its place, whether it is better."""
    data, output = work.tensor(0), work.output()
    require(output.dtype in ("int32", "int64"), f"output {output.name!r} is {output.dtype}, not int32 or int64")
    axis = flat_values(work, 1)[0] % max(len(data.shape), 1)
    function, take = work.function, as_it_is if work.plain else stored
    source, target = work.read(0, "input"), work.write()
    best, where = function.local("best", dtype), function.local("where")
    with function.grid([extent for a, extent in enumerate(data.shape) if a != axis]) as place:
        best.set(take(source, data, *place[:axis], const(0), *place[axis:]))
        where.set(const(0))
        with function.loop(data.shape[axis], "k") as k:
            value = function.bind(take(source, data, *place[:axis], k, *place[axis:]), "value", dtype)
            better = value > best.get() if work.operator.name == "ARG_MAX" else value < best.get()
            update(best, where, value, k, better)
        function.store(target, where.get(), *place)


_LEFT_SHIFT = 20


class _Sum:
    """The arithmetic for one scale and zero point."""

    def __init__(self, work: Lowering, data: Tensor, output: Tensor) -> None:
        self.function, self.data, self.output = work.function, data, output
        factor = 2 * data.scale / ((1 << _LEFT_SHIFT) * output.scale)
        require(factor < 1.0, f"output scale {output.scale} is too small for input scale {data.scale}")
        self.inwards, self.outwards = quantise_multiplier(0.5), quantise_multiplier(factor)

    def term(self, stored: Expr) -> Expr:
        """A stored element as a term."""
        raised = (stored - const(self.data.zero_point)) * const(1 << _LEFT_SHIFT)
        return multiply_by_quantised(self.function, raised, *self.inwards)

    def start(self) -> Expr:
        """What the reference calls zero: the term of a stored 0."""
        return self.term(const(0))

    def result(self, total: Expr) -> Expr:
        """A stored element of the output."""
        scaled = multiply_by_quantised(self.function, total, *self.outwards) + const(self.output.zero_point)
        return clamp(scaled, *LIMITS[self.output.dtype])


@lowering("ADD_N")
def add_many(work: Lowering) -> None:
    """The sum of all inputs, which have one scale and zero point."""
    output, parts = work.output(), work.tensors()
    require_same_type((output, *parts), ("int8",))
    wanted = parts[0].scale, parts[0].zero_point, output.shape
    alike = all((p.scale, p.zero_point, p.shape) == wanted for p in parts)
    require(alike, "its inputs have several shapes, scales or zero points")
    arithmetic = _Sum(work, parts[0], output)
    sources, total = work.read_all("input"), work.function.local("sum")

    def result(place: list[Expr]) -> Expr:
        total.set(arithmetic.start())
        for source in sources:
            total.add(arithmetic.term(load(source, *place)))
        return arithmetic.result(total.get())

    work.fill(result)


@lowering("CUMSUM")
def running_sum(work: Lowering) -> None:
    """The sum of all elements before along an axis, the element itself included unless it is exclusive."""
    data, output = ends(work, ("int8",))
    arithmetic = _Sum(work, data, output)
    accumulate(
        work,
        start=arithmetic.start,
        term=lambda element: work.function.bind(arithmetic.term(cast(element, "int32")), "term"),
        join=lambda total, term: total + term,
        result=arithmetic.result,
    )


def accumulate(
    work: Lowering,
    *,
    start: Callable[[], Expr],
    term: Callable[[Expr], Expr],
    join: Callable[[Expr, Expr], Expr],
    result: Callable[[Expr], Expr],
) -> None:
    """output = result(total) along an axis, where total = join(total, term(element)) from the `start` on."""
    options, data = work.options("CumsumOptions"), work.tensor(0)
    axis = flat_values(work, 1)[0] % max(len(data.shape), 1)
    function = work.function
    source, target = work.read(0, "input"), work.write()
    total = function.local("total", data.dtype if work.plain else "int32")
    with function.grid([e for a, e in enumerate(data.shape) if a != axis]) as place:
        total.set(start())
        with function.loop(data.shape[axis], "k") as k:
            at = const(data.shape[axis] - 1) - k if options.Reverse() else k
            here = [*place[:axis], at, *place[axis:]]
            value = term(raw_load(source, here))
            if options.Exclusive():
                function.store(target, result(total.get()), *here)
            total.set(join(total.get(), value))
            if not options.Exclusive():
                function.store(target, result(total.get()), *here)


Combine = Callable[[Any, Any], Any]


def _reduce_numbers(work: Lowering, start: float, combine: Combine, allowed: tuple[str, ...]) -> None:
    """output = combine(..., element), from `start` on, over some axes; divided by their number for a mean."""
    data = work.tensor(0)
    dtype = same((data, work.output()), allowed)

    def join(total: Expr, element: Expr) -> Expr:
        return wrapped(combine, total, work.function.bind(element, "element", dtype), dtype)

    def result(total: Expr) -> Expr:
        if work.operator.name != "MEAN":
            return total
        return total / number(math.prod(data.shape[a] for a in axes_of(work)), dtype)

    reduce(work, "total", number(start, dtype), join, result)


@lowering("SUM", "REDUCE_PROD", plain=True)
def total_of_numbers(work: Lowering) -> None:
    """Sum or product over some axes."""
    is_sum = work.operator.name == "SUM"
    _reduce_numbers(work, 0 if is_sum else 1, of.add if is_sum else of.mul, NUMBERS)


@lowering("MEAN", plain=True)
def mean_of_floats(work: Lowering) -> None:
    """Sum over some axes, divided by the number of its elements."""
    _reduce_numbers(work, 0, of.add, REAL)


@lowering("REDUCE_MAX", "REDUCE_MIN", plain=True)
def extremum_of_numbers(work: Lowering) -> None:
    """Largest or smallest element over some axes."""
    dtype = same((work.tensor(0), work.output()), NUMBERS)
    is_max = work.operator.name == "REDUCE_MAX"

    def better(best: Expr, x: Expr) -> Expr:
        return select(x > best if is_max else x < best, x, best)

    _reduce_numbers(work, least(dtype) if is_max else most(dtype), better, NUMBERS)


@lowering("REDUCE_ANY", "REDUCE_ALL", plain=True)
def logical(work: Lowering) -> None:
    """Whether any, or every, element over some axes is true."""
    is_all = work.operator.name == "REDUCE_ALL"
    _reduce_numbers(work, is_all, tirx.And if is_all else tirx.Or, ("bool",))


@lowering("ARG_MAX", "ARG_MIN", plain=True)
def arg_extremum_of_numbers(work: Lowering) -> None:
    """Index of the first largest or smallest element along an axis."""

    def update(best: LocalScalar, where: LocalScalar, value: Expr, k: Expr, better: Expr) -> None:
        with work.function.when(better):
            where.set(k)
            best.set(value)

    search(work, same((work.tensor(0),), NUMBERS), update)


@lowering("CUMSUM", plain=True)
def running_sum_of_numbers(work: Lowering) -> None:
    """The sum of all elements before along an axis, the element itself included unless it is exclusive."""
    dtype = same((work.tensor(0), work.output()), NUMBERS)
    accumulate(
        work,
        start=lambda: number(0, dtype),
        term=lambda element: work.function.bind(element, "value", dtype),
        join=lambda total, value: wrapped(of.add, total, value, dtype),
        result=lambda total: total,
    )
