"""Models for the frontend's tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def digits() -> Path:
    """The project's own model."""
    return Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"
