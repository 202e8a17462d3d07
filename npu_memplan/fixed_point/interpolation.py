"""LiteRT's tables of functions of int16: 513 samples, and straight lines between them.

Invariant: samples are those of the reference, in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .multiplier import f32

_STEPS = 512
_RANGE = 65535
SOFTMAX_UNIT = 10.0 / 65535.0  # differences in [-65535, 0] stand for exponents in [-10, 0]


def softmax_tables() -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int16]]:
    """exp(x) for x from -10 to 0, and 1 / (1 + x) for x from 0 to 1, with 15 fraction bits."""
    unit = 2.0 / f32(_RANGE)
    exponential = interpolation_table(math.exp, 10.0 / f32(_RANGE), 32767, unit)
    return exponential, interpolation_table(lambda x: 1.0 / (1.0 + x), 1.0 / f32(_RANGE), -32768, unit)


def interpolation_table(
    curve: Callable[[float], float], scale: np.float32, zero_point: int, out_scale: np.float32
) -> npt.NDArray[np.int16]:
    """513 samples of `curve`, each lowered by half the interpolation error of its step (LiteRT's `LUTPopulate`)."""
    f = np.float32

    def sample(x: Any) -> Any:
        return f(curve(float(x)))

    first, last = scale * f(-32768 - zero_point), scale * f(32767 - zero_point)
    step = (last - first) / f(_STEPS)
    half_step = step / f(2)
    inverse = f(65536) / (out_scale * f(32767) - out_scale * f(-32768))
    values = []
    for i in range(_STEPS):
        here, middle, following = (
            sample(x) for x in (first + f(i) * step, first + f(i) * step + half_step, first + f(i + 1) * step)
        )
        rounded = _round(here * inverse)
        between = _round((following * inverse + rounded) / f(2))
        bias = _round((between - _round(middle * inverse)) / f(2))
        values.append(min(max(rounded - bias, -32768.0), 32767.0))
    values.append(min(max(_round(sample(last) * inverse), -32768.0), 32767.0))
    return np.array(values, np.float64).astype(np.int16)


def _round(value: Any) -> Any:
    """C's roundf()."""
    return np.float32(np.floor(value + np.float32(0.5)) if value >= 0 else np.ceil(value - np.float32(0.5)))
