"""The NPU's compressed weights and scale tables, by Vela's codec, which only this module loads.

Invariant: what was encoded decodes to the same values in the order of the stream. The codec puts weights into the order
of Ethos-U55 and U65 itself; for Ethos-U85 `weight_order` does. Nothing else of Vela's Python package is imported: that
takes longer than to encode a small model.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import NpuMemplanError
from .arch import Architecture
from .weight_order import WeightArrangement, streams

SCALE_BYTES = 10  # of one channel
_CODEC_LOSS = 1.05
_VALUES = 511  # -255 to 255
_COUNTED = 1 << 16  # weights at a time


class WeightCodecError(NpuMemplanError):
    """Values that the NPU's formats cannot hold."""


@cache
def _functions() -> Any:
    """The codec's functions in C, whose Python forms make a list of all weights; None where it exports none."""
    from ethosu import mlw_codec

    try:
        library = ctypes.CDLL(mlw_codec.__file__)
        library.mlw_encode.argtypes = library.mlw_decode.argtypes = (
            ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int,
        )  # fmt: skip
        library.mlw_free_outbuf.argtypes = (ctypes.c_void_p,)
    except (AttributeError, OSError):
        return None
    return library


def _call_codec(name: str, data: NDArray[Any], count: int, item_bytes: int) -> bytes:
    """What a function of the codec makes of `count` values; `WeightCodecError` where it fails."""
    made = ctypes.c_void_p()
    length = getattr(_functions(), name)(data.ctypes.data, count, ctypes.byref(made), 0)
    if length < 0 or not made.value:
        raise WeightCodecError(f"{name} of Vela's codec failed for {count} values")
    result = ctypes.string_at(made.value, length * item_bytes)
    _functions().mlw_free_outbuf(made)
    return result


def decode_weights(stream: bytes | bytearray | NDArray[np.uint8]) -> NDArray[np.int16]:
    """Decompress one weight stream: signed, zero point already subtracted, padding zeros included; int16 [n]."""
    from ethosu import mlw_codec

    if not len(stream):  # the codec would end the process
        return np.empty(0, np.int16)
    if _functions() is None:
        return np.asarray(mlw_codec.decode(bytearray(stream)), np.int16)
    data = np.frombuffer(bytes(stream), np.uint8)
    return np.frombuffer(_call_codec("mlw_decode", data, data.size, 2), np.int16)


def encode_stream(values: NDArray[np.int16]) -> bytes:
    """Compress values that are in the order of a stream already, as `decode_weights` gives them; whole 16 bytes."""
    from ethosu import mlw_codec

    if _functions() is None:
        encoded = bytes(mlw_codec.encode(values.tolist()))
    else:
        encoded = _call_codec("mlw_encode", np.ascontiguousarray(values, np.int16), values.size, 1)
    return encoded + bytes(-len(encoded) % 16)


def encode_weights(
    weights: NDArray[Any],
    target: Architecture,
    *,
    block_depth: int,
    depthwise: bool,
    part_kernel_first: bool,
    ifm_bits: int = 8,
    dilation_xy: tuple[int, int] = (1, 1),
) -> bytes:
    """Compress weights [O, H, W, I] within +-255 for one core, to 16 bytes; `WeightCodecError` for others."""
    values = _check_weights(weights)
    # Depthwise weights have one order: the hardware ignores the part-kernel bit.
    part_kernel = part_kernel_first and not depthwise
    made = np.ascontiguousarray(values, np.int16)
    known = _Weights(made.shape, sha256(made.tobytes()).digest(), made)
    return _encode_with_vela(known, target, dilation_xy, ifm_bits, block_depth, depthwise, part_kernel)


def _check_weights(weights: NDArray[Any]) -> NDArray[Any]:
    values = np.asarray(weights)
    if values.ndim != 4 or values.size == 0:
        raise WeightCodecError(f"weights must have shape [O, H, W, I] and be non-empty, not {list(values.shape)}")
    if int(values.min()) < -255 or int(values.max()) > 255:
        raise WeightCodecError(
            f"weights from {values.min()} to {values.max()} do not fit the NPU's 9 bits (-255 to 255)"
        )
    return values


def encode_ordered(weights: NDArray[Any], target: Architecture, order: WeightArrangement) -> tuple[bytes, ...]:
    """Compress weights [O, H, W, I] for Ethos-U85: a stream for each core, each whole 16 bytes."""
    made = np.ascontiguousarray(_check_weights(weights), np.int16)
    return _encoded_in_order(_Weights(made.shape, sha256(made.tobytes()).digest(), made), order, target)


@lru_cache(256)
def _encoded_in_order(weights: _Weights, order: WeightArrangement, target: Architecture) -> tuple[bytes, ...]:
    return tuple(encode_stream(values) for values in streams(weights.values, order, target))


@dataclass(frozen=True, slots=True)
class _Weights:
    """Weights by value."""

    shape: tuple[int, ...]
    digest: bytes
    values: NDArray[np.int16] = field(compare=False)


@lru_cache(256)  # a model is lowered more than once, with most of its blocks alike
def _encode_with_vela(
    weights: _Weights, target: Architecture, dilation_xy: tuple[int, int], ifm_bits: int, block_depth: int,
    depthwise: bool, part_kernel: bool,
) -> bytes:  # fmt: skip
    from ethosu import mlw_codec

    columns, rows = (target.sub_kernel // dilation for dilation in dilation_xy)  # of one pass over a large kernel
    depths = (target.ifm_micro_depth, target.ofm_micro.depth)
    encoded, _ = mlw_codec.reorder_encode(
        *depths, weights.values, block_depth, depthwise, part_kernel, ifm_bits, rows, columns
    )
    return bytes(encoded) + bytes(-len(encoded) % 16)


def about_encoded_bytes(weights: NDArray[Any]) -> int:
    """About as many bytes as `encode_weights` makes of them: their entropy, of which the codec loses a little."""
    flat, counts = weights.reshape(-1), np.zeros(_VALUES, np.int64)
    for start in range(0, flat.size, _COUNTED):  # which numpy copies to int64
        counts += np.bincount(flat[start : start + _COUNTED] + 255, minlength=_VALUES)
    counts = counts[counts > 0]
    bits = float((counts * np.log2(counts.sum() / counts)).sum())
    return round(bits / 8 * _CODEC_LOSS) + 16


def encode_scales(
    biases: Sequence[int], scales: Sequence[int], shifts: Sequence[int], bias_bits: int = 40, scale_bits: int = 32
) -> bytes:
    """Scale table of one core: 10 bytes a channel (bias, scale in whole bytes, 6-bit shift), padded to 16 bytes."""
    table = bytearray()
    shift_at = bias_bits + -(-scale_bits // 8) * 8
    for bias, scale, shift in zip(biases, scales, shifts, strict=True):
        half = 1 << (bias_bits - 1)
        if not -half <= bias < half or not 0 <= scale < 1 << scale_bits or not 0 <= shift < 64:
            raise WeightCodecError(
                f"bias {bias}, scale {scale}, shift {shift} do not fit {bias_bits}, {scale_bits} and 6 bits"
            )
        word = (bias & ((1 << bias_bits) - 1)) | scale << bias_bits | shift << shift_at
        table += word.to_bytes(10, "little")
    return bytes(table) + bytes(-len(table) % 16)
