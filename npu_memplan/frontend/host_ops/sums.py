"""ADD_N and CUMSUM of int8: sums of several elements in the arithmetic of ADD.

Invariant: every element is brought to twice the scale with 20 more bits, summed in int32, and rescaled once.
"""

from __future__ import annotations

from collections.abc import Callable

from ...fixed_point.multiplier import LIMITS, quantise_multiplier
from ...models.tensor import Tensor
from .common import flat_values, require_same_type
from .fixed_tir import multiply_by_quantised
from .operator import Lowering, lowering, require
from .tir import Expr, cast, clamp, const, load, raw_load

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
