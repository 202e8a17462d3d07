"""Options and scales with which an NPU's compiler gives other numbers than the reference: the host runs them where it
can, and elsewhere nobody calls them exact."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import npu_memplan as nm
from fvp_runner.host.runner import LocalRunner
from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.artifact.model import CheckVerdict
from npu_memplan.checking.claims import compile_checked
from npu_memplan.compiler import compile_model
from npu_memplan.exactness import LITERT, Exactness
from npu_memplan.frontend.host_ops import supported_names, unsupported_reason
from npu_memplan.frontend.tflite.lifted import from_network, import_host_only, import_tflite
from npu_memplan.frontend.tflite.lowered import build_module
from npu_memplan.models.flatbuffer import NetworkError, UnsupportedModelError
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from npu_memplan.problem import Agent
from npu_memplan.vela.compiler import compile_tflite
from npu_memplan.vela.lift import LiftError
from npu_memplan.vela.worker import VelaError
from tests.support.in_steps import equals_reference
from tests.support.needs import need_data
from tests.support.operator_models import lstm_layer
from tests.support.operator_table import ROWS, row
from tests.support.real_data import shared_folder
from tests.support.saving import save
from tests.support.sliced_batch import split_then
from tests.support.tflite_builder import ModelBuilder, TensorSpec, constant, single_operator

SHAPE = (1, 4, 6, 8)


def model(
    name: str, out: tuple[int, ...], options: str | None, *constants: object, other: bool = False, **fields: object
) -> bytes:
    """One operator; `other`: its output has another scale than its input."""
    b = ModelBuilder()
    x, given = b.tensor(SHAPE, "int8", 0.05, 3), [b.constant(np.asarray(c, np.int32)) for c in constants]
    y = b.tensor(out, "int8", *((0.07, 1) if other else (0.05, 3)))
    b.operator(name, [x, *given], [y], options, 1 if name == "RELU6" else 2, **fields)
    return b.made([x], [y]).finish()


BOUNDS = ([0, 0, 0, 1, 0], [1, 1, 4, 5, 8], [1] * 5)
PADS = [[0, 0], [1, 1], [1, 1], [0, 0]]
POOL = {"Padding": 1, "StrideH": 2, "StrideW": 2, "FilterHeight": 2, "FilterWidth": 2}
TVM = CompileOptions(npu_compiler="tvm", objective="bytes")


@pytest.mark.parametrize(
    ("made", "options"),
    [
        (
            model("STRIDED_SLICE", (1, 1, 4, 4, 8), "StridedSliceOptions", *BOUNDS, NewAxisMask=2),
            CompileOptions(objective="bytes", effort="quick"),
        ),
        (
            model("REDUCE_MAX", (1, 4, 6), "ReducerOptions", [3], KeepDims=False),
            CompileOptions(objective="bytes", effort="quick"),
        ),
        (
            model("REDUCE_MIN", (1, 4, 8), "ReducerOptions", [2], KeepDims=False),
            CompileOptions(objective="bytes", effort="quick"),
        ),
        (model("RELU6", SHAPE, None, other=True), CompileOptions(objective="bytes", effort="quick")),
        (model("RELU6", SHAPE, None, other=True), TVM),
        (model("PAD", (1, 6, 8, 8), "PadOptions", PADS, other=True), CompileOptions(objective="bytes", effort="quick")),
        (
            model("SLICE", (1, 2, 2, 8), "SliceOptions", [0, 1, 1, 0], [1, 2, 2, 8], other=True),
            CompileOptions(objective="bytes", effort="quick"),
        ),
    ],
)
def test_the_host_runs_it(made: bytes, options: CompileOptions, tmp_path: Path) -> None:
    (operator,) = equals_reference(made, tmp_path, 1, options).operators
    assert (operator.agent, operator.claim.exactness) == (Agent.HOST, Exactness.EXACT)


def grouped_convolution(images: int, groups: int, made: int) -> bytes:
    b, rng = ModelBuilder(), np.random.default_rng(7)
    x, y = b.tensor((images, 7, 5, 8), "int8", 0.05, 3), b.tensor((images, 7, 5, made), "int8", 0.3, 1)
    weights = b.constant(rng.integers(-127, 128, (made, 3, 3, 8 // groups), np.int8), 0.01)
    b.operator("CONV_2D", [x, weights], [y], "Conv2DOptions", 3, StrideH=1, StrideW=1, **UNDILATED)
    return b.made([x], [y]).finish()


def equal_weights(kind: str, groups: int, bias: int) -> bytes:
    """One operator in groups, or two over one input, with equal weights; the second bias differs by `bias`."""
    b, rng = ModelBuilder(), np.random.default_rng(7)
    dense = kind == "FULLY_CONNECTED"
    x = b.tensor((1, 8) if dense else (1, 7, 5, 8), "int8", 0.05, 3)
    half = rng.integers(-127, 128, (4, 3, 3, 8 // groups) if kind == "CONV_2D" else (8, 8) if dense else (1, 3, 3, 8))
    weights = b.constant(np.concatenate([half.astype(np.int8)] * groups), 0.01)
    first = rng.integers(-9000, 9000, half.shape[-1 if kind == "DEPTHWISE_CONV_2D" else 0])
    biases = [np.concatenate([first, first + bias])] if groups == 2 else [first, first + bias]
    made = []
    for number, values in enumerate(biases):
        y = b.tensor((1, 8) if dense else (1, 7, 5, len(values)), "int8", 0.9, 1)
        stored = b.constant(values.astype(np.int32), 0.0005)
        inputs = [x, weights if number == 0 else b.constant(half.astype(np.int8), 0.01), stored]
        if dense:
            b.operator(kind, inputs, [y], "FullyConnectedOptions", 8)
        elif kind == "CONV_2D":
            b.operator(kind, inputs, [y], "Conv2DOptions", 1, StrideH=1, StrideW=1, **UNDILATED)
        else:
            b.operator(
                kind, inputs, [y], "DepthwiseConv2DOptions", 2, StrideH=1, StrideW=1, DepthMultiplier=1, **UNDILATED
            )
        made.append(y)
    return b.made([x], made).finish()


@pytest.mark.parametrize(("bias", "agent"), [(4000, Agent.HOST), (0, Agent.NPU)])
@pytest.mark.parametrize(
    ("kind", "groups"), [("CONV_2D", 1), ("CONV_2D", 2), ("DEPTHWISE_CONV_2D", 1), ("FULLY_CONNECTED", 1)]
)
def test_equal_weights_with_other_biases_are_the_hosts(
    kind: str, groups: int, bias: int, agent: Agent, tmp_path: Path
) -> None:
    """Vela stores equal weights once, with the biases of one of them."""
    options = CompileOptions("ethos-u55-128", npu_compiler="vela", objective="bytes")
    for operator in equals_reference(equal_weights(kind, groups, bias), tmp_path, 1, options).operators:
        assert (operator.agent, operator.claim.exactness is Exactness.EXACT) == (
            agent,
            kind != "FULLY_CONNECTED" or agent is Agent.HOST,
        )


def test_a_part_that_is_joined_with_none_rounds_in_float32(tmp_path: Path) -> None:
    """Lowered natively, a CONCATENATION of one input would be a QUANTIZE."""
    b = ModelBuilder()
    x, y = b.tensor((1, 4, 16), "uint8", 0.00193690136, 128), b.tensor((1, 4, 16), "uint8", 0.00514138816, 0)
    b.operator("CONCATENATION", [x], [y], "ConcatenationOptions", Axis=1)
    (operator,) = equals_reference(b.made([x], [y]).finish(), tmp_path, 1, TVM).operators
    assert (operator.agent, operator.claim.exactness) == (Agent.HOST, Exactness.EXACT)


@pytest.mark.parametrize(("scale", "agent"), [(4.9, Agent.NPU), (5.1, Agent.HOST), (50.0, Agent.HOST)])
def test_differences_of_more_than_32_bits_are_the_hosts(scale: float, agent: Agent, tmp_path: Path) -> None:
    b = ModelBuilder()
    x, y = b.tensor((1, 23), "int16", scale, 0), b.tensor((1, 23), "int16", 1 / 32768, 0)
    b.operator("SOFTMAX", [x], [y], "SoftmaxOptions", Beta=1.0)
    options = CompileOptions(npu_compiler="vela", objective="bytes")
    (operator,) = equals_reference(b.made([x], [y]).finish(), tmp_path, 2, options).operators
    assert operator.agent is agent


def test_bounds_outside_of_the_input_are_not_the_legacy_cores(tmp_path: Path) -> None:
    """Vela's compiled core refuses the PRELU, and its legacy core begins elsewhere."""
    b = ModelBuilder()
    x, part = b.tensor((2, 35), "uint8", 0.09, 248), b.tensor((2, 3), "uint8", 0.09, 248)
    bounds = [b.constant(np.array(values, np.int32)) for values in ([-3, 14], [4, -18], [1, 1])]
    b.operator("STRIDED_SLICE", [x, *bounds], [part], "StridedSliceOptions")
    z, y = b.tensor((1, 5, 10, 2), "uint8", 1 / 256, 128), b.tensor((1, 5, 10, 2), "uint8", 0.013, 128)
    b.operator("PRELU", [z, b.constant(np.array([[[156, 135]]], np.uint8), 0.0046, 128)], [y])
    model = b.made([x, z], [part, y]).finish()
    with pytest.raises(VelaError, match=r"legacy core is wrong for STRIDED_SLICE with bounds outside"):
        import_tflite(model)
    equals_reference(model, tmp_path, 2, CompileOptions(effort="quick"))


def test_outputs_that_vela_leaves_out_are_refused(tmp_path: Path) -> None:
    """Of a WHILE and an output that is a constant, by the legacy core."""
    model = Path(__file__).with_name("while_constant_output.tflite").read_bytes()
    with pytest.raises(VelaError, match="Vela leaves outputs of model out: it returns 2 of 3"):
        import_tflite(model)
    equals_reference(model, tmp_path, 2, CompileOptions(effort="quick"))


def mean_of_five_axes() -> bytes:
    b = ModelBuilder()
    x, y = b.tensor((4, 1, 2, 1, 4), "int8", 0.007, 0), b.tensor((4, 1, 2, 1, 1), "int8", 0.0034, 0)
    b.operator("MEAN", [x, b.constant(np.array([1, 4], np.int32))], [y], "ReducerOptions", KeepDims=True)
    return b.made([x], [y]).finish()


def part_to_spread() -> bytes:
    """A SLICE that a TRANSPOSE_CONV of int16 reads."""
    b, rng = ModelBuilder(), np.random.default_rng(1)
    x, part = b.tensor((1, 5, 5, 16), "int16", 1.077, 0), b.tensor((1, 1, 1, 3), "int16", 1.077, 0)
    bounds = [b.constant(np.array(values, np.int32)) for values in ([0, 4, 4, 5], [1, 1, 1, 3], [1, 2, 3, 6])]
    b.operator("SLICE", [x, *bounds[:2]], [part], "SliceOptions")
    y, weights = b.tensor((1, 2, 3, 6), "int16", 0.0235, 0), rng.integers(-127, 128, (6, 5, 2, 3)).astype(np.int8)
    bias = b.constant(rng.integers(-2000000, 2000000, 6), 0.0055 * 1.077)
    inputs = [bounds[2], b.constant(weights, 0.0055), part, bias]
    b.operator("TRANSPOSE_CONV", inputs, [y], "TransposeConvOptions", 3, StrideH=2, StrideW=3)
    return b.made([x], [y]).finish()


def part_to_multiply(reshaped: bool = False) -> bytes:
    """A SLICE that a DEPTHWISE_CONV_2D with a multiplier reads, behind a RESHAPE that changes nothing, maybe."""
    b, rng = ModelBuilder(), np.random.default_rng(2)
    x, part, y = (b.tensor((1, *shape), "int8", 0.1, 3) for shape in ((9, 11, 33), (5, 7, 13), (5, 7, 52)))
    bounds = [b.constant(np.array(values, np.int32)) for values in ([0, 4, 2, 14], [1, 5, 7, 13])]
    b.operator("SLICE", [x, *bounds], [part], "SliceOptions")
    if reshaped:
        part, source = b.tensor((1, 5, 7, 13), "int8", 0.1, 3), part
        b.operator("RESHAPE", [source, b.constant(np.array([1, 5, 7, 13], np.int32))], [part], "ReshapeOptions")
    weights = b.constant(rng.integers(-127, 128, (1, 3, 3, 52)).astype(np.int8), 0.01)
    sizes = dict.fromkeys(("StrideH", "StrideW", "DilationHFactor", "DilationWFactor"), 1)
    b.operator("DEPTHWISE_CONV_2D", [part, weights], [y], "DepthwiseConv2DOptions", 2, **sizes, DepthMultiplier=4)
    return b.made([x], [y]).finish()


@pytest.mark.parametrize(
    "made",
    [mean_of_five_axes(), part_to_spread(), part_to_multiply(), part_to_multiply(True)],
    ids=["mean", "slice", "multiplier", "reshaped"],
)
def test_the_first_operator_is_the_hosts_on_ethos_u85(made: bytes, tmp_path: Path) -> None:
    options = CompileOptions("ethos-u85-256", npu_compiler="vela", objective="bytes")
    first, *_ = equals_reference(made, tmp_path, 2, options).operators
    assert (first.agent, first.claim.exactness) == (Agent.HOST, Exactness.EXACT)


def transposed_convolution(kernel: int) -> bytes:
    b, rng = ModelBuilder(), np.random.default_rng(7)
    x, y = b.tensor((1, 4, 4, 8), "int8", 0.05, 3), b.tensor((1, 12, 12, 8), "int8", 0.2, 1)
    weights = b.constant(rng.integers(-127, 128, (8, kernel, kernel, 8), np.int8), 0.01)
    shape = b.constant(np.array([1, 12, 12, 8], np.int32))
    b.operator("TRANSPOSE_CONV", [shape, weights, x], [y], "TransposeConvOptions", 3, StrideH=3, StrideW=3)
    return b.made([x], [y]).finish()


@pytest.mark.parametrize(("kernel", "agent"), [(1, Agent.HOST), (2, Agent.NPU), (3, Agent.NPU)])
def test_strides_that_leave_places_out_are_the_hosts(kernel: int, agent: Agent, tmp_path: Path) -> None:
    """Vela's stream moves all results by a place where it pads by a negative number."""
    options = CompileOptions("ethos-u85-256", npu_compiler="vela", objective="bytes")
    (operator,) = equals_reference(transposed_convolution(kernel), tmp_path, 1, options).operators
    assert (operator.agent, operator.claim.exactness) == (agent, Exactness.EXACT)


def quantised_behind(kind: str, made: tuple[str, float, int], zero_point: int) -> bytes:
    """An int8 operator, and a QUANTIZE of its result, of scale 0.05."""
    b = ModelBuilder()
    x, y = b.tensor(SHAPE, "int8", 0.05, zero_point), b.tensor(SHAPE, "int8", 0.05, zero_point)
    if kind == "MAX_POOL_2D":
        b.operator(kind, [x], [y], "Pool2DOptions", **{**POOL, "StrideH": 1, "StrideW": 1, "Padding": 0})
    else:
        b.operator(kind, [x, x], [y], "AddOptions")
    z = b.tensor(SHAPE, *made)
    b.operator("QUANTIZE", [y], [z], "QuantizeOptions")
    return b.made([x], [z]).finish()


@pytest.mark.parametrize(
    ("kind", "made", "zero_point", "agent"),
    [
        ("ADD", ("uint8", 0.05, 128), 0, Agent.HOST),
        ("ADD", ("int8", 0.05, 7), 0, Agent.HOST),
        ("MAX_POOL_2D", ("uint8", 0.07, 128), 0, Agent.HOST),
        ("ADD", ("uint8", 0.05, 5), 5, Agent.HOST),
        ("ADD", ("int8", 0.07, 7), 0, Agent.NPU),
        ("ADD", ("uint8", 0.05, 133), 5, Agent.NPU),
        ("MAX_POOL_2D", ("uint8", 0.05, 0), -128, Agent.NPU),
    ],
)
@pytest.mark.parametrize("npu", ["ethos-u55-128", "ethos-u85-256"])
def test_a_zero_point_that_vela_leaves_out_is_the_hosts(
    kind: str, made: tuple[str, float, int], zero_point: int, agent: Agent, npu: str, tmp_path: Path
) -> None:
    """As a converter writes the end of an int8 network that returns uint8."""
    options = CompileOptions(npu, npu_compiler="vela", objective="bytes")
    first, last = equals_reference(quantised_behind(kind, made, zero_point), tmp_path, 1, options).operators
    assert (first.agent, last.agent, last.claim.exactness) == (Agent.NPU, agent, Exactness.EXACT)


def nearest_resize(extents: tuple[int, int], half_pixel: bool) -> bytes:
    b = ModelBuilder()
    x, y = b.tensor(SHAPE, "int8", 0.05, 3), b.tensor((1, *extents, 8), "int8", 0.05, 3)
    given = {"HalfPixelCenters": half_pixel}
    wanted = b.constant(np.array(extents, np.int32))
    b.operator("RESIZE_NEAREST_NEIGHBOR", [x, wanted], [y], "ResizeNearestNeighborOptions", 3, **given)
    return b.made([x], [y]).finish()


def five_axes(fewer: tuple[int, ...]) -> bytes:
    b = ModelBuilder()
    x, y = b.tensor((2, 3, 4, 2, 4), "int8", 0.05, 3), b.tensor(fewer, "int8", 0.04, 1)
    z = b.tensor((2, 3, 4, 2, 4), "int8", 0.07, -2)
    b.operator("ADD", [x, y], [z], "AddOptions")
    return b.made([x, y], [z]).finish()


def test_vela_reads_no_tensor_in_two_shapes(tmp_path: Path) -> None:
    """As in differences of each with each."""
    b = ModelBuilder()
    x, turned = b.tensor((4, 24), "int8", 0.05, 3), b.tensor((4, 1, 24), "int8", 0.05, 3)
    y = b.tensor((4, 4, 24), "int8", 0.1, -5)
    b.operator("RESHAPE", [x, b.constant(np.array([4, 1, 24], np.int32))], [turned], "ReshapeOptions")
    b.operator("SUB", [x, turned], [y], "SubOptions")
    model = b.made([x], [y]).finish()
    with pytest.raises(UnsupportedModelError, match=r"SUB \(number 1\) of one tensor in two shapes"):
        import_tflite(model)
    equals_reference(model, tmp_path, 1, CompileOptions("ethos-u55-128", objective="bytes", effort="quick"))


def test_a_least_value_that_is_read_is_the_hosts(tmp_path: Path) -> None:
    """Vela's stream for Ethos-U55 and U65 is a maximum of differences, of which it leaves some as they are."""
    b = ModelBuilder()
    x, y = b.tensor((3, 3, 3, 5), "int8", 0.05, 3), b.tensor((3, 3, 1, 5), "int8", 0.05, 3)
    z = b.tensor((3, 1, 3, 5), "int8", 0.05, 3)
    b.operator("REDUCE_MIN", [x, b.constant(np.array([2], np.int32))], [y], "ReducerOptions", KeepDims=True)
    b.operator("TRANSPOSE", [y, b.constant(np.array([0, 2, 1, 3], np.int32))], [z], "TransposeOptions")
    options = CompileOptions("ethos-u65-256", npu_compiler="vela", objective="bytes")
    operator, _ = equals_reference(b.made([x], [z]).finish(), tmp_path, 1, options).operators
    assert (operator.agent, operator.claim.exactness) == (Agent.HOST, Exactness.EXACT)


@pytest.mark.parametrize("reshaped", [False, True])
def test_parts_that_are_multiplied_are_the_hosts(reshaped: bool, tmp_path: Path) -> None:
    """As in attention. On Ethos-U55 and U65 Vela's stream has wrong elements of the first operand."""
    b = ModelBuilder()
    x, weights = b.tensor((2, 6, 16), "int8", 0.05, 3), b.tensor((2, 8, 5), "int8", 0.04, 1)
    parts = [b.tensor((2, 6, 8), "int8", 0.05, 3) for _ in range(2)]
    b.operator("SPLIT", [b.constant(np.array(2, np.int32)), x], parts, "SplitOptions", NumSplits=2)
    first, y = parts[1], b.tensor((2, 6, 5), "int8", 0.3, 2)
    if reshaped:
        first = b.tensor((2, 6, 8), "int8", 0.05, 3)
        b.operator("RESHAPE", [parts[1], b.constant(np.array([2, 6, 8], np.int32))], [first], "ReshapeOptions")
    b.operator("BATCH_MATMUL", [first, weights], [y], "BatchMatMulOptions")
    options = CompileOptions("ethos-u65-512", npu_compiler="vela", objective="bytes")
    operators = equals_reference(b.made([x, weights], [y]).finish(), tmp_path, 1, options).operators
    assert {o.claim.exactness for o in operators} == {Exactness.EXACT}


@pytest.mark.parametrize(
    ("made", "npu", "agent"),
    [
        (nearest_resize((3, 6), False), "ethos-u85-256", Agent.HOST),
        (nearest_resize((4, 9), False), "ethos-u85-256", Agent.HOST),
        (nearest_resize((4, 9), True), "ethos-u85-256", Agent.NPU),
        (nearest_resize((8, 12), False), "ethos-u85-256", Agent.NPU),
        (five_axes((4, 1, 4)), "ethos-u85-256", Agent.HOST),
        (five_axes((3, 4, 2, 1)), "ethos-u55-128", Agent.HOST),
        (five_axes((2, 1, 4, 1, 4)), "ethos-u55-128", Agent.NPU),
        (five_axes((4,)), "ethos-u55-128", Agent.NPU),
    ],
)
def test_elements_that_vela_takes_from_elsewhere_are_the_hosts(
    made: bytes, npu: str, agent: Agent, tmp_path: Path
) -> None:
    options = CompileOptions(npu, npu_compiler="vela", objective="bytes")
    (operator,) = equals_reference(made, tmp_path, 1, options).operators
    assert (operator.agent, operator.claim.exactness) == (agent, Exactness.EXACT)


UNDILATED = {"DilationHFactor": 1, "DilationWFactor": 1}


@pytest.mark.parametrize(
    ("sizes", "agent"),
    [((2, 4, 8), Agent.HOST), ((2, 8, 16), Agent.HOST), ((2, 8, 8), Agent.NPU), ((1, 4, 8), Agent.NPU)],
)
@pytest.mark.parametrize("npu", ["ethos-u55-128", "ethos-u85-256"])
def test_groups_of_several_images_are_the_hosts(
    sizes: tuple[int, int, int], agent: Agent, npu: str, tmp_path: Path
) -> None:
    """Vela's stream reads wrong elements of the second image; groups of one channel make a depthwise convolution."""
    options = CompileOptions(npu, npu_compiler="vela", objective="bytes")
    (operator,) = equals_reference(grouped_convolution(*sizes), tmp_path, 1, options).operators
    assert (operator.agent, operator.claim.exactness) == (agent, Exactness.EXACT)


def one_lstm(elements: int, clip: float) -> bytes:
    b = ModelBuilder()
    x = b.tensor((1, 3, 7), "int8", 0.03, 4)
    return b.made([x], [lstm_layer(b, x, clip=clip, elements=elements)]).finish()


@pytest.mark.parametrize("compiler", ["vela", "tvm"])
def test_an_lstm_of_another_arithmetic_is_the_hosts(compiler: str, tmp_path: Path) -> None:
    options = CompileOptions("ethos-u55-128", npu_compiler=compiler, objective="bytes")
    (operator,) = equals_reference(one_lstm(1, 0.0), tmp_path, 3, options).operators
    assert (operator.agent, operator.claim.exactness) == (Agent.HOST, Exactness.EXACT)
    assert operator.claim.reference == LITERT


def test_an_lstm_that_vela_does_not_clip_is_unproven_and_checked(tmp_path: Path) -> None:
    source = save(tmp_path / "lstm.tflite", one_lstm(0, 0.5))
    options = CompileOptions("ethos-u55-128", npu_compiler="vela", objective="bytes")
    (unchecked,) = compile_model(source, options, tmp_path / "unchecked").operators
    assert (unchecked.agent, unchecked.claim.exactness) == (Agent.NPU, Exactness.UNPROVEN)
    (operator,) = compile_checked(source, options, tmp_path / "checked").operators
    assert (operator.agent, operator.claim.exactness) == (Agent.HOST, Exactness.EXACT)


@pytest.mark.parametrize(("scale", "agent"), [(0.165, Agent.NPU), (0.17, Agent.HOST), (0.9, Agent.HOST)])
@pytest.mark.parametrize("npu", ["ethos-u55-256", "ethos-u85-256"])
def test_exponentials_beyond_31_bits_are_the_hosts(scale: float, agent: Agent, npu: str, tmp_path: Path) -> None:
    x, y = TensorSpec((1, 16, 16, 4), "int8", scale, 0), TensorSpec((1, 16, 16, 4), "int8", 1.0, -128)
    b = single_operator("EXP", [x], [y], "ExpOptions", 2)
    options = CompileOptions(npu, npu_compiler="vela", objective="bytes")
    (operator,) = equals_reference(b.finish(), tmp_path, 1, options).operators
    claimed = Exactness.STEP if agent is Agent.NPU else Exactness.EXACT
    assert (operator.agent, operator.claim.exactness) == (agent, claimed)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_vela_divides_no_quantised_numbers(dtype: str, tmp_path: Path) -> None:
    """Its stream for Ethos-U85 has neither scales nor zero points."""
    options = CompileOptions("ethos-u85-256", npu_compiler="vela", objective="bytes")
    (operator,) = equals_reference(row("DIV", dtype).build(), tmp_path, 1, options).operators
    assert (operator.agent, operator.claim.exactness) == (Agent.HOST, Exactness.UNPROVEN)
    assert "the reference shifts 32 bits by more than 31" in operator.claim.reason


@pytest.mark.parametrize("axes", [[0, 1], [1]])
@pytest.mark.parametrize("npu", ["ethos-u55-128", "ethos-u85-256"])
def test_vela_sums_no_words(axes: list[int], npu: str, tmp_path: Path) -> None:
    """Its streams sum one axis of several, or refer to elements that the result does not have."""
    x, y = TensorSpec((4, 2), "int32"), TensorSpec((1, 1) if len(axes) > 1 else (4,), "int32")
    b = single_operator("SUM", [x, constant(axes)], [y], "ReducerOptions", 2, KeepDims=len(axes) > 1)
    options = CompileOptions(npu, npu_compiler="vela", objective="bytes")
    (operator,) = equals_reference(b.finish(), tmp_path, 1, options).operators
    assert (operator.agent, operator.claim.exactness) == (Agent.HOST, Exactness.EXACT)


def select_of_reshaped(place: int) -> bytes:
    """SELECT_V2 whose input number `place` is reshaped for another result."""
    b, shape = ModelBuilder(), (2, 3, 4, 5, 6)
    inputs = [b.tensor(shape, "bool"), *(b.tensor(shape, "int8", 0.1, 0) for _ in range(2))]
    selected = b.tensor(shape, "int8", 0.1, 0)
    flat = b.tensor((2, 360), "int8" if place else "bool", *((0.1, 0) if place else ()))
    b.operator("SELECT_V2", inputs, [selected], "SelectV2Options")
    b.operator("RESHAPE", [inputs[place], b.constant(np.array([2, 360], np.int32))], [flat], "ReshapeOptions")
    return b.made(inputs, [flat, selected]).finish()


@pytest.mark.parametrize("place", range(3))
def test_selecting_from_what_is_also_reshaped_is_not_left_to_vela(place: int, tmp_path: Path) -> None:
    """For Ethos-U85 it takes the reshaped tensor in its place, for an operator of the host too."""
    model = select_of_reshaped(place)
    made = equals_reference(model, tmp_path, 1, CompileOptions("ethos-u85-256"))
    assert [o.claim.exactness for o in made.operators if o.kind == "SELECT_V2"] == [Exactness.EXACT]
    with pytest.raises(UnsupportedModelError, match="reads an input in the shape that a reshape gives it"):
        equals_reference(model, tmp_path, 1, CompileOptions("ethos-u85-256", npu_compiler="vela"))


@pytest.mark.parametrize("npu", ["ethos-u55-256", "ethos-u65-512"])
def test_the_minimum_of_what_is_also_reshaped_is_not_left_to_vela(npu: str, tmp_path: Path) -> None:
    """Its stream would take the first element for all: seed 9570091 of the random networks."""
    b = ModelBuilder()
    x, least, shaped = (b.tensor(shape, "int8", 0.1, -6) for shape in ((2,), (1,), (2, 1, 1, 1, 1)))
    b.operator("REDUCE_MIN", [x, b.constant(np.array([0], np.int32))], [least], "ReducerOptions", KeepDims=True)
    b.operator("RESHAPE", [x, b.constant(np.array([2, 1, 1, 1, 1], np.int32))], [shaped], "ReshapeOptions")
    model = b.made([x], [least, shaped]).finish()
    made = equals_reference(model, tmp_path, 4, CompileOptions(npu))
    assert [o.claim.exactness for o in made.operators if o.kind == "REDUCE_MIN"] == [Exactness.EXACT]
    with pytest.raises(UnsupportedModelError, match="reads an input in the shape that a reshape gives it"):
        equals_reference(model, tmp_path, 1, CompileOptions(npu, npu_compiler="vela"))


def test_transposed_convolutions_of_velas_legacy_core_are_refused(tmp_path: Path) -> None:
    """The compiled core refuses SELECT_V2 of bool; of stride 1 the other reads columns outside the input as others."""
    b, shape = ModelBuilder(), (1, 6, 6, 8)
    x, mask, chosen = b.tensor(shape, "int8", 0.02, 0), b.tensor(shape, "bool"), b.tensor(shape, "int8", 0.02, 0)
    y = b.tensor((1, 8, 8, 4), "int8", 0.05, 0)
    weights = b.constant(np.random.default_rng(3).integers(-127, 128, (4, 3, 3, 8)).astype(np.int8), 0.01)
    b.operator("SELECT_V2", [mask, x, x], [chosen])
    inputs = [b.constant(np.array([1, 8, 8, 4], np.int32)), weights, x]
    b.operator("TRANSPOSE_CONV", inputs, [y], "TransposeConvOptions", Padding=1, StrideH=1, StrideW=1)
    model = b.made([x, mask], [chosen, y]).finish()
    made = equals_reference(model, tmp_path, 1, CompileOptions("ethos-u65-512"))
    assert [o.agent for o in made.operators if o.kind == "TRANSPOSE_CONV"] == [Agent.NPU]
    with pytest.raises(VelaError, match="the stream of its legacy core is wrong for TRANSPOSE_CONV with stride 1"):
        equals_reference(model, tmp_path, 1, CompileOptions("ethos-u65-512", npu_compiler="vela"))


@pytest.mark.parametrize("zero_point", [0, 100, 231])
def test_depthwise_results_of_uint8_with_a_multiplier_are_clamped_as_uint8(zero_point: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = TensorSpec((1, 5, 5, 4), "uint8", 0.02, 120)
    weights = constant(rng.integers(0, 256, (1, 3, 3, 12)), "uint8", 0.01, 128)
    bias = constant(rng.integers(-2000, 2000, 12), "int32", 0.0002)
    y = TensorSpec((1, 5, 5, 12), "uint8", 0.05, zero_point)
    fields = {"StrideW": 1, "StrideH": 1, "DilationWFactor": 1, "DilationHFactor": 1, "DepthMultiplier": 3}
    b = single_operator(
        "DEPTHWISE_CONV_2D", [x, weights, bias], [y], "DepthwiseConv2DOptions", FusedActivationFunction=1, **fields
    )
    equals_reference(b.finish(), tmp_path, 1, CompileOptions(npu_compiler="vela", objective="bytes"))


@pytest.mark.parametrize(
    ("slicer", "consumer"),
    [
        *((slicer, "CONV_2D") for slicer in ("SPLIT", "SPLIT_V", "SLICE", "STRIDED_SLICE", "UNPACK")),
        *(("SPLIT", consumer) for consumer in ("DEPTHWISE_CONV_2D", "MAX_POOL_2D", "AVERAGE_POOL_2D")),
    ],
)
def test_parts_of_several_images_are_made_on_the_host(slicer: str, consumer: str, tmp_path: Path) -> None:
    """Vela lets the window operator read the part where it lies, and finds the first image alone."""
    made = equals_reference(
        split_then(consumer, 2, 3, slicer), tmp_path, 1, CompileOptions(objective="bytes", effort="quick")
    )
    assert [(o.kind, o.agent) for o in made.operators] == [(slicer, Agent.HOST), (consumer, Agent.NPU)]


@pytest.mark.parametrize("npu", ["ethos-u55-256", "ethos-u85-256"])
@pytest.mark.parametrize("consumer", ["REDUCE_MAX", "REDUCE_MIN"])
def test_parts_whose_extremes_are_taken_are_made_on_the_host(consumer: str, npu: str, tmp_path: Path) -> None:
    """Where a reduction joins dimensions, Vela's stream reads what the part was taken from."""
    options = CompileOptions(npu, npu_compiler="vela", objective="bytes")
    made = equals_reference(split_then(consumer, 1, 2), tmp_path, 1, options)
    assert made.operators[0].agent is Agent.HOST


@pytest.mark.parametrize(("consumer", "batch", "axis"), [("CONV_2D", 1, 3), ("ADD", 2, 2), ("CONV_2D", 2, 0)])
def test_other_parts_stay_on_the_npu(consumer: str, batch: int, axis: int, tmp_path: Path) -> None:
    made = equals_reference(
        split_then(consumer, batch, axis), tmp_path, 1, CompileOptions(objective="bytes", effort="quick")
    )
    assert {o.agent for o in made.operators} == {Agent.NPU}


def test_what_the_host_has_no_code_for_is_called_unproven(tmp_path: Path) -> None:
    path = save(tmp_path / "model.tflite", model("MAX_POOL_2D", (1, 2, 3, 8), "Pool2DOptions", other=True, **POOL))
    (operator,) = compile_model(path, CompileOptions(objective="bytes", effort="quick"), tmp_path / "out").operators
    assert (operator.agent, operator.claim.exactness) == (Agent.NPU, Exactness.UNPROVEN)
    assert operator.claim.reason == (
        "an NPU rescales it, from scale 0.05 and zero point 3 to 0.07 and 1, and the reference does not"
    )


@pytest.mark.parametrize("accelerator", ["ethos-u55-256", "none"])
@pytest.mark.parametrize(("kind", "options"), [
    ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions"), ("TRANSPOSE_CONV", "TransposeConvOptions"),
])  # fmt: skip
def test_a_bias_that_no_reference_takes_is_called_unproven(
    kind: str, options: str, accelerator: str, tmp_path: Path
) -> None:
    """TFLite's kernels read 64 bits where the bias of int16 has 32, and behind its end."""
    b, deep = ModelBuilder(), kind == "TRANSPOSE_CONV"
    x, out = b.tensor((1, 4, 4, 2), "int16", 0.001), b.tensor((1, 8, 8, 2) if deep else (1, 4, 4, 2), "int16", 0.005)
    weights = b.constant(np.ones((2, 2, 2, 2) if deep else (1, 3, 3, 2), np.int8), 0.01, axis=0 if deep else 3)
    bias, shape = b.constant(np.array([7, -9], np.int32), 1e-5), b.constant(np.array([1, 8, 8, 2], np.int32))
    stride = {"StrideH": 2, "StrideW": 2} if deep else {"StrideH": 1, "StrideW": 1, "DepthMultiplier": 1}
    if not deep:
        stride |= {"DilationHFactor": 1, "DilationWFactor": 1}
    b.operator(kind, [shape, weights, x, bias] if deep else [x, weights, bias], [out], options, **stride)
    path = save(tmp_path / "model.tflite", b.made([x], [out]).finish())
    made = nm.compile(path, tmp_path / "out", check=True, accelerator=accelerator)
    (operator,) = made.operators
    assert operator.claim.exactness is Exactness.UNPROVEN
    assert operator.claim.reason == "its bias has 32 bits, and TFLite's kernels for int16 read 64"
    assert made.check.verdict is CheckVerdict.NOT_CHECKED
    assert made.check.reason == (
        f"no reference can run operator 0 {kind} of model.tflite: its bias has 32 bits, and TFLite's kernels for int16 "
        "read 64"
    )


def test_slopes_that_no_reference_takes_are_called_unproven(tmp_path: Path) -> None:
    """LiteRT's kernel reads slopes of int16 as twice as many of int8, tflite-micro's refuses them."""
    x, y = (TensorSpec((1, 4, 4, 2), "int16", scale) for scale in (0.001, 0.0007))
    slopes = constant([[[3000, -9000]]], "int16", 2.0**-15)
    path = save(tmp_path / "model.tflite", single_operator("PRELU", [x, slopes], [y]).finish())
    made = nm.compile(path, tmp_path / "out", check=True)
    (operator,) = made.operators
    assert (operator.agent, operator.claim.exactness) == (Agent.NPU, Exactness.UNPROVEN)
    assert operator.claim.reason == "its slopes have 16 bits, and TFLite's kernels read 8"
    assert made.check.verdict is CheckVerdict.NOT_CHECKED


@pytest.mark.parametrize("options", [CompileOptions(objective="bytes", effort="quick"), TVM])
def test_products_whose_reference_is_undefined_are_called_unproven(options: CompileOptions, tmp_path: Path) -> None:
    x, y, z = (TensorSpec(SHAPE, "uint8", scale) for scale in (0.0235, 0.0039, 3e-35))
    path = save(tmp_path / "model.tflite", single_operator("MUL", [x, y], [z], "MulOptions").finish())
    (operator,) = compile_model(path, options, tmp_path / "out").operators
    assert (operator.agent, operator.claim.exactness) == (Agent.NPU, Exactness.UNPROVEN)
    assert operator.claim.reason.startswith("its results can reach 1.99e+35 steps of their scale")


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("options", [CompileOptions("none"), CompileOptions("ethos-u85-256", npu_compiler="tvm")])
def test_gates_that_32_bits_do_not_hold_are_called_unproven(
    dtype: str, options: CompileOptions, tmp_path: Path
) -> None:
    b = row("UNIDIRECTIONAL_SEQUENCE_LSTM", dtype).make(np.random.default_rng(5))
    given = b.tensors[b.inputs[0]]
    b.tensors[b.inputs[0]] = replace(given, scale=given.scale * 2.0**24)
    path = save(tmp_path / "model.tflite", b.finish())
    (operator,) = compile_checked(path, replace(options, effort="quick"), tmp_path / "out").operators
    assert operator.claim.exactness is Exactness.UNPROVEN
    assert operator.claim.reason.startswith("its gates can reach ")


def test_roots_whose_reference_is_undefined_are_called_unproven(tmp_path: Path) -> None:
    x, y = TensorSpec(SHAPE, "int8", 0.02, -128), TensorSpec(SHAPE, "int8", 1e6)
    path = save(tmp_path / "model.tflite", single_operator("RSQRT", [x], [y]).finish())
    (operator,) = compile_checked(path, CompileOptions("none"), tmp_path / "out").operators
    assert operator.claim.exactness is Exactness.UNPROVEN
    assert "the reference shifts 32 bits by 37" in operator.claim.reason


RESCALED = [
    *(("int8", name) for name in ("ABS", "BATCH_MATMUL", "CONV_2D", "ELU", "MEAN", "MUL", "PRELU")),
    *(("int16", name) for name in ("ABS", "BATCH_MATMUL", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "LEAKY_RELU", "MUL")),
    *(("uint8", name) for name in ("CONCATENATION", "FULLY_CONNECTED", "GELU", "QUANTIZE", "TRANSPOSE_CONV")),
]


@pytest.mark.parametrize("options", [CompileOptions("none"), CompileOptions("ethos-u85-256", npu_compiler="tvm")])
@pytest.mark.parametrize(("dtype", "name"), RESCALED)
def test_results_that_32_bits_do_not_hold_are_called_unproven(
    dtype: str, name: str, options: CompileOptions, tmp_path: Path
) -> None:
    """An output scale so small that results are up to 2**34 steps of it and more; nothing ends as a fault."""
    b = row(name, dtype).make(np.random.default_rng(5))
    made = b.tensors[b.outputs[0]]
    b.tensors[b.outputs[0]] = replace(made, scale=made.scale * 2.0**-28)
    path = save(tmp_path / "model.tflite", b.finish())
    operators = compile_checked(path, replace(options, effort="quick"), tmp_path / "out").operators
    (operator,) = (o for o in operators if o.kind == name)
    assert operator.claim.exactness is Exactness.UNPROVEN
    assert "32 bits" in operator.claim.reason


def test_quotients_whose_reference_is_undefined_are_called_unproven(tmp_path: Path) -> None:
    """On the host as well: -1 divided by 194 is shifted by 32 bits."""
    x, y, z = (
        TensorSpec(SHAPE, "int8", 0.007, 116),
        TensorSpec(SHAPE, "int8", 0.0759, -128),
        TensorSpec(SHAPE, "int8", 0.002),
    )
    path = save(tmp_path / "model.tflite", single_operator("DIV", [x, y], [z], "DivOptions").finish())
    (operator,) = compile_model(path, CompileOptions("none"), tmp_path / "out").operators
    assert (operator.agent, operator.claim.exactness) == (Agent.HOST, Exactness.UNPROVEN)
    assert "for numerators near zero the reference shifts 32 bits by more than 31" in operator.claim.reason


@pytest.mark.parametrize("npu", ["none", "ethos-u85-256"])
@pytest.mark.parametrize("wanted", [395, 400])
def test_places_beyond_the_input_are_called_unproven(npu: str, wanted: int, tmp_path: Path) -> None:
    """Ten elements in steps of 26 / 1024, rounded from 25.9 and 25.6: 394 of them lead to 10.004, 399 to 10.13."""
    x, y = TensorSpec((1, 1, 10, 2), "int8", 0.1, 3), TensorSpec((1, 1, wanted, 2), "int8", 0.1, 3)
    sizes = constant(np.array([1, wanted], np.int32), "int32")
    model = single_operator("RESIZE_BILINEAR", [x, sizes], [y], "ResizeBilinearOptions")
    path = save(tmp_path / "model.tflite", model.finish())
    options = CompileOptions(npu, npu_compiler="tvm", effort="quick")
    artifact = compile_checked(path, options, tmp_path / "out")
    (operator,) = artifact.operators
    assert operator.claim.exactness is Exactness.UNPROVEN
    assert "leads beyond the input, where it reads all the same" in operator.claim.reason
    image = np.arange(-10, 10, dtype=np.int8).reshape(x.shape)
    ran = LocalRunner(tmp_path / "out").run([image]).outputs[0].reshape(wanted, 2)
    beyond = 10 * 1024 // 26 + 1
    wanted_values = TFLiteReference(model.finish(), "m").run([image])[0].reshape(wanted, 2)
    np.testing.assert_array_equal(ran[:beyond], wanted_values[:beyond])
    np.testing.assert_array_equal(ran[beyond:], np.broadcast_to(image[0, 0, -1], (wanted - beyond, 2)))


@pytest.mark.parametrize("npu", ["none", "ethos-u85-256"])
@pytest.mark.parametrize("name", ["LOGISTIC", "TANH"])
@pytest.mark.parametrize("scale", [65535 / 12288, 65536 / 12288, 1e30])
def test_squashed_inputs_that_32_bits_do_not_hold_are_called_unproven(
    name: str, npu: str, scale: float, tmp_path: Path
) -> None:
    """An input of -32768 is multiplied by 12288 times the scale."""
    x, y = TensorSpec((1, 4, 4, 4), "int16", scale), TensorSpec((1, 4, 4, 4), "int16", 2.0**-15)
    path = save(tmp_path / "model.tflite", single_operator(name, [x], [y]).finish())
    options = CompileOptions(npu, npu_compiler="tvm", effort="quick")
    (operator,) = compile_checked(path, options, tmp_path / "out").operators
    undefined = scale * 12288 >= 65536
    assert (operator.claim.exactness is Exactness.UNPROVEN) == undefined
    assert ("the reference multiplies in 32 bits" in operator.claim.reason) == undefined


@pytest.mark.parametrize("options", [CompileOptions("none"), CompileOptions(), CompileOptions("ethos-u85-256")])
@pytest.mark.parametrize("room", [-1, 0])
def test_sums_that_32_bits_do_not_hold_are_called_unproven(options: CompileOptions, room: int, tmp_path: Path) -> None:
    """64 products of at most 2 * (127 + 128) beside a bias that leaves room for them, and for one less."""
    x, y = TensorSpec((1, 64), "int8", 0.05, -128), TensorSpec((1, 8), "int8", 100.0)
    weights = constant(np.full((8, 64), 2), "int8", 1.0, 0)
    bias = constant(np.full(8, 2**31 - 1 - 64 * 2 * 255 - room), "int32", 0.05, 0)
    path = tmp_path / "model.tflite"
    path.write_bytes(single_operator("FULLY_CONNECTED", [x, weights, bias], [y], "FullyConnectedOptions").finish())
    (operator,) = compile_checked(path, options, tmp_path / "out").operators
    assert (operator.claim.exactness is Exactness.UNPROVEN) == (room < 0)
    assert ("32 bits do not hold" in operator.claim.reason) == (room < 0)


def test_scales_that_differ_in_a_last_bit_are_one(tmp_path: Path) -> None:
    x, y = TensorSpec(SHAPE, "int8", 0.05, 3), TensorSpec((1, 2, 3, 8), "int8", np.nextafter(np.float32(0.05), 1), 3)
    path = tmp_path / "model.tflite"
    path.write_bytes(single_operator("MAX_POOL_2D", [x], [y], "Pool2DOptions", 2, **POOL).finish())
    (operator,) = compile_model(path, CompileOptions(objective="bytes", effort="quick"), tmp_path / "out").operators
    assert (operator.agent, operator.claim.exactness) == (Agent.NPU, Exactness.EXACT)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_what_vela_would_compute_of_constants_is_the_hosts(dtype: str, tmp_path: Path) -> None:
    """Vela 5.2 makes several operations of a PRELU, and computes those of constants without scales."""
    rng, b = np.random.default_rng(0), ModelBuilder()
    zero = -7 if dtype == "int8" else 0
    values = b.constant(rng.integers(-100, 100, SHAPE).astype(dtype), 0.05, zero)
    slopes = b.constant(rng.integers(-100, 100, (1, 1, 8)).astype(np.int8), 0.01, 0)
    made, x, y = (b.tensor(SHAPE, dtype, scale, zero) for scale in (0.02, 0.02, 0.03))
    b.operator("PRELU", [values, slopes], [made])
    b.operator("ADD", [made, x], [y], "AddOptions", PotScaleInt16=False)
    options = CompileOptions(npu_compiler="vela", objective="bytes")
    artifact = equals_reference(b.made([x], [y]).finish(), tmp_path, 1, options)
    assert [(o.kind, o.agent) for o in artifact.operators] == [("PRELU", Agent.HOST), ("ADD", Agent.NPU)]


# -- What cannot be compiled is one clear error that says where to go; found on public networks


def test_an_npu_operator_without_outputs_is_refused() -> None:
    network = compile_tflite(row("ADD", "int8").build()).parsed
    (call,) = network.npu_calls
    cut = replace(network, operators=(replace(call, outputs=(), output_addresses=()),))
    with pytest.raises(
        LiftError, match=r"NPU operator 0 of model has no output, and no later one reads what it leaves"
    ):
        from_network(cut)


def test_a_hybrid_operator_is_refused_by_that_name() -> None:
    x, y = TensorSpec((1, 4), "float32"), TensorSpec((1, 4), "float32")
    w = constant(np.ones((1, 4)), "int8", 0.1)
    model = single_operator("ADD", [x, w], [y], "AddOptions").finish()
    for read in (import_tflite, import_host_only, build_module):
        with pytest.raises(NetworkError, match=r"ADD takes float32 beside tensor 0 't0' .*, and tensor 1 't1' is int8"):
            read(model)


def test_a_resize_of_unknown_shape_names_the_tensor() -> None:
    x, s = TensorSpec((1, 4, 4, 2), "int8", 0.1), TensorSpec((2,), "int32")
    y = TensorSpec((), "int8", 0.1)
    b = single_operator("RESIZE_NEAREST_NEIGHBOR", [x, s], [y], "ResizeNearestNeighborOptions", 3)
    with pytest.raises(UnsupportedModelError, match=r"tensor 't2' has shape \[\], not four dimensions"):
        import_host_only(b.finish())


@pytest.mark.parametrize("kind", sorted(set(supported_names()) & set(ROWS)))
def test_float_tensors_are_taken_or_refused(kind: str) -> None:
    """No host operator fails in another way when its tensors are float32."""
    network = read_network(row(kind, "int8").build())
    tensors = tuple(
        replace(t, dtype="float32", scales=(), zero_points=()) if t.dtype == "int8" and t.data is None else t
        for t in network.tensors
    )
    network = replace(network, tensors=tensors)
    reason = unsupported_reason(network, network.cpu_operators[0])
    assert reason is None or "float32" in reason


def test_a_public_network_whose_shapes_follow_from_its_input_is_taken() -> None:
    path = need_data(shared_folder("zoo") / "style_transfer_dynamic.tflite")
    assert "main" in {v.name_hint for v in import_host_only(path.read_bytes(), path.name).module.functions}
