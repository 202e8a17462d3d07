"""The benchmarks of Relax programs run, small: they hold their own rows to their claims."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tvm")

from benchmarks import relax as programs
from benchmarks import relax_training as training
from benchmarks import upstream_wishes

REPOSITORY = Path(__file__).resolve().parents[2]


def test_bytes_of_a_program_and_planning_times(capsys):
    programs.bytes_of_zoo(["mlp"], run=False)
    programs.times([8])
    printed = capsys.readouterr().out
    assert "| mlp | 8 | 8256 | 8192 | 8192 | 8192 | optimal | 4224 |" in printed
    assert "| 8 | " in printed


SIZES = {
    "two convolutions": (0, 1),
    "library convolutions and a pool": (0, 1),  # whose least bytes are no multiple of what tensor objects begin at
    "small Llama, any step": (5,),  # few new tokens, many others: between most samples of the two symbols
}


@pytest.mark.parametrize("name", SIZES)
def test_bytes_of_a_program_of_any_size(name, capsys, monkeypatch):
    make, sizes = programs.SYMBOLIC[name]
    monkeypatch.setitem(programs.SYMBOLIC, name, (make, [sizes[i] for i in SIZES[name]]))
    programs.dynamic([name])
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines()[2:]]
    assert len(rows) == len(SIZES[name])
    assert all(float(row[-3]) <= 1.01 for row in rows)  # ours / planned for this size


def test_the_wishes_are_as_the_proposal_has_them():
    assert upstream_wishes.table() in (REPOSITORY / "docs" / "upstream.md").read_text(encoding="utf-8")


def test_greedy_schedules_beside_exact_ones(capsys):
    training.exact(5)
    assert "greedy / exact: mean 1.0" in capsys.readouterr().out
