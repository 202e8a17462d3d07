"""Damaged files of every kind through the whole command line: `benchmarks/damage.py` in small.

Invariant: every case ends with exit code 0, 1 or 2, without a traceback, a signal, a hang or gigabytes of memory.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from npu_memplan.compiler import compile_model
from npu_memplan.options import CompileOptions
from npu_memplan.vela.compiler import compile_tflite
from tests.support.single_operators import all_cases

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "examples" / "digits" / "digits.tflite"


def campaign(kind: str, count: int, *files: Path, results: Path | None = None) -> None:
    """Run one, in a process of its own: its cases are forks, which other tests' threads would disturb."""
    command = [sys.executable, "-m", "benchmarks.damage", kind, str(count), "5", *map(str, files)]
    command += [] if results is None else ["--results", str(results)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_plans(tmp_path: Path) -> None:
    out = tmp_path / "digits"
    compile_model(EXAMPLE, CompileOptions(effort="quick"), out)
    campaign("plans", 6, out)


@pytest.mark.slow
def test_problems(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("id,lower,upper,size,alignment,gaps\na,0,10,32,16,3-5 7-9\nb,4,6,64,,\n")
    (tmp_path / "q.json").write_text(PROBLEM)
    campaign("problems", 20, tmp_path / "p.csv", tmp_path / "q.json")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The example and small models of single operators, of many families."""
    folder = tmp_path_factory.mktemp("models")
    chosen = list(all_cases())[::14]
    for case in chosen:
        (folder / f"{case.name}.tflite").write_bytes(case.build())
    real = ("hello_world_int8", "trained_lstm_int8", "micro_speech_quantized")
    return [EXAMPLE, *(REPOSITORY / "tests" / "models" / f"{name}.tflite" for name in real), *sorted(folder.iterdir())]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), [("none", 15), ("tvm", 10), ("vela", 6)])
def test_models(kind: str, count: int, models: list[Path]) -> None:
    campaign(kind, count, *models)


@pytest.mark.slow
def test_structures(models: list[Path]) -> None:
    """Sound files with other operands, types, shapes, flags and options (tests/frontend/test_validation.py only reads
    such files)."""
    campaign("structure", 3, *models[:1], *models[2:3], *models[4:])


@pytest.mark.slow
def test_programs() -> None:
    folder = REPOSITORY / "tests" / "models"
    campaign("programs", 6, *(folder / f"three_convolutions_{npu}.pte" for npu in ("u55", "u65", "u85")))


def test_artifacts(tmp_path: Path) -> None:
    """Folders of strangers: damaged files, links, pipes, odd names."""
    out = tmp_path / "hello"
    compile_model(EXAMPLE.parents[2] / "tests" / "models" / "hello_world_int8.tflite", CompileOptions("none"), out)
    campaign("artifacts", 10, out)


def test_boards() -> None:
    campaign("boards", 15, *sorted((REPOSITORY / "targets" / "boards").glob("*.toml")))


def test_signals() -> None:
    """`benchmarks/kill.py` in small, with the commands that have most phases."""
    words = ("benchmarks.kill", "12", "1", "both", "run", "report", "project")
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, cwd=REPOSITORY)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_streams(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(compile_tflite(EXAMPLE.read_bytes()).network)
    campaign("streams", 5, tmp_path / "m.tflite")


PROBLEM = """{"schema": "npu_memplan.problem/1", "name": "q", "points": ["a", "b", "c"],
 "pools": [{"name": "fast", "size_bytes": 96, "alignment": 16, "agents": ["host"], "burst_bytes": {"npu": 8}},
  {"name": "slow", "size_bytes": null, "read_bandwidth_bytes_per_cycle": 0.5, "clock_hz": 1000}],
 "buffers": [{"name": "x", "size_bytes": 64, "lifetimes": [[0, 2], [5, 9]], "alignment": 4, "kind": "input"},
  {"name": "y", "size_bytes": 32, "lifetimes": [[1, 3]], "fixed": ["slow", 64], "read_bytes": 9, "producer": "a"},
  {"name": "[/nope]", "size_bytes": 48, "lifetimes": [[2, 6]], "pools": ["slow", "fast"], "consumers": ["b", "c"]},
  {"name": "w", "size_bytes": 16, "lifetimes": [[0, 9]]}],
 "conflicts": [["x", "w"]], "aliases": [{"name": "g", "members": [["x", 0], ["w", 16]]}],
 "overlaps": [{"first": "y", "second": "[/nope]", "lowest": null, "highest": -8, "reason": "r"}]}"""


@pytest.mark.slow
def test_a_campaign_goes_on_where_it_ended(tmp_path: Path) -> None:
    problem, results = tmp_path / "p.csv", tmp_path / "kept.jsonl"
    problem.write_text("id,lower,upper,size,alignment,gaps\na,0,10,32,16,3-5 7-9\nb,4,6,64,,\n")
    campaign("problems", 2, problem, results=results)
    first = results.read_text()
    campaign("problems", 3, problem, results=results)
    assert results.read_text().startswith(first)
    assert len(results.read_text().splitlines()) == 3
    results.write_text(first.replace('"faults": []', '"faults": ["plan 0 of p.csv: kept"]', 1))
    with pytest.raises(AssertionError, match=re.escape("FAULT plan 0 of p.csv: kept")):
        campaign("problems", 2, problem, results=results)
