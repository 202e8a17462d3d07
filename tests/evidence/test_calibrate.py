"""Figures of a memory system from a record: hidden ones are found, and what a record cannot decide is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from fvp_runner.base import RunOptions
from npu_memplan.cli import cli
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.stream.decode import decode
from npu_memplan.ethosu.time import estimate, load_system
from npu_memplan.evidence.calibration import CalibrationError, Facts, observations, parameters_of
from npu_memplan.evidence.gather import gather
from npu_memplan.evidence.micro import micro_options
from npu_memplan.evidence.record import Counters, EvidenceRecord

U55 = accelerator("ethos-u55-256")
STREAMS = ("flash alone", "sram kernels", "blocks 10x6", "copies 512 awaited", "copies 4096 awaited", "sums in a row")
RATES = ("sram.bytes_per_cycle", "flash.bytes_per_cycle", "flash.read_latency")


def facts() -> Facts:
    memory_map = micro_options(U55).memory_map()
    assert memory_map is not None
    return Facts(U55, memory_map)


@pytest.fixture(scope="module")
def record() -> EvidenceRecord:
    return gather("local", U55.name, RunOptions(sanitize=False), STREAMS, micro=True)


def counted(record: EvidenceRecord, hidden: Mapping[str, float], step: int) -> EvidenceRecord:
    """The record as a machine with `hidden` figures would have counted it, in steps."""
    made = facts()
    for parameter in parameters_of(made, frozenset({"flash"})):
        if parameter.name in hidden:
            made = parameter.write(made, hidden[parameter.name])
    runs = []
    for run in record.micro:
        cycles = estimate(decode(run.stream, U55.language), made.accelerator, made.memory_map).total
        runs.append(replace(run, counted=Counters(round(cycles / step) * step)))
    return replace(record, micro=tuple(runs)).sealed()


def written(record: EvidenceRecord, tmp_path: Path) -> Path:
    path = tmp_path / "evidence.json"
    path.write_bytes(record.to_json())
    return path


@pytest.mark.parametrize(
    ("hidden", "step"),
    [
        (dict(zip(RATES, (5.3, 0.7, 150.0), strict=True)), 1),
        (dict(zip(RATES, (6.1, 1.3, 40.0), strict=True)), 1),
        (dict(zip(RATES, (3.9, 0.4, 230.0), strict=True)), 1000),
    ],
)
def test_hidden_figures_are_recovered(
    record: EvidenceRecord, hidden: dict[str, float], step: int, tmp_path: Path
) -> None:
    path, ini = written(counted(record, hidden, step), tmp_path), tmp_path / "measured.ini"
    asked = ["calibrate", str(path), "--fit", ",".join(RATES), "--counter-step", str(step), "-o", str(ini)]
    done = CliRunner().invoke(cli, asked)
    assert done.exit_code == 0, done.output + str(done.exception)
    system = load_system("Measured", ini)
    found = {
        "sram.bytes_per_cycle": system.memories["sram"].clock_scale * 8,
        "flash.bytes_per_cycle": system.memories["flash"].clock_scale * 8,
        "flash.read_latency": system.memories["flash"].read.latency,
    }
    assert found == {name: pytest.approx(value, rel=0.05) for name, value in hidden.items()}
    assert system.clock_hz == 500e6
    assert "largest residual: " in done.output
    assert all(f"  {name}" in done.output for name in STREAMS)


def test_what_a_record_cannot_decide_is_refused_with_the_stream_that_would(
    record: EvidenceRecord, tmp_path: Path
) -> None:
    few = replace(record, micro=tuple(r for r in record.micro if r.name in ("flash alone", "sram kernels"))).sealed()
    ini = tmp_path / "measured.ini"
    path = written(counted(few, {"kernel_start": 30.0}, 1000), tmp_path)
    done = CliRunner().invoke(
        cli, ["calibrate", str(path), "--fit", "kernel_start", "--counter-step", "1000", "-o", str(ini)]
    )
    assert isinstance(done.exception, CalibrationError)
    assert "kernel_start: 5% more or less is within the counter's steps of 1,000 cycles" in str(done.exception)
    assert "run evidence --micro with the stream 'sums in a row', too" in str(done.exception)
    assert "NOT DECIDED" in done.output
    assert not ini.exists()


def test_figures_that_make_up_for_each_other_are_refused(record: EvidenceRecord, tmp_path: Path) -> None:
    """Of sums in a row alone, a start of kernels and a latency of their reads are the same."""
    alone = replace(record, micro=tuple(r for r in record.micro if "sums" in r.name or "blocks" in r.name)).sealed()
    path = written(counted(alone, {"kernel_start": 30.0}, 1000), tmp_path)
    asked = ["calibrate", str(path), "--fit", "kernel_start,sram.read_latency", "--counter-step", "1000"]
    done = CliRunner().invoke(cli, asked)
    assert isinstance(done.exception, CalibrationError)
    assert "kernel_start: " in str(done.exception)
    assert "sram.read_latency makes up for it" in str(done.exception)


def test_bad_use_is_reported(record: EvidenceRecord, tmp_path: Path) -> None:
    path = written(record, tmp_path)
    done = CliRunner().invoke(cli, ["calibrate", str(path), "--fit", "dram.speed"])
    assert "no figure is called 'dram.speed'; there are: sram.bytes_per_cycle" in str(done.exception)
    few = replace(record, micro=record.micro[:1]).sealed()
    done = CliRunner().invoke(cli, ["calibrate", str(written(few, tmp_path))])
    assert "1 streams cannot decide 5 figures" in str(done.exception)
    with pytest.raises(CalibrationError, match="no micro-streams; make one with npu-memplan evidence --micro"):
        observations(replace(record, micro=()))
    wrong = replace(record, micro=tuple(replace(run, mismatches=1) for run in record.micro))
    with pytest.raises(CalibrationError, match="no micro-stream of the record ran and was right"):
        observations(wrong)
    changed = msgspec.json.decode(path.read_bytes())
    changed["micro"][0]["name"] = "x"
    path.write_bytes(msgspec.json.encode(changed))
    assert "was changed after it was made" in str(CliRunner().invoke(cli, ["calibrate", str(path)]).exception)
