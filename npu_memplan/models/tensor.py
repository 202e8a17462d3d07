"""A tensor of a network: its type, its quantisation, its constant bytes.

Invariant: `data` of a constant has exactly `size_bytes` bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .flatbuffer import NetworkError

FLOATS = ("float32", "float16", "float64")
SIGNED = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}  # by bytes


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """One tensor of the subgraph."""

    index: int
    name: str
    shape: tuple[int, ...]
    dtype: str  # numpy name
    scales: tuple[float, ...] = ()  # empty: not quantised; several: per channel
    zero_points: tuple[int, ...] = ()
    quantised_dimension: int = 0
    data: NDArray[np.uint8] | None = field(default=None, repr=False)  # constant bytes
    is_variable: bool = False
    initial: NDArray[np.uint8] | None = field(default=None, repr=False)  # of a state; None: its zero point everywhere
    has_open_shape: bool = False  # the file leaves its shape to the run time, or does not say it
    is_packed: bool = False  # 4 bits a number in the file; `data` is unpacked
    arena_offset: int = -1  # OfflineMemoryAllocation; -1: none
    index_range: tuple[int, int] | None = None  # of an input that is an index: its values, half-open

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole tensor."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def scale(self) -> float:
        """The per-tensor scale; 0.0 when not quantised, or when the file says so."""
        return self.scales[0] if self.scales else 0.0

    @property
    def zero_point(self) -> int:
        """The per-tensor zero point; 0 when not quantised."""
        return self.zero_points[0] if self.zero_points else 0

    @property
    def is_packed_by_channel(self) -> bool:
        """Whether these are weights of 4 bits with a scale for each channel."""
        return self.is_packed and len(self.scales) > 1

    def array(self) -> NDArray[Any]:
        """The constant as an array of `shape` and `dtype`; `NetworkError` when it is no constant."""
        if self.data is None:
            raise NetworkError(f"tensor {self.index} {self.name!r} is no constant")
        return self.data.view(self.dtype).reshape(self.shape)

    def start(self) -> NDArray[np.uint8]:
        """The bytes that a state starts with."""
        if self.initial is not None:
            return self.initial
        return np.full(self.shape, self.zero_point, self.dtype).reshape(-1).view(np.uint8)
