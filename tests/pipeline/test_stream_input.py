"""`compile --io rows=NAME`: an input that comes row by row, in chunks of any size."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fvp_runner.base import RunnerError, RunOptions
from fvp_runner.host import runner as host
from npu_memplan.artifact import Artifact
from npu_memplan.artifact.model import CheckVerdict
from npu_memplan.ethosu.arch.configurations import ETHOS_U85
from npu_memplan.problem import Fed
from npu_memplan.verify import Constraint, verify
from tests.support.needs import need_runner
from tests.support.random_networks import network

TABLES = ("ethos-u55-256", "ethos-u85-256", "ethos-u85-1024")
QUICK = ("--effort", "quick", "--no-check")
MODEL = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, whose input of 16 rows comes bit by bit."""
    from npu_memplan.compiler import compile_model
    from npu_memplan.options import CompileOptions

    out = tmp_path_factory.mktemp("streamed") / "out"
    compile_model(MODEL, CompileOptions(stream_input="image"), out)
    return out


def test_random_chunks_are_bit_exact(cli: Callable, streamed: Path) -> None:
    cli.bit_exact(streamed, MODEL, "--steps", 20)
    artifact = Artifact.load(streamed)
    assert artifact.stream is not None
    assert artifact.inputs[0].shape == (1, 16, 16, 1)
    assert artifact.inputs[0].size_bytes < 16 * 16
    assert artifact.stream[1].feeds[-1].rows == artifact.stream[1].rows == 16
    assert len(artifact.stream[1].feeds) > 1


def test_every_chunk_size_gives_the_same(streamed: Path) -> None:
    runner = host.create(streamed, RunOptions())
    values = np.random.default_rng(2).integers(-128, 128, (1, 16, 16, 1), dtype=np.int8)
    found = set()
    for count in range(1, 17):
        runner._fed.chunk_rows = lambda rows, count=count: [min(count, rows - at) for at in range(0, rows, count)]
        found.add(runner.run([values]).outputs[0].tobytes())
    assert len(found) == 1
    runner._fed.chunk_rows = lambda rows: [rows + 1]
    with pytest.raises(RunnerError, match="digits_run returned -1"):
        runner.run([values])


def test_firmware_feeds_rows_too(cli: Callable, streamed: Path) -> None:
    need_runner("unicorn")
    ran = cli("run", streamed, "--on", "unicorn", "--reference", MODEL)
    assert ran.out.splitlines()[0].endswith("bit-exact"), ran.err


def test_the_verifier_follows_the_rows(streamed: Path) -> None:
    artifact = Artifact.load(streamed)
    problem, plan = artifact.problem, artifact.plan
    assert verify(problem, plan) == ()
    (stream,) = problem.streams
    early = replace(stream, feeds=(Fed(0, stream.feeds[1].rows), *stream.feeds[2:]))
    late = replace(stream, feeds=stream.feeds[:-1])
    for broken in (early, late):
        found = verify(replace(problem, streams=(broken,)), plan)
        assert {v.constraint for v in found} == {Constraint.STREAM}


@pytest.mark.parametrize("wrong", ["% DIGITS_INPUT_0_KEPT_ROWS", "due[made] <= fed"])
def test_rows_in_wrong_places_are_found(cli: Callable, streamed: Path, tmp_path: Path, wrong: str) -> None:
    import shutil

    shutil.copytree(streamed, broken := tmp_path / "broken")
    source = broken / "src" / "digits.c"
    text = source.read_text()
    assert wrong in text
    other = {
        "% DIGITS_INPUT_0_KEPT_ROWS": "% (DIGITS_INPUT_0_KEPT_ROWS - 1)",
        "due[made] <= fed": "due[made] <= fed + 3",
    }
    source.write_text(text.replace(wrong, other[wrong]))
    assert cli("run", broken, "--on", "local", "--reference", MODEL).code != 0


def test_a_pool_with_a_size_and_copies_of_weights(cli: Callable, tmp_path: Path) -> None:
    options = ("--io", "rows=image", "--pool", "sram=6KiB", "--emit", "arm-core-driver", "--json")
    made = cli.ok("compile", MODEL, *options, "-o", tmp_path / "out")
    assert made.json["pools"][0]["used_bytes"] <= 6 * 1024
    cli.bit_exact(tmp_path / "out", MODEL, "--steps", 5)


def test_too_small_a_pool_is_reported(cli: Callable, tmp_path: Path) -> None:
    """Ways to need less that cannot be had with a streamed input are not proposed, and are no error of their own."""
    made = cli("compile", MODEL, "--io", "rows=image", "--pool", "sram=512", *QUICK, "-o", tmp_path / "out")
    assert made.code == 2
    assert "does not fit pool sram" in made.err
    assert not any(flag in made.err for flag in ("--stripes", "--npu-compiler"))


@pytest.mark.parametrize("npu", [a.name for a in ETHOS_U85])
def test_every_ethos_u85_is_bit_exact(cli: Callable, tmp_path: Path, npu: str) -> None:
    options = ("--io", "rows=image", "--accelerator", npu)
    cli.ok("compile", MODEL, *options, "-o", tmp_path / "out")
    cli.bit_exact(tmp_path / "out", MODEL, "--steps", 20)
    artifact = Artifact.load(tmp_path / "out")
    assert artifact.stream is not None
    assert artifact.inputs[0].size_bytes < 16 * 16
    assert len(artifact.stream[1].feeds) > 1


@pytest.mark.parametrize(
    ("seed", "pools", "npu"),
    [
        *((48, {}, npu) for npu in TABLES),
        *((393, {}, npu) for npu in TABLES),
        *((825, {"sram": "1MiB"}, npu) for npu in TABLES),
    ],
)
def test_tables_are_loaded_in_every_part(tmp_path: Path, seed: int, pools: dict[str, str], npu: str) -> None:
    """The NPU model forgets them between two launches."""
    import tflite

    import npu_memplan as nm

    model = tmp_path / "random.tflite"
    model.write_bytes(network(seed))
    graph = tflite.Model.GetRootAs(model.read_bytes(), 0).Subgraphs(0)
    name = graph.Tensors(graph.Inputs(0)).Name().decode()
    made = nm.compile(model, tmp_path / "out", stream_input=name, accelerator=npu, pools=pools, check=True)
    assert made.check.verdict is CheckVerdict.EQUAL
    assert made.stream is not None
    assert len(made.stream[1].feeds) > 1


def test_an_input_without_rows_is_reported(cli: Callable, tmp_path: Path, shared_model: Callable) -> None:
    made = cli("compile", shared_model("ad01_int8"), "--io", "rows=input_1", "-o", tmp_path / "out")
    assert made.code == 2
    assert "it is int8[1, 640], and rows are of" in " ".join(made.err.split())


def test_a_person_detector_needs_less_than_its_input(cli: Callable, tmp_path: Path, shared_model: Callable) -> None:
    model = shared_model("vww_96_int8")
    options = ("--io", "rows=input_1_int8", "--no-check", "--json")
    made = cli.ok("compile", model, *options, "-o", tmp_path / "out")
    assert made.json["pools"][0]["used_bytes"] < 96 * 96 * 3
    cli.bit_exact(tmp_path / "out", model, "--steps", 3)
    assert re.search(r"#define \w+_KEPT_ROWS \d+", (tmp_path / "out" / "src" / "vww_96_int8.h").read_text())


def test_rows_that_save_nothing_are_reported(cli: Callable, tmp_path: Path, shared_model: Callable) -> None:
    """The peak of one of two networks of one architecture is behind its first layers: its input has a channel only."""
    found = []
    for name, tensor, size in (("person_detect", "input", "14592"), ("vww_96_int8", "input_1_int8", "16384")):
        flags = ("--io", f"rows={tensor}", "--pool", f"sram={size}", *QUICK)
        cli.ok("compile", shared_model(name), *flags, "-o", tmp_path / name)
        found.append([note for note in Artifact.load(tmp_path / name).notes if "take no bytes of their own" in note])
    assert [len(notes) for notes in found] == [1, 0]
    assert "the other buffers need 14,592 too" in found[0][0]
