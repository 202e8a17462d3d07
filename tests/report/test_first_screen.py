"""What a compile prints: at most eight lines, the important ones first."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.artifact.model import CheckResult, CheckVerdict, FirstDifference
from npu_memplan.artifact.timing import Timing
from npu_memplan.compiler import plan_model
from npu_memplan.options import CompileOptions
from npu_memplan.report.text.compile_result import verdict
from npu_memplan.report.text.first_screen import LINES, WIDTH, first_screen, objective_text
from tests.support.real_data import Models

PLACE = Path("build/small")


def screen(artifact: Artifact) -> str:
    lines = first_screen(artifact, PLACE)
    assert len(lines) <= LINES
    assert all(len(line) <= WIDTH for line in lines)
    return "\n".join(lines)


def test_a_real_compile_is_beside_vela(shared_model: Models) -> None:
    artifact = plan_model(shared_model("kws_ref_model"), CompileOptions(effort="quick")).artifact
    ours, vela = artifact.pool_bytes("sram"), artifact.vela_arena_bytes["sram"]
    lines = first_screen(artifact, PLACE)
    assert lines[0].startswith(f"kws_ref_model: sram {ours:,} bytes, {artifact.plan.status.value}; NPU about 0.")
    assert lines[1].startswith(f"Vela's own program: sram {vela:,} bytes (here -")
    assert " ms by our estimate (here -" in lines[1]
    assert lines[3].startswith("selected: native lowering, ")
    assert lines[2].startswith("Results: 13 operators, all expected exact (not run) against tflite-micro")
    assert "objective: the fewest cycles within Vela's bytes, then the fewest bytes within 1 % of them" in lines
    assert lines[-1] == "written to build/small; npu-memplan explain build/small has the memory map"
    assert len(lines) <= LINES


def test_a_board_has_vela_beside_and_its_memories(shared_model: Models) -> None:
    artifact = plan_model(shared_model("kws_ref_model"), CompileOptions(board="alif-e7-hp", effort="quick")).artifact
    assert artifact.timing is not None
    assert artifact.backend == "native lowering"  # and still has Vela's figures
    assert artifact.estimated_cycles is not None
    assert 0 < artifact.estimated_cycles < sum(artifact.timing.vela_stream_bounds.values())
    lines = first_screen(artifact, PLACE)
    assert lines[2].startswith("Vela's own program: sram 22,192 bytes (here ")
    assert any(line.startswith("alif-e7-hp: SRAM0 ") for line in lines)


def test_the_host_is_in_the_verdict(shared_model: Models) -> None:
    def first(**requested: Any) -> str:
        made = plan_model(shared_model("keyword_scrambled_8bit"), CompileOptions(**requested))
        text = "\n".join(first_screen(made.artifact, PLACE))
        assert made.artifact.npu_operations or "selected: " not in text
        return verdict(made.artifact)

    himax = {"board": "himax-we2", "accelerator": "ethos-u55-64"}
    assert re.search(
        r"; about 0\.\d+ (to .* )?ms \(estimated; the range is the NPU's\): "
        r"NPU [\d.]+ %, CPU [\d.]+ % \(\d+ calls\)$",
        first(**himax),
    )
    alone = first(accelerator="none")
    assert "NPU" not in alone
    assert re.search(r"; CPU about [\d,]+ cycles \(estimated\), 15 calls$", alone)  # of a clock that is not known
    every = ",".join(("FULLY_CONNECTED", "SVDF", "SOFTMAX", "QUANTIZE"))
    nothing = first(**himax, host_ops=tuple(every.split(",")))
    assert re.search(r"optimal; nothing runs on the NPU; CPU about [\d.]+ ms \(estimated\), 15 calls$", nothing)


def test_what_has_no_room_is_counted(small: Artifact) -> None:
    few = screen(replace(small, notes=("first",)))
    assert "note: first" in few
    assert "more in" not in few
    many = screen(
        replace(small, notes=tuple(f"number {k} {'of many ' * 12}" for k in range(9)), files={"memory": "m.txt"})
    )
    shown = many.count("note: ")
    assert shown < 9
    assert f"{9 - shown} more in build/small/m.txt" in many


def test_a_long_path_hides_nothing(small: Artifact) -> None:
    every = [replace(small, notes=("a note",) * k) for k in range(LINES)]
    deep = Path("a-folder-of-a-long-name/" * 5)
    texts = [["\n".join(first_screen(artifact, place)) for artifact in every] for place in (PLACE, deep)]
    assert texts[0] == [text.replace(str(deep), str(PLACE)) for text in texts[1]]


def test_wrong_results_come_first(small: Artifact) -> None:
    wrong = CheckResult(
        CheckVerdict.DIFFERS, reference="tflite-micro", elements=9, mismatches=3, max_abs_diff=2.0, unit="LSB",
        first=FirstDifference("random:0"),
    )  # fmt: skip
    text = screen(replace(small, check=wrong, notes=tuple(str(k) * 300 for k in range(4))))
    assert text.splitlines()[1].startswith("Results: NOT exact: 3 of 9 elements differ")


def test_the_same_and_what_vela_does_not_say(small: Artifact) -> None:
    assert "Vela's own program" not in screen(replace(small, vela_arena_bytes={}, timing=None))
    used = small.pool_bytes("sram")
    assert f"Vela's own program: sram {used:,} bytes (here the same)\n" in screen(
        replace(small, vela_arena_bytes={"sram": used}, timing=Timing(1e6, {}))
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (CompileOptions(), "the fewest cycles within Vela's bytes, then the fewest bytes within 1 % of them"),
        (CompileOptions(objective="cycles"), "the fewest cycles within Vela's bytes"),
        (CompileOptions(objective="bytes"), "the fewest bytes"),
        (CompileOptions(stripes=True), "the fewest bytes of one program"),
        (CompileOptions(pools={"sram": 9}), "the fewest cycles within --pool"),
        (CompileOptions(board="himax-we2", objective="cycles"), "the fewest cycles within the memory of the board"),
        (
            CompileOptions(board="himax-we2"),
            "the fewest cycles within Vela's bytes, then the fewest bytes within 1 % of them",
        ),
        (CompileOptions(max_ms=0.5), "the fewest bytes in which an inference takes at most 0.5 ms (--max-ms)"),
    ],
)
def test_the_objective_is_the_one_that_was_asked_for(options: CompileOptions, said: str) -> None:
    assert objective_text(options) == said
