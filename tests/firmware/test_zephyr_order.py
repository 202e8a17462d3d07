"""The Zephyr module's snippets, linked where Zephyr's script for Cortex-M includes them. Zephyr itself is not here.

Invariant: the order is that of arch/arm's cortex_m/linker.ld: text, ROM_SECTIONS, rodata, data, bss, noinit, SECTIONS.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from fvp_runner.firmware_build.build import Elf
from tests.firmware.conftest import EXAMPLE

pytestmark = pytest.mark.usefixtures("tools")
MODULE = EXAMPLE / "zephyr"
SCRIPT = """
#define SECTION_PROLOGUE(name, options, align) name options : align
#define SECTION_DATA_PROLOGUE(name, options, align) name options : align
#define GROUP_LINK_IN(where) > where
#define ROMABLE_REGION FLASH
#define RAMABLE_REGION RAM
MEMORY { FLASH (rx) : ORIGIN = 0, LENGTH = 1M  RAM (wx) : ORIGIN = 0x20000000, LENGTH = 1M }
SECTIONS
{
  text : { *(.text .text.*) } > FLASH
  @ROM_SECTIONS@
  rodata : { *(.rodata) *(.rodata.*) } > FLASH
  datas : { *(.data) *(.data.*) } > RAM
  bss (NOLOAD) : { *(.bss) *(.bss.*) } > RAM
  noinit (NOLOAD) : { *(.noinit) *(.noinit.*) @NOINIT@ } > RAM
  @SECTIONS@
}
"""
C = """
__attribute__((section(".rodata.npu_memplan.weights"), used)) const char weights[100] = {1};
__attribute__((aligned(32), section(".npu_memplan.pools"), used)) static unsigned char sram[4096];
int main(void) { return sram[0] + weights[1]; }
"""


def snippets() -> dict[str, str]:
    """Place -> text of the snippets that the module's CMake gives to Zephyr for it."""
    cmake = (MODULE / "CMakeLists.txt").read_text()
    found = re.findall(r'zephyr_linker_sources\((\w+) "\$\{CMAKE_CURRENT_LIST_DIR\}/([\w.]+)"\)', cmake)
    return {place: (MODULE / name).read_text() for place, name in found}


def test_constants_and_pools_get_sections_of_their_own(tmp_path: Path) -> None:
    placed = snippets()
    text = re.sub(r"@(\w+)@", lambda match: placed.get(match[1], ""), SCRIPT)
    (tmp_path / "script.S").write_text(text)
    (tmp_path / "main.c").write_text(C)
    elf = tmp_path / "zephyr.elf"
    for command in (
        "arm-none-eabi-gcc -E -P -x assembler-with-cpp script.S -o script.ld",
        f"arm-none-eabi-gcc -mcpu=cortex-m55 -nostdlib -nostartfiles -Wl,-e,main -Wl,-T,script.ld main.c -o {elf}",
    ):
        done = subprocess.run(command.split(), cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    sizes = {section.name: section.size_bytes for section in Elf.load(elf).sections}
    assert sizes["npu_memplan_constants"] == 100
    assert sizes["npu_memplan_pools"] == 4096


def test_the_module_is_offered_under_both_names_of_the_driver() -> None:
    assert re.search(r"depends on ETHOS_U \|\| ARM_ETHOS_U\b", (MODULE / "Kconfig").read_text())
