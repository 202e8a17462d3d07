"""Plans handed to TFLite-Micro: its own interpreter takes them, uses them, and computes the same."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.models.flatbuffer import NetworkError
from npu_memplan.planners import plan as make_plan
from npu_memplan.problem import BufferKind
from npu_memplan.report.files import ReportError
from npu_memplan.report.tflm import read_model, tflm_model, with_metadata, with_plan
from npu_memplan.verify import check
from tests.support.entry import invoke

runtime = pytest.importorskip("tflite_micro.python.tflite_micro.runtime")
Models = Callable[[str], Path]


def run(model: bytes, arena_bytes: int, seed: int = 0) -> tuple[Any, dict[str, int]]:
    """(output, recorded arena: head, tail, total in bytes) of one inference in TFLite-Micro."""
    interpreter = runtime.Interpreter.from_bytes(model, arena_size=arena_bytes)
    details = interpreter.get_input_details(0)
    limits = np.iinfo(details["dtype"])
    data = np.random.default_rng(seed).integers(limits.min, limits.max, details["shape"], details["dtype"])
    interpreter.set_input(data, 0)
    interpreter.invoke()
    output = interpreter.get_output(0)
    keep = os.dup(2)
    with tempfile.TemporaryFile() as log:  # the C++ runtime writes to descriptor 2
        os.dup2(log.fileno(), 2)
        try:
            interpreter.print_allocations()
        finally:
            os.dup2(keep, 2)
            os.close(keep)
        log.seek(0)
        text = log.read().decode()
    return output, {k: int(v) for k, v in re.findall(r"Arena allocation (\w+) (\d+) bytes", text)}


@pytest.mark.parametrize(
    "name, own_bytes, planned_bytes",
    [("vww_96_int8", 73728, 55296), ("kws_ref_model", 16000, 16000), ("ad01_int8", 768, 768),
     ("person_detect", 55296, 55296)],
)  # fmt: skip
def test_the_interpreter_takes_the_plan(shared_model: Models, name: str, own_bytes: int, planned_bytes: int) -> None:
    model = read_model(shared_model(name))
    plan = make_plan(model.problem)
    check(model.problem, plan)
    assert plan.usage[0].used_bytes == planned_bytes
    planned = with_plan(model, plan)
    expected, before = run(model.content, 400_000)
    output, after = run(planned, 400_000)
    np.testing.assert_array_equal(output, expected)
    assert (before["head"], after["head"]) == (own_bytes, planned_bytes)
    # and it runs in an arena that has room for exactly this plan and the persistent part
    tight = planned_bytes + after["tail"] + 2048  # recording itself and alignment take some
    np.testing.assert_array_equal(run(planned, tight)[0], expected)


def test_a_smaller_arena_is_possible_only_with_the_plan(shared_model: Models) -> None:
    model = read_model(shared_model("vww_96_int8"))
    planned = with_plan(model, make_plan(model.problem))
    arena = 55296 + 29952 + 4096
    run(planned, arena)
    with pytest.raises(RuntimeError):
        run(model.content, arena)


def test_a_wrong_plan_is_noticed_by_the_comparison(shared_model: Models) -> None:
    """All tensors at offset 0: the file is accepted and the answer is wrong, so the test above can fail."""
    model = read_model(shared_model("vww_96_int8"))
    plan = make_plan(model.problem)
    broken = replace(plan, placements=tuple(replace(p, offset_bytes=0) for p in plan.placements))
    expected, _ = run(model.content, 400_000)
    output, _ = run(with_plan(model, broken), 400_000)
    assert not np.array_equal(output, expected)


def test_metadata_keeps_the_model_as_it_was(shared_model: Models) -> None:
    import tflite

    content = shared_model("kws_ref_model").read_bytes()
    once = with_metadata(content, "note", b"hello")
    twice = with_metadata(once, "note", b"hello again")
    assert twice.index(content) % 64 == 0
    old, new = tflite.Model.GetRootAs(content, 0), tflite.Model.GetRootAs(twice, 0)
    assert new.Version() == old.Version()
    assert new.Description() == old.Description()
    assert new.OperatorCodesLength() == old.OperatorCodesLength()
    assert new.BuffersLength() == old.BuffersLength() + 2
    for i in range(old.BuffersLength()):
        np.testing.assert_array_equal(new.Buffers(i).DataAsNumpy(), old.Buffers(i).DataAsNumpy())
    entries = {new.Metadata(i).Name(): new.Metadata(i).Buffer() for i in range(new.MetadataLength())}
    assert len(entries) == old.MetadataLength() + 1
    assert new.Buffers(entries[b"note"]).DataAsNumpy().tobytes() == b"hello again"
    assert tflite.Model.ModelBufferHasIdentifier(twice, 0)


def test_lifetimes_are_those_of_tflite_micro(shared_model: Models) -> None:
    model = read_model(shared_model("ad01_int8"))
    kinds = [b.kind for b in model.problem.buffers]
    assert kinds.count(BufferKind.INPUT) == kinds.count(BufferKind.OUTPUT) == 1
    last = max(b.lifetimes[0].last for b in model.problem.buffers)
    for b in model.problem.buffers:
        if b.kind is BufferKind.INPUT:
            assert b.lifetimes[0].first == 0
        if b.kind is BufferKind.OUTPUT:
            assert b.lifetimes[0].last == last


def test_report_writes_it(small: Artifact, shared_model: Models, tmp_path: Path) -> None:
    import hashlib

    path = shared_model("vww_96_int8")
    replace(small, source_sha256=hashlib.sha256(path.read_bytes()).hexdigest()).save(tmp_path)
    out = tmp_path / "planned.tflite"
    result = invoke("report", tmp_path, "--tflm", out, "--model", path)
    assert "55,296 bytes (54.00 KiB), optimal" in result.output
    np.testing.assert_array_equal(run(out.read_bytes(), 400_000)[0], run(path.read_bytes(), 400_000)[0])


def test_refusals(small: Artifact, shared_model: Models, tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"is not the small\.tflite that small was compiled from"):
        read_model(shared_model("ad01_int8"), small)
    with pytest.raises(ReportError, match="cannot read the model"):
        read_model(tmp_path / "none.tflite")
    with pytest.raises(NetworkError, match="text is not a TFLite file: bytes 4 to 8 must be TFL3"):
        tflm_model(b"not a model", "text")
    small.save(tmp_path)
    result = invoke("report", tmp_path, "--tflm", tmp_path / "out.tflite", code=None)
    assert "give --model MODEL.tflite" in str(result.exception)
