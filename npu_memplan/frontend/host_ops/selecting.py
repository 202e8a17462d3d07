"""SELECT, SELECT_V2, GATHER_ND, EMBEDDING_LOOKUP and ONE_HOT: elements chosen when running.

Invariant: an index outside of its axis, which the reference stops at, reads the nearest place: no other memory.
"""

from __future__ import annotations

from ...models.tensor import Tensor
from .elementwise import broadcast
from .movement import same_type
from .operator import Lowering, UnsupportedOperatorError, lowering
from .tir import Buffer, Expr, cast, clamp, const, raw_load


def chosen(indices: Buffer, place: list[Expr], extent: int) -> Expr:
    """An index of an axis of `extent` places, as an int32."""
    return clamp(cast(raw_load(indices, place), "int32"), 0, max(extent - 1, 0))


def _require_indices(tensor: Tensor) -> None:
    if tensor.dtype not in ("int32", "int64"):
        raise UnsupportedOperatorError(f"its indices are {tensor.dtype}, not int32 or int64")


@lowering("SELECT", "SELECT_V2")
def select_elements(work: Lowering) -> None:
    """An element of input 1 where input 0 is true, else one of input 2."""
    condition, yes, no, output = work.tensor(0), work.tensor(1), work.tensor(2), work.output()
    same_type((output, yes, no))
    if condition.dtype != "bool":
        raise UnsupportedOperatorError(f"input {condition.name!r} is {condition.dtype}, not bool")
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
    data, indices, output = work.tensor(0), work.tensor(1), work.output()
    same_type((data, output))
    _require_indices(indices)
    outer, depth = len(indices.shape) - 1, indices.shape[-1]
    if depth > len(data.shape) or output.shape != (*indices.shape[:-1], *data.shape[depth:]):
        raise UnsupportedOperatorError(
            f"indices {list(indices.shape)} into {list(data.shape)} do not give {list(output.shape)}"
        )
    function = work.function
    source, places, target = work.read(0, "input"), work.read(1, "indices"), work.write()
    with function.grid(output.shape) as place:
        first = [chosen(places, [*place[:outer], const(i)], data.shape[i]) for i in range(depth)]
        function.store(target, raw_load(source, [*first, *place[outer:]]), *place)


@lowering("EMBEDDING_LOOKUP")
def look_up(work: Lowering) -> None:
    """Rows of input 1 by the indices of input 0."""
    indices, data, output = work.tensor(0), work.tensor(1), work.output()
    same_type((data, output))
    _require_indices(indices)
    if len(indices.shape) != 1 or output.shape != (*indices.shape, *data.shape[1:]):
        raise UnsupportedOperatorError(f"{list(indices.shape)} rows of {list(data.shape)} are not {list(output.shape)}")
    function = work.function
    places, source, target = work.read(0, "indices"), work.read(1, "input"), work.write()
    with function.grid(output.shape) as place:
        row = chosen(places, place[:1], data.shape[0])
        function.store(target, raw_load(source, [row, *place[1:]]), *place)


@lowering("ONE_HOT")
def one_hot(work: Lowering) -> None:
    """The value of input 2 where an index is the place along a new axis, elsewhere that of input 3."""
    import tflite

    indices, yes, no, output = work.tensor(0), work.tensor(2), work.tensor(3), work.output()
    same_type((output, yes, no))
    _require_indices(indices)
    rank = len(output.shape)
    axis = work.options(tflite.OneHotOptions).Axis() % rank
    if rank != len(indices.shape) + 1:
        raise UnsupportedOperatorError(f"indices {list(indices.shape)} do not give {list(output.shape)}")
    function = work.function
    places, on, off, target = work.read(0, "indices"), work.read(2, "on"), work.read(3, "off"), work.write()
    with function.grid(output.shape) as place:
        index = cast(raw_load(places, [*place[:axis], *place[axis + 1 :]]), "int32")
        with function.when(index == cast(place[axis], "int32")):
            function.store(target, raw_load(on, [const(0)] * max(len(yes.shape), 1)), *place)
        with function.otherwise():
            function.store(target, raw_load(off, [const(0)] * max(len(no.shape), 1)), *place)
