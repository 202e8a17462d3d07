"""`--emit vela-tflite --resident`: constants in a section of the user's choice, in TFLite Micro's own interpreter."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from fvp_runner.npu_model.network import NetworkModel
from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.models.network import Network
from npu_memplan.models.tflite import read_network
from npu_memplan.vela_tflite.emit import REGION, distance_in
from tests.support.entry import invoke
from tests.support.tflm_npu import MicroWithNpu, SharedArena
from tests.vela_tflite.test_emit import random_inputs

MODEL = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"
CC, ARM_CC, QEMU = (shutil.which(name) for name in ("gcc", "arm-none-eabi-gcc", "qemu-system-arm"))


def call(*arguments: object) -> tuple[int, str]:
    made = invoke(*arguments, code=None)
    return made.exit_code, made.output if made.exception is None or made.output else str(made.exception)


def emitted(folder: Path, *options: str) -> dict[str, object]:
    common = ("--emit", "vela-tflite", "--effort", "quick", "--json")
    code, said = call("compile", MODEL, *common, *options, "-o", folder / "digits.tflite")
    assert code == 0, said
    return json.loads(said)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    folder = tmp_path_factory.mktemp("resident")
    return folder, emitted(folder, "--resident", "all")


@pytest.fixture(scope="module")
def network(made: tuple[Path, dict[str, object]]) -> Network:
    return read_network((made[0] / "digits.tflite").read_bytes(), "digits")


def test_the_arena_is_without_them_and_the_time_with_them(
    made: tuple[Path, dict[str, object]], network: Network, tmp_path: Path
) -> None:
    plain, said = emitted(tmp_path), made[1]
    (npu,) = network.npu_calls
    assert npu.resident is not None
    assert said["resident_bytes"] == npu.resident.nbytes > 0 == plain["resident_bytes"]
    assert said["arena_bytes"] <= plain["arena_bytes"]
    assert said["estimated_cycles"] < plain["estimated_cycles"]
    assert not (tmp_path / "digits.S").exists()


@pytest.mark.parametrize("options", [(), ("--accelerator", "ethos-u65-512"), ("--accelerator", "ethos-u85-256")])
def test_the_file_alone_is_exact(options: tuple[str, ...], tmp_path: Path) -> None:
    """Dedicated_Sram as the U65 has it, Shared_Sram and the U85's DRAM; half of the constants at most."""
    said = emitted(tmp_path, *options, "--resident", "6000")
    assert 0 < said["resident_bytes"] <= 6000
    content = (tmp_path / "digits.tflite").read_bytes()
    network, reference = read_network(content, "digits"), TFLiteReference(MODEL.read_bytes(), "digits")
    model, micro = NetworkModel(network, content), MicroWithNpu(content)
    for seed in range(3):
        inputs = random_inputs(network, seed)
        (expected,) = reference.run(inputs)
        assert np.array_equal(model.run(inputs).outputs[0], expected)
        assert np.array_equal(micro.run(inputs, 1)[0], expected)
        assert micro.bases[REGION] not in micro.bases[:REGION]


@pytest.mark.skipif(CC is None, reason="needs a C compiler")
def test_they_are_read_in_the_section_that_the_linker_gave_them(
    made: tuple[Path, dict[str, object]], network: Network, tmp_path: Path
) -> None:
    """TFLite Micro's interpreter on the linked model: no byte of its code knows of the two sections."""
    built = tmp_path / "model.so"
    section = "-DDIGITS_RESIDENT_SECTION=.data.mine"
    command = [str(CC), "-shared", "-nostdlib", section, f"-Wa,-I{made[0]}", str(made[0] / "digits.S")]
    subprocess.run([*command, "-o", str(built)], check=True)
    library = ctypes.CDLL(str(built))
    start, held = (ctypes.addressof(ctypes.c_char.in_dll(library, f"digits_{name}")) for name in ("model", "resident"))
    if held < start:
        pytest.skip("this machine's pointers have 64 bits and cannot wrap")
    (npu,) = network.npu_calls
    assert npu.resident is not None
    size, place = npu.resident.nbytes, held + 4
    assert ctypes.string_at(place, size) == npu.resident.tobytes()
    assert place % 16 == 0
    shared, reference = SharedArena([start]), TFLiteReference(MODEL.read_bytes(), "digits")
    for seed in range(20):
        inputs = random_inputs(network, seed)
        (expected,) = reference.run(inputs)
        assert np.array_equal(shared.run(0, inputs, 1)[0], np.frombuffer(expected.tobytes(), np.uint8))
        assert shared.bases[REGION] == place
    ctypes.memset(place, 0xA5, size)  # what start-up code forgot
    with pytest.raises(AssertionError):
        assert np.array_equal(shared.run(0, inputs, 1)[0], np.frombuffer(expected.tobytes(), np.uint8))


LAYOUT = """
MEMORY {{ CODE (rx) : ORIGIN = 0, LENGTH = 64K
  FLASH (rx) : ORIGIN = {flash:#x}, LENGTH = 512K
  RAM (rw) : ORIGIN = {ram:#x}, LENGTH = 256K }}
SECTIONS {{
  .text : {{ KEEP(*(.vectors)) *(.text*) }} > CODE
  .rodata : {{ *(.rodata*) }} > FLASH
  .data : {{ data_begin = .; *(.data*) data_end = .; }} > RAM AT> FLASH
  data_image = LOADADDR(.data);
  stack = {ram:#x} + 256K; }}
"""
PROGRAM = """
#include <stdint.h>
extern unsigned char digits_model[], digits_resident[], data_begin[], data_end[], data_image[], stack[];
static void end(int right) {
  register int code __asm__("r0") = 0x18, why __asm__("r1") = right ? 0x20026 : 0x20023;
  __asm__ volatile("bkpt 0xAB" : : "r"(code), "r"(why) : "memory");
  for (;;) {}
}
void start(void) {
  for (unsigned char *to = data_begin, *from = data_image; to < data_end;) *to++ = *from++;
  unsigned char *field = digits_model + AT; /* as TFLite's Buffer::data() */
  unsigned char *vector = field + *(uint32_t *)field;
  uint32_t sum = 0;
  for (uint32_t i = 0; i < *(uint32_t *)vector; ++i) sum = sum * 31u + vector[4 + i];
  end(vector == digits_resident && vector >= data_begin && vector < data_end && ((uintptr_t)vector + 4) % 16 == 0 &&
      *(uint32_t *)vector == BYTES && sum == SUM);
}
__attribute__((section(".vectors"), used)) static void *const vectors[] = {stack, (void *)start};
"""


@pytest.mark.skipif(ARM_CC is None or QEMU is None, reason="needs Arm's GCC and QEMU")
@pytest.mark.parametrize(("flash", "ram"), [(0x01000000, 0x20000000), (0x21000000, 0x20000000)])
def test_a_linked_program_finds_them_in_its_ram(
    made: tuple[Path, dict[str, object]], network: Network, tmp_path: Path, flash: int, ram: int
) -> None:
    """On QEMU, flash below and above the RAM: start-up code copies them there, as it does for variables."""
    content = (made[0] / "digits.tflite").read_bytes()
    (npu,) = network.npu_calls
    assert npu.resident is not None
    total = 0
    for byte in npu.resident.tobytes():
        total = (total * 31 + byte) & 0xFFFFFFFF
    (tmp_path / "memory.ld").write_text(LAYOUT.format(flash=flash, ram=ram))
    (tmp_path / "main.c").write_text(PROGRAM)
    values = {"AT": distance_in(content, npu.resident.tobytes()).at, "BYTES": npu.resident.nbytes, "SUM": f"{total}u"}
    command = [str(ARM_CC), "-mcpu=cortex-m55", "-mthumb", "-O1", "-ffreestanding", "-nostdlib", "-Wall", "-Werror"]
    command += [f"-D{name}={value}" for name, value in values.items()] + [f"-Wa,-I{made[0]}"]
    sources = [tmp_path / "main.c", made[0] / "digits.S"]
    subprocess.run([*command, *map(str, sources), "-T", str(tmp_path / "memory.ld"), "-o", str(tmp_path / "a.elf")],
                   check=True)  # fmt: skip
    run = [str(QEMU), "-M", "mps3-an547", "-display", "none", "-monitor", "none", "-serial", "none"]
    ran = subprocess.run([*run, "-semihosting", "-kernel", str(tmp_path / "a.elf")], check=False, timeout=240)
    assert ran.returncode == 0


def test_other_commands_know_them(made: tuple[Path, dict[str, object]], tmp_path: Path) -> None:
    code, said = call("check", made[0] / "digits.tflite", "--board", "corstone-300-u55", "--reference", MODEL)
    assert code == 0, said
    assert "resident constants" in said
    code, said = call("compile", made[0] / "digits.tflite", "-o", tmp_path / "again")
    assert code != 0
    assert "compile the source model instead" in " ".join(said.split())
    assert not (tmp_path / "again").exists()


def test_a_place_that_is_taken_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "digits.S").write_text("mine")
    common = ("--emit", "vela-tflite", "--effort", "quick", "--resident", "all")
    code, said = call("compile", MODEL, *common, "-o", tmp_path / "digits.tflite")
    assert code != 0
    assert "digits.S exists already" in " ".join(said.split())
    assert [p.name for p in tmp_path.iterdir()] == ["digits.S"]
