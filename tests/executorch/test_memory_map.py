"""`report` of `.pte` files: planned tensors and the contents of the scratch, where the file has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from npu_memplan.cli import cli
from npu_memplan.commands.report import open_artifact
from npu_memplan.executorch.memory_map import memory_of, most_held
from npu_memplan.models.executorch.program import read_program
from npu_memplan.problem import Agent
from npu_memplan.verify import verify
from tests.support.entry import invoke
from tests.support.pte_file import Calls, Tensor, pte_file

MODELS = Path(__file__).resolve().parents[1] / "models"


@pytest.mark.parametrize(
    ("name", "heights"),
    [
        ("three_convolutions_u65", {"planned1": 61440, "scratch": 12288, "fast_scratch": 39808}),
        ("three_convolutions_u85", {"planned1": 61440, "scratch": 81920}),
    ],
)
def test_the_map_of_a_real_program(name: str, heights: dict[str, int]) -> None:
    program = read_program((MODELS / f"{name}.pte").read_bytes(), name)
    found = memory_of(program, program.methods[0])
    assert found.notes == ()
    assert {usage.pool: usage.used_bytes for usage in found.plan.usage} == heights
    assert verify(found.problem, found.plan) == ()
    inside = [b.name for b in found.problem.buffers if b.name.startswith("call1.")]
    assert "call1.input0" in inside
    assert any("feature_map" in one for one in inside)


def test_tensors_that_share_bytes_may_do_so_where_they_lie() -> None:
    values = [Tensor("int8", (16,), (1, 0)), Tensor("int8", (8,), (1, 4)), Tensor("int8", (16,), (1, 32))]
    program = read_program(
        pte_file([Calls(values, [0], [2], [("kernel", "a.out", [0, 1]), ("kernel", "b.out", [1, 0, 2])], [0, 64])])
    )
    found = memory_of(program, program.methods[0])
    assert [(o.first, o.second, o.lowest, o.highest) for o in found.problem.overlaps] == [("value0", "value1", 4, 4)]
    assert found.plan.usage[0].lower_bound_bytes == 32
    assert found.problem.points == ("0 a.out", "1 b.out")


def test_most_held_counts_shared_bytes_once() -> None:
    assert most_held([(0, 16, 0, 2), (8, 24, 1, 3), (100, 110, 2, 4)]) == 26
    assert most_held([]) == 0


def test_a_stream_that_cannot_be_lifted_is_one_block() -> None:
    data = bytearray((MODELS / "three_convolutions_u85.pte").read_bytes())
    at = data.index(b"scratch_size")
    data[at + 32 : at + 36] = (40960).to_bytes(4, "little")
    program = read_program(bytes(data))
    found = memory_of(program, program.methods[0])
    assert "the contents of the scratch at instruction 1 are not shown" in found.notes[0]
    assert {u.pool: u.used_bytes for u in found.plan.usage} == {"planned1": 61440, "scratch": 40960}


def test_the_command_writes_a_page_and_the_table(tmp_path: Path) -> None:
    file = str(MODELS / "three_convolutions_u65.pte")
    done = CliRunner().invoke(cli, ["report", file, "-o", str(tmp_path), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    files = [Path(path) for path in json.loads(done.output)["files"].values()]
    assert files
    assert all(path.stat().st_size for path in files)
    table = CliRunner().invoke(cli, ["report", file, "--table"], catch_exceptions=False).output
    assert "fast_scratch   39,808" in table
    refused = invoke("report", file, "--method", "x", "--table", code=None)
    assert refused.exit_code != 0


@pytest.mark.parametrize("name", ["three_convolutions_u65", "three_convolutions_u85"])
def test_reports_have_the_delegates_with_the_time_that_simulate_says(name: str) -> None:
    file = MODELS / f"{name}.pte"
    artifact = open_artifact(file)
    simulated = json.loads(CliRunner().invoke(cli, ["simulate", str(file), "--json"], catch_exceptions=False).output)
    assert f"{artifact.estimated_cycles}" in json.dumps(simulated)
    assert [(call.function, call.agent) for call in artifact.calls if call.agent is Agent.NPU] == [
        ("delegate 0", Agent.NPU)
    ]
    assert (artifact.npu_operations, artifact.host_operations) == (
        sum(layer.operations for layer in artifact.layers),
        2,
    )
    assert artifact.constants_bytes > 0
    for call in artifact.calls:
        assert call.reads
        assert call.writes


def test_explain_and_diff_take_programs(tmp_path: Path) -> None:
    file = MODELS / "three_convolutions_u65.pte"
    said = CliRunner().invoke(cli, ["explain", str(file)], catch_exceptions=False).output
    assert "delegate 0  NPU" in said
    done = CliRunner().invoke(cli, ["diff", str(file), str(file), "--exit-code"], catch_exceptions=False)
    assert done.exit_code == 0, done.output


def test_a_compile_that_gains_nothing_says_what_would(tmp_path: Path) -> None:
    command = ["compile", str(MODELS / "three_convolutions_u85.pte"), "-o", str(tmp_path / "new.pte")]
    done = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert "nothing was gained for unchanged firmware; --emit one-arena" in done.output
