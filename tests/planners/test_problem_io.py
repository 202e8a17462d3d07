"""Files: what is written is read back, and what is wrong is named with its line or path."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from npu_memplan.artifact.files import read_plan, read_problem, with_capacities, write_plan
from npu_memplan.files.paths import OutputError
from npu_memplan.planners import PlanningError, plan
from npu_memplan.problem import Agent, BufferKind, Lifetime, PlanStatus, Pool, Problem, ProblemError
from npu_memplan.problem.json import PROBLEM_SCHEMA, plan_from_json, plan_to_json, problem_from_json
from npu_memplan.verify import verify
from tests.support.random_problems import random_problem

CSV = "id,lower,upper,size,alignment,gaps\na,0,10,32,16,3-5 7-9\nb,4,6,64,,\n"


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    return path


def document(problem: Problem) -> dict[str, Any]:
    """`problem` as the JSON object of its schema."""
    return {"schema": PROBLEM_SCHEMA, **msgspec.json.decode(msgspec.json.encode(problem))}


def test_json_says_everything(tmp_path: Path) -> None:
    for seed in range(60):
        problem = random_problem(seed)
        pools = tuple(
            replace(p, burst_bytes={"npu": 32}, clock_hz=10**9, read_bandwidth_bytes_per_cycle=0.5)
            for p in problem.pools
        )
        buffers = tuple(
            replace(b, kind=BufferKind.STATE, producer="conv", consumers=("x",), agents=frozenset(Agent))
            for b in problem.buffers
        )
        problem = replace(problem, pools=pools, buffers=buffers, points=("p", "q"))
        path = written(tmp_path / "p.json", json.dumps(document(problem)))
        assert read_problem(path) == problem if _valid(problem) else True
        assert problem_from_json(document(problem)) == problem
        try:
            answer = plan(problem, "first-fit")
        except (PlanningError, ProblemError):
            continue
        write_plan(tmp_path / "plan.json", problem, answer)
        assert read_plan(tmp_path / "plan.json", problem) == answer
        assert plan_from_json(plan_to_json(answer)) == answer


def _valid(problem: Problem) -> bool:
    try:
        verify(problem, plan(problem, "linear"))
    except ProblemError:
        return False
    except PlanningError:
        return True
    return True


def test_csv_with_gaps_and_alignment(tmp_path: Path) -> None:
    problem = read_problem(written(tmp_path / "x.csv", CSV), 96)
    a, b = problem.buffers
    assert a.lifetimes == (Lifetime(0, 3), Lifetime(5, 7), Lifetime(9, 10))
    assert (a.alignment, b.alignment, b.lifetimes) == (16, 1, (Lifetime(4, 6),))
    assert (problem.pools[0].size_bytes, problem.name) == (96, "x")
    write_plan(tmp_path / "y.csv", problem, plan(problem, "linear"))
    back = read_problem(tmp_path / "y.csv")
    assert tuple(replace(b, fixed=None) for b in back.buffers) == problem.buffers


def test_plan_csv_is_minimallocs_with_an_offset_column(tmp_path: Path) -> None:
    problem = read_problem(written(tmp_path / "x.csv", "size,id,upper,lower\n32,a,2,0\n64,b,3,1\n"))
    write_plan(tmp_path / "plan.csv", problem, plan(problem))
    assert (tmp_path / "plan.csv").read_text() == "id,lower,upper,size,offset\na,0,2,32,64\nb,1,3,64,0\n"
    back = read_plan(tmp_path / "plan.csv", problem)
    assert verify(problem, back) == ()
    assert (back.usage[0].used_bytes, back.status) == (96, PlanStatus.FEASIBLE)
    # MiniMalloc's own output has the same columns, so it reads as a problem too: of buffers that are fixed there
    again = read_problem(tmp_path / "plan.csv")
    assert [b.fixed for b in again.buffers] == [("memory", 64), ("memory", 0)]
    assert plan(again).placements == back.placements


def test_an_offset_of_a_csv_problem_fixes_its_buffer(tmp_path: Path) -> None:
    """As MiniMalloc reads it; an empty one does not, and a hint constrains nothing."""
    text = "id,lower,upper,size,offset,hint\na,0,4,100,,7\nb,2,6,60,100,-1\nc,4,9,80,0,\nd,5,8,40,,0\n"
    answer = plan(read_problem(written(tmp_path / "x.csv", text)))
    assert {p.buffer: p.offset_bytes for p in answer.placements} == {"a": 0, "b": 100, "c": 0, "d": 160}
    assert (answer.usage[0].used_bytes, answer.status) == (200, PlanStatus.OPTIMAL)
    free = plan(read_problem(written(tmp_path / "y.csv", text.replace(",100,-1", ",,").replace("80,0", "80,"))))
    assert free.usage[0].used_bytes == 180
    for wrong, message in (("80,20", "fixed on the same bytes"), ("80,-4", "fixed at offset -4"), ("80,x", "'x'")):
        with pytest.raises(ProblemError, match=message):
            plan(
                read_problem(
                    written(tmp_path / "z.csv", text.replace("80,0", wrong).replace("b,2,6,60,100", "b,2,6,60,40"))
                )
            )
    with pytest.raises(ProblemError, match="a CSV problem has one pool"):
        read_problem(written(tmp_path / "z.csv", "id,lower,upper,size,pool\na,0,4,100,sram\n"))


@pytest.mark.parametrize("seed", range(8))
def test_fixed_offsets_of_random_problems_are_kept(seed: int, tmp_path: Path) -> None:
    """A least plan of which half is fixed is least again, and what is fixed stays there."""
    random = Random(seed)
    rows = []
    for number in range(9):
        first = random.randrange(12)
        rows.append(f"b{number},{first},{first + random.randint(1, 6)},{random.randint(1, 9)}")
    free = plan(read_problem(written(tmp_path / "x.csv", "\n".join(("id,lower,upper,size", *rows)))))
    places = {p.buffer: p.offset_bytes for p in free.placements if random.random() < 0.5}
    fixed = [f"{row},{places.get(row.partition(',')[0], '')}" for row in rows]
    problem = read_problem(written(tmp_path / "y.csv", "\n".join(("id,lower,upper,size,offset", *fixed))))
    again = plan(problem)
    assert verify(problem, again) == ()
    assert places.items() <= {p.buffer: p.offset_bytes for p in again.placements}.items()
    assert (again.usage[0].used_bytes, again.status) == (free.usage[0].used_bytes, free.status)


def test_plan_csv_of_several_pools_names_them(tmp_path: Path) -> None:
    base = read_problem(written(tmp_path / "x.csv", CSV))
    problem = replace(base, pools=(Pool("fast", 64), Pool("slow")))
    answer = plan(problem)
    write_plan(tmp_path / "plan.csv", problem, answer)
    assert read_plan(tmp_path / "plan.csv", problem).placements == answer.placements


def test_files_appear_whole_or_not_at_all(tmp_path: Path) -> None:
    problem = read_problem(written(tmp_path / "x.csv", CSV))
    answer = plan(problem)
    with pytest.raises(OutputError, match=r"cannot write .*missing/plan.csv: No such file"):
        write_plan(tmp_path / "missing" / "plan.csv", problem, answer)
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(OutputError, match="cannot write"):
        write_plan(tmp_path / "folder.json", problem, answer)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder.json", "x.csv"]


def test_capacities_by_name_and_unit(tmp_path: Path) -> None:
    problem = replace(random_problem(1), pools=(Pool("sram"), Pool("dram")))
    sized = with_capacities(problem, ["96KiB", "dram=1MiB"])
    assert [p.size_bytes for p in sized.pools] == [98304, 1048576]
    with pytest.raises(ProblemError, match="no pool is called 'tcm'; the problem has: sram, dram"):
        with_capacities(problem, ["tcm=1"])
    with pytest.raises(ProblemError, match="no pool that could have capacity '5'"):
        with_capacities(Problem((), ()), ["5"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"x.csv:1: no column id, lower, upper, size; .*\(found: nothing\)"),
        ("id,lower,upper\n", "no column size"),
        ("id,lower,upper,size,colour\n", "unknown or repeated column colour"),
        ("id,id,lower,upper,size\n", "unknown or repeated column id,id"),
        ("id,lower,upper,size\na,0,1\n", "x.csv:2: 3 values for 4 columns"),
        ("id,lower,upper,size\n\na,0,1,big\n", "x.csv:3: size is 'big'; give a whole number"),
        ("id,lower,upper,size\na,0,1,nan\n", "size is 'nan'"),
        ("id,lower,upper,size\na,0,1,1e3\n", "size is '1e3'"),
        ("id,lower,upper,size\na,0,1," + "9" * 5000 + "\n", "give a whole number"),
        ("id,lower,upper,size\na,0,1,-5\n", "buffer 'a' has size -5"),
        ("id,lower,upper,size\na,1,1,5\n", r"lives in \[1, 1\), which is empty"),
        ("id,lower,upper,size\na,0,1,5\na,0,1,5\n", "two buffers are called 'a'"),
        ("id,lower,upper,size,alignment\na,0,1,5,0\n", "alignment 0"),
        ("id,lower,upper,size,gaps\na,0,9,5,3\n", "cannot read the gap '3'; write lower-upper"),
        ("id,lower,upper,size,gaps\na,0,9,5,3-4@1\n", "cannot read the gap '3-4@1'; write lower-upper.*4-7@0:16"),
        ("id,lower,upper,size,gaps\na,0,9,5,3-4@1:6\n", r"x.csv:2: gap 3-4@1:6 keeps bytes \[1, 6\), which"),
        ("id,lower,upper,size,gaps\na,0,9,5,3-4@2:2\n", r"keeps bytes \[2, 2\), which are no part of the buffer's 5"),
        ("id,lower,upper,size,gaps\na,0,9,5,7-12\n", r"gap 7-12 is not inside \[0, 9\)"),
        ('id,lower,upper,size\n"a,0,1,5\n', "not CSV"),
    ],
)
def test_bad_csv_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        read_problem(written(tmp_path / "x.csv", text))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(schema="other/1"), "has schema 'other/1'; this version reads 'npu_memplan.problem/1'"),
        (lambda d: d.pop("schema"), "the document has no 'schema'"),
        (lambda d: d.update(buffers={}), "buffers is {}: expected `array`, got `object`"),
        (lambda d: d["buffers"][0].pop("name"), r"buffers\[0\] is {.*: object missing required field `name`"),
        (lambda d: d["buffers"][0].update(name=3), r"buffers\[0\].name is 3: expected `str`, got `int`"),
        (lambda d: d["buffers"][0].update(size_bytes=1.5), "size_bytes is 1.5: expected `int`, got `float`"),
        (lambda d: d["buffers"][0].update(size_bytes=True), "size_bytes is True: expected `int`, got `bool`"),
        (lambda d: d["buffers"][0].update(lifetimes=[[1]]), r"lifetimes\[0\] is \[1\]: expected `array` of length 2"),
        (
            lambda d: d["buffers"][0].update(kind="odd"),
            r"kind is 'odd': invalid enum value 'odd'; give one of 'constant', 'host_scratch'",
        ),
        (lambda d: d["pools"][0].update(read_only="no"), "read_only is 'no': expected `bool`, got `str`"),
        (
            lambda d: d["pools"][0].update(read_bandwidth_bytes_per_cycle="x"),
            "read_bandwidth_bytes_per_cycle is 'x': expected `float | null`, got `str`",
        ),
        (lambda d: d["pools"][0].update(burst_bytes={"npu": -1}), "pools.* expected `int` >= 0"),
        (lambda d: d["pools"][0].update(alignment=0), r"pools\[0\].alignment is 0: expected `int` >= 1"),
        (lambda d: d["buffers"][0].update(size_bytes=10**30), "size_bytes is 1000.*0: expected `int` <= 11529215046"),
        (lambda d: d["pools"].append(7), r"pools\[1\] is 7: expected `object`, got `int`"),
    ],
)
def test_bad_json_is_named_with_its_path(tmp_path: Path, change: object, message: str) -> None:
    changed = document(read_problem(written(tmp_path / "x.csv", CSV)))
    assert callable(change)
    change(changed)
    with pytest.raises(ProblemError, match=message):
        read_problem(written(tmp_path / "x.json", json.dumps(changed)))


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=r"cannot read .*none.csv: No such file"):
        read_problem(tmp_path / "none.csv")
    with pytest.raises(ProblemError, match="not UTF-8 text"):
        read_problem(written(tmp_path / "x.json", '{"name": "\ud800"}'))
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProblemError, match="not UTF-8 text"):
        read_problem(tmp_path / "binary.csv")
    problem = read_problem(written(tmp_path / "x.csv", CSV))
    for bad in ("{", "[" * 200_000, '{"name": NaN}', '{"name": "\\ud800"}', '{"seed": ' + "9" * 5000 + "}"):
        path = written(tmp_path / "bad.json", bad)
        with pytest.raises(ProblemError, match="not JSON"):
            read_problem(path)
        with pytest.raises(ProblemError, match="not JSON"):
            read_plan(path, problem)
    with pytest.raises(ProblemError, match=r"bad.json: the document has no 'schema'"):
        read_plan(written(tmp_path / "bad.json", "{}"), problem)
