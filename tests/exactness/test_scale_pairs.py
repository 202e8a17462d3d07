"""Operators of one value are what their claims say at many pairs of (scale, zero point), all inputs each.

A slice of what `python -m benchmarks.scale_pairs` runs.
"""

from __future__ import annotations

import pytest

from tests.support.scale_pairs import TABLES, compare, compare_tables, false_claims, pairs

pytest.importorskip("tflite_micro")
pytest.importorskip("ai_edge_litert", reason="needs LiteRT as the reference (pip install npu_memplan[litert])")

SOME = 15  # the usual scales, and others
SLICE = [
    ("CONCATENATION", "uint8", "lowered"),
    ("CONCATENATION", "uint8", "vela"),
    ("ELU", "int8", "lowered"),
    ("ELU", "int8", "vela"),
    ("EXP", "int8", "lowered"),
    ("EXP", "int8", "vela"),
    ("EXP", "int16", "host"),
    ("EXP", "int16", "vela"),
    ("GELU", "uint8", "lowered"),
    ("LEAKY_RELU", "int8", "lowered"),
    ("LOG", "int8", "lowered"),
    ("LOG", "int16", "host"),
    ("RELU", "int16", "vela"),
    ("RELU6", "uint8", "host"),
    ("RELU_0_TO_1", "int8", "host"),
    ("RELU_0_TO_1", "int8", "vela"),
    ("RELU_N1_TO_1", "uint8", "host"),
    ("RELU_N1_TO_1", "uint8", "vela"),
]


@pytest.mark.parametrize(("kind", "dtype", "way"), SLICE, ids=lambda value: str(value))
def test_claims_hold(kind: str, dtype: str, way: str) -> None:
    found = compare(kind, dtype, way, pairs(kind, dtype, SOME))
    assert sum(tally.operators for (runner, _), tally in found.items() if (runner == "host") == (way == "host")) == SOME
    assert not false_claims(found)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("kind", TABLES)
def test_tables_equal_the_reference(kind: str, dtype: str) -> None:
    found = compare_tables(kind, dtype, pairs(kind, dtype, 1480)[::-1][:100])
    assert not false_claims(found)
    assert sum(tally.operators for tally in found.values()) in (0, 100)  # no reference of a type, or all of them


def test_velas_ties_differ() -> None:
    """Else what is said of its streams would be too little."""
    for kind, dtype in (("CONCATENATION", "uint8"), ("ELU", "int8")):
        found = compare(kind, dtype, "vela", pairs(kind, dtype, 30))
        assert found["npu", "within a step"].largest == 1
