"""Sigmoid and tanh of 16-bit values as Ethos-U85's tables have them.

Invariant: every result is that of the functions which are built into Ethos-U55: TFLite's 256 values of the sigmoid at
steps of 1/24, between which it draws lines, and their mirror image below zero.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...stream.isa import ActivationFunction

_STEPS, _LAST = 24, 255


@cache
def _sigmoid() -> tuple[int, ...]:
    """256 values with 16 fraction bits: lowered by half of what a line would be too high in the middle."""

    def real(step: float) -> float:
        return 1 / (1 + math.exp(-step / _STEPS))

    lowered = (real(i) - ((real(i) + real(i + 1)) / 2 - real(i + 0.5)) / 2 for i in range(_LAST))
    return (*(math.floor(65536 * value + 0.5) for value in lowered), 65535)


def function_words(function: ActivationFunction) -> NDArray[np.int64]:
    """512 words `slope << 16 | base` for steps from -256 up: [512], unsigned 32 bits."""
    above = _sigmoid()
    # at steps -255 .. 255; of the sigmoid less 1/2 with 16 fraction bits, of tanh = 2 * sigmoid - 1 with 15
    values = [value - 32768 for value in (*(65536 - above[-i] for i in range(-_LAST, 0)), *above)]
    is_tanh = function is ActivationFunction.TANH
    most = 32767 if is_tanh else 32766
    bases = [-most, *values[:-1], most]  # beyond, the function stays at its limits
    if not is_tanh:
        bases[1] += 1  # halves are rounded down there, but the limit is reached
    slopes = [0, *(b - a for a, b in pairwise(values)), 0]
    words = [(slope & 0xFFFF) << 16 | (base & 0xFFFF) for base, slope in zip(bases, slopes, strict=True)]
    return np.array(words, np.int64)
