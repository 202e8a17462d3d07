"""FILL, ZEROS_LIKE, RANK, RANGE, BROADCAST_ARGS, TILE and DYNAMIC_UPDATE_SLICE.

Invariant: what depends on shapes alone is a table that is computed here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .movement import same_type
from .operator import Lowering, UnsupportedOperatorError, lowering
from .selecting import chosen
from .tir import both, const, floor_mod, raw_load, real


@lowering("FILL")
def fill(work: Lowering) -> None:
    """One value everywhere."""
    value, output = work.tensor(1), work.output()
    same_type((value, output))
    function = work.function
    source, target = work.read(1, "value"), work.write()
    with function.grid(output.shape) as place:
        function.store(target, raw_load(source, [const(0)] * max(len(value.shape), 1)), *place)


@lowering("ZEROS_LIKE")
def zeros(work: Lowering) -> None:
    """Zeros in the input's shape."""
    data, output = work.tensor(0), work.output()
    same_type((data, output))
    target = work.write()
    with work.function.grid(output.shape) as place:
        zero = real(0) if output.dtype == "float32" else const(0, output.dtype)
        work.function.store(target, zero, *place)


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
    if values.size != int(np.prod(output.shape)):
        raise UnsupportedOperatorError(f"it makes {values.size} numbers, its output has {list(output.shape)}")
    table = work.table("values", values.astype(output.dtype).reshape(output.shape))
    target = work.write()
    with work.function.grid(output.shape) as place:
        work.function.store(target, raw_load(table, place), *place)


@lowering("TILE")
def tile(work: Lowering) -> None:
    """The input several times along each axis."""
    data, output = work.tensor(0), work.output()
    same_type((data, output))
    if len(data.shape) != len(output.shape) or any(
        o % max(i, 1) for i, o in zip(data.shape, output.shape, strict=True)
    ):
        raise UnsupportedOperatorError(f"{list(data.shape)} does not fill {list(output.shape)}")
    function = work.function
    source, target = work.read(0, "input"), work.write()
    with function.grid(output.shape) as place:
        origin = [
            p if inner == outer else floor_mod(p, inner)
            for p, inner, outer in zip(place, data.shape, output.shape, strict=True)
        ]
        function.store(target, raw_load(source, origin), *place)


@lowering("DYNAMIC_UPDATE_SLICE")
def update_slice(work: Lowering) -> None:
    """Input 0 with input 1 in it, from the place that input 2 says; it is moved so that all of it lies inside."""
    data, update, output = work.tensor(0), work.tensor(1), work.output()
    same_type((data, update, output))
    if work.tensor(2).dtype not in ("int32", "int64") or len(update.shape) != len(data.shape):
        raise UnsupportedOperatorError(
            f"{list(update.shape)} is put into {list(data.shape)} at {work.tensor(2).dtype}s"
        )
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
