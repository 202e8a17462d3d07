"""Weights and scales of an Ethos-U85 operation.

Invariant: sums of 32 bits have biases of 32 and multipliers of 31 bits, those of 48 bits have 48 and 15; what does not
fit is reported before anything is encoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import weight_codec
from ...arch import Architecture
from ...program.access import arrangement, is_wide, micro_block
from ...schedule.shram import round_up
from ...stream.decode import Operation
from ...stream.isa import ActivationFunction
from ...weight_codec import WeightCodecError
from ..scaling import Scale
from .form import Streams
from .u85_functions import function_words

_DEPTH_UNIT = 16
_SUM_BITS, _SIGN_BIT = 31, 15
_NARROW_BITS, _WIDE_BITS = 31, 15  # of multipliers


def fitted(
    weights: NDArray[np.int16], bias: NDArray[np.int64], scales: Sequence[Scale], ifm_bits: int
) -> tuple[NDArray[np.int16], Sequence[Scale], bool]:
    """Multipliers of 31 bits: twice the weights where all are 2**31. Sums of 16-bit inputs have 48 bits where
    multipliers of 15 are enough.
    """
    if all(scale.multiplier == 1 << _NARROW_BITS for scale in scales):
        weights, scales = 2 * weights, [Scale(scale.multiplier >> 1, scale.shift) for scale in scales]
    wide = ifm_bits == 16 and all(scale.multiplier < 1 << _WIDE_BITS for scale in scales)
    unfit = None if wide or ifm_bits == 8 else overflow(weights, bias)
    if unfit is not None:
        raise WeightCodecError(unfit)
    return weights, scales, wide


def overflow(weights: NDArray[Any], bias: NDArray[np.int64]) -> str | None:
    """Why sums of 16-bit values do not fit 32 bits; None when they do."""
    magnitude = np.abs(weights.astype(np.int64)).reshape(len(weights), -1).sum(axis=1) << _SIGN_BIT
    largest = int((magnitude + np.abs(bias)).max(initial=0))
    if largest >> _SUM_BITS:
        return f"its sums may reach {largest}, but with 32-bit biases sums of Ethos-U85 have {_SUM_BITS + 1} bits"
    return None


def function_table(function: ActivationFunction) -> NDArray[np.int64] | None:
    return function_words(function)


def encode(
    operation: Operation,
    accelerator: Architecture,
    weights: NDArray[np.int16],
    bias: NDArray[np.int64],
    scales: Sequence[Scale],
) -> Streams:
    """Streams in the order that the operation's registers say; the table is filled up to whole micro-blocks."""
    streams = weight_codec.encode_ordered(weights, accelerator, arrangement(operation, accelerator))
    bits = (48, _WIDE_BITS) if is_wide(operation) else (32, _NARROW_BITS)
    used = [scales[c if len(scales) > 1 else 0] for c in range(len(bias))]
    unit = max(micro_block(operation, accelerator).depth, _DEPTH_UNIT)
    filling = [0] * (round_up(len(bias), unit) - len(bias))
    table = weight_codec.encode_scales(
        [*bias.tolist(), *filling],
        [*(s.multiplier for s in used), *filling],
        [*(s.shift for s in used), *filling],
        *bits,
    )
    return Streams(streams, (table,))
