"""Planning alone needs click, msgspec and rich: nothing else that `pip install --no-deps` leaves out is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.real_data import REPOSITORY

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
