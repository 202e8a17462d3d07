"""Models for the frontend's tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

_TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(_TESTS / "npu_model"))  # tflite_builder


@pytest.fixture(scope="session")
def digits() -> Path:
    """The project's own model."""
    return _TESTS.parent / "examples" / "digits" / "digits.tflite"
