"""SELECT, SELECT_V2, GATHER_ND, EMBEDDING_LOOKUP and ONE_HOT: elements chosen when running.

Invariant: an index outside of its axis, which the reference stops at, reads the nearest place: no other memory.
"""

from __future__ import annotations

from ...models.tensor import Tensor
from .elementwise import broadcast
from .movement import chosen, pair, same_type
from .operator import Lowering, lowering, require
from .tir import Expr, cast, const, first_of, raw_load


def _require_indices(tensor: Tensor) -> None:
    require(tensor.dtype in ("int32", "int64"), f"its indices are {tensor.dtype}, not int32 or int64")


@lowering("SELECT", "SELECT_V2")
def select_elements(work: Lowering) -> None:
    """An element of input 1 where input 0 is true, else one of input 2."""
    condition, yes, no, output = work.tensor(0), work.tensor(1), work.tensor(2), work.output()
    same_type((output, yes, no))
    require(condition.dtype == "bool", f"input {condition.name!r} is {condition.dtype}, not bool")
    by_row = work.operator.name == "SELECT" and len(condition.shape) == 1 < len(output.shape)
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
    outer, depth = len(indices.shape) - 1, indices.shape[-1]
    fits = depth <= len(data.shape) and output.shape == (*indices.shape[:-1], *data.shape[depth:])
    message = f"indices {list(indices.shape)} into {list(data.shape)} do not give {list(output.shape)}"
    require(fits, message)
    source, places = work.read(0, "input"), work.read(1, "indices")

    def slice_of(place: list[Expr]) -> Expr:
        first = [chosen(places, [*place[:outer], const(i)], data.shape[i]) for i in range(depth)]
        return raw_load(source, [*first, *place[outer:]])

    work.fill(slice_of)


@lowering("EMBEDDING_LOOKUP")
def look_up(work: Lowering) -> None:
    """Rows of input 1 by the indices of input 0."""
    indices, data, output = work.tensor(0), work.tensor(1), work.output()
    same_type((data, output))
    _require_indices(indices)
    fits = len(indices.shape) == 1 and output.shape == (*indices.shape, *data.shape[1:])
    require(fits, f"{list(indices.shape)} rows of {list(data.shape)} are not {list(output.shape)}")
    places, source = work.read(0, "indices"), work.read(1, "input")
    work.fill(lambda place: raw_load(source, [chosen(places, place[:1], data.shape[0]), *place[1:]]))


@lowering("ONE_HOT")
def one_hot(work: Lowering) -> None:
    """The value of input 2 where an index is the place along a new axis, elsewhere that of input 3."""
    indices, yes, no, output = work.tensor(0), work.tensor(2), work.tensor(3), work.output()
    same_type((output, yes, no))
    _require_indices(indices)
    rank = len(output.shape)
    axis = work.options("OneHotOptions").Axis() % rank
    require(rank == len(indices.shape) + 1, f"indices {list(indices.shape)} do not give {list(output.shape)}")
    function = work.function
    places, on, off, target = work.read(0, "indices"), work.read(2, "on"), work.read(3, "off"), work.write()
    with function.grid(output.shape) as place:
        index = cast(raw_load(places, [*place[:axis], *place[axis + 1 :]]), "int32")
        with function.when(index == cast(place[axis], "int32")):
            function.store(target, first_of(on), *place)
        with function.otherwise():
            function.store(target, first_of(off), *place)
