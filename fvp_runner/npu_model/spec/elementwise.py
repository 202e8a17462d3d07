"""What the registers of an ELEMENTWISE say.

Invariant: scales that an operation does not use are (1, 0), whatever their registers hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from npu_memplan.ethosu.stream.isa import Broadcast, ElementwiseMode, Register, Rounding

from .layout import InputSpec, MapLayout
from .output import ByElement, OutputSpec
from .registers import Registers
from .window import read_type

Mode = ElementwiseMode
SCALED = frozenset((Mode.ADD, Mode.SUB, Mode.MUL, Mode.ABS, Mode.LRELU))  # have an output scale


@dataclass(frozen=True, slots=True)
class ElementwiseSpec(ByElement):
    mode: ElementwiseMode
    swap: bool
    operand_mode: int  # 0: both operands scaled; 1: A by OPA_SCALE, 2: B by OPA_SCALE
    operand_rounding: Rounding  # of the one operand that is scaled
    opa_scale: tuple[int, int]
    opb_scale: tuple[int, int]
    ofm_scale: tuple[int, int]

    @staticmethod
    def read(regs: Registers) -> ElementwiseSpec:
        r = Register
        parameter = regs.operation.parameter
        if parameter not in tuple(Mode):
            regs.illegal(f"ELEMENTWISE mode {parameter} is none of 0 (MUL) to 9 (SHL)")
        mode = Mode(parameter)
        output = OutputSpec.read(regs)
        shape = output.shape
        dtype, brick = read_type(regs, "IFM")
        ifm = MapLayout.read(regs, "IFM", dtype, brick, *shape[:2])
        first = InputSpec("IFM", dtype, 0 if dtype.itemsize == 4 else ifm.zero_point, ifm, shape)
        second, swap = None, False
        if not mode.is_unary:
            broadcast = Broadcast(regs.bits(r.IFM2_BROADCAST, 0xC7))
            swap = bool(broadcast & Broadcast.SWAP_OPERANDS)
            dtype2, brick2 = read_type(regs, "IFM2")
            zero2 = regs.signed16(r.IFM2_ZERO_POINT, dtype2.kind == "i")
            zero2 = 0 if dtype2.itemsize == 4 else zero2
            if broadcast & Broadcast.SCALAR:
                scalar = regs.signed16(r.IFM2_SCALAR, dtype2.kind == "i")
                second = InputSpec("IFM2", dtype2, zero2, None, (1, 1, 1), scalar)
            else:
                axes = (Broadcast.HEIGHT, Broadcast.WIDTH, Broadcast.DEPTH)
                y, x, c = (1 if broadcast & axis else n for axis, n in zip(axes, shape, strict=True))
                ifm2 = MapLayout.read(regs, "IFM2", dtype2, brick2, y, x)
                second = InputSpec("IFM2", dtype2, zero2, ifm2, (y, x, c))
        operand_mode, rounding, opa, opb, ofm = 0, Rounding.TFL, (1, 0), (1, 0), (1, 0)
        if mode in (Mode.ADD, Mode.SUB) and dtype.itemsize < 4:
            precision = regs.raw(r.IFM_PRECISION)
            operand_mode = regs.one_of(r.IFM_PRECISION, (0, 1, 2), precision >> 8 & 3)
            rounding = Rounding(precision >> 14) if operand_mode else rounding
            opa, opb = regs.scale(r.OPA_SCALE), (1, 0) if operand_mode else regs.scale(r.OPB_SCALE)
        if mode in SCALED and (output.global_scale or mode is Mode.LRELU):
            ofm = regs.scale(r.OFM_SCALE)
        if mode is Mode.MUL and dtype.itemsize == 4:
            ofm = (1, ofm[1])  # only the shift takes part in a 32-bit product
        return ElementwiseSpec(output, first, second, mode, swap, operand_mode, rounding, opa, opb, ofm)
