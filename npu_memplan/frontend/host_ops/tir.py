"""A small typed builder of TIR statements, and TFLite's fixed-point arithmetic in it.

Invariant: all that it builds is serial loops from zero, stores, loads, binds and ifs over whole buffers, in int32
unless stated otherwise. Scratch is allocated before everything, in global memory, so that it is planned with the rest
of the program; `LocalScalar` is a scalar that stays in registers and is never planned. The fixed-point functions give
the results of `fixed_point` for every int32 input that the reference kernels can get; products are formed in int64,
everything else in int32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from ...fixed_point import EXP_MINUS_EIGHTH, INT32_MAX, ONE_THIRD, ROOT_HALF, exp_steps
from ...names import Names

Expr = Any
Buffer = Any


class LocalScalar:
    """A mutable scalar."""

    def __init__(self, function: Function, buffer: Buffer) -> None:
        self._function = function
        self._buffer = buffer

    def read(self) -> Expr:
        """Its value here."""
        return tirx.BufferLoad(self._buffer, [int_constant(0)])

    def set(self, value: Expr) -> None:
        """Assign."""
        self._function.store(self._buffer, value, 0)

    def add(self, value: Expr) -> None:
        """Assign the sum."""
        self.set(self.read() + value)


class Function:
    """The body of a PrimFunc, statement by statement."""

    def __init__(self) -> None:
        self._blocks: list[list[Any]] = [[]]
        self._allocations: list[Any] = []
        self._names = Names()

    def buffer(self, name: str, shape: Sequence[int], dtype: str, scope: str = "global") -> Buffer:
        """A buffer without an allocation (a parameter)."""
        shape = [int(extent) for extent in shape] or [1]
        return tirx.decl_buffer(shape, dtype, name=self._names.unique_name(name), scope=scope, layout=None)

    def scratch(self, name: str, shape: Sequence[int], dtype: str) -> Buffer:
        """A planned allocation of this PrimFunc."""
        buffer = self.buffer(name, shape, dtype)
        self._allocations.append(tirx.AllocBuffer(buffer))
        return buffer

    def declare(self, allocation: Any) -> None:
        """An allocation of another function, whose statements this one takes over."""
        self._allocations.append(allocation)

    def local(self, name: str, dtype: str = "int32") -> LocalScalar:
        """A scalar in registers; assign before reading."""
        buffer = self.buffer(name, [1], dtype, scope="local")
        self._allocations.append(tirx.AllocBuffer(buffer))
        return LocalScalar(self, buffer)

    def store(self, buffer: Buffer, value: Expr, *indices: Expr) -> None:
        """`buffer[indices] = value`, cast to the buffer's type."""
        dtype = str(buffer.dtype)
        places = [int_constant(i) if isinstance(i, int) else i for i in indices] or [int_constant(0)]
        self.add(tirx.BufferStore(buffer, cast(value, dtype), places))

    def bind(self, value: Expr, name: str, dtype: str = "int32") -> Expr:
        """A named value, computed once, here.

        It is a `LocalScalar`, not a let binding: TVM's simplifier expands chains of let bindings,
        which fixed-point code is full of, into expressions of exponential size.
        """
        local = self.local(name, dtype)
        local.set(value)
        return local.read()

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
                variables.append(int_constant(0))
                continue
            variable = tirx.Var(self._names.unique_name(name), "int32")
            self._blocks.append([])
            variables.append(variable)
            opened.append((variable, int(extent)))
        yield variables
        for variable, extent in reversed(opened):
            body = self._end()
            self.add(tirx.For(variable, int_constant(0), int_constant(extent), tirx.ForKind.SERIAL, body))

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
    def else_branch(self) -> Iterator[None]:
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
            self.store(target, raw_load(source, element_indices(i, here)), *element_indices(i, there))

    def inner(self, name: str, shape: Sequence[int], dtype: str) -> Buffer:
        """A planned allocation that is there from here on, in the loop or branch that is being built."""
        buffer = self.buffer(name, shape, dtype)
        self.add(tirx.AllocBuffer(buffer))
        return buffer

    def add(self, statement: Any) -> None:
        """A statement, such as the body of another function on buffers of this one."""
        self._blocks[-1].append(statement)

    def _end(self) -> Any:
        """The statements that were built since the last block began."""
        return _sequence(self._blocks.pop())

    def call(self, function: str, arguments: Sequence[Buffer | int | float]) -> None:
        """A call of the C function `function`: pointers to the first elements of buffers, int32 and double numbers."""
        values = []
        for argument in arguments:
            if isinstance(argument, int):
                values.append(int_constant(argument))
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
        return tirx.Evaluate(int_constant(0))
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))


def int_constant(value: int, dtype: str = "int32") -> Expr:
    """An integer constant."""
    return tirx.IntImm(dtype, int(value))


def float_constant(value: float, dtype: str = "float32") -> Expr:
    """A floating-point constant."""
    return tirx.FloatImm(dtype, float(value))


def number(value: float, dtype: str) -> Expr:
    """A constant of any type of numbers."""
    return float_constant(value, dtype) if dtype.startswith("float") else int_constant(int(value), dtype)


def library(name: str, *arguments: Expr) -> Expr:
    """A call of the C library's function of float32, such as `expf`."""
    return tirx.call_pure_extern("float32", name, *arguments)


def load(buffer: Buffer, *indices: Expr) -> Expr:
    """An element as an int32 (wider types keep their width)."""
    places = [int_constant(i) if isinstance(i, int) else i for i in indices] or [int_constant(0)]
    value = tirx.BufferLoad(buffer, places)
    return value if str(buffer.dtype) in ("int32", "int64") else cast(value, "int32")


def raw_load(buffer: Buffer, indices: Sequence[Expr]) -> Expr:
    """An element in its own type."""
    return tirx.BufferLoad(buffer, list(indices) or [int_constant(0)])


def first_of(buffer: Buffer) -> Expr:
    """The first element, in its own type."""
    return tirx.BufferLoad(buffer, [int_constant(0)] * len(buffer.shape))


def dtype_of(value: Expr) -> str:
    """Element type of an expression."""
    return str(value.ty.dtype) if hasattr(value.ty, "dtype") else str(value.ty)


def cast(value: Expr, dtype: str) -> Expr:
    """`value` as `dtype`; Python ints become constants."""
    if isinstance(value, int):
        return int_constant(value, dtype)
    return value if dtype_of(value) == dtype else tirx.Cast(dtype, value)


def maximum_of(a: Expr, b: Expr) -> Expr:
    """Maximum."""
    return tirx.Max(*_same_type(a, b))


def smallest(a: Expr, b: Expr) -> Expr:
    """Minimum."""
    return tirx.Min(*_same_type(a, b))


def clamp(value: Expr, low: int, high: int) -> Expr:
    """`value` limited to `[low, high]`."""
    return smallest(maximum_of(value, low), high)


def select(condition: Expr, yes: Expr, no: Expr) -> Expr:
    """`yes` if `condition` else `no`; both are evaluated."""
    return tirx.Select(condition, *_same_type(yes, no))


def both(*conditions: Expr | None) -> Expr | None:
    """All of the conditions; None (always true) ones drop out."""
    result = None
    for condition in conditions:
        if condition is not None:
            result = condition if result is None else tirx.And(result, condition)
    return result


def _same_type(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    if isinstance(a, int):
        return int_constant(a, dtype_of(b)), b
    if isinstance(b, int):
        return a, int_constant(b, dtype_of(a))
    return a, b


def floor_div(a: Expr, b: int) -> Expr:
    """`a // b` for a positive constant b."""
    return a if b == 1 else tirx.floordiv(a, int_constant(b))


def floor_mod(a: Expr, b: int) -> Expr:
    """`a % b` for a positive constant b."""
    return int_constant(0) if b == 1 else tirx.floormod(a, int_constant(b))


def element_indices(index: Expr, shape: Sequence[int]) -> list[Expr]:
    """Indices of element number `index` of a row-major array (the index is in range)."""
    indices: list[Expr] = [int_constant(0)] * max(len(shape), 1)
    stride = 1
    inner = [position for position, extent in enumerate(shape) if extent > 1]
    for position in reversed(inner):
        place = index if stride == 1 else tirx.floordiv(index, int_constant(stride))
        indices[position] = place if position == inner[0] else tirx.floormod(place, int_constant(int(shape[position])))
        stride *= int(shape[position])
    return indices


def row_indices(row: Expr, column: Expr, shape: Sequence[int]) -> list[Expr]:
    """Indices of element (row, column) of an array seen as rows of its last axis.

    When the last axis is not the row (a fully connected layer's input), `column` runs over
    all the elements and `row` must be 0.
    """
    if isinstance(row, tirx.IntImm) and int(row.value) == 0:
        return element_indices(column, shape)
    return [*element_indices(row, shape[:-1]), column]


_NEWTON_STEPS = 5  # of an inverse square root


def high_mul(a: Expr, b: Expr | int) -> Expr:
    """Rounding doubling high multiply; a and b must not both be the smallest int32."""
    product = cast(a, "int64") * cast(b, "int64")
    return cast((product + int_constant(1 << 30, "int64")) >> int_constant(31, "int64"), "int32")


def rounding_shift(function: Function, value: Expr, exponent: int) -> Expr:
    """Divide by 2^exponent (0..31), to nearest, halves away from zero."""
    if exponent == 0:
        return value
    value = function.bind(value, "scaled")
    nudge = int_constant(1 << (exponent - 1), "int64") - cast(value < 0, "int64")
    return cast((cast(value, "int64") + nudge) >> int_constant(exponent, "int64"), "int32")


def rounding_shift_by(function: Function, value: Expr, exponent: Expr) -> Expr:
    """`rounding_shift` by an exponent (0..62) that is known only when running."""
    value = function.bind(cast(value, "int64"), "scaled", "int64")
    exponent = function.bind(cast(exponent, "int64"), "exponent", "int64")
    # The exponent may be 0, so the half is found by masking instead of 1 << (exponent - 1).
    mask = function.bind((int_constant(1, "int64") << exponent) - int_constant(1, "int64"), "mask", "int64")
    threshold = (mask >> int_constant(1, "int64")) + cast(value < int_constant(0, "int64"), "int64")
    return cast((value >> exponent) + cast((value & mask) > threshold, "int64"), "int32")


def multiply_rounded_once(value: Expr, multiplier: int, shift: int) -> Expr:
    """`value * multiplier * 2^(shift - 31)` of an int32, to nearest, halves up; shifts below 31."""
    bits = 31 - shift
    product = cast(value, "int64") * int_constant(multiplier, "int64") + int_constant(1 << (bits - 1), "int64")
    return cast(product >> int_constant(bits, "int64"), "int32")


def saturating_shift_left(value: Expr, bits: int) -> Expr:
    """`value << bits`, limited to int32."""
    return clamp_wide(cast(value, "int64") * int_constant(1 << bits, "int64"))


def clamp_wide(value: Expr) -> Expr:
    """An int64 limited to int32."""
    return cast(clamp(value, -INT32_MAX - 1, INT32_MAX), "int32")


def leading_zeros(function: Function, value: Expr) -> Expr:
    """Number of leading zero bits of an int32 that is not negative; 32 for zero."""
    zeros = int_constant(0)
    rest = function.bind(value, "rest")
    for step in (16, 8, 4, 2):
        small = rest < int_constant(1 << (31 - step))
        zeros = zeros + select(small, int_constant(step), int_constant(0))
        rest = function.bind(select(small, rest * int_constant(1 << step), rest), "rest")
    # Bits 30 and 29 are left to look at: the sign bit is always clear.
    return function.bind(
        zeros + int_constant(1) + select(rest < int_constant(1 << 30), int_constant(1), int_constant(0)), "zeros"
    )


def reciprocal_one_plus(function: Function, a: Expr) -> Expr:
    """1/(1+a) for a in [0, 1), both with 31 fraction bits (three Newton steps)."""
    half = cast((cast(a, "int64") + int_constant(INT32_MAX + 1, "int64")) >> int_constant(1, "int64"), "int32")
    half = function.bind(half, "half_denominator")
    x = function.bind(int_constant(1515870810) + high_mul(half, -1010580540), "reciprocal")  # 48/17 - 32/17 a
    for _ in range(3):
        error = int_constant(1 << 29) - high_mul(half, x)
        x = function.bind(x + saturating_shift_left(high_mul(x, error), 2), "reciprocal")
    return function.bind(saturating_shift_left(x, 1), "reciprocal")


def inverse_root(function: Function, value: Expr) -> tuple[Expr, Expr]:
    """1 / sqrt(value) as (31 fraction bits, right shift 0..12), of an int32 that is not negative; 0 counts as 1."""
    large = value >= int_constant(1 << 29)
    start = function.bind(maximum_of(select(large, value >> int_constant(2), value), 2), "start")
    pairs = function.bind(
        ((leading_zeros(function, start) - int_constant(1)) >> int_constant(1)) - int_constant(1), "pairs"
    )
    # Between 1/2 and 2, with 28 fraction bits from here on.
    normal = (start << (pairs * int_constant(2))) >> int_constant(1)
    half = function.bind(rounding_shift(function, normal, 1), "half")
    x = function.bind(int_constant(1 << 28), "x")
    for _ in range(_NEWTON_STEPS):
        cube = saturating_shift_left(high_mul(high_mul(x, x), x), 6)
        step = high_mul(int_constant(3 << 27), x) - high_mul(half, function.bind(cube, "cube"))
        x = function.bind(saturating_shift_left(step, 3), "x")
    shift = function.bind(select(large, int_constant(12), int_constant(11)) - pairs, "shift")
    root = high_mul(x, ROOT_HALF) * (int_constant(1) << maximum_of(int_constant(0) - shift, 0))
    is_one = value <= int_constant(1)
    multiplier = function.bind(select(is_one, int_constant(INT32_MAX), root), "multiplier")
    return multiplier, function.bind(select(is_one, int_constant(0), maximum_of(shift, 0)), "right")


def multiply_when_running(function: Function, value: Expr, multiplier: int, shift: int) -> Expr:
    """`value * multiplier * 2^(shift - 31)` with TFLite's double rounding."""
    if shift > 0:
        value = value * int_constant(1 << shift) if shift < 31 else int_constant(0)
    return rounding_shift(function, high_mul(value, multiplier), max(-shift, 0))


def multiply_sum(function: Function, value: Expr, multiplier: int, shift: int) -> Expr:
    """The same of an int32; an int64 accumulator times a 16-bit reduced multiplier, rounded once (int16 operators)."""
    if dtype_of(value) != "int64":
        return multiply_when_running(function, value, multiplier, shift)
    factor, total = reduce_multiplier(multiplier, shift)
    product = value * int_constant(factor, "int64") + int_constant(1 << (total - 1), "int64")
    return cast(product >> int_constant(total, "int64"), "int32")


def reduce_multiplier(multiplier: int, shift: int) -> tuple[int, int]:
    """A 32-bit multiplier rounded to 16 bits, and the shift to the right of its products: 1 at least, since the
    reference has no shift to the left, and C none for results of more than 32 bits.
    """
    reduced = (multiplier + (1 << 15)) >> 16 if multiplier < 0x7FFF0000 else 0x7FFF
    return reduced, max(15 - shift, 1)


@dataclass(frozen=True, slots=True)
class ChannelScales:
    """Multipliers and shifts, one an output channel; equal ones are kept as numbers."""

    multipliers: Sequence[int]
    shifts: Sequence[int]

    @property
    def are_small(self) -> bool:
        """Whether C kernels take them: no shift moves all bits out of an int32."""
        return all(-31 <= shift <= 30 for shift in self.shifts)

    def tables(self, wide: bool, once: bool = False) -> dict[str, Any]:
        """The arrays that `apply` wants, by name; none when all channels are equal; `once`: it rounds an int32 once."""
        if len(set(zip(self.multipliers, self.shifts, strict=True))) == 1:
            return {}
        if once:
            shifts = np.array([31 - shift for shift in self.shifts], np.int32)
            return {"multiplier": np.array(self.multipliers, np.int32), "shift": shifts}
        if wide:
            reduced = map(reduce_multiplier, self.multipliers, self.shifts)
            return {
                name: np.array(v, np.int32)
                for name, v in zip(("multiplier", "shift"), zip(*reduced, strict=True), strict=True)
            }
        tables = {
            "multiplier": np.array(self.multipliers, np.int32),
            "shift": np.array([max(-s, 0) for s in self.shifts], np.int32),
        }
        if any(s > 0 for s in self.shifts):
            tables["left_shift"] = np.array([max(s, 0) for s in self.shifts], np.int32)
        return tables

    def apply(self, function: Function, value: Expr, buffers: dict[str, Any], channel: Expr, wide: bool) -> Expr:
        """`value` scaled for `channel`; `buffers` holds the tables' buffers; wide: value is int64."""
        if not buffers:
            return multiply_sum(function, value, self.multipliers[0], self.shifts[0])
        multiplier, shift = load(buffers["multiplier"], channel), load(buffers["shift"], channel)
        if wide:
            total = function.bind(cast(shift, "int64"), "total_shift", "int64")
            half = int_constant(1, "int64") << (total - int_constant(1, "int64"))
            return cast((value * cast(multiplier, "int64") + half) >> total, "int32")
        if "left_shift" in buffers:
            value = value * (int_constant(1) << load(buffers["left_shift"], channel))
        return rounding_shift_by(function, high_mul(value, multiplier), shift)


def exp_on_negative(function: Function, a: Expr, integer_bits: int) -> Expr:
    """exp(a) with 31 fraction bits, for a <= 0 with `31 - integer_bits` fraction bits."""
    quarter = 1 << (31 - integer_bits - 2)
    a = function.bind(a, "exponent")
    within = function.bind((a & int_constant(quarter - 1)) - int_constant(quarter), "within_quarter")
    x = function.bind(within * int_constant(1 << integer_bits) + int_constant(1 << 28), "x")
    x2 = function.bind(high_mul(x, x), "x2")
    x3 = function.bind(high_mul(x2, x), "x3")
    x4 = function.bind(high_mul(x2, x2), "x4")
    inner = high_mul(rounding_shift(function, x4, 2) + x3, ONE_THIRD) + x2
    series = high_mul(int_constant(EXP_MINUS_EIGHTH), x + rounding_shift(function, inner, 1))
    result = function.bind(int_constant(EXP_MINUS_EIGHTH) + series, "power")
    remainder = function.bind(within - a, "remainder")
    for bit, multiplier in exp_steps(integer_bits):
        taken = (remainder & int_constant(1 << bit)) != 0
        result = function.bind(select(taken, high_mul(result, multiplier), result), "power")
    return select(a == 0, int_constant(INT32_MAX), result)
