"""The words that layers write their patterns in: quantised operators, as TVM's frontends write them.

Invariant: a pattern only says which calls belong together; every number and every limit is judged by the parser of the
same record, so a pattern may match too much but never decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

PREFIX = "ethos-u"

Pattern = Any  # tvm.relax.dpl.DFPattern


def op(name: str, *arguments: Pattern) -> Pattern:
    """A call of the Relax operator `name`."""
    from tvm.relax.dpl import is_op

    return is_op(f"relax.{name}")(*arguments)


def anything() -> Pattern:
    from tvm.relax.dpl import wildcard

    return wildcard()


def constant() -> Pattern:
    from tvm.relax.dpl import is_const

    return is_const()


def fields(*patterns: Pattern) -> Pattern:
    from tvm.relax.dpl import is_tuple

    return is_tuple(list(patterns))


def dequantize(x: Pattern) -> Pattern:
    """Stored values as real ones."""
    return op("dequantize", x, constant(), constant())


def quantize(x: Pattern) -> Pattern:
    """Real values as stored ones."""
    return op("quantize", x, constant(), constant())


def clip(x: Pattern) -> Pattern:
    """Values inside of limits."""
    return op("clip", x, anything(), anything())


def result_patterns(result: Pattern) -> Iterator[Pattern]:
    """`result`, activated, quantised and clipped in every combination; longest last."""
    for activated in (result, op("nn.relu", result), clip(result)):
        stored = quantize(activated)
        yield stored
        yield clip(stored)


def alone(name: str, arguments: int = 1) -> Iterator[Pattern]:
    """An operator on stored values."""
    yield op(name, *(anything() for _ in range(arguments)))


def unary_patterns(name: str) -> Iterator[Pattern]:
    """An operator of one real value, quantised."""
    stored = quantize(op(name, dequantize(anything())))
    yield stored
    yield clip(stored)


def of_real(name: str, operands: int = 1, others: int = 0) -> Iterator[Pattern]:
    """An operator of real values, and of arguments that are none, activated and quantised."""
    values = (dequantize(anything()) for _ in range(operands))
    yield from result_patterns(op(name, *values, *(anything() for _ in range(others))))
