"""Attributes of Relax's windows: strides, padding, layout.

Invariant: what an attribute says in several ways comes out in one.
"""

from __future__ import annotations

from typing import Any

from ..lower.tensors import LayerTensor, Padding
from .reader import RejectedError

MAX_STRIDE = 3  # of any window of the NPU


def pair(values: Any) -> tuple[int, int]:
    """One or two numbers, for height and width."""
    numbers = [int(v) for v in values]
    return (numbers[0], numbers[-1])


def stride_of(values: Any, out: LayerTensor) -> tuple[int, int]:
    """Strides as far as they matter: one window needs none."""
    y, x = pair(values)
    return (1 if out.shape[1] == 1 else y, 1 if out.shape[2] == 1 else x)


def padding_of(values: Any) -> Padding:
    """One, two or four numbers."""
    numbers = [int(v) for v in values]
    if len(numbers) == 1:
        numbers *= 4
    if len(numbers) == 2:
        numbers *= 2
    return Padding(*numbers)


def need_nhwc(layout: str) -> None:
    """`RejectedError` for any other layout."""
    if layout != "NHWC":
        raise RejectedError(f"its layout is {layout}; run relax.transform.ConvertLayout to NHWC first")
