"""Convolutions, fully connected layers, softmax and normalisation against TFLite Micro."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

from fvp_runner.references.interpreters import Reference
from npu_memplan.models.flatbuffer import NetworkError
from npu_memplan.models.tflite import read_network
from tests.support.many_operators import assert_equals_references
from tests.support.tflite_builder import TensorSpec, constant, write_model

R = np.random.default_rng(42)


def _weights(shape, per_channel=0, axis=0):
    values = R.integers(-127, 128, shape)
    scale = list(R.uniform(0.002, 0.02, per_channel)) if per_channel else 0.01
    return constant(values, "int8", scale, axis=axis)


def _bias(size, dtype="int32"):
    return constant(R.integers(-3000, 3000, size), dtype, 0.0005)


def dense() -> Iterator[bytes]:
    for rows, depth, units, kind, activation, per_channel in (
        (1, 64, 10, "int8", 0, 0), (3, 17, 5, "int8", 1, 0), (2, 33, 8, "int8", 3, 8), (1, 20, 6, "int16", 0, 0)
    ):  # fmt: skip
        zero = 3 if kind == "int8" else 0
        bias = _bias(units, "int32" if kind == "int8" else "int64")
        inputs = [TensorSpec((rows, depth), kind, 0.05, zero), _weights((units, depth), per_channel), bias]
        options = ("FullyConnectedOptions", {"FusedActivationFunction": activation})
        yield write_model("FULLY_CONNECTED", inputs, [TensorSpec((rows, units), kind, 0.11, -zero)], options)
    inputs = [TensorSpec((1, 2, 3, 4), "int8", 0.05, -7), _weights((6, 24)), None]  # is flattened
    yield write_model("FULLY_CONNECTED", inputs, [TensorSpec((1, 6), "int8", 0.2, 5)], ("FullyConnectedOptions", {}))


def products() -> Iterator[bytes]:
    for first, second, turned in (
        ((1, 2, 6, 8), (1, 2, 8, 5), (False, False)),
        ((1, 2, 8, 6), (1, 2, 8, 5), (True, False)),
        ((3, 6, 8), (3, 5, 8), (False, True)),
        ((4, 8, 6), (4, 5, 8), (True, True)),
        ((2, 3, 6, 8), (1, 1, 8, 5), (False, False)),
        ((6, 8), (8, 5), (False, False)),
    ):
        rows, columns = first[-1 if turned[0] else -2], second[-2 if turned[1] else -1]
        inputs = [TensorSpec(first, "int8", 0.05, 3), TensorSpec(second, "int8", 0.03, -20)]
        output = TensorSpec((*np.broadcast_shapes(first[:-2], second[:-2]), rows, columns), "int8", 0.4, 7)
        yield write_model(
            "BATCH_MATMUL", inputs, [output], ("BatchMatMulOptions", {"AdjX": turned[0], "AdjY": turned[1]})
        )


def _out_size(size, kernel, stride, dilation, same):
    return -(-size // stride) if same else (size - (kernel - 1) * dilation - 1) // stride + 1


def _steps(stride=1, dilation=1, padding=0, activation=0):
    return {
        "Padding": padding, "StrideH": stride, "StrideW": stride, "FusedActivationFunction": activation,
        "DilationHFactor": dilation, "DilationWFactor": dilation,
    }  # fmt: skip


def convolutions() -> Iterator[bytes]:
    for size, depth, out, kernel, stride, dilation, same, kind, activation in (
        (9, 3, 8, 3, 1, 1, True, "int8", 1),
        (10, 4, 5, 5, 2, 1, True, "int8", 0),
        (8, 6, 7, 1, 1, 1, False, "int8", 3),
        (12, 2, 4, 3, 2, 1, False, "int8", 2),
        (11, 3, 4, 3, 1, 2, True, "int8", 0),
        (7, 3, 4, 3, 1, 1, True, "int16", 0),
    ):
        zero = -5 if kind == "int8" else 0
        extents = [_out_size(n, kernel, stride, dilation, same) for n in (size, size + 1)]
        bias = _bias(out, "int32" if kind == "int8" else "int64")
        x = TensorSpec((1, size, size + 1, depth), kind, 0.03, zero)
        y = TensorSpec((1, *extents, out), kind, 0.09 if kind == "int8" else 0.002, zero)
        options = ("Conv2DOptions", _steps(stride, dilation, 0 if same else 1, activation))
        yield write_model("CONV_2D", [x, _weights((out, kernel, kernel, depth), out), bias], [y], options)
    of_groups = [TensorSpec((2, 5, 5, 6), "int8", 0.03, 4), _weights((8, 3, 3, 3)), _bias(8)]
    yield write_model("CONV_2D", of_groups, [TensorSpec((2, 5, 5, 8), "int8", 0.09, 1)], ("Conv2DOptions", _steps()))
    weights = constant(R.integers(-3, 4, (4, 1, 1, 2)), "int8", [0.9, 2.5, 0.001, 7.0])  # scales that shift left
    inputs = [TensorSpec((1, 4, 4, 2), "int8", 0.5, 4), weights, constant([1, 2, 3, 4], "int32", 0.1)]
    options = ("Conv2DOptions", _steps(padding=1))
    yield write_model("CONV_2D", inputs, [TensorSpec((1, 4, 4, 4), "int8", 0.25, 1)], options)
    for multiplier, kernel, stride, kind in ((1, 3, 1, "int8"), (2, 3, 2, "int8"), (1, 5, 1, "int16")):
        zero, depth, size = (6 if kind == "int8" else 0), 5, 9
        out, result = depth * multiplier, -(-size // stride)
        weights = _weights((1, kernel, kernel, out), out, axis=3)
        bias = _bias(out, "int32" if kind == "int8" else "int64")
        y = TensorSpec((1, result, result, out), kind, 0.07 if kind == "int8" else 0.001, zero)
        options = ("DepthwiseConv2DOptions", _steps(stride, activation=3) | {"DepthMultiplier": multiplier})
        x = TensorSpec((1, size, size, depth), kind, 0.03, zero)
        yield write_model("DEPTHWISE_CONV_2D", [x, weights, bias], [y], options)


SOFTMAX = [
    ((1, 12), 0.15, 1.0, "int8"),
    ((3, 7), 0.02, 1.0, "int8"),
    ((2, 2, 40), 0.6, 0.5, "int8"),
    ((1, 1000), 0.07, 1.0, "int8"),
    ((9, 4), 20.0, 1.0, "int8"),
    ((2, 9), 0.1, 1.0, "int16"),
]


def _softmax(shape, scale, beta, kind):
    output = TensorSpec(shape, kind, *((1 / 256, -128) if kind == "int8" else (1 / 65536, -32768)))
    return write_model("SOFTMAX", [TensorSpec(shape, "int8", scale, 3)], [output], ("SoftmaxOptions", {"Beta": beta}))


def rows() -> Iterator[bytes]:
    yield from (_softmax(*case) for case in SOFTMAX)
    for shape, scale, beta in (((1, 12), 0.0005, 1.0), ((3, 200), 0.0001, 2.0), ((2, 9), 1e-6, 1.0)):
        x, y = TensorSpec(shape, "int16", scale), TensorSpec(shape, "int16", 1 / 32768)
        yield write_model("SOFTMAX", [x], [y], ("SoftmaxOptions", {"Beta": beta}))
    for scale, depth in ((0.003, 700), (0.05, 1), (3.0, 20), (17.0, 9)):
        shape = 2, 20, depth
        yield write_model(
            "LOG_SOFTMAX", [TensorSpec(shape, "int8", scale, 9)], [TensorSpec(shape, "int8", 1 / 16, 127)]
        )


@pytest.mark.parametrize("form", [dense, products, convolutions, rows])
def test_operators(bit_exact, form):
    bit_exact(form(), runs=8 if form is rows else 3)


@pytest.mark.parametrize("case", SOFTMAX)
def test_the_exponentials_of_a_softmax_are_planned(compiled, case):
    scratch = [b for b in compiled(_softmax(*case)).problem.buffers if "exponents" in b.name]
    assert [b.size_bytes for b in scratch] == [4 * case[0][-1]]


SHAPES = [  # of the input, the weights and the output
    ((2, 8, 5, 5), (5, 200), (2, 5)),
    ((1, 8, 4, 6), (5, 24), (8, 5)),
    ((4, 48), (5, 24), (8, 5)),
    ((4, 6), (6, 12), (2, 6)),
    ((2, 6, 2), (6, 12), (2, 6)),
    ((12,), (6, 12), (1, 6)),
]
IMPOSSIBLE_SHAPES = {  # fewer or more than the format makes of them, and what is said of each
    ((4, 6), (6, 12), (2, 1, 6)): "makes [2, 6] of",
    ((12,), (6, 12), (6,)): "makes [1, 6] of",
    ((2, 3, 12), (6, 12), (2, 3, 3)): "makes [6, 6] of",
    ((3, 12), (6, 12), (2, 6)): "makes [3, 6] of",
    ((2, 12), (6, 12), (2, 7)): "makes [2, 6] of",
    ((2, 12), (6, 12), (3, 6)): "makes [2, 6] of",
    ((2, 12), (1, 6, 12), (2, 6)): "is [1, 6, 12], which is not of rank 2",
    ((1, 30), (6, 12), (2, 6)): "its input [1, 30] is not cut into rows of 12",
    ((2, 59), (3, 6), (20, 3)): "its input [2, 59] is not cut into rows of 6",
}


def _dense(kind, data, weights, output):
    scale = None if kind == "float32" else 0.05
    values = R.integers(0, 127, weights)
    if kind == "float32":
        fixed = constant(values, kind), constant(R.integers(-9, 9, weights[-2]), kind)
    else:
        fixed = constant(values, "uint8" if kind == "uint8" else "int8", 0.01), _bias(weights[-2])
    inputs = TensorSpec(data, kind, scale), *fixed
    return write_model(
        "FULLY_CONNECTED", inputs, [TensorSpec(output, kind, scale and 4 * scale)], ("FullyConnectedOptions", {})
    )


@pytest.mark.parametrize("kind", ["int8", "int16", "uint8", "float32"])
def test_rows_of_a_fully_connected_layer_need_not_be_those_of_its_input(kind, tmp_path):
    models = {str(shapes): _dense(kind, *shapes) for shapes in SHAPES}
    assert_equals_references(models, lambda rng, n: [rng.integers(0, 127, n.tensors[0].shape).astype(kind)], tmp_path)


@pytest.mark.parametrize("kind", ["int8", "int16", "uint8", "float32"])
@pytest.mark.parametrize(("shapes", "reason"), IMPOSSIBLE_SHAPES.items())
def test_shapes_that_no_fully_connected_layer_makes_are_refused(kind, shapes, reason):
    with pytest.raises(NetworkError, match=re.escape(reason)):
        read_network(_dense(kind, *shapes))


@pytest.mark.parametrize(("depth", "zero"), [(1, 3), (7, -128), (400, 9), (12000, -128)])
def test_l2_normalization(compiled, depth, zero):
    spec, output = TensorSpec((2, 20, depth), "int8", 0.1, zero), TensorSpec((2, 20, depth), "int8", 1 / 128, 0)
    model = write_model("L2_NORMALIZATION", [spec], [output], ("L2NormOptions", {}))
    # Rows of all sizes: from zeros, and a single step, to the largest.
    spread = np.linspace(0, 1, 40).reshape(2, 20, 1) * R.integers(-128 - zero, 128 - zero, spec.shape)
    values = (np.round(spread) + zero).astype(np.int8)
    values[0, 1] = zero
    values[0, 1, 0] = zero + 1
    values[1, 19] = 127  # 12,000 of them go beyond 2^29
    np.testing.assert_array_equal(compiled(model).run([values])[0], Reference(model).run([values])[0])
