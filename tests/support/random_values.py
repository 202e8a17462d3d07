"""Scales, zero points, weights and biases of the models of one operator, by type."""

from __future__ import annotations

from typing import Any

import numpy as np

RANGE = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}


PLAIN = ("float32", "int32", "int64", "uint32", "bool")  # types of numbers that mean themselves


def random_zero(rng: np.random.Generator, dtype: str) -> int:
    if dtype in PLAIN:
        return 0
    return 0 if dtype == "int16" else int(rng.integers(-20, 20)) + (128 if dtype == "uint8" else 0)


def random_scale(rng: np.random.Generator, dtype: str, low: float = 0.01, high: float = 0.1) -> Any:
    """None for plain numbers."""
    if dtype in PLAIN:
        return None
    value = float(rng.uniform(low, high))
    return value / 256 if dtype == "int16" else value


def random_weights(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "int8") -> np.ndarray:
    """Values over the whole range, a third of them zero, so that zero runs and palettes occur."""
    low, high = (-127, 127) if dtype == "int8" else RANGE[dtype]
    values = rng.integers(low, high + 1, shape)
    return np.where(rng.random(shape) < 0.3, 0 if dtype == "int8" else 128, values).astype(dtype)


def random_bias(rng: np.random.Generator, channels: int, dtype: str, wide: bool) -> np.ndarray:
    if dtype == "int16":
        return rng.integers(-(1 << 20), 1 << 20, channels).astype("int64" if wide else "int32")
    return rng.integers(-3000, 3000, channels).astype("int32")
