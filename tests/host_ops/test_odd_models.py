"""Models that no converter should write: windows of one element, the scale 0.0, shapes that contradict each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fvp_runner.references.interpreters import LITERT_NAME
from npu_memplan.frontend.host_ops import unsupported_reason
from npu_memplan.frontend.tflite.lifted import import_host_only
from npu_memplan.models.flatbuffer import NetworkError, UnsupportedModelError
from npu_memplan.models.tflite import read_network
from tests.host_ops.conftest import draw_inputs
from tests.support.many_operators import assert_equals_references
from tests.support.operator_models import pool, resize, unary
from tests.support.tflite_builder import ModelBuilder, TensorSpec, constant, write_model

pytest.importorskip("tflite_micro")
pytest.importorskip("ai_edge_litert", reason="needs LiteRT as the reference (pip install npu_memplan[litert])")


@pytest.mark.parametrize("kind", ["MAX", "AVERAGE"])
def test_pool(bit_exact, kind: str) -> None:
    """TVM's C printer had taken the second reading of the accumulator from before it was stored."""
    bit_exact([pool(np.random.default_rng(0), kind, (1, 1), (2, 2), 1, (8, 8, 4)).finish()])


def test_softmax_of_one_class(bit_exact) -> None:
    options = {"options": "SoftmaxOptions", "shape": (5, 1), "in_scale": 0.08, "out": (1 / 256, -128), "Beta": 1.0}
    bit_exact([unary(np.random.default_rng(0), "SOFTMAX", **options).finish()])


def test_forms_that_random_networks_lack(bit_exact) -> None:
    powers = [
        write_model(kind, [TensorSpec((4, 300), "int16", scale)], [TensorSpec((4, 300), "int16", 2.0**-15)])
        for kind in ("LOGISTIC", "TANH")
        for scale in (2.0**-12, 2.0**-11)
    ]
    wide = write_model("QUANTIZE", [TensorSpec((1, 200), "int8", 0.05, 5)], [TensorSpec((1, 200), "int32", 1e-7)])
    x, y = TensorSpec((2, 3, 4, 2), "int8", 0.1, 4), TensorSpec((2, 7, 5, 2), "int8", 0.1, 4)
    corners = ("ResizeBilinearOptions", {"AlignCorners": True})
    bit_exact([*powers, wide, write_model("RESIZE_BILINEAR", [x, constant((7, 5))], [y], corners)])


@pytest.mark.parametrize("how", [{}, {"align": True}, {"half": True}], ids=["plain", "align", "half"])
def test_images_of_16_bits(how: dict[str, bool], tmp_path: Path) -> None:
    """Sums of 36 bits; the extremes of the inputs reach both limits."""
    sizes = [((5, 6), (13, 7)), ((1, 9), (4, 4)), ((8, 8), (16, 24))]
    made = [
        resize(np.random.default_rng(i), "RESIZE_BILINEAR", dtype="int16", size=size, out=out, **how)
        for i, (size, out) in enumerate(sizes)
    ]
    models = {f"{size} to {out}": model.finish() for (size, out), model in zip(sizes, made, strict=True)}
    assert_equals_references(models, draw_inputs, tmp_path, 3, LITERT_NAME)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_a_factor(dtype: str, bit_exact: Callable[..., Any]) -> None:
    bit_exact([times_zeros("MUL", dtype)])


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


def _t(*shape: int) -> TensorSpec:
    return TensorSpec(shape, "int8", 0.1)


_VALID_3 = {"Padding": 1, "StrideH": 1, "StrideW": 1, "FilterHeight": 3, "FilterWidth": 3}
_BLOCK, _CROPS = constant([2, 2]), constant([[0, 0], [0, 0]])
_FIVE = ("OneHotOptions", {"Axis": 5})
_INDICES, _NUMBER = constant([0, 0, 1, 1]), constant(1, "int8", 0.1)
TANH = TensorSpec((1, 4, 5), "int8", 1 / 128, 0)
CASES = {
    "a larger output": ("TANH", [_t(1, 4, 4)], [TANH], None),
    "a larger part": ("SPLIT", [constant(1), _t(1, 6)], [_t(1, 3), _t(1, 5)], ("SplitOptions", {"NumSplits": 2})),
    "other extents": ("TRANSPOSE", [_t(4, 6), constant([1, 0])], [_t(7, 4)], None),
    "an axis left out": ("SUM", [_t(4, 6), constant([1])], [_t(1, 6)], ("ReducerOptions", {"KeepDims": True})),
    "parts of a smaller whole": ("UNPACK", [_t(2, 3)], [_t(4), _t(4)], ("UnpackOptions", {"Num": 2, "Axis": 0})),
    "more windows than fit": ("AVERAGE_POOL_2D", [_t(1, 4, 4, 2)], [_t(1, 4, 4, 2)], ("Pool2DOptions", _VALID_3)),
    "other channels": ("BATCH_TO_SPACE_ND", [_t(4, 2, 2, 3), _BLOCK, _CROPS], [_t(1, 4, 4, 5)], None),
    "another extent": ("BATCH_TO_SPACE_ND", [_t(4, 2, 2, 3), _BLOCK, _CROPS], [_t(1, 4, 9, 3)], None),
    "a larger image": ("DEPTH_TO_SPACE", [_t(1, 2, 2, 4)], [_t(1, 4, 6, 1)], ("DepthToSpaceOptions", {"BlockSize": 2})),
    "more than it pads": ("PAD", [_t(5, 6), constant([[1, 2], [0, 1]])], [_t(8, 10)], None),
    "fewer times": ("TILE", [_t(3, 3), constant([3, 3])], [_t(3, 9)], None),
    "an axis too far": ("ONE_HOT", [_INDICES, constant(2), _NUMBER, _NUMBER], [_t(4, 2)], _FIVE),
    "no such mode": ("MIRROR_PAD", [_t(4), constant([[1, 1]])], [_t(6)], ("MirrorPadOptions", {"Mode": 3})),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_contradiction_is_refused(case: str) -> None:
    name, inputs, outputs, options = CASES[case]
    with pytest.raises(NetworkError, match=rf"no valid TFLite model: operator 0 {name}.*\d"):
        read_network(write_model(name, inputs, outputs, options))


def test_an_access_that_no_check_expects_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most contradictions are named before an operator is lowered: one that is not, is found in its code."""
    monkeypatch.setattr("npu_memplan.frontend.host_ops.activation.require_same_shape", lambda data, output: None)
    network = read_network(write_model("TANH", [TensorSpec((1, 4, 5), "int8", 0.1)], [TANH]))
    source, target = network.tensors
    network = replace(network, tensors=(replace(source, shape=(1, 4, 4)), target))
    reason = unsupported_reason(network, network.operators[0])
    assert reason is not None
    assert "input" in reason
