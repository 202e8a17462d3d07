"""The window of a convolution or pool, read from its registers.

Invariant: heights and widths are dilated extents, in elements of the (possibly upscaled) input.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

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
        return _kernel(*[op[register] for register in _REGISTERS])


_REGISTERS = (
    Register.KERNEL_STRIDE,
    Register.KERNEL_HEIGHT_M1,
    Register.KERNEL_WIDTH_M1,
    Register.IFM_PAD_TOP,
    Register.IFM_PAD_LEFT,
    Register.IFM_PAD_BOTTOM,
    Register.IFM_PAD_RIGHT,
)


@lru_cache(1 << 10)  # operations have few windows, and they are asked for often
def _kernel(stride: int, height: int, width: int, top: int, left: int, bottom: int, right: int) -> Kernel:
    """From the values of `_REGISTERS`."""
    return Kernel(
        height=height + 1,
        width=width + 1,
        stride_y=KernelStride.stride_y(stride),
        stride_x=KernelStride.stride_x(stride),
        dilation_y=1 + KernelStride.DILATION_Y.of(stride),
        dilation_x=1 + KernelStride.DILATION_X.of(stride),
        part_kernel_first=bool(KernelStride.PART_KERNEL_FIRST.of(stride)),
        pad_top=top,
        pad_left=left,
        pad_bottom=bottom,
        pad_right=right,
    )
