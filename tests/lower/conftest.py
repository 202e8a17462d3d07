"""Runs lowered programs on the NPU model, every buffer on bytes of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.on_model import run_program


@pytest.fixture(scope="session")
def on_npu() -> Callable[..., list[np.ndarray[Any, Any]]]:
    """`on_npu(lowered, inputs by name)` -> outputs in order."""
    return run_program
