"""The fast weight format of Ethos-U85: a header of 32 bytes, then codes of equal width.

Invariant: decoding reads no bit outside the stream; what is cut off is a `WeightStreamShortError`. The header holds two
flags (raw values instead of a palette, a palette of four), a zero point for raw values, and sixteen palette entries of
nine bits with the sign in bit 0. Codes have 8, 2 or 4 bits. Source: the encoder of ethos-u-vela 5.2.0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import WeightStreamError, WeightStreamShortError

_HEADER_BYTES = 32
_OFFSET_BIT, _PALETTE_BIT, _PALETTE_WIDTH, _PALETTE_SIZE = 104, 112, 9, 16


def decode(stream: bytes, count: int) -> NDArray[np.int16]:
    """`count` weights of a stream: int16 values in -256..255, in stream order."""
    if len(stream) < _HEADER_BYTES:
        raise WeightStreamShortError(f"the weight stream of {len(stream)} bytes has no room for its header of 32")
    header = int.from_bytes(stream[:_HEADER_BYTES], "little")
    raw, small = header & 1, header >> 1 & 1
    if raw and small:
        raise WeightStreamError("weight stream: its header has raw values and a palette at once")
    width = 8 if raw else 2 if small else 4
    body = np.frombuffer(stream, np.uint8)[_HEADER_BYTES:]
    if len(body) * 8 < count * width:
        raise WeightStreamShortError(
            f"the weight stream of {len(stream)} bytes holds at most {len(body) * 8 // width} weights of {width} bits, "
            f"but the operation consumes {count}: it is too short or damaged; check WEIGHT_BASE and WEIGHT_LENGTH"
        )
    if raw:
        offset = header >> _OFFSET_BIT & 0xFF
        offset -= (offset & 0x80) << 1
        values: NDArray[np.int16] = body[:count].view(np.int8).astype(np.int16) - np.int16(offset)
        return values
    mask = (1 << width) - 1
    per_byte = 8 // width
    codes = (body[:, None] >> (np.arange(per_byte, dtype=np.uint8) * width) & mask).reshape(-1)[:count]
    folded = header >> _PALETTE_BIT
    entries = [folded >> (_PALETTE_WIDTH * i) & (1 << _PALETTE_WIDTH) - 1 for i in range(_PALETTE_SIZE)]
    palette = np.array([-(entry >> 1) if entry & 1 else entry >> 1 for entry in entries], np.int16)
    found: NDArray[np.int16] = palette[codes]
    return found
