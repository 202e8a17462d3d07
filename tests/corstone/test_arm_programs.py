"""Programs and command lines that nobody here wrote: Arm's compiled inference runners, and the FVPs' options.

Invariant: Arm's binaries are those of the wheel `mlia-ethos-u`, unchanged; every byte of every output is compared.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fvp_runner.base import RunnerMissingError
from fvp_runner.emulators import arm_runner
from fvp_runner.emulators.arm_runner import find_application
from fvp_runner.emulators.fvp_command import FvpOptionError, parse_options
from fvp_runner.emulators.own_elf import ElfRun
from fvp_runner.firmware_build.build import Elf
from npu_memplan.cli import cli
from npu_memplan.ethosu.arch import accelerator
from tests.support.real_data import real_model

FVP = "FVP_Corstone_SSE-300_Ethos-U55"
MODELS = Path(__file__).resolve().parent.parent / "models"


def fvp(*words: str) -> Result:
    return CliRunner().invoke(cli, ["fvp", *words])


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
    done = CliRunner().invoke(cli, ["compile", str(real_model("micro_speech_quantized")), *words.split()])
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
    assert (zephyr.parameter("uart0.shutdown_tag"), zephyr.ignored) == ("EXITTHESIM", ("-Q",))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["-a"], "-a has no value"),
        (["-C", "ethosu.num_macs"], "has no value; write NAME=VALUE"),
        (["--data", "net.tflite"], "is no FILE@ADDRESS"),
        (["--data", "net.tflite@here"], "is no address or size"),
        (["--dump", "out.bin@0x93000000"], "is no FILE@ADDRESS,SIZE"),
        (["--timelimit", "soon"], "is no number of seconds"),
        (["--stat"], "was given no program"),
        (["-a", "net.elf", "-C", "ethosu.num_macs=7"], "ethos-u55 has 32, 64, 128, 256 multipliers"),
        (["-a", "net.elf", "-C", "cpu0.semihosting-cwd=/no/such/folder"], "there is no folder"),
    ],
)
def test_wrong_options_are_refused_by_name(words: list[str], reason: str) -> None:
    done = fvp(FVP, *words)
    assert isinstance(done.exception, FvpOptionError)
    assert reason in str(done.exception)


def test_an_unknown_model_and_one_without_a_machine_are_named() -> None:
    assert "no FVP is called" in str(fvp("FVP_Base").exception)
    assert "QEMU has no such board" in str(fvp("FVP_Corstone_SSE-320", "--version").exception)


def test_the_version_says_that_it_is_not_arms(qemu: None) -> None:
    assert "this is not Arm's FVP" in fvp(FVP, "--version").output


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
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, (done.output, done.exception)
    assert "our model of the NPU: bit-exact" in done.output
    assert "as Arm's firmware printed it: arena" in done.output


def test_arms_executorch_computes_what_our_model_does(arm_application: Path) -> None:
    done = CliRunner().invoke(cli, ["run", str(MODELS / "three_convolutions_u55.pte"), "--on", "arm-runner"])
    assert done.exit_code == 0, (done.output, done.exception)
    assert "our model of the NPU: bit-exact" in done.output
    assert "peak of temporary memory 39,808 bytes" in done.output


def test_a_wrong_result_of_arms_program_is_called_wrong(
    arm_application: Path, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = arm_runner.run_elf

    def flip(*given: Any, **named: Any) -> ElfRun:
        ran = run(*given, **named)
        return replace(ran, contents=(bytes([ran.contents[0][0] ^ 1]) + ran.contents[0][1:],))

    monkeypatch.setattr(arm_runner, "run_elf", flip)
    source = str(real_model("micro_speech_quantized"))
    done = CliRunner().invoke(cli, ["run", str(network), "--on", "arm-runner", "--reference", source])
    assert done.exit_code == 1, done.output
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
    assert "stopped by --timelimit" in done.stderr
