"""The examples of symbolic shapes and of an NPU run and say so."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tvm")

from fvp_runner.host.runner import LocalRunner
from npu_memplan.files.paths import OutputError
from npu_memplan.relax import build_artifact, host_operators, lower_for_ethosu, partition_for_ethosu

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_dynamic_shapes_example():
    script = EXAMPLES / "relax_dynamic_shapes.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "any h, w: pool of [632, 5000, 65672] bytes for 2 x 2, 8 x 8 and 32 x 32"
    assert lines[1] == "h, w <= 32: pool of [65668, 65668, 65668] bytes for 2 x 2, 8 x 8 and 32 x 32"
    assert [line.endswith("equal the unplanned ones bit for bit") for line in lines[2:]] == [True] * 3


def test_npu_example(capsys, tmp_path):
    script = EXAMPLES / "relax_npu.py"
    assert len(script.read_text(encoding="utf-8").splitlines()) <= 60  # docs/howto/relax-npu.md says so
    names = runpy.run_path(str(script))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4096 bytes of memory for all tensors"
    assert lines[1:] == ["8168 cycles, equal to TVM on the CPU, bit for bit"] * 3
    # the same with an operator that stays on the CPU
    accelerator = "ethos-u65-256"
    partitioned = partition_for_ethosu(names["module"], accelerator, exclude=("max_pool",))
    assert "nn.max_pool2d" in [o.kind for o in host_operators(partitioned)]
    lowered = lower_for_ethosu(partitioned, accelerator)
    artifact = build_artifact(lowered, tmp_path / "a", accelerator, pools={"sram": 65536}, name="block")
    assert (artifact.name, artifact.target.accelerator) == ("block", accelerator)
    (result,) = LocalRunner(tmp_path / "a").run([names["image"]]).outputs
    assert result.tobytes() == names["result"].outputs[0].tobytes()
    with pytest.raises(OutputError):
        build_artifact(lowered, tmp_path / "a", accelerator)
