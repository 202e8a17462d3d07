"""docs/executorch.md, "From a model to a planned program", as it is written.

Needs the extra `executorch` with Arm's backend, in an environment of its own; skipped elsewhere.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("executorch.runtime")
pytest.importorskip("ethosu.vela")

from npu_memplan.models.executorch.delegates import npu_calls
from npu_memplan.models.executorch.program import read_program

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_guide_is_followed(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "executorch.md").read_text(encoding="utf-8")
    section = page.partition("## From a model to a planned program\n")[2].partition("\n## ")[0]
    imports, lines = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    commands = section.partition("```\nnpu-memplan")[2].partition("```")[0].splitlines()
    assert len(lines.splitlines()) + len(commands) <= 10
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-c", imports + lines], cwd=tmp_path, check=True, env=environment)
    for command in commands:
        words = command.removeprefix("npu-memplan").split()
        subprocess.run([sys.executable, "-m", "npu_memplan", *words], cwd=tmp_path, check=True, env=environment)
    before, planned = (read_program((tmp_path / name).read_bytes()) for name in ("model.pte", "planned.pte"))
    scratch = max(one.blocks.scratch_bytes for one in npu_calls(before))
    assert sum(planned.methods[0].planned_bytes.values()) < sum(before.methods[0].planned_bytes.values()) + scratch
