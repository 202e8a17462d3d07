"""Operators and types of TensorFlow itself are refused by their names."""

from __future__ import annotations

import pytest

from npu_memplan.frontend.tflite.lifted import import_host_only
from npu_memplan.models.file import NetworkError, UnsupportedModelError
from npu_memplan.models.tflite import read_network
from tests.support.tflite_builder import ModelBuilder


def test_a_flex_operator() -> None:
    b = ModelBuilder()
    x, y = b.tensor((1, 4), "float32"), b.tensor((1, 4), "float32")
    b.operator("custom:FlexErf", [x], [y])
    with pytest.raises(UnsupportedModelError, match=r"operator 0 FlexErf\n(?s:.*)TensorFlow's own, which needs"):
        import_host_only(b.made([x], [y]).finish())


@pytest.mark.parametrize("dtype", ["variant", "string"])
def test_a_type(dtype: str) -> None:
    b = ModelBuilder()
    x, y = b.tensor((1, 4), dtype), b.tensor((1, 4), "float32")
    b.operator("RELU", [x], [y])
    with pytest.raises(NetworkError, match=f"tensor 0 't0' has element type {dtype.upper()}, which"):
        read_network(b.made([x], [y]).finish())
