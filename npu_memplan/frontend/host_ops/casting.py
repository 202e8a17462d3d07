"""CAST, from any type of numbers to any other.

Invariant: the conversion is C's own: floats are cut towards zero, integers keep their low bits, bool is 0 or 1.
"""

from __future__ import annotations

from tvm import tirx

from .elementwise import broadcast
from .operator import Lowering, UnsupportedOperatorError, lowering
from .tir import cast, raw_load, select

_TYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float32")


@lowering("CAST")
def convert(work: Lowering) -> None:
    """The input's numbers in the output's type."""
    data, output = work.tensor(0), work.output()
    for tensor in (data, output):
        if tensor.dtype not in _TYPES:
            raise UnsupportedOperatorError(f"tensor {tensor.name!r} is {tensor.dtype}, which is not converted")
    function = work.function
    source, target = work.read(0, "input"), work.write()
    with function.grid(output.shape) as place:
        value = raw_load(source, broadcast(place, data, output))
        if data.dtype == "bool":
            value = cast(value, "int32")
        elif data.dtype == "float32" and output.dtype not in ("float32", "bool", "int64"):
            value = cast(value, "int64" if output.dtype == "uint32" else "int32")  # and then its low bits
        if output.dtype == "bool" and data.dtype != "bool":
            zero = tirx.FloatImm("float32", 0.0) if data.dtype == "float32" else tirx.IntImm(data.dtype, 0)
            value = select(tirx.NE(value, zero), tirx.IntImm("int32", 1), tirx.IntImm("int32", 0))
        function.store(target, value, *place)
