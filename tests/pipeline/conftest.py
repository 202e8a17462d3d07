"""The command line, called in process: the real entry point, its exit code and what it printed."""

from __future__ import annotations

import json
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


@dataclass(frozen=True)
class CommandLine:
    """`cli("compile", path, "-o", out)` -> Outcome; `cli.ok(...)`: its exit code is 0."""

    monkeypatch: pytest.MonkeyPatch
    streams: pytest.CaptureFixture[str]

    def __call__(self, *arguments: object) -> Outcome:
        self.streams.readouterr()
        code = exit_code(self.monkeypatch, *arguments)
        captured = self.streams.readouterr()
        return Outcome(code, captured.out, captured.err)

    def ok(self, *arguments: object) -> Outcome:
        outcome = self(*arguments)
        assert outcome.code == 0, outcome.err
        return outcome


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capfd)
