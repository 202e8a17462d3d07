"""The network between partitioning and NPU operations: quantised tensors and typed layers.

Invariant: a `Graph` is in static single assignment - each tensor is an input, a constant, or made by
exactly one layer that stands before its readers - and every layer is something `lower` can put on the
NPU: whoever builds a layer has checked `constraints`. Tensors are NHWC with N folded into the height.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..stream.isa import Function, Upscale


class Arithmetic(Enum):
    """What the layers of a graph compute, to the last step."""

    TFLITE = "tflite"  # TFLite's kernels: fixed point, rounded twice by shifts above 31
    REAL = "real"  # real numbers between stored values, rounded once: QDQ graphs of ONNX and PyTorch


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """One quantised value; `real = scale * (q - zero_point)`."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # numpy's name: int8, uint8, int16, int32
    scale: float = 1.0
    zero_point: int = 0
    data: NDArray[Any] | None = None  # of a constant, in `shape`

    @property
    def hwc(self) -> tuple[int, int, int]:
        """Height (with the batch folded in), width, depth."""
        shape = (1, 1, 1, *self.shape)
        return int(np.prod(shape[:-2])), shape[-2], shape[-1]

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
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


@dataclass(frozen=True, slots=True)
class Padding:
    """Rows and columns of zero point around the input."""

    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0

    @property
    def any(self) -> bool:
        """True when at least one side is padded."""
        return bool(self.top or self.left or self.bottom or self.right)


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """Base of all layers: what it reads, what it makes, and how it is called in reports."""

    name: str
    inputs: tuple[str, ...]
    output: str


@dataclass(frozen=True, slots=True, eq=False)
class Conv(Layer):
    """Convolution, depthwise convolution, transpose convolution or fully connected."""

    weights: NDArray[Any]  # OHWI (depthwise: O = 1, I = channels out), zero point already subtracted
    bias: NDArray[np.int64]
    weight_scales: tuple[float, ...]  # one, or one for each output channel
    clamp: tuple[int, int]  # quantised
    stride: tuple[int, int] = (1, 1)  # y, x
    dilation: tuple[int, int] = (1, 1)
    padding: Padding = Padding()
    depthwise: bool = False
    fully_connected: bool = False
    upscale: Upscale = Upscale.NONE
    wide: bool = False  # 64-bit accumulators, rounded once: int16 without an int32 bias


class PoolKind(Enum):
    """Window operations without weights."""

    MAX = "max"
    AVERAGE = "average"
    MEAN = "mean"  # sums with input and output scales, as TFLite's MEAN
    SUM = "sum"


@dataclass(frozen=True, slots=True, eq=False)
class Pool(Layer):
    """Pooling over a window."""

    kind: PoolKind
    kernel: tuple[int, int]
    clamp: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: Padding = Padding()
    reduces: bool = False  # the window is whole axes, which the output may lack
    across: bool = False  # it is the channels: a kernel of [1, depth]


class BinaryKind(Enum):
    """Elementwise operations of two tensors."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    MIN = "min"
    MAX = "max"
    SQUARED_DIFFERENCE = "squared_difference"


@dataclass(frozen=True, slots=True, eq=False)
class Binary(Layer):
    """Elementwise operation; the second operand may be smaller (broadcast) or a constant."""

    kind: BinaryKind
    clamp: tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Lookup(Layer):
    """Any function of one 8-bit value: `table[q]`, 256 entries from the smallest input value up."""

    table: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Squash(Layer):
    """Sigmoid or tanh of int16 values, by the NPU's own function."""

    function: Function


@dataclass(frozen=True, slots=True, eq=False)
class Requantize(Layer):
    """Other scale and zero point, by one rescale of the NPU."""

    clamp: tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Abs(Layer):
    """Absolute value."""

    clamp: tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Prelu(Layer):
    """x, or slope * x below zero; the slopes are the second input, broadcast where they are smaller."""


@dataclass(frozen=True, slots=True, eq=False)
class Softmax(Layer):
    """Softmax over the last axis, 8 bits."""

    beta: float = 1.0


@dataclass(frozen=True, slots=True)
class Phase:
    """Every n-th output position along one axis, n being the number of phases.

    Output k of them is `(1 - second/of) * source[k + first] + second/of * source[k + first + 1]`; positions
    outside of the source are its edge.
    """

    first: int = 0
    second: int = 0
    of: int = 1  # a power of two


@dataclass(frozen=True, slots=True, eq=False)
class Resize(Layer):
    """Enlarge height and width by whole numbers; the phases of each axis."""

    rows: tuple[Phase, ...]
    columns: tuple[Phase, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Reshape(Layer):
    """The same elements under another shape: the same bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Transpose(Layer):
    """Dimensions in another order: output dimension i is input dimension `axes[i]`."""

    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Concat(Layer):
    """Inputs side by side along `axis` (negative: from the last)."""

    axis: int


@dataclass(frozen=True, slots=True, eq=False)
class Slice(Layer):
    """A strided box of the input: one start and step for each dimension."""

    begin: tuple[int, ...]
    step: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Pad(Layer):
    """The input inside a border of the stored value `value`."""

    padding: Padding
    value: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class SequenceLstm(Layer):
    """LSTM over a sequence; `inputs` are the data, the hidden state and the cell state, which it updates in place.

    The first axis of the weights is `lstm.Gate`.
    """

    into: NDArray[np.int16]  # [4, units, depth], of the data
    recurrent: NDArray[np.int16]  # [4, units, units], of the hidden state
    bias: NDArray[np.int64]  # [4, units]
    into_scales: tuple[float, ...]  # one for each gate
    recurrent_scales: tuple[float, ...]
    cell_clamp: tuple[int, int]  # quantised
    time_major: bool = False  # data and output are [time, batch, ...] instead of [batch, time, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Tensors by name and layers in program order."""

    name: str
    tensors: dict[str, Tensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    layers: tuple[Layer, ...]
    arithmetic: Arithmetic = Arithmetic.TFLITE

    @property
    def states(self) -> frozenset[str]:
        """Inputs that a layer updates in place; they keep their content between runs."""
        return frozenset(n for layer in self.layers if isinstance(layer, SequenceLstm) for n in layer.inputs[1:])

    def readers(self, name: str) -> Iterator[Layer]:
        """Layers that read tensor `name`."""
        return (layer for layer in self.layers if name in layer.inputs)

    def maker(self, name: str) -> Layer | None:
        """The layer that makes tensor `name`; None for inputs and constants."""
        return next((layer for layer in self.layers if layer.output == name), None)
