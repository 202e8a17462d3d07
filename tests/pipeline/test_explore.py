"""The front of a model: points that compile to what they say and run bit-exact, in a table, CSV, JSON and a page."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.cache import program_cache
from npu_memplan.commands import run
from npu_memplan.compiler import plan_model
from npu_memplan.options import CompileOptions
from npu_memplan.tuning import pareto
from tests.support.real_data import Models

REPOSITORY = Path(__file__).resolve().parents[2]
MODEL = REPOSITORY / "tests" / "models" / "kws_ref_model.tflite"
HELLO = MODEL.with_name("hello_world_int8.tflite")
DIGITS = REPOSITORY / "examples" / "digits" / "digits.tflite"


def test_points_of_a_front_run_and_are_what_they_say(cli: Callable[..., Any], tmp_path: Path) -> None:
    made = cli.ok("explore", DIGITS, "--sizes", "4KiB,8KiB", "--run", "-o", tmp_path / "front")
    assert made.out.count("bit-exact") == 3
    front = json.loads((tmp_path / "front" / "front.json").read_text())
    points = front["points"]
    fewest = cli("compile", DIGITS, "--objective", "bytes", "--no-check", "--json", "-o", tmp_path / "fewest")
    least = fewest.json["pools"][0]["used_bytes"]
    assert [p["limit_bytes"] for p in points] == [least, 4096, 8192]
    assert points[0]["bytes"] == least
    assert sorted(points, key=lambda p: p["bytes"]) == sorted(points, key=lambda p: -p["cycles"])
    assert [p["bytes"] for p in front["vela"]] == [6144, 5632]
    with (tmp_path / "front" / "front.csv").open() as file:
        assert [int(row["cycles"]) for row in csv.DictReader(file)] == [
            p["cycles"] for p in (*points, *front["vela"], front["default"])
        ]
    page = (tmp_path / "front" / "front.html").read_text()
    assert all(f"{p['cycles']:,}" in page for p in (*points, *front["vela"], front["default"]))
    assert not re.findall(r"(?:src|href)=.https?:", page)
    for point in points:
        artifact = Artifact.load(tmp_path / "front" / "points" / str(point["limit_bytes"]))
        assert artifact.estimated_cycles == point["cycles"]
        assert artifact.pool_bytes("sram") == point["bytes"] <= point["limit_bytes"]
        printed = point["least_milliseconds"], point["most_milliseconds"]
        assert printed == pytest.approx((min(artifact.total_milliseconds), max(artifact.total_milliseconds)))


def test_where_nothing_fits_nothing_is_written(cli: Callable[..., Any], tmp_path: Path) -> None:
    made = cli("explore", MODEL, "--sizes", "1KiB", "-o", tmp_path / "front")
    assert made.code == 2
    assert "no program fits 1,024 bytes of pool sram" in made.err
    assert not (tmp_path / "front").exists()


def test_a_point_that_differs_ends_with_one_and_points_that_were_not_run_say_so(
    monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Any], tmp_path: Path
) -> None:
    made = cli.ok("explore", HELLO, "--sizes", "2KiB", "-q", "-o", tmp_path / "claimed")
    assert re.fullmatch(r"\S+: [\d,]+ bytes of sram in [\d.]+ (to [\d.]+ )?ms .*; 1 point", made.out.splitlines()[0])
    assert made.out.splitlines()[1].startswith("results not checked: --run compiles every point")
    monkeypatch.setattr(run.command, "main", lambda *_, **__: 1)
    made = cli("explore", HELLO, "--sizes", "2KiB", "--run", "-q", "-o", tmp_path / "front")
    assert made.code == 1
    (point,) = (tmp_path / "front" / "points").iterdir()
    assert f"NOT bit-exact, or stopped: {point}" in made.err
    assert (point / "plan.json").is_file()


def test_a_board_gives_its_npu_and_memories(cli: Callable[..., Any], tmp_path: Path) -> None:
    cli.ok("explore", HELLO, "--board", "alif-e7-he", "--sizes", "2KiB", "--run", "-q", "-o", tmp_path / "front")
    artifact = Artifact.load(tmp_path / "front" / "points" / "2048")
    front = json.loads((tmp_path / "front" / "front.json").read_text())
    assert (artifact.target.board, artifact.target.accelerator) == ("alif-e7-he", "ethos-u55-128")
    assert artifact.estimated_cycles == front["points"][0]["cycles"] == front["default"]["cycles"]
    assert front["points"][0]["flags"].startswith("--board alif-e7-he")


def test_a_front_is_explored_once_and_its_programs_are_those_of_compiles(
    cli: Callable[..., Any], shared_model: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = shared_model("micro_speech_quantized")
    monkeypatch.setenv("NPU_MEMPLAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NPU_MEMPLAN_PROGRAM_CACHE", "64MiB")
    first = cli.ok("explore", model, "--sizes", "6KiB", "-o", tmp_path / "1")
    monkeypatch.setattr(pareto, "explore", lambda *_: pytest.fail("it was searched again"))
    second = cli("explore", model, "--sizes", "6KiB", "-o", tmp_path / "2")
    assert second.out.replace(str(tmp_path / "2"), str(tmp_path / "1")) == first.out
    for name in ("front.json", "front.csv", "front.html"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes(), name
    cache = program_cache()
    assert cache is not None
    for options in (CompileOptions(pools={"sram": 6144}), CompileOptions()):
        known = cache.get_program(model, options, lambda: pytest.fail("it was not kept"))
        made = plan_model(model, options)
        assert known.artifact == made.artifact
        assert (known.script, known.sources.texts, known.sources.files) == (
            made.script, made.sources.texts, made.sources.files,
        )  # fmt: skip
