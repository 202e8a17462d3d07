"""The window of a convolution or pool, read from its registers.

Invariant: heights and widths are dilated extents, in elements of the (possibly upscaled) input.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..stream.commands import Operation
from ..stream.fields import KernelStride
from ..stream.isa import Register


@dataclass(frozen=True, slots=True)
class Kernel:
    """Window of a convolution or pool, in elements of the (possibly upscaled) input."""

    height: int  # dilated extents
    width: int
    stride_y: int
    stride_x: int
    dilation_y: int
    dilation_x: int
    part_kernel_first: bool
    pad_top: int
    pad_left: int
    pad_bottom: int
    pad_right: int

    @staticmethod
    def of(op: Operation) -> Kernel:
        """The kernel registers of a CONV, DEPTHWISE or POOL."""
        bits = op[Register.KERNEL_STRIDE]
        return Kernel(
            height=op[Register.KERNEL_HEIGHT_M1] + 1,
            width=op[Register.KERNEL_WIDTH_M1] + 1,
            stride_y=KernelStride.stride_y(bits),
            stride_x=KernelStride.stride_x(bits),
            dilation_y=1 + KernelStride.DILATION_Y.of(bits),
            dilation_x=1 + KernelStride.DILATION_X.of(bits),
            part_kernel_first=bool(KernelStride.PART_KERNEL_FIRST.of(bits)),
            pad_top=op[Register.IFM_PAD_TOP],
            pad_left=op[Register.IFM_PAD_LEFT],
            pad_bottom=op[Register.IFM_PAD_BOTTOM],
            pad_right=op[Register.IFM_PAD_RIGHT],
        )
