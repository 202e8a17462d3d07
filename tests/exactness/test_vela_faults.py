"""Operators beside others with which Vela's stream of them is wrong: the host runs those, and all results are equal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npu_memplan.ethosu.arch import Language
from npu_memplan.exactness import Exactness
from npu_memplan.frontend.tflite.lifted import import_tflite, kept_from_vela
from npu_memplan.frontend.tflite.vela_faults import KEPT, first_reason
from npu_memplan.models.flatbuffer import UnsupportedModelError
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from npu_memplan.problem import Agent
from npu_memplan.vela.worker import VelaError, VelaOptions
from npu_memplan.vela_tflite.emit import emit
from tests.support.in_steps import equals_reference
from tests.support.needs import need_data
from tests.support.real_data import shared_folder
from tests.support.tflite_builder import ModelBuilder

SMALL = ("ethos-u55-256", "ethos-u65-256")


def agents(model: ModelBuilder, npu: str, tmp_path: Path) -> str:
    """The agents of the operators, as H and N; all results are equal to the reference's."""
    options = CompileOptions(npu, npu_compiler="vela", objective="bytes")
    operators = equals_reference(model.finish(), tmp_path, 1, options).operators
    assert {o.claim.exactness for o in operators} == {Exactness.EXACT}
    return "".join("H" if o.agent is Agent.HOST else "N" for o in operators)


def product_behind(reader: str, transposed: bool = False) -> ModelBuilder:
    """A BATCH_MATMUL whose result is padded, the second part of a CONCATENATION, or cut."""
    b = ModelBuilder()
    x, y = b.tensor((3, 8, 5) if transposed else (3, 5, 8), "int8", 0.05, 3), b.tensor((3, 8, 16), "int8", 0.04, 1)
    z = b.tensor((3, 5, 16), "int8", 0.2, 2)
    b.operator("BATCH_MATMUL", [x, y], [z], "BatchMatMulOptions", AdjX=transposed)
    if reader == "PAD":
        made = b.tensor((3, 5, 19), "int8", 0.2, 2)
        b.operator("PAD", [z, b.constant(np.array([[0, 0], [0, 0], [1, 2]], np.int32))], [made], "PadOptions")
    elif reader == "SLICE":
        made = b.tensor((3, 5, 15), "int8", 0.2, 2)
        bounds = [b.constant(np.array(values, np.int32)) for values in ([0, 0, 1], [3, 5, 15])]
        b.operator("SLICE", [z, *bounds], [made], "SliceOptions")
    else:
        other, made = b.tensor((3, 5, 3), "int8", 0.2, 2), b.tensor((3, 5, 19), "int8", 0.2, 2)
        b.operator("CONCATENATION", [other, z], [made], "ConcatenationOptions", Axis=2)
        return b.made([x, y, other], [made])
    return b.made([x, y], [made])


@pytest.mark.parametrize("npu", SMALL)
@pytest.mark.parametrize(("reader", "expected"), [("PAD", "HN"), ("CONCATENATION", "HN"), ("SLICE", "NN")])
def test_products_that_become_parts_are_the_hosts(reader: str, expected: str, npu: str, tmp_path: Path) -> None:
    assert agents(product_behind(reader), npu, tmp_path) == expected


@pytest.mark.parametrize("npu", [*SMALL, "ethos-u85-256"])
@pytest.mark.parametrize(("joins", "axis", "expected"), [("PACK", 0, "HN"), ("PACK", 3, "HN"), ("PAD", 0, "HNN"),
                                                          ("CONCATENATION", 0, "NN")])  # fmt: skip
def test_cuts_that_are_joined_in_five_axes_are_the_hosts(
    joins: str, axis: int, expected: str, npu: str, tmp_path: Path
) -> None:
    """Vela's stream writes them, as they are, to other places than the joined tensor's."""
    b = ModelBuilder()
    shape = (4, 5, 6, 8)
    x, cut = b.tensor((4, 5, 8, 8), "int8", 0.05, 3), b.tensor(shape, "int8", 0.05, 3)
    bounds = [b.constant(np.array(values, np.int32)) for values in ([0, 0, 1, 0], shape)]
    b.operator("SLICE", [x, *bounds], [cut], "SliceOptions")
    if joins == "PAD":
        wider, made = b.tensor((1, *shape), "int8", 0.05, 3), b.tensor((2, *shape), "int8", 0.05, 3)
        b.operator("RESHAPE", [cut, b.constant(np.array((1, *shape), np.int32))], [wider], "ReshapeOptions")
        b.operator("PAD", [wider, b.constant(np.array([[1, 0], *[[0, 0]] * 4], np.int32))], [made], "PadOptions")
        inputs = [x]
    else:
        other = b.tensor(shape, "int8", 0.05, 3)
        joined = (*shape[:axis], 2, *shape[axis:]) if joins == "PACK" else (8, *shape[1:])
        made = b.tensor(joined, "int8", 0.05, 3)
        options = {"ValuesCount": 2} if joins == "PACK" else {}
        b.operator(joins, [other, cut], [made], f"{joins.capitalize()}Options", Axis=axis, **options)
        inputs = [x, other]
    assert agents(b.made(inputs, [made]), npu, tmp_path) == expected


def assert_legacy_core(model: bytes, npu: str, wrong: str, tmp_path: Path, steps: int = 1) -> None:
    """The stream of Vela's legacy core is refused for what is `wrong` ("": taken), and a compile has equal results."""
    if wrong:
        with pytest.raises(VelaError, match=f"legacy core is wrong for {wrong}"):
            import_tflite(model, VelaOptions(npu))
    else:
        import_tflite(model, VelaOptions(npu))
    equals_reference(model, tmp_path, steps, CompileOptions(npu, objective="bytes", effort="quick"))


@pytest.mark.parametrize(("shape", "wrong"), [((3, 5, 6, 8), True), ((1, 5, 6, 8), False), ((3, 1, 1, 8), False)])
def test_layers_that_keep_the_axes_of_images_are_not_of_the_legacy_core(
    shape: tuple[int, ...], wrong: bool, tmp_path: Path
) -> None:
    """Vela's compiled core refuses networks with a host operator beside; the other computes a row of each image."""
    b = ModelBuilder()
    x, y, flags = (
        b.tensor(shape, "int8", 0.07, 80),
        b.tensor((*shape[:-1], 19), "int8", 0.2, -38),
        b.tensor(shape, "bool"),
    )
    weights = b.constant(np.random.default_rng(4).integers(-127, 128, (19, 8), np.int8), 0.01)
    b.operator("FULLY_CONNECTED", [x, weights], [y], "FullyConnectedOptions", 5, KeepNumDims=True)
    b.operator("GREATER", [x, x], [flags])
    model = b.made([x], [y, flags]).finish()
    assert_legacy_core(model, "ethos-u55-64", "FULLY_CONNECTED that keeps four axes" if wrong else "", tmp_path)


@pytest.mark.parametrize(("bias", "wrong"), [(np.int32, True), (np.int64, False)])
def test_convolutions_of_int16_with_narrow_biases_are_not_of_the_legacy_core(
    bias: type[np.signedinteger[Any]], wrong: bool, tmp_path: Path
) -> None:
    """That core scales by a multiplier of 31 bits, the reference by one of 15."""
    b = ModelBuilder()
    x, y = b.tensor((1, 9, 8, 16), "int16", 0.0274, 0), b.tensor((1, 8, 7, 16), "int16", 0.2, 0)
    flags, bits = b.tensor((1, 8), "int8", 0.007), b.tensor((1, 8), "bool")
    weights = b.constant(np.random.default_rng(5).integers(-127, 128, (16, 2, 2, 16), np.int8), 0.0031)
    biases = b.constant(np.arange(16).astype(bias), 0.0274 * 0.0031)
    b.operator("CONV_2D", [x, weights, biases], [y], "Conv2DOptions", 5, StrideH=1, StrideW=1, Padding=1)
    b.operator("GREATER", [flags, flags], [bits])
    model = b.made([x, flags], [y, bits]).finish()
    assert_legacy_core(model, "ethos-u55-32", "CONV_2D of int16 with biases of 32 bits" if wrong else "", tmp_path, 2)


def broadcast_both(turned: str, second: tuple[int, ...] = (1, 8, 1, 4)) -> ModelBuilder:
    """An ADD with a column, which is also read as a row."""
    b = ModelBuilder()
    x, y = b.tensor((1, 8, 7, 1), "int8", 0.05, 3), b.tensor(second, "int8", 0.05, 3)
    row, z = b.tensor((1, 8, 1, 7), "int8", 0.05, 3), b.tensor((1, 8, 7, 4), "int8", 0.1, 5)
    if turned == "RESHAPE":
        b.operator("RESHAPE", [x, b.constant(np.array([1, 8, 1, 7], np.int32))], [row], "ReshapeOptions")
    elif turned == "TRANSPOSE":
        b.operator("TRANSPOSE", [x, b.constant(np.array([0, 1, 3, 2], np.int32))], [row], "TransposeOptions")
    else:
        weights = b.constant(np.random.default_rng(3).integers(-127, 128, (1, 8, 7, 7), np.int8), 0.02, 1)
        b.operator("BATCH_MATMUL", [x, weights], [row], "BatchMatMulOptions", AdjX=True)
    b.operator("ADD", [x, y], [z], "AddOptions")
    return b.made([x, y], [row, z])


@pytest.mark.parametrize("npu", SMALL)
@pytest.mark.parametrize("turned", ["RESHAPE", "TRANSPOSE", "BATCH_MATMUL"])
def test_vela_spreads_no_operand_that_is_read_in_another_shape(turned: str, npu: str, tmp_path: Path) -> None:
    model = broadcast_both(turned).finish()
    with pytest.raises(UnsupportedModelError, match=r"ADD \(number 1\) of a tensor that is read in another shape, too"):
        import_tflite(model, VelaOptions(npu))
    equals_reference(model, tmp_path, 1, CompileOptions(npu, objective="bytes", effort="quick"))


@pytest.mark.parametrize("others", [True, False])
def test_differences_of_an_operand_that_others_read_are_not_velas(others: bool, tmp_path: Path) -> None:
    """Vela leaves the comparison to the host, and cannot compile it behind another host operator."""
    b = ModelBuilder()
    x, y = b.tensor((1, 3, 11, 5), "int8", 0.0086, -20), b.tensor((1, 3, 11, 1), "int8", 0.0039, -23)
    z, made = b.tensor((1, 3, 11, 5), "int8", 0.003, -123), b.tensor((1, 3, 11, 5), "bool")
    b.operator("SQUARED_DIFFERENCE", [y, x], [z], version=2)
    if others:
        b.operator("GREATER_EQUAL", [x, z], [made])
    model = b.made([x, y], [made if others else z]).finish()
    network = read_network(model)
    reason = first_reason(KEPT, network, network.cpu_operators[0], Language.U55_U65)
    assert ("operands of several shapes are read by others" in reason) == others
    equals_reference(model, tmp_path, 2, CompileOptions("ethos-u55-128", objective="bytes", effort="quick"))


def test_one_operand_of_the_results_shape_is_enough(tmp_path: Path) -> None:
    assert agents(broadcast_both("RESHAPE", (1, 8, 7, 4)), "ethos-u55-256", tmp_path)[1] == "N"


@pytest.mark.parametrize(("axis", "expected"), [(None, "N"), (2, "HN"), (3, "NN")])
def test_spread_results_that_become_parts_are_the_hosts_on_ethos_u85(
    axis: int | None, expected: str, tmp_path: Path
) -> None:
    """Vela's stream for Ethos-U85 does not write all of their elements where rows or columns are before them; joined by
    channels, as in a U-Net, they are right.
    """
    b = ModelBuilder()
    x, y = b.tensor((1, 4, 5, 8), "int8", 0.05, 3), b.tensor((1, 9, 11, 4), "int8", 0.3, 1)
    weights = b.constant(np.random.default_rng(7).integers(-127, 128, (4, 3, 3, 8), np.int8), 0.01)
    shape = b.constant(np.array([1, 9, 11, 4], np.int32))
    b.operator("TRANSPOSE_CONV", [shape, weights, x], [y], "TransposeConvOptions", 3, StrideH=2, StrideW=2, Padding=1)
    if axis is None:
        model = b.made([x], [y])
    else:
        sizes = ((1, 9, 3, 4), (1, 9, 14, 4)) if axis == 2 else ((1, 9, 11, 4), (1, 9, 11, 8))
        other, z = (b.tensor(size, "int8", 0.3, 1) for size in sizes)
        b.operator("CONCATENATION", [other, y], [z], "ConcatenationOptions", Axis=axis)
        model = b.made([x, other], [z])
    assert agents(model, "ethos-u85-256", tmp_path) == expected


@pytest.mark.parametrize(("rows", "beside", "npu", "expected"), [
    ((12, 9), True, "ethos-u55-256", "HN"), ((12, 9), False, "ethos-u55-256", "N"), ((), False, "ethos-u55-128", "H"),
    ((12, 9), True, "ethos-u85-256", "NN"),
])  # fmt: skip
def test_indices_of_64_bits_beside_others_or_alone_are_the_hosts(
    rows: tuple[int, ...], beside: bool, npu: str, expected: str, tmp_path: Path
) -> None:
    """Vela keeps space for indices of 32 bits, and another output in what the others take; one index it widens where it
    lies, over what its stream still reads.
    """
    b = ModelBuilder()
    x, y = b.tensor((1, *rows, 33), "int8", 0.05, 3), b.tensor((1, *rows), "int64")
    b.operator("ARG_MAX", [x, b.constant(np.array(-1, np.int32))], [y], "ArgMaxOptions", OutputType=4)
    if not beside:
        model = b.made([x], [y])
    else:
        parts, z = [b.tensor((1, 5, 9, n), "int8", 0.05, 3) for n in (3, 6)], b.tensor((1, 5, 9, 9), "int8", 0.05, 3)
        b.operator("CONCATENATION", parts, [z], "ConcatenationOptions", Axis=3)
        model = b.made([x, *parts], [y, z])
    assert agents(model, npu, tmp_path) == expected


@pytest.mark.parametrize(("behind", "expected"), [(True, "NH"), (False, "N")])
def test_results_that_become_32_bits_are_the_hosts_on_ethos_u85(behind: bool, expected: str, tmp_path: Path) -> None:
    """Vela clamps them to the type of the operator before."""
    b = ModelBuilder()
    x, y = b.tensor((1, 8, 8, 5), "int16", 0.1, 0), b.tensor((1, 8, 8, 5), "int32", 0.04, 0)
    least = b.tensor((1, 8, 8, 5), "int16", 0.1, 0)
    if behind:
        b.operator("MINIMUM", [x, b.constant(np.array([30000], np.int16), 0.1, 0)], [least], "MaximumMinimumOptions")
    b.operator("QUANTIZE", [least if behind else x], [y], "QuantizeOptions")
    assert agents(b.made([x], [y]), "ethos-u85-256", tmp_path) == expected


@pytest.mark.parametrize(("scale", "expected"), [(2.3e9, "H"), (2.1e9, "N")])
@pytest.mark.parametrize("npu", ["ethos-u55-256", "ethos-u85-256"])
def test_scales_of_more_than_31_bits_are_the_hosts(scale: float, expected: str, npu: str, tmp_path: Path) -> None:
    b = ModelBuilder()
    x, y, z = (b.tensor((1, 53), "int16", given, 0) for given in (1e9, 1e9, scale))
    b.operator("ADD", [x, y], [z], "AddOptions")
    assert agents(b.made([x, y], [z]), npu, tmp_path) == expected


NETWORKS = {
    "kws_ref_model": "",
    "ad01_int8": "",
    "mobilenet_v2_pt2tflite_int8": "",
    "person_detect": "",
    "pretrainedResnet_quant": "",
    "str_ww_ref_model": "",
    "trained_lstm_int8": "",
    "vww_96_int8": "",
    "keyword_scrambled_8bit": "QUANTIZE",  # int16 to int32 behind an operator
}


@pytest.mark.parametrize("name", NETWORKS)
def test_nothing_else_of_usual_networks_is_kept_from_vela(name: str, shared_model: Callable[[str], Path]) -> None:
    """A rule that takes more than is wrong costs a network its time."""
    network = read_network(shared_model(name).read_bytes(), name)
    assert " ".join(network.operators[i].name for i in kept_from_vela(network, Language.U85)) == NETWORKS[name]
    assert kept_from_vela(network, Language.U55_U65) == {}


ZOO = {
    "cifar10_uint8": "", "deeplabv3_dm05_uint8": "", "fomo_face": "",
    "hand_landmark_3d_256": "QUANTIZE ADD DEQUANTIZE QUANTIZE",
    "magic_wand_int8": "", "mobilenet_v1_025_128_uint8": "", "palm_detection_192": "", "shufflenetv2_person": "",
    "ssd_mobilenet_v1_tile_int8": "", "ssd_traffic_uint8": " ".join(["CONV_2D"] * 6), "yolo_person_detect": "",
}  # fmt: skip


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize("npu", Language)
def test_nothing_else_of_public_networks_is_kept_from_vela(name: str, npu: Language) -> None:
    network = read_network(need_data(shared_folder("zoo") / f"{name}.tflite").read_bytes(), name)
    assert " ".join(network.operators[i].name for i in kept_from_vela(network, npu)) == ZOO[name]


def twins_beside_another(kind: str) -> bytes:
    """Three operators over one input, of which two have equal weights and other biases, and the sum of all."""
    b, rng = ModelBuilder(), np.random.default_rng(11)
    depthwise = kind == "DEPTHWISE_CONV_2D"
    x, total = b.tensor((1, 5, 4, 8), "int8", 0.05, 3), -1
    shape = (1, 3, 3, 8) if depthwise else (8, 3, 3, 8)
    twin, other = (rng.integers(-127, 128, shape, np.int8) for _ in range(2))
    scales = [0.004 + 0.001 * k for k in range(8)]
    more = {"DepthMultiplier": 1} if depthwise else {}
    for weights, bias in ((twin, 0), (other, 500), (twin, 9000)):
        y = b.tensor((1, 5, 4, 8), "int8", 0.7, 1)
        inputs = [x, b.constant(weights, scales, axis=3 if depthwise else 0)]
        inputs.append(b.constant(np.full(8, bias, np.int32), [0.05 * scale for scale in scales]))
        options = "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions"
        b.operator(
            kind,
            inputs,
            [y],
            options,
            3,
            StrideH=1,
            StrideW=1,
            FusedActivationFunction=1,
            DilationWFactor=1,
            DilationHFactor=1,
            **more,
        )
        if total >= 0:
            b.operator("ADD", [total, y], [z := b.tensor((1, 5, 4, 8), "int8", 1.1, -2)], "AddOptions", 2)
        total = z if total >= 0 else y
    return b.made([x], [total]).finish()


@pytest.mark.parametrize("accelerator", ["ethos-u55-128", "ethos-u65-256", "ethos-u85-256"])
@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D"])
def test_operators_are_kept_from_vela_and_not_their_kind(kind: str, accelerator: str, tmp_path: Path) -> None:
    options = CompileOptions(accelerator, npu_compiler="vela", effort="quick")
    made = equals_reference(twins_beside_another(kind), tmp_path, 2, options)
    agents = [o.agent for o in made.operators if o.kind == kind]
    assert agents == [Agent.HOST, Agent.NPU, Agent.HOST]
    assert [o.agent for o in made.operators if o.kind == "ADD"] == [Agent.NPU] * 2
    (path := tmp_path / "m.tflite").write_bytes(twins_beside_another(kind))
    assert emit(path, options).operators == ("ethos-u", kind)
