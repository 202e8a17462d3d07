"""Records of evidence: what is in them, who counted, that a changed one is refused, that nothing claims an FVP."""

from __future__ import annotations

import importlib.util
import re
import shutil
import stat
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fvp_runner.base import RunnerMissingError, RunOptions
from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.evidence import gather as gather_module
from npu_memplan.evidence import gather as networks_module
from npu_memplan.evidence.gather import NETWORKS, PROGRAMS, gather_record, listed_networks
from npu_memplan.evidence.record import FVP, MODEL, EvidenceError, EvidenceRecord, read_record, record_page
from npu_memplan.files.arrays import read_inputs
from npu_memplan.models.tflite import read_network
from tests.support.entry import invoke
from tests.support.needs import need
from tests.support.real_data import REPOSITORY
from tests.support.saving import save


def table(records: Sequence[EvidenceRecord]) -> str:
    """Markdown: a row a record."""
    lines = ["| runner | accelerator | programs | bit-exact | counted by | beats read: counted / estimated |"]
    lines.append("|---|---|--:|--:|---|---|")
    for record in records:
        exact = sum(run.exact is True for run in record.runs)
        version = f"{record.runner} {record.runner_version}".strip()
        lines.append(
            f"| {version} | {record.accelerator} | {len(record.runs)} | {exact} | {record.counted_by} "
            f"| {_beats(record)} |"
        )
    return "\n".join(lines) + "\n"


def _beats(record: EvidenceRecord) -> str:
    if record.counted_by != FVP:
        return "the same model"
    ratios = [
        getattr(run.counted, name) / getattr(run.estimated, name)
        for run in record.runs
        for name in ("axi0_read", "axi1_read")
        if getattr(run.counted, name) and getattr(run.estimated, name)
    ]
    return f"{min(ratios):.3f} to {max(ratios):.3f}" if ratios else "-"


SMALL = "hello_world_int8"
SAMPLE = Path(__file__).with_name("fvp_format_sample.txt")
BINARY = "FVP_Corstone_SSE-300_Ethos-U55"
needs_gcc = pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="needs arm-none-eabi-gcc")
needs_unicorn = pytest.mark.skipif(importlib.util.find_spec("unicorn") is None, reason="needs unicorn")


@pytest.fixture(scope="module")
def on_host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command writes for the smallest network."""
    folder = tmp_path_factory.mktemp("evidence") / "record"
    done = invoke("evidence", "--on", "local", "--only", SMALL, "-o", folder)
    lines = done.stdout.splitlines()
    assert lines[0] == f"4 of 4 programs bit-exact on local; cycles and beats counted by {MODEL}"
    assert [line.split()[:2] for line in lines[1:-1]] == [[SMALL, program.split()[0]] for program in PROGRAMS]
    return folder


def test_the_set_is_whole_and_small() -> None:
    found = list(listed_networks())
    assert [network.name for network in found] == list(NETWORKS)
    assert sum(network.path.stat().st_size for network in found) < 300_000
    shipped = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    for network in found:
        source = network.path.relative_to(REPOSITORY).as_posix()
        assert f'"{source}" = "npu_memplan/evidence/networks/{network.name}.tflite"' in shipped


def test_other_files_are_not_of_the_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EvidenceError, match="the set has no network 'vww'; it has: hello_world_int8, digits"):
        list(listed_networks(["vww"]))
    other = save(tmp_path / "x.tflite", b"other")
    monkeypatch.setattr(networks_module, "_network_file", lambda name: other)
    with pytest.raises(EvidenceError, match="is not the digits of the set"):
        list(listed_networks(["digits"]))


def test_a_record_has_results_counters_hazards_versions_and_digests(on_host: Path) -> None:
    record = read_record(on_host / "evidence.json")
    assert (record.counted_by, record.runner, record.accelerator) == (MODEL, "local", "ethos-u55-128")
    assert record.versions["ethos-u-vela"]
    assert record.reference.startswith("tflite-micro")
    for run in record.runs:
        assert run.exact is True
        assert run.counted == run.estimated, "on the host both are the model's"
        assert (run.counted.cycles or 0) > 0 < (run.counted.axi1_read or 0)
        assert run.hazards is not None
        assert run.hazards.found == ()
        assert all(len(d) == 64 for d in (run.plan_sha256, run.stream_sha256, *(o.sha256 for o in run.outputs)))
    text = (on_host / "evidence.json").read_text(encoding="utf-8")
    assert str(REPOSITORY) not in text
    assert "/tmp" not in text


def test_the_page_says_what_the_record_has(on_host: Path) -> None:
    record = read_record(on_host / "evidence.json")
    text = (on_host / "evidence.html").read_text(encoding="utf-8")
    assert text == record_page(record)
    assert record.sha256 in text
    assert text.count('"bit-exact"') == len(PROGRAMS)
    evil = replace(record, machine="<script>alert(1)</script>")
    assert "<script>alert" not in record_page(evil)


@pytest.mark.parametrize("old, new, message", [
    ('"mismatches": 0', '"mismatches": 1', "was changed after it was made"),
    ('"cycles": ', '"cycles": 1', "was changed after it was made"),
    ("npu_memplan evidence 1", "npu_memplan evidence 2", "this version reads 'npu_memplan evidence 1'"),
    ('"runs": [', '"runs": {', "is no record of evidence"),
])  # fmt: skip
def test_a_changed_record_is_refused(on_host: Path, tmp_path: Path, old: str, new: str, message: str) -> None:
    text = (on_host / "evidence.json").read_text(encoding="utf-8")
    assert old in text
    changed = save(tmp_path / "changed.json", text.replace(old, new, 1))
    with pytest.raises(EvidenceError, match=re.escape(message)):
        read_record(changed)


@pytest.mark.qemu
@pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="needs qemu-system-arm")
def test_arms_own_firmware_is_a_runner_too() -> None:
    """Networks are files for TFLite Micro then, in its arena; cycles are what Arm's driver reads, so estimates."""
    options = RunOptions()
    try:
        record = gather_record("arm-runner", "ethos-u55-128", options, [SMALL])
    except RunnerMissingError as error:
        pytest.skip(f"needs Arm's runners: {error}")
    assert record.verdict_text() == f"4 of 4 programs bit-exact on arm-runner; cycles and beats counted by {MODEL}"
    assert "inference_runner-sse-300" in record.runner_version
    assert record.board == "corstone-300-u55"
    for run in record.runs:
        assert run.flags[-2:] == ("--emit", "vela-tflite")
        assert run.counted.cycles
        assert any("Inference completed" in line for line in run.transcript)
        assert run.hazards is not None
        assert not run.hazards.found


@needs_gcc
@needs_unicorn
def test_counters_come_from_the_firmware(tmp_path: Path) -> None:
    """The firmware programs the PMU and prints it; on an emulator the device counts what the model estimates."""
    record = gather_record("unicorn", "ethos-u55-128", RunOptions(), [SMALL])
    for run in record.runs:
        assert run.exact is True
        assert run.counted == run.estimated
        beats = [run.counted.axi0_read, run.counted.axi0_written, run.counted.axi1_read, run.counted.axi1_written]
        assert f"BEATS {' '.join(map(str, beats))}" in run.transcript
        assert not [line for line in run.transcript if line.startswith("DATA")]
    assert record.board == "corstone-300-u55"


@needs_gcc
def test_a_program_without_a_result_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("qemu-system-arm")
    two = dict(list(PROGRAMS.items())[:2])
    monkeypatch.setattr(gather_module, "PROGRAMS", two)
    done = invoke("evidence", "--on", "qemu", "--only", SMALL, "--timeout", "0.001", "-o", tmp_path / "r", code=1)
    assert done.stdout.startswith("0 of 2 programs bit-exact on qemu, 2 without a result; ")
    record = read_record(tmp_path / "r" / "evidence.json")
    assert all(run.error and run.exact is False for run in record.runs)


def test_a_runner_that_is_not_there(tmp_path: Path) -> None:
    done = invoke("evidence", "--on", "fvp", "--fvp-path", tmp_path, "-o", tmp_path / "r", code=None)
    assert isinstance(done.exception, EvidenceError)
    assert str(done.exception).startswith(f"runner 'fvp' cannot run here: {BINARY}")
    assert not (tmp_path / "r").exists()


def stand_in(folder: Path, text: str) -> Path:
    """An executable in the FVP's place that plays a log; its version says what it is."""
    path = folder / BINARY
    path.write_text(
        f"#!{sys.executable}\nimport sys\n"
        "print('format sample, no FVP 0.0.0' if '--version' in sys.argv else "
        f"{text!r}, end='')\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@needs_gcc
@needs_unicorn
def test_a_log_of_the_fvps_form_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The firmware's lines between those that a simulator prints, with counters of its own."""
    monkeypatch.setattr(gather_module, "PROGRAMS", {"lifted": PROGRAMS["lifted"]})
    (recorded,) = gather_record("unicorn", "ethos-u55-128", RunOptions(), [SMALL]).runs
    # the record has no outputs' bytes: the one element of this network comes from its reference
    (network,) = listed_networks([SMALL])
    parsed = read_network(network.path.read_bytes(), SMALL)
    inputs = read_inputs(SMALL, [parsed.tensors[i] for i in parsed.inputs], ["random:7"])
    (expected,) = TFLiteReference(network.path.read_bytes(), SMALL).run(inputs)
    lines = []
    for line in recorded.transcript:
        lines.append(line)
        if line.startswith("OUTPUT"):
            lines.append(f"DATA {expected.tobytes().hex()}")
    uart = "\r\n".join(lines) + "\r\n\x04"
    uart = re.sub(r"CYCLES \d+", "CYCLES 4711", uart)
    uart = re.sub(r"BEATS [\d ]+", "BEATS 11 12 13 14", uart)
    sample = SAMPLE.read_text(encoding="utf-8")
    assert sample.startswith("# A FORMAT SAMPLE")
    log = sample.partition("\n")[2].replace("{uart}", uart)
    record = gather_record("fvp", "ethos-u55-128", RunOptions(fvp_path=stand_in(tmp_path, log)), [SMALL])
    assert record.counted_by == FVP
    assert record.adapters_set
    assert not record.remarks
    other = stand_in(tmp_path, log.replace("ADAPTERS 2 set=2", "ADAPTERS 2 set=1"))
    remarks = gather_record("fvp", "ethos-u55-128", RunOptions(fvp_path=other), [SMALL]).remarks
    assert "timing adapters" in remarks[0]
    (run,) = record.runs
    assert run.error == ""
    assert run.exact is True
    counted = run.counted
    assert (counted.cycles, counted.axi0_read, counted.axi0_written) == (4711, 11, 12)
    assert (counted.axi1_read, counted.axi1_written) == (13, 14)
    assert run.counted != run.estimated
    assert run.transcript[0].startswith("telnetterminal0")
    ratio = 13 / (run.estimated.axi1_read or 1)
    assert f"| {ratio:.3f} to " in table([record])
    broken = stand_in(tmp_path, log.replace("NPU_MEMPLAN PASS", "NPU_MEMPLAN FAIL"))
    failed = gather_record("fvp", "ethos-u55-128", RunOptions(fvp_path=broken), [SMALL])
    assert failed.verdict_text().startswith("0 of 1 programs bit-exact on fvp, 1 without a result")
