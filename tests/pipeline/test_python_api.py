"""`npu_memplan.compile`: the command `compile` as a function."""

from __future__ import annotations

from pathlib import Path

import pytest

import npu_memplan
from npu_memplan.artifact import Artifact

MODEL = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"


def test_compile_writes_what_it_returns_and_what_the_command_writes(cli, tmp_path: Path) -> None:
    made = npu_memplan.compile(MODEL, tmp_path / "api", accelerator="ethos-u55-128", pools={"sram": 8192})
    assert made == Artifact.load(tmp_path / "api")
    assert cli("compile", MODEL, "-o", tmp_path / "cli", *made.target.to_cli_args()).code == 0
    assert (tmp_path / "api" / "plan.json").read_bytes() == (tmp_path / "cli" / "plan.json").read_bytes()


def test_compile_fits(tmp_path: Path) -> None:
    made = npu_memplan.compile(str(MODEL), str(tmp_path / "api"), fit="6KiB")
    assert made.pool_bytes("sram") == made.target.pools["sram"] == 6144


def test_what_is_wrong_is_the_one_error_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(npu_memplan.NpuMemplanError, match="does not fit pool sram"):
        npu_memplan.compile(MODEL, tmp_path / "api", pools={"sram": 1024})
    assert list(tmp_path.iterdir()) == []
