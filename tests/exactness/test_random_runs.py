"""The driver of random networks: one line for each way, runs that end their process included, and none done twice."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from benchmarks.random_networks import summary, work_through
from benchmarks.random_operators import trials
from tests.support.random_networks.verdict import Outcome, Trial

pytest.importorskip("tflite_micro")
pytest.importorskip("ai_edge_litert", reason="needs LiteRT as the reference (pip install npu_memplan[litert])")
HOWS = ("none", "stripes")
SEED = 9200001  # one operator


def _lines(output: Path) -> list[tuple[int, str, str]]:
    found = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    return [(record["seed"], record["how"], record["verdict"]) for record in found]


def test_what_is_there_is_not_tried_again(tmp_path: Path) -> None:
    output = tmp_path / "runs.jsonl"
    work_through([SEED], HOWS[:1], output)
    first = output.read_text(encoding="utf-8")
    work_through([SEED], HOWS, output)
    assert output.read_text(encoding="utf-8").startswith(first)
    assert _lines(output) == [(SEED, how, "exact") for how in HOWS]


def test_a_way_that_ends_its_process_is_one_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    output, real = tmp_path / "runs.jsonl", Trial.try_unchecked

    def ends(trial: Trial, options: object, stage: object, built: object) -> Outcome:
        if getattr(options, "stripes", False):
            os.kill(os.getpid(), signal.SIGSEGV)
        return real(trial, options, stage, built)  # type: ignore[arg-type]

    monkeypatch.setattr(Trial, "try_unchecked", ends)
    work_through([SEED], ("stripes", "none"), output, tmp_path / "kept")
    assert _lines(output) == [(SEED, "stripes", "FAULT"), (SEED, "none", "exact")]
    assert [path.name for path in (tmp_path / "kept").iterdir()] == [f"{SEED}.tflite"]
    records = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert records[0]["message"].startswith("stripes start: signal 11")
    assert "| stripes | 0 | 0 | 0 | 0 | 1 |" in summary(records)


# -- Random single operators on every Ethos-U85, in scheduled streams: a fixed slice of `benchmarks.random_operator


NPUS = tuple(f"ethos-u85-{macs}" for macs in (128, 256, 512, 1024, 2048))


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_exact_or_on_the_host(seed: int) -> None:
    """A wrong element, an unsafe stream or a byte that nothing wrote raises."""
    verdicts = {verdict for verdict, _ in trials(seed, NPUS)}
    assert verdicts <= {"exact", "host", "no reference"}
