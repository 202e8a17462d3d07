"""Which registers and commands each family of NPUs has.

Invariant: inside one language an opcode has one meaning; the meaning of a word is looked up here.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..arch.architecture import Language
from .isa import Op, Register

_U85 = 1 << 11


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

# the words of each language, by mode and opcode (bit 10: mode 1)
REGISTERS: Mapping[Language, Mapping[int, Register]] = {
    Language.U55_U65: {int(r): r for r in Register if not r & _U85},
    Language.U85: {int(r) & ~_U85: r for r in Register if r not in _ONLY_U55_U65},
}
OPS: Mapping[Language, Mapping[int, Op]] = {
    Language.U55_U65: {int(op): op for op in Op if op not in (Op.RESIZE, Op.BRANCH)},
    Language.U85: {int(op): op for op in Op},
}
