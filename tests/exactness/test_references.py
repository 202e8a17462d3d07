"""One rule says which reference an operator is held to, and every command takes it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fvp_runner.references.base import ReferenceRunError
from fvp_runner.references.interpreters import LiteRTReference, Reference
from fvp_runner.references.kernels import (
    KernelsReference,
    ReferenceOperator,
    TFLiteReference,
    describe_disagreements,
    find_disagreements,
)
from fvp_runner.references.opened import open_reference
from npu_memplan.cli import cli
from npu_memplan.models.tflite import read_network
from npu_memplan.sizes import count_text
from tests.support.real_data import real_model
from tests.support.tflite_builder import ModelBuilder, TensorSpec, write_model

pytest.importorskip("tflite_micro")
pytest.importorskip("ai_edge_litert", reason="needs LiteRT as the reference (pip install npu_memplan[litert])")

LITERT = "LiteRT's reference kernels"
BOTH = f"tflite-micro and {LITERT}, operator by operator"


def layers(*kinds: str, seed: int = 0) -> bytes:
    """Layers one behind the other: FULLY_CONNECTED with a scale for each unit, or EXP, which tflite-micro has not."""
    rng, b = np.random.default_rng(seed), ModelBuilder()
    first = value = b.tensor((64, 32), "int8", 0.0277, 15)
    for kind in kinds:
        if kind == "EXP":
            result = b.tensor((64, 32), "int8", 0.02, -128)
            b.operator("EXP", [value], [result], "ExpOptions")
            value = result
            continue
        weights = b.constant(rng.integers(-127, 128, (32, 32)).astype(np.int8), rng.uniform(0.002, 0.0025, 32), axis=0)
        result = b.tensor((64, 32), "int8", 0.0219, 8)
        b.operator("FULLY_CONNECTED", [value, weights, -1], [result], "FullyConnectedOptions", 5)
        value = result
    return b.made([first], [value]).finish()


def invoke(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(cli, [str(word) for word in words])
    return done.exit_code, done.stdout


def inputs(seed: int = 1) -> list[np.ndarray]:
    return [np.random.default_rng(seed).integers(-128, 128, (64, 32)).astype(np.int8)]


@pytest.mark.parametrize(
    ("kinds", "parts", "what"),
    [
        (("FC", "FC"), [2], "tflite-micro"),
        (("EXP",), [1], LITERT),
        (("EXP", "EXP", "EXP"), [3], LITERT),
        (("FC", "FC", "EXP", "EXP", "FC"), [2, 2, 1], BOTH),
        (("EXP", "FC", "FC", "FC", "FC", "EXP"), [1, 2, 1, 1, 1], BOTH),
    ],
)
def test_operators_run_in_parts_of_one_reference(kinds: tuple[str, ...], parts: list[int], what: str) -> None:
    model = layers(*kinds)
    reference = TFLiteReference(model)
    assert reference.what == what
    assert [len(part.network.operators) for part in reference._parts] == parts
    named = [reference.reference_of(index) for index in range(len(kinds))]
    assert named == [LITERT if kind == "EXP" else "tflite-micro" for kind in kinds]
    values = reference.layer_values(inputs())
    network, tensors = read_network(model), dict(zip((0,), inputs(), strict=True)) | dict(values)
    for operator in network.cpu_operators:
        alone = ReferenceOperator(model, network, operator)
        (result,) = alone.run([tensors[i] for i in alone.network.inputs])
        assert np.array_equal(result, values[operator.outputs[0]])
    assert np.array_equal(reference.run(inputs())[0], values[network.outputs[0]])


def test_an_operator_has_its_reference_whatever_is_beside_it() -> None:
    """LiteRT multiplies otherwise where units have scales: for an EXP beside it, it was the reference of all."""
    model, mixed = layers("FC", seed=3), layers("FC", "EXP", seed=3)
    micro, whole = Reference(model).run(inputs())[0], KernelsReference(mixed, read_network(mixed))
    assert np.array_equal(whole.layer_values(inputs())[2], micro)
    other = LiteRTReference(mixed, read_network(mixed)).layer_values(inputs())[2]
    assert np.count_nonzero(other != micro)


def test_litert_runs_no_svdf_with_an_int8_state() -> None:
    """Its kernel takes the state for int16 and writes behind the end of it."""
    model = real_model("keyword_scrambled_8bit").read_bytes()
    network = read_network(model)
    with pytest.raises(ReferenceRunError, match="operator 1 SVDF has an int8 state"):
        LiteRTReference(model, network).run([np.zeros(network.tensors[i].shape, np.int8) for i in network.inputs])


def test_what_references_disagree_on_is_said() -> None:
    reference = TFLiteReference(layers("FC", "FC", seed=3))
    found = find_disagreements(reference, inputs(), reference.run(inputs()))
    assert {one.kind for one in found} == {"FULLY_CONNECTED"}
    assert all(one.max_abs_diff == 1 and one.mismatches < 20 for one in found)
    text = describe_disagreements(found)
    assert f"FULLY_CONNECTED {found[0].operator} ({found[0].mismatches} of 2,048 elements, by 1 at most)" in text
    alone = TFLiteReference(layers("EXP"))
    assert find_disagreements(alone, inputs(), alone.run(inputs())) == ()
    assert describe_disagreements(()) == ""


def test_commands_take_the_same_reference(tmp_path: Path) -> None:
    path, folder = tmp_path / "mixed.tflite", str(tmp_path / "out")
    path.write_bytes(layers("FC", "EXP", "FC", seed=3))
    options = ("--effort", "quick", "--npu-compiler", "tvm", "-o", folder, "--json", "--check")
    code, text = invoke("compile", str(path), *options)
    check = json.loads(text)["check"]
    assert (code, check["verdict"], check["reference"]) == (0, "equal", BOTH)
    for more in ((), ("--layers",)):
        code, text = invoke("run", folder, "--on", "local", "--reference", str(path), "--json", *more)
        found = json.loads(text)
        assert (code, found["bit_exact"], found["reference"]) == (0, True, BOTH)
        assert "disagree on FULLY_CONNECTED 0" in found["references_disagree"]
    assert count_text(3, "operator") in invoke("run", folder, "--on", "local", "--reference", str(path), "--layers")[1]


def test_kernels_that_end_their_process_end_no_command(tmp_path: Path) -> None:
    """TFLite Micro demands that a SOFTMAX's beta times its scale is no less than a fixed point has."""
    scores, shares = TensorSpec((1, 8), "int8", 0.1, 3), TensorSpec((1, 8), "int8", 1 / 256, -128)
    odd = tmp_path / "odd.tflite"
    odd.write_bytes(write_model("SOFTMAX", [scores], [shares], ("SoftmaxOptions", {"Beta": 1e-30})))
    with pytest.raises(ReferenceRunError, match=r"odd\.tflite: its kernels end their process with signal 6"):
        open_reference(odd)
    ended = CliRunner().invoke(cli, ["check", str(odd), "--board", "corstone-300-u55"])
    assert ended.exit_code == 1, ended.output
    assert "TFLite Micro does not run it (its kernel ends the program with signal 6)" in " ".join(ended.output.split())


def test_kernels_that_end_their_process_while_they_run_end_no_command() -> None:
    """A drawn WHILE with an IF in its body: tflite-micro opens it, and its first inference is a segmentation fault."""
    with pytest.raises(ReferenceRunError, match="its kernels end their process with signal 11"):
        open_reference(Path(__file__).parent / "while_ends_reference.tflite")


def test_a_tensor_without_elements_needs_no_content() -> None:
    """RESHAPE to no axes takes a shape of no numbers, whose buffer is as empty as that of what is computed."""
    b = ModelBuilder()
    x, least, made = (b.tensor((), "uint8", 0.03, 144) for _ in range(3))
    b.operator("MINIMUM", [x, b.constant(np.array(142, np.uint8), 0.03, 144)], [least])
    b.operator("RESHAPE", [x, b.tensor((0,), "int32")], [made])
    outputs = TFLiteReference(b.made([x], [least, made]).finish()).run([np.array(203, np.uint8)])
    assert [int(value) for value in outputs] == [142, 203]
