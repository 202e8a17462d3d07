"""Comparisons, DIV, ELU and RSQRT against TFLite Micro, for every value or pair of values where it has a result."""

from __future__ import annotations

import numpy as np
import pytest

from fvp_runner.references.interpreters import Reference
from tests.support.tflite_builder import TensorSpec, constant, write_model

every_int8 = np.arange(-128, 128, dtype=np.int8)


@pytest.mark.parametrize("name", ["EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"])
def test_every_pair_of_values(compiled, name):
    first, second = TensorSpec((1, 256), "int8", 0.03, 4), TensorSpec((256, 1), "int8", 0.0201, -7)
    model = write_model(name, [first, second], [TensorSpec((256, 256), "bool")])
    data = [every_int8.reshape(1, 256), every_int8.reshape(256, 1)]
    (got,) = compiled(model).run(data)
    assert got.dtype == np.bool_
    assert 0 < got.sum() < got.size
    np.testing.assert_array_equal(got, Reference(model).run(data)[0])


def test_what_the_fixed_point_cannot_distinguish_is_equal(compiled):
    tiny = TensorSpec((256,), "int8", 2.0**-13, 0)
    model = write_model("EQUAL", [tiny, TensorSpec((1,), "int8", 2.0**-13, 0)], [TensorSpec((256,), "bool")])
    data = [every_int8, np.array([3], np.int8)]
    (got,) = compiled(model).run(data)
    assert got.sum() > 1
    np.testing.assert_array_equal(got, Reference(model).run(data)[0])


def division(first, second, out, activation=0):
    options = ("DivOptions", {"FusedActivationFunction": activation})
    return write_model("DIV", [first, second], [TensorSpec(first.shape, "int8", *out)], options)


def bits_shifted(x, divisor, ratio):
    """How far the reference shifts a quotient to the right; from 32 on, C has no result for it."""
    size = np.where((x < 0) == (divisor < 0), np.abs(x), np.abs(x) - (x != 0))  # its sign bits are counted
    headroom = 31 - np.ceil(np.log2(np.maximum(size, 0) + 1)).astype(int)
    return headroom + np.floor(np.log2(np.abs(divisor))).astype(int) - np.frexp(ratio)[1]


@pytest.mark.parametrize(
    ("first", "second", "out", "activation"),
    [
        ((0.05, 5), (0.05, -128), (0.007, 0), 0),
        ((0.03, -128), (0.02, 127), (0.01, 11), 0),  # ties, which a ratio rounded to float32 would break
        ((0.04, 1), (0.013, 3), (0.02, -20), 3),
        ((0.05, 5), (0.02, -128), (0.5, 3), 1),
        ((0.001, 7), (0.2, 0), (0.9, 100), 2),
    ],
)
def test_every_quotient(compiled, first, second, out, activation):
    a, b = (m.astype(np.int8) for m in np.meshgrid(every_int8, every_int8[every_int8 != second[1]]))
    model = division(TensorSpec(a.shape, "int8", *first), TensorSpec(a.shape, "int8", *second), out, activation)
    (got,), (want,) = compiled(model).run([a, b]), Reference(model).run([a, b])
    x, divisor = a.astype(int) - first[1], b.astype(int) - second[1]
    defined = bits_shifted(x, divisor, first[0] / second[0] / out[0]) <= 31
    assert defined.any()
    np.testing.assert_array_equal(got[defined], want[defined])
    assert (got[~defined] == out[1]).all()


def test_divisors_are_broadcast(bit_exact):
    divisors = [constant(np.random.default_rng(3).integers(20, 60, shape), "int8", 0.01, 19) for shape in ((), (3, 1))]
    bit_exact(division(TensorSpec((2, 3, 5), "int8", 0.03, 4), divisor, (0.01, -3)) for divisor in divisors)


def test_zero_divides_like_the_smallest_step(compiled):
    zeros = constant(np.full((256,), 9), "int8", 0.5, 9)
    (got,) = compiled(division(TensorSpec((256,), "int8", 0.05, 0), zeros, (0.1, 0))).run([every_int8])
    np.testing.assert_array_equal(got, every_int8)


@pytest.mark.parametrize(
    ("scale", "zero", "out"),
    [(0.05, 3, (0.05, 3)), (0.11, -20, (0.0078125, -1)), (0.013, 127, (0.013, 127)), (0.25, 40, (0.3, -90))],
)
def test_every_value_of_elu(compiled, scale, zero, out):
    model = write_model("ELU", [TensorSpec((256,), "int8", scale, zero)], [TensorSpec((256,), "int8", *out)])
    np.testing.assert_array_equal(compiled(model).run([every_int8])[0], Reference(model).run([every_int8])[0])


@pytest.mark.parametrize(
    ("scale", "zero", "out"), [(0.05, -128, (0.02, -128)), (0.003, 5, (0.11, 7)), (1.0, -100, (1 / 128, -3))]
)
def test_every_value_of_rsqrt(compiled, scale, zero, out):
    values = np.maximum(every_int8, zero).astype(np.int8)  # the reference stops below zero
    model = write_model("RSQRT", [TensorSpec((256,), "int8", scale, zero)], [TensorSpec((256,), "int8", *out)])
    operator = compiled(model)
    np.testing.assert_array_equal(operator.run([values])[0], Reference(model).run([values])[0])
    assert (operator.run([every_int8])[0][every_int8 <= zero] == 127).all()


@pytest.mark.parametrize(("scale", "out"), [(0.001, 0.01), (1e-5, 0.05), (3.0, 1 / 65536), (0.02, 2.0)])
def test_every_value_of_rsqrt_of_int16(compiled, scale, out):
    values = np.arange(32768, dtype=np.int16)
    model = write_model("RSQRT", [TensorSpec((32768,), "int16", scale, 0)], [TensorSpec((32768,), "int16", out, 0)])
    operator = compiled(model)
    np.testing.assert_array_equal(operator.run([values])[0], Reference(model).run([values])[0])
    assert (operator.run([-values])[0] == 32767).all()  # where the reference stops


@pytest.mark.parametrize("scale", [65536 / 12288, 1e30])
@pytest.mark.parametrize(("name", "function"), [("LOGISTIC", lambda x: 1 / (1 + np.exp(-x))), ("TANH", np.tanh)])
def test_every_int16_value_is_squashed_where_the_reference_overflows(compiled, name, function, scale):
    """Against the real function: an interpolated table is off by a step or two."""
    values = np.arange(-32768, 32768).astype(np.int16)
    model = write_model(name, [TensorSpec((65536,), "int16", scale, 0)], [TensorSpec((65536,), "int16", 2.0**-15, 0)])
    (got,) = compiled(model).run([values])
    want = np.clip(np.round(function(np.clip(values * scale, -100.0, 100.0)) * 32768), -32768, 32767)
    assert np.abs(got.astype(int) - want).max() <= 2


@pytest.mark.parametrize("shift", range(6, 26, 2))
def test_every_value_of_hard_swish_with_a_large_output_scale(compiled, shift):
    """From 2**9 times the input's scale on, the reference shifts 16 bits by more than 15."""
    ends = TensorSpec((256,), "int8", 0.03, -5), TensorSpec((256,), "int8", 0.03 * 2.0**shift, 4)
    model = write_model("HARD_SWISH", ends[:1], ends[1:])
    (got,) = compiled(model).run([every_int8])
    np.testing.assert_array_equal(got, Reference(model).run([every_int8])[0])
