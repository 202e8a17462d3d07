"""CAST, QUANTIZE and DEQUANTIZE.

Invariant: CAST converts as C does: floats are cut towards zero, integers keep their low bits, bool is 0 or 1. QUANTIZE
between integers is one rescale with double rounding; from and to float32 it is one correctly rounded operation.
"""

from __future__ import annotations

import math

from tvm import tirx

from ...fixed_point.multiplier import LIMITS, quantise_multiplier
from ...models.tensor import Tensor
from .common import ACTIVATION_TYPES, EIGHT_BITS, as_it_is, require_same_type
from .elementwise import each
from .fixed_tir import clamp_wide, multiply_by_quantised
from .operator import Lowering, lowering, require
from .tir import Buffer, Expr, cast, clamp, const, library, real, select

_TYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float32")


@lowering("CAST")
def convert(work: Lowering) -> None:
    """The input's numbers in the output's type."""
    data, output = work.tensor(0), work.output()
    for tensor in (data, output):
        require(tensor.dtype in _TYPES, f"tensor {tensor.name!r} is {tensor.dtype}, which is not converted")

    def converted(value: Expr) -> Expr:
        if data.dtype == "bool":
            value = cast(value, "int32")
        elif data.dtype == "float32" and output.dtype not in ("float32", "bool", "int64"):
            value = cast(value, "int64" if output.dtype == "uint32" else "int32")  # and then its low bits
        if output.dtype == "bool" and data.dtype != "bool":
            zero = tirx.FloatImm("float32", 0.0) if data.dtype == "float32" else tirx.IntImm(data.dtype, 0)
            value = select(tirx.NE(value, zero), tirx.IntImm("int32", 1), tirx.IntImm("int32", 0))
        return value

    each(work, converted, "input", take=as_it_is)


_LEAST = 2.0**-60  # scale of the C kernels
_PAIRS = frozenset(
    [
        ("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8"), ("int8", "uint8"), ("int8", "int16"),
        ("int8", "int32"), ("int16", "int8"), ("int16", "int16"), ("int16", "int32"), ("int32", "int8"),
        ("int32", "int16"),
    ]
)  # fmt: skip


@lowering("QUANTIZE")
def quantise(work: Lowering) -> None:
    """From one scale and zero point to another."""
    data, output = work.tensor(0), work.output()
    if data.dtype == "float32" and output.dtype in ACTIVATION_TYPES:
        _from_float(work, output)
        return
    known = (data.dtype, output.dtype) in _PAIRS
    require(known, f"from {data.dtype} to {output.dtype} is not done on the host")
    require_same_type((data,), (data.dtype,))
    require_same_type((output,), (output.dtype,))
    scale = quantise_multiplier(data.scale / output.scale)

    def result(x: Expr) -> Expr:
        value = multiply_by_quantised(work.function, x, *scale)
        if output.dtype == "int32":
            return clamp_wide(cast(value, "int64") + const(output.zero_point, "int64"))
        return clamp(value + const(output.zero_point), *LIMITS[output.dtype])

    each(work, result, "input")


def _from_float(work: Lowering, output: Tensor) -> None:
    require_same_type((output,), (output.dtype,))

    def result(x: Expr) -> Expr:
        rounded = library("roundf", x / real(output.scale))  # halves away from zero
        # Far outside the result's range, but still an int32: a larger float has no int32.
        bounded = tirx.Max(tirx.Min(rounded, real(1e9)), real(-1e9))
        return clamp(tirx.Cast("int32", bounded) + const(output.zero_point), *LIMITS[output.dtype])

    source, target = each(work, result, "input", take=as_it_is)
    _name_kernel(work, "kernel_quantise", source, target, output)


def _name_kernel(work: Lowering, name: str, source: Buffer, target: Buffer, stored: Tensor) -> None:
    """Let C convert between floats and 8 bits, with scales for which no vector instruction takes a number as 0."""
    if stored.dtype in EIGHT_BITS and _LEAST < stored.scale < 1 / _LEAST:
        count, is_signed = math.prod(work.output().shape), int(stored.dtype == "int8")
        work.kernel(f"kernel_forms {name}", source, target, stored.scale, count, stored.zero_point, is_signed)


@lowering("DEQUANTIZE")
def dequantise(work: Lowering) -> None:
    """scale x (value - zero point) as float32."""
    data, output = work.tensor(0), work.output()
    require_same_type((data,), ACTIVATION_TYPES)
    known = output.dtype == "float32" and len(data.scales) == 1
    require(known, f"to {output.dtype} with {len(data.scales)} scales is not done on the host")
    # The product of a float32 and so small an integer is rounded once, as from double.
    source, target = each(work, lambda x: cast(x, "float32") * real(data.scale), "input")
    _name_kernel(work, "kernel_dequantise", source, target, data)
