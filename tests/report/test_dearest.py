"""Which operators take the time: every cycle of the estimate is an operator's, on the NPU or on the CPU."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import npu_memplan
from npu_memplan.artifact import Artifact
from npu_memplan.problem import Agent
from npu_memplan.report.facts.dearest import dearest_lines, operator_times
from tests.support.entry import invoke
from tests.support.real_data import REPOSITORY

MODEL = REPOSITORY / "examples" / "digits" / "digits.tflite"


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network with one operator left to the CPU."""
    folder = tmp_path_factory.mktemp("mixed") / "out"
    npu_memplan.compile(MODEL, folder, effort="quick", host_ops="SOFTMAX", board="alif-e7-hp")
    return folder


def test_the_rows_are_the_estimate(mixed: Path) -> None:
    artifact = Artifact.load(mixed)
    times = operator_times(artifact)
    assert sum(row.cycles for row in times if row.agent is Agent.NPU) == artifact.estimated_cycles
    assert sum(row.cycles for row in times if row.agent is Agent.HOST) == artifact.host_cycles
    assert sum(row.share for row in times) == pytest.approx(1)
    assert [row.share for row in times] == sorted((row.share for row in times), reverse=True)


def test_cycles_of_the_cpu_count_by_its_own_clock(mixed: Path) -> None:
    artifact = Artifact.load(mixed)
    assert artifact.timing is not None
    host = next(row for row in operator_times(artifact) if row.agent is Agent.HOST)
    npu_s, host_s = (artifact.estimated_cycles or 0) / artifact.timing.clock_hz, host.cycles / artifact.host_clock_hz
    assert host.share == pytest.approx(host_s / (npu_s + host_s))
    slower = replace(artifact, timing=replace(artifact.timing, clock_hz=artifact.timing.clock_hz / 4))
    later = next(row for row in operator_times(slower) if row.agent is Agent.HOST)
    assert later.share < host.share


def test_the_table_names_what_explain_knows(mixed: Path) -> None:
    artifact = Artifact.load(mixed)
    heading, *rows = dearest_lines(artifact)
    assert heading.split() == ["operator", "on", "cycles", "share"]
    name = rows[0].split()[0]
    said = invoke("explain", mixed, name, code=None).output
    assert f"about {operator_times(artifact)[0].cycles:,} cycles" in said
    assert "\n".join(rows) in invoke("explain", mixed, code=None).output
    assert "\n".join(rows) in (mixed / "memory.txt").read_text(encoding="utf-8")


def test_json_has_all_of_them(mixed: Path) -> None:
    facts = json.loads(invoke("explain", mixed, "--json", code=None).output)
    assert len(facts["times"]) == len(operator_times(Artifact.load(mixed)))
    assert facts["times"][0]["share"] > 0


def test_an_artifact_without_times_has_no_table(mixed: Path) -> None:
    assert dearest_lines(replace(Artifact.load(mixed), layers=(), host_layers=())) == []
