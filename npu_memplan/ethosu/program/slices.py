"""Ethos-U85: how many input channels a kernel that sums over them takes in at once.

Invariant: hazards and the estimate ask here; the NPU model has a reading of its own. Source: regor's choice of blocks
(`ethos_u85.cpp` of ethos-u-vela 5.2.0).
"""

from __future__ import annotations

from ..arch import Architecture, Language, Shape
from ..stream.commands import Operation
from ..stream.encode import chained_maps
from ..stream.fields import KernelStride
from ..stream.fields_u85 import AccumulatorWord, InputWord, OutputWord, WeightWord
from ..stream.isa import Op, PoolMode, Register
from ..stream.isa_u85 import MicroBlock, StoredBackwards
from ..weight_order import WeightArrangement
from .extents import is_product

PART_KERNEL_SLICE = 16


def is_sparse(op: Operation) -> bool:
    """Two weights of every four are zero, and not stored."""
    return op.op is Op.CONV and not is_product(op) and bool(WeightWord.SPARSE.of(op.get(Register.WEIGHT_FORMAT)))


def is_wide(op: Operation) -> bool:
    """Sums of 48 bits."""
    return bool(AccumulatorWord.FORMAT.of(op.get(Register.ACC_FORMAT)))


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
    return slice_depth(accelerator, micro_block(op, accelerator), bits, is_sparse(op), False)


def slice_depth(accelerator: Architecture, micro: Shape, bits: int, sparse: bool, part_kernel: bool) -> int:
    """Input channels of one pass over elements of `bits`."""
    if part_kernel:
        return PART_KERNEL_SLICE
    if bits == 32 or (accelerator.cores == 1 and micro.depth == 16 and not sparse):
        return 32
    return 128 if sparse and bits == 8 else 64


def arrangement(op: Operation, accelerator: Architecture) -> WeightArrangement:
    """The order of the weights of a CONV or DEPTHWISE whose blocks are chosen."""
    word = op[Register.KERNEL_STRIDE]
    bits = 8 << InputWord.SIZE.of(op[Register.IFM_PRECISION])
    depthwise = op.op is Op.DEPTHWISE
    part = bool(KernelStride.PART_KERNEL_FIRST.of(word)) and not depthwise
    micro, sparse = micro_block(op, accelerator), is_sparse(op)
    return WeightArrangement(
        op[Register.OFM_BLK_DEPTH_M1] + 1,
        micro.depth,
        slice_depth(accelerator, micro, bits, sparse, part),
        bits,
        depthwise,
        part,
        sparse,
        (KernelStride.stride_y(word), KernelStride.stride_x(word)),
        (1 + KernelStride.DILATION_Y.of(word), 1 + KernelStride.DILATION_X.of(word)),
    )


_FIXED_POOLS = (PoolMode.NONE, PoolMode.ARGMAX_Y)


def is_indivisible(op: Operation) -> bool:
    """Whether neither rows nor channels of an Ethos-U85 kernel can be made apart: results in another order, products of
    two maps, and what is fixed.
    """
    if op.language is not Language.U85 or op.op is Op.DMA_START:
        return False
    output = op[Register.OFM_PRECISION]
    return is_product(op) or bool(OutputWord.TRANSPOSE.of(output) or OutputWord.REVERSE.of(output)) or is_fixed(op)


def is_fixed(op: Operation) -> bool:
    """Whether an Ethos-U85 kernel's blocks stay as its compiler made them: of chains, of sums that are kept or loaded,
    of channels stored backwards, of bricks in another order, and of what we never make.
    """
    if op.op is Op.DMA_START:
        return False
    accumulators, output = op.get(Register.ACC_FORMAT), op[Register.OFM_PRECISION]
    kept = AccumulatorWord.INPUT.of(accumulators) or AccumulatorWord.NO_OUTPUT.of(accumulators)
    in_bricks = OutputWord.BRICK.of(output) and (OutputWord.TRANSPOSE.of(output) or OutputWord.REVERSE.of(output))
    turned = in_bricks or OutputWord.REVERSE.of(output) == StoredBackwards.C
    odd = op.op is Op.RESIZE or InputWord.SIZE.of(op[Register.IFM_PRECISION]) > 2
    pool = op.op is Op.POOL and op.parameter in _FIXED_POOLS
    return bool(kept or turned or odd or pool or chained_maps(op) or OutputWord.STORAGE.of(output))
