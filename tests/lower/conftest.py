"""Runs lowered programs on the NPU model, every buffer on bytes of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "npu_model"))

from on_model import run_program


@pytest.fixture(scope="session")
def on_npu() -> Callable[..., list[np.ndarray[Any, Any]]]:
    """`on_npu(lowered, inputs by name)` -> outputs in order."""
    return run_program
