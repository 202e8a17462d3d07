"""Gaps that keep a window of bytes: one row, one offset, exactly the bytes and points it says."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random

import pytest

from npu_memplan.artifact.files import read_plan, read_problem, write_plan
from npu_memplan.planners import plan
from npu_memplan.problem import AliasGroup, Buffer, Lifetime, PlanStatus, Problem
from npu_memplan.problem.csv import rows_of
from npu_memplan.verify import verify
from tests.support.entry import exit_code

HEADER = "id,lower,upper,size,alignment,gaps\n"
# `a` keeps bytes [8, 16) during [2, 4) and nothing during [6, 7): b fits below the window, c in the gap
CSV = HEADER + "a,0,8,32,16,2-4@8:16 6-7\nb,2,4,8,1,\nc,6,7,32,1,\nd,3,4,16,1,\n"


def problem_of(path: Path, text: str) -> Problem:
    path.write_text(text, encoding="utf-8")
    return read_problem(path)


def test_a_window_is_an_alias_that_lives_in_the_gap(tmp_path: Path) -> None:
    problem = problem_of(tmp_path / "x.csv", CSV)
    whole, window = problem.buffers[:2]
    assert whole == Buffer("a", 32, (Lifetime(0, 2), Lifetime(4, 6), Lifetime(7, 8)), 16)
    assert window == Buffer("a@8:16", 8, (Lifetime(2, 4),), 1)
    assert problem.aliases == (AliasGroup("a", (("a", 0), ("a@8:16", 8))),)
    answer = plan(problem)
    assert (answer.usage[0].used_bytes, answer.status) == (32, PlanStatus.OPTIMAL)
    assert {p.buffer: p.offset_bytes for p in answer.placements} == {"a": 0, "a@8:16": 8, "b": 0, "c": 0, "d": 16}
    # without the window's freedom d and b need a place above a
    assert plan(problem_of(tmp_path / "y.csv", CSV.replace("2-4@8:16 ", ""))).usage[0].used_bytes == 56


def test_the_command_plans_writes_one_row_each_and_verifies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given, answer = tmp_path / "x.csv", tmp_path / "plan.csv"
    given.write_text(CSV, encoding="utf-8")

    def run(*arguments: object) -> int:
        return exit_code(monkeypatch, *arguments)

    assert run("plan", given, "--capacity", "32", "-o", answer) == 0
    assert answer.read_text() == (
        "id,lower,upper,size,alignment,gaps,offset\n"
        "a,0,8,32,16,2-4@8:16 6-7,0\nb,2,4,8,1,,0\nc,6,7,32,1,,0\nd,3,4,16,1,,16\n"
    )
    assert run("verify", given, answer, "--capacity", "32") == 0
    assert run("plan", given, "--incumbent", answer) == 0
    capsys.readouterr()
    (tmp_path / "wrong.csv").write_text("id,offset\na,0\nb,4\nc,0\nd,16\n", encoding="utf-8")
    assert run("verify", given, tmp_path / "wrong.csv", "--json") == 1
    (violation,) = json.loads(capsys.readouterr().out)["violations"]
    assert (violation["constraint"], violation["start_bytes"], violation["stop_bytes"]) == ("overlap", 8, 12)
    assert {violation["buffer"], violation["other"]} == {"a@8:16", "b"}
    assert violation["point"] == 2


def random_row(random: Random, name: str) -> str:
    """A row of a few bytes and points, with up to two gaps, windowed or not."""
    lower = random.randint(0, 3)
    upper = lower + random.randint(1, 5)
    size = random.randint(1, 6)
    gaps = []
    at = lower
    for _ in range(random.randint(0, 2)):
        if at < upper:
            first = random.randint(at, upper - 1)
            last = random.randint(first + 1, upper)
            kept = sorted(random.sample(range(size + 1), 2))
            gaps.append(f"{first}-{last}" + (f"@{kept[0]}:{kept[1]}" if random.random() < 0.7 else ""))
            at = last
    return f"{name},{lower},{upper},{size},{random.choice([1, 1, 2, 3])},{' '.join(gaps)}"


def occupied(cells: list[str], offset: int) -> set[tuple[int, int]]:
    """Oracle: (point, byte) of one CSV row at `offset`, straight from the meaning of its columns."""
    lower, upper, size = (int(c) for c in cells[1:4])
    kept = dict.fromkeys(range(lower, upper), (0, size))
    for word in cells[5].split():
        gap, _, window = word.partition("@")
        first, last = map(int, gap.split("-"))
        for t in range(first, last):
            low, high = map(int, window.split(":")) if window else (0, 0)
            kept[t] = (low, high)
    return {(t, offset + byte) for t, (low, high) in kept.items() for byte in range(low, high)}


def test_windows_equal_brute_force_and_round_trip(tmp_path: Path) -> None:
    random = Random(7)
    windowed = 0
    for _ in range(120):
        lines = [random_row(random, f"b{k}") for k in range(random.randint(1, 3))]
        problem = problem_of(tmp_path / "x.csv", HEADER + "\n".join(lines) + "\n")
        windowed += bool(problem.aliases)
        rows = [line.split(",") for line in lines]
        least = 99
        for offsets in product(*[range(0, 13, int(row[4])) for row in rows]):
            height = max(x + int(row[3]) for x, row in zip(offsets, rows, strict=True))
            if height >= least:
                continue
            cells = [occupied(row, x) for x, row in zip(offsets, rows, strict=True)]
            if sum(map(len, cells)) == len(set().union(*cells)):
                least = height
        answer = plan(problem)
        assert (answer.usage[0].used_bytes, answer.status) == (least, PlanStatus.OPTIMAL), lines
        assert verify(problem, answer) == ()
        assert len(rows_of(problem)) == len(rows)
        write_plan(tmp_path / "plan.csv", problem, answer)
        if all(row.lifetime_spans() for row in rows_of(problem)):
            back = read_problem(tmp_path / "plan.csv")  # every row fixed where the plan has it
            assert replace(back, name="x", buffers=tuple(replace(b, fixed=None) for b in back.buffers)) == problem
            assert verify(back, answer) == ()
        assert read_plan(tmp_path / "plan.csv", problem).placements == answer.placements
    assert windowed > 50


def test_other_alias_groups_are_no_rows(tmp_path: Path) -> None:
    """Whatever a gap can not say stays two buffers."""
    whole = Buffer("a", 32, (Lifetime(0, 2),), 1)
    window = Buffer("a@8:16", 8, (Lifetime(2, 4),), 1)
    base = problem_of(tmp_path / "x.csv", HEADER)
    good = AliasGroup("a", (("a", 0), ("a@8:16", 8)))
    assert len(rows_of(replace(base, buffers=(whole, window), aliases=(good,)))) == 1
    for buffers, group in (
        ((whole, window), replace(good, members=())),
        ((whole, window), replace(good, name="g")),
        ((whole, window), replace(good, members=(("a", 0),))),
        ((whole, window), replace(good, members=(("a", 0), ("a@8:16", 4)))),
        ((whole, replace(window, lifetimes=(Lifetime(1, 4),))), good),
        ((whole, replace(window, alignment=8)), good),
        ((replace(whole, size_bytes=12), window), good),
    ):
        problem = replace(base, buffers=buffers, aliases=(group,))
        assert len(rows_of(problem)) == 2
