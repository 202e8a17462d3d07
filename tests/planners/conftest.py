"""Fixtures of the planner tests; the helpers they share are in `conftest_planners`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from conftest_planners import small_instances

__all__ = ["small_instances"]
