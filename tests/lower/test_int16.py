"""int16 activations: what the lowering takes equals tflite-micro."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.layers.softmax import Softmax
from npu_memplan.ethosu.lower.operands import LayerTensor
from npu_memplan.ethosu.lowering import lower
from npu_memplan.ethosu.relax.partition import partition_for_ethosu
from tests.support.arithmetic_models import binary, prelu, unary
from tests.support.on_model import only_graph, run_program
from tests.support.relax_import import import_relax
from tests.support.single_operators import Case, all_cases
from tests.support.tflite_builder import ModelBuilder

pytest.importorskip("tflite_micro")
from tests.support.against_reference import equals_reference

_NEITHER = ("matmul_int16",)  # no operator of the host either
_softmax = partial(unary, name="SOFTMAX", dtype="int16", out=(1 / 32768, 0), options="SoftmaxOptions")
_square = partial(binary, name="SQUARED_DIFFERENCE", dtype="int16")
CASES = [
    *(c for c in all_cases() if "int16" in c.name and c.name not in _NEITHER),
    Case("softmax_int16_rows", "softmax", partial(_softmax, shape=(1, 5, 6, 17), in_scale=0.0004, Beta=1.0)),
    Case("softmax_int16_wide", "softmax", partial(_softmax, shape=(1, 1000), in_scale=0.003, Beta=1.0)),
    Case("squared_difference_int16", "squared_difference", partial(_square, ratio=0.8)),
    Case("squared_difference_int16_channel", "squared_difference", partial(_square, second=(1, 1, 1, 9), ratio=3.0)),
    Case("squared_difference_int16_constant", "squared_difference", partial(_square, constant=True)),
    Case("prelu_int16_channel", "prelu", partial(prelu, dtype="int16", shape=(1, 5, 6, 37))),
    Case("prelu_int16_scalar", "prelu", partial(prelu, dtype="int16", per_channel=False)),
]
_SHAPES = (
    *("conv_int16_s2", "depthwise_int16_s2", "dense_int16", "add_int16", "tanh_int16_wide"),
    *("softmax_int16_rows", "squared_difference_int16", "prelu_int16_channel"),
)


@pytest.mark.parametrize("npu", ["ethos-u55-256", "ethos-u85-256"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_equals_the_reference(case: Case, npu: str) -> None:
    equals_reference(case, npu, 6)


@pytest.mark.parametrize("npu", ["ethos-u55-32", "ethos-u65-512", "ethos-u85-128", "ethos-u85-1024"])
@pytest.mark.parametrize("case", [c for c in CASES if c.name in _SHAPES], ids=lambda c: c.name)
def test_equals_the_reference_on_other_npus(case: Case, npu: str) -> None:
    equals_reference(case, npu, 6)


@pytest.mark.parametrize("npu", ["ethos-u55-256", "ethos-u85-256"])
def test_a_difference_may_have_17_bits(npu: str) -> None:
    ends, shape, scale = np.array([-32768, -32767, 0, 32766, 32767], np.int16), (1, 5, 5, 1), 0.01
    b = ModelBuilder()
    x, y = b.tensor(shape, "int16", scale), b.tensor(shape, "int16", scale)
    z = b.tensor(shape, "int16", scale**2 * 2**32 / 32000)
    b.operator("SQUARED_DIFFERENCE", [x, y], [z], "SquaredDifferenceOptions", 2)
    model = b.made([x, y], [z]).finish()
    graph = only_graph(partition_for_ethosu(import_relax(model), npu))
    given = [values.reshape(shape) for values in np.meshgrid(ends, ends)]
    (found,) = run_program(lower(graph, accelerator(npu)), dict(zip(graph.inputs, given, strict=True)))
    (wanted,) = TFLiteReference(model, "ends").run(given)
    assert 31990 < wanted.max() < 32767
    assert np.array_equal(found.reshape(-1), wanted.reshape(-1))


@pytest.mark.parametrize(("scale", "taken"), [(200.0, True), (400_000.0, False)])
def test_a_softmax_whose_multiplier_has_no_32_bits_is_left(scale: float, taken: bool) -> None:
    layer = Softmax("softmax", ("x",), "y")
    x, y = LayerTensor("x", (1, 8), "int16", scale), LayerTensor("y", (1, 8), "int16", 1 / 32768)
    assert (layer.unsupported_reason((x,), y) is None) is taken
