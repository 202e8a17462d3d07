"""`new-firmware`: projects that build from the wheel's files alone, run, and report a wrong pool."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from fvp_runner.references.kernels import TFLiteReference
from npu_memplan import compile as compile_model
from npu_memplan.target_data import board_names, load_board, targets_folder
from tests.support.entry import invoke
from tests.support.real_data import REPOSITORY

pytestmark = [pytest.mark.qemu, pytest.mark.usefixtures("tools")]
DIGITS = REPOSITORY / "examples" / "digits" / "digits.tflite"
RUNNABLE = [name for name in board_names() if load_board(name).can_run]
U55, U65 = (next(n for n in RUNNABLE if n.endswith(f"300-{npu}")) for npu in ("u55", "u65"))


def call(*words: object) -> Result:
    return invoke(*words, code=None)


def build(project: Path, *settings: str) -> subprocess.CompletedProcess[str]:
    """Configure and build as README.md of the project says."""
    commands = re.findall(r"^cmake .*", (project / "README.md").read_text().split("Another model")[0], re.M)
    line = " && ".join([f"{commands[0]} {' '.join(settings)}", commands[1]])
    return subprocess.run(line, shell=True, cwd=project, capture_output=True, text=True, check=False)


def expected() -> str:
    """What the reference computes of the pattern of main.c."""
    reference = TFLiteReference(DIGITS.read_bytes(), "digits")
    (slot,) = [reference.network.tensors[i] for i in reference.network.inputs]
    pattern = (7 * np.arange(slot.size_bytes) + 3).astype(np.uint8).view(np.int8).reshape(slot.shape)
    return np.ascontiguousarray(reference.run([pattern])[0]).tobytes().hex()


@pytest.fixture(scope="module")
def own_board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A board of the user's own: constants in DDR, pools in SRAM, which the shipped one has elsewhere."""
    text = (targets_folder() / "boards" / f"{U55}.toml").read_text().replace(f'name = "{U55}"', 'name = "ours"')
    changed = text.replace('pools = { sram = ["ISRAM"] }', 'pools = { sram = ["SRAM"] }')
    path = tmp_path_factory.mktemp("board") / "ours.toml"
    path.write_text(re.sub(r"^constants = .*", 'constants = ["DDR"]', changed, flags=re.M))
    return path


@pytest.mark.parametrize("board", [U55, U65, "ours"])
def test_a_project_builds_and_computes_what_the_reference_does(board: str, own_board: Path, tmp_path: Path) -> None:
    named = str(own_board) if board == "ours" else board
    done = call("new-firmware", tmp_path / "fw", "--board", named)
    assert done.exit_code == 0, done.output
    built = build(tmp_path / "fw")
    assert built.returncode == 0, built.stdout + built.stderr
    assert "warning:" not in built.stdout + built.stderr
    assert str(REPOSITORY) not in "".join(p.read_text() for p in (tmp_path / "fw").rglob("*.txt"))
    ran = call("run", "--elf", tmp_path / "fw" / "build" / "firmware.elf", "--board", named)
    assert ran.exit_code == 0, ran.output
    assert f"output {expected()}" in ran.output


@pytest.mark.parametrize("board", [name for name in RUNNABLE if name not in (U55, U65)])
def test_other_boards_link(board: str, tmp_path: Path) -> None:
    assert call("new-firmware", tmp_path / "fw", "--board", board).exit_code == 0
    built = build(tmp_path / "fw")
    assert built.returncode == 0, built.stdout + built.stderr


CMSIS_NN = os.environ.get("CMSIS_NN", "")
needs_source = pytest.mark.skipif(not CMSIS_NN, reason="CMSIS_NN names no clone of CMSIS-NN")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"accelerator": "none"}, id="CPU alone"),
        pytest.param({"resident": "all"}, id="resident constants"),
        pytest.param({"host_ops": "CONV_2D"}, id="mixed"),
        pytest.param({"accelerator": "none", "host_kernels": f"cmsis-nn={CMSIS_NN}"}, id="CMSIS", marks=needs_source),
    ],
)
def test_what_compile_wrote_is_taken(options: dict[str, Any], tmp_path: Path) -> None:
    compile_model(DIGITS, tmp_path / "model", board=U55, effort="quick", **options)
    done = call("new-firmware", tmp_path / "fw", "--board", U55, "--model", tmp_path / "model")
    assert done.exit_code == 0, done.output
    built = build(tmp_path / "fw")
    assert built.returncode == 0, built.stdout + built.stderr
    assert "warning:" not in built.stdout + built.stderr
    ran = call("run", "--elf", tmp_path / "fw" / "build" / "firmware.elf", "--board", U55)
    assert ran.exit_code == 0, ran.output
    assert f"output {expected()}" in ran.output
    assert ("no job was started" in ran.output) is (options.get("accelerator") == "none")


def test_an_artifact_of_another_board_is_refused(tmp_path: Path) -> None:
    compile_model(DIGITS, tmp_path / "model", board="alif-e7-hp", effort="quick")
    done = call("new-firmware", tmp_path / "fw", "--board", U55, "--model", tmp_path / "model")
    assert str(done.exception).startswith("digits is compiled for board alif-e7-hp, whose memories and speeds")
    assert not (tmp_path / "fw").exists()


def test_a_wrong_pool_is_reported(tmp_path: Path) -> None:
    """Too small: by the compiler, it was a bus error. Out of the NPU's reach: by the run."""
    project = tmp_path / "fw"
    assert call("new-firmware", project, "--board", U55).exit_code == 0
    built = build(project, "-DNPU_POOLS=DTCM")
    assert built.returncode == 0, built.stderr
    ran = call("run", "--elf", project / "build" / "firmware.elf", "--board", U55)
    assert ran.exit_code == 1
    assert "pool_sram in .npu_memplan_pools lies in DTCM, which the NPU cannot reach" in ran.output
    pools = project / "src" / "pools.h"
    pools.write_text(re.sub(r"pool_sram\[.*\]", "pool_sram[1024]", pools.read_text()))
    built = build(project)
    assert built.returncode != 0
    assert re.search(r"pool sram needs [0-9]+ bytes: pool_sram is too small", built.stdout + built.stderr)


TO_DO = ("BOARD_UART_BASE", "BOARD_UART_BAUD_DIVISOR", "BOARD_NPU_BASE", "BOARD_NPU_IRQ", '"CODE"', '"DATA"')


def fill(project: Path, code: str, data: str) -> None:
    """Write Corstone-300's values in place of TODO."""
    known = load_board(U55)
    values = [f"{known.uart.base:#x}u", known.uart.baud_divisor, f"{known.npu.base:#x}u", known.npu.irq, code, data]
    for path in (project / "src" / "board.h", project / "linker" / "board_memories.ld"):
        text = path.read_text()
        for name, value in zip(TO_DO, values, strict=True):
            text = re.sub(rf"({name},? )TODO", rf"\g<1>{value}", text)
        path.write_text(text)


def described_project(board: object, project: Path) -> str:
    """A project whose build stops at its TODOs, in CMake and in the compiler; what the command said."""
    done = call("new-firmware", project, "--board", board)
    assert done.exit_code == 0, done.output
    stopped = build(project)
    assert stopped.returncode != 0
    assert [name for name in TO_DO if name not in stopped.stderr] == []
    command = ["arm-none-eabi-gcc", "-Isrc", "-c", "driver/ethosu.c", "-o", "x.o"]
    compiled = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert compiled.returncode != 0
    assert f'"board.h: write values in place of TODO: {", ".join(TO_DO[:4])}"' in compiled.stderr
    return done.output


@pytest.mark.parametrize(
    ("board", "code", "data"),
    [
        ("alif-e7-hp", "MRAM", "DTCM"),
        ("himax-we2", "FLASH", "DTCM"),
        ("nxp-imx93", "OCRAM", "DRAM"),
        ("renesas-ra8p1", "MRAM", "DTCM"),
    ],
)
def test_a_real_board_has_to_dos_in_its_project(board: str, code: str, data: str, tmp_path: Path) -> None:
    said = described_project(board, tmp_path / "fw")
    assert "to do first: write values in place of TODO in src/board.h and linker/board_memories.ld" in said
    assert all(line in (tmp_path / "fw" / "README.md").read_text() for line in load_board(board).unknown)
    fill(tmp_path / "fw", code, data)
    built = build(tmp_path / "fw")
    assert built.returncode == 0, built.stdout + built.stderr
    assert "warning:" not in built.stdout + built.stderr


def test_a_project_runs_once_its_to_dos_have_values(tmp_path: Path) -> None:
    """Corstone-300 as a board of which memories alone are known."""
    text = (targets_folder() / "boards" / f"{U55}.toml").read_text()
    for table in ("npu", "uart", "firmware", "vectors", "qemu"):
        text = re.sub(rf"^\[{table}\]\n(.+\n)*", "", text, flags=re.M)
    board = tmp_path / "described.toml"
    board.write_text(text.replace(f'name = "{U55}"', 'name = "described"'))
    described_project(board, tmp_path / "fw")
    fill(tmp_path / "fw", "ITCM", "DTCM")
    built = build(tmp_path / "fw")
    assert built.returncode == 0, built.stdout + built.stderr
    ran = call("run", "--elf", tmp_path / "fw" / "build" / "firmware.elf", "--board", U55)
    assert ran.exit_code == 0, ran.output
    assert f"output {expected()}" in ran.output
