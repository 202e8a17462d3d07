"""The FVP runner with everything but Arm's binary: command lines, and stand-ins that lie or fail."""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fvp_runner.base import FirmwareError, RunnerError, RunnerMissingError, RunOptions, RunTimeoutError
from fvp_runner.emulators.unicorn import UnicornRunner
from fvp_runner.firmware_build.build import Elf, Firmware, build
from fvp_runner.firmware_build.sources import lay_out, program_header
from fvp_runner.fvp import FvpError, FvpRunner, command_line, find_binary
from fvp_runner.runner import create
from npu_memplan.artifact.model import TensorSlot
from npu_memplan.target_data import load_board
from tests.support.entry import invoke
from tests.support.plain_artifacts import plain_artifact, vela_artifact, write

IN = TensorSlot("in", "int8", (1, 16), "sram", 0, 16, 1.0, 0)
OUT = TensorSlot("out", "int8", (1, 16), "sram", 32, 16, 1.0, 0)
ADD_ONE = """int32_t toy_step(uint8_t *const pools[]) {
  for (int i = 0; i < 16; i++) pools[0][32 + i] = (uint8_t)(pools[0][i] + 1);
  return 0;
}
"""
VALUES = np.arange(16, dtype=np.int8).reshape(1, 16)
BINARY = "FVP_Corstone_SSE-300_Ethos-U55"


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory, arm_gcc: None) -> Path:
    """An artifact whose host operator adds one, built for cortex-m33 so that Unicorn runs it too."""
    directory = tmp_path_factory.mktemp("toy") / "toy"
    write(plain_artifact("toy", "ethos-u55-128", 64, (IN,), (OUT,)), directory, ADD_ONE)
    build(directory, RunOptions(cpu="cortex-m33"))
    return directory


def stand_in(folder: Path, body: str, version: str = "Fast Models [11.27.42 (Apr 10 2025)]") -> Path:
    """An executable in the FVP's place: a Python script that answers --version and runs `body`."""
    path = folder / BINARY
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"#!{sys.executable}\nimport os, sys, time\n"
        f"if '--version' in sys.argv:\n    print({version!r})\n    sys.exit(0)\n"
        f"uart = lambda text: (sys.stdout.write(text), sys.stdout.flush())\n{body}\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def options(path: Path, **more: Any) -> RunOptions:
    return RunOptions(fvp_path=path, cpu="cortex-m33", **more)


@pytest.mark.parametrize("board, accelerator, cycles", [
    ("corstone-300-u55", "ethos-u55-256", False),
    ("corstone-300-u65", "ethos-u65-512", True),
    ("corstone-310", "ethos-u55-128", False),
    ("corstone-315", "ethos-u65-256", False),
    ("corstone-320", "ethos-u85-2048", True),
])  # fmt: skip
def test_the_command_line_is_what_it_was(board: str, accelerator: str, cycles: bool, golden: Any) -> None:
    artifact = plain_artifact("toy", accelerator, 64, (IN,), (OUT,))
    layout = lay_out(artifact, load_board(board))
    firmware = Firmware(artifact, layout, "cortex-m55", Path("toy.elf"), Elf(b"", 0, (), {}))
    binary = Path("/opt/fvp") / (layout.board.fvp.binary if layout.board.fvp else "")
    line = command_line(binary, firmware, Path("toy.elf"), RunOptions(timeout_s=600, npu_cycles=cycles))
    golden(f"corstone_fvp_{board}.txt", re.sub(r" (-[Ca-]\S*)", r" \\\n  \1", " ".join(line)) + "\n")


def test_it_is_found_on_path_or_by_fvp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = load_board("corstone-300-u55")
    monkeypatch.delenv("FVP_PATH", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert find_binary(board, RunOptions()) is None
    installed = stand_in(tmp_path / "fvp" / "models" / "Linux64_GCC-9.3", "")
    monkeypatch.setenv("FVP_PATH", str(tmp_path / "fvp"))
    assert find_binary(board, RunOptions()) == installed
    monkeypatch.setenv("FVP_PATH", str(installed))
    assert find_binary(board, RunOptions()) == installed
    monkeypatch.delenv("FVP_PATH")
    monkeypatch.setenv("PATH", str(installed.parent))
    assert find_binary(board, RunOptions()) == installed


def test_without_a_binary_it_says_how_to_get_one(toy: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(RunnerMissingError, match=rf"{BINARY} is not under {tmp_path}; download it from"):
        create("fvp", toy, options(tmp_path))


@pytest.fixture(scope="module")
def recorded(toy: Path, unicorn_engine: None) -> str:
    """The UART text of a real run of this very firmware."""
    return UnicornRunner(build(toy, RunOptions(cpu="cortex-m33")), RunOptions()).run([VALUES]).transcript


def replay(text: str) -> str:
    banner = "telnetterminal0: Listening for serial connection on port 5000\n"
    return f"uart({banner!r})\nuart({text!r})\nuart('Info: Simulation stopped\\n')\nsys.exit(1)"


def test_a_recorded_run_passes_with_the_version_on_record(toy: Path, tmp_path: Path, recorded: str) -> None:
    told: list[str] = []
    runner = create("fvp", toy, options(stand_in(tmp_path, replay(recorded)), progress=told.append))
    result = runner.run([VALUES])
    np.testing.assert_array_equal(result.outputs[0], VALUES + 1)
    assert result.version == f"{BINARY} 11.27.42"
    assert told[-1] == f"{BINARY}: 11.27.42"
    assert result.pools_after is None
    assert result.npu_cycles is None, "--fast counts nothing"


def test_cycles_of_the_fvp_are_no_estimates(toy: Path, tmp_path: Path, recorded: str) -> None:
    text = recorded.replace("CALLS 0\nCYCLES 0\n", "CALLS 1\nCYCLES 4711\n")
    assert text != recorded
    result = create("fvp", toy, options(stand_in(tmp_path, replay(text)), npu_cycles=True)).run([VALUES])
    assert (result.npu_cycles, result.cycles_are_estimates) == (4711, False)


@pytest.mark.parametrize("body, message", [
    ("sys.exit(0)", "nothing was printed"),
    ("sys.stderr.write('Error: license checkout failed\\n'); sys.exit(1)",
     r"(?s)nothing was printed.*status 1.*licence"),
    ("uart('Warning: something\\n'); sys.exit(0)", "first line never came"),
    ("uart('NPU_MEMPLAN 1 model=toy board=b\\nRUN\\n'); sys.exit(0)", r"(?s)ended early.*'?RUN"),
    ("uart('NPU_MEMPLAN PASS\\nEXIT:00000000\\nEXITTHESIM\\n\\x04')", "first line never came"),
])  # fmt: skip
def test_a_run_that_proves_nothing_fails(toy: Path, tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(FirmwareError, match=message):
        create("fvp", toy, options(stand_in(tmp_path, body))).run([VALUES])


@pytest.mark.parametrize("old, new, message", [
    ("NPU_MEMPLAN PASS\n", "", "positive mark 0 times"),
    ("EXIT:00000000\n", "", "exit text never came"),
    ("DIGEST ", "DIGEST 0", "digest of the outputs is missing"),
    ("DATA 01", "DATA 02", "arrived damaged"),
])  # fmt: skip
def test_a_recording_with_a_hole_fails(
    toy: Path, tmp_path: Path, recorded: str, old: str, new: str, message: str
) -> None:
    assert old in recorded
    with pytest.raises(FirmwareError, match=message):
        create("fvp", toy, options(stand_in(tmp_path, replay(recorded.replace(old, new))))).run([VALUES])


def test_a_binary_that_hangs_is_stopped_and_gone(toy: Path, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    body = f"open({str(pid_file)!r}, 'w').write(str(os.getpid()))\nuart('NPU_MEMPLAN 1 model=toy board=b\\n')\n"
    body += "time.sleep(600)"
    runner = create("fvp", toy, options(stand_in(tmp_path, body), timeout_s=3.0))
    with pytest.raises(
        RunTimeoutError, match=r"did not end within 3 s and was stopped; its last line was 'NPU_MEMPLAN 1"
    ):
        runner.run([VALUES])
    assert not Path(f"/proc/{pid_file.read_text()}").exists()


def test_a_binary_that_stays_after_the_end_mark_is_ended(
    toy: Path, tmp_path: Path, recorded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fvp_runner.fvp._GRACE_S", 0.2)
    body = replay(recorded).replace("sys.exit(1)", "time.sleep(600)")
    result = create("fvp", toy, options(stand_in(tmp_path, body))).run([VALUES])
    np.testing.assert_array_equal(result.outputs[0], VALUES + 1)


def test_an_unknown_placeholder_is_reported(toy: Path, tmp_path: Path) -> None:
    text = load_board("corstone-300-u55").path.read_text().replace("{timeout_s}", "{patience}")  # type: ignore[union-attr]
    board = tmp_path / "mine.toml"
    board.write_text(text)
    runner = create("fvp", toy, options(stand_in(tmp_path, ""), board=board))
    assert isinstance(runner, FvpRunner)
    with pytest.raises(
        FvpError, match=r"mine\.toml: \{patience\} is unknown; the FVP's text may use: elf, macs, timeout_s"
    ):
        runner.run([VALUES])


def test_the_command_line_fails_on_a_silent_fvp(toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, "sys.exit(0)")
    monkeypatch.setenv("FVP_PATH", str(tmp_path))
    result = invoke("run", toy, "--on", "fvp", code=None)
    assert result.exit_code != 0
    assert isinstance(result.exception, FirmwareError)
    assert "nothing was printed" in str(result.exception)
    assert os.environ["FVP_PATH"] == str(tmp_path)


def shell_stand_in(folder: Path, body: str) -> Path:
    """A shell script in the FVP's place, for what only real processes do."""
    path = folder / BINARY
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def alive(pid_file: Path) -> bool:
    """Whether the process that wrote its number there still runs; it may take a moment to go."""
    state = Path(f"/proc/{pid_file.read_text().strip()}/stat")
    for _ in range(100):
        try:
            if state.read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return False
        except OSError:
            return False
        time.sleep(0.02)
    return True


HOSTILE = {
    "hangs": ("sleep 600", "it had not ended after 1 s"),
    "ignores a polite end": ("trap '' TERM INT HUP; sleep 600 & echo $! > child; wait; wait", "it had not ended after"),
    "prints without end": ("exec yes 11.27.42", "it printed more than 65,536 bytes"),
    "prints without end on stderr": ("exec yes 11.27.42 >&2", "it printed more than 65,536 bytes"),
    "leaves a child that hangs": ("sleep 600 & echo $! > child; wait", "it had not ended after 1 s"),
    "leaves a child that prints": ("yes >&2 & echo $! > child; wait", "it printed more than 65,536 bytes"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_asking_for_the_version_is_bounded_in_time_and_bytes(toy: Path, tmp_path: Path, kind: str) -> None:
    body, reason = HOSTILE[kind]
    binary = shell_stand_in(tmp_path, f"cd {tmp_path}; echo $$ > pid\n{body}")
    with pytest.raises(FvpError, match=f"was run with --version and was stopped: {reason}"):
        create("fvp", toy, options(binary, timeout_s=1.0))
    assert not alive(tmp_path / "pid")
    if (tmp_path / "child").exists():
        assert not alive(tmp_path / "child")


def test_a_child_that_outlives_the_version_is_ended_and_not_waited_for(toy: Path, tmp_path: Path) -> None:
    binary = shell_stand_in(tmp_path, f"sleep 600 & echo $! > {tmp_path}/child; echo 'Fast Models [11.27.42]'")
    assert create("fvp", toy, options(binary, timeout_s=60.0)).version == "11.27.42"  # type: ignore[attr-defined]
    assert not alive(tmp_path / "child")


@pytest.mark.parametrize("where", ["", ">&2"])
def test_a_run_that_prints_without_end_is_stopped(toy: Path, tmp_path: Path, where: str) -> None:
    body = f"case $1 in --version) echo 11.27.42; exit;; esac; echo $$ > {tmp_path}/pid; exec yes {where}"
    runner = create("fvp", toy, options(shell_stand_in(tmp_path, body), timeout_s=2.0))
    message = r"did not end within 2 s" if where else r"printed [\d,]+ bytes and was stopped: that is more than"
    with pytest.raises(RunnerError, match=message):
        runner.run([VALUES])
    assert not alive(tmp_path / "pid")


# Arm's ML evaluation kit, ta_config_u55_high_end.cmake and ta_config_u65_high_end.cmake: most reads, writes, both;
# latencies; pulse on, off; words. Fields of 6 bits: 0 is no limit.
SRAM_U55 = (8, 8, 0, 32, 32, 3999, 1, 4000)
FLASH_U55 = (2, 0, 0, 64, 0, 320, 80, 50)
SRAM_U65 = (16, 16, 0, 32, 32, 3999, 1, 4000)
DRAM_U65 = (24, 12, 0, 500, 250, 4000, 1000, 1172)


def header(accelerator: str, system: str, mode: str) -> str:
    slot = TensorSlot("in", "int8", (1, 16), "sram", 0, 16, 1.0, 0)
    artifact = plain_artifact("toy", accelerator, 4096, (slot,), (slot,))
    artifact = replace(artifact, target=replace(artifact.target, system_config=system, memory_mode=mode))
    board = load_board("corstone-300-u65" if "u65" in accelerator else "corstone-300-u55")
    return program_header(artifact, lay_out(artifact, board))


@pytest.mark.parametrize(
    ("accelerator", "system", "mode", "settings"),
    [
        ("ethos-u55-256", "FVP_Ethos_U55_High_End", "Shared_Sram", (SRAM_U55, FLASH_U55)),
        ("ethos-u55-256", "FVP_Ethos_U55_High_End", "Sram_Only", (SRAM_U55, SRAM_U55)),
        ("ethos-u65-256", "FVP_Ethos_U65_High_End", "Shared_Sram", (SRAM_U65, DRAM_U65)),
    ],
)
def test_settings_are_the_kits(accelerator: str, system: str, mode: str, settings: tuple[tuple[int, ...], ...]) -> None:
    text = header(accelerator, system, mode)
    found = re.findall(r"\{(0x[0-9a-f]+)u, \{([0-9, ]+)\}\}", text)
    assert [int(base, 16) for base, _ in found] == [0x48103000, 0x48103200]
    assert tuple(tuple(map(int, values.split(", "))) for _, values in found) == settings


def test_other_configurations_leave_them() -> None:
    text = header("ethos-u55-256", "Ethos_U55_High_End_Embedded", "Shared_Sram")
    assert "#define PROGRAM_ADAPTERS 0 " in text
    assert "adapters[]" not in text


@pytest.mark.qemu
@pytest.mark.usefixtures("qemu", "unicorn_engine")
@pytest.mark.parametrize(("runner", "found"), [("unicorn", True), ("qemu", False)])
def test_firmware_sets_what_is_there(runner: str, found: bool, tmp_path: Path) -> None:
    """Unicorn's board has registers that keep their contents; QEMU's device has no version and gets no writes."""
    model = Path(__file__).resolve().parents[1] / "models" / "hello_world_int8.tflite"
    artifact = vela_artifact(model, tmp_path, "toy")
    replace(artifact, target=replace(artifact.target, system_config="FVP_Ethos_U55_High_End")).save(tmp_path)
    options = RunOptions(timeout_s=60.0)
    ran = create(runner, tmp_path, options).run([np.zeros((1, 1), np.int8)])
    assert ran.adapters_set is found
    assert f"ADAPTERS 2 set={2 * found}" in ran.transcript
