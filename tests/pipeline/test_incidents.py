"""Faults of ours are told, and fail where somebody is strict; nobody takes one for a refusal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import npu_memplan
from npu_memplan.errors import InternalError, NpuMemplanError
from npu_memplan.problem import Placement
from npu_memplan.process.incidents import STRICT, Attempts, contain_faults, gather_incidents, raise_faults
from npu_memplan.tuning import candidate, selection
from npu_memplan.vela import worker as vela_worker
from tests.support.entry import QUICK

MODEL = Path(__file__).resolve().parents[1] / "models" / "micro_speech_quantized.tflite"
POOL = ("--pool", "sram=8192")


@pytest.fixture
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for users: nobody is strict."""
    monkeypatch.delenv(STRICT)


@pytest.fixture
def wrong_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever puts copies of constants into a program lets every copy lie at the pool's first byte."""

    def copied(buffer: str, pool: str, offset: int) -> Placement:
        return Placement(buffer, pool, 0)

    monkeypatch.setattr(candidate, "Placement", copied)


@pytest.fixture
def broken_lowering(monkeypatch: pytest.MonkeyPatch) -> None:
    def ours(*_: object) -> Any:
        raise KeyError("no such view")

    monkeypatch.setattr(selection, "_plan_native", ours)


def test_a_plan_that_violates_a_constraint_is_reported_and_recorded(
    lenient: None, wrong_copies: None, cli: Callable[..., Any], tmp_path: Path
) -> None:
    made = cli.ok("compile", MODEL, *POOL, "-q", "-o", tmp_path / "made")
    assert "npu-memplan: internal fault: " in made.err
    assert "share bytes" in made.err or "violates" in made.err
    assert "please report it" in made.err
    artifact = npu_memplan.artifact.Artifact.load(tmp_path / "made")  # type: ignore[attr-defined]
    assert any(note.startswith("internal fault: ") and "violates" in note for note in artifact.notes)


def test_with_strict_a_plan_that_violates_a_constraint_fails(
    lenient: None, wrong_copies: None, cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as strict:
        strict.setenv(STRICT, "1")
        failed = cli("compile", MODEL, *POOL, "-o", tmp_path / "made")
    assert failed.code == 3
    assert "npu-memplan: internal fault: " in failed.err
    assert "Traceback" not in failed.err
    assert not (tmp_path / "made").exists()
    with pytest.raises(InternalError, match="violates"):
        npu_memplan.compile(MODEL, tmp_path / "made", pools={"sram": 8192}, strict=True)


def test_no_test_passes_over_a_fault(wrong_copies: None, cli: Callable[..., Any], tmp_path: Path) -> None:
    assert cli("compile", MODEL, *POOL, "-o", tmp_path / "made").code == 3


def test_a_producer_that_fails_is_not_one_that_refuses(
    lenient: None, broken_lowering: None, cli: Callable[..., Any], tmp_path: Path
) -> None:
    made = cli.ok("compile", MODEL, *POOL, "-q", "-o", tmp_path / "made")
    assert "npu-memplan: internal fault: native lowering: KeyError: 'no such view'" in made.err
    with pytest.raises(InternalError, match="no such view"):
        npu_memplan.compile(MODEL, tmp_path / "strict", pools={"sram": 8192}, strict=True)


def test_a_producer_that_refuses_is_reported(
    monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Any], tmp_path: Path
) -> None:
    """Also with -q, and no test fails for it: a refusal is none of our faults."""
    monkeypatch.setattr(vela_worker, "_WORKER", "import sys; sys.exit('not today')")
    monkeypatch.setattr(vela_worker, "_STARTED", {})
    monkeypatch.setattr("npu_memplan.vela.compiler._run_legacy", refusing)
    made = cli.ok("compile", MODEL, *POOL, "-q", "-o", tmp_path / "made")
    (line,) = made.err.splitlines()
    assert line == "npu-memplan: Vela's stream was not taken, it was refused: not today"
    assert "native lowering" in (tmp_path / "made" / "plan.json").read_text()


def refusing(*_: object) -> Any:
    raise vela_worker.VelaError("not today")


@pytest.mark.parametrize("error", [ZeroDivisionError, EOFError])  # click takes EOFError for Ctrl-D
def test_what_nobody_expects_ends_a_command_with_its_own_code(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Any], tmp_path: Path
) -> None:
    def broken(*_: object) -> Any:
        raise error("a defect")

    monkeypatch.setattr("npu_memplan.compiler.extract_problem", broken)
    failed = cli("compile", *QUICK, MODEL, "-o", tmp_path / "made")
    assert failed.code == 3
    assert f"npu-memplan: internal fault: {error.__name__}: a defect" in failed.err
    assert "Traceback" in failed.err


def test_without_somebody_who_gathers_a_fault_is_raised(lenient: None) -> None:
    with pytest.raises(InternalError, match=r"^here: KeyError: 'x'"), contain_faults("here"):
        raise KeyError("x")
    with gather_incidents() as outer, gather_incidents() as inner, contain_faults("here"):
        raise KeyError("x")
    assert outer.faults == inner.faults == ["here: KeyError: 'x'"]
    with pytest.raises(InternalError), gather_incidents(), raise_faults(), contain_faults("here"):
        raise KeyError("x")
    with pytest.raises(NpuMemplanError), gather_incidents(), contain_faults("here"):
        raise NpuMemplanError("of the user's")


def test_of_several_who_fail_a_fault_is_raised_first(lenient: None) -> None:
    attempts = Attempts()
    for error in (vela_worker.VelaError("no"), KeyError("x")):
        with attempts.attempt_by(type(error).__name__):
            raise error
    with pytest.raises(InternalError, match="KeyError: KeyError: 'x'"):
        attempts.settle_errors(done=False)
    with gather_incidents() as told:
        attempts.settle_errors(done=True)
    assert told.faults == ["KeyError: KeyError: 'x'"]
    assert told.fallbacks == ["VelaError was not taken, it was refused: no"]
