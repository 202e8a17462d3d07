"""The window of a kernel over its input: sizes, strides, dilation, padding, upscaling.

Invariant: the padded extent is exactly (output - 1) * stride + dilated kernel, so the input's height
and width, which no register holds, follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.stream.isa import Register, Upscale

from .layout import ELEMENT_TYPES
from .registers import Registers

# IFM alone: operand scaling (bits 8, 9) and how the scaled operand is rounded (bits 14, 15)
_IFM_MASK = {"IFM": 0b1100_0011_0100_1101, "IFM2": 0b100_1101}
MAX_KERNEL = 1 << 16


def read_type(regs: Registers, name: str) -> tuple[np.dtype[Any], bool]:
    """(element type, NHCWB16?) of IFM or IFM2."""
    register = Register[f"{name}_PRECISION"]
    precision = regs.bits(register, _IFM_MASK[name])
    size = regs.one_of(register, (0, 1, 2), precision >> 2 & 3)
    regs.one_of(register, (0, 1, 2), precision >> 14)  # rounding of a scaled operand
    return ELEMENT_TYPES[size, precision & 1], bool(precision & 64)


@dataclass(frozen=True, slots=True)
class Window:
    """Kernel geometry; heights and widths in elements."""

    height: int  # taps, without dilation
    width: int
    stride_y: int
    stride_x: int
    dilation_y: int
    dilation_x: int
    pad_top: int
    pad_left: int
    pad_bottom: int
    pad_right: int
    upscale: Upscale
    part_kernel_first: bool
    padded_height: int
    padded_width: int

    @property
    def is_padded(self) -> bool:
        return bool(self.pad_top or self.pad_left or self.pad_bottom or self.pad_right)

    @property
    def is_one_element(self) -> bool:
        """True when output element (y, x) takes in input element (y, x) of each channel and nothing else."""
        steps = (self.height, self.width, self.stride_y, self.stride_x)
        return steps == (1, 1, 1, 1) and not self.is_padded and self.upscale is Upscale.NONE

    @property
    def inner(self) -> tuple[slice, slice]:
        """Rows and columns of the padded extent that are not padding."""
        return (
            slice(self.pad_top, self.padded_height - self.pad_bottom),
            slice(self.pad_left, self.padded_width - self.pad_right),
        )

    @property
    def input_shape(self) -> tuple[int, int]:
        """Height and width in memory."""
        height = self.padded_height - self.pad_top - self.pad_bottom
        width = self.padded_width - self.pad_left - self.pad_right
        return (height, width) if self.upscale is Upscale.NONE else ((height + 1) // 2, (width + 1) // 2)

    @staticmethod
    def read(regs: Registers, out_height: int, out_width: int) -> Window:
        r = Register
        bits = regs.bits(r.KERNEL_STRIDE, 0xFFF)
        stride_x = (bits & 1 | (bits >> 6 & 7) << 1) + 1
        stride_y = (bits >> 1 & 1 | (bits >> 9 & 7) << 1) + 1
        dilation_x, dilation_y = (bits >> 3 & 1) + 1, (bits >> 4 & 1) + 1
        extents = []
        for register, dilation in ((r.KERNEL_HEIGHT_M1, dilation_y), (r.KERNEL_WIDTH_M1, dilation_x)):
            last = regs.raw(register)
            if last % dilation:
                regs.illegal(f"{register.name} = {last} is not a dilated extent for dilation {dilation}")
            extents.append(last)
        if (extents[0] + 1) * (extents[1] + 1) > MAX_KERNEL:
            regs.illegal(f"a kernel of {extents[0] + 1} x {extents[1] + 1} has more than {MAX_KERNEL} elements")
        window = Window(
            height=extents[0] // dilation_y + 1,
            width=extents[1] // dilation_x + 1,
            stride_y=stride_y,
            stride_x=stride_x,
            dilation_y=dilation_y,
            dilation_x=dilation_x,
            pad_top=regs.bits(r.IFM_PAD_TOP, 0x7F),
            pad_left=regs.bits(r.IFM_PAD_LEFT, 0x7F),
            pad_bottom=regs.bits(r.IFM_PAD_BOTTOM, 0xFF),
            pad_right=regs.bits(r.IFM_PAD_RIGHT, 0xFF),
            upscale=Upscale(regs.one_of(r.IFM_UPSCALE, (0, 1, 2))),
            part_kernel_first=bool(bits & 4),
            padded_height=(out_height - 1) * stride_y + extents[0] + 1,
            padded_width=(out_width - 1) * stride_x + extents[1] + 1,
        )
        height, width = window.input_shape
        if height < 1 or width < 1:
            regs.illegal(
                f"padding {window.pad_top}/{window.pad_left}/{window.pad_bottom}/{window.pad_right} (top/left/bottom/"
                f"right) leaves no input of the {window.padded_height} x {window.padded_width} the kernel covers"
            )
        return window

    def patches(self, padded: NDArray[Any], out_height: int, out_width: int) -> NDArray[Any]:
        """View [out height, out width, kernel height, kernel width, channels] of a padded input."""
        sy, sx, sc = padded.strides
        return np.lib.stride_tricks.as_strided(
            padded,
            (out_height, out_width, self.height, self.width, padded.shape[2]),
            (sy * self.stride_y, sx * self.stride_x, sy * self.dilation_y, sx * self.dilation_x, sc),
            writeable=False,
        )

    @property
    def taps(self) -> Iterator[tuple[int, int]]:
        """(y, x) of each kernel element, x fastest."""
        return product(range(self.height), range(self.width))

    def tap(self, padded: NDArray[Any], y: int, x: int, rows: range, out_width: int) -> NDArray[Any]:
        """The input elements that kernel element (y, x) meets for output rows `rows`: a view."""
        top, left = rows.start * self.stride_y + y * self.dilation_y, x * self.dilation_x
        bottom = top + (len(rows) - 1) * self.stride_y + 1
        return padded[top : bottom : self.stride_y, left : left + (out_width - 1) * self.stride_x + 1 : self.stride_x]
