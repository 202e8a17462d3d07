"""MEAN, SUM, REDUCE_MAX, REDUCE_MIN, ARG_MAX, ARG_MIN, and, in the arithmetic of ADD, ADD_N and CUMSUM of int8.

Invariant: sums are exact int32; the division by the number of elements is part of the one multiplier that also
rescales. What ADD_N and CUMSUM add is brought to twice the scale with 20 more bits, and rescaled once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...fixed_point.multiplier import LIMITS, quantise_multiplier
from ...models.tensor import Tensor
from .common import ACTIVATION_TYPES, EIGHT_BITS, as_it_is, flat_values, require_same_type, stored
from .fixed_tir import multiply_by_quantised
from .operator import Lowering, lowering, require
from .tir import Expr, LocalScalar, cast, clamp, const, dtype_of, largest, load, raw_load, select, smallest


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
    data, output = work.tensor(0), work.output()
    require_same_type((data, output), ACTIVATION_TYPES)
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
    data, output = work.tensor(0), work.output()
    low, high = LIMITS[require_same_type((data, output), EIGHT_BITS)]
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
    data, output = work.tensor(0), work.output()
    require_same_type((data, output), ("int8",))
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
