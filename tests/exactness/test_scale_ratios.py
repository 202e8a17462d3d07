"""Ratios of scales that are nearly fractions of small numbers: where they are rounded to float32, ties go elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.scale_pairs import KINDS, WAYS, Pair, compare, false_claims


def near_fractions(kind: str, dtype: str, count: int) -> list[Pair]:
    """Pairs whose ratio differs from a fraction of numbers up to 40 by what float32 rounds."""
    rng, limits = np.random.default_rng(7), np.iinfo(dtype)
    found = []
    for _ in range(count):
        scale = np.float32(rng.uniform(0.001, 0.1))
        above, below = rng.integers(1, 41, 2)
        made = np.float32(scale * np.float32(above) / np.float32(below))
        zeros = [int(z) for z in rng.integers(limits.min, limits.max, 2)]
        found.append(Pair((float(scale), zeros[0]), (float(made), zeros[1]), KINDS[kind].fields(rng)))
    return found


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("kind", ["LEAKY_RELU", "RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "QUANTIZE"])
def test_ties_are_those_of_the_reference(kind: str, dtype: str, way: str) -> None:
    """tflite-micro divides scales in double precision, LiteRT, which has uint8 and other limits, in float32."""
    found = compare(kind, dtype, way, near_fractions(kind, dtype, 60))
    assert found
    assert false_claims(found) == []
