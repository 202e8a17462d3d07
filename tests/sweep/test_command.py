"""`npu-memplan sweep`, its report and its merge, as one calls them."""

from __future__ import annotations

import glob
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from npu_memplan.cli import cli
from npu_memplan.errors import NpuMemplanError
from npu_memplan.ethosu.arch import ACCELERATORS
from npu_memplan.sweep import Swept
from npu_memplan.sweep.executors import dask
from npu_memplan.sweep.folder import write_request
from tests.support.real_data import REPOSITORY

from .conftest import DIGITS


def call(*words: object) -> Result:
    return CliRunner().invoke(cli, ["sweep", *map(str, words)])


@pytest.fixture
def swept(small_sweep: Any, tmp_path: Path) -> Path:
    """The folder of the small sweep."""
    every, store, _ = small_sweep
    write_request(tmp_path / "sweep", every)
    shutil.copytree(store, tmp_path / "sweep" / "results")
    return tmp_path / "sweep"


def test_lists_that_are_repeated_are_joined(tmp_path: Path) -> None:
    """Only the last one counted. `--stripes` without an NPU is refused at once, so nothing is compiled."""
    words = [DIGITS, "--accelerator", "none", "--accelerator", "u55-99"]
    assert "unknown accelerator 'ethos-u55-99'" in str(call(*words, "-o", tmp_path / "x").exception)
    words = [DIGITS, "--accelerator", "u55-99", "--accelerator", "none"]
    assert "unknown accelerator 'ethos-u55-99'" in str(call(*words, "-o", tmp_path / "x").exception)


def test_the_report_is_beside_the_sweep(swept: Path) -> None:
    done = call("report", swept, "--deadline", 10, "--parquet")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[0] == "2 networks on 4 targets: 5 fits, 1 no room, 2 refused"
    printed = done.output.splitlines()
    at = next(i for i, line in enumerate(printed) if re.fullmatch(r" +network +target +SRAM .*", line))
    rows = [line.split() for line in printed[at + 1 : at + 7]]
    assert {row[0] for row in rows} == {"digits", "hello_world_int8"}
    names = {path.name for path in swept.iterdir()}
    assert names >= {"sweep.html", "sweep_table.json", "sweep_table.csv", "sweep_table.parquet"}
    before = (swept / "sweep_table.json").read_bytes()
    assert call("report", swept, "--deadline", 10, "--json").output.encode() == before


def test_regressions_exit_with_one(swept: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(swept, old)
    assert call("report", swept, "--against", old).exit_code == 0
    for path in (old / "results").glob("*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            line["pools"] = {name: size - 16 for name, size in line["pools"].items()}
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    worse = call("report", swept, "--against", old)
    assert worse.exit_code == 1
    assert "worse: digits on ethos-u55-128 --objective bytes: sram bytes 6,128 -> 6,144 (+0.3 %)" in worse.output
    assert json.loads((swept / "sweep_table.json").read_text())["against"]["regressions"] == 5
    assert call("report", old, "--against", swept).exit_code == 0


def test_shards_merge_to_the_whole(swept: Path, tmp_path: Path) -> None:
    """Parts of a matrix, each with all cases and some of the results; a missing part shows."""
    parts = [tmp_path / "1", tmp_path / "2"]
    lines = [line for path in (swept / "results").glob("*") for line in path.read_text().splitlines()]
    for part, some in zip(parts, (lines[:3], lines[3:]), strict=True):
        (part / "results").mkdir(parents=True)
        shutil.copy(swept / "sweep.json", part)
        (part / "results" / "a.jsonl").write_text("".join(line + "\n" for line in some))
    half = call("merge", parts[0], "-o", tmp_path / "half")
    assert (half.exit_code, half.output) == (1, f"3 of 8 results in {tmp_path / 'half'}\n")
    whole = call("merge", *parts, "-o", tmp_path / "whole")
    assert (whole.exit_code, whole.output) == (0, f"8 of 8 results in {tmp_path / 'whole'}\n")
    again = call("merge", *parts, "-o", tmp_path / "whole")
    assert again.exit_code == 0
    for folder in (swept, tmp_path / "whole"):
        call("report", folder)
    for name in ("sweep_table.json", "sweep_table.csv", "sweep.html", "sweep.json"):
        assert (tmp_path / "whole" / name).read_bytes() == (swept / name).read_bytes()
    assert len(list((tmp_path / "whole" / "results").iterdir())) == 1


def test_a_sweep_by_shards_is_that_of_one(tmp_path: Path) -> None:
    """Cases that need no compiler: each is refused at once."""
    words = [DIGITS, "--accelerator", "none", *(w for s in range(6) for w in ("--option", f"--stripes --seed {s}"))]
    for part in ("1/2", "2/2"):
        done = call(*words, "--shard", part, "-o", tmp_path / part[0], "--executor", "processes:1", "--json")
        assert done.exit_code == 0, done.output
        assert json.loads(done.output)["outcomes"].keys() == {"refused"}
    assert call("merge", tmp_path / "1", tmp_path / "2", "-o", tmp_path / "all").output.startswith("6 of 6 results")


def refused(*words: object) -> str:
    done = call(*words)
    if isinstance(done.exception, NpuMemplanError):
        return str(done.exception)
    assert done.exit_code == 2
    return done.output


def test_bad_use_is_reported(swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "_CONNECT_S", 0.5)  # nobody will answer
    out = ("-o", tmp_path / "x")
    told = {
        ("report", tmp_path / "none"): "is no sweep: cannot read",
        ("report", swept, "--against", tmp_path / "none"): "make one with: npu-memplan sweep MODEL... -o",
        (DIGITS, *out, "--executor", "threads"): "--executor 'threads' is unknown; give NAME or NAME:PARAMETERS "
        "with one of the names dask, processes, slurm",
        (DIGITS, *out, "--executor", "processes:0"): "--executor processes:0: give processes or processes:N",
        (DIGITS, *out, "--executor", "dask:8786"): "--executor dask:8786: give dask://HOST:PORT",
        (DIGITS, *out, "--executor", "dask://127.0.0.1:1"): "no dask scheduler answers at tcp://127.0.0.1:1",
        (DIGITS, *out, "--executor", "slurm:many"): "give slurm:JOBS,KEY=VALUE,...",
        (DIGITS, *out, "--shard", "3"): "--shard 3: give K/N, as in 3/16",
        (DIGITS, *out, "--shard", "0/4"): "the first number goes from 1 to 4",
        (DIGITS, *out, "--accelerator", "u99"): "unknown accelerator 'ethos-u99'",
        (DIGITS, *out, "--boards", "nothing"): "unknown board 'nothing'",
        (tmp_path / "none.tflite", *out): "No such file or directory",
        (DIGITS, *out, "--case-memory", "much"): "much",
        (DIGITS,): "Missing option '-o'",
    }
    for words, said in told.items():
        if words[-1] == "dask://127.0.0.1:1":
            pytest.importorskip("distributed")
        assert said in refused(*words), words


def test_parts_of_other_sweeps_do_not_merge(swept: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(swept, other)
    document = json.loads((other / "sweep.json").read_text())
    document["versions"]["vela"] = "9"
    for case in document["cases"]:
        case["key"] = "0" * 64
    (other / "sweep.json").write_text(json.dumps(document))
    said = refused("merge", swept, other, "-o", tmp_path / "all")
    assert "have different cases for digits on ethos-u55-128 --objective bytes: they were made with vela 5" in said
    document["cases"][0]["network"] = 5
    (other / "sweep.json").write_text(json.dumps(document))
    assert "sweep.json: cases[0].network is 5: expected `str`" in refused("report", other)


def test_the_nightly_sweep_asks_for_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workflow's own command line, without computing: every target is one of compile's, all parts are all cases."""
    text = (REPOSITORY / ".github" / "workflows" / "nightly-sweep.yml").read_text(encoding="utf-8")
    folded = re.search(r"SWEEP: >-\n((?:    .*\n)+)", text)
    assert folded is not None
    words = [w for word in shlex.split(folded[1]) for w in (sorted(glob.glob(word, root_dir=REPOSITORY)) or [word])]
    assert words[:2] == ["npu-memplan", "sweep"]
    requested: list[Any] = []
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setattr(
        "npu_memplan.sweep.run", lambda part, *_, **__: requested.append(part) or Swept(tuple(part), {}, 0)
    )
    parts = re.search(r"part: \[([\d, ]+)\]", text)
    assert parts is not None
    for part in parts[1].split(","):
        monkeypatch.setattr("npu_memplan.commands.sweep._text", lambda *_: "")
        done = call(*words[2:], "--shard", f"{part.strip()}/8", "-o", tmp_path)
        assert done.exit_code == 0, done.output
    keys = [case.key for part in requested for case in part]
    networks = {case.network for part in requested for case in part}
    assert len(networks) == 1 + len(list((REPOSITORY / "tests" / "models").glob("*.tflite")))
    assert len(set(keys)) == len(keys) == len(networks) * len(ACCELERATORS) * 3
