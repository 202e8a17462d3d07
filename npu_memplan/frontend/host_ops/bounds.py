"""Whether a lowered operator stays inside of its tensors: shapes that a file states may contradict each other.

Invariant: what is refused really would access a byte outside: an access under no condition, at indices made of loop
variables alone, is worked out for the first and last turns of its loops. What depends on conditions or data is not
judged here, but by its native lowering.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tvm_ffi
from tvm import ir, tirx

_MOST_CORNERS = 256  # of the loops around one access
_BINARY: dict[type, Callable[[int, int], int]] = {
    tirx.Add: lambda a, b: a + b,
    tirx.Sub: lambda a, b: a - b,
    tirx.Mul: lambda a, b: a * b,
    tirx.FloorDiv: lambda a, b: a // b,
    tirx.FloorMod: lambda a, b: a % b,
    tirx.Min: min,
    tirx.Max: max,
}
_Loops = Mapping[Any, int]  # the last value of each loop's variable


def outside(primfunc: Any) -> tuple[str, tuple[int, ...], int] | None:
    """(name, shape, element) of the first access that is outside of its buffer; None without one."""
    for buffer, indices, loops in _accesses(primfunc.body, {}):
        shape = tuple(int(extent) for extent in buffer.shape)
        element = _outside(indices, shape, loops)
        if element is not None:
            return str(buffer.name), shape, element
    return None


def _accesses(statement: Any, loops: _Loops) -> Iterator[tuple[Any, Sequence[Any], _Loops]]:
    if isinstance(statement, tirx.SeqStmt):
        for inner in statement.seq:
            yield from _accesses(inner, loops)
    elif isinstance(statement, tirx.For):
        if isinstance(statement.extent, tirx.IntImm) and int(statement.extent.value) > 0:
            last = int(statement.extent.value) - 1
            yield from _accesses(statement.body, {**loops, statement.loop_var: last})
    elif isinstance(statement, tirx.BufferStore):
        yield statement.buffer, list(statement.indices), loops
        loads: list[Any] = []
        choices: list[Any] = []
        tvm_ffi.structural_walk(statement.value, (ir.TensorLoad, loads.append), order="pre")
        tvm_ffi.structural_walk(statement.value, (tirx.Select, choices.append), order="pre")
        if not choices:
            yield from ((load.source, list(load.indices), loops) for load in loads)


def _outside(indices: Sequence[Any], shape: Sequence[int], loops: _Loops) -> int | None:
    """The element that the first or last turns of the loops access outside of the buffer."""
    used = [variable for variable in loops if any(_names(index, variable) for index in indices)]
    size = math.prod(shape)
    corners = itertools.product(*((0, loops[variable]) for variable in used))
    for corner in itertools.islice(corners, _MOST_CORNERS):
        known = dict(zip(used, corner, strict=True))
        element = 0
        for index, extent in zip(indices, shape, strict=True):
            value = _value(index, known)
            if value is None:
                return None
            element = element * extent + value
        if not 0 <= element < size:
            return element
    return None


def _names(index: Any, variable: Any) -> bool:
    if hasattr(index, "a") and hasattr(index, "b"):
        return _names(index.a, variable) or _names(index.b, variable)
    return bool(variable.same_as(index))


def _value(index: Any, known: Mapping[Any, int]) -> int | None:
    """What an index is; None where it is more than arithmetic on loop variables."""
    if isinstance(index, tirx.IntImm):
        return int(index.value)
    if type(index) in _BINARY:
        a, b = _value(index.a, known), _value(index.b, known)
        if a is None or b is None or (b == 0 and isinstance(index, (tirx.FloorDiv, tirx.FloorMod))):
            return None
        return _BINARY[type(index)](a, b)
    return next((value for variable, value in known.items() if variable.same_as(index)), None)
