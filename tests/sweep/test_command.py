"""`npu-memplan sweep` as one calls it."""

from __future__ import annotations

import glob
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from npu_memplan.errors import NpuMemplanError
from npu_memplan.ethosu.arch import ACCELERATORS
from npu_memplan.sweep import Swept
from tests.support.entry import invoke
from tests.support.real_data import REPOSITORY

from .conftest import DIGITS


def call(*words: object) -> Result:
    return invoke("sweep", *words, code=None)


TARGETS = (
    "--accelerator ethos-u55-128 --objective bytes --effort quick",
    "--npu-compiler Size --objective bytes --effort quick",
    "--pool sram=3000",
    "--accelerator none --stripes",
)  # fmt: skip


@pytest.fixture
def words(small_sweep: Any) -> list[object]:
    """The command line of the small sweep, whose results are there."""
    every, store, _ = small_sweep
    models = dict.fromkeys(case.model.path for case in every)
    return [*models, *(word for text in TARGETS for word in ("--option", text)), "--store", store]


def test_lists_that_are_repeated_are_joined(tmp_path: Path) -> None:
    """Only the last one counted. `--stripes` without an NPU is refused at once, so nothing is compiled."""
    words = [DIGITS, "--accelerator", "none", "--accelerator", "u55-99"]
    assert "unknown accelerator 'ethos-u55-99'" in str(call(*words, "-o", tmp_path / "x").exception)
    words = [DIGITS, "--accelerator", "u55-99", "--accelerator", "none"]
    assert "unknown accelerator 'ethos-u55-99'" in str(call(*words, "-o", tmp_path / "x").exception)


def test_the_table_is_printed_and_written(words: list[object], tmp_path: Path) -> None:
    done = call(*words, "-o", tmp_path)
    assert done.exit_code == 0, done.output
    printed = done.output.splitlines()
    assert printed[0] == "8 cases: 5 fits, 1 no room, 2 refused; 0 computed now"
    at = next(i for i, line in enumerate(printed) if re.fullmatch(r" +network +target +SRAM .*", line))
    rows = [line.split() for line in printed[at + 1 : at + 7]]
    assert {row[0] for row in rows} == {"digits", "hello_world_int8"}
    assert {path.name for path in tmp_path.iterdir()} == {"sweep.html", "sweep_table.json", "sweep_table.csv"}
    before = (tmp_path / "sweep_table.json").read_bytes()
    assert call(*words, "-o", tmp_path, "--json").output.encode() == before


def refused(*words: object) -> str:
    done = call(*words)
    if isinstance(done.exception, NpuMemplanError):
        return str(done.exception)
    assert done.exit_code == 2
    return done.output


def test_bad_use_is_reported(tmp_path: Path) -> None:
    out = ("-o", tmp_path / "x")
    told = {
        (DIGITS, *out, "--jobs", "0"): "0 is not in the range",
        (DIGITS, *out, "--accelerator", "u99"): "unknown accelerator 'ethos-u99'",
        (DIGITS, *out, "--boards", "nothing"): "unknown board 'nothing'",
        (tmp_path / "none.tflite", *out): "No such file or directory",
        (DIGITS, *out, "--case-memory", "much"): "much",
        (DIGITS,): "Missing option '-o'",
    }
    for words, said in told.items():
        assert said in refused(*words), words


@pytest.mark.parametrize("name", ["results.jsonl", "sweep.html", "sweep_table.json", "sweep_table.csv"])
def test_nothing_is_written_through_a_link(name: str, tmp_path: Path) -> None:
    """A folder of a sweep may come from a stranger."""
    (tmp_path / "victim").write_text("the user's")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to("../victim")
    assert f"out/{name} is a link to ../victim" in refused(DIGITS, "--accelerator", "none", "-o", tmp_path / "out")
    (tmp_path / "out" / name).unlink()
    os.mkfifo(tmp_path / "out" / name)
    assert f"out/{name} is a pipe" in refused(DIGITS, "--accelerator", "none", "-o", tmp_path / "out")
    assert (tmp_path / "victim").read_text() == "the user's"


def test_the_nightly_sweep_asks_for_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workflow's own command line, without computing: every target is one of compile's."""
    text = (REPOSITORY / ".github" / "workflows" / "nightly-sweep.yml").read_text(encoding="utf-8")
    folded = re.search(r"SWEEP: >-\n((?:    .*\n)+)", text)
    assert folded is not None
    words = [w for word in shlex.split(folded[1]) for w in (sorted(glob.glob(word, root_dir=REPOSITORY)) or [word])]
    assert words[:2] == ["npu-memplan", "sweep"]
    cases: list[Any] = []
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setattr("npu_memplan.sweep.run", lambda every, *_, **__: cases.extend(every) or Swept((), {}, 0))
    done = call(*words[2:], "-o", tmp_path)
    assert done.exit_code == 0, done.output
    networks = {case.network for case in cases}
    assert len(networks) == 1 + len(list((REPOSITORY / "tests" / "models").glob("*.tflite")))
    assert len({case.key for case in cases}) == len(cases) == len(networks) * len(ACCELERATORS) * 3
