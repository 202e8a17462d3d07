"""What makes a case another case, and what does not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from npu_memplan import versions as made_with
from npu_memplan.commands.sweep import targets
from npu_memplan.options import CompileOptions, OptionError
from npu_memplan.sweep import Case, Content, SweepError, Verification, cases
from npu_memplan.sweep.case import target_name
from npu_memplan.target_data import board_names, load_board, targets_folder
from tests.support.saving import save

from .conftest import BAD, DIGITS


def case(**options: object) -> Case:
    return Case("net", Content.from_file(DIGITS), CompileOptions(**options))  # type: ignore[arg-type]


def test_a_key_is_of_the_content_not_of_names(tmp_path: Path) -> None:
    copy = tmp_path / "other.tflite"
    shutil.copy(DIGITS, copy)
    assert replace(case(), network="other", model=Content.from_file(copy)).key == case().key
    copy.write_bytes(DIGITS.read_bytes() + b"\0")
    assert replace(case(), model=Content.from_file(copy)).key != case().key
    assert case(memory_mode="Shared_Sram").key == case().key, "the accelerator's own"


def test_everything_that_can_change_a_result_changes_the_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every field of the options, also those that will be added."""
    board = tmp_path / "own.toml"
    shutil.copy(targets_folder() / "boards" / "corstone-310.toml", board)
    other = {
        "board": str(board),
        "accelerator": "ethos-u65-256",
        "memory_mode": "Sram_Only",
        "npu_compiler": "tvm",
        "stripes": True,
    }
    found = {case().key}
    for field in fields(CompileOptions):
        value = getattr(CompileOptions(), field.name)
        changed = other.get(field.name)
        if changed is None:
            changed = {bool: not value, int: 7, str: "x", tuple: ("A",), type(None): 9}.get(type(value), {"sram": 4096})
        found.add(case(**{field.name: changed}).key)
    assert len(found) == len(fields(CompileOptions)) + 1
    found |= {replace(case(), verification=Verification("local", seeds)).key for seeds in (1, 2)}
    found |= {replace(case(), plugins=(Content.from_file(BAD),)).key}
    assert len(found) == len(fields(CompileOptions)) + 4
    monkeypatch.setattr("npu_memplan.sweep.case.versions", lambda run: (("npu_memplan", "2"),))
    assert case().key not in found


def test_versions_of_a_checkout_are_its_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "npu_memplan"
    for name in ("npu_memplan/a.py", "npu_memplan/report/page/a.js", "fvp_runner/main.c", "targets/a.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    monkeypatch.setattr(made_with, "_PACKAGE", package)
    monkeypatch.setattr(made_with, "targets_folder", lambda: tmp_path / "targets")
    hashed = made_with.source_hash.__wrapped__
    before = hashed()
    (package / "report/page/a.js").write_text("2")
    assert hashed() == before, "what only draws"
    for name in ("npu_memplan/a.py", "fvp_runner/main.c", "targets/a.toml"):
        (tmp_path / name).write_text("2")
        assert hashed() != before
        before = hashed()
    assert [name for name, _ in made_with.versions(True)] == ["npu_memplan", "tvm", "vela", "tflite-micro", "litert"]


def test_files_that_options_name_are_content(tmp_path: Path) -> None:
    first, second = tmp_path / "a.ini", tmp_path / "b.cfg"
    first.write_text("[x]")
    second.write_text("[x]")
    assert case(vela_ini=str(first)).key == case(vela_ini=str(second)).key
    second.write_text("[y]")
    assert case(vela_ini=str(first)).key != case(vela_ini=str(second)).key
    own = save(tmp_path / "own.py", "1")
    before = case(operators=(str(own),)).key
    own.write_text("2")
    assert case(operators=(str(own),)).key != before


def test_names_distinguish_models(tmp_path: Path) -> None:
    places = ["a/net.tflite", "b/net.tflite", "b/other.tflite", "b/other.onnx"]
    for place in places:
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_bytes(place.encode())

    def names(*which: int) -> list[str]:
        return [c.network for c in cases([tmp_path / places[i] for i in which], [CompileOptions()])]

    assert names(0, 2) == ["net", "other"]
    assert names(0, 1) == ["a/net", "b/net"]
    assert names(2, 3) == ["other.tflite", "other.onnx"]
    assert names(0, 0) == ["net"], "the same file twice is one"


def test_a_target_is_named_by_what_is_not_usual() -> None:
    assert target_name(CompileOptions()) == "ethos-u55-256"
    assert target_name(CompileOptions("none", reuse_inputs=False)) == "none --resident inputs"
    assert target_name(CompileOptions("ethos-u65-512", pools={"sram": 1024})) == "ethos-u65-512 --pool sram=1024"


def test_targets_are_command_lines_of_compile() -> None:
    found = targets("u55-128,none", "", ["", "--npu-compiler Size --resident inputs"])
    assert [target_name(options) for options in found] == [
        "ethos-u55-128",
        "ethos-u55-128 --resident inputs --npu-compiler Size",
        "none",
        "none --resident inputs --npu-compiler Size",
    ]
    assert len(targets("all", "", [])) >= 6
    assert targets("", "", []) == [CompileOptions()]


def test_boards_are_those_of_compile() -> None:
    found = targets("u55-128,u55-256", "corstone-300-u55", [""])
    assert [(o.board, o.accelerator) for o in found] == [("corstone-300-u55", f"ethos-u55-{n}") for n in (128, 256)]
    every = targets("", "all", [])
    assert [o.board for o in every] == list(board_names())
    assert all(o.accelerator == load_board(o.board).accelerator for o in every)
    assert len({target_name(o) for o in every}) == len(every)
    with pytest.raises(
        SweepError, match="--boards corstone-300-u55 cannot have --accelerator ethos-u65-512: corstone-300-u55 has"
    ):
        targets("u65-512", "corstone-300-u55", [])
    with pytest.raises(SweepError, match="himax-we2 has ethos-u55-64; leave them out"):
        targets("u55-128,u55-256", "himax-we2,alif-e7-hp", [])  # himax-we2 was dropped
    assert {o.board for o in targets("u65-256", "all", [])} < set(board_names())  # those that have one


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--nonsense", "--nonsense' are no options of compile: No such option"),
        ("--objective speed", "are no options of compile: Invalid value for '--objective'"),
        ("-o elsewhere", "is no option of a target: leave out the model, -o, --force"),
        ("--fit 64KiB", "--fit is no option: use --pool NAME=SIZE"),
        ("--help", "npu-memplan compile --help lists them"),
    ],
)
def test_what_is_no_option_of_a_target_is_reported(words: str, said: str) -> None:
    with pytest.raises(OptionError, match=said.replace("(", r"\(")):
        targets("", "", [words])


def test_the_side_that_asks_loads_no_compiler() -> None:
    code = "import sys, npu_memplan.sweep; print([m for m in ('tvm', 'ethosu', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
