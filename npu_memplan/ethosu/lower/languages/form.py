"""What lowering needs of a language.

Invariant: these are types only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...arch import Architecture
from ...program.program import NpuOperation
from ...stream.decode import Operation
from ...stream.isa import ActivationFunction
from ..scaling import Scale


@dataclass(frozen=True, slots=True)
class Streams:
    """Bytes that an operation with weights reads; of each core, as far as each has its own."""

    weights: tuple[bytes, ...]
    scales: tuple[bytes, ...]


Weights = NDArray[np.int16]
Biases = NDArray[np.int64]
Scales = Sequence[Scale]


@dataclass(frozen=True, slots=True)
class Form:
    """The functions of one language.

    `kernel`: an operation of Ethos-U55 in this language, with sums of 48 bits and sparse weights where that is stated.
    `fitted`: weights and scales as the multipliers take them, and whether sums have more than 32 bits.
    `encode`: the streams of an operation whose blocks are chosen.
    `function_table`: what the table memory holds for a function of 16-bit values; None: the function is built in.
    `may_be_sparse`: whether a convolution's weights can be stored, and multiplied, as two of every four.
    """

    kernel: Callable[[NpuOperation, bool, bool], NpuOperation]
    fitted: Callable[[Weights, Biases, Scales, int], tuple[Weights, Scales, bool]]
    encode: Callable[[Operation, Architecture, Weights, Biases, Scales], Streams]
    function_table: Callable[[ActivationFunction], NDArray[np.int64] | None]
    may_be_sparse: Callable[[Weights], bool]
