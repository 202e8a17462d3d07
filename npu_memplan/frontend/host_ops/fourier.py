"""SignalRfft and SignalIrfft: KISS FFT's transforms of real numbers, in int16, int32 and float32.

Invariant: factors, twiddles and the order of all operations are KISS FFT's (Borgerding, kiss_fft.c and kiss_fftr.c),
which tflite-micro's signal library uses: radix 4 as often as it divides, then 2, 3, 5; twiddles in double precision,
rounded once. The work area is planned scratch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from .common import ends
from .operator import Lowering, lowering, require

_PI = 3.14159265358979323846264338327
_TENSOR_TYPES = {7: "int16", 2: "int32", 0: "float32"}  # of TFLite's schema, the option T
_LARGEST_RADIX = 5

_SUMS = {"PLUS(a, b)": "((a) + (b))", "MINUS(a, b)": "((a) - (b))", "NEGATED(x)": "(-(x))"}
_WRAPPING_SUMS = {  # as the reference's do on every machine, though C leaves it undefined
    "PLUS(a, b)": "((int32_t)((uint32_t)(a) + (uint32_t)(b)))",
    "MINUS(a, b)": "((int32_t)((uint32_t)(a) - (uint32_t)(b)))",
    "NEGATED(x)": "((int32_t)(0u - (uint32_t)(x)))",
}
_FIXED = {
    "COMPLEX": "npu_memplan_complex_SUFFIX",
    "HALF(x)": "((x) >> 1)",
    "FINISHED(values, count)": "(void)(values)",
}
_MACROS = {
    "int16": {
        "SCALAR": "int16_t",
        "WIDE(x)": "((int32_t)(x))",
        "ROUNDED(x)": "((int16_t)(((x) + (1 << 14)) >> 15))",
        "DIVIDED(x, k)": "ROUNDED(WIDE(x) * (32767 / (k)))",
        **_FIXED,
        **_SUMS,
    },
    "int32": {
        "SCALAR": "int32_t",
        "WIDE(x)": "((int64_t)(x))",
        "ROUNDED(x)": "((int32_t)(((x) + (1 << 30)) >> 31))",
        "DIVIDED(x, k)": "ROUNDED(WIDE(x) * (2147483647 / (k)))",
        **_FIXED,
        **_WRAPPING_SUMS,
    },
    "float32": {
        "SCALAR": "float",
        "WIDE(x)": "(x)",
        "ROUNDED(x)": "(x)",
        "DIVIDED(x, k)": "((void)(k), (x))",
        **_FIXED,
        **_SUMS,
        "HALF(x)": "((x) * 0.5f)",
        "FINISHED(values, count)": "for (int32_t at = 0; at < (count); at++) (values)[at] /= (float)(count)",
    },
}
_LARGEST = {"int16": 32767, "int32": 2147483647}


@lowering("SignalRfft", "SignalIrfft")
def transform(work: Lowering) -> None:
    """Rows of reals, filled up with zeros to `fft_length`, to rows of complex numbers; or these to `fft_length` reals.

    Numbers of the call: rows, their length, the length of the complex transform, its stages, the length of its results.
    """
    number, length = (int(value) for value in work.custom("T", "fft_length"))
    message = f"its type T is {number}; the reference has int16, int32 and float32"
    require(number in _TENSOR_TYPES, message)
    kind, inverse = _TENSOR_TYPES[number], work.operator.name == "SignalIrfft"
    data, output = ends(work, (kind,), scaled=False)
    require(length >= 4 and length % 2 == 0, f"its length {length} is odd or below 4")
    rows, given, made, size = math.prod(data.shape[:-1]), data.shape[-1], output.shape[-1], length // 2
    if inverse:
        given = given // 2 * 2
        fits = given >= length + 2 and made == length
    else:
        fits = 0 < given <= length and made >= length + 2
    fits = fits and math.prod(output.shape) == rows * made
    require(fits, f"{list(data.shape)} to {list(output.shape)} is no transform of {length}")
    tables, stages = _tables(work, kind, size, inverse=inverse)
    buffers = work.read(0, "input"), *tables, work.function.scratch("work", (length,), kind), work.write()
    numbers = (rows, given, size, stages) if inverse else (rows, given, size, stages, made)
    name = "signal_irfft" if inverse else "signal_rfft"
    work.run_c(f"signal_fft {name}", *buffers, *numbers, suffix=kind, macros=_MACROS[kind])


def _factors(size: int) -> list[tuple[int, int]]:
    """(radix, elements of a part) from the whole transform down, as KISS FFT factors it."""
    found, rest, radix, most = [], size, 4, math.isqrt(size)
    while rest > 1:
        while rest % radix:
            radix = {4: 2, 2: 3}.get(radix, radix + 2)
            if radix > most:
                radix = rest
        rest //= radix
        found.append((radix, rest))
    largest = max(radix for radix, _ in found)
    require(largest <= _LARGEST_RADIX, f"its length {2 * size} has a factor above {_LARGEST_RADIX}")
    return found


def _order(factors: list[tuple[int, int]]) -> list[int]:
    """Which input element each place of the work area begins with."""
    order, step = [0], 1
    for radix, _ in factors:
        order = [start + q * step for start in order for q in range(radix)]
        step *= radix
    return order


def _tables(work: Lowering, kind: str, size: int, *, inverse: bool) -> tuple[list[Any], int]:
    """Buffers of the tables - twiddles, splits, order, stages - and the number of stages."""
    factors = _factors(size)
    sign = 1.0 if inverse else -1.0
    twiddles = [sign * 2 * _PI * i / size for i in range(size)]
    splits = [sign * _PI * ((i + 1) / size + 0.5) for i in range(size // 2)]
    stages, stride = [], 1
    for radix, part in factors:
        stages.append((radix, part, stride))
        stride *= radix
    buffers = [
        work.table("twiddles", _rotations(twiddles, kind)),
        work.table("splits", _rotations(splits, kind)),
        work.table("order", np.array(_order(factors), np.int32)),
        work.table("stages", np.array(stages[::-1], np.int32)),
    ]
    return buffers, len(stages)


def _rotations(phases: list[float], kind: str) -> npt.NDArray[Any]:
    pairs = np.array([(math.cos(phase), math.sin(phase)) for phase in phases])
    return pairs.astype(np.float32) if kind == "float32" else np.floor(0.5 + _LARGEST[kind] * pairs).astype(kind)
