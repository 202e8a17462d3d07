"""Models that contradict themselves are refused first, by file, operator and tensor; sound ones never are."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npu_memplan.frontend.host_ops import unsupported_reason
from npu_memplan.frontend.tflite.lifted import compiled_by_vela
from npu_memplan.models.flatbuffer import NetworkError, UnsupportedModelError
from npu_memplan.models.tflite import read_network
from tests.support.contrary_models import contrary_model, read_record, write_record
from tests.support.random_networks import draw
from tests.support.single_operators import all_cases
from tests.support.tflite_builder import ModelBuilder, TensorSpec, constant, write_model

A = TensorSpec((1, 4), "int8", 0.1, 3)
IMAGE, SHORT = TensorSpec((1, 4, 4, 3), "int8", 0.1), TensorSpec((1, 4), "int16", 0.1)
_ADD: Any = ("AddOptions", {})
_CONV: Any = ("Conv2DOptions", {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1})
_POOL = {"Padding": 1, "StrideH": 1, "StrideW": 1, "FilterHeight": 2, "FilterWidth": 2}
_SHIFTED = constant(np.zeros((2, 1, 1, 3)), "int8", 0.1, 5)
_EACH = constant(np.zeros((1, 1, 1, 3)), "int8", 0.1)
_NARROW = constant(np.zeros((2, 1, 1, 2)), "int8", 0.1)
CONTRADICTIONS = [
    ("ADD", [A], [A], _ADD, "operator 0 ADD has 1 input; it takes 2"),
    ("ADD", [A, A], [A, A], _ADD, "operator 0 ADD has 2 outputs; it takes 1"),
    ("ADD", [A, None], [A], _ADD, "operator 0 ADD has no input 1"),
    ("ADD", [A, SHORT], [A], _ADD, "ADD takes int8 beside tensor 0 't0' int8[1, 4], and tensor 1 't1' is int16"),
    ("ADD", [A, TensorSpec((1, 4), "int8")], [A], _ADD, "tensor 1 't1' int8[1, 4] without a scale beside tensor 0"),
    ("ADD", [A, TensorSpec((1, 3), "int8", 0.1)], [A], _ADD, "its inputs [1, 4] and [1, 3] are not broadcast"),
    ("ADD", [A, A], [A], ("MulOptions", {}), "operator 0 ADD has MulOptions; it takes AddOptions"),
    ("ADD", [A, A], [A], ("AddOptions", {"FusedActivationFunction": 77}), "has FusedActivationFunction 77"),
    ("ADD", [A, A], [A], ("AddOptions", {"FusedActivationFunction": 4}), "fuses TANH and SIGN_BIT into no such"),
    ("ADD", [TensorSpec((1,) * 6 + (4,), "int8", 0.1), A], [TensorSpec((1,) * 6 + (4,), "int8", 0.1)], _ADD,
     "its inputs of 7 axes are broadcast; TFLite broadcasts 6"),
    ("ADD", [SHORT, TensorSpec((1, 4), "int16", 0.1, 7)], [SHORT], _ADD, "takes int16 without a zero point"),
    ("LEAKY_RELU", [A], [A], ("LeakyReluOptions", {"Alpha": float("nan")}), "has Alpha nan; it must be finite"),
    ("SOFTMAX", [A], [A], ("SoftmaxOptions", {"Beta": -1.0}), "operator 0 SOFTMAX has Beta -1.0; it must be positive"),
    ("SHAPE", [A], [TensorSpec((2,), "int64")], ("ShapeOptions", {"OutType": 2}), "has OutType int32, and its result"),
    ("LESS", [A, A], [A], None, "operator 0 LESS takes bool, and tensor 2 't2' is int8"),
    ("TANH", [SHORT], [TensorSpec((1, 4), "uint8", 0.1)], None, "tensor 1 't1' is uint8"),
    ("CONV_2D", [IMAGE, _NARROW, None], [IMAGE], _CONV, "does not fit 3 channels"),
    ("CONV_2D", [IMAGE, _SHIFTED, None], [IMAGE], _CONV, "takes a filter without a zero point, and tensor 1"),
    ("DEPTHWISE_CONV_2D", [IMAGE, _EACH, None], [IMAGE], ("DepthwiseConv2DOptions", _CONV[1]),
     "its depth multiplier is 0, its filter has 1 for each channel"),
    ("AVERAGE_POOL_2D", [IMAGE], [IMAGE], ("Pool2DOptions", _POOL), "makes [1, 3, 3, 3] of tensor 0 't0' int8"),
    ("AVERAGE_POOL_2D", [A], [A], ("Pool2DOptions", _POOL), "which is not of rank 4"),
    ("FULLY_CONNECTED", [A, TensorSpec((2, 4), "uint8", 0.1), None], [TensorSpec((1, 2), "int8", 0.1)],
     ("FullyConnectedOptions", {}), "takes int8 beside tensor 0"),
    ("PACK", [A, A], [TensorSpec((2, 1, 4), "int8", 0.1, 3)], ("PackOptions", {"ValuesCount": 3}), "it packs 3 values"),
    ("RELU", [TensorSpec((1,) * 9, "int8", 0.1)], [TensorSpec((1,) * 9, "int8", 0.1)], None, "more than 8 dimensions"),
    ("SVDF", [A, constant(np.zeros((2, 4)), "int8", 0.1), constant(np.zeros((2, 3)), "int8", 0.1), None,
              TensorSpec((1, 6), "int8", 0.1)], [TensorSpec((1, 2), "int8", 0.1)], ("SVDFOptions", {"Rank": 1}),
     "its state, which is not marked as a variable"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "inputs", "outputs", "options", "message"), CONTRADICTIONS)
def test_an_operator_and_its_tensors(name: str, inputs: Any, outputs: Any, options: Any, message: str) -> None:
    with pytest.raises(NetworkError, match=r"^m\.tflite is no valid TFLite model: .*; correct what wrote it") as raised:
        read_network(write_model(name, inputs, outputs, options), "m.tflite")
    assert message in str(raised.value)


def test_a_version_that_nobody_knows() -> None:
    assert read_network(write_model("ADD", [A, A], [A], _ADD, version=6))
    with pytest.raises(NetworkError, match="operator 0 ADD has version 99; no operator has more than 16"):
        read_network(write_model("ADD", [A, A], [A], _ADD, version=99))


def _chain(change: str) -> bytes:
    b = ModelBuilder()
    x, y, z = (b.tensor((1, 4), "int8", 0.1, is_variable=change == "state" and i == 1) for i in range(3))
    operands = {"own result": (y, y), "nobody's": (z, y), "later": (z, y)}.get(change, (x, y))
    b.operator("RELU", [operands[0]], [operands[1]])
    if change != "nobody's":
        b.operator("RELU", [y], [z])
    return b.made([x], [y if change == "nobody's" else z]).finish()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("own result", "operator 0 RELU reads tensor 1 't1', which operator 0 makes, which does not run before"),
        ("later", "operator 0 RELU reads tensor 2 't2', which operator 1 makes, which does not run before"),
        ("nobody's", "operator 0 RELU reads tensor 2 't2', which no operator makes"),
        ("state", "operator 0 RELU makes tensor 1 't1', which is marked as a variable"),
    ],
)
def test_who_makes_a_tensor(change: str, message: str) -> None:
    assert read_network(_chain(""))
    with pytest.raises(NetworkError) as raised:
        read_network(_chain(change))
    assert message in str(raised.value)


@pytest.mark.parametrize(("scale", "zero_point"), [(0.0, 0), (-1.0, 0), (float("inf"), 0), (3.4e38, 0), (0.1, 128)])
def test_a_quantisation_that_means_nothing(scale: float, zero_point: int) -> None:
    odd = TensorSpec((1, 4), "int8", scale, zero_point)
    with pytest.raises(NetworkError, match="tensor 1 't1' "):
        read_network(write_model("RELU", [A], [odd]))


def test_scales_without_zero_points() -> None:
    model = read_record(write_model("RELU", [A], [A]))
    model.values["Subgraphs"][0].values["Tensors"][1].values["Quantization"].values.pop("ZeroPoint")
    with pytest.raises(NetworkError, match="tensor 1 't1' has 1 scales and 0 zero points"):
        read_network(write_record(model))


def test_a_tensor_that_is_returned_twice_is_not_given_to_vela() -> None:
    b = ModelBuilder()
    x, y = b.tensor((1, 8), "int8", 0.1), b.tensor((1, 8), "int8", 0.1)
    b.operator("RELU", [x], [y])
    model = b.made([x], [y, y]).finish()
    assert read_network(model).outputs == (y, y)
    with pytest.raises(UnsupportedModelError, match=r"m returns tensor 1 't1' int8.* twice, and Vela returns it once"):
        compiled_by_vela(model, None, (), "m")


def test_a_scale_that_makes_numbers_which_do_not_fit_is_refused() -> None:
    tiny = TensorSpec((1, 4), "int8", 1e-30, 14)
    network = read_network(write_model("LOGISTIC", [tiny], [TensorSpec((1, 4), "int8", 1 / 256, -128)]))
    assert "its scales make numbers that do not fit" in (unsupported_reason(network, network.operators[0]) or "")


def test_every_rank_of_the_format_is_read() -> None:
    for rank in range(1, 9):
        wide = TensorSpec((1,) * (rank - 1) + (4,), "int8", 0.1)
        network = read_network(write_model("RELU", [wide], [wide]))
        assert unsupported_reason(network, network.operators[0]) is None


def test_sound_models_are_read() -> None:
    """Every single operator that tests compile, and random networks (`benchmarks/random_networks.py` draws more)."""
    models = [case.build() for case in all_cases()] + [draw(seed).finish() for seed in range(12)]
    for model in models:
        read_network(model)


def test_contrary_models_are_refused_or_read() -> None:
    """Nothing but a named refusal leaves the reader, whatever part of a model's structure is another one."""
    rng, outcomes = random.Random(7), Counter[str]()
    sources = [case.build() for case in list(all_cases())[::9]] + [draw(seed).finish() for seed in range(4)]
    for number in range(600):
        _, model = contrary_model(sources[number % len(sources)], rng)
        try:
            read_network(model, "m.tflite")
            outcomes["read"] += 1
        except (NetworkError, UnsupportedModelError):
            outcomes["refused"] += 1
    assert outcomes["refused"] > 360
    assert outcomes["read"] > 40


@pytest.mark.parametrize("state", [18, 19])
def test_the_types_of_an_lstms_states(state: int) -> None:
    """The hidden state is of the input's type, the cell state int16; Vela's legacy core takes others."""
    model = read_record((Path(__file__).resolve().parents[1] / "models" / "trained_lstm_int8.tflite").read_bytes())
    (graph,) = model.values["Subgraphs"]
    tensor = graph.values["Operators"][0].numbers("Inputs", "i")[state]
    graph.values["Tensors"][tensor].values["Type"] = 3  # uint8
    with pytest.raises(NetworkError, match=f"operator 0 UNIDIRECTIONAL_SEQUENCE_LSTM takes .*{tensor} .* is uint8"):
        read_network(write_record(model))


def test_a_record_is_written_as_it_was_read() -> None:
    model = (Path(__file__).resolve().parents[1] / "models" / "trained_lstm_int8.tflite").read_bytes()
    copied = read_network(write_record(read_record(model)))
    original = read_network(model)
    assert [(t.name, t.shape, t.dtype, t.scales) for t in copied.tensors] == [
        (t.name, t.shape, t.dtype, t.scales) for t in original.tensors
    ]
    assert [(o.name, o.inputs, o.outputs) for o in copied.cpu_operators] == [
        (o.name, o.inputs, o.outputs) for o in original.cpu_operators
    ]
