"""Weights of Ethos-U85 in the fast format, which Vela may write and native lowering does not."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.arch import Architecture
from npu_memplan.ethosu.weight_order import WeightArrangement, streams

# what a header holds, and where; weights of a palette have nine bits, the sign in the lowest
_HEADER_BYTES, _OFFSET_BIT, _PALETTE_BIT, _PALETTE, _FEW = 32, 104, 112, 16, 4


def encode_fast(weights: NDArray[Any], target: Architecture, order: WeightArrangement) -> bytes:
    """One stream of weights [O, H, W, I] for all cores; not of depthwise kernels."""
    ordered = streams(np.ascontiguousarray(weights, np.int16), order, target)
    rows = [values.reshape(-1, order.in_a_row // target.cores) for values in ordered]
    return _encode_fast(np.stack(rows, axis=1).reshape(-1))


def _encode_fast(values: NDArray[np.int16]) -> bytes:
    """A header of 32 bytes, then codes of 2 or 4 bits into a palette, or values of 8 bits less a zero point."""
    palette = np.unique(values)
    if len(palette) > _PALETTE:
        offset = -128 - int(palette[0])
        if int(palette[-1]) + offset > 127:
            raise ValueError(f"weights from {palette[0]} to {palette[-1]} do not fit the fast format's 8 bits")
        body = (values + offset).astype(np.int8).tobytes()
        header = 1 | (offset & 0xFF) << _OFFSET_BIT
    else:
        small = len(palette) <= _FEW
        width = 2 if small else 4
        codes = np.searchsorted(palette, values).astype(np.uint8)
        codes = np.append(codes, np.zeros(-len(codes) % (8 // width), np.uint8)).reshape(-1, 8 // width)
        shifts = np.arange(8 // width, dtype=np.uint8) * width
        body = np.bitwise_or.reduce(codes << shifts, axis=1).astype(np.uint8).tobytes()
        header = small << 1
        for place, value in enumerate(palette.tolist()):
            header |= (abs(value) << 1 | (value < 0)) << (_PALETTE_BIT + 9 * place)
    return header.to_bytes(_HEADER_BYTES, "little") + body + bytes(-len(body) % 16)
