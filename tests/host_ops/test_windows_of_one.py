"""Windows and rows of one element: loops that are not there, so that several stores share one scope of C."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.arithmetic_models import pool, unary


@pytest.mark.parametrize("kind", ["MAX", "AVERAGE"])
def test_pool(bit_exact, kind: str) -> None:
    """TVM's C printer had taken the second reading of the accumulator from before it was stored."""
    bit_exact(pool(np.random.default_rng(0), kind, (1, 1), (2, 2), 1, (8, 8, 4)).finish())


def test_softmax_of_one_class(bit_exact) -> None:
    options = {"options": "SoftmaxOptions", "shape": (5, 1), "in_scale": 0.08, "out": (1 / 256, -128), "Beta": 1.0}
    bit_exact(unary(np.random.default_rng(0), "SOFTMAX", **options).finish())
