"""`plan` and `verify` on the command line: files, tables, JSON, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.entry import exit_code
from tests.support.real_data import REPOSITORY

CSV = "id,lower,upper,size\na,0,2,32\nb,1,3,64\nc,2,4,32\n"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """`run("plan", ...)` -> (exit code, stdout, stderr) of the real entry point."""

    def call(*arguments: object) -> tuple[int, str, str]:
        code = exit_code(monkeypatch, *arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    (tmp_path / "x.csv").write_text(CSV)
    return tmp_path / "x.csv"


def test_plan_writes_and_shows_and_verify_accepts(run: Callable[..., tuple[int, str, str]], problem: Path) -> None:
    target = problem.with_name("plan.csv")
    code, out, _ = run("plan", problem, "--capacity", "96", "-o", target, "--seed", 3)
    assert code == 0
    assert "3 buffers, planner fit" in out
    assert "optimal: every pool is at a bound" in out
    code, out, _ = run("verify", problem, target)
    assert (code, out) == (0, "valid: 3 placements; memory 96 bytes\n")


def test_json_out_and_in(run: Callable[..., tuple[int, str, str]], problem: Path) -> None:
    target = problem.with_name("plan.json")
    code, out, _ = run("plan", problem, "--json", "-o", target, "--time-limit", 5, "--node-budget", 100)
    assert code == 0
    assert json.loads(out) == json.loads(target.read_text())
    assert json.loads(out)["status"] == "optimal"
    code, out, _ = run("verify", problem, target, "--json")
    assert (code, json.loads(out)) == (0, {"valid": True, "violations": []})


def test_a_problem_that_does_not_fit_is_exit_code_1(run: Callable[..., tuple[int, str, str]], problem: Path) -> None:
    target = problem.with_name("plan.csv")
    code, out, err = run("plan", problem, "--capacity", "memory=95", "--json", "-o", target)
    assert code == 1
    answer = json.loads(out)
    assert (answer["status"], answer["required_bytes"], answer["excess_bytes"]) == ("infeasible", 96, 1)
    assert "required 96 bytes, available 95, excess 1" in err
    assert not target.exists()


def test_a_wrong_plan_is_exit_code_1(run: Callable[..., tuple[int, str, str]], problem: Path) -> None:
    wrong = problem.with_name("wrong.csv")
    wrong.write_text("id,offset\na,0\nb,16\nc,96\n")
    code, out, _ = run("verify", problem, wrong)
    assert code == 1
    assert "share bytes" in out
    code, out, _ = run("verify", problem, wrong, "--json", "--capacity", 100)
    violations = json.loads(out)["violations"]
    assert [v["constraint"] for v in violations] == ["outside pool", "overlap"]
    assert (violations[1]["start_bytes"], violations[1]["stop_bytes"], violations[1]["point"]) == (16, 32, 1)


def test_many_violations_are_cut(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    rows = "".join(f"b{k},0,1,8\n" for k in range(15))
    (tmp_path / "x.csv").write_text("id,lower,upper,size\n" + rows)
    (tmp_path / "plan.csv").write_text("id,offset\n" + "".join(f"b{k},0\n" for k in range(15)))
    code, out, _ = run("verify", tmp_path / "x.csv", tmp_path / "plan.csv")
    assert code == 1
    assert "105 violated constraints" in out
    assert "and 55 more" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--planner", "best"), "no planner is called 'best'; there are: auto"),
        (("--capacity", "lots"), "cannot read the size 'lots'"),
        (("--capacity", "tcm=5"), "no pool is called 'tcm'; the problem has: memory"),
        (("--time-limit", "nan"), "a time limit of nan seconds is no limit"),
        (("--incumbent", "none.csv"), "cannot read none.csv"),
        (("-o", "no/such/folder/plan.csv"), "cannot write no/such/folder/plan.csv"),
    ],
)
def test_bad_use_is_exit_code_2(
    run: Callable[..., tuple[int, str, str]], problem: Path, arguments: tuple[str, ...], message: str
) -> None:
    code, _, err = run("plan", problem, *arguments)
    assert (code, message in err) == (2, True), err
    assert "Traceback" not in err


def test_incumbent_and_feasible_plans_say_so(run: Callable[..., tuple[int, str, str]], problem: Path) -> None:
    first = problem.with_name("first.json")
    assert run("plan", problem, "--planner", "linear", "-o", first)[0] == 0
    code, out, _ = run("plan", problem, "--planner", "linear")
    assert code == 0
    assert "feasible: not proven least" in out
    assert "32 bytes (33.33%)" in out
    code, out, _ = run("plan", problem, "--incumbent", first)
    assert (code, "optimal" in out) == (0, True)


def test_with_a_capacity_the_search_stops_where_it_fits_and_says_so(
    run: Callable[..., tuple[int, str, str]], shared_instances: Callable[[str], Path]
) -> None:
    problem = shared_instances("minimalloc_challenging") / "D.1048576.csv"
    code, out, _ = run("plan", problem, "--capacity", "1100000", "--node-budget", 50_000)
    assert code == 0
    assert "planner fit" in out
    assert "feasible: it fits, and there the search stopped; --least goes on" in out
    code, least, _ = run("plan", problem, "--capacity", "1100000", "--node-budget", 2_000, "--least")
    assert code == 0
    assert "planner auto" in least
    assert "the budget (2000 nodes) ended the search" in least


def test_least_and_a_planner_that_stops_contradict(run: Callable[..., tuple[int, str, str]], problem: Path) -> None:
    code, _, err = run("plan", problem, "--capacity", "96", "--least", "--planner", "fit")
    assert code == 2
    assert "--least and --planner fit contradict each other; give one of them" in err


# -- Planning alone needs click, msgspec and rich: nothing else that `pip install --no-deps` leaves out is imported


ABSENT = ("tvm", "tvm_ffi", "ethosu", "numpy", "tflite", "flatbuffers", "capstone", "elftools", "onnx", "tflite_micro")
RUN = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
sys.argv = ["npu-memplan", *sys.argv[1:]]
from npu_memplan.cli import main
main()
"""
PROBLEM = "id,lower,upper,size\na,0,3,128\nb,2,5,64\nc,4,7,128\n"


def call(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", RUN, *map(str, words)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


def test_a_problem_is_planned_and_verified(tmp_path: Path) -> None:
    problem, plan = tmp_path / "problem.csv", tmp_path / "plan.json"
    problem.write_text(PROBLEM)
    made = call("plan", problem, "-o", plan)
    assert made.returncode == 0, made.stderr
    assert "192" in made.stdout
    assert call("verify", problem, plan).stdout == "valid: 3 placements; memory 192 bytes\n"
    found = json.loads(call("plan", problem, "--json").stdout)
    assert found["status"] == "optimal"


def test_a_command_that_needs_more_says_what_to_install(tmp_path: Path) -> None:
    done = call("compile", REPOSITORY / "examples/digits/digits.tflite", "-o", tmp_path / "out")
    assert done.returncode == 2
    assert done.stderr.startswith("npu-memplan: this needs the package numpy, which is not installed")
    assert "Traceback" not in done.stderr
