"""The least memory that is fast enough, and limits of memory one after the other."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npu_memplan import pipeline
from npu_memplan.artifact import Artifact
from npu_memplan.options import CompileOptions
from npu_memplan.request import request
from npu_memplan.tuning.limits import LimitSearch

MODELS = Path(__file__).resolve().parents[1] / "models"
DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"
KWS = MODELS / "kws_ref_model.tflite"


@pytest.mark.parametrize(("model", "max_ms", "at_most"), [(DIGITS, 0.1, 6400), (KWS, 0.16, 20800)])
def test_the_least_memory_that_is_fast_enough(
    model: Path, max_ms: float, at_most: int, cli: Callable[..., Any], tmp_path: Path
) -> None:
    requested = ("--max-ms", str(max_ms), "--effort", "quick")
    requested += ("--npu-compiler", "vela") if model == KWS else ()
    made = cli.ok("compile", model, *requested, "--json", "-o", tmp_path / "out")
    assert made.json["estimated_cycles"] <= 500_000 * max_ms
    (sram,) = made.json["pools"]
    (note,) = (text for text in made.json["notes"] if text.startswith("--max-ms "))
    found = re.fullmatch(r"--max-ms ([\d.]+): [\d.]+ ms in ([\d,]+) bytes of sram; ([\d,]+) bytes are not enough", note)
    assert found is not None, note
    taken, refused = (int(text.replace(",", "")) for text in found.groups()[1:])
    assert refused < taken == sram["used_bytes"] <= at_most
    assert sram["capacity_bytes"] is None
    assert Artifact.load(tmp_path / "out").target.max_ms == max_ms
    cli.bit_exact(tmp_path / "out", model, "--input", "random:3")
    if model == DIGITS:  # of one backend a --pool compares no programs
        pool = "--pool", f"sram={taken}", "--effort", "quick"
        same = cli.ok("compile", model, *pool, "--json", "-o", tmp_path / "same").json
        assert (same["pools"][0]["used_bytes"], same["estimated_cycles"]) == (taken, made.json["estimated_cycles"])
    # with what is said not to be enough, it is slower, or does not fit
    less = cli("compile", model, "--pool", f"sram={refused}", *requested[2:], "--json", "-o", tmp_path / "less")
    assert less.code == 2 or less.json["estimated_cycles"] > 500_000 * max_ms


def test_nothing_is_fast_enough(cli: Callable[..., Any], tmp_path: Path) -> None:
    made = cli("compile", DIGITS, "--max-ms", "0.01", "--effort", "quick", "-o", tmp_path / "out")
    assert (made.code, made.out) == (2, "")
    first, *rest = made.err.splitlines()
    assert first == (
        "npu-memplan: digits.tflite: no program that was found takes at most 0.01 ms on ethos-u55-256 at 500 MHz:"
    )
    assert rest[0] == "  requested  5,000 cycles"
    select_fastest = re.fullmatch(r"  fastest    ([\d,]+) cycles, ([\d.]+) ms, in [\d,]+ bytes of sram", rest[1])
    assert select_fastest is not None
    assert int(select_fastest[1].replace(",", "")) == pytest.approx(500_000 * float(select_fastest[2]), rel=0.01)
    assert re.fullmatch(r"  at least   [\d,]+ cycles, [\d.]+ ms, to read its constants once", rest[2])
    assert rest[3].startswith("what to try: --max-ms 0.0")
    assert not (tmp_path / "out").exists()


def test_more_memory_is_never_slower() -> None:
    """Of limit_search one after the other: what won in less memory is in every later one."""
    options = CompileOptions(objective="bytes").resolve_defaults()
    memory_map = options.memory_map()
    assert memory_map is not None
    auto = CompileOptions(pools={"sram": 1}).resolve_defaults()
    limits = LimitSearch(auto, memory_map, lambda requested: pipeline.lower(pipeline.read(DIGITS, request(requested))))
    found = [limits.fastest_within(size) for size in (2048, 3584, 4400, 5000, 1 << 20)]
    assert found[0] is None
    won = [winner for winner in found if winner is not None]
    assert len(won) == 4
    assert [w.cycles for w in won] == sorted((w.cycles for w in won), reverse=True)
    assert won[0].cycles > 2 * won[-1].cycles
