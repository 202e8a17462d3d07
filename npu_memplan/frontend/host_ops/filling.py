"""FILL, ZEROS_LIKE, RANK, RANGE, BROADCAST_ARGS, TILE and DYNAMIC_UPDATE_SLICE.

Invariant: what depends on shapes alone is a table that is computed here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .movement import chosen, move, pair, same_type
from .operator import Lowering, lowering, require
from .tir import Expr, both, const, first_of, floor_mod, number, raw_load


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


@lowering("RANK", "RANGE", "BROADCAST_ARGS")
def known(work: Lowering) -> None:
    """A number of axes, numbers from a start to a limit, the shape of two that are broadcast: all known here."""
    output = work.output()
    values: npt.NDArray[Any]
    if work.operator.name == "RANK":
        values = np.array(len(work.tensor(0).shape))
    elif work.operator.name == "RANGE":
        start, limit, delta = (work.constant(i, f"input {i}").reshape(-1)[0].item() for i in range(3))
        values = np.arange(start, limit, delta)
    else:
        shapes = (tuple(work.constant(i, f"input {i}").reshape(-1).tolist()) for i in range(2))
        values = np.array(np.broadcast_shapes(*shapes))
    fits = values.size == int(np.prod(output.shape))
    require(fits, f"it makes {values.size} numbers, its output has {list(output.shape)}")
    table = work.table("values", values.astype(output.dtype).reshape(output.shape))
    work.fill(lambda place: raw_load(table, place))


@lowering("TILE")
def tile(work: Lowering) -> None:
    """The input several times along each axis."""
    data, output = pair(work)
    fits = len(data.shape) == len(output.shape)
    fits = fits and not any(o % max(i, 1) for i, o in zip(data.shape, output.shape, strict=True))
    require(fits, f"{list(data.shape)} does not fill {list(output.shape)}")

    def origin(place: list[Expr]) -> list[Expr]:
        axes = zip(place, data.shape, output.shape, strict=True)
        return [p if inner == outer else floor_mod(p, inner) for p, inner, outer in axes]

    move(work, origin)


@lowering("DYNAMIC_UPDATE_SLICE")
def update_slice(work: Lowering) -> None:
    """Input 0 with input 1 in it, from the place that input 2 says; it is moved so that all of it lies inside."""
    data, update, at, output = work.tensor(0), work.tensor(1), work.tensor(2), work.output()
    same_type((data, update, output))
    fits = at.dtype in ("int32", "int64") and len(update.shape) == len(data.shape)
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
