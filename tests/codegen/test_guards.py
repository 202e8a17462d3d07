"""A run holds the plan to its constraints before anything is built, and finds what is written past a pool."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from fvp_runner.base import PlanRefusedError, RunOptions
from fvp_runner.firmware_build.sources import lay_out
from fvp_runner.guards import GUARD_BYTES, GuardError
from fvp_runner.host import runner as host
from fvp_runner.runner import RUNNERS, create
from npu_memplan.artifact.model import TensorSlot
from npu_memplan.cli import main
from npu_memplan.compiler import compile_model
from npu_memplan.options import CompileOptions
from npu_memplan.target_data import load_board
from tests.support.entry import invoke
from tests.support.needs import need_runner
from tests.support.plain_artifacts import plain_artifact, write

IN = TensorSlot("in", "int8", (1, 16), "sram", 0, 16, 1.0, 0)
OUT = TensorSlot("out", "int8", (1, 16), "sram", 32, 16, 1.0, 0)
VALUES = np.arange(16, dtype=np.int8).reshape(1, 16)
POOL_BYTES = 67  # an odd one: the guard begins at the very next byte


def toy(directory: Path, statement: str) -> Path:
    artifact = plain_artifact("toy", "ethos-u55-128", POOL_BYTES, (IN,), (OUT,))
    write(
        replace(artifact, calls=()),
        directory,
        f"int32_t toy_step(uint8_t *const pools[]) {{ {statement} return 0; }}\n",
    )
    return directory


RIGHT = "for (int i = 0; i < 67; i++) pools[0][i] = (uint8_t)i;"
WRONG = {
    "one byte behind": ("pools[0][67] = 1;", 67, 1),
    "one byte before": ("pools[0][-1] = 0;", -1, 1),
    "a copy of poison": ("for (int i = 60; i < 80; i++) pools[0][i] = 0xA5;", 67, 13),
    "the last guard": (f"pools[0][67 + {GUARD_BYTES} - 1] = 1;", 67 + GUARD_BYTES - 1, 1),
    "both sides": ("pools[0][-3] = 0; pools[0][70] = 0;", -3, 2),
    "and it fails": ("pools[0][68] = 1; if (pools[0][0] != 200) return -7;", 68, 1),
}


@pytest.fixture(autouse=True)
def no_sanitizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it would have stopped before is what guards are to notice."""
    monkeypatch.setenv("NPU_MEMPLAN_SANITIZE", "0")


@pytest.mark.parametrize("runner", [name for name in RUNNERS if name != "fvp"])
def test_a_program_that_keeps_to_its_pool_passes(runner: str, tmp_path: Path) -> None:
    need_runner(runner)
    ran = create(runner, toy(tmp_path / "toy", RIGHT), RunOptions(timeout_s=60.0)).run([VALUES])
    np.testing.assert_array_equal(ran.outputs[0].reshape(-1), np.arange(32, 48))


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("runner", [name for name in RUNNERS if name != "fvp"])
def test_a_write_past_the_pool_is_named(runner: str, case: str, tmp_path: Path) -> None:
    need_runner(runner)
    statement, offset, count = WRONG[case]
    machine = create(runner, toy(tmp_path / "toy", statement), RunOptions(timeout_s=60.0, checks=False))
    with pytest.raises(GuardError) as error:
        machine.run([VALUES])
    assert str(error.value).startswith(
        f"toy wrote outside pool 'sram', which has bytes [0, 67): the first is byte {offset}, {count} of the guard "
    )


def test_the_command_calls_it_a_wrong_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setattr(
        "sys.argv", ["npu-memplan", "run", str(toy(tmp_path / "toy", "pools[0][67] = 1;")), "--on", "local"]
    )

    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 1
    assert "the first is byte 67, 1 of the guard bytes around it have changed" in capfd.readouterr().err


def test_guards_take_only_room_that_is_left() -> None:
    board = load_board("corstone-300-u55")

    def guard(pool_bytes: int, memory_bytes: int | None = None) -> int:
        memories = tuple(
            structs.replace(m, size_bytes=memory_bytes) if m.name == "ISRAM" and memory_bytes else m
            for m in board.memories
        )
        artifact = plain_artifact("toy", "ethos-u55-128", pool_bytes, (IN,), (OUT,))
        return lay_out(artifact, structs.replace(board, memories=memories)).guards_bytes[0]

    assert guard(67) == GUARD_BYTES
    assert guard(0x200000) == 0, "a pool may have all of its memory"
    assert guard(0x200000 - 1000) == 480
    assert guard(0x200000 - 17) == 0


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "used_bytes": (
        lambda plan: plan["pools"][0].update(used_bytes=plan["pools"][0]["used_bytes"] - 1),
        r"wrong usage: the plan states (\d+) bytes used of pool 'sram', its placements end at (\d+)",
    ),
    "two in one place": (
        lambda plan: [row.update(offset_bytes=0) for row in plan["buffers"]],
        r"overlap: '.*' and '.*' share bytes",
    ),
    "misaligned": (
        lambda plan: [row.update(alignment=1 << 14) for row in plan["buffers"]],
        "misaligned: .* not a multiple of 16384",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("runner", RUNNERS)
def test_a_wrong_plan_is_refused_before_anything_is_built(
    runner: str, change: str, digits: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tmp_path / "changed"
    shutil.copytree(digits("SOFTMAX"), folder, ignore=shutil.ignore_patterns("firmware"))
    plan = json.loads((folder / "plan.json").read_text())
    edit, words = CHANGES[change]
    edit(plan)
    (folder / "plan.json").write_text(json.dumps(plan))
    shutil.rmtree(folder / "src")  # what is never built is not missed
    message = rf"(?s)^{re.escape(str(folder / 'plan.json'))} is not run: .* violates \d+ constraints?:.*{words}"
    with pytest.raises(PlanRefusedError, match=message):
        create(runner, folder)
    with pytest.raises(PlanRefusedError, match=message):
        host.LocalRunner(folder)


def test_a_plan_changed_in_agreement_is_caught_by_the_guards(example: Path, tmp_path: Path) -> None:
    """Placements and heights agree, but the C was printed for another plan: the pool ends before the C does."""
    folder = tmp_path / "changed"
    artifact = compile_model(example, CompileOptions(accelerator="none"), folder)
    (usage,) = artifact.plan.usage
    ends = {p.buffer: p.offset_bytes + artifact.problem.buffer(p.buffer).size_bytes for p in artifact.plan.placements}
    height = max(end for end in ends.values() if end < usage.used_bytes)  # without what lies on top
    cut = {name: end - height for name, end in ends.items() if end > height}
    buffers = tuple(replace(b, size_bytes=b.size_bytes - cut.get(b.name, 0)) for b in artifact.problem.buffers)
    plan = replace(artifact.plan, usage=(replace(usage, used_bytes=height, lower_bound_bytes=0),))
    replace(artifact, problem=replace(artifact.problem, buffers=buffers), plan=plan).save(folder)
    values = [np.zeros(slot.shape, slot.dtype) for slot in artifact.inputs]
    with pytest.raises(GuardError, match=rf"has bytes \[0, {height}\): the first is byte {height}, "):
        host.LocalRunner(folder, RunOptions(checks=False)).run(values)


def test_help_says_that_the_c_is_run() -> None:
    said = " ".join(invoke("run", "--help").output.split())
    assert "--on local compiles its C and runs it in this process: run only artifacts that you trust." in said
