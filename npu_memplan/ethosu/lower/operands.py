"""What an operation works on: feature maps, windows, and what happens to its results.

Invariant: these are descriptions without addresses or state; `emit.Builder` turns them into registers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ..arch import Shape
from ..stream.fields import InputPrecision, KernelStride, OutputPrecision, StepWord
from ..stream.isa import BRICK_CHANNELS, ActivationFunction, Rounding, Upscale
from ..stream.isa import Register as R
from .scaling import Scale
from .tensors import Padding
from .views import TensorView


@dataclass(frozen=True, slots=True)
class Operand:
    """A feature map of one operation: a view as [H, W, C] and how its numbers are read."""

    view: TensorView
    dtype: str
    zero_point: int = 0
    scalar: int | None = None  # its one value, where that is in a register and not in memory

    @property
    def shape(self) -> Shape:
        return Shape(*self.view.shape)

    @property
    def bits(self) -> int:
        return int(np.dtype(self.dtype).itemsize) * 8

    @property
    def precision(self) -> int:
        """Signedness, size and layout as IFM_PRECISION has them."""
        return self.packed_precision(InputPrecision)

    def packed_precision(self, fields: type[InputPrecision] | type[OutputPrecision]) -> int:
        """Signedness, size and layout in the fields of an input or an output."""
        size = {8: 0, 16: 1, 32: 2}[self.bits]
        signed = self.dtype.startswith("int")
        return fields.SIGNED.at(signed) | fields.SIZE.at(size) | fields.BRICK.at(self.view.brick)


@dataclass(frozen=True, slots=True)
class Window:
    """Kernel, stride and padding of one operation, in elements of the upscaled input."""

    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: Padding = field(default_factory=Padding)
    upscale: Upscale = Upscale.NONE

    @property
    def dilated(self) -> tuple[int, int]:
        """Extents in input elements."""
        return (
            (self.kernel[0] - 1) * self.dilation[0] + 1,
            (self.kernel[1] - 1) * self.dilation[1] + 1,
        )


@dataclass(frozen=True, slots=True)
class Positions:
    """Where along one axis a RESIZE reads: output position i is position (i * step + offset) / numerator."""

    numerator: int
    step: int
    offset: int

    @property
    def fit(self) -> bool:
        """Whether the registers hold them."""
        in_range = 1 <= self.numerator <= 1 << 11 and -(1 << 11) <= self.offset < 1 << 11
        return in_range and 0 <= self.step < self.numerator << 4

    def registers(self, axis: str, block: int) -> dict[R, int]:
        """Those of the axis "X" or "Y" with blocks of `block` positions."""
        (whole, rest), (wholes, rests) = (divmod(n * self.step, self.numerator) for n in (1, block - 1))
        one, all_but_one = StepWord.ONE_WHOLE.at(whole) | StepWord.ONE_REST.at(rest), StepWord.BLOCK_WHOLE.at(wholes)
        return {
            R[f"RESIZE_{axis}_SCALE_N_M1"]: self.numerator - 1,
            R[f"RESIZE_{axis}_OFFSET"]: self.offset & 0xFFF,
            R[f"RESIZE_{axis}_STEP"]: one | all_but_one | StepWord.BLOCK_REST.at(rests),
        }


@dataclass(frozen=True, slots=True)
class Output:
    """What happens to an accumulator on its way out."""

    clamp: tuple[int, int]
    scale: Scale | None = None  # None: one scale for each channel, from the scale table
    rounding: Rounding = Rounding.TFL
    table: NDArray[np.int64] | None = (
        None  # looked up after the clamp: 256 values; of int16 512 lines (`Interpolation`)
    )
    function: ActivationFunction = ActivationFunction.NONE  # of the scaled value


def kernel_registers(window: Window) -> dict[R, int]:
    """KERNEL_* and IFM_PAD_*, input channels first."""
    padding = window.padding
    return {
        R.KERNEL_HEIGHT_M1: window.dilated[0] - 1,
        R.KERNEL_WIDTH_M1: window.dilated[1] - 1,
        R.KERNEL_STRIDE: KernelStride.pack(window.stride, window.dilation, False),
        R.IFM_PAD_TOP: padding.top,
        R.IFM_PAD_LEFT: padding.left,
        R.IFM_PAD_BOTTOM: padding.bottom,
        R.IFM_PAD_RIGHT: padding.right,
    }


_FEW = 3  # channels: those of a micro-block take twice as long to pool as four of them to put out


def without_padding(ifm: Operand, ofm: Operand) -> tuple[Operand, Operand]:
    """Both seen with whole bricks for channels, where they have so few that most of a micro-block would be empty."""
    height, width, depth = ifm.view.shape
    if depth > _FEW or width * depth % BRICK_CHANNELS or not (ifm.view.has_dense_rows and ofm.view.has_dense_rows):
        return ifm, ofm
    shape = (height, width * depth // BRICK_CHANNELS, BRICK_CHANNELS)
    seen = []
    for operand in (ifm, ofm):
        size = operand.view.element_bytes
        strides = (operand.view.strides[0], BRICK_CHANNELS * size, size)
        seen.append(replace(operand, view=replace(operand.view, shape=shape, strides=strides)))
    return seen[0], seen[1]
