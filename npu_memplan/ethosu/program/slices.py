"""Ethos-U85: how many input channels a kernel that sums over them takes in at once.

Invariant: hazards and the estimate ask here; the NPU model has a reading of its own. Source: regor's choice of blocks
(`ethos_u85.cpp` of ethos-u-vela 5.2.0).
"""

from __future__ import annotations

from ..arch import Architecture, Shape
from ..stream.commands import Operation
from ..stream.fields_u85 import AccumulatorWord, InputWord, WeightWord
from ..stream.isa import Op, Register
from ..stream.isa_u85 import MicroBlock

PART_KERNEL_SLICE = 16


def is_sparse(op: Operation) -> bool:
    """Two weights of every four are zero, and not stored."""
    return op.op is Op.CONV and not op.parameter & 1 and bool(WeightWord.SPARSE.of(op.get(Register.WEIGHT_FORMAT)))


def micro_block(op: Operation, accelerator: Architecture) -> Shape:
    """The micro-block that ACC_FORMAT chooses; the first of the configuration where it has none such."""
    code = AccumulatorWord.MICRO_BLOCK.of(op.get(Register.ACC_FORMAT))
    if code in tuple(MicroBlock):
        plane = MicroBlock(code).plane
        for shape in accelerator.micro_blocks:
            if (shape.height, shape.width) == plane:
                return shape
    return accelerator.micro_blocks[0]


def deep_slice(op: Operation, accelerator: Architecture) -> int:
    """Input channels of one pass, depth first."""
    bits = 8 << InputWord.SIZE.of(op[Register.IFM_PRECISION])
    sparse = is_sparse(op)
    if bits == 32 or (accelerator.cores == 1 and micro_block(op, accelerator).depth == 16 and not sparse):
        return 32
    return 128 if sparse and bits == 8 else 64
