"""Timing adapters: the firmware sets those of the system configuration, reads them back, and says how many took it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fvp_runner.base import RunOptions
from fvp_runner.firmware_build.sources import lay_out, program_header
from fvp_runner.runner import create
from npu_memplan.artifact.model import TensorSlot
from npu_memplan.target_data import load_board
from tests.support.plain_artifacts import plain_artifact, vela_artifact

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
