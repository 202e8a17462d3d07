"""A user's own firmware on QEMU: the example project, Arm's driver's interface, and every way to end."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from fvp_runner.base import RunnerError, RunOptions, RunTimeoutError
from fvp_runner.emulators.own_elf import run_elf
from fvp_runner.emulators.qemu import Semihosting
from fvp_runner.firmware_build.build import ElfError
from fvp_runner.host.runner import LocalRunner
from fvp_runner.references.kernels import TFLiteReference
from npu_memplan import compile as compile_model
from npu_memplan.codegen.builds import LEAST_BYTES
from npu_memplan.target_data import board_names
from tests.firmware.conftest import EXAMPLE
from tests.support.entry import invoke
from tests.support.needs import need
from tests.support.real_data import real_model

pytestmark = [pytest.mark.qemu, pytest.mark.usefixtures("tools")]
BOARD = next(name for name in board_names() if name.endswith("300-u55"))
OPTIONS = RunOptions(timeout_s=60.0)


def expected_line() -> str:
    """What the reference computes of the pattern that the example's main.c writes."""
    pattern = (7 * np.arange(490) + 3).astype(np.uint8).view(np.int8).reshape(1, 49, 10, 1)
    outputs = TFLiteReference(real_model("kws_ref_model").read_bytes(), "kws").run([pattern])
    return f"output {np.ascontiguousarray(outputs[0]).tobytes().hex()}"


def command(*words: str) -> Result:
    return invoke("run", *words, code=None)


def test_the_example_computes_what_the_reference_does(built: Callable[..., Path], tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    done = command("--elf", str(built()), "--board", BOARD, "--trace", str(trace))
    assert done.exit_code == 0, done.output
    assert expected_line() in done.output
    assert "ethos-u55-256 of our model: exit code 0" in done.output
    assert "NPU: 1 job, " in done.output
    traced = json.loads(trace.read_text())
    assert {"write": True, "offset": "0x008", "value": "0x00000001"} in traced["registers"]  # CMD: run
    assert sum(event["ph"] == "X" for event in traced["traceEvents"]) > 10
    said = json.loads(command("--elf", str(built()), "--board", BOARD, "--json").output)
    assert (said["right"], said["exit_code"], said["npu_jobs"], said["failed_jobs"]) == (True, 0, 1, [])


@pytest.mark.parametrize(
    "setting, what, place, others",
    [
        ("NPU_CONSTANTS", "kws_ref_model_npu_stream in .npu_memplan_constants", "ITCM", "SRAM, ISRAM, QSPI, DDR"),
        ("NPU_POOLS", "pool_sram in .npu_memplan_pools", "DTCM", "SRAM, ISRAM, DDR"),
    ],
)
def test_a_section_that_the_npu_cannot_reach_is_named(
    built: Callable[..., Path], setting: str, what: str, place: str, others: str
) -> None:
    done = command("--elf", str(built(**{setting: place})), "--board", BOARD)
    assert done.exit_code == 1
    section = what.split()[-1]
    said = f"({what} lies in {place}, which the NPU cannot reach; place {section} in one of {others})"
    assert said in done.output
    assert "the run returned 6: bus error" in done.output


def test_a_linker_script_that_places_nothing_is_explained(built: Callable[..., Path], tmp_path: Path) -> None:
    """Without the fragment the constants go with .rodata and the pools with .bss, into memory of the CPU's own."""
    plain = tmp_path / "plain"
    shutil.copytree(EXAMPLE, plain)
    script = plain / "linker" / "firmware.ld"
    script.write_text(script.read_text().replace("  INCLUDE npu_memplan.ld\n", ""))
    done = command("--elf", str(built(example=plain)), "--board", BOARD)
    assert done.exit_code == 1
    assert (
        "(kws_ref_model_npu_stream in .text lies in ITCM, which the NPU cannot reach; the linker script has no place "
        "for it and took it into .text: give it a section of its own in one of SRAM, ISRAM, QSPI, DDR, as "
        "examples/firmware/linker/npu_memplan.ld does for .rodata.npu_memplan and .bss.npu_memplan)"
    ) in done.output


# The interface of Arm's driver as its public header declares it, on our small driver: what the glue must satisfy.
ARM_DRIVER = """
#include <stddef.h>
#include "ethosu.h"
struct ethosu_driver { int reserved; };
static struct ethosu_driver handle;
struct ethosu_driver *ethosu_reserve_driver(void) { handle.reserved++; return HANDLE; }
void ethosu_release_driver(struct ethosu_driver *driver) { driver->reserved--; }
int ethosu_invoke_v3(struct ethosu_driver *driver, const void *custom_data_ptr, const int custom_data_size,
                     BASES base_addr, const size_t *base_addr_size, const int num_base_addr, void *user_arg) {
  const uint32_t *words = custom_data_ptr;
  const void *bases[8];
  (void)base_addr_size;
  (void)user_arg;
  if (driver != HANDLE || words[0] != 0x31504f43u || (uintptr_t)custom_data_ptr % 16u) return -1;
  int at = 1;
  while ((words[at] & 0xffu) != 2u) at += (words[at] & 0xffu) == 1u ? 3 : 1; /* configuration; no operation */
  const uint32_t length = (words[at] >> 16) | (words[at] & 0xff00u) << 8;
  if (at + 1 + (int)length != custom_data_size / 4 || (at + 1) % 4) return -1;
  for (int i = 0; i < num_base_addr; i++) bases[i] = (const void *)(uintptr_t)base_addr[i];
  return (int)ethosu_run(words + at + 1, 4u * length, bases, num_base_addr, 3);
}
int handles_left(void) { return handle.reserved; }
"""
ARM_HEADER = """
#include <stddef.h>
#include <stdint.h>
struct ethosu_driver;
int ethosu_invoke_v3(struct ethosu_driver *, const void *, const int, BASES, const size_t *, const int, void *);
#define ethosu_invoke(drv, ptr, size, base, sizes, num) ethosu_invoke_v3(drv, ptr, size, base, sizes, num, 0)
struct ethosu_driver *ethosu_reserve_driver(void);
void ethosu_release_driver(struct ethosu_driver *);
"""
# The end of a main: a run of kws on an input that `expected_line` knows, and its output on the UART.
RUN_AND_TELL = """\
  for (uint32_t i = 0; i < KWS_REF_MODEL_INPUT_0_BYTES; i++) kws_ref_model_input_0(pools)[i] = (int8_t)(7u * i + 3u);
  if (kws_ref_model_run(pools) != 0) return 2;
  uart_text("output ");
  for (int i = 0; i < KWS_REF_MODEL_OUTPUT_0_BYTES; i++) uart_hex8((uint8_t)kws_ref_model_output_0(pools)[i]);
  uart_text("\\n");
  return 0;
}
"""
ARM_MAIN = (
    """
#include "ethosu.h"
#include "kws_ref_model.h"
#include "uart.h"
static __attribute__((aligned(32), section(".bss.npu_memplan.sram"))) uint8_t sram[KWS_REF_MODEL_SRAM_BYTES];
static uint8_t *const pools[] = {sram};
int main(void) {
  uart_init();
  if (ethosu_init(KWS_REF_MODEL_NPU_CONFIG) != ETHOSU_OK) return 1;
"""
    + RUN_AND_TELL
)
RELEASES = {
    "0.16": ("const uint64_t *", "&handle"),
    "1.0": ("uint64_t *const", "&handle"),
    "2.0": ("uint64_t *const", "0"),
}


@pytest.mark.parametrize("release", RELEASES)
def test_the_glue_is_what_arms_driver_takes(
    program: Callable[..., Path], artifact: Path, tmp_path: Path, release: str
) -> None:
    """Types of the releases; a driver for several variants hands out no handle."""
    bases, handle = RELEASES[release]
    for name, text in (("ethosu_driver.h", ARM_HEADER), ("arm.c", ARM_DRIVER)):
        (tmp_path / name).write_text(text.replace("BASES base_addr", f"{bases} base_addr").replace("BASES", bases))
    sources = [str(path) for path in sorted((artifact / "src").glob("*.c"))]
    assert any(source.endswith("npu_memplan_arm_driver.c") for source in sources)
    more = [f"-I{tmp_path}", f"-I{artifact / 'src'}", f"-DHANDLE={handle}", str(tmp_path / "arm.c")]
    ran = run_elf(program(f"arm{release}", ARM_MAIN, *more, *sources), BOARD, OPTIONS)
    assert ran.is_right, ran.console
    assert expected_line() in ran.console
    assert ran.accelerator.name == "ethos-u55-256"  # of the payload's configuration


ENDLESS = 'int main(void) { for (;;) __asm__ volatile("nop"); }\n'
CODE_7 = '#include "uart.h"\nint main(void) { uart_init(); return 7; }\n'
SEMIHOSTING = """
#include <stdint.h>
int main(void) {
  const uint32_t block[2] = {0x20026, 42};
  register uint32_t reason __asm__("r0") = 0x20; /* SYS_EXIT_EXTENDED */
  register const uint32_t *arguments __asm__("r1") = block;
  __asm__ volatile("bkpt 0xab" : "+r"(reason) : "r"(arguments) : "memory");
  return 0;
}
"""


def test_every_way_to_end(program: Callable[..., Path]) -> None:
    with pytest.raises(RunTimeoutError, match=r"endless.elf on QEMU did not end within 2 s and was stopped"):
        run_elf(program("endless", ENDLESS), BOARD, RunOptions(timeout_s=2.0))
    seven = run_elf(program("seven", CODE_7), BOARD, OPTIONS)
    assert (seven.exit_code, seven.is_right, seven.jobs) == (7, False, ())
    hosted = run_elf(program("hosted", SEMIHOSTING), BOARD, OPTIONS, semihosting=Semihosting())
    assert (hosted.exit_code, hosted.is_right) == (42, False)
    done = command("--elf", str(program("seven", CODE_7)), "--board", BOARD)
    assert done.exit_code == 1
    assert "NPU: no job was started" in done.output


def test_what_cannot_be_run_is_reported(program: Callable[..., Path], tmp_path: Path) -> None:
    text = tmp_path / "text.elf"
    text.write_text("no program")
    with pytest.raises(ElfError, match="is no 32-bit little-endian ELF file"):
        run_elf(text, BOARD, OPTIONS)
    with pytest.raises(RunnerError, match=r"cannot read .*absent\.elf: No such file"):
        run_elf(tmp_path / "absent.elf", BOARD, OPTIONS)
    with pytest.raises(RunnerError, match=f"board {BOARD} has no ethos-u65-256; it has: ethos-u55-32"):
        run_elf(program("seven", CODE_7), BOARD, OPTIONS, npu="ethos-u65-256")
    assert "takes the place of DIRECTORY and needs --board" in str(command("--elf", str(text)).exception)
    assert "are for --elf MY.elf" in str(command("--npu", "ethos-u55-32").exception)


@pytest.mark.parametrize("more", [{}, {"constant_pools": {"flash": None}}], ids=["arrays", "pool"])
def test_the_program_is_the_same(tmp_path: Path, more: dict[str, Any]) -> None:
    runs = []
    for incbin in (False, True):
        folder = tmp_path / str(incbin)
        artifact = compile_model(real_model("micro_speech_quantized"), folder, incbin=incbin, **more)
        inputs = [np.arange(np.prod(s.shape)).astype(s.dtype).reshape(s.shape) for s in artifact.inputs]
        runs.append(LocalRunner(folder).run(inputs).pools_after)
    assert all(np.array_equal(a, b) for a, b in zip(*runs, strict=True))
    files = sorted((tmp_path / "True" / "src").glob("*.bin"))
    texts = sum(path.stat().st_size for path in (tmp_path / "True" / "src").glob("*.c"))
    assert files
    assert all(path.stat().st_size >= LEAST_BYTES for path in files)
    assert 3 * texts < sum(path.stat().st_size for path in (tmp_path / "False" / "src").glob("*.c"))
    assert "-Wa,-I," in (tmp_path / "True" / "src" / "micro_speech_quantized.cmake").read_text()
    files[0].unlink()
    with pytest.raises(RunnerError, match=files[0].name):
        LocalRunner(tmp_path / "True")


def test_an_arm_object_has_the_bytes_in_the_section(tmp_path: Path) -> None:
    need("arm-none-eabi-gcc")
    compile_model(real_model("micro_speech_quantized"), tmp_path / "a", incbin=True)
    source = tmp_path / "a" / "src"
    (constants,) = source.glob("*_npu_constants_0.bin")
    target = tmp_path / "npu.o"
    command = ["arm-none-eabi-gcc", "-mcpu=cortex-m55", "-O2", "-c", f"-I{source}", f"-Wa,-I,{source}"]
    subprocess.run([*command, str(source / "micro_speech_quantized_npu.c"), "-o", str(target)], check=True)
    section = tmp_path / "section"
    copy = ["arm-none-eabi-objcopy", "-O", "binary", "--only-section=.rodata.npu_memplan", str(target), str(section)]
    subprocess.run(copy, check=True)
    at = section.read_bytes().find(constants.read_bytes())
    assert at >= 0
    assert at % 16 == 0
