"""The two commands of the README on the example model, and everything they promise to print."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.commands.compile import parse_options
from npu_memplan.problem import BufferKind
from tests.support.entry import QUICK

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits"
MODEL = EXAMPLE / "digits.tflite"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, compiled once with the defaults."""
    from npu_memplan.compiler import compile_model
    from npu_memplan.options import CompileOptions

    out = tmp_path_factory.mktemp("digits") / "out"
    compile_model(MODEL, CompileOptions(objective="bytes", effort="quick"), out)
    return out


def test_compile_prints_the_plan_and_run_says_bit_exact(cli, tmp_path) -> None:
    out = tmp_path / "digits"
    made = cli.ok("compile", *QUICK, MODEL, "--accelerator", "ethos-u55-256", "--memory-mode", "Shared_Sram", "-o", out)
    assert made.out.startswith("digits: sram 6,144 bytes, optimal; ")
    assert "Vela's own program: sram 6,144 bytes (here the same); " in made.out
    assert len(made.out.splitlines()) <= 8
    ran = cli.ok("run", out, "--on", "local", "--input", "random:7", "--reference", MODEL)
    assert "runner local" in ran.out
    assert ran.out.splitlines()[0].endswith("bit-exact")


def test_the_artifact_holds_what_it_says(compiled: Path) -> None:
    artifact = Artifact.load(compiled)
    assert all((compiled / path).is_file() for path in artifact.files.values())
    assert {p.name for p in (compiled / "src").iterdir()} == {
        "digits.c",
        "digits.cmake",
        "digits.h",
        "digits.mk",
        "digits_host.c",
        "digits_npu.c",
        "npu_memplan_runtime.h",
    }
    assert Artifact.from_json(artifact.to_json()) == artifact
    assert artifact.to_json() == (compiled / "plan.json").read_text()
    assert [o.kind for o in artifact.operators].count("CONV_2D") == 5
    assert {b.kind for b in artifact.problem.buffers} >= {BufferKind.INPUT, BufferKind.OUTPUT, BufferKind.NPU_INTERNAL}


def test_json_of_compile_has_the_promised_keys(cli, tmp_path: Path) -> None:
    made = cli.ok("compile", *QUICK, MODEL, "-o", tmp_path / "out", "--json")
    document = made.json
    assert document["status"] == "optimal"
    assert document["pools"] == [
        {"name": "sram", "capacity_bytes": None, "used_bytes": 6144, "lower_bound_bytes": 6144}
    ]
    assert (document["objective"], document["limits"], document["vela_arena_bytes"]) == ("bytes", {}, 6144)
    assert (document["fits"], document["board"], document["memories"]) == (None, None, [])
    assert document["estimated_ms"] == 1000 * document["estimated_cycles"] / 500e6
    assert document["vela_stream_cycles"] > 0
    assert document["vela_estimated_cycles"] > 0
    assert parse_options(document["options"]).resolve_defaults() == Artifact.load(tmp_path / "out").target
    assert document["npu_operations"] == 39
    assert document["host_operations"] == 0
    assert document["estimated_cycles"] == Artifact.load(tmp_path / "out").estimated_cycles > 0
    assert document["npu_macs"] > 0


def test_vela_is_not_compared_where_it_counts_other_things(cli, tmp_path: Path) -> None:
    """It leaves out what host operators need, and the user of Vela has no such program."""
    made = cli.ok("compile", *QUICK, MODEL, "-o", tmp_path / "out", "--host-ops", "SOFTMAX")
    assert "Vela's own program" not in made.out
    assert Artifact.load(tmp_path / "out").vela_arena_bytes == {}


def test_real_digits_are_recognised(cli, compiled: Path, tmp_path: Path) -> None:
    samples = np.load(EXAMPLE / "samples.npz")
    right = 0
    for index in range(8):
        np.save(tmp_path / "in.npy", samples["images"][index : index + 1])
        cli.ok("run", compiled, "--on", "local", "--input", tmp_path / "in.npy", "--output", tmp_path / "out.npy")
        right += int(np.load(tmp_path / "out.npy").argmax()) == samples["labels"][index]
    assert right == 8


@pytest.mark.parametrize("planner", ["first-fit", "greedy-by-size", "greedy-by-conflicts", "hill-climb", "linear"])
def test_every_planner_runs_right(cli, tmp_path: Path, planner: str) -> None:
    out = tmp_path / planner
    made = cli.ok("compile", *QUICK, MODEL, "-o", out, "--planner", planner, "--json")
    assert made.json["planner"] == planner
    if planner == "linear":
        assert made.json["pools"][0]["used_bytes"] > 6144
    cli.ok("run", out, "--on", "local", "--reference", MODEL)


@pytest.mark.parametrize(
    "options",
    [
        ("--memory-mode", "Sram_Only"),
        ("--accelerator", "ethos-u65-512"),
        ("--accelerator", "ethos-u65-256", "--pool", "sram=4KiB", "--npu-compiler", "arena=4KiB"),
        ("--accelerator", "ethos-u55-32", "--npu-compiler", "Size"),
        ("--host-ops", "SOFTMAX"),
        ("--host-ops", "FULLY_CONNECTED,SOFTMAX,ADD"),
        ("--accelerator", "none"),
        ("--resident", "inputs"),
        ("--host-ops", "ADD"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_every_option_runs_right(cli, tmp_path: Path, options: tuple[str, ...]) -> None:
    """The effort of a search is no concern of theirs: the first has the default's."""
    out = tmp_path / "out"
    effort = () if options == ("--memory-mode", "Sram_Only") else ("--effort", "quick")
    made = cli.ok("compile", MODEL, "-o", out, *options, *effort, "--json")
    ran = cli.ok("run", out, "--on", "local", "--input", "random:5", "--reference", MODEL, "--json")
    assert ran.json["bit_exact"]
    for pool in json.loads(made.out)["pools"]:
        assert pool["capacity_bytes"] is None or pool["used_bytes"] <= pool["capacity_bytes"]


def test_host_operators_share_the_arena_with_the_npu(cli, tmp_path: Path) -> None:
    out = tmp_path / "out"
    cli.ok("compile", *QUICK, MODEL, "-o", out, "--host-ops", "FULLY_CONNECTED,SOFTMAX")
    artifact = Artifact.load(out)
    kinds = {b.kind for b in artifact.problem.buffers}
    assert kinds >= {BufferKind.TENSOR, BufferKind.HOST_SCRATCH, BufferKind.NPU_INTERNAL}
    assert len(artifact.problem.pools) == 1
    assert artifact.host_operations == 2
