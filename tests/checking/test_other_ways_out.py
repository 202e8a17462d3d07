"""`link` and `tvmc compile` check what they write, and take another program where the first one is wrong."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import npu_memplan as nm
from npu_memplan.artifact import Artifact
from npu_memplan.artifact.model import CheckVerdict
from npu_memplan.checking.other_outputs import emit_checked
from npu_memplan.exactness import Exactness
from npu_memplan.frontend.tflite import description
from npu_memplan.options import CompileOptions
from npu_memplan.process.incidents import STRICT
from npu_memplan.tuning.selection import COMPILERS
from tests.support.entry import invoke
from tests.support.real_data import REPOSITORY
from tests.support.saving import save
from tests.support.sliced_batch import split_then
from tests.support.tflite_builder import TensorSpec, single_operator

MODEL = REPOSITORY / "examples" / "digits" / "digits.tflite"


@pytest.fixture
def wrong_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose stream by Vela is wrong, and nothing that keeps it from Vela."""
    monkeypatch.setattr(description, "DOUBTED", ())
    monkeypatch.setenv(STRICT, "0")
    monkeypatch.setenv("NPU_MEMPLAN_CHECK", "always")
    path = save(tmp_path / "wrong.tflite", split_then("CONV_2D", batch=2))
    return path


def call(*arguments: object) -> tuple[int, str]:
    made = invoke(*arguments, code=None)
    return made.exit_code, made.output


def test_linked_networks_are_right_or_replaced(wrong_stream: Path, tmp_path: Path) -> None:
    code, said = call("link", wrong_stream, MODEL, "-o", tmp_path / "app", "--json")
    assert code == 0, said
    networks = json.loads(said)["networks"]
    assert {n["name"]: n["check"] for n in networks} == {"wrong": "equal", "digits": "equal"}
    taken = Artifact.load(tmp_path / "app" / "wrong")
    assert taken.check.verdict is CheckVerdict.EQUAL
    (gone,) = taken.check.given_up
    assert gone.difference.kind == "CONV_2D"
    assert any("was taken" in note for note in taken.notes)
    code, said = call("run", tmp_path / "app" / "wrong", "--on", "local", "--reference", wrong_stream)
    assert code == 0, said


def test_linked_networks_are_not_run_where_nobody_wants_it(wrong_stream: Path, tmp_path: Path) -> None:
    code, said = call("link", wrong_stream, MODEL, "-o", tmp_path / "app", "--no-check", "--json")
    assert code == 0, said
    assert {n["check"] for n in json.loads(said)["networks"]} == {"not checked"}


def test_a_library_is_right_or_another_one(wrong_stream: Path, tmp_path: Path) -> None:
    tar = tmp_path / "module.tar"
    code, said = call("tvmc", "compile", "--npu-compiler", "vela", wrong_stream, "-o", tar)
    assert code == 0, said
    assert "checked on 2 inputs" in said
    assert "--npu-compiler vela --host-ops CONV_2D was taken" in said
    assert tar.is_file()


def test_a_library_that_is_wrong_everywhere_is_not_written(
    wrong_stream: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("npu_memplan.checking.claims._TRIED", 0)
    tar = tmp_path / "module.tar"
    code, _ = call("tvmc", "compile", "--npu-compiler", "vela", wrong_stream, "-o", tar)
    assert code != 0
    assert not tar.exists()


def test_a_file_with_states_begins_anew_for_each_input(tmp_path: Path) -> None:
    """The LSTM runs on the CPU; its states after the first input are not those of the second."""
    model = REPOSITORY / "tests" / "models" / "trained_lstm_int8.tflite"
    ways = ["--emit", "vela-tflite", "--npu-compiler", "tvm", "--effort", "quick", "--check"]
    done = invoke("compile", model, "-o", tmp_path / "m.tflite", *ways)
    assert "4 operators, all exact against tflite-micro; checked on 2 inputs" in done.output


def test_a_name_that_is_no_utf_8_is_checked_too(tmp_path: Path) -> None:
    model = tmp_path / os.fsdecode(b"m\xff\xfe.tflite")
    shutil.copy(REPOSITORY / "tests" / "models" / "hello_world_int8.tflite", model)
    made = nm.compile(model, tmp_path / "out", accelerator="none", check=True)
    assert made.check.verdict is CheckVerdict.EQUAL


def test_a_file_without_rivals_has_the_claims_of_velas_stream(tmp_path: Path) -> None:
    """`prefetch` compares no programs; the file had the claims of native lowering."""
    x, y = TensorSpec((1, 4, 4, 8), "int8", 0.05, -3), TensorSpec((1, 4, 4, 8), "int8", 1 / 256, -128)
    path = save(tmp_path / "m.tflite", single_operator("LOGISTIC", [x], [y]).finish())
    made = emit_checked(path, CompileOptions(prefetch=True))
    assert made.planned.extracted.loaded.backend not in COMPILERS
    assert [operator.claim.exactness for operator in made.operators_of_model] == [Exactness.STEP]
