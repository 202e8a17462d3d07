"""What the registers of an ELEMENTWISE say: here those of Ethos-U55 and U65, in `u85` those of Ethos-U85.

Invariant: scales that an operation does not use are identities, whatever their registers hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from npu_memplan.ethosu.stream.isa import Broadcast, ElementwiseMode, Register, Rounding
from npu_memplan.ethosu.stream.isa_u85 import ScaleRounding

from ..arithmetic.rescale import Scale
from .layout import InputSpec, MapLayout
from .output import KernelSpec, OutputSpec
from .registers import Registers
from .window import read_type

Kind = ElementwiseMode  # the modes of Ethos-U55 are the first ten
_SCALED = frozenset((Kind.ADD, Kind.SUB, Kind.MUL, Kind.ABS))  # have an output scale
# The operand that is not rescaled is shifted by half of what TFLite shifts both by.
_INPUT_SHIFT = {1: 20, 2: 15}


@dataclass(frozen=True, slots=True)
class ElementwiseSpec(KernelSpec):
    """A kernel of one or two inputs, element by element."""

    first: InputSpec
    second: InputSpec | None  # None: unary
    kind: ElementwiseMode
    first_scale: Scale  # of operand A
    second_scale: Scale  # of operand B; of what is negative in an LRELU
    scale: Scale
    scale_rounding: Rounding | ScaleRounding  # of the output's scale, also where only shifts use it
    swap: bool = False  # the second input is operand A

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        return (self.first,) if self.second is None else (self.first, self.second)

    @staticmethod
    def read(regs: Registers) -> ElementwiseSpec:
        r = Register
        parameter = regs.operation.parameter
        if parameter > ElementwiseMode.SHL:
            regs.illegal(f"ELEMENTWISE mode {parameter} is none of 0 (MUL) to 9 (SHL)")
        kind = Kind(parameter)
        output = OutputSpec.read(regs)
        shape = output.shape
        dtype, brick = read_type(regs, "IFM")
        ifm = MapLayout.read(regs, "IFM", dtype, brick, *shape[:2])
        first = InputSpec("IFM", dtype, 0 if dtype.itemsize == 4 else ifm.zero_point, ifm, shape)
        second, swap = None, False
        if not kind.is_unary:
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
        a = b = scale = Scale.of(1, 0)
        if kind in (Kind.ADD, Kind.SUB) and dtype.itemsize < 4:
            a, b = _operand_scales(regs, _INPUT_SHIFT[dtype.itemsize])
        if kind is Kind.LRELU:
            b = Scale.of(*regs.scale(r.OFM_SCALE), output.rounding)
        elif kind in _SCALED and output.global_scale:
            multiplier, shift = regs.scale(r.OFM_SCALE)
            if kind is Kind.MUL and dtype.itemsize == 4:
                multiplier = 1  # only the shift takes part in a 32-bit product
            scale = Scale.of(multiplier, shift, output.rounding)
        return ElementwiseSpec(output, first, second, kind, a, b, scale, output.rounding, swap)


def _operand_scales(regs: Registers, shift: int) -> tuple[Scale, Scale]:
    """Of both operands of a sum, or OPA_SCALE of one of them and a left shift of the other."""
    r = Register
    precision = regs.raw(r.IFM_PRECISION)
    scaled = regs.one_of(r.IFM_PRECISION, (0, 1, 2), precision >> 8 & 3)  # 0: both; 1: A, 2: B
    if not scaled:
        return Scale.of(*regs.scale(r.OPA_SCALE)), Scale.of(*regs.scale(r.OPB_SCALE))
    multiplier, right = regs.scale(r.OPA_SCALE)
    one = Scale.of(multiplier << shift, min(right + shift, 63), Rounding(precision >> 14))
    other = Scale.of(1 << (shift - 1), 0)
    return (one, other) if scaled == 1 else (other, one)
