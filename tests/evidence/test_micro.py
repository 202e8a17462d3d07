"""Micro-streams: bit-exact on every runner, each for one mechanism, with what each model of time says of it."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fvp_runner.base import RunOptions
from npu_memplan.cli import cli
from npu_memplan.ethosu.arch import Architecture, accelerator
from npu_memplan.ethosu.stream.commands import Operation
from npu_memplan.ethosu.stream.decode import decode
from npu_memplan.ethosu.stream.isa import Op
from npu_memplan.ethosu.time import MemoryMap, estimate
from npu_memplan.evidence.gather import gather
from npu_memplan.evidence.micro import MICRO_STREAMS, build_micro, micro_options
from npu_memplan.evidence.micro.models import MODELS
from npu_memplan.evidence.page import page
from npu_memplan.evidence.record import EvidenceError, EvidenceRecord, MicroRun, read_record

U55 = accelerator("ethos-u55-256")
needs_gcc = pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="needs arm-none-eabi-gcc")
FEW = ("flash beside", "slices", "sums in a row", "windows gathered")


def memories(npu: Architecture = U55) -> MemoryMap:
    memory_map = micro_options(npu).memory_map()
    assert memory_map is not None
    return memory_map


@pytest.fixture(scope="module")
def record() -> EvidenceRecord:
    return gather("local", U55.name, RunOptions(sanitize=False), micro=True)


def named(record: EvidenceRecord, name: str) -> MicroRun:
    return next(run for run in record.micro if run.name == name)


def test_every_stream_computes_what_numpy_says(record: EvidenceRecord) -> None:
    assert [run.name for run in record.micro] == list(MICRO_STREAMS)
    assert all(run.exact for run in record.micro), [(run.name, run.mismatches, run.error) for run in record.micro]
    assert record.verdict().startswith("16 of 16 micro-streams bit-exact on local; ")
    assert len({run.output_sha256 for run in record.micro}) > 8, "outputs differ from stream to stream"


def test_the_record_has_the_stream_and_what_each_model_says_of_it(record: EvidenceRecord) -> None:
    for run in record.micro:
        commands = decode(run.stream, U55.language)
        assert list(run.predicted) == list(MODELS)
        assert run.counted.cycles == run.predicted["nominal"] == estimate(commands, U55, memories()).total
        assert run.memories == {"0": "flash", "1": "sram"}
    slow = [run for run in record.micro if run.predicted["ports x1.25"] > run.predicted["nominal"]]
    assert len(slow) > 8


def test_a_pair_of_streams_differs_in_its_mechanism_alone(record: EvidenceRecord) -> None:
    """The copies are the one thing that `flash beside` has and `flash alone` lacks; sums differ in what they read."""

    def counts(name: str) -> tuple[int, int]:
        commands = decode(named(record, name).stream, U55.language)
        operations = [c.op for c in commands if isinstance(c, Operation)]
        return operations.count(Op.DMA_START), len(operations) - operations.count(Op.DMA_START)

    assert counts("flash beside") == (8, 24)
    assert counts("flash alone") == (1, 24)
    assert counts("sums in a row") == counts("sums apart") == (0, 256)
    assert counts("slices") == (2, 32)
    apart, row = (named(record, name).counted.cycles for name in ("sums apart", "sums in a row"))
    assert apart is not None
    assert row is not None
    assert apart < row


@pytest.mark.parametrize("npu", ["ethos-u55-64", "ethos-u65-256", "ethos-u65-512"])
def test_other_accelerators_have_the_same_results(npu: str) -> None:
    """What numpy says of a stream does not depend on the accelerator; only its words do."""
    found = gather("local", npu, RunOptions(sanitize=False), FEW, micro=True)
    assert [run.mismatches for run in found.micro] == [0] * len(FEW), [run.error for run in found.micro]
    expected = {name: build_micro(name, U55, memories()).expected for name in FEW}
    again = {name: build_micro(name, accelerator(npu), memories(accelerator(npu))).expected for name in FEW}
    assert all(np.array_equal(expected[name], again[name]) for name in FEW)


@needs_gcc
@pytest.mark.parametrize(
    "runner",
    [
        pytest.param("qemu", marks=pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="needs QEMU")),
        pytest.param(
            "unicorn", marks=pytest.mark.skipif(importlib.util.find_spec("unicorn") is None, reason="needs unicorn")
        ),
    ],
)
def test_they_run_bit_exact_as_firmware(runner: str, record: EvidenceRecord) -> None:
    found = gather(runner, U55.name, RunOptions(timeout_s=600), micro=True)
    assert all(run.exact for run in found.micro), [(run.name, run.mismatches, run.error) for run in found.micro]
    assert [run.output_sha256 for run in found.micro] == [run.output_sha256 for run in record.micro]
    assert [run.words for run in found.micro] == [run.words for run in record.micro]


def test_a_wrong_output_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    written = MICRO_STREAMS["sums apart"].write

    def spoiled(*given: object) -> object:
        stream = written(*given)  # type: ignore[arg-type]
        stream.expected[0, 0, 3] ^= 1
        return stream

    monkeypatch.setattr(type(MICRO_STREAMS["sums apart"]), "write", property(lambda self: spoiled))
    found = gather("local", U55.name, RunOptions(sanitize=False), ("sums apart",), micro=True)
    assert [run.mismatches for run in found.micro] == [1]
    assert "1 WRONG" in found.verdict()


def test_the_command_writes_a_record_and_a_page(tmp_path: Path) -> None:
    requested = ["evidence", "--on", "local", "--micro", "--accelerator", U55.name, "--only", "slices,sums apart"]
    done = CliRunner().invoke(cli, [*requested, "-o", str(tmp_path / "r")])
    assert done.exit_code == 0, done.output
    assert "  slices                 bit-exact" in done.stdout
    found = read_record(tmp_path / "r" / "evidence.json")
    assert [run.name for run in found.micro] == ["slices", "sums apart"]
    text = (tmp_path / "r" / "evidence.html").read_text()
    assert text == page(found)
    assert "the first and last of a kernel&#x27;s few blocks, in two slices" in text
    with pytest.raises(EvidenceError, match="no micro-stream is called 'x'; there are: flash beside, flash alone"):
        gather("local", U55.name, RunOptions(), ("x",), micro=True)
    with pytest.raises(EvidenceError, match="written for Ethos-U55 and Ethos-U65, not for ethos-u85-256"):
        gather("local", "ethos-u85-256", RunOptions(), micro=True)
