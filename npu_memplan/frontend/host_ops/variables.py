"""READ_VARIABLE and ASSIGN_VARIABLE: copies between a state and a tensor, byte for byte.

Invariant: they move elements of one type in their order, whatever the shapes.
"""

from __future__ import annotations

from typing import Any

from .operator import Lowering, lowering
from .tir import raw_load


@lowering("READ_VARIABLE")
def read_variable(work: Lowering) -> None:
    """Input: the state."""
    _copy(work, work.read(0, "state"), work.write())


@lowering("ASSIGN_VARIABLE")
def assign_variable(work: Lowering) -> None:
    """Inputs: the state, which is written, and the value."""
    state = work.state(0, "state")
    _copy(work, work.read(1, "value"), state)


def _copy(work: Lowering, source: Any, target: Any) -> None:
    here, there = ([int(n) for n in buffer.shape] for buffer in (source, target))
    if here != there:
        work.function.copy(source, target)
        return
    with work.function.grid(here) as place:
        work.function.store(target, raw_load(source, place), *place)
