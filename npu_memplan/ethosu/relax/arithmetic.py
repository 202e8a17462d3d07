"""Whose arithmetic a quantised module means, written in the module itself.

Invariant: what does not say otherwise follows TFLite's kernels, so modules of TVM's TFLite frontend need no mark.
"""

from __future__ import annotations

from typing import Any

from ...vocabulary import ARITHMETIC
from ..lower.tensors import Arithmetic


def with_arithmetic(mod: Any, arithmetic: Arithmetic) -> Any:
    """`mod`, whose main now says what its quantised operators compute; partitioning hands it on."""
    mod = mod.clone()
    mod.update_func(mod.get_global_var("main"), stated(mod["main"], arithmetic))
    return mod


def stated(function: Any, arithmetic: Arithmetic) -> Any:
    """`function` with `arithmetic` as its attribute."""
    return function.with_attr(ARITHMETIC, arithmetic.value)


def arithmetic_of(function: Any) -> Arithmetic:
    """What a function says; TFLite's when it says nothing."""
    return Arithmetic(str((function.attrs or {}).get(ARITHMETIC, Arithmetic.TFLITE.value)))
