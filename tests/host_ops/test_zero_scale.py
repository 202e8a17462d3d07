"""A constant of zeros with the scale 0.0, as converters write it, is a number like any other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from npu_memplan.frontend.tflite.lifted import import_host_only
from npu_memplan.models.flatbuffer import UnsupportedModelError
from tests.support.tflite_builder import ModelBuilder

pytest.importorskip("tflite_micro")


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_a_factor(dtype: str, bit_exact: Callable[..., Any]) -> None:
    bit_exact(times_zeros("MUL", dtype))


@pytest.mark.parametrize("kind", ["ADD", "SUB"])
def test_the_reference_stops_at_other_operands(kind: str) -> None:
    with pytest.raises(UnsupportedModelError, match="'t2' is not quantised"):
        import_host_only(times_zeros(kind, "int8"))


def times_zeros(kind: str, dtype: str) -> bytes:
    b = ModelBuilder()
    x, y = b.tensor((1, 72), dtype, 0.03), b.tensor((1, 72), dtype, 0.05, 0 if dtype == "int16" else 4)
    zeros = b.constant(np.zeros((1, 72), dtype), 0.0)
    b.operator(kind, [x, zeros], [y], f"{kind.capitalize()}Options", 2)
    return b.made([x], [y]).finish()
