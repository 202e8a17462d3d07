"""Resizes by 16, of one pixel, and on Ethos-U85 by any ratio equal the reference; what the NPU cannot mix stays on the
host.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from npu_memplan.ethosu.stream.isa import Op
from tests.support.against_reference import equals_reference, host_reasons
from tests.support.operator_models import resize
from tests.support.single_operators import Case

pytest.importorskip("tflite_micro")

BILINEAR, NEAREST = "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"
ONE: dict[str, Any] = {"size": (1, 1)}
CASES: dict[str, dict[str, Any]] = {
    "by 16": {"kind": BILINEAR, "factor": 16, "size": (2, 3)},
    "by 16, corners on corners": {"kind": BILINEAR, "factor": 16, "align": True, "size": (3, 2), "dtype": "uint8"},
    "nearest by 16": {"kind": NEAREST, "factor": 16, "size": (2, 1), "dtype": "int16"},
    "a pixel": {"kind": BILINEAR, "align": True, "out": (33, 33), "dtype": "uint8"} | ONE,
    "a pixel to two": {"kind": BILINEAR, "half": True, "out": (2, 1)} | ONE,
    "a pixel to a row": {"kind": NEAREST, "out": (1, 21), "dtype": "int16"} | ONE,
    "a pixel to columns": {"kind": NEAREST, "out": (17, 3)} | ONE,
    "many channels": {"kind": BILINEAR, "half": True, "factor": 4, "depth": 20},
}


def case(label: str, **options: Any) -> Case:
    return Case(f"resize_{label}", "resize", partial(resize, **options))


@pytest.mark.parametrize("npu", ["ethos-u55-64", "ethos-u55-256", "ethos-u65-512", "ethos-u85-256"])
@pytest.mark.parametrize("label", CASES)
def test_equals_the_reference(label: str, npu: str) -> None:
    equals_reference(case(label, **CASES[label]), npu, 3)


ON_U85: dict[str, dict[str, Any]] = {
    "by 2": {"kind": BILINEAR, "factor": 2},
    "by 4": {"kind": BILINEAR, "factor": 4, "dtype": "uint8"},
    "by 8, centres": {"kind": BILINEAR, "factor": 8, "half": True},
    "by 16, centres": {"kind": BILINEAR, "factor": 16, "half": True, "size": (2, 2)},
    "by 2, corners on corners": {"kind": BILINEAR, "factor": 2, "align": True},
    "many columns": {"kind": BILINEAR, "factor": 2, "half": True, "size": (3, 90)},
    "nearest by 4": {"kind": NEAREST, "factor": 4},
    "nearest by 3": {"kind": NEAREST, "factor": 3, "half": True},
    "nearest by 2, corners on corners": {"kind": NEAREST, "factor": 2, "align": True, "dtype": "int16"},
}


@pytest.mark.parametrize("macs", [128, 256, 512, 1024, 2048])
@pytest.mark.parametrize("label", ON_U85)
def test_one_operation_of_ethos_u85_equals_the_reference(label: str, macs: int) -> None:
    assert equals_reference(case(label, **ON_U85[label]), f"ethos-u85-{macs}", 3).operations == [Op.RESIZE]


U55, U85 = "ethos-u55-256", "ethos-u85-256"
_ODD = "it resizes 9 positions to 14 the asymmetric way"


@pytest.mark.parametrize(
    ("options", "npu", "reason"),
    [
        ({}, U55, f"{_ODD}; the NPU makes up to 16 of each"),
        ({"dtype": "uint8"}, U85, _ODD),
        ({"size": (60, 5), "out": (3, 5), "half": True}, U85, "it resizes 60 positions to 3 the half_pixel"),
        ({"kind": NEAREST, "size": (5, 6), "out": (11, 12)}, U55, "5 positions to 11 the asymmetric way; the"),
        ({"size": (5, 6), "out": (3, 6)}, U55, "5 positions to 3 the asymmetric way; the NPU makes up to 16"),
        ({"size": (5, 6), "out": (10, 12), "align": True}, U55, "to 10 the align_corners way; the NPU makes"),
        ({"size": (5, 6), "out": (15, 18)}, U55, "it mixes neighbours by parts of 3; only powers of two are"),
        ({"size": (5, 6), "out": (10, 12), "half": True, "dtype": "int16"}, U55, "its tensors are int16"),
        (
            {"size": (2, 2), "out": (32, 32), "half": True},
            U55,
            "it weighs a neighbour by 961; weights of at most 255 fit",
        ),
    ],
)
def test_what_no_resize_makes_stays_on_the_host(options: dict[str, Any], npu: str, reason: str) -> None:
    """Without ratios of whole numbers; of uint8, which the reference mixes in float32; far from the first position."""
    model = case("odd", **{"kind": BILINEAR, "size": (9, 9), "out": (14, 14), **options})
    assert any(reason in said for said in host_reasons(model, npu))
