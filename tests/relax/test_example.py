"""The example of symbolic shapes runs and says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tvm")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_dynamic_shapes_example():
    script = EXAMPLES / "relax_dynamic_shapes.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "any h, w: pool of [632, 5000, 65672] bytes for 2 x 2, 8 x 8 and 32 x 32"
    assert lines[1] == "h, w <= 32: pool of [69760, 69760, 69760] bytes for 2 x 2, 8 x 8 and 32 x 32"
    assert [line.endswith("equal the unplanned ones bit for bit") for line in lines[2:]] == [True] * 3
