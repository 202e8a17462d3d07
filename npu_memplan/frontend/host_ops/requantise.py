"""QUANTIZE and DEQUANTIZE.

Invariant: between integers one rescale with double rounding; from and to float32 one correctly
rounded operation, for models whose inputs or outputs are floats.
"""

from __future__ import annotations

from tvm import tirx

from ...fixed_point.multiplier import LIMITS, quantise_multiplier
from ...models.tensor import Tensor
from .common import ACTIVATION_TYPES, require_same_type
from .fixed_tir import clamp_wide, multiply_by_quantised
from .operator import Lowering, UnsupportedOperatorError, lowering
from .tir import cast, clamp, const, load, raw_load

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
        return _from_float(work, output)
    if (data.dtype, output.dtype) not in _PAIRS:
        raise UnsupportedOperatorError(f"from {data.dtype} to {output.dtype} is not done on the host")
    require_same_type((data,), (data.dtype,))
    require_same_type((output,), (output.dtype,))
    scale = quantise_multiplier(data.scale / output.scale)
    low, high = LIMITS[output.dtype]
    function = work.function
    source, target = work.read(0, "input"), work.write()
    with function.grid(output.shape) as place:
        value = multiply_by_quantised(function, load(source, *place) - const(data.zero_point), *scale)
        if output.dtype == "int32":
            result = clamp_wide(cast(value, "int64") + const(output.zero_point, "int64"))
        else:
            result = clamp(value + const(output.zero_point), low, high)
        function.store(target, result, *place)
    return None


def _from_float(work: Lowering, output: Tensor) -> None:
    require_same_type((output,), (output.dtype,))
    function = work.function
    source, target = work.read(0, "input"), work.write()
    with function.grid(output.shape) as place:
        scaled = raw_load(source, place) / tirx.FloatImm("float32", output.scale)
        rounded = tirx.call_pure_extern("float32", "roundf", scaled)  # halves away from zero
        # Far outside the result's range, but still an int32: a larger float has no int32.
        bounded = tirx.Max(tirx.Min(rounded, tirx.FloatImm("float32", 1e9)), tirx.FloatImm("float32", -1e9))
        value = tirx.Cast("int32", bounded) + const(output.zero_point)
        function.store(target, clamp(value, *LIMITS[output.dtype]), *place)


@lowering("DEQUANTIZE")
def dequantise(work: Lowering) -> None:
    """scale x (value - zero point) as float32."""
    data, output = work.tensor(0), work.output()
    require_same_type((data,), ("int8", "int16", "uint8"))
    if output.dtype != "float32" or len(data.scales) != 1:
        raise UnsupportedOperatorError(f"to {output.dtype} with {len(data.scales)} scales is not done on the host")
    function = work.function
    source, target = work.read(0, "input"), work.write()
    with function.grid(output.shape) as place:
        # The product of a float32 and so small an integer is rounded once, as from double.
        value = cast(load(source, *place) - const(data.zero_point), "float32")
        function.store(target, value * tirx.FloatImm("float32", data.scale), *place)
