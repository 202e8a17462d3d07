"""Lines on disk: whole or not there, whoever writes and whatever happens to him."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from npu_memplan.cli import cli
from npu_memplan.sweep import CaseLimits, Outcome, Result, Store
from npu_memplan.sweep.results import Cost, Shortage

from .conftest import DIGITS, result


def test_a_line_reads_back() -> None:
    full = result(4096, 100, runs=2, operators={"exact": 3}, cost=Cost(1.5, 1.25, 9, "x\nü"))
    short = Result("k", Outcome.NO_ROOM, "why", shortage=Shortage("sram", 9, 8))
    for one in (full, short):
        assert Result.of_line(one.line()) == one
        assert one.line().count(b"\n") == 1


def test_half_a_line_is_no_result(tmp_path: Path) -> None:
    """Cut at every byte: what was whole before is there, the cut one is not, until its last brace."""
    first, second = result(1, 2), Result("b" * 64, Outcome.CRASHED, 'said "} {"')
    whole = first.line() + second.line()
    path = tmp_path / "x.jsonl"
    for cut in range(len(first.line()), len(whole)):
        path.write_bytes(whole[:cut])
        found = Store(tmp_path).read()
        assert found == ({"": first} if cut < len(whole) - 1 else {"": first, second.key: second})


def test_what_is_read_does_not_depend_on_files_and_order(tmp_path: Path) -> None:
    slow = Result("k", Outcome.TIMED_OUT, "5", 5.0)
    slower = Result("k", Outcome.TIMED_OUT, "9", 9.0)
    done = Result("k", Outcome.FITS)
    for n, order in enumerate(itertools.permutations((slow, slower, done))):
        folder = tmp_path / str(n)
        folder.mkdir()
        for i, one in enumerate(order):
            (folder / f"{i}.jsonl").write_bytes(one.line())
        assert Store(folder).read()["k"] == done
        (folder / f"{order.index(done)}.jsonl").unlink()
        assert Store(folder).read()["k"] == slower


@pytest.mark.parametrize(
    ("kept", "limits", "holds"),
    [
        (Result("k", Outcome.TIMED_OUT, "", 5.0), CaseLimits(5.0), True),
        (Result("k", Outcome.TIMED_OUT, "", 5.0), CaseLimits(6.0), False),
        (Result("k", Outcome.OUT_OF_MEMORY, "", 1 << 30), CaseLimits(1.0, 1 << 30), True),
        (Result("k", Outcome.OUT_OF_MEMORY, "", 1 << 30), CaseLimits(1.0, 1 << 31), False),
        (Result("k", Outcome.CRASHED), CaseLimits(), True),
        (Result("k", Outcome.NOT_TRIED), CaseLimits(), False),
    ],
)
def test_a_limit_holds_for_smaller_ones_only(tmp_path: Path, kept: Result, limits: CaseLimits, holds: bool) -> None:
    store = Store(tmp_path)
    store.add(kept)
    store.close()
    assert list(store.read(["k"], limits)) == (["k"] if holds else [])
    assert store.read(["other"]) == {}


_WRITER = """
import sys, time
from pathlib import Path
from npu_memplan.sweep import Outcome, Result, Store
store = Store(Path(sys.argv[1]))
for i in range(10**9):
    store.add(Result(f"{sys.argv[2]}-{i}", Outcome.CRASHED, "r" * 5000))
    time.sleep(0.001)  # who reads keeps up: at full speed three of them fill a machine's memory
"""


def test_writers_at_once_and_killed_leave_whole_lines(tmp_path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path), str(n)]) for n in range(3)]
    store = Store(tmp_path)
    deadline = time.monotonic() + 60
    while len({key[0] for key in store.read()}) < 3 and time.monotonic() < deadline:  # read while they write
        time.sleep(0.05)
    for writer in writers:
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
    found = store.read()
    for n in range(3):
        mine = sorted(int(key[2:]) for key in found if key.startswith(f"{n}-"))
        assert mine == list(range(len(mine)))
        assert len(mine) > 0
    assert all(one.reason == "r" * 5000 for one in found.values())


def test_half_a_line_is_reported_and_computed_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", str(DIGITS), "--accelerator", "none", "-o", str(tmp_path / "sweep"), "--executor", "processes:1"]
    assert cli.main(words, standalone_mode=False) in (None, 0)
    (kept,) = (tmp_path / "sweep" / "results").glob("*.jsonl")
    whole = kept.read_bytes()
    kept.write_bytes(whole[: len(whole) // 2])
    capsys.readouterr()
    cli.main([*words, "-q"], standalone_mode=False)
    said = capsys.readouterr()
    assert said.out == "1 case: 1 fits; 1 computed now\n"
    assert said.err.startswith(f"npu-memplan: 1 lines in {tmp_path / 'sweep' / 'results'} are no results (1 of ")
    assert len(Store(tmp_path / "sweep" / "results").read()) == 1
    cli.main([*words, "-q"], standalone_mode=False)
    assert capsys.readouterr().out == "1 case: 1 fits; 0 computed now\n"
