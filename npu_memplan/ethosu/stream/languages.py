"""Which registers and commands each family of NPUs knows.

Invariant: inside one language an opcode has one meaning; whoever must know what a word means asks here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..arch.architecture import Language
from .isa import Op, Register

_U85 = 1 << 11


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The words of a language, by mode and opcode (bit 10: mode 1)."""

    registers: Mapping[int, Register]
    ops: Mapping[int, Op]


_ONLY_U55_U65 = frozenset(
    (
        Register.IFM_IB_END,
        Register.PARALLEL_MODE,
        Register.AB_START,
        Register.IFM2_SCALAR,
        Register.IFM2_IB_START,
        Register.OPA_SCALE,
        Register.OPB_SCALE,
        Register.DMA0_SKIP0,
        Register.DMA0_SKIP1,
        Register.SCALE1_BASE,
        Register.SCALE1_LENGTH,
    )
)
_ONLY_U85_OPS = frozenset((Op.RESIZE, Op.BRANCH))

VOCABULARIES: Mapping[Language, Vocabulary] = {
    Language.U55_U65: Vocabulary(
        {int(r): r for r in Register if not r & _U85}, {int(op): op for op in Op if op not in _ONLY_U85_OPS}
    ),
    Language.U85: Vocabulary(
        {int(r) & ~_U85: r for r in Register if r not in _ONLY_U55_U65}, {int(op): op for op in Op}
    ),
}
