"""Random numbers that graphs of TOSA's operators are made with.

Invariant: they follow from the generator alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .tosa_graphs import TosaFile

Random = np.random.Generator


def scales_about(rng: Random, count: int, real: float) -> list[tuple[int, int]]:
    """Random scales of about `real`."""
    shift = 31 - int(np.ceil(np.log2(real)))
    return [(int(rng.integers(1 << 30, 1 << 31)), shift) for _ in range(count)]


def zero_point(rng: Random) -> int:
    return int(rng.integers(-128, 128))


def limits(low: int, high: int, size: int = 1) -> dict[int, Any]:
    """The attribute of a CLAMP of numbers of `size` bytes."""
    return {0: low.to_bytes(size, "little", signed=True), 1: high.to_bytes(size, "little", signed=True), 2: 1}


def widened(file: TosaFile, name: str, shape: tuple[int, ...], scale: tuple[int, int], zero: int) -> str:
    return file.rescale(name, shape, [scale], (zero, 0), ("int8", "int32"))
