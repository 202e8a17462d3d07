"""ExecuTorch's kernels around delegates, in NumPy.

Invariant: a kernel computes what ExecuTorch's portable kernel does, in the same precision; `out` comes last, twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Kernel: TypeAlias = Callable[[list[Any]], NDArray[Any]]
_TINY = np.float32


def _quantize(given: list[Any]) -> NDArray[Any]:
    values, scale, zero_point, least, most = given[:5]
    inverse = _TINY(1.0) / _TINY(scale)
    steps = np.rint(values.astype(_TINY) * inverse).astype(np.int64) + int(zero_point)
    found: NDArray[Any] = np.clip(steps, least, most)
    return found


def _dequantize(given: list[Any]) -> NDArray[Any]:
    values, scale, zero_point = given[:3]
    found: NDArray[Any] = (values.astype(np.int32) - int(zero_point)).astype(_TINY) * _TINY(scale)
    return found


def _same(given: list[Any]) -> NDArray[Any]:
    found: NDArray[Any] = given[0]
    return found


def _reshaped(given: list[Any]) -> NDArray[Any]:
    found: NDArray[Any] = np.ascontiguousarray(given[0]).reshape(given[-1].shape)
    return found


def _permuted(given: list[Any]) -> NDArray[Any]:
    found: NDArray[Any] = given[0].transpose(given[1])
    return found


KERNELS: Mapping[str, Kernel] = {
    "quantized_decomposed::quantize_per_tensor.out": _quantize,
    "quantized_decomposed::dequantize_per_tensor.out": _dequantize,
    "aten::clone.out": _same,
    "aten::alias_copy.out": _same,
    "dim_order_ops::_clone_dim_order.out": _same,
    "dim_order_ops::_to_dim_order_copy.out": _same,
    "aten::_to_copy.out": _same,
    "aten::view_copy.out": _reshaped,
    "aten::squeeze_copy.dims_out": _reshaped,
    "aten::unsqueeze_copy.out": _reshaped,
    "aten::permute_copy.out": _permuted,
}
