"""`compile --emit vela-tflite`: one file, what it says of it, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import Result

from npu_memplan.checking import claims
from npu_memplan.errors import InternalError, NpuMemplanError
from npu_memplan.ethosu import weight_codec
from npu_memplan.process.incidents import STRICT
from tests.support.entry import QUICK, invoke
from tests.support.real_data import real_model
from tests.support.sliced_batch import split_then

MODEL = str(real_model("micro_speech_quantized"))


def compiled(output: Path, *more: str) -> Result:
    return invoke("compile", MODEL, "--emit", "vela-tflite", *QUICK, "-o", output, *more, code=None)


def test_the_file_says_what_its_firmware_needs(tmp_path: Path) -> None:
    output = tmp_path / "speech.tflite"
    done = compiled(output)
    assert done.exit_code == 0, done.output
    assert "arena      5,968 bytes planned (optimal); Vela's own: 5,968" in done.output
    assert "results    4 operators, 3 expected exact (not run) against tflite-micro: the check is off" in done.output
    assert "within a step of tflite-micro: FULLY_CONNECTED (float32 scales: ties differ)" in done.output  # it is Vela's
    assert "operators  ethos-u: the resolver has to know these" in done.output
    simulated = invoke("simulate", output, "--reference", MODEL, "--json", code=None)
    assert json.loads(simulated.output)["bit_exact"] is True
    taken = compiled(output)
    assert isinstance(taken.exception, NpuMemplanError)
    assert str(taken.exception) == f"{output} exists already; give --force to replace it, or another --output"
    said = json.loads(compiled(output, "--force", "--json").output)
    assert (said["arena_bytes"], said["operators"], said["fast_memory_bytes"]) == (5968, ["ethos-u"], 0)
    assert said["check"]["verdict"] == "not checked"
    assert said["file_bytes"] == output.stat().st_size


@pytest.mark.parametrize(
    ("more", "available", "whose"),
    [
        (("--board", "alif-e7-hp"), 4 << 20, "alif-e7-hp"),
        (("--pool", "sram=6000"), 6000, "--pool"),
        (("--board", "alif-e7-hp", "--pool", "sram=7KiB"), 7168, "--pool"),
        ((), None, ""),
    ],
)
def test_it_says_whether_the_arena_fits(
    more: tuple[str, ...], available: int | None, whose: str, tmp_path: Path
) -> None:
    output = compiled(tmp_path / "speech.tflite", *more).output
    figures = json.loads(compiled(tmp_path / "speech.tflite", *more, "--force", "--json").output)
    assert figures["available_bytes"] == available
    said = f"fits       {figures['arena_bytes']:,} of {available:,} bytes that {whose} has" if available else None
    assert [line for line in output.splitlines() if line.startswith("fits")] == ([said] if said else [])


def test_an_arena_above_velas_names_the_pool_that_keeps_it(tmp_path: Path) -> None:
    given = "compile", str(real_model("kws_ref_model")), "--emit", "vela-tflite", "--board", "alif-e7-hp"
    words = (*given, "--objective", "cycles", "--effort", "quick", "--no-check", "-o", str(tmp_path / "kws.tflite"))
    said = invoke(*words, code=None).output
    (theirs,) = re.findall("Vela's own: ([0-9,]+)", said)
    assert f"larger than Vela's, for fewer cycles: --pool sram={theirs.replace(',', '')} keeps that" in said


@pytest.mark.parametrize("way", ["auto", "vela"])
def test_a_pool_that_is_too_small_is_said_as_by_compile(way: str, tmp_path: Path) -> None:
    done = compiled(tmp_path / "x.tflite", "--pool", "sram=1KiB", "--npu-compiler", way)
    assert str(done.exception).startswith("micro_speech_quantized does not fit pool sram:\n  required   ")
    assert "--accelerator none" not in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_fast_memory_counts_in_the_arena(tmp_path: Path) -> None:
    """Arm's firmware needs its bytes there, too: the tensor has an offset like any other."""
    file = tmp_path / "speech.tflite"
    target = "--accelerator", "ethos-u65-256", "--memory-mode", "Dedicated_Sram"
    done = compiled(file, *target)
    fast = json.loads(compiled(file, *target, "--force", "--json").output)["fast_memory_bytes"]
    assert "which TFLite Micro counts in its arena, too" in done.output
    said = invoke("check", file, "--arena", fast - 16, code=None).output
    assert f"the planned tensors need {fast:,}: 16 too few" in said


def test_what_it_cannot_do_is_reported_before_any_work(tmp_path: Path) -> None:
    folder = compiled(tmp_path / "build")
    assert "give --output a name that ends in .tflite" in str(folder.exception)
    assert not list(tmp_path.iterdir())


def test_the_file_is_compared_with_its_reference(tmp_path: Path) -> None:
    done = compiled(tmp_path / "x.tflite", "--check")
    assert "3 exact against tflite-micro; checked on 2 inputs (NPU model, with the reference's kernels" in done.output
    said = json.loads(compiled(tmp_path / "x.tflite", "--check", "--force", "--json").output)
    assert (said["check"]["verdict"], said["check"]["inputs"]) == ("equal", ["random:0", "extreme"])


def test_a_wrong_file_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every shift in the scale tables of native lowering is one too small: the CPU has the operator, or nobody."""
    monkeypatch.setenv(STRICT, "0")
    encode = weight_codec.encode_scales
    monkeypatch.setattr(
        weight_codec, "encode_scales", lambda biases, scales, shifts: encode(biases, scales, [s - 1 for s in shifts])
    )
    model, output = tmp_path / "conv.tflite", tmp_path / "x.tflite"
    model.write_bytes(split_then("CONV_2D", batch=1))
    words = ["compile", str(model), "--emit", "vela-tflite", "--npu-compiler", "tvm", "-o", str(output)]
    done = invoke(*words, "--check", code=None)
    assert "operator 1 CONV_2D 't4' differs from tflite-micro" in done.output
    assert "CONV_2D: the resolver has to know these" in done.output
    output.unlink()
    monkeypatch.setattr(claims, "_TRIED", 0)
    wrong = invoke(*words, "--check", code=None)
    assert isinstance(wrong.exception, InternalError)
    assert "first in operator 1 CONV_2D" in str(wrong.exception)
    assert list(tmp_path.iterdir()) == [model]
