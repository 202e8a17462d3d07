"""A user's own operators: described by a decorator, as the how-to page does it, or external and brought along as C."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import npu_memplan
from npu_memplan.artifact import Artifact
from npu_memplan.cli import cli
from npu_memplan.errors import NpuMemplanError
from npu_memplan.frontend.host_ops import own
from tests.support.tflite_builder import ModelBuilder

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "own-operator.md").read_text(encoding="utf-8")


def files_of_the_page(folder: Path) -> None:
    for name, text in re.findall(r"```\w+ file=(\S+)\n(.*?)```", PAGE, re.S):
        (folder / name).write_text(text, encoding="utf-8")


def model(before: bool = False) -> bytes:
    """Smooth, with a RELU behind it; `before`: with a fully connected layer for the NPU in front of it."""
    graph = ModelBuilder()
    data = graph.tensor((2, 16), "int8", 0.05, 0)
    source = data
    if before:
        weights = graph.constant(np.arange(-128, 128, dtype=np.int8).reshape(16, 16), 0.01)
        source = graph.tensor((2, 16), "int8", 0.05, 0)
        bias = graph.constant(np.zeros(16, np.int32), 0.0005)
        graph.operator("FULLY_CONNECTED", [data, weights, bias], [source], "FullyConnectedOptions")
    smoothed, limited = graph.tensor((2, 16), "int8", 0.05, 0), graph.tensor((2, 16), "int8", 0.05, 0)
    graph.operator("custom:Smooth", [source], [smoothed], width=3)
    graph.operator("RELU", [smoothed], [limited])
    return graph.made([data], [limited]).finish()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files_of_the_page(tmp_path)
    (tmp_path / "model.tflite").write_bytes(model())
    (tmp_path / "npu.tflite").write_bytes(model(before=True))
    yield tmp_path
    for table in (own._REFERENCES, own.lowering.__globals__["_LOWERINGS"], own.lowering.__globals__["_KEEPS"]):
        table.pop("Smooth", None)


def say(*words: str, code: int = 0) -> str:
    try:
        done = CliRunner().invoke(cli, list(words), catch_exceptions=False)
    except NpuMemplanError as error:  # the command line's `main` prints it and exits with 2
        assert code == 2
        return str(error)
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())


DESCRIBED, FOR_RUN = ("--host-ops", "operators.py"), ("--operators", "operators.py")


@pytest.mark.parametrize(
    "flags", [("model.tflite", "--accelerator", "none"), ("npu.tflite",), ("npu.tflite", "--npu-compiler", "tvm")]
)
def test_the_how_to(folder, flags):
    answer = say("compile", *flags, "-o", "made", *DESCRIBED)
    assert "unproven: Smooth (a C function of your own)" in answer
    answer = say("run", "made", "--on", "local", *FOR_RUN, "--reference", flags[0], "--steps", "5")
    assert "against tflite-micro and own NumPy references, operator by operator: bit-exact" in answer
    buffers = {(b.kind.value, b.size_bytes) for b in Artifact.load("made").problem.buffers}
    assert {("host_scratch", 18), ("state", 1)} <= buffers


def test_a_reference_that_differs_is_noticed(folder):
    text = (folder / "smooth.c").read_text()
    (folder / "smooth.c").write_text(text.replace("line[i + 2], 3", "line[i + 2], 2"))
    say("compile", "model.tflite", "-o", "made", "--accelerator", "none", *DESCRIBED)
    assert "NOT bit-exact" in say("run", "made", "--on", "local", *FOR_RUN, "--reference", "model.tflite", code=1)


def test_a_reference_that_fails_is_reported(folder):
    text = (folder / "operators.py").read_text()
    (folder / "operators.py").write_text(text.replace(", **options", ""))
    say("compile", "model.tflite", "-o", "made", "--accelerator", "none", *DESCRIBED)
    answer = say("run", "made", "--on", "local", *FOR_RUN, "--reference", "model.tflite", code=2)
    assert "the NumPy reference of Smooth failed: TypeError: smooth() got an unexpected keyword" in answer


def test_without_a_description_the_error_names_the_way_out(folder):
    answer = say("compile", "model.tflite", "-o", "made", "--accelerator", "none", code=2)
    assert "host: there is no host operator Smooth" in answer
    assert answer.endswith("or leave them to C functions of your own: --host-ops Smooth=0")


SMOOTH_NAME = "model_external_smooth_0"


@pytest.mark.parametrize("compiler", [("--accelerator", "none"), (), ("--npu-compiler", "tvm")])
def test_an_external_operator_is_declared_and_called(folder, compiler):
    answer = say("compile", "model.tflite", "-o", "made", "--host-ops", "Smooth=18", *compiler)
    assert "unproven: Smooth (an external C function, which is not here)" in answer
    header = Path("made/src/model.h").read_text()
    (excerpt,) = re.findall(r"```c\n(/\* External.*?)```", PAGE, re.S)
    assert excerpt.rstrip() in header
    answer = say("run", "made", "--on", "local", code=2)
    assert f"model calls {SMOOTH_NAME}, an operator that is external, and it is not defined" in answer
    (folder / "mine.c").write_text(
        f'#include "model.h"\nvoid {SMOOTH_NAME}(const int8_t *input_0, int8_t *output_0, uint8_t *scratch) {{\n'
        "  scratch[17] = 1;\n  for (int i = 0; i < 32; i++) output_0[i] = (int8_t)(input_0[i] / 2);\n}\n"
    )
    np.save("in.npy", np.arange(-16, 16, dtype=np.int8).reshape(2, 16))
    say("run", "made", "--on", "local", "--external-source", "mine.c", "--input", "in.npy", "--output", "out.npy")
    assert np.load("out.npy").reshape(-1).tolist() == [0] * 16 + [i // 2 for i in range(16)]
    assert ("--host-ops", "Smooth=18") in Artifact.load("made").target.to_cli_options()


def test_an_operator_of_tflites_own_may_be_external(folder):
    say("compile", "npu.tflite", "-o", "made", "--host-ops", "RELU=,smooth=18")
    assert "void npu_external_relu_2(const int8_t *input_0, int8_t *output_0);" in Path("made/src/npu.h").read_text()
    agents = {operator.kind: operator.agent.value for operator in Artifact.load("made").operators}
    assert agents == {"FULLY_CONNECTED": "npu", "Smooth": "host", "RELU": "host"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--host-ops", "Rough=0"),
            "--host-ops names 'Rough', but model.tflite has no such operator; it has: RELU, Smooth",
        ),
        (("--host-ops", "nowhere.py"), "cannot load operators from nowhere.py: FileNotFoundError"),
        (("--host-ops", "broken.py"), "cannot load operators from broken.py: ZeroDivisionError: division by zero"),
    ],
)
def test_what_is_wrong_is_reported(folder, words, message):
    (folder / "broken.py").write_text("1 / 0\n")
    assert message in say("compile", "model.tflite", "-o", "made", "--accelerator", "none", *words, code=2)


def test_a_description_needs_its_c(tmp_path):
    with pytest.raises(own.OwnOperatorError, match=r"cannot read its C from .*nowhere\.c"):
        npu_memplan.host_operator("Smooth", function="smooth", source=tmp_path / "nowhere.c")
    (tmp_path / "other.c").write_text("void rough(void) {}\n")
    with pytest.raises(own.OwnOperatorError, match="defines no function smooth"):
        npu_memplan.host_operator("Smooth", function="smooth", source=tmp_path / "other.c")
