"""uint8 operators against LiteRT's reference kernels; several scales each, for roundings are met by chance."""

from __future__ import annotations

import pytest

from fvp_runner.references.base import ReferenceRunError
from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.ethosu.lower.scaling import conv_scale
from tests.support.against_reference import equals_reference
from tests.support.operator_table import row

pytest.importorskip("ai_edge_litert", reason="needs LiteRT as the reference (pip install npu_memplan[litert])")


@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "SOFTMAX"])
def test_equals_litert(kind: str, number: int) -> None:
    equals_reference(row(kind, "uint8", number), "ethos-u55-256", 5)


def test_uint8_has_one_multiplier_made_of_a_float32_product() -> None:
    scales = 0.0235294122248888, 0.0243, 0.0235294122248888
    assert conv_scale(*scales, single=True) != conv_scale(*scales)


def test_litert_is_taken_where_tflite_micro_has_no_kernel() -> None:
    model = row("ADD", "uint8").build()
    assert TFLiteReference(model).what == "LiteRT's reference kernels"
    assert TFLiteReference(row("ADD", "int8").build()).what == "tflite-micro"
    with pytest.raises(
        ReferenceRunError, match="neither tflite-micro nor LiteRT's reference kernels can run reference"
    ):
        TFLiteReference(row("L2_NORMALIZATION", "int16").build())
