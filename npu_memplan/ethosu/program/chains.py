"""Operations that run as one: kernels whose results go through chaining buffers.

Invariant: a chain is one operation over its external buffers; nothing that any of its kernels touches begins or ends
inside it, because their blocks follow one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..arch.architecture import Language
from ..stream.commands import Operation
from ..stream.encode import chained_maps
from ..stream.fields import DmaRegion
from ..stream.fields_u85 import OutputWord
from ..stream.isa import Op, Register
from ..stream.isa_u85 import MapStorage


class _Step(Protocol):
    """An operation, with addresses or with buffers."""

    @property
    def op(self) -> Op: ...

    @property
    def language(self) -> Language: ...

    def get(self, register: Register, default: int = 0) -> int: ...


def goes_on(step: _Step) -> bool:
    """The kernel's results go to a chaining buffer, for the kernel after it."""
    if step.language is not Language.U85 or step.op is Op.DMA_START:
        return False
    return OutputWord.STORAGE.of(step.get(Register.OFM_PRECISION)) == MapStorage.CHAINED


def chain_bounds(steps: Sequence[_Step]) -> list[tuple[int, int]]:
    """First and last operation (inclusive) of the chain that each belongs to: itself, where it is in none."""
    found: list[tuple[int, int]] = []
    first = 0
    for place, step in enumerate(steps):
        if goes_on(step) and place + 1 < len(steps):
            continue
        found += [(first, place)] * (place + 1 - first)
        first = place + 1
    return found


def beside_regions(op: Operation) -> dict[Register, int]:
    """What the region registers of Ethos-U85 say besides a region: chaining buffers, and how a transfer goes."""
    if op.language is Language.U85 and op.op is Op.DMA_START:
        mask = DmaRegion.DIMENSIONS.at(3) | DmaRegion.INDEXED.at(1)
        words = {r: op[r] & mask for r in (Register.DMA0_SRC_REGION, Register.DMA0_DST_REGION)}
        return {register: word for register, word in words.items() if word}
    return {view.region: op[view.region] for view in chained_maps(op)}
