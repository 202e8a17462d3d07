"""Types beside int8: uint8 against LiteRT, int16 against TFLite Micro, and a QUANTIZE between int8 and uint8 that is no
operation where it changes no number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from fvp_runner.references.base import ReferenceRunError
from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.layers.movement import Slice
from npu_memplan.ethosu.layers.softmax import Softmax
from npu_memplan.ethosu.lower.layer import LayerGraph
from npu_memplan.ethosu.lower.operands import LayerTensor
from npu_memplan.ethosu.lower.scaling import conv_scale
from npu_memplan.ethosu.lowering import Lowered, lower
from npu_memplan.ethosu.stream.isa import Op
from tests.support.against_reference import equals_reference
from tests.support.on_model import npu_graph, run_program
from tests.support.operator_models import binary, convolution, fully_connected, pool, prelu, unary
from tests.support.operator_table import row
from tests.support.single_operators import Case, case
from tests.support.tflite_builder import ModelBuilder, TensorSpec, single_operator

pytest.importorskip("ai_edge_litert", reason="needs LiteRT as the reference (pip install npu_memplan[litert])")
pytest.importorskip("tflite_micro")


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


_softmax = partial(unary, name="SOFTMAX", dtype="int16", out=(1 / 32768, 0), options="SoftmaxOptions")
INT16_CASES = [
    *map(case, ("depthwise_int16_s2", "dense_int16", "add_int16", "tanh_int16_wide")),
    Case("softmax_int16_rows", "softmax", partial(_softmax, shape=(1, 5, 6, 17), in_scale=0.0004, Beta=1.0)),
    Case("squared_difference_int16", "", partial(binary, name="SQUARED_DIFFERENCE", dtype="int16", ratio=0.8)),
    Case("prelu_int16_channel", "prelu", partial(prelu, dtype="int16", shape=(1, 5, 6, 37))),
]


@pytest.mark.parametrize("npu", ["ethos-u55-32", "ethos-u65-512", "ethos-u85-128", "ethos-u85-1024"])
@pytest.mark.parametrize("model", INT16_CASES, ids=lambda c: c.name)
def test_int16_equals_the_reference_on_every_kind_of_npu(model: Case, npu: str) -> None:
    equals_reference(model, npu, 6)


@pytest.mark.parametrize("npu", ["ethos-u55-256", "ethos-u85-256"])
def test_a_difference_may_have_17_bits(npu: str) -> None:
    ends, shape, scale = np.array([-32768, -32767, 0, 32766, 32767], np.int16), (1, 5, 5, 1), 0.01
    x, z = TensorSpec(shape, "int16", scale), TensorSpec(shape, "int16", scale**2 * 2**32 / 32000)
    model = single_operator("SQUARED_DIFFERENCE", [x, x], [z], "SquaredDifferenceOptions", 2)
    given = [values.reshape(shape) for values in np.meshgrid(ends, ends)]
    (found,) = equals_reference(model, npu, given=given).outputs
    assert 31990 < found.max() < 32767


@pytest.mark.parametrize(("scale", "taken"), [(200.0, True), (400_000.0, False)])
def test_a_softmax_whose_multiplier_has_no_32_bits_is_left(scale: float, taken: bool) -> None:
    layer = Softmax("softmax", ("x",), "y")
    x, y = LayerTensor("x", (1, 8), "int16", scale), LayerTensor("y", (1, 8), "int16", 1 / 32768)
    assert (layer.unsupported_reason((x,), y) is None) is taken


NPU = "ethos-u55-256"


def quantised(layer: Callable[..., ModelBuilder], scale: float = 1.0, zero: int = 0, **options: Any) -> Case:
    """`layer` of int8 behind a QUANTIZE of a uint8 input."""

    def make(rng: np.random.Generator) -> ModelBuilder:
        b = layer(rng, **options)
        (x,) = b.inputs
        tensor = b.tensors[x]
        given = b.tensor(tensor.shape, "uint8", tensor.scale * scale, tensor.zero_point + 128 + zero)
        operators, b.operators = b.operators, []
        b.operator("QUANTIZE", [given], [x], "QuantizeOptions", 2)
        b.operators += operators
        return b.made([given], b.outputs)

    return Case(f"types_{layer.__name__}_{scale}_{zero}_{len(options)}", "types", make)


def graph_of(case: Case) -> LayerGraph:
    return npu_graph(case.build(), NPU)


def operations(lowered: Lowered) -> list[Op]:
    return [operation.op for operation in lowered.program.operations]


QUANTISED: dict[str, tuple[Case, list[Op]]] = {
    "convolution": (quantised(convolution), [Op.CONV]),
    "few channels": (quantised(convolution, shape=(8, 16, 3), stride=(2, 2)), [Op.CONV]),
    "depthwise": (quantised(convolution, depthwise=True), [Op.DEPTHWISE]),
    "fully connected": (quantised(fully_connected, batch=4), [Op.CONV]),
    "another scale": (quantised(convolution, scale=1.01), [Op.POOL, Op.CONV]),
    "another zero": (quantised(convolution, zero=1), [Op.POOL, Op.CONV]),
    "a reader of stored values": (quantised(pool), [Op.POOL, Op.POOL]),
}


@pytest.mark.parametrize("label", QUANTISED)
def test_it_is_left_out_where_no_number_changes(label: str) -> None:
    case, expected = QUANTISED[label]
    assert equals_reference(case, NPU, 5).operations == expected


def test_rows_with_gaps_are_moved_for_who_needs_dense_ones() -> None:
    """A fully connected layer cannot read a slice in place: its numbers are quantised as the model says."""
    whole = graph_of(quantised(fully_connected, batch=4))
    (name,), wide = whole.inputs, 60
    given = whole.tensors[name]
    cut = Slice("cut", ("wide",), name, (0, 7), (1, 1))
    tensors = {**whole.tensors, "wide": replace(given, name="wide", shape=(4, wide))}
    part = replace(whole, tensors=tensors, inputs=("wide",), layers=(cut, *whole.layers))
    values = np.random.default_rng(3).integers(0, 256, (4, wide)).astype(np.uint8)
    expected = run_program(lower(whole, accelerator(NPU)), {name: values[:, 7 : 7 + given.shape[1]].copy()})
    lowered = lower(part, accelerator(NPU))
    assert operations(lowered) == [Op.POOL, Op.CONV]
    assert np.array_equal(run_program(lowered, {"wide": values}), expected)
