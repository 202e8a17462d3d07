"""Arm's own driver, unmodified, linked with an artifact and run on QEMU: the sources are named by ETHOS_U_CORE_DRIVER.

They are not part of this repository and on no package index, so hosted CI clones them; without them this skips.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fvp_runner.base import RunOptions
from fvp_runner.emulators.own_elf import run_elf
from npu_memplan.compiler import compile_model
from npu_memplan.options import CompileOptions
from npu_memplan.target_data import load_board
from tests.firmware.test_own_elf import BOARD, RUN_AND_TELL, expected_line
from tests.support.real_data import real_model

pytestmark = [pytest.mark.qemu, pytest.mark.usefixtures("tools")]

MAIN = (
    """
#include "board.h"
#include "ethosu_driver.h"
#include "kws_ref_model.h"
#include "uart.h"
static struct ethosu_driver driver;
void npu_interrupt(void) { ethosu_irq_handler(&driver); }
static __attribute__((aligned(32), section(".bss.npu_memplan.sram"))) uint8_t sram[KWS_REF_MODEL_SRAM_BYTES];
static uint8_t *const pools[] = {sram};
int main(void) {
  uart_init();
  *(volatile uint32_t *)(0xE000E100u + 4u * (BOARD_NPU_IRQ / 32u)) = 1u << (BOARD_NPU_IRQ % 32u); /* NVIC */
  __asm__ volatile("cpsie i" ::: "memory");
  if (ethosu_init(&driver, (void *)BOARD_NPU_BASE, 0, 0, 0, 1) != 0) return 1;
"""
    + RUN_AND_TELL
)
# What the driver takes of CMSIS-Core, for those who have none.
CMSIS = '#define __WFE() __asm__ volatile("wfe")\n#define __SEV() __asm__ volatile("sev")\n'


def ethos_u85_board(folder: Path) -> Path:
    """A board file in `folder`: Corstone-300's machine, which QEMU has, with an Ethos-U85 at the place of its NPU."""
    shipped = load_board("corstone-300-u65").path
    assert shipped is not None
    text = re.sub(r'name = "corstone-300-u65"', 'name = "stand-in"', shipped.read_text(encoding="utf-8"))
    text = re.sub(r"accelerators = .*", 'accelerators = ["ethos-u85-256"]', text)
    text = text.replace("base = 0x48102000\nsize_bytes = 0x1000", "base = 0x48102000\nsize_bytes = 0x2000")
    path = folder / "stand-in.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def driver() -> Path:
    named = os.environ.get("ETHOS_U_CORE_DRIVER")
    if not named or not (Path(named) / "include" / "ethosu_driver.h").is_file():
        pytest.skip("needs Arm's ethos-u-core-driver: clone it and set ETHOS_U_CORE_DRIVER to its folder")
    return Path(named)


def linked(program: Callable[..., Path], npu: str, artifact: Path, driver: Path, folder: Path) -> Path:
    """The program with the driver's sources for an NPU of 256 MACs."""
    family = npu.split("-")[1]
    (folder / "cmsis_compiler.h").write_text(CMSIS)
    names = ("ethosu_driver", "ethosu_pmu", "ethosu_device_u85" if family == "u85" else "ethosu_device_u55_u65")
    sources = [str(driver / "src" / f"{name}.c") for name in names]
    sources += [str(path) for path in sorted((artifact / "src").glob("*.c"))]
    more = [
        f"-I{driver / 'include'}", f"-I{driver / 'src'}", f"-I{folder}", f"-I{artifact / 'src'}",
        f"-DETHOSU_ARCH={family}", f"-DETHOSU{family[1:]}", "-DETHOSU_MACS=256", "-DETHOSU_LOG_ENABLE=0",
        "-DETHOSU_LOG_SEVERITY=0", "-Wno-error", "-DNDEBUG", "--specs=nosys.specs", "-Wl,--defsym=end=0x20040000",
    ]  # fmt: skip
    return program(f"arm_core_driver_{family}", MAIN, *more, *sources, driver=False)


def test_the_artifact_runs_with_arms_driver(
    program: Callable[..., Path], artifact: Path, driver: Path, tmp_path: Path
) -> None:
    """Its own sources, its interrupt, its semaphores; the output is the reference's."""
    elf = linked(program, "ethos-u55-256", artifact, driver, tmp_path)
    ran = run_elf(elf, BOARD, RunOptions(timeout_s=60.0))
    assert ran.is_right, (ran.console, ran.failed_jobs)
    assert expected_line() in ran.console
    version = re.findall(r"ETHOSU_DRIVER_VERSION_\w+ (\d+)", (driver / "include" / "ethosu_driver.h").read_text())
    print(f"Arm's driver {'.'.join(version)}")


def test_ethos_u85_answers_arms_driver_too(program: Callable[..., Path], driver: Path, tmp_path: Path) -> None:
    """On a machine that no hardware is: Corstone-300's with our Ethos-U85 at the place of its NPU."""
    npu = "ethos-u85-256"
    compile_model(
        real_model("kws_ref_model"),
        CompileOptions(npu, memory_mode="Sram_Only", launch="arm-core-driver", objective="bytes", effort="quick"),
        tmp_path / "kws",
    )
    elf = linked(program, npu, tmp_path / "kws", driver, tmp_path)
    ran = run_elf(elf, str(ethos_u85_board(tmp_path)), RunOptions(timeout_s=60.0))
    assert ran.is_right, (ran.console, ran.failed_jobs)
    assert expected_line() in ran.console
