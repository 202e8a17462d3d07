"""What firmware reads of a model's header: compiled as C and as C++ by every compiler that is here."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import npu_memplan
from npu_memplan.artifact import Artifact
from npu_memplan.codegen.header import print_model_header
from npu_memplan.codegen.interface import Interface
from tests.support.real_data import REPOSITORY
from tests.support.warnings_of_c import strict_compilers

MODEL = REPOSITORY / "examples" / "digits" / "digits.tflite"
FIRMWARE = """
#include "digits.h"
static_assert(sizeof(DIGITS_MODEL_SHA256) == 65, "a digest has 64 digits");
static const int input_shape[DIGITS_INPUT_0_RANK] = DIGITS_INPUT_0_SHAPE;
static const int output_shape[DIGITS_OUTPUT_0_RANK] = DIGITS_OUTPUT_0_SHAPE;
static_assert(sizeof(DIGITS_INPUT_0_TYPE) * DIGITS_INPUT_0_ELEMENTS == DIGITS_INPUT_0_BYTES, "type and size agree");
int firmware(uint8_t *const pools[]);
int firmware(uint8_t *const pools[]) {
  struct digits_inputs inputs = digits_inputs(pools);
  struct digits_outputs outputs = digits_outputs(pools);
  inputs.NAME_OF_INPUT[0] = (DIGITS_INPUT_0_TYPE)input_shape[3];
  return digits_run(pools) + outputs.probabilities[output_shape[1] - 1];
}
"""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("header") / "out"
    npu_memplan.compile(MODEL, folder, effort="quick")
    return folder


def compile_with(compiler: str, language: str, source: str, header: str, folder: Path) -> subprocess.CompletedProcess:
    (folder / "digits.h").write_text(header, encoding="utf-8")
    standard = "-std=c11" if language == "c" else "-std=c++17"
    flags = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow=local", "-Werror", "-fsyntax-only"]
    command = [compiler, "-x", language, standard, *(f for f in flags if "=local" not in f or compiler == "gcc")]
    return subprocess.run([*command, "-I", str(folder), "-"], input=source, text=True, capture_output=True, check=False)


@pytest.mark.parametrize("language", ["c", "c++"])
@pytest.mark.parametrize("name", ["image", "int", "class", "2nd input", "a/b;c/x_1:0", "DIGITS_INPUT_0_POOL"])
def test_firmware_has_tensors_by_their_names(artifact: Path, name: str, language: str, tmp_path: Path) -> None:
    made = Artifact.load(artifact)
    text = print_model_header(Interface.from_artifact(replace(made, inputs=(replace(made.inputs[0], name=name),))), ())
    field = text.partition("struct digits_inputs {\n  int8_t *")[2].partition(";")[0]
    source = FIRMWARE.replace("NAME_OF_INPUT", field)
    for compiler in strict_compilers():
        done = compile_with(compiler, language, source, text, tmp_path)
        assert done.returncode == 0, done.stderr


def test_two_inputs_of_one_name_are_two_members(artifact: Path) -> None:
    made = Artifact.load(artifact)
    text = print_model_header(Interface.from_artifact(replace(made, inputs=(made.inputs[0], made.inputs[0]))), ())
    assert "  int8_t *image;\n  int8_t *image_1;\n" in text


def test_the_digest_is_that_of_the_model(artifact: Path) -> None:
    digest = hashlib.sha256(MODEL.read_bytes()).hexdigest()
    assert f'DIGITS_MODEL_SHA256 "{digest}"' in (artifact / "src" / "digits.h").read_text(encoding="utf-8")
