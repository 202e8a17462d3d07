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

    def bit_exact(self, folder: Path, reference: Path, *options: object) -> None:
        """A local run of an artifact, which says so."""
        ran = self("run", folder, "--on", "local", *options, "--reference", reference)
        assert ran.out.splitlines()[0].endswith("bit-exact"), ran.err

    def refuses(self, words: str, model: Path, *options: object, out: Path) -> None:
        """A compile says why it refuses `options`, and writes nothing."""
        made = self("compile", model, *options, "-o", out)
        assert (made.code, made.out) == (2, "")
        assert words in " ".join(made.err.split())
        assert not out.exists()


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capfd)
