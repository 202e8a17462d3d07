"""Modules in the working directory are nobody's to import, whoever starts a process there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from npu_memplan.process.programs import import_path, python_child
from npu_memplan.vela.compiler import VelaOptions, compile_tflite

REPOSITORY = Path(__file__).resolve().parents[2]
MODEL = REPOSITORY / "tests" / "models" / "hello_world_int8.tflite"
NAMES = ("enum", "numpy", "json", "tvm", "ethosu", "tokenize", "pickle", "subprocess")


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "hostile"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"raise SystemExit('imported {name}.py of the working directory')\n")
    monkeypatch.chdir(folder)
    return folder


def environment() -> Mapping[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY)}


@pytest.mark.parametrize("core", ["regor", "legacy"])
def test_vela_imports_nothing_from_here(hostile: Path, core: str) -> None:
    assert compile_tflite(MODEL.read_bytes(), VelaOptions(core=core)).core == core


def test_the_entry_point_imports_nothing_from_here(hostile: Path) -> None:
    code = "from npu_memplan.__main__ import main; main()"
    command = python_child(code, "compile", str(MODEL), "--npu-compiler", "vela", "-q", "-o", "made")
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "imported" not in done.stdout


def test_a_sweep_imports_nothing_from_here(hostile: Path) -> None:
    from npu_memplan.options import CompileOptions
    from npu_memplan.sweep import cases, run

    (found,) = run(cases([MODEL], [CompileOptions("none", stripes=True)])).results.values()
    assert found.outcome.value == "refused", found


def test_the_path_of_a_child(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["", str(hostile), *sys.path])
    assert str(hostile) not in import_path()
    monkeypatch.setenv("PYTHONPATH", str(hostile))  # who names it, means it
    assert str(hostile) in import_path()
