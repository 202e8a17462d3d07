"""Bad input gets one clear message, exit code 2, and leaves nothing behind. The texts are part of the interface."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.entry import QUICK
from tests.support.saving import save

MODEL = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"hello, I am no model",
            "model.tflite is not a TFLite file: bytes 4 to 8 must be TFL3, but are b'o, I' (20 bytes in all); "
            "give a .tflite flatbuffer",
        ),
        (
            b"",
            "model.tflite is not a TFLite file: bytes 4 to 8 must be TFL3, but are b'' (0 bytes in all); "
            "give a .tflite flatbuffer",
        ),
    ],
    ids=["text", "empty"],
)
def test_what_is_no_model(cli, tmp_path: Path, content: bytes, message: str) -> None:
    path = save(tmp_path / "model.tflite", content)
    outcome = cli("compile", *QUICK, path, "-o", tmp_path / "out")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == f"npu-memplan: {message}\n"
    assert [p.name for p in tmp_path.iterdir()] == ["model.tflite"]


@pytest.mark.parametrize(
    ("name", "command", "message"),
    [
        ("a.h5", "compile", "a.h5 is a model of TensorFlow; convert it to an int8 .tflite"),
        ("a.tflite", "run", "what Vela compiled runs with: npu-memplan simulate"),
        ("a.tflite", "report", "make one with: npu-memplan compile"),
        ("a.onnx", "explain", "a.onnx -o DIRECTORY"),
        ("a.elf", "run", "firmware of your own runs with: npu-memplan run --elf"),
        ("a.csv", "report", "give its plan with --plan PLAN"),
    ],
)
def test_a_file_for_another_command_names_that(cli, tmp_path: Path, name: str, command: str, message: str) -> None:
    path = save(tmp_path / name, b"12345678 no model")
    outcome = cli(command, path, *(("-o", tmp_path / "out") if command == "compile" else ()))
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


NPUS = (
    "ethos-u55-32, ethos-u55-64, ethos-u55-128, ethos-u55-256, ethos-u65-256, ethos-u65-512, ethos-u85-128, "
    "ethos-u85-256, ethos-u85-512, ethos-u85-1024, ethos-u85-2048"
)
MODES = "Shared_Sram, Dedicated_Sram, Dedicated_Sram_256KB, Dedicated_Sram_384KB, Dedicated_Sram_512KB"
REFUSED = {
    "--accelerator ethos-u99": (
        f"unknown accelerator 'ethos-u99'; did you mean ethos-u55-32 or ethos-u55-64? known: {NPUS}, none"
    ),
    "--memory-mode Bar": f"unknown memory mode 'Bar'; known: Sram_Only, {MODES}",
    "--pool dram=1MiB": "--pool names 'dram', but memory mode Shared_Sram has: sram; name one of these",
    "--pool sram=lots": "cannot read the size 'lots'; write bytes or a unit, e.g. 98304, 96KiB or 1.5MiB",
    "--host-ops SOFTMIN": (
        "--host-ops names 'SOFTMIN', but digits.tflite has no such operator; it has: ADD, AVERAGE_POOL_2D, CONV_2D, "
        "DEPTHWISE_CONV_2D, FULLY_CONNECTED, RESHAPE, SOFTMAX"
    ),
    "--accelerator none --host-ops SOFTMAX": "names operators to keep off the NPU, but --accelerator none has no NPU",
    "--constant-pool sram": "--constant-pool sram has the name of a pool for other buffers; give it another name",
    "--max-ms 1 --accelerator none": "--max-ms is of the NPU's estimated time, but --accelerator none has no NPU",
    "--max-ms 1 --objective bytes": "by its time, in the least memory; leave out --objective bytes",
    "--max-ms 1 --planner linear": "--planner linear and ethos-u55-256 were requested",
    "--max-ms 1 --emit vela-tflite": "chooses one program by its time, --emit by something else; leave one out",
    "--resident auto": "no size",
    "--resident some": "none of none, auto, all",
    "--resident all --accelerator none": "has no NPU",
    "--resident all --pool sram=8KiB --effort quick": "--resident all needs",
    "--io rows=image": "'rows=image' is not one of 'file', 'int8'",
    "--stream-input image": "--stream-input is no option: a pool holds whole inputs",
    "--stripes --npu-compiler vela": (
        "leave out --npu-compiler vela, and name an --accelerator (Vela cuts its own: --npu-compiler vela,Size)"
    ),
    "--stripes --npu-compiler tvm --accelerator none": "leave out --npu-compiler vela, and name an --accelerator",
    "--board corstone-300": "did you mean corstone-300-u55 or corstone-300-u65?",
    "--accelerator ethos-u55-257": "did you mean ethos-u55-256?",
    "--accelerator ethos-u65": "did you mean ethos-u65-256 or ethos-u65-512?",
    "--memory-mode Shared_SRAM": "did you mean Shared_Sram?",
    "--system-config Ethos_U55_High_End": "unknown; did you mean Ethos_U55_High_End_Embedded? known: ",
}


@pytest.mark.parametrize("options", REFUSED)
def test_options_that_mean_nothing(cli, tmp_path: Path, options: str) -> None:
    cli.refuses(REFUSED[options], MODEL, *options.split(), out=tmp_path / "out.tflite")


def test_a_pool_that_is_too_small(cli, tmp_path: Path) -> None:
    outcome = cli("compile", MODEL, "-o", tmp_path / "out", "--pool", "sram=4KiB", "--npu-compiler", "vela")
    assert (outcome.code, outcome.out) == (2, "")
    lines = outcome.err.splitlines()
    assert lines[0] == "npu-memplan: digits does not fit pool sram:"
    assert [line.split()[:2] for line in lines[1:4]] == [
        ["required", "6,144"],
        ["available", "4,096"],
        ["excess", "2,048"],
    ]
    assert "npu.feature_map0" in outcome.err
    assert "  (without --npu-compiler vela) " in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_a_full_output_directory_needs_force(cli, tmp_path: Path) -> None:
    out = tmp_path / "out"
    cli.ok("compile", MODEL, "-o", out, "--accelerator", "none")
    outcome = cli("compile", *QUICK, MODEL, "-o", out)
    assert outcome.code == 2
    assert outcome.err == (
        f"npu-memplan: {out} has a compiled model; give --force to replace it, or choose another directory\n"
    )
    cli.ok("report", out)  # its files are ours too
    (out / "mine.txt").write_text("precious")
    outcome = cli("compile", *QUICK, MODEL, "-o", out, "--force")
    assert outcome.code == 2
    assert outcome.err == (
        f"npu-memplan: {out} is not replaced: it has files that were added or changed since it was written: mine.txt; "
        "move them, or choose another directory\n"
    )
    assert (out / "mine.txt").read_text() == "precious"
    (out / "mine.txt").unlink()
    cli.ok("compile", MODEL, "-o", out, "--force", "--accelerator", "none")
    assert not (out / "report.html").exists(), "a report of the model before"


def test_a_plan_of_plan_is_no_compiled_model(cli, tmp_path: Path) -> None:
    """What took a repository with it: any file called plan.json had made a folder replaceable."""
    (tmp_path / "p.csv").write_text("id,lower,upper,size\na,0,2,64\n")
    (tmp_path / "thesis.txt").write_text("five years")
    cli.ok("plan", tmp_path / "p.csv", "-o", tmp_path / "plan.json")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    outcome = cli("compile", *QUICK, MODEL, "-o", tmp_path, "--force")
    assert outcome.code == 2
    assert "is not empty and is not a compiled model of npu_memplan's" in outcome.err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_run_wants_an_artifact(cli, tmp_path: Path) -> None:
    outcome = cli("run", tmp_path, "--on", "local")
    assert outcome.code == 2
    assert outcome.err == (
        f"npu-memplan: {tmp_path} is no compiled model: cannot read {tmp_path}/plan.json (No such file or directory); "
        f"make one with: npu-memplan compile MODEL.tflite -o {tmp_path}\n"
    )
    program = tmp_path / "none.pte"  # which is no directory to compile into
    outcome = cli("report", program)
    assert (outcome.code, outcome.err) == (2, f"npu-memplan: cannot read {program}: No such file or directory\n")
