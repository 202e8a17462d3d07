"""Element-wise operators, pooling, reductions and requantisation against TFLite Micro."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.single_op import TensorSpec, constant, reference, write_model

R = np.random.default_rng(7)


@pytest.mark.parametrize("kind", ["int8", "int16"])
@pytest.mark.parametrize("name", ["ADD", "SUB", "MUL"])
def test_arithmetic(bit_exact, name, kind):
    zero = (3, -7, 11) if kind == "int8" else (0, 0, 0)
    scales = (0.03, 0.011, 0.05) if name != "MUL" else (0.03, 0.011, 0.0005)
    model = write_model(
        name,
        [TensorSpec((2, 3, 4), kind, scales[0], zero[0]), TensorSpec((2, 3, 4), kind, scales[1], zero[1])],
        [TensorSpec((2, 3, 4), kind, scales[2], zero[2])],
        (f"{name.capitalize()}Options", {"FusedActivationFunction": 1}),
    )
    bit_exact(model, runs=5)


@pytest.mark.parametrize(
    ("name", "second"), [("ADD", (1, 4)), ("SUB", (4,)), ("MUL", (2, 1, 4)), ("ADD", (1, 1, 1)), ("MUL", ())]
)
def test_broadcast_against_a_constant(bit_exact, name, second):
    other = constant(R.integers(-128, 128, second), "int8", 0.02, 4)
    model = write_model(
        name,
        [TensorSpec((2, 3, 4), "int8", 0.03, 1), other],
        [TensorSpec((2, 3, 4), "int8", 0.04 if name != "MUL" else 0.002, -3)],
        (f"{name.capitalize()}Options", {"FusedActivationFunction": 3}),
    )
    bit_exact(model)


@pytest.mark.parametrize("name", ["ADD", "SUB", "MUL"])
def test_every_pair_of_values_at_scales_that_make_ties(compiled, name):
    a, b = np.meshgrid(np.arange(-128, 128, dtype=np.int8), np.arange(-128, 128, dtype=np.int8))
    pair = [TensorSpec((256, 256), "int8", 0.03, 1), TensorSpec((256, 256), "int8", 0.02, 4)]
    scale = 0.04 if name != "MUL" else 0.05
    model = write_model(
        name, pair, [TensorSpec((256, 256), "int8", scale, -3)], (f"{name.capitalize()}Options", {})
    )  # fmt: skip
    np.testing.assert_array_equal(compiled(model).run([a, b])[0], reference(model, [[a, b]])[0][0])


def test_an_operand_may_be_used_twice(bit_exact):
    model = write_model(
        "ADD", [TensorSpec((5,), "int8", 0.03, 1), TensorSpec((5,), "int8", 0.03, 1)],
        [TensorSpec((5,), "int8", 0.06, 0)], ("AddOptions", {}),
    )  # fmt: skip
    bit_exact(model)


@pytest.mark.parametrize("kind", ["int8", "int16", "int32"])
@pytest.mark.parametrize("name", ["MINIMUM", "MAXIMUM"])
def test_extremum(bit_exact, name, kind):
    model = write_model(
        name,
        [TensorSpec((2, 5, 3), kind, 0.1, 0), TensorSpec((1, 5, 1), kind, 0.1, 0)],
        [TensorSpec((2, 5, 3), kind, 0.1, 0)],
        ("MaximumMinimumOptions", {}),
    )
    bit_exact(model)


# The last two make ties that rounding a scale to float32 on the way would break.
SCALES = [
    (0.05, 3, 0.07, -4),
    (0.11, -20, 0.02, 0),
    (0.013, 127, 0.06, -128),
    (0.031, -55, 0.05, -110),
    (0.042, 123, 0.12, 97),
]


@pytest.mark.parametrize(("scale", "zero", "out_scale", "out_zero"), SCALES)
@pytest.mark.parametrize("name", ["RELU", "LEAKY_RELU", "ABS", "HARD_SWISH"])
def test_activation(bit_exact, name, scale, zero, out_scale, out_zero):
    if name == "HARD_SWISH" and scale > out_scale * 100:
        pytest.skip("the reference refuses this scale")
    options = ("LeakyReluOptions", {"Alpha": 0.17}) if name == "LEAKY_RELU" else None
    model = write_model(
        name,
        [TensorSpec((1, 256), "int8", scale, zero)],
        [TensorSpec((1, 256), "int8", out_scale, out_zero)],
        options,
    )
    bit_exact(model, runs=4)


@pytest.mark.parametrize("name", ["RELU", "LEAKY_RELU", "ABS", "RELU6"])
def test_activation_of_int16(bit_exact, name):
    options = ("LeakyReluOptions", {"Alpha": -0.3}) if name == "LEAKY_RELU" else None
    scale = 0.002 if name == "RELU6" else 0.0013
    model = write_model(
        name, [TensorSpec((3, 50), "int16", 0.002)], [TensorSpec((3, 50), "int16", scale)], options
    )  # fmt: skip
    bit_exact(model)


def test_relu6(bit_exact):
    bit_exact(write_model("RELU6", [TensorSpec((400,), "int8", 0.06, -10)], [TensorSpec((400,), "int8", 0.06, -10)]))


@pytest.mark.parametrize(("name", "scale"), [(n, s) for n in ("LOGISTIC", "TANH") for s in (0.05, 0.19, 0.003)])
def test_sigmoidal(bit_exact, name, scale):
    output = TensorSpec((2, 256), "int8", 1 / 256 if name == "LOGISTIC" else 1 / 128, -128 if name == "LOGISTIC" else 0)
    bit_exact(write_model(name, [TensorSpec((2, 256), "int8", scale, 9)], [output]), runs=4)


@pytest.mark.parametrize(
    ("name", "scale"), [(n, s) for n in ("LOGISTIC", "TANH") for s in (2.0**-12, 2.0**-11, 0.0007, 0.00003)]
)
def test_sigmoidal_of_int16(bit_exact, name, scale):
    model = write_model(name, [TensorSpec((4, 300), "int16", scale)], [TensorSpec((4, 300), "int16", 2.0**-15)])
    bit_exact(model)


@pytest.mark.parametrize("kind", ["int8", "int16"])
@pytest.mark.parametrize(("kernel", "stride", "same"), [(2, 2, False), (3, 2, True), (3, 1, True), (5, 5, False)])
@pytest.mark.parametrize("name", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
def test_pool(bit_exact, name, kernel, stride, same, kind):
    out = [-(-n // stride) if same else (n - kernel) // stride + 1 for n in (9, 8)]
    zero = -9 if kind == "int8" else 0
    options = {
        "FilterHeight": kernel, "FilterWidth": kernel, "StrideH": stride, "StrideW": stride,
        "Padding": 0 if same else 1, "FusedActivationFunction": 1 if same else 0,
    }  # fmt: skip
    model = write_model(
        name, [TensorSpec((1, 9, 8, 3), kind, 0.04, zero)], [TensorSpec((1, *out, 3), kind, 0.04, zero)],
        ("Pool2DOptions", options),
    )  # fmt: skip
    bit_exact(model, runs=2)


@pytest.mark.parametrize(
    ("name", "axes", "keep", "kind"),
    [
        ("MEAN", (1, 2), True, "int8"),
        ("MEAN", (1, 2), False, "int16"),
        ("MEAN", (-1,), False, "int8"),
        ("MEAN", (0, 3), True, "int8"),
        ("SUM", (1,), True, "int8"),
        ("REDUCE_MAX", (2,), False, "int8"),
        ("REDUCE_MIN", (1, 3), True, "int8"),
    ],
)
def test_reduction(bit_exact, name, axes, keep, kind):
    shape = (2, 5, 6, 3)
    reduced = {a % 4 for a in axes}
    out = tuple(1 if a in reduced else n for a, n in enumerate(shape) if keep or a not in reduced)
    zero = 5 if kind == "int8" else 0
    out_scale = 0.04 if name.startswith("REDUCE") else 0.033 if name == "MEAN" else 0.21
    out_zero = zero if name.startswith("REDUCE") else zero * 2
    model = write_model(
        name,
        [TensorSpec(shape, kind, 0.04, zero), constant(axes)],
        [TensorSpec(out, kind, out_scale, out_zero)],
        ("ReducerOptions", {"KeepDims": keep}),
    )
    bit_exact(model)


@pytest.mark.parametrize(("name", "options"), [("ARG_MAX", "ArgMaxOptions"), ("ARG_MIN", "ArgMinOptions")])
def test_arg_extremum(bit_exact, name, options):
    model = write_model(
        name, [TensorSpec((3, 400), "int8", 0.1), constant([1])], [TensorSpec((3,), "int32")],
        (options, {"OutputType": 2}),
    )  # fmt: skip
    bit_exact(model)


PAIRS = [
    ("int8", "int8"), ("int8", "int16"), ("int8", "int32"), ("int16", "int8"), ("int16", "int16"),
    ("int16", "int32"), ("int32", "int8"), ("int32", "int16"), ("uint8", "int8"), ("int8", "uint8"),
]  # fmt: skip
ZEROS = {"int8": 5, "uint8": 130, "int16": 0, "int32": 0}


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_quantize(bit_exact, source, target):
    scales = {"int8": 0.05, "uint8": 0.043, "int16": 0.0003, "int32": 1e-7}
    model = write_model(
        "QUANTIZE",
        [TensorSpec((1, 200), source, scales[source], ZEROS[source])],
        [TensorSpec((1, 200), target, scales[target] * 1.1, ZEROS[target])],
        ("QuantizeOptions", {}),
    )
    bit_exact(model)


def test_quantize_between_signed_and_unsigned_of_one_scale(bit_exact):
    model = write_model("QUANTIZE", [TensorSpec((9,), "int8", 0.05, 0)], [TensorSpec((9,), "uint8", 0.05, 128)])
    bit_exact(model)


@pytest.mark.parametrize("kind", ["int8", "int16"])
def test_quantize_from_float(bit_exact, kind):
    scale = 0.05 if kind == "int8" else 0.0003
    model = write_model("QUANTIZE", [TensorSpec((4, 300), "float32")], [TensorSpec((4, 300), kind, scale, ZEROS[kind])])
    bit_exact(model)


@pytest.mark.parametrize("kind", ["int8", "int16", "uint8"])
def test_dequantize(bit_exact, kind):
    model = write_model(
        "DEQUANTIZE", [TensorSpec((4, 300), kind, 0.0317, ZEROS[kind])], [TensorSpec((4, 300), "float32")]
    )
    bit_exact(model)


@pytest.mark.parametrize("scales", [(0.03, 0.02, 0.01), (0.05, 0.05, 0.2)])
def test_squared_difference(bit_exact, scales):
    first, second, out = scales
    model = write_model(
        "SQUARED_DIFFERENCE",
        [TensorSpec((2, 6, 50), "int8", first, 3), TensorSpec((6, 1), "int8", second, -9)],
        [TensorSpec((2, 6, 50), "int8", out, -128)],
    )
    bit_exact(model)


@pytest.mark.parametrize("shape", [(7,), (1, 1, 7), (5, 5, 7)])
def test_prelu(bit_exact, shape):
    alpha = constant(R.integers(-128, 128, shape), "int8", 0.004, 5)
    model = write_model(
        "PRELU", [TensorSpec((1, 5, 5, 7), "int8", 0.05, -3), alpha], [TensorSpec((1, 5, 5, 7), "int8", 0.041, 7)]
    )
    bit_exact(model)
