"""`npu_memplan.compile`: the command `compile` as a function."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

import npu_memplan
from npu_memplan.artifact import Artifact
from npu_memplan.options import CompileOptions

MODEL = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"


def test_compile_writes_what_it_returns_and_what_the_command_writes(cli, tmp_path: Path) -> None:
    options = {"accelerator": "ethos-u55-128", "pools": {"sram": 8192}, "effort": "quick"}
    made = npu_memplan.compile(MODEL, tmp_path / "api", **options)
    assert made == Artifact.load(tmp_path / "api")
    cli.ok("compile", MODEL, "-o", tmp_path / "cli", *made.target.to_cli_args())
    assert (tmp_path / "api" / "plan.json").read_bytes() == (tmp_path / "cli" / "plan.json").read_bytes()


def test_compile_fits(tmp_path: Path) -> None:
    made = npu_memplan.compile(str(MODEL), str(tmp_path / "api"), pools={"sram": "6KiB"}, effort="quick")
    assert made.pool_bytes("sram") <= made.target.pools["sram"] == 6144


def test_what_is_wrong_is_the_one_error_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(npu_memplan.NpuMemplanError, match="does not fit pool sram"):
        npu_memplan.compile(MODEL, tmp_path / "api", pools={"sram": 1024})
    assert list(tmp_path.iterdir()) == []


def test_every_option_is_a_keyword_with_the_same_default() -> None:
    keywords = inspect.signature(npu_memplan.compile).parameters
    assert {"compile", "Artifact"} <= set(npu_memplan.__all__)
    for field in fields(CompileOptions):
        if field.name != "accelerator" and field.default is not MISSING:  # the board's where none is named
            assert keywords[field.name].default == field.default, field.name
    assert {field.name for field in fields(CompileOptions)} < keywords.keys()


@pytest.mark.parametrize(
    "keywords, message",
    [
        ({"bord": "alif-e7-hp"}, "no keyword 'bord'; did you mean 'board'"),
        ({"fit": "6KiB"}, "no keyword 'fit'; --fit is no option: use --pool NAME=SIZE"),
        ({"zzz": 1}, "no keyword 'zzz'; it has: force, check"),
        ({"pools": {"sram": "64Kib/s"}}, "cannot read the size"),
        ({"pools": 65536}, r"pools is 65536; give names and sizes, as \{.sram.: .96KiB.\}"),
        ({"pools": "sram=96KiB"}, "pools is .sram=96KiB.; give names"),
        ({"max_ms": "0.2"}, "max_ms is '0.2': expected"),
        ({"objective": "fast"}, "--objective 'fast' is unknown; choose one of: auto, cycles, bytes"),
    ],
)
def test_a_wrong_keyword_or_value_is_named(tmp_path: Path, keywords: dict, message: str) -> None:
    with pytest.raises(npu_memplan.NpuMemplanError, match=message):
        npu_memplan.compile(MODEL, tmp_path / "api", **keywords)


def test_sizes_are_text_too_and_the_result_prints_on_one_line(tmp_path: Path) -> None:
    options = {"pools": {"sram": "64KiB"}, "host_ops": "SOFTMAX", "effort": "quick"}
    made = npu_memplan.compile(MODEL, tmp_path, board="himax-we2", **options)
    assert made.target.pools == {"sram": 65536}
    assert made.target.accelerator == "ethos-u55-64"
    assert made.target.host_ops == ("SOFTMAX",)
    shown = repr(made)
    assert "\n" not in shown
    assert len(shown) < 200
    assert f"{made.pool_bytes('sram'):,} bytes" in shown
