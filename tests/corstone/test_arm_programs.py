"""Programs and command lines that nobody here wrote: Arm's compiled inference runners, and the FVPs' options.

Invariant: Arm's binaries are those of the wheel `mlia-ethos-u`, unchanged; every byte of every output is compared.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fvp_runner.base import RunnerMissingError
from fvp_runner.emulators import arm_runner
from fvp_runner.emulators.arm_runner import find_application
from fvp_runner.emulators.fvp_command import FvpOptionError, parse_options
from fvp_runner.emulators.own_elf import ElfRun
from fvp_runner.firmware_build.build import Elf
from npu_memplan.ethosu.arch import accelerator
from tests.support.entry import invoke
from tests.support.real_data import real_model

FVP = "FVP_Corstone_SSE-300_Ethos-U55"
MODELS = Path(__file__).resolve().parent.parent / "models"


def fvp(*words: str) -> Result:
    return invoke("fvp", *words, code=None)


@pytest.fixture(scope="module")
def arm_application(qemu: None) -> Path:
    try:
        return find_application("tflm", accelerator("ethos-u55-256"))[0]
    except RunnerMissingError as error:
        pytest.skip(f"needs Arm's runners: {error}")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """micro_speech for TFLite Micro, planned again."""
    path = tmp_path_factory.mktemp("arm") / "micro_speech.tflite"
    words = f"--accelerator ethos-u55-256 --memory-mode Shared_Sram --emit vela-tflite --effort quick -o {path}"
    done = invoke("compile", real_model("micro_speech_quantized"), *words.split(), code=None)
    assert done.exit_code == 0, (done.output, done.exception)
    return path


def test_options_of_other_peoples_scripts_are_understood() -> None:
    mlia = (
        "-a runner.axf --data net.tflite@0x90000000 -C ethosu.num_macs=256 "
        "-C mps3_board.telnetterminal0.start_telnet=0 "
        "-C mps3_board.uart0.out_file='-' -C mps3_board.uart0.shutdown_on_eot=1 "
        "-C mps3_board.visualisation.disable-visualisation=1 --stat"
    )
    found = parse_options(mlia.split())
    assert found.program == Path("runner.axf")
    assert found.data == ((Path("net.tflite"), 0x9000_0000),)
    assert found.parameter("ethosu.num_macs") == "256"
    assert found.parameter("uart0.out_file") == "-"
    assert (found.flag_value("uart0.shutdown_on_eot", False), found.stat, found.ignored) == (True, True, ())
    executorch = [
        "-C", "mps4_board.subsystem.ethosu.num_macs=256", "-C", "mps4_board.subsystem.ethosu.extra_args='--fast'",
        "-C", "mps4_board.subsystem.cpu0.semihosting-enable=1", "-C", "mps4_board.subsystem.cpu0.semihosting-cwd=out",
        "-C", "mps4_board.subsystem.cpu0.semihosting-cmd_line='executor_runner -m a.pte -o out'",
        "-C", "mps4_board.subsystem.cpu0.semihosting-stack_base=0", "-a", "executor_runner.elf", "--timelimit", "600",
    ]  # fmt: skip
    found = parse_options(executorch)
    assert found.parameter("cpu0.semihosting-cmd_line") == "executor_runner -m a.pte -o out"
    assert (found.timelimit_s, found.parameter("ethosu.num_macs"), found.ignored) == (600.0, "256", ())
    zephyr = parse_options(["-C", "mps3_board.uart0.shutdown_tag=EXITTHESIM", "-Q", "100", "zephyr.elf"])
    assert (zephyr.parameter("uart0.shutdown_tag"), zephyr.ignored) == ("EXITTHESIM", ("-Q", "100"))
    unknown = parse_options(["-a", "runner.axf", "--quantum", "100"])
    assert (unknown.program, unknown.ignored) == (Path("runner.axf"), ("--quantum", "100"))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["-a"], "-a has no value"),
        (["-C", "ethosu.num_macs"], "has no value; write NAME=VALUE"),
        (["--data", "net.tflite"], "is no FILE@ADDRESS"),
        (["--data", "net.tflite@here"], "is no address or size"),
        (["--dump", "out.bin@0x93000000"], "is no FILE@ADDRESS,SIZE"),
        (["--timelimit", "soon"], "is no number of seconds"),
        (["--timelimit", "nan"], "is no number of seconds above 0"),
        (["-f", "nothing.cfg"], "-f: cannot read nothing.cfg: No such file"),
        (["-a", "net.elf", "--data", "none.bin@0"], "--data: cannot read none.bin: No such file"),
        (["-a", "net.elf", "--data", __file__ + "@0xF0000000"], "no memory has"),
        (
            ["-a", "net.elf", "--dump", "o.bin@0x70000000,0x7ffffffff"],
            "--dump o.bin: no memory has 34,359,738,367 bytes",
        ),
        (["-a", "net.elf", "--dump", "o.bin@0x70000000,-5"], "no memory has -5 bytes at 0x70000000; there are: ITCM"),
        (["--stat"], "was given no program"),
        (["-a", "net.elf", "-C", "ethosu.num_macs=7"], "ethos-u55 has 32, 64, 128, 256 multipliers"),
        (["-a", "net.elf", "-C", "cpu0.semihosting-cwd=/no/such/folder"], "there is no folder"),
    ],
)
def test_wrong_options_are_refused_by_name(words: list[str], reason: str) -> None:
    done = fvp(FVP, *words)
    assert isinstance(done.exception, FvpOptionError)
    assert reason in str(done.exception)


def test_an_unknown_model_is_named_with_those_that_there_are() -> None:
    said = str(fvp("FVP_Base").exception)
    assert "no FVP is called 'FVP_Base'; there are: " in said
    assert sum(f"SSE-{series}" in said for series in (300, 310, 315, 320)) == 4


@pytest.mark.parametrize("name", [FVP, "FVP_Corstone_SSE-315", "FVP_Corstone_SSE-320"])
def test_the_version_says_that_it_is_not_arms(name: str, qemu: None) -> None:
    said = fvp(name, "--version").output
    assert f"stand-in for {name}, on QEMU" in said
    assert "this is not Arm's FVP" in said


def test_installed_models_start_and_replace_nothing_of_others(tmp_path: Path, qemu: None) -> None:
    assert fvp("install", str(tmp_path / "fvps")).exit_code == 0
    assert fvp("install", str(tmp_path / "fvps")).exit_code == 0  # its own are renewed
    executable = tmp_path / "fvps" / FVP
    said = subprocess.run([executable, "--version"], capture_output=True, text=True, check=True).stdout
    assert FVP in said
    executable.write_text("#!/bin/sh\n")
    assert "not a stand-in" in str(fvp("install", str(tmp_path / "fvps")).exception)


def test_a_segment_more_keeps_the_program(arm_application: Path) -> None:
    elf = Elf.load(arm_application)
    more = elf.with_segment(0x9000_0000, b"network")
    assert (more.entry, more.symbols) == (elf.entry, elf.symbols)
    assert more.segments[:-1] == elf.segments
    assert bytes(more.read(0x9000_0000, 7) or b"") == b"network"
    assert [bytes(more.read(s.virtual, 4) or b"") for s in elf.segments if s.file_bytes] == [
        bytes(elf.read(s.virtual, 4) or b"") for s in elf.segments if s.file_bytes
    ]


@pytest.mark.parametrize("board", ["corstone-300-u55", "corstone-310"])
def test_arms_tflite_micro_computes_what_the_reference_does(board: str, arm_application: Path, network: Path) -> None:
    source = str(real_model("micro_speech_quantized"))
    words = ["run", str(network), "--on", "arm-runner", "--board", board, "--reference", source, "--input", "random:5"]
    done = invoke(*words, code=None)
    assert done.exit_code == 0, (done.output, done.exception)
    assert "our model of the NPU: bit-exact" in done.output
    assert "as Arm's firmware printed it: arena" in done.output


def test_arms_tflite_micro_of_ethos_u85_computes_what_the_reference_does(arm_application: Path, tmp_path: Path) -> None:
    """Its code lies where QEMU's machine has no memory of its own."""
    path, source = tmp_path / "speech.tflite", str(real_model("micro_speech_quantized"))
    words = f"--accelerator ethos-u85-256 --emit vela-tflite --effort quick -o {path}".split()
    invoke("compile", source, *words)
    done = invoke("run", path, "--on", "arm-runner", "--reference", source, code=None)
    assert done.exit_code == 0, (done.output, done.exception)
    assert "sse-320" in done.output
    assert "our model of the NPU: bit-exact" in done.output


PROGRAMS = [
    ("three_convolutions_u55", "39,808"),
    ("three_convolutions_u85", "81,920"),
    ("channels_last_u55", "37,008"),  # its input is given as it lies in memory
]


@pytest.mark.parametrize(("name", "peak"), PROGRAMS)
def test_arms_executorch_computes_what_our_model_does(name: str, peak: str, arm_application: Path) -> None:
    done = invoke("run", MODELS / f"{name}.pte", "--on", "arm-runner", code=None)
    assert done.exit_code == 0, (done.output, done.exception)
    assert "our model of the NPU: bit-exact" in done.output
    assert f"peak of temporary memory {peak} bytes" in done.output


def test_a_network_for_another_memory_mode_is_refused_with_the_runners_own(
    arm_application: Path, tmp_path: Path
) -> None:
    """Arm's runner of Ethos-U65 gives the driver 384 KiB of fast memory; Shared_Sram takes the whole arena as such."""
    path, source = tmp_path / "large.tflite", str(real_model("mobilenet_v2_pt2tflite_int8"))
    if not Path(source).exists():
        pytest.skip(f"needs {source}")
    words = f"--accelerator ethos-u65-256 --memory-mode Shared_Sram --emit vela-tflite --npu-compiler vela -o {path}"
    invoke("compile", source, *words.split(), "--effort", "quick")
    done = invoke("run", path, "--on", "arm-runner", code=None)
    assert isinstance(done.exception, arm_runner.ArmRunnerError)
    assert "it is built for memory mode Dedicated_Sram, with 393,216 bytes of fast memory" in str(done.exception)


def test_a_wrong_result_of_arms_program_is_called_wrong(
    arm_application: Path, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = arm_runner.run_elf

    def flip(*given: Any, **named: Any) -> ElfRun:
        ran = run(*given, **named)
        return replace(ran, contents=(bytes([ran.contents[0][0] ^ 1]) + ran.contents[0][1:],))

    monkeypatch.setattr(arm_runner, "run_elf", flip)
    source = str(real_model("micro_speech_quantized"))
    done = invoke("run", network, "--on", "arm-runner", "--reference", source, code=1)
    assert "1 of 4 elements differ" in done.output


def test_mlias_command_line_ends_and_prints_its_counters(arm_application: Path, network: Path, tmp_path: Path) -> None:
    dump, uart = tmp_path / "out.bin", tmp_path / "uart.txt"
    words = f"-a {arm_application} --data {network}@0x90000000 -C ethosu.num_macs=256 --stat --dump {dump}@0x93000000,4"
    more = f"-C mps3_board.uart0.out_file={uart} -C mps3_board.uart0.shutdown_on_eot=1 -C mps3_board.unknown=3"
    done = fvp(FVP, *words.split(), *more.split())
    assert done.exit_code == 0, (done.output, done.exception)
    assert "NPU cycles (estimated)" in done.output
    assert "without effect here: mps3_board.unknown" in done.stderr
    text = uart.read_bytes().decode()
    assert "<metrics>" in text
    assert text.endswith("program terminating...\r\n")
    assert dump.stat().st_size == 4


def test_a_program_that_goes_on_is_stopped_by_the_limit(arm_application: Path, network: Path) -> None:
    words = f"-a {arm_application} --data {network}@0x90000000 -C ethosu.num_macs=256 --timelimit 1"
    done = fvp(FVP, *words.split(), "-C", "uart0.out_file=/dev/null")
    assert done.exit_code == 1
    assert "Info: Simulation is stopping. Reason: CPU time has been exceeded." in done.stderr
    assert "stopped by --timelimit" in done.stderr
