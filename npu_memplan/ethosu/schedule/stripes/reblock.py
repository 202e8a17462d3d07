"""Blocks for operations that make a few rows only.

Invariant: the depth of a block stays, because weights are encoded for it; height and width are the cheapest that
fit the NPU's SHRAM, and nothing else of the operation changes.
"""

from __future__ import annotations

from dataclasses import replace

from ...arch import Architecture, Shape
from ...program.access import lut_index
from ...program.featuremap import FeatureMap, Kernel
from ...program.program import NpuOperation, NpuProgram
from ...stream.commands import Operation
from ...stream.isa import Op, PoolMode
from ...stream.isa import Register as R
from ..blocks import BlockError, choose
from ..shram import BlockKind, BlockWork

_KINDS = {
    Op.CONV: BlockKind.CONV,
    Op.DEPTHWISE: BlockKind.DEPTHWISE,
    Op.POOL: BlockKind.POOL,
    Op.ELEMENTWISE: BlockKind.ELEMENTWISE,
}


def reblocked(program: NpuProgram, index: int) -> NpuOperation:
    """Operation `index` of `program` in the best blocks for its height."""
    operation = program.operations[index]
    changes = best_blocks(program.at_zero(index), program.accelerator)
    return replace(operation, registers={**operation.registers, **changes})


def best_blocks(operation: Operation, accelerator: Architecture) -> dict[R, int]:
    """Registers of the best blocks for an operation's height; none when no others fit."""
    try:
        layout = choose(accelerator, _work(operation), operation[R.OFM_BLK_DEPTH_M1] + 1).layout
    except BlockError:
        return {}
    changes = {
        R.OFM_BLK_HEIGHT_M1: layout.block.height - 1,
        R.OFM_BLK_WIDTH_M1: layout.block.width - 1,
        R.IFM_IB_END: layout.ib_end,
        R.AB_START: layout.ab_start,
        R.ACC_FORMAT: int(layout.acc_format),
    }
    if R.IFM2_IB_START in operation.registers:
        changes[R.IFM2_IB_START] = layout.ifm2_ib_start
    return changes


def _work(operation: Operation) -> BlockWork:
    source, output = FeatureMap.ifm(operation), FeatureMap.ofm(operation)
    reduces = operation.op is Op.POOL and operation.parameter == PoolMode.REDUCE_SUM
    work = BlockWork(
        kind=BlockKind.REDUCE_SUM if reduces else _KINDS[operation.op],
        ifm=Shape(source.height, source.width, source.depth),
        ofm=Shape(output.height, output.width, output.depth),
        ifm_bits=8 * source.element_bytes,
        uses_lut=lut_index(operation) is not None,
        second_operand=FeatureMap.ifm2(operation) is not None,
    )
    if operation.op is Op.ELEMENTWISE:
        return work
    kernel = Kernel.of(operation)
    return replace(
        work,
        kernel_height=kernel.height,
        kernel_width=kernel.width,
        stride_y=kernel.stride_y,
        stride_x=kernel.stride_x,
        part_kernel=kernel.part_kernel_first,
    )
