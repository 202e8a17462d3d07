"""Conversions of ONNX nodes of which TVM 0.27 makes something that no NPU pattern can see.

Invariant: a repair computes the same real values as TVM's own conversion; None where it does not apply, and TVM
converts the node. Unnecessary when TVM's importer emits `relax.clip`, `relax.nn.pad`, a division after the product of
a hard swish, and stored weights for quantised constants (`test_tvm_still_expands_what_is_repaired` then fails).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import ir, relax


def _constant(inputs: Any, position: int) -> Any:
    """Values of a constant input; None when it is absent or computed."""
    found = inputs[position] if position < len(inputs) else None
    return found.value.numpy() if isinstance(found, ir.GenericConst) else None


def _clip(inputs: Any, attributes: Mapping[str, Any]) -> Any:
    low, high = _constant(inputs, 1), _constant(inputs, 2)
    if len(inputs) == 1 and {"min", "max"} <= set(attributes):  # before opset 11
        low, high = np.array(attributes["min"]), np.array(attributes["max"])
    if low is None or high is None or not (np.isfinite(low).all() and np.isfinite(high).all()):
        return None
    return relax.op.clip(inputs[0], float(low.reshape(-1)[0]), float(high.reshape(-1)[0]))


def _pad(inputs: Any, attributes: Mapping[str, Any]) -> Any:
    """Padding of all dimensions by a constant."""
    pads = np.array(attributes["pads"]) if "pads" in attributes else _constant(inputs, 1)
    mode = bytes(attributes.get("mode", b"constant")).decode()
    value = np.array(attributes.get("value", 0.0)) if len(inputs) < 3 or inputs[2] is None else _constant(inputs, 2)
    some = len(inputs) > 3 and inputs[3] is not None  # only the axes that it names
    if pads is None or value is None or mode != "constant" or some or (pads < 0).any():
        return None
    widths = [int(w) for pair in zip(*np.split(pads, 2), strict=True) for w in pair]
    return relax.op.nn.pad(inputs[0], widths, pad_mode="constant", pad_value=float(value.reshape(-1)[0]))


def _hard_swish(inputs: Any, _: Mapping[str, Any]) -> Any:
    x = inputs[0]
    if str(x.ty.dtype) != "float32":
        return None
    gate = relax.op.clip(relax.op.add(x, relax.const(np.float32(3))), 0, 6)
    return relax.op.divide(relax.op.multiply(x, gate), relax.const(np.float32(6)))


def _quantise_linear(inputs: Any, attributes: Mapping[str, Any]) -> Any:
    """Weights that a file keeps in float before a quantisation, as quantisation-aware training exports them."""
    values, scale = _constant(inputs, 0), _constant(inputs, 1)
    zero = np.zeros((), np.uint8) if len(inputs) < 3 or inputs[2] is None else _constant(inputs, 2)
    if values is None or scale is None or zero is None or attributes.get("block_size") or zero.dtype.kind not in "iu":
        return None
    shape = [1] * values.ndim
    if scale.size > 1:
        shape[int(attributes.get("axis", 1))] = scale.size
    limits = np.iinfo(zero.dtype)
    zeros = zero.reshape(shape) if zero.size > 1 else zero.reshape(())
    stored = np.rint(values / (scale.reshape(shape) if scale.size > 1 else scale.reshape(()))) + zeros
    return relax.const(np.clip(stored, limits.min, limits.max).astype(zero.dtype))


REPAIRS: dict[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "Clip": _clip,
    "Pad": _pad,
    "HardSwish": _hard_swish,
    "QuantizeLinear": _quantise_linear,
}
