"""CAST, from any type of numbers to any other.

Invariant: the conversion is C's own: floats are cut towards zero, integers keep their low bits, bool is 0 or 1.
"""

from __future__ import annotations

from tvm import tirx

from .common import as_it_is
from .elementwise import each
from .operator import Lowering, lowering, require
from .tir import Expr, cast, select

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
