"""Operators that compute element by element, and those that look along the last dimension.

Invariant: as `drawing`; plain numbers stay small enough that neither side overflows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.support.random_networks.drawing import Drawing, Value
from tests.support.random_values import RANGE

Operator = Callable[[Drawing, Value], bool]
_PLAIN = ("float32", "int32", "int64")
_LARGEST = {"float32": 1e6, "int32": 1e8, "int64": 1e15}
_ARITHMETIC = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions"}
_EXTREMES = "MaximumMinimumOptions"
_COMPARED = ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")


def _other_shape(d: Drawing, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The second operand's shape and the result's: the same, a broadcast of any rank, or a larger one."""
    kind = d.number(0, 9)
    if kind < 4 or not shape:
        return shape, shape
    if kind < 6:  # some dimensions are 1
        other = tuple(1 if d.chance(0.5) else n for n in shape)
    elif kind == 6:  # one number, in any rank
        other = (1,) * d.number(1, min(len(shape) + 1, 4))
    elif kind == 7:  # fewer dimensions
        other = shape[d.number(0, len(shape) - 1) :]
    elif kind == 8:  # the channels'
        other = (*(1,) * (len(shape) - 1), shape[-1])
    else:  # the first operand is broadcast too, or alone
        other = tuple(d.extent() if n == 1 else n for n in shape)
        if len(shape) < 4 and d.chance(0.5):
            other = (d.number(1, 3), *other)
    return other, tuple(int(n) for n in np.broadcast_shapes(shape, other))


def _binary(name: str) -> Operator:
    def add(d: Drawing, x: Value) -> bool:
        plain = x.dtype in _PLAIN
        if not (plain or x.dtype in RANGE) or (x.dtype in ("uint8", "int16") and name == "SQUARED_DIFFERENCE"):
            return False
        shape, result = _other_shape(d, x.shape)
        if not d.fits(result):
            return False
        same = name in ("MAXIMUM", "MINIMUM")
        other = d.partner(x, shape, same)
        return combine(d, name, x, other, result)

    return add


def combine(d: Drawing, name: str, x: Value, other: Value, shape: tuple[int, ...], turned: float = 0.4) -> bool:
    """A binary operator of two values, in the other order with the probability `turned`."""
    y = _computed(d, name, x, other, shape)
    if y is None:
        return False
    table = _ARITHMETIC.get(name, _EXTREMES if name in ("MAXIMUM", "MINIMUM") else None)
    fused = {"FusedActivationFunction": d.fused() if x.dtype != "int32" else 0} if name in _ARITHMETIC else {}
    reads = [x, other] if d.chance(1 - turned) else [other, x]
    return d.operator(name, reads, y, table, 2, **fused)


def _computed(d: Drawing, name: str, x: Value, other: Value, shape: tuple[int, ...]) -> Value | None:
    """What a binary operator's result is stored in; None where plain numbers would grow too large."""
    if not x.quantised:
        product = name in ("MUL", "SQUARED_DIFFERENCE")
        bound = max(x.bound, 1) * max(other.bound, 1) * (4 if product else 1) if product else x.bound + other.bound
        return d.tensor(shape, x.dtype, bound=bound) if bound < _LARGEST[x.dtype] else None
    if name in ("MAXIMUM", "MINIMUM"):
        return d.tensor(shape, x.dtype, x.scale, x.zero)
    steps = 9000 if x.dtype == "int16" else 90
    product = name in ("MUL", "SQUARED_DIFFERENCE")
    wide = x.scale * other.scale * steps if product else max(x.scale, other.scale) * 1.3
    of = x.scale * other.scale if product else x.scale
    scale = d.near(float(wide * 10 ** d.rng.uniform(-0.3, 0.3)), x.dtype, of)
    return d.tensor(shape, x.dtype, scale, d.zero(x.dtype))


def divide(d: Drawing, x: Value) -> bool:
    """By a constant without zeros; quotients are large enough that the reference shifts by less than 32 bits."""
    if x.dtype not in ("int8", "uint8", "float32", "int32"):
        return False
    shape, result = _other_shape(d, x.shape)
    if not d.fits(result):
        return False
    zero, scale = d.zero(x.dtype), d.scale(x.dtype)
    values = d.stored(shape, x.dtype)
    values = np.where(values == zero, zero + (1 if zero < 127 else -1), values).astype(x.dtype)
    if x.dtype == "float32":
        values = np.where(np.abs(values) < 0.25, 1, values).astype(np.float32)
    other = d.b.constant(values, scale, zero)
    bound = x.bound * 4
    y = d.tensor(result, x.dtype, None if scale is None else x.scale / scale / 100, d.zero(x.dtype), bound)
    return d.operator("DIV", [x, other], y, "DivOptions", 2, FusedActivationFunction=0)


def compare(d: Drawing, x: Value) -> bool:
    if x.dtype not in (*_PLAIN, "int8", "uint8"):
        return False
    shape, result = _other_shape(d, x.shape)
    if not d.fits(result):
        return False
    other = d.partner(x, shape)
    return d.operator(d.choice(*_COMPARED), [x, other], d.tensor(result, "bool", bound=1), None, 2)


def logical(d: Drawing, x: Value) -> bool:
    if x.dtype != "bool":
        return False
    if d.chance(0.3):
        return d.operator("LOGICAL_NOT", [x], d.like(x, x.shape), "LogicalNotOptions", 1)
    shape, result = _other_shape(d, x.shape)
    if not d.fits(result):
        return False
    name = d.choice("LOGICAL_AND", "LOGICAL_OR")
    options = "LogicalAndOptions" if name == "LOGICAL_AND" else "LogicalOrOptions"
    return d.operator(name, [x, d.partner(x, shape)], d.like(x, result), options, 1)


def select(d: Drawing, x: Value) -> bool:
    """Between two values, by a condition that somebody made or an input."""
    if x.dtype == "bool":
        pairs = [v for v in d.values if v.shape == x.shape and v.dtype in ("int8", "int16", "float32", "int32")]
        if not pairs:
            return False
        condition, x = x, d.choice(*pairs)
    else:
        fitting = [v for v in d.values if v.dtype == "bool" and v.shape == x.shape]
        condition = d.choice(*fitting) if fitting else d.input(x.shape, "bool")
    narrow = x.shape if d.chance(0.5) else tuple(1 if d.chance(0.5) else n for n in x.shape)
    other = d.partner(x, narrow, same=True)
    return d.operator("SELECT_V2", [condition, x, other], d.like(x, x.shape), "SelectV2Options", 1)


def _standard(name: str, dtype: str) -> tuple[float, int] | None:
    """What TFLite asks of the output of LOGISTIC, TANH and SOFTMAX."""
    halves = {"int8": (1 / 128, 0), "uint8": (1 / 128, 128), "int16": (1 / 32768, 0)}
    ones = {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)}
    logarithms = {"int8": (1 / 16, 127), "uint8": (1 / 16, 255)}
    table = {"TANH": halves, "L2_NORMALIZATION": halves, "LOG_SOFTMAX": logarithms}.get(name, ones)
    return table.get(dtype)


def curve(name: str) -> Operator:
    """Operators whose output has one quantisation by TFLite's rules."""
    tables = {"SOFTMAX": "SoftmaxOptions", "L2_NORMALIZATION": "L2NormOptions", "LOG_SOFTMAX": "LogSoftmaxOptions"}

    def add(d: Drawing, x: Value) -> bool:
        standard = _standard(name, x.dtype)
        if not x.shape or (x.dtype != "float32" and standard is None):
            return False
        if name == "L2_NORMALIZATION" and x.dtype == "int16":
            return False
        y = d.tensor(x.shape, x.dtype, *(standard or (None, 0)), bound=20 if name == "LOG_SOFTMAX" else 1)
        fields = {"Beta": float(d.choice(1.0, 1.0, 0.5, 2.0))} if name == "SOFTMAX" else {}
        return d.operator(name, [x], y, tables.get(name), 2 if name != "LOG_SOFTMAX" else 1, **fields)

    return add


def unary(name: str, dtypes: str, options: str | None = None, keeps: bool = False, version: int = 1) -> Operator:
    """Operators of one tensor; `keeps`: with one quantisation."""

    def add(d: Drawing, x: Value) -> bool:
        if x.dtype not in dtypes.split() or (name == "EXP" and x.bound > 8):
            return False
        bound = math.exp(x.bound) if name == "EXP" and not x.quantised else x.bound
        scale, zero = x.scale, x.zero
        if x.quantised and not keeps and d.chance(0.8):
            scale, zero = d.near(float(x.scale * 10 ** d.rng.uniform(-0.4, 0.4)), x.dtype, x.scale), d.zero(x.dtype)
        y = d.tensor(x.shape, x.dtype, scale, zero, bound)
        fields: dict[str, Any] = {}
        if name == "LEAKY_RELU":
            fields["Alpha"] = float(d.choice(0.1, 0.01, 0.3, -0.2, 1.5))
        elif name == "GELU":
            fields["Approximate"] = d.chance(0.5)
        return d.operator(name, [x], y, options, version, **fields)

    return add


def prelu(d: Drawing, x: Value) -> bool:
    if x.dtype not in ("int8", "uint8", "int16", "float32") or len(x.shape) < 2:
        return False
    shape = x.shape[-1:] if d.chance(0.5) else (*(1,) * (len(x.shape) - 2), x.shape[-1])
    if d.chance(0.2):
        shape = x.shape[1:]
    slopes = d.constant(shape, x.dtype, None if not x.quantised else d.scale("int8"), d.zero(x.dtype))
    if not x.quantised:
        y = d.tensor(x.shape, x.dtype, bound=x.bound * 8)
    else:
        scale = d.near(float(x.scale * 10 ** d.rng.uniform(-0.3, 0.5)), x.dtype, x.scale)
        y = d.tensor(x.shape, x.dtype, scale, d.zero(x.dtype))
    return d.operator("PRELU", [x, slopes], y, None, 1)


def quantize(d: Drawing, x: Value) -> bool:
    """To another scale, type, or from float."""
    targets = {"int8": ("int8", "int16", "uint8"), "uint8": ("int8", "uint8"), "int16": ("int8", "int16"),
               "float32": ("int8", "int16", "uint8")}  # fmt: skip
    if x.dtype not in targets:
        return False
    target = d.choice(*targets[x.dtype])
    if not x.quantised:
        scale = x.bound / (20000 if target == "int16" else 100)
    else:
        low, high = RANGE[x.dtype]
        low2, high2 = RANGE[target]
        scale = d.near(float(x.scale * (high - low) / (high2 - low2) * 10 ** d.rng.uniform(-0.3, 0.3)), target, x.scale)
    zero = d.zero(target)
    if {x.dtype, target} == {"int8", "uint8"} and d.chance(0.5):  # the same numbers
        scale, zero = x.scale, x.zero + (128 if target == "uint8" else -128)
    return d.operator("QUANTIZE", [x], d.tensor(x.shape, target, scale, zero), "QuantizeOptions", 2)


def dequantize(d: Drawing, x: Value) -> bool:
    if not x.quantised:
        return False
    low, high = RANGE[x.dtype]
    y = d.tensor(x.shape, "float32", bound=float(max(abs(low - x.zero), abs(high - x.zero)) * x.scale))
    return d.operator("DEQUANTIZE", [x], y, "DequantizeOptions", 2)


def cast(d: Drawing, x: Value) -> bool:
    targets = {"float32": ("int32", "int8"), "int32": ("float32", "int8", "int16"), "int64": ("int32", "float32"),
               "bool": ("float32", "int32"), "int8": ("int32", "float32"), "int16": ("int32", "float32")}  # fmt: skip
    if x.dtype not in targets or (x.dtype == "float32" and x.bound > 100):
        return False
    target = d.choice(*targets[x.dtype])
    if x.bound > 120 and target in ("int8", "int16"):
        return False
    bound = float(RANGE[x.dtype][1]) if x.quantised else x.bound
    scale = d.scale(target)
    return d.operator("CAST", [x], d.tensor(x.shape, target, scale, 0, bound), "CastOptions", 1)


_REAL = "int8 uint8 int16 float32"
_CURVES = ("LOGISTIC", "TANH", "SOFTMAX", "LOG_SOFTMAX", "L2_NORMALIZATION")
OPERATORS: dict[Operator, int] = {
    **{_binary(name): weight for name, weight in (("ADD", 6), ("MUL", 4), ("SUB", 3), ("MAXIMUM", 2), ("MINIMUM", 2))},
    _binary("SQUARED_DIFFERENCE"): 1,
    **{curve(name): 2 if name in ("LOGISTIC", "TANH", "SOFTMAX") else 1 for name in _CURVES},
    **{unary(name, _REAL): 1 for name in ("RELU", "RELU6")},
    **{unary(name, "int8 uint8 float32", keeps=True): 1 for name in ("RELU_N1_TO_1", "RELU_0_TO_1")},
    unary("LEAKY_RELU", _REAL, "LeakyReluOptions", version=2): 2,
    unary("HARD_SWISH", "int8 uint8 float32", "HardSwishOptions"): 2,
    unary("ELU", "int8 float32"): 1,
    unary("ABS", "int8 int16 float32 int32", "AbsOptions", version=2): 1,
    unary("NEG", "float32 int32 int64", "NegOptions"): 1,
    unary("EXP", "int8 float32", "ExpOptions", version=2): 1,
    unary("GELU", "int8 uint8", "GeluOptions", version=2): 1,
    **{unary(name, "float32"): 1 for name in ("FLOOR", "CEIL", "ROUND", "SQUARE", "SIN", "COS")},
    prelu: 2, divide: 1, compare: 1, logical: 3, select: 1, quantize: 3, dequantize: 1, cast: 1,
}  # fmt: skip
