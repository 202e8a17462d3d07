"""Versions of operators that a reference does not register, of operators that mean the same in older versions."""

from __future__ import annotations

import numpy as np
import pytest

from fvp_runner.references.base import ReferenceRunError
from fvp_runner.references.interpreters import lower_version
from fvp_runner.references.kernels import TFLiteReference
from tests.support.tflite_builder import TensorSpec, constant, single_operator

pytest.importorskip("ai_edge_litert")


def repeated(version: int) -> bytes:
    x, y = TensorSpec((1, 2, 3, 2), "int8", 0.05, 3), TensorSpec((1, 4, 6, 2), "int8", 0.05, 3)
    return single_operator("TILE", [x, constant([1, 2, 2, 1])], [y], "TileOptions", version).finish()


@pytest.mark.parametrize("version", [1, 3, 9])
def test_repeated_values_have_a_reference_in_every_version(version: int) -> None:
    value = np.arange(12, dtype=np.int8).reshape(1, 2, 3, 2)
    (result,) = TFLiteReference(repeated(version), "tile").run([value])
    assert np.array_equal(result, np.tile(value, (1, 2, 2, 1)))


def test_a_version_with_options_is_not_taken_for_an_older_one() -> None:
    x, y = TensorSpec((1, 4), "int8", 0.05, 3), TensorSpec((1, 2), "int8", 0.05, 3)
    w = constant(np.ones((2, 4)), "int8", 0.01)
    b = single_operator("FULLY_CONNECTED", [x, w], [y], "FullyConnectedOptions", 90, KeepNumDims=True)
    assert lower_version(b.finish(), "FULLY_CONNECTED", 90) is None


def test_the_first_version_has_none_before_it() -> None:
    assert lower_version(repeated(1), "TILE", 1) is None
    assert lower_version(repeated(3), "PAD", 3) is None


def squashed(version: int, beta: float = 1.5) -> bytes:
    x, y = TensorSpec((1, 12), "uint8", 0.05, 3), TensorSpec((1, 12), "uint8", 1 / 256)
    return single_operator("SOFTMAX", [x], [y], "SoftmaxOptions", version, Beta=beta).finish()


def test_a_version_of_the_optimised_kernels_is_that_of_the_reference_kernels() -> None:
    """LiteRT registers its reference SOFTMAX up to version 3, the optimised one up to 4."""
    value = np.arange(0, 240, 20, dtype=np.uint8).reshape(1, 12)
    (old,), (new,) = (TFLiteReference(squashed(version), "softmax").run([value]) for version in (1, 4))
    assert np.array_equal(old, new)
    (other,) = TFLiteReference(squashed(4, beta=0.5), "softmax").run([value])
    assert not np.array_equal(other, new)
    with pytest.raises(ReferenceRunError, match="version '15'"):
        TFLiteReference(squashed(15), "softmax").run([value])
