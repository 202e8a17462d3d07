"""Convolutions, fully connected layers, softmax and normalisation against TFLite Micro."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.models.flatbuffer import NetworkError
from npu_memplan.models.tflite import read_network
from tests.support.many_operators import run_together
from tests.support.single_op import TensorSpec, constant, reference, write_model

R = np.random.default_rng(42)


def _weights(shape, per_channel=0, axis=0):
    values = R.integers(-127, 128, shape)
    scale = list(R.uniform(0.002, 0.02, per_channel)) if per_channel else 0.01
    return constant(values, "int8", scale, axis=axis)


def _bias(size, dtype="int32"):
    return constant(R.integers(-3000, 3000, size), dtype, 0.0005)


@pytest.mark.parametrize(
    ("rows", "depth", "units", "kind", "activation", "per_channel"),
    [(1, 64, 10, "int8", 0, 0), (3, 17, 5, "int8", 1, 0), (2, 33, 8, "int8", 3, 8), (1, 20, 6, "int16", 0, 0)],
)
def test_fully_connected(bit_exact, rows, depth, units, kind, activation, per_channel):
    zero = 3 if kind == "int8" else 0
    bias = _bias(units, "int32" if kind == "int8" else "int64")
    model = write_model(
        "FULLY_CONNECTED",
        [TensorSpec((rows, depth), kind, 0.05, zero), _weights((units, depth), per_channel), bias],
        [TensorSpec((rows, units), kind, 0.11, -zero)],
        ("FullyConnectedOptions", {"FusedActivationFunction": activation}),
    )
    bit_exact(model)


def test_fully_connected_flattens_its_input_and_may_lack_a_bias(bit_exact):
    model = write_model(
        "FULLY_CONNECTED",
        [TensorSpec((1, 2, 3, 4), "int8", 0.05, -7), _weights((6, 24)), None],
        [TensorSpec((1, 6), "int8", 0.2, 5)],
        ("FullyConnectedOptions", {}),
    )
    bit_exact(model)


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
    scale = 0.0 if kind == "float32" else 0.05
    values = R.integers(0, 127, weights)
    if kind == "float32":
        fixed = constant(values, kind), constant(R.integers(-9, 9, weights[-2]), kind)
    else:
        fixed = constant(values, "uint8" if kind == "uint8" else "int8", 0.01), _bias(weights[-2])
    inputs = TensorSpec(data, kind, scale), *fixed
    return write_model("FULLY_CONNECTED", inputs, [TensorSpec(output, kind, 4 * scale)], ("FullyConnectedOptions", {}))


@pytest.mark.parametrize("kind", ["int8", "int16", "uint8", "float32"])
def test_rows_of_a_fully_connected_layer_need_not_be_those_of_its_input(kind, tmp_path):
    models = [_dense(kind, *shapes) for shapes in SHAPES]
    networks = [read_network(model) for model in models]
    inputs = [[R.integers(0, 127, n.tensors[0].shape).astype(kind)] for n in networks]
    for found, model, given in zip(run_together(networks, inputs, tmp_path), models, inputs, strict=True):
        np.testing.assert_array_equal(found[0].reshape(-1), TFLiteReference(model).run(given)[0].reshape(-1))


@pytest.mark.parametrize("kind", ["int8", "int16", "uint8", "float32"])
@pytest.mark.parametrize(("shapes", "reason"), IMPOSSIBLE_SHAPES.items())
def test_shapes_that_no_fully_connected_layer_makes_are_refused(kind, shapes, reason):
    with pytest.raises(NetworkError, match=re.escape(reason)):
        read_network(_dense(kind, *shapes))


@pytest.mark.parametrize(
    ("first", "second", "turned"),
    [
        ((1, 2, 6, 8), (1, 2, 8, 5), (False, False)),
        ((1, 2, 8, 6), (1, 2, 8, 5), (True, False)),
        ((3, 6, 8), (3, 5, 8), (False, True)),
        ((4, 8, 6), (4, 5, 8), (True, True)),
        ((2, 3, 6, 8), (1, 1, 8, 5), (False, False)),
        ((6, 8), (8, 5), (False, False)),
    ],
)
def test_products_of_two_inputs(bit_exact, first, second, turned):
    rows, columns = first[-1 if turned[0] else -2], second[-2 if turned[1] else -1]
    out = (*np.broadcast_shapes(first[:-2], second[:-2]), rows, columns)
    model = write_model(
        "BATCH_MATMUL",
        [TensorSpec(first, "int8", 0.05, 3), TensorSpec(second, "int8", 0.03, -20)],
        [TensorSpec(out, "int8", 0.4, 7)],
        ("BatchMatMulOptions", {"AdjX": turned[0], "AdjY": turned[1]}),
    )
    bit_exact(model)


CONV = [
    # size, in, out, kernel, stride, dilation, same, kind, activation
    (9, 3, 8, 3, 1, 1, True, "int8", 1),
    (10, 4, 5, 5, 2, 1, True, "int8", 0),
    (8, 6, 7, 1, 1, 1, False, "int8", 3),
    (12, 2, 4, 3, 2, 1, False, "int8", 2),
    (11, 3, 4, 3, 1, 2, True, "int8", 0),
    (7, 3, 4, 3, 1, 1, True, "int16", 0),
]


def _out_size(size, kernel, stride, dilation, same):
    return -(-size // stride) if same else (size - (kernel - 1) * dilation - 1) // stride + 1


@pytest.mark.parametrize(("size", "depth", "out", "kernel", "stride", "dilation", "same", "kind", "activation"), CONV)
def test_conv_2d(bit_exact, size, depth, out, kernel, stride, dilation, same, kind, activation):
    zero = -5 if kind == "int8" else 0
    height, width = _out_size(size, kernel, stride, dilation, same), _out_size(size + 1, kernel, stride, dilation, same)
    options = {
        "Padding": 0 if same else 1, "StrideH": stride, "StrideW": stride, "FusedActivationFunction": activation,
        "DilationHFactor": dilation, "DilationWFactor": dilation,
    }  # fmt: skip
    model = write_model(
        "CONV_2D",
        [
            TensorSpec((1, size, size + 1, depth), kind, 0.03, zero),
            _weights((out, kernel, kernel, depth), out),
            _bias(out, "int32" if kind == "int8" else "int64"),
        ],
        [TensorSpec((1, height, width, out), kind, 0.09 if kind == "int8" else 0.002, zero)],
        ("Conv2DOptions", options),
    )
    bit_exact(model, runs=2)


def test_conv_2d_with_groups_and_one_scale(bit_exact):
    model = write_model(
        "CONV_2D",
        [TensorSpec((2, 5, 5, 6), "int8", 0.03, 4), _weights((8, 3, 3, 3)), _bias(8)],
        [TensorSpec((2, 5, 5, 8), "int8", 0.09, 1)],
        ("Conv2DOptions", {"Padding": 0, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}),
    )
    bit_exact(model)


def test_conv_2d_with_scales_that_shift_left(bit_exact):
    weights = constant(R.integers(-3, 4, (4, 1, 1, 2)), "int8", [0.9, 2.5, 0.001, 7.0])
    model = write_model(
        "CONV_2D",
        [TensorSpec((1, 4, 4, 2), "int8", 0.5, 4), weights, constant([1, 2, 3, 4], "int32", 0.1)],
        [TensorSpec((1, 4, 4, 4), "int8", 0.25, 1)],
        ("Conv2DOptions", {"Padding": 1, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}),
    )
    bit_exact(model)


@pytest.mark.parametrize(
    ("multiplier", "kernel", "stride", "kind"), [(1, 3, 1, "int8"), (2, 3, 2, "int8"), (1, 5, 1, "int16")]
)
def test_depthwise_conv_2d(bit_exact, multiplier, kernel, stride, kind):
    zero, depth, size = (6 if kind == "int8" else 0), 5, 9
    out = depth * multiplier
    result = -(-size // stride)
    options = {
        "Padding": 0, "StrideH": stride, "StrideW": stride, "DepthMultiplier": multiplier,
        "FusedActivationFunction": 3, "DilationHFactor": 1, "DilationWFactor": 1,
    }  # fmt: skip
    model = write_model(
        "DEPTHWISE_CONV_2D",
        [
            TensorSpec((1, size, size, depth), kind, 0.03, zero),
            _weights((1, kernel, kernel, out), out, axis=3),
            _bias(out, "int32" if kind == "int8" else "int64"),
        ],
        [TensorSpec((1, result, result, out), kind, 0.07 if kind == "int8" else 0.001, zero)],
        ("DepthwiseConv2DOptions", options),
    )
    bit_exact(model, runs=2)


@pytest.mark.parametrize(
    ("shape", "scale", "beta", "kind"),
    [
        ((1, 12), 0.15, 1.0, "int8"),
        ((3, 7), 0.02, 1.0, "int8"),
        ((2, 2, 40), 0.6, 0.5, "int8"),
        ((1, 1000), 0.07, 1.0, "int8"),
        ((9, 4), 20.0, 1.0, "int8"),
        ((2, 9), 0.1, 1.0, "int16"),
    ],
)
def test_softmax(bit_exact, shape, scale, beta, kind):
    output = TensorSpec(shape, kind, 1 / 256 if kind == "int8" else 1 / 65536, -128 if kind == "int8" else -32768)
    model = write_model("SOFTMAX", [TensorSpec(shape, "int8", scale, 3)], [output], ("SoftmaxOptions", {"Beta": beta}))
    operator = bit_exact(model, runs=6)
    scratch = [b for b in operator.problem.buffers if "exponents" in b.name]
    assert [b.size_bytes for b in scratch] == [4 * shape[-1]]


@pytest.mark.parametrize(
    ("shape", "scale", "beta"), [((1, 12), 0.0005, 1.0), ((3, 200), 0.0001, 2.0), ((2, 9), 1e-6, 1.0)]
)
def test_softmax_of_int16(bit_exact, shape, scale, beta):
    model = write_model(
        "SOFTMAX", [TensorSpec(shape, "int16", scale)], [TensorSpec(shape, "int16", 1 / 32768)],
        ("SoftmaxOptions", {"Beta": beta}),
    )  # fmt: skip
    bit_exact(model, runs=8)


@pytest.mark.parametrize(("scale", "depth"), [(0.003, 700), (0.05, 1), (3.0, 20), (17.0, 9)])
def test_log_softmax(bit_exact, scale, depth):
    output = TensorSpec((2, 20, depth), "int8", 1 / 16, 127)
    bit_exact(write_model("LOG_SOFTMAX", [TensorSpec((2, 20, depth), "int8", scale, 9)], [output]))


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
    np.testing.assert_array_equal(compiled(model).run([values])[0], reference(model, [[values]])[0][0])
