"""Rows of fully connected layers and of L2 normalisation against TFLite Micro; other forms: test_drawn_operators."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fvp_runner.references.interpreters import Reference
from npu_memplan.models.flatbuffer import NetworkError
from npu_memplan.models.tflite import read_network
from tests.support.many_operators import assert_equals_references
from tests.support.tflite_builder import TensorSpec, constant, write_model

R = np.random.default_rng(42)


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
        fixed = (
            constant(values, "uint8" if kind == "uint8" else "int8", 0.01),
            constant(R.integers(-3000, 3000, weights[-2]), "int32", 0.0005),
        )
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
