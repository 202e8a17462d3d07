"""QUANTIZE from integers to integers.

Invariant: one rescale, double rounding, between any two of the types that the reference pairs.
"""

from __future__ import annotations

from .common import require_same_type
from .fixed_point import LIMITS, quantize_multiplier
from .fixed_tir import clamp_wide, multiply_by_quantized
from .operator import Lowering, UnsupportedOperatorError, lowering
from .tir import cast, clamp, const, load

_PAIRS = frozenset(
    [
        ("int8", "int8"), ("int8", "uint8"), ("uint8", "int8"), ("int8", "int16"), ("int8", "int32"),
        ("int16", "int8"), ("int16", "int16"), ("int16", "int32"), ("int32", "int8"), ("int32", "int16"),
    ]
)  # fmt: skip


@lowering("QUANTIZE")
def quantize(work: Lowering) -> None:
    """From one scale and zero point to another."""
    data, output = work.tensor(0), work.output()
    if (data.dtype, output.dtype) not in _PAIRS:
        raise UnsupportedOperatorError(f"from {data.dtype} to {output.dtype} is not done on the host")
    require_same_type((data,), (data.dtype,))
    require_same_type((output,), (output.dtype,))
    scale = quantize_multiplier(data.scale / output.scale)
    low, high = LIMITS[output.dtype]
    function = work.function
    source, target = work.read(0, "input"), work.write()
    with function.grid(output.shape) as place:
        value = multiply_by_quantized(function, load(source, *place) - const(data.zero_point), *scale)
        if output.dtype == "int32":
            result = clamp_wide(cast(value, "int64") + const(output.zero_point, "int64"))
        else:
            result = clamp(value + const(output.zero_point), low, high)
        function.store(target, result, *place)
