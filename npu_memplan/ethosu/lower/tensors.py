"""Quantised tensors, and the arithmetic between them.

Invariant: a tensor is a value with one scale and one zero point, wherever its bytes will be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

INT8, INT16, INT32 = ((-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32))


class Arithmetic(Enum):
    """What the layers of a graph compute, to the last step."""

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

    def differs(self, other: LayerTensor) -> bool:
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
    def any(self) -> bool:
        return any(self.sides)


NO_PADDING = Padding()
