"""Closed forms: no access of one storage meets what an earlier access of another storage wrote.

Invariant: "never" is proven for every execution that the loops allow, those that a condition hides included; where an
index is not linear in the loops nothing is proven. Two executions are distinguished by the outermost common loop in
which they differ, as in dependence analysis: for each such loop the distance of the two elements is linear, so that its
extremes are at corners.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import ir, tirx

from .numbers import Linear, Undecided, add, element_bytes, linear, strides, times
from .trace import NestAccess


def never_meets(first: NestAccess, at: int, second: NestAccess, behind: int, known: Mapping[Any, Any]) -> bool:
    """Whether no execution of `second` touches a byte that an earlier execution of `first` touched.

    Their buffers begin at the bytes `at` and `behind` of one memory.
    """
    try:
        a, b = address(first, known), address(second, known)
        hull_of(a, first.loops), hull_of(b, second.loops)  # nothing else moves them
    except Undecided:
        return False
    a, b = (a[0] + at, a[1]), (b[0] + behind, b[1])
    apart = element_bytes(str(first.buffer.dtype)), element_bytes(str(second.buffer.dtype))
    common = 0
    for own, other in zip(first.loops, second.loops, strict=False):
        if own is not other:
            break
        common += 1
    for level in range(common):
        if first.loops[level][1] > 1 and not _outside(_distances(first, a, second, b, level), apart):
            return False
    if first.time < second.time:  # in one turn of all common loops
        return _outside(_distances(first, a, second, b, common), apart)
    return True


def begins_with_write(read: NestAccess, writes: Sequence[NestAccess]) -> bool:
    """Whether one of `writes` has stored the element before, whenever `read` is executed.

    It has where it stands before the read in the same turn of the loops around it, or in their first turns (of a sum:
    `if k == 0: o[i] = 0`), which do not move the element.
    """
    for write in writes:
        around = [level for level, _ in zip(write.loops, read.loops, strict=False)]
        outer = len(around) == len(write.loops) and all(a is b for a, b in zip(around, read.loops, strict=False))
        if not outer or write.time >= read.time or not write.buffer.same_as(read.buffer):
            continue
        rest = [c for c in write.conditions if not any(c is own for own in read.conditions)]
        firsts = [v for condition, wanted in rest for v in _first_turns(condition, wanted)]
        if None in firsts or not all(any(v.same_as(w) for w, _, _ in write.loops) for v in firsts):
            continue
        if _same_element(write, read, firsts):
            return True
    return False


def _first_turns(condition: Any, wanted: bool) -> list[Any]:
    """The loop variables that a condition wants to be 0; with None where it wants anything else."""
    if isinstance(condition, tirx.And) and wanted:
        return [*_first_turns(condition.a, True), *_first_turns(condition.b, True)]
    if isinstance(condition, tirx.EQ) and wanted and isinstance(condition.a, ir.Var):
        return [condition.a if isinstance(condition.b, tirx.IntImm) and int(condition.b.value) == 0 else None]
    return [None]


def _same_element(a: NestAccess, b: NestAccess, without: Sequence[Any]) -> bool:
    """Whether two accesses of one buffer are of the same element, whatever the variables `without` are."""
    try:
        forms = [(linear(x, {}), linear(y, {})) for x, y in zip(a.indices, b.indices, strict=True)]
    except Undecided:
        return False
    differences = [add(x, y, -1) for x, y in forms]
    if any(constant or any(terms.values()) for constant, terms in differences):
        return False
    return not any(x[1].get(v, 0) for x, _ in forms for v in without)


def hull_of(form: Linear, loops: Sequence[tuple[Any, int, int]]) -> tuple[int, int]:
    """The least and the greatest value of a linear form of the `loops`; `Undecided` if it depends on more."""
    low = high = form[0]
    extents = {var: extent for var, extent, _ in loops}
    for var, factor in form[1].items():
        if var not in extents:
            raise Undecided(var.name)
        most = factor * max(0, extents[var] - 1)
        low, high = low + min(0, most), high + max(0, most)
    return low, high


def address(access: NestAccess, known: Mapping[Any, Any]) -> Linear:
    """The first byte of the element within the buffer, as a linear form of the loops."""
    element: Linear = (0, {})
    for index, stride in zip(access.indices, strides(access.buffer, known), strict=True):
        element = add(element, linear(index, known), stride)
    return times(element, element_bytes(str(access.buffer.dtype)))


def _distances(first: NestAccess, a: Linear, second: NestAccess, b: Linear, level: int) -> tuple[int, int]:
    """The least and the greatest of `second`'s address less `first`'s, `second` a later turn of the loop at `level`.

    The loops around have the same turn, those within any.
    """
    low = high = b[0] - a[0]

    def term(values: Sequence[int]) -> None:
        nonlocal low, high
        low, high = low + min(values), high + max(values)

    for var, extent, _ in first.loops[:level]:
        factor = b[1].get(var, 0) - a[1].get(var, 0)
        term((0, factor * (extent - 1)))
    own = level
    if level < min(len(first.loops), len(second.loops)) and first.loops[level] is second.loops[level]:
        var, extent, _ = first.loops[level]
        last = extent - 1
        mine, other = a[1].get(var, 0), b[1].get(var, 0)
        term((other, other * last, other * last - mine * (last - 1)))  # turns (0, 1), (0, last), (last - 1, last)
        own += 1
    for var, extent, _ in first.loops[own:]:
        term((0, -a[1].get(var, 0) * (extent - 1)))
    for var, extent, _ in second.loops[own:]:
        term((0, b[1].get(var, 0) * (extent - 1)))
    return low, high


def _outside(distances: tuple[int, int], sizes: tuple[int, int]) -> bool:
    """Whether elements at all those distances share no byte."""
    low, high = distances
    return low >= sizes[0] or high <= -sizes[1]
