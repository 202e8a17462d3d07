"""Fixed-point arithmetic of TFLite's reference kernels, on Python integers.

Invariant: results equal those of the reference's int16/int32 code, including rounding and saturation.
"""

from __future__ import annotations

from .scaling import Scale


def doubling_high_product(a: int, b: int, bits: int) -> int:
    """Rounded 2ab / 2**(bits+1), ties up, saturated to bits+1 bits."""
    product = a * b
    nudge = 1 << (bits - 1) if product >= 0 else 1 - (1 << (bits - 1))
    total = product + nudge
    quotient = abs(total) >> bits
    result = quotient if total >= 0 else -quotient
    limit = 1 << bits
    return min(max(result, -limit), limit - 1)


def doubling_high_product_16(a: int, b: int) -> int:
    """2ab / 2**16 truncated towards zero, saturated: the reference's non-rounding product."""
    if a == b == -(1 << 15):
        return (1 << 15) - 1
    product = a * b
    quotient = abs(product) >> 15
    return quotient if product >= 0 else -quotient


def rounding_shift(value: int, bits: int) -> int:
    """value / 2**bits to nearest, ties away from zero."""
    if bits <= 0:
        return value << -bits
    half = 1 << (bits - 1)
    return (value + half) >> bits if value >= 0 else -((-value + half) >> bits)


def multiply_by_quantized(value: int, scale: Scale) -> int:
    """TFLite's MultiplyByQuantizedMultiplier: two roundings when the shift is to the right."""
    exponent = 31 - scale.shift
    product = doubling_high_product(value << max(exponent, 0), scale.multiplier, 31)
    return rounding_shift(product, max(-exponent, 0))
