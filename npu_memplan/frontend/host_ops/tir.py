"""A small typed builder of TIR statements.

Invariant: what it builds is plain: serial loops from zero, stores, loads, binds and ifs over
whole buffers, in int32 unless stated otherwise. Scratch is allocated before everything,
in global memory, so that it is planned with the rest of the program; `LocalScalar` is a scalar
that stays in registers and is never planned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import tirx

from ...names import Names

Expr = Any
Buffer = Any


class LocalScalar:
    """A mutable scalar."""

    def __init__(self, function: Function, buffer: Buffer) -> None:
        self._function = function
        self._buffer = buffer

    def get(self) -> Expr:
        """Its value here."""
        return tirx.BufferLoad(self._buffer, [const(0)])

    def set(self, value: Expr) -> None:
        """Assign."""
        self._function.store(self._buffer, value, 0)

    def add(self, value: Expr) -> None:
        """Assign the sum."""
        self.set(self.get() + value)


class Function:
    """The body of a PrimFunc, statement by statement."""

    def __init__(self) -> None:
        self._blocks: list[list[Any]] = [[]]
        self._allocations: list[Any] = []
        self._names = Names()

    def buffer(self, name: str, shape: Sequence[int], dtype: str, scope: str = "global") -> Buffer:
        """A buffer without an allocation (a parameter)."""
        shape = [int(extent) for extent in shape] or [1]
        return tirx.decl_buffer(shape, dtype, name=self._names.unique(name), scope=scope, layout=None)

    def scratch(self, name: str, shape: Sequence[int], dtype: str) -> Buffer:
        """A planned allocation of this PrimFunc."""
        buffer = self.buffer(name, shape, dtype)
        self._allocations.append(tirx.AllocBuffer(buffer))
        return buffer

    def local(self, name: str, dtype: str = "int32") -> LocalScalar:
        """A scalar in registers; assign before reading."""
        buffer = self.buffer(name, [1], dtype, scope="local")
        self._allocations.append(tirx.AllocBuffer(buffer))
        return LocalScalar(self, buffer)

    def store(self, buffer: Buffer, value: Expr, *indices: Expr) -> None:
        """`buffer[indices] = value`, cast to the buffer's type."""
        dtype = str(buffer.dtype)
        places = [const(i) if isinstance(i, int) else i for i in indices] or [const(0)]
        self.add(tirx.BufferStore(buffer, cast(value, dtype), places))

    def bind(self, value: Expr, name: str, dtype: str = "int32") -> Expr:
        """A named value, computed once, here.

        It is a `LocalScalar`, not a let binding: TVM's simplifier expands chains of let bindings,
        which fixed-point code is full of, into expressions of exponential size.
        """
        local = self.local(name, dtype)
        local.set(value)
        return local.get()

    @contextmanager
    def loop(self, extent: int, name: str = "i") -> Iterator[Expr]:
        """A loop `0 <= variable < extent`; an extent of 1 gives the constant 0 and no loop."""
        with self.grid((extent,), (name,)) as (variable,):
            yield variable

    @contextmanager
    def grid(self, extents: Sequence[int], names: Sequence[str] = "ijklmnop") -> Iterator[list[Expr]]:
        """Nested loops, outermost first; their variables."""
        variables: list[Expr] = []
        opened: list[tuple[Expr, int]] = []
        for extent, name in zip(extents, names, strict=False):
            if int(extent) == 1:
                variables.append(const(0))
                continue
            variable = tirx.Var(self._names.unique(name), "int32")
            self._blocks.append([])
            variables.append(variable)
            opened.append((variable, int(extent)))
        yield variables
        for variable, extent in reversed(opened):
            body = self._end()
            self.add(tirx.For(variable, const(0), const(extent), tirx.ForKind.SERIAL, body))

    @contextmanager
    def when(self, condition: Expr | None) -> Iterator[None]:
        """Statements under a condition; None means always."""
        if condition is None:
            yield
            return
        self._blocks.append([])
        yield
        self.add(tirx.IfThenElse(condition, self._end(), None))

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """The else branch of the `when` just before."""
        self._blocks.append([])
        yield
        body, before = self._end(), self._blocks[-1].pop()
        self.add(tirx.IfThenElse(before.condition, before.then_case, body))

    @contextmanager
    def repeat(self, condition: Expr) -> Iterator[None]:
        """Statements as long as a condition holds."""
        self._blocks.append([])
        yield
        self.add(tirx.While(condition, self._end()))

    def copy(self, source: Buffer, target: Buffer) -> None:
        """The elements of `source` to `target`, in the order in which they are, whatever the shapes."""
        here, there = ([int(n) for n in buffer.shape] for buffer in (source, target))
        with self.loop(math.prod(here)) as i:
            self.store(target, raw_load(source, unflatten(i, here)), *unflatten(i, there))

    def inner(self, name: str, shape: Sequence[int], dtype: str) -> Buffer:
        """A planned allocation that is there from here on, in the loop or branch that is being built."""
        buffer = self.buffer(name, shape, dtype)
        self.add(tirx.AllocBuffer(buffer))
        return buffer

    def add(self, statement: Any) -> None:
        """A statement, such as the body of another function on buffers of this one."""
        self._blocks[-1].append(statement)

    def _end(self) -> Any:
        """What was built since the last block began."""
        return _sequence(self._blocks.pop())

    def call(self, function: str, arguments: Sequence[Buffer | int | float]) -> None:
        """A call of the C function `function`: pointers to the first elements of buffers, int32 and double numbers."""
        values = []
        for argument in arguments:
            if isinstance(argument, int):
                values.append(const(argument))
            elif isinstance(argument, float):
                values.append(tirx.FloatImm("float64", argument))
            else:
                values.append(tirx.address_of(first_of(argument)))
        self.add(tirx.Evaluate(tirx.call_extern("void", function, *values)))

    def finish(self, parameters: Sequence[Buffer], name: str) -> Any:
        """The PrimFunc."""
        body = _sequence([*self._allocations, *self._blocks[0]])
        function = tirx.PrimFunc(list(parameters), body)
        return function.with_attr("s_tir", True).with_attr("global_symbol", name)


def _sequence(statements: Sequence[Any]) -> Any:
    if not statements:
        return tirx.Evaluate(const(0))
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))


def const(value: int, dtype: str = "int32") -> Expr:
    """An integer constant."""
    return tirx.IntImm(dtype, int(value))


def real(value: float, dtype: str = "float32") -> Expr:
    """A floating-point constant."""
    return tirx.FloatImm(dtype, float(value))


def number(value: float, dtype: str) -> Expr:
    """A constant of any type of numbers."""
    return real(value, dtype) if dtype.startswith("float") else const(int(value), dtype)


def library(name: str, *arguments: Expr) -> Expr:
    """A call of the C library's function of float32, such as `expf`."""
    return tirx.call_pure_extern("float32", name, *arguments)


def load(buffer: Buffer, *indices: Expr) -> Expr:
    """An element as an int32 (wider types keep their width)."""
    places = [const(i) if isinstance(i, int) else i for i in indices] or [const(0)]
    value = tirx.BufferLoad(buffer, places)
    return value if str(buffer.dtype) in ("int32", "int64") else cast(value, "int32")


def raw_load(buffer: Buffer, indices: Sequence[Expr]) -> Expr:
    """An element in its own type."""
    return tirx.BufferLoad(buffer, list(indices) or [const(0)])


def first_of(buffer: Buffer) -> Expr:
    """The first element, in its own type."""
    return tirx.BufferLoad(buffer, [const(0)] * len(buffer.shape))


def dtype_of(value: Expr) -> str:
    """Element type of an expression."""
    return str(value.ty.dtype) if hasattr(value.ty, "dtype") else str(value.ty)


def cast(value: Expr, dtype: str) -> Expr:
    """`value` as `dtype`; Python ints become constants."""
    if isinstance(value, int):
        return const(value, dtype)
    return value if dtype_of(value) == dtype else tirx.Cast(dtype, value)


def largest(a: Expr, b: Expr) -> Expr:
    """Maximum."""
    return tirx.Max(*_same(a, b))


def smallest(a: Expr, b: Expr) -> Expr:
    """Minimum."""
    return tirx.Min(*_same(a, b))


def clamp(value: Expr, low: int, high: int) -> Expr:
    """`value` limited to `[low, high]`."""
    return smallest(largest(value, low), high)


def select(condition: Expr, yes: Expr, no: Expr) -> Expr:
    """`yes` if `condition` else `no`; both are evaluated."""
    return tirx.Select(condition, *_same(yes, no))


def both(*conditions: Expr | None) -> Expr | None:
    """All of the conditions; None (always true) ones drop out."""
    result = None
    for condition in conditions:
        if condition is not None:
            result = condition if result is None else tirx.And(result, condition)
    return result


def _same(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    if isinstance(a, int):
        return const(a, dtype_of(b)), b
    if isinstance(b, int):
        return a, const(b, dtype_of(a))
    return a, b


def floor_div(a: Expr, b: int) -> Expr:
    """`a // b` for a positive constant b."""
    return a if b == 1 else tirx.floordiv(a, const(b))


def floor_mod(a: Expr, b: int) -> Expr:
    """`a % b` for a positive constant b."""
    return const(0) if b == 1 else tirx.floormod(a, const(b))


def unflatten(index: Expr, shape: Sequence[int]) -> list[Expr]:
    """Indices of element number `index` of a row-major array (the index is in range)."""
    indices: list[Expr] = [const(0)] * max(len(shape), 1)
    stride = 1
    inner = [position for position, extent in enumerate(shape) if extent > 1]
    for position in reversed(inner):
        place = index if stride == 1 else tirx.floordiv(index, const(stride))
        indices[position] = place if position == inner[0] else tirx.floormod(place, const(int(shape[position])))
        stride *= int(shape[position])
    return indices


def row_indices(row: Expr, column: Expr, shape: Sequence[int]) -> list[Expr]:
    """Indices of element (row, column) of an array seen as rows of its last axis.

    When the last axis is not the row (a fully connected layer's input), `column` runs over
    all the elements and `row` must be 0.
    """
    if isinstance(row, tirx.IntImm) and int(row.value) == 0:
        return unflatten(column, shape)
    return [*unflatten(row, shape[:-1]), column]
