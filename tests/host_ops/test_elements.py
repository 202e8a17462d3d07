"""Element-wise operators, pooling, reductions and requantisation against TFLite Micro."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from fvp_runner.references.interpreters import Reference
from tests.support.tflite_builder import TensorSpec, constant, write_model

R = np.random.default_rng(7)
ACTIVE = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions"}
ZEROS = {"int8": 5, "uint8": 130, "int16": 0, "int32": 0}
# The last two make ties that rounding a scale to float32 on the way would break.
SCALES = [
    (0.05, 3, 0.07, -4),
    (0.11, -20, 0.02, 0),
    (0.013, 127, 0.06, -128),
    (0.031, -55, 0.05, -110),
    (0.042, 123, 0.12, 97),
]


def pairs() -> Iterator[bytes]:
    """Operators of two tensors."""
    for name, kind in product(ACTIVE, ("int8", "int16")):
        zero = (3, -7, 11) if kind == "int8" else (0, 0, 0)
        scales = (0.03, 0.011, 0.05 if name != "MUL" else 0.0005)
        x, y, z = (TensorSpec((2, 3, 4), kind, *one) for one in zip(scales, zero, strict=True))
        yield write_model(name, [x, y], [z], (ACTIVE[name], {"FusedActivationFunction": 1}))
    for name, second in (("ADD", (1, 4)), ("SUB", (4,)), ("MUL", (2, 1, 4)), ("ADD", (1, 1, 1)), ("MUL", ())):
        inputs = TensorSpec((2, 3, 4), "int8", 0.03, 1), constant(R.integers(-128, 128, second), "int8", 0.02, 4)
        output = TensorSpec((2, 3, 4), "int8", 0.04 if name != "MUL" else 0.002, -3)
        yield write_model(name, inputs, [output], (ACTIVE[name], {"FusedActivationFunction": 3}))
    for name, kind in product(("MINIMUM", "MAXIMUM"), ("int8", "int16", "int32")):
        x, y = TensorSpec((2, 5, 3), kind, 0.1), TensorSpec((1, 5, 1), kind, 0.1)
        yield write_model(name, [x, y], [x], ("MaximumMinimumOptions", {}))
    for first, second, out in ((0.03, 0.02, 0.01), (0.05, 0.05, 0.2)):
        x, y = TensorSpec((2, 6, 50), "int8", first, 3), TensorSpec((6, 1), "int8", second, -9)
        yield write_model("SQUARED_DIFFERENCE", [x, y], [TensorSpec((2, 6, 50), "int8", out, -128)])
    for shape in ((7,), (1, 1, 7), (5, 5, 7)):
        inputs = TensorSpec((1, 5, 5, 7), "int8", 0.05, -3), constant(R.integers(-128, 128, shape), "int8", 0.004, 5)
        yield write_model("PRELU", inputs, [TensorSpec((1, 5, 5, 7), "int8", 0.041, 7)])


def functions() -> Iterator[bytes]:
    """Operators of one tensor, element by element."""
    for name, (scale, zero, out_scale, out_zero) in product(("RELU", "LEAKY_RELU", "ABS", "HARD_SWISH"), SCALES):
        options = ("LeakyReluOptions", {"Alpha": 0.17}) if name == "LEAKY_RELU" else None
        x, y = TensorSpec((1, 256), "int8", scale, zero), TensorSpec((1, 256), "int8", out_scale, out_zero)
        yield write_model(name, [x], [y], options)
    for name in ("RELU", "LEAKY_RELU", "ABS", "RELU6"):
        options = ("LeakyReluOptions", {"Alpha": -0.3}) if name == "LEAKY_RELU" else None
        scale = 0.002 if name == "RELU6" else 0.0013
        yield write_model(name, [TensorSpec((3, 50), "int16", 0.002)], [TensorSpec((3, 50), "int16", scale)], options)
    yield write_model("RELU6", [TensorSpec((400,), "int8", 0.06, -10)], [TensorSpec((400,), "int8", 0.06, -10)])
    for name, scale in product(("LOGISTIC", "TANH"), (0.05, 0.19, 0.003)):
        output = TensorSpec((2, 256), "int8", *((1 / 256, -128) if name == "LOGISTIC" else (1 / 128, 0)))
        yield write_model(name, [TensorSpec((2, 256), "int8", scale, 9)], [output])
    for name, scale in product(("LOGISTIC", "TANH"), (2.0**-12, 2.0**-11, 0.0007, 0.00003)):
        yield write_model(name, [TensorSpec((4, 300), "int16", scale)], [TensorSpec((4, 300), "int16", 2.0**-15)])


def windows() -> Iterator[bytes]:
    """Pools and reductions."""
    forms = ((2, 2, False), (3, 2, True), (3, 1, True), (5, 5, False))
    for name, (kernel, stride, same), kind in product(("AVERAGE_POOL_2D", "MAX_POOL_2D"), forms, ("int8", "int16")):
        out = [-(-n // stride) if same else (n - kernel) // stride + 1 for n in (9, 8)]
        zero = -9 if kind == "int8" else 0
        options = {
            "FilterHeight": kernel, "FilterWidth": kernel, "StrideH": stride, "StrideW": stride,
            "Padding": 0 if same else 1, "FusedActivationFunction": 1 if same else 0,
        }  # fmt: skip
        x, y = TensorSpec((1, 9, 8, 3), kind, 0.04, zero), TensorSpec((1, *out, 3), kind, 0.04, zero)
        yield write_model(name, [x], [y], ("Pool2DOptions", options))
    for name, axes, keep, kind in (
        ("MEAN", (1, 2), True, "int8"),
        ("MEAN", (1, 2), False, "int16"),
        ("MEAN", (-1,), False, "int8"),
        ("MEAN", (0, 3), True, "int8"),
        ("SUM", (1,), True, "int8"),
        ("REDUCE_MAX", (2,), False, "int8"),
        ("REDUCE_MIN", (1, 3), True, "int8"),
    ):
        shape, reduced, zero = (2, 5, 6, 3), {a % 4 for a in axes}, ZEROS[kind]
        shape_out = tuple(1 if a in reduced else n for a, n in enumerate(shape) if keep or a not in reduced)
        made = (0.04, zero) if name.startswith("REDUCE") else (0.033 if name == "MEAN" else 0.21, zero * 2)
        inputs = TensorSpec(shape, kind, 0.04, zero), constant(axes)
        yield write_model(name, inputs, [TensorSpec(shape_out, kind, *made)], ("ReducerOptions", {"KeepDims": keep}))
    for name, options in (("ARG_MAX", "ArgMaxOptions"), ("ARG_MIN", "ArgMinOptions")):
        inputs = TensorSpec((3, 400), "int8", 0.1), constant([1])
        yield write_model(name, inputs, [TensorSpec((3,), "int32")], (options, {"OutputType": 2}))


def conversions() -> Iterator[bytes]:
    """From a type, scale and zero point to others."""
    scales = {"int8": 0.05, "uint8": 0.043, "int16": 0.0003, "int32": 1e-7}
    for source, target in (
        ("int8", "int8"), ("int8", "int16"), ("int8", "int32"), ("int16", "int8"), ("int16", "int16"),
        ("int16", "int32"), ("int32", "int8"), ("int32", "int16"), ("uint8", "int8"), ("int8", "uint8"),
    ):  # fmt: skip
        x = TensorSpec((1, 200), source, scales[source], ZEROS[source])
        y = TensorSpec((1, 200), target, scales[target] * 1.1, ZEROS[target])
        yield write_model("QUANTIZE", [x], [y], ("QuantizeOptions", {}))
    yield write_model("QUANTIZE", [TensorSpec((9,), "int8", 0.05, 0)], [TensorSpec((9,), "uint8", 0.05, 128)])
    for kind, scale in (("int8", 0.05), ("int16", 0.0003)):
        x, y = TensorSpec((4, 300), "float32"), TensorSpec((4, 300), kind, scale, ZEROS[kind])
        yield write_model("QUANTIZE", [x], [y])
    for kind in ("int8", "int16", "uint8"):
        x, y = TensorSpec((4, 300), kind, 0.0317, ZEROS[kind]), TensorSpec((4, 300), "float32")
        yield write_model("DEQUANTIZE", [x], [y])


@pytest.mark.parametrize("form", [pairs, functions, windows, conversions])
def test_operators(bit_exact, form):
    bit_exact(form(), runs=5)


@pytest.mark.parametrize("name", ACTIVE)
def test_every_pair_of_values_at_scales_that_make_ties(compiled, name):
    a, b = np.meshgrid(np.arange(-128, 128, dtype=np.int8), np.arange(-128, 128, dtype=np.int8))
    pair = [TensorSpec((256, 256), "int8", 0.03, 1), TensorSpec((256, 256), "int8", 0.02, 4)]
    output = TensorSpec((256, 256), "int8", 0.04 if name != "MUL" else 0.05, -3)
    model = write_model(name, pair, [output], (ACTIVE[name], {}))
    np.testing.assert_array_equal(compiled(model).run([a, b])[0], Reference(model).run([a, b])[0])
