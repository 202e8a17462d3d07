"""What an operation works on: quantised tensors, views of buffers, feature maps, windows, and what happens to results.

Invariant: a tensor is a value with one scale and one zero point, wherever its bytes will be. A `TensorView` never
copies; taking a box, a reshape or a place inside a larger tensor gives a new view of the same bytes or `None` when no
strides can express it. Strides and offsets are bytes. These are descriptions without addresses or state; `emit.Builder`
turns them into registers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arch import Shape
from ..stream.fields import InputPrecision, KernelStride, OutputPrecision, StepWord
from ..stream.isa import BRICK_CHANNELS, ActivationFunction, Rounding, Upscale
from ..stream.isa import Register as R
from .scaling import Scale

INT8, INT16, INT32 = ((-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32))


class Arithmetic(Enum):
    """The arithmetic of a graph's layers, to the last step."""

    TFLITE = "tflite"  # TFLite's kernels: fixed point, rounded twice by shifts above 31
    REAL = "real"  # real numbers between stored values, rounded once: QDQ graphs of ONNX and PyTorch


@dataclass(frozen=True, slots=True, eq=False)
class LayerTensor:
    """One quantised value; `real = scale * (q - zero_point)`."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # numpy's name: int8, uint8, int16, int32
    scale: float = 1.0
    zero_point: int = 0
    data: NDArray[Any] | None = None  # of a constant, in `shape`
    stored: tuple[str, int] | None = None  # type and zero point of the bytes, where another tensor's mean the same

    @property
    def hwc(self) -> tuple[int, int, int]:
        """Height (with the batch folded in), width, depth."""
        shape = (1, 1, 1, *self.shape)
        return int(np.prod(shape[:-2])), shape[-2], shape[-1]

    @property
    def element_bytes(self) -> int:
        return int(np.dtype(self.dtype).itemsize)

    @property
    def size_bytes(self) -> int:
        """Bytes of the dense tensor."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.element_bytes

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest value of the type."""
        info = np.iinfo(self.dtype)
        return int(info.min), int(info.max)

    def has_other_scale(self, other: LayerTensor) -> bool:
        """Whether two stated quantisations differ; NaN is a scale that is not stated."""
        if math.isnan(self.scale) or math.isnan(other.scale):
            return False
        return (self.scale, self.zero_point) != (other.scale, other.zero_point)


@dataclass(frozen=True, slots=True)
class Padding:
    """Rows and columns of zero point around the input."""

    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0

    @property
    def sides(self) -> tuple[int, int, int, int]:
        return self.top, self.left, self.bottom, self.right

    @property
    def is_padded(self) -> bool:
        return any(self.sides)


NO_PADDING = Padding()


@dataclass(frozen=True, slots=True)
class TensorView:
    """A tensor inside `buffer`; with `brick` (NHCWB16, N = 1) the last stride is that of 16-channel bricks."""

    buffer: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element_bytes: int
    brick: bool = False

    @staticmethod
    def dense(buffer: str, shape: tuple[int, ...], element_bytes: int) -> TensorView:
        """Row-major elements from the start of `buffer`."""
        strides, step = [], element_bytes
        for size in reversed(shape):
            strides.append(step)
            step *= size
        return TensorView(buffer, 0, shape, tuple(reversed(strides)), element_bytes)

    @staticmethod
    def bricks(buffer: str, shape: tuple[int, ...], element_bytes: int) -> TensorView:
        """NHCWB16 from the start of `buffer`; `shape` is [1, H, W, C]."""
        _, height, width, depth = shape
        brick = width * BRICK_CHANNELS * element_bytes
        row = brick * (-(-depth // BRICK_CHANNELS))
        return TensorView(
            buffer, 0, shape, (row * height, row, BRICK_CHANNELS * element_bytes, brick), element_bytes, True
        )

    @property
    def is_dense(self) -> bool:
        """True when the elements are row-major without gaps."""
        step = self.element_bytes
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size > 1 and stride != step:
                return False
            step *= size
        return not self.brick

    @property
    def has_dense_rows(self) -> bool:
        """Whether columns of [H, W, C] follow each other without gaps."""
        width = self.shape[2] * self.element_bytes
        return not self.brick and self.strides[1:] == (width, self.element_bytes)

    def reshape(self, shape: tuple[int, ...]) -> TensorView | None:
        """The same bytes under another shape; None when they are not dense."""
        if not self.is_dense:
            return None
        return replace(TensorView.dense(self.buffer, shape, self.element_bytes), offset=self.offset)

    def box(
        self, begin: tuple[int, ...], shape: tuple[int, ...], step: tuple[int, ...] | None = None
    ) -> TensorView | None:
        """Elements `begin + i * step` for i below `shape`; None where bricks or channel steps forbid it."""
        step = step or (1,) * len(shape)
        if self.brick or step[-1] != 1:
            return None
        offset = self.offset + sum(b * s for b, s in zip(begin, self.strides, strict=True))
        strides = tuple(s * k for s, k in zip(self.strides, step, strict=True))
        return replace(self, offset=offset, shape=shape, strides=strides)

    def permute(self, axes: tuple[int, ...]) -> TensorView:
        """Dimensions in another order; dimension i of the result is dimension `axes[i]`. Not for bricks."""
        return replace(self, shape=tuple(self.shape[a] for a in axes), strides=tuple(self.strides[a] for a in axes))

    def channel_view(self, index: int) -> TensorView:
        """One element of the last dimension, which becomes 1 long."""
        return replace(
            self,
            offset=self.offset + index * self.strides[-1],
            shape=(*self.shape[:-1], 1),
            strides=(*self.strides[:-1], self.element_bytes),
        )

    def hwc(self) -> TensorView | None:
        """The same elements as [H, W, C], all leading dimensions in H; None when their strides do not fold."""
        if self.brick:
            return replace(self, shape=self.shape[1:], strides=self.strides[1:])
        if self.shape and self.shape[-1] > 1 and self.strides[-1] != self.element_bytes:
            return None
        missing = max(0, 3 - len(self.shape))
        size = self.element_bytes * self.shape[-1] if self.shape else self.element_bytes
        shape = (1,) * missing + self.shape
        strides = (size,) * missing + self.strides
        height, stride = 1, strides[-3]
        for extent, distance in zip(reversed(shape[:-2]), reversed(strides[:-2]), strict=True):
            if extent == 1:
                continue
            if height == 1:
                height, stride = extent, distance
            elif distance == height * stride:
                height *= extent
            else:
                return None
        return replace(self, shape=(height, *shape[-2:]), strides=(stride, *strides[-2:]))


def box_pairs(source: TensorView, target: TensorView) -> list[tuple[TensorView, TensorView]] | None:
    """The same boxes of both as [H, W, C]: the whole, or one for each leading index; None where channels lie apart."""
    a, b = source.hwc(), target.hwc()
    if a is not None and b is not None:
        return [(a, b)] if a.shape == b.shape else None
    axis = next((i for i, extent in enumerate(source.shape[:-3]) if extent > 1), None)
    if axis is None or source.shape != target.shape:
        return None
    shape = tuple(1 if i == axis else extent for i, extent in enumerate(source.shape))
    found = []
    for index in range(source.shape[axis]):
        begin = tuple(index if i == axis else 0 for i in range(len(shape)))
        boxes = source.box(begin, shape), target.box(begin, shape)
        parts = None if boxes[0] is None or boxes[1] is None else box_pairs(boxes[0], boxes[1])
        if parts is None:
            return None
        found += parts
    return found


@dataclass(slots=True)
class Storage:
    """Views of all tensors that live in memory, and the data movements that stay."""

    views: dict[str, TensorView] = field(default_factory=dict)
    copies: set[str] = field(default_factory=set)  # outputs of layers that could be views but must move data
    embedded: dict[str, str] = field(default_factory=dict)  # tensor -> the concatenation or pad it is made inside


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
        return fields.SIGNED.word_with(signed) | fields.SIZE.word_with(size) | fields.BRICK.word_with(self.view.brick)


@dataclass(frozen=True, slots=True)
class Window:
    """Kernel, stride and padding of one operation, in elements of the upscaled input."""

    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: Padding = field(default_factory=Padding)
    upscale: Upscale = Upscale.NONE

    @property
    def dilated_extents(self) -> tuple[int, int]:
        """Extents in input elements."""
        return ((self.kernel[0] - 1) * self.dilation[0] + 1, (self.kernel[1] - 1) * self.dilation[1] + 1)


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions along one axis that a RESIZE reads: output position i is (i * step + offset) / numerator."""

    numerator: int
    step: int
    offset: int

    @property
    def fit(self) -> bool:
        """Whether the registers hold them."""
        in_range = 1 <= self.numerator <= 1 << 11 and -(1 << 11) <= self.offset < 1 << 11
        return in_range and 0 <= self.step < self.numerator << 4

    def registers(self, axis: str, block: int) -> dict[R, int]:
        """The registers of the axis "X" or "Y" with blocks of `block` positions."""
        (whole, rest), (wholes, rests) = (divmod(n * self.step, self.numerator) for n in (1, block - 1))
        one, all_but_one = (
            StepWord.ONE_WHOLE.word_with(whole) | StepWord.ONE_REST.word_with(rest),
            StepWord.BLOCK_WHOLE.word_with(wholes),
        )
        return {
            R[f"RESIZE_{axis}_SCALE_N_M1"]: self.numerator - 1,
            R[f"RESIZE_{axis}_OFFSET"]: self.offset & 0xFFF,
            R[f"RESIZE_{axis}_STEP"]: one | all_but_one | StepWord.BLOCK_REST.word_with(rests),
        }


@dataclass(frozen=True, slots=True)
class Output:
    """The steps from an accumulator to a stored result."""

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
        R.KERNEL_HEIGHT_M1: window.dilated_extents[0] - 1,
        R.KERNEL_WIDTH_M1: window.dilated_extents[1] - 1,
        R.KERNEL_STRIDE: KernelStride.pack(window.stride, window.dilation, False),
        R.IFM_PAD_TOP: padding.top,
        R.IFM_PAD_LEFT: padding.left,
        R.IFM_PAD_BOTTOM: padding.bottom,
        R.IFM_PAD_RIGHT: padding.right,
    }


_FEW = 3  # channels: those of a micro-block take twice as long to pool as four of them to put out


def without_padding(*operands: Operand) -> tuple[Operand, ...]:
    """Maps of one shape with columns joined into channels, where channels leave most of a brick empty: into whole
    bricks, or else all of a row.
    """
    height, width, depth = operands[0].view.shape
    if depth > _FEW or width == 1 or not all(operand.view.has_dense_rows for operand in operands):
        return operands
    row = width * depth
    joined = BRICK_CHANNELS if row % BRICK_CHANNELS == 0 else row
    seen = []
    for operand in operands:
        size = operand.view.element_bytes
        strides = (operand.view.strides[0], joined * size, size)
        view = replace(operand.view, shape=(height, row // joined, joined), strides=strides)
        seen.append(replace(operand, view=view))
    return tuple(seen)
