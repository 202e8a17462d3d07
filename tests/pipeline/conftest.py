"""The command line, called in process: the real entry point, its exit code and what it printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.entry import exit_code

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"


@dataclass(frozen=True)
class Outcome:
    """What a shell would see."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """`cli("compile", path, "-o", out)` -> Outcome."""

    def call(*arguments: object) -> Outcome:
        capfd.readouterr()
        code = exit_code(monkeypatch, *arguments)
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call
