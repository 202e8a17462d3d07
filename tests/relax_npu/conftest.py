"""Helpers of tests/lower, which run a lowered program on the NPU model."""

from __future__ import annotations

import sys
from pathlib import Path

_TESTS = Path(__file__).resolve().parent.parent
for folder in ("lower", "npu_model", "pipeline"):
    sys.path.insert(0, str(_TESTS / folder))
