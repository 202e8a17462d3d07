"""What cannot be lowered is refused with a reason that names it; and the arithmetic's corner cases."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from npu_memplan import fixed_point as fp
from npu_memplan.frontend.host_ops import (
    UnsupportedOperatorError,
    lower_operator,
    supported_names,
    unsupported_reason,
)
from npu_memplan.models.tflite import read_network
from tests.support.tflite_builder import TensorSpec, constant, write_model

A = TensorSpec((1, 4), "int8", 0.1, 3)
FLOAT, HALF, BARE = TensorSpec((1, 4), "float32"), TensorSpec((1, 4), "float16"), TensorSpec((1, 4), "int8")

REFUSALS = [
    ("CUMSUM", [A, constant(0)], [A], None, "the file has no CumsumOptions for it"),
    ("ADD", [HALF, HALF], [HALF], ("AddOptions", {}), "'t0' is float16; the host operator takes float32 or int32"),
    ("ADD", [BARE, BARE], [BARE], ("AddOptions", {}), "tensor 't0' is not quantised"),
    ("ADD", [A, A], [A], None, "the file has no AddOptions for it"),
    ("SOFTMAX", [A], [A], ("SoftmaxOptions", {"Beta": 1.0}), "the reference demands 0.00390625 and -128"),
    ("L2_NORMALIZATION", [A], [A], ("L2NormOptions", {}), "the reference computes for 0.0078125 and 0"),
    (
        "L2_NORMALIZATION", [A], [A], ("L2NormOptions", {"FusedActivationFunction": 1}),
        "the reference refuses its fused activation (number 1)",
    ),
    ("LOG_SOFTMAX", [A], [A], None, "the reference demands 0.0625 and 127"),
    ("LOGISTIC", [A], [TensorSpec((1, 4), "int8", 1 / 256, 0)], None, "the reference demands -128"),
    (
        "CONCATENATION", [A, A], [TensorSpec((1, 8), "int8", 0.2, 3)], ("ConcatenationOptions", {"Axis": 1}),
        "has another scale or zero point than the output",
    ),
    (
        "REVERSE_V2", [TensorSpec((2, 3, 4), "int8"), constant([0, 2])], [TensorSpec((2, 3, 4), "int8")], None,
        "it reverses axes [0, 2], which are not next to each other",
    ),
    (
        "DIV", [A, A], [TensorSpec((1, 4), "int8", 1e-9)], ("DivOptions", {}),
        "output scale 9.999999717180685e-10 is too small for its inputs' scales",
    ),
    (
        "LESS", [A, TensorSpec((1, 4), "int8", 1.5)], [TensorSpec((1, 4), "bool")], None,
        "tensor 't1' has scale 1.5; the reference takes < 1",
    ),
    ("SLICE", [A, TensorSpec((2,), "int32"), constant([1, 2])], [A], None, "input 1 (tensor 't1') must be constant"),
    (
        "SPACE_TO_BATCH_ND",
        [TensorSpec((1, 3, 4, 1), "int8", 0.1, 4), constant([2, 2]), constant([[0, 1], [0, 0]])],
        [TensorSpec((4, 2, 2, 1), "int8", 0.1, 4)], None, "it pads, and the reference kernel does not say with what",
    ),
    ("QUANTIZE", [FLOAT], [TensorSpec((1, 4), "int32", 0.1)], None, "from float32 to int32 is not done on the host"),
    ("DEQUANTIZE", [TensorSpec((1, 4), "int32", 0.1)], [FLOAT], None, "takes int8 or int16 or uint8"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "inputs", "outputs", "options", "message"), REFUSALS)
def test_refusal(name, inputs, outputs, options, message):
    network = read_network(write_model(name, inputs, outputs, options))
    assert message in (unsupported_reason(network, network.operators[0]) or "")
    with pytest.raises(UnsupportedOperatorError):
        lower_operator(network, network.operators[0])


def test_the_documentation_lists_every_operator():
    page = (Path(__file__).resolve().parents[2] / "docs" / "host-operators.md").read_text(encoding="utf-8")
    table = page[page.index("| family |") : page.index("## How it is checked")]
    assert set(re.findall(r"`([A-Z0-9][A-Z0-9_]+|(?:Signal|TFLite_)\w+)`", table)) == set(supported_names())


def test_golden_c_of_a_fully_connected_layer(compiled, golden):
    weights = constant(np.arange(-6, 6).reshape(3, 4), "int8", [0.5, 0.25, 0.125])
    model = write_model(
        "FULLY_CONNECTED",
        [A, weights, constant([7, 8, 9], "int32", 0.05)],
        [TensorSpec((1, 3), "int8", 0.2, -1)],
        ("FullyConnectedOptions", {"FusedActivationFunction": 1}),
    )
    text = re.sub(r"sram\[\d+\]", "sram[...]", compiled(model).text)  # where it lies is the planner's
    golden(
        "host_op_fully_connected.c",
        re.sub(r"/\* Which instructions.*\n(?=static NPU_MEMPLAN_OPAQUE)", "", text, flags=re.DOTALL),
    )


@pytest.mark.parametrize(
    ("real", "multiplier", "shift"),
    [
        (0.0, 0, 0),
        (1.0, 1 << 30, 1),
        (0.5, 1 << 30, 0),
        (2.0**-31, 1 << 30, -30),
        (2.0**-33, 0, 0),  # too small: flushed to zero
        (1.0 - 2.0**-40, 1 << 30, 1),  # rounds up to the next power of two
        (-0.25, -(1 << 30), -1),
    ],
)
def test_quantise_multiplier(real, multiplier, shift):
    assert fp.quantise_multiplier(real) == (multiplier, shift)
