"""What the registers of an Ethos-U85 ELEMENTWISE say.

Invariant: either input may be broadcast, chained or a scalar; scales that an operation does not use are identities.
"""

from __future__ import annotations

from dataclasses import replace

from npu_memplan.ethosu.stream.isa import ElementwiseMode, Register
from npu_memplan.ethosu.stream.isa_u85 import InputBroadcast

from ...arithmetic.rescale import Scale
from ..elementwise import ElementwiseSpec
from ..layout import Shape3
from ..registers import Registers
from .maps import read_input, read_output, read_scale, results, written

Kind = ElementwiseMode
_SCALED_INPUTS = frozenset((Kind.ADD, Kind.SUB, Kind.MIN, Kind.MAX, Kind.ABS, Kind.LRELU, Kind.MUL))
_UNSCALED_OUTPUT = frozenset((Kind.CLZ, Kind.SHL, Kind.SHR, Kind.LSR, Kind.DIV))


def read_elementwise(regs: Registers) -> ElementwiseSpec:
    r = Register
    kind = ElementwiseMode(regs.one_of(r.OFM_PRECISION, tuple(ElementwiseMode), regs.operation.parameter))
    output = written(regs, read_output(regs))
    first = read_input(regs, "IFM", _shape(regs, r.IFM_BROADCAST))
    second = None if kind.is_unary else read_input(regs, "IFM2", _shape(regs, r.IFM2_BROADCAST))
    if first.layout is None and second is not None and second.layout is None:
        regs.illegal("both inputs are scalars, but there is one OP_SCALAR")
    plain, made = Scale.of(1, 0), read_scale(regs, r.OFM_SCALE)
    scaled = kind in _SCALED_INPUTS
    if kind is Kind.MUL and first.dtype.itemsize == 4:  # only the shift takes part in a 32-bit product
        made = replace(made, multiplier=plain.multiplier)
    other = scaled and (second is not None or kind is Kind.LRELU)
    return ElementwiseSpec(
        output,
        first,
        second,
        kind,
        read_scale(regs, r.IFM_SCALE) if scaled else plain,
        read_scale(regs, r.IFM2_SCALE) if other else plain,
        plain if kind in _UNSCALED_OUTPUT else made,
        made.rounding,
    )


def _shape(regs: Registers, register: Register) -> Shape3:
    word = InputBroadcast(regs.bits(register, 0xF))
    made = results(regs)
    axes = (InputBroadcast.HEIGHT, InputBroadcast.WIDTH, InputBroadcast.DEPTH)
    height, width, depth = (1 if word & axis else extent for axis, extent in zip(axes, made, strict=True))
    return height, width, depth
