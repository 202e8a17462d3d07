"""A PrimFunc of the host that computes numbers: what it stores, statement by statement.

Invariant: a number that is found is the one that the function stores; what is not understood stays unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import tirx

from .numbers import Undecided, number

Numbers = dict[int, int]
"""The elements of a tensor of one dimension that are known."""


def is_host_function(function: Any) -> bool:
    """Whether a PrimFunc runs on the host, whatever device the module is for."""
    return function.attrs is not None and bool(function.attrs.get("tirx.is_host_func", False))


def run(function: Any, arguments: Sequence[Any]) -> None:
    """Stores what `function` does into those of its `arguments` that are `Numbers`; the others are numbers or None."""
    known = {p: a for p, a in zip(function.params, arguments, strict=True) if a is not None}
    for statement in _statements(function.body):
        if isinstance(statement, tirx.BufferStore) and statement.buffer in known:
            _store(statement, known)
        else:
            for found in known.values():
                if isinstance(found, dict):
                    found.clear()
            return


def _store(statement: Any, known: Mapping[Any, Any]) -> None:
    """One store; an element whose value is not known is not known any more."""
    elements: Numbers = known[statement.buffer]
    try:
        place = number(statement.indices[0], known)
    except Undecided:
        elements.clear()
        return
    try:
        elements[place] = number(statement.value, known)
    except Undecided:
        elements.pop(place, None)


def _statements(body: Any) -> Sequence[Any]:
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
