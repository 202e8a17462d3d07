"""SELECT, GATHER_ND, EMBEDDING_LOOKUP, ONE_HOT, FILL, ZEROS_LIKE, RANK, RANGE, BROADCAST_ARGS, TILE and the like.

Invariant: an index outside of its axis, which the reference stops at, reads the nearest place: no other memory. What
depends on shapes alone is a table that is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ...models.tensor import Tensor
from .common import flat_values
from .elementwise import broadcast
from .movement import chosen, describe_picked, describe_taken, move, pair, same_type
from .operator import Lowering, lowering, require
from .tir import Expr, both, cast, const, first_of, floor_mod, number, raw_load


def _require_indices(tensor: Tensor) -> None:
    require(tensor.dtype in ("int32", "int64"), f"its indices are {tensor.dtype}, not int32 or int64")


@lowering("SELECT", "SELECT_V2")
def select_elements(work: Lowering) -> None:
    """An element of input 1 where input 0 is true, else one of input 2."""
    condition, yes, no, output = work.tensor(0), work.tensor(1), work.tensor(2), work.output()
    same_type((output, yes, no))
    require(condition.dtype == "bool", f"input {condition.name!r} is {condition.dtype}, not bool")
    by_row = work.operator.name == "SELECT" and len(condition.shape) == 1 < len(output.shape)
    computed = any(tensor.data is None for tensor in (condition, yes, no))
    if output.scales and computed and 0 not in output.shape:
        work.describe("select", by_row=int(by_row and condition.shape[0] > 1))
    function = work.function
    tests, first, second = work.read(0, "condition"), work.read(1, "first"), work.read(2, "second")
    target = work.write()
    with function.grid(output.shape) as place:
        where = [place[0]] if by_row and condition.shape[0] > 1 else broadcast(place, condition, output)
        with function.when(raw_load(tests, where)):
            function.store(target, raw_load(first, broadcast(place, yes, output)), *place)
        with function.otherwise():
            function.store(target, raw_load(second, broadcast(place, no, output)), *place)


@lowering("GATHER_ND")
def gather_slices(work: Lowering) -> None:
    """Slices of the input; the last axis of the indices is a place in its first axes."""
    (data, output), indices = pair(work), work.tensor(1)
    _require_indices(indices)
    require(indices.shape, "its indices have no axis")
    outer, depth = len(indices.shape) - 1, indices.shape[-1]
    fits = depth <= len(data.shape) and output.shape == (*indices.shape[:-1], *data.shape[depth:])
    message = f"indices {list(indices.shape)} into {list(data.shape)} do not give {list(output.shape)}"
    require(fits, message)
    if data.scales and (data.data is None or indices.data is None) and depth and 0 not in output.shape:
        work.describe("taken_slices", depth=depth)
    source, places = work.read(0, "input"), work.read(1, "indices")

    def slice_of(place: list[Expr]) -> Expr:
        first = [chosen(places, [*place[:outer], const(i)], data.shape[i]) for i in range(depth)]
        return raw_load(source, [*first, *place[outer:]])

    work.fill(slice_of)


@lowering("EMBEDDING_LOOKUP")
def look_up(work: Lowering) -> None:
    """Rows of input 1 by the indices of input 0."""
    data = work.tensor(1)
    same_type((data, work.output()))
    describe_taken(work, data, work.tensor(0), axis=0)
    work.fill(row_lookup(work))


def row_lookup(work: Lowering) -> Callable[[list[Expr]], Expr]:
    """The element of input 1 that an element of the output is."""
    indices, data, output = work.tensor(0), work.tensor(1), work.output()
    _require_indices(indices)
    fits = len(indices.shape) == 1 and output.shape == (*indices.shape, *data.shape[1:])
    require(fits, f"{list(indices.shape)} rows of {list(data.shape)} are not {list(output.shape)}")
    places, source = work.read(0, "indices"), work.read(1, "input")
    return lambda place: raw_load(source, [chosen(places, place[:1], data.shape[0]), *place[1:]])


@lowering("ONE_HOT")
def one_hot(work: Lowering) -> None:
    """The value of input 2 where an index is the place along a new axis, elsewhere that of input 3."""
    indices, yes, no, output = work.tensor(0), work.tensor(2), work.tensor(3), work.output()
    same_type((output, yes, no))
    _require_indices(indices)
    rank = len(output.shape)
    require(rank, "its output has no axis")
    axis = work.options("OneHotOptions").Axis()
    require(-1 <= axis < rank, f"its axis is {axis}, its output {list(output.shape)}")
    axis %= rank
    require(rank == len(indices.shape) + 1, f"indices {list(indices.shape)} do not give {list(output.shape)}")
    function = work.function
    places, on, off, target = work.read(0, "indices"), work.read(2, "on"), work.read(3, "off"), work.write()
    with function.grid(output.shape) as place:
        index = cast(raw_load(places, [*place[:axis], *place[axis + 1 :]]), "int32")
        with function.when(index == cast(place[axis], "int32")):
            function.store(target, first_of(on), *place)
        with function.otherwise():
            function.store(target, first_of(off), *place)


@lowering("FILL")
def fill(work: Lowering) -> None:
    """One value everywhere."""
    same_type((work.tensor(1), work.output()))
    value = first_of(work.read(1, "value"))
    work.fill(lambda _: value)


@lowering("ZEROS_LIKE")
def zeros(work: Lowering) -> None:
    """Zeros in the input's shape."""
    _, output = pair(work)
    work.fill(lambda _: number(0, output.dtype))


def _broadcast(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of two that are broadcast."""
    rank = max(len(first), len(second))
    pairs = list(zip(*((1,) * (rank - len(s)) + s for s in (first, second)), strict=True))
    require(all(a == b or 1 in (a, b) for a, b in pairs), f"shapes {list(first)} and {list(second)} are not broadcast")
    return tuple(b if a == 1 else a for a, b in pairs)


@lowering("RANK", "RANGE", "BROADCAST_ARGS")
def known(work: Lowering) -> None:
    """A number of axes, numbers from a start to a limit, the shape of two that are broadcast: all known here."""
    output = work.output()
    values: npt.NDArray[Any]
    if work.operator.name == "RANK":
        values = np.array(len(work.tensor(0).shape))
    elif work.operator.name == "RANGE":
        given = [work.constant(i, f"input {i}") for i in range(3)]
        require(all(v.size for v in given), "it lacks a start, a limit or a step")
        start, limit, delta = (work.constant(i, f"input {i}").reshape(-1)[0].item() for i in range(3))
        wanted = math.prod(output.shape)
        fits = delta != 0 and abs((limit - start) / delta) <= wanted + 1
        require(fits, f"from {start} to {limit} by {delta}, its output has {list(output.shape)}")
        values = np.arange(start, limit, delta)
    else:
        shapes = (tuple(work.constant(i, f"input {i}").reshape(-1).tolist()) for i in range(2))
        values = np.array(_broadcast(*shapes))
    fits = values.size == int(np.prod(output.shape))
    require(fits, f"it makes {values.size} numbers, its output has {list(output.shape)}")
    table = work.table("values", values.astype(output.dtype).reshape(output.shape))
    work.fill(lambda place: raw_load(table, place))


@lowering("TILE")
def tile(work: Lowering) -> None:
    """The input several times along each axis."""
    data, output = pair(work)
    fits = len(data.shape) == len(output.shape) and all(data.shape)
    fits = fits and not any(o % max(i, 1) for i, o in zip(data.shape, output.shape, strict=True))
    if work.tensor(1).data is not None:
        times = flat_values(work, 1)
        fits = fits and [i * n for i, n in zip(data.shape, times, strict=False)] == list(output.shape)
    require(fits, f"{list(data.shape)} does not fill {list(output.shape)}")

    describe_picked(work, [np.arange(o) % i for i, o in zip(data.shape, output.shape, strict=True)])

    def origin(place: list[Expr]) -> list[Expr]:
        axes = zip(place, data.shape, output.shape, strict=True)
        return [p if inner == outer else floor_mod(p, inner) for p, inner, outer in axes]

    move(work, origin)


@lowering("DYNAMIC_UPDATE_SLICE")
def update_slice(work: Lowering) -> None:
    """Input 0 with input 1 in it, from the place that input 2 says; it is moved so that all of it is inside."""
    data, update, at, output = work.tensor(0), work.tensor(1), work.tensor(2), work.output()
    same_type((data, update, output))
    rank = len(data.shape)
    fits = at.dtype in ("int32", "int64") and len(update.shape) == rank and at.shape == (rank,)
    fits = fits and output.shape == data.shape
    require(fits, f"{list(update.shape)} is put into {list(data.shape)} at {at.dtype}s")
    function = work.function
    source, part, places = work.read(0, "input"), work.read(1, "update"), work.read(2, "places")
    target = work.write()
    starts = [
        function.bind(chosen(places, [const(axis)], wide - narrow + 1), "start")
        for axis, (wide, narrow) in enumerate(zip(data.shape, update.shape, strict=True))
    ]
    with function.grid(output.shape) as place:
        inner = [function.bind(p - start, "inner") for p, start in zip(place, starts, strict=True)]
        with function.when(both(*(both(i >= 0, i < extent) for i, extent in zip(inner, update.shape, strict=True)))):
            function.store(target, raw_load(part, inner), *place)
        with function.otherwise():
            function.store(target, raw_load(source, place), *place)
