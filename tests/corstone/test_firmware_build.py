"""What is refused before anything is compiled, and what the built image holds."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fvp_runner.base import RunnerError, RunOptions
from fvp_runner.emulators.device import pool_spans
from fvp_runner.firmware_build.build import BuildError, Elf, ElfError, build
from fvp_runner.firmware_build.sources import LayoutError, lay_out, linker_script, program_header
from fvp_runner.firmware_run import image_with_inputs
from fvp_runner.guards import GUARD_BYTES
from npu_memplan.artifact import Artifact
from npu_memplan.artifact.model import TensorSlot
from npu_memplan.codegen.interface import region_config
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.problem import Agent, Buffer, Lifetime, Placement, Plan, PlanStatus, Pool, PoolUsage, Problem
from npu_memplan.target_data import board_names, load_board
from tests.support.plain_artifacts import plain_artifact, write

IN = TensorSlot("in", "int8", (1, 16), "sram", 0, 16, 1.0, 0)
OUT = TensorSlot("out", "int8", (1, 16), "sram", 32, 16, 1.0, 0)
COPY = """#include <string.h>
int32_t toy_step(uint8_t *const pools[]) {
  memcpy(pools[0] + 32, pools[0], 16);
  return 0;
}
"""


def toy(pool_bytes: int = 64, accelerator: str = "ethos-u55-256", **sizes: int) -> Artifact:
    return plain_artifact("toy", accelerator, pool_bytes, (IN,), (OUT,), **sizes)


def test_a_pool_bigger_than_its_memory_is_refused_before_the_build(tmp_path: Path) -> None:
    artifact = toy(0x200001)
    write(artifact, tmp_path / "toy", COPY)
    with pytest.raises(LayoutError) as caught:
        build(tmp_path / "toy", RunOptions())
    assert str(caught.value) == (
        "pool 'sram' of toy needs 2.00 MiB (2097153 bytes), but ISRAM has 2.00 MiB (2097152 bytes) left on board "
        "corstone-300-u55: 1 bytes too much; compile with a smaller pool, e.g. --pool sram=2097152, "
        "or choose another board with --board"
    )
    assert not (tmp_path / "toy" / "firmware").exists(), "nothing was built"


def test_constants_go_to_the_first_memory_that_holds_them() -> None:
    board = load_board("corstone-300-u55")
    small = replace(toy(constants_bytes=1 << 20), target=replace(toy().target, memory_mode="Sram_Only"))
    assert lay_out(small, board).constants.name == "SRAM"
    big = replace(small, constants_bytes=(1 << 20) + 1)
    layout = lay_out(big, board)
    assert layout.constants.name == "ISRAM"
    assert "do not fit SRAM of corstone-300-u55, they are in ISRAM" in layout.notes[0]
    with pytest.raises(LayoutError, match=r"the constants of toy needs? .*SRAM has .* DDR has .* left on board"):
        lay_out(replace(small, constants_bytes=1 << 30), board)


def test_an_npu_that_the_board_does_not_have_is_refused() -> None:
    with pytest.raises(
        LayoutError, match=r"toy is compiled for ethos-u65-256, but board corstone-300-u55 has ethos-u55"
    ):
        lay_out(toy(accelerator="ethos-u65-256"), load_board("corstone-300-u55"))


def test_a_pool_the_board_does_not_know_is_refused() -> None:
    artifact = toy()
    problem = replace(artifact.problem, pools=(Pool("turbo"),))
    usage = (PoolUsage("turbo", 64, 64),)
    with pytest.raises(LayoutError, match=r"does not say where pool 'turbo' lies in memory mode Shared_Sram.*: sram\."):
        lay_out(
            replace(artifact, problem=problem, plan=replace(artifact.plan, usage=usage)), load_board("corstone-300-u55")
        )


def dedicated() -> Artifact:
    """Two pools, as a U65 with its own SRAM has them."""
    buffers = tuple(Buffer(n, 256, (Lifetime(0, 1),), agents=frozenset(Agent)) for n in ("a", "b"))
    problem = Problem(buffers, (Pool("dram"), Pool("sram")), name="toy")
    plan = Plan(
        (Placement("a", "dram", 0), Placement("b", "sram", 0)),
        (PoolUsage("dram", 256, 256), PoolUsage("sram", 256, 256)),
        PlanStatus.FEASIBLE,
        "by hand",
    )
    target = replace(toy().target, accelerator="ethos-u65-256", memory_mode="Dedicated_Sram")
    return replace(toy(), target=target, problem=problem, plan=plan, regions=(1, 2))


def test_each_pool_lies_in_the_memory_the_board_names() -> None:
    layout = lay_out(dedicated(), load_board("corstone-300-u65"))
    assert [m.name for m in layout.pools] == ["DDR", "ISRAM"]
    script = linker_script(dedicated(), layout)
    assert "*(.bss.npu_memplan_pool_0) } > DDR :NONE" in script
    assert "*(.bss.npu_memplan_pool_1) } > ISRAM :NONE" in script
    assert "ISRAM : ORIGIN = 0x21000000, LENGTH = 0x200000" in script
    header = program_header(dedicated(), layout)
    assert '_Static_assert(TOY_DRAM_BYTES <= 0x40000000, "pool dram is bigger than DDR");' in header


def test_an_off_chip_pool_of_a_u65_uses_the_second_port_and_a_u55_never_does() -> None:
    pools = {1: "dram", 2: "sram"}
    assert region_config(accelerator("ethos-u65-256"), pools) == 0b1011
    assert region_config(accelerator("ethos-u55-256"), pools) == 0b0011


def test_generated_files_are_what_they_were(golden: Any) -> None:
    layout = lay_out(toy(), load_board("corstone-300-u55"))
    golden("corstone_program.h", program_header(toy(), layout))
    golden("corstone_firmware.ld", linker_script(toy(), layout))


def test_the_image_holds_pools_and_inputs_where_they_belong(tmp_path: Path, arm_gcc: None) -> None:
    artifact = toy()
    write(artifact, tmp_path / "toy", COPY)
    told: list[str] = []
    firmware = build(tmp_path / "toy", RunOptions(progress=told.append))
    assert told == ["building toy.elf for corstone-300-u55, cortex-m55"]
    assert pool_spans(firmware) == [(0x21000000 + GUARD_BYTES, 64)]
    values = np.arange(16, dtype=np.int8).reshape(1, 16)
    image = image_with_inputs(firmware, [values])
    symbol = image.find_symbol("npu_memplan_inputs")
    assert symbol.address >= 0x60000000
    assert bytes(image.read(symbol.address + 16, 16) or b"") == values.tobytes()
    assert Elf.parse(image.image) == image
    assert firmware.elf.image != image.image, "the built file keeps no inputs"
    again = build(tmp_path / "toy", RunOptions(progress=told.append))
    assert len(told) == 1, "an unchanged artifact is not built again"
    assert again.elf == firmware.elf
    build(tmp_path / "toy", RunOptions(progress=told.append, defines=("ETHOSU_WAIT_POLLS=7",)))
    assert len(told) == 2, "another define is another firmware"


def test_an_artifact_that_may_not_be_written_is_built_in_the_cache(
    tmp_path: Path, arm_gcc: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(toy(), tmp_path / "toy", COPY)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("fvp_runner.firmware_build.build.os.access", lambda path, mode: Path(path) != tmp_path / "toy")
    firmware = build(tmp_path / "toy", RunOptions())
    assert firmware.path.is_relative_to(tmp_path / "cache" / "npu_memplan" / "firmware")
    assert not (tmp_path / "toy" / "firmware").exists()


def firmware_boards() -> list[str]:
    """Boards that have what firmware needs."""
    return [name for name in board_names() if load_board(name).can_run]


@pytest.mark.parametrize("name", firmware_boards())
def test_every_board_that_ships_can_be_linked_for(name: str, tmp_path: Path, arm_gcc: None) -> None:
    board = load_board(name)
    write(toy(accelerator=board.accelerators[0]), tmp_path / "toy", COPY)
    firmware = build(tmp_path / "toy", RunOptions(board=name))
    code, pool = board.memory(board.firmware.code), board.memory("ISRAM")
    assert code.base <= firmware.elf.entry < code.base + code.size_bytes
    assert pool_spans(firmware) == [(pool.base + GUARD_BYTES, 64)]
    assert any(s.physical == code.base for s in firmware.elf.segments), "the vectors come first"


@pytest.mark.parametrize("given, message", [
    ([], "has 1 input, 0 were given"),
    ([np.zeros((1, 16), np.uint8)], r"input 'in' of toy is int8\[1, 16\], but uint8\[1, 16\] was given"),
])  # fmt: skip
def test_wrong_inputs_are_reported(tmp_path: Path, arm_gcc: None, given: list[Any], message: str) -> None:
    write(toy(), tmp_path / "toy", COPY)
    firmware = build(tmp_path / "toy", RunOptions())
    with pytest.raises(RunnerError, match=message):
        image_with_inputs(firmware, given)


def test_a_compiler_error_is_shown_and_nothing_half_built_is_left(tmp_path: Path, arm_gcc: None) -> None:
    write(toy(), tmp_path / "toy", "int32_t toy_step(uint8_t *const pools[]) { return unknown; }\n")
    with pytest.raises(BuildError, match=r"(?s)compiling toy_npu\.c failed:.*'unknown' undeclared.*-Werror"):
        build(tmp_path / "toy", RunOptions())
    assert list((tmp_path / "toy" / "firmware").iterdir()) == []


def test_a_pool_that_the_generated_code_sizes_otherwise_does_not_compile(tmp_path: Path, arm_gcc: None) -> None:
    write(toy(), tmp_path / "toy", COPY)
    header = tmp_path / "toy" / "src" / "toy.h"
    header.write_text(header.read_text().replace("#define TOY_SRAM_BYTES 64", "#define TOY_SRAM_BYTES 128"))
    with pytest.raises(BuildError, match=r"static assertion failed: .*pool sram is not the planned size"):
        build(tmp_path / "toy", RunOptions())


def test_no_instruction_of_the_firmware_is_semihosting(tmp_path: Path, arm_gcc: None) -> None:
    write(toy(), tmp_path / "toy", COPY)
    firmware = build(tmp_path / "toy", RunOptions())
    listing = subprocess.run(
        ["arm-none-eabi-objdump", "-d", str(firmware.path)], capture_output=True, text=True, check=True
    ).stdout
    assert "<Reset_Handler>" in listing
    assert "bkpt" not in listing


def test_a_damaged_elf_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ElfError, match="is no 32-bit little-endian ELF file"):
        Elf.parse(b"\x7fELF\x02\x01\x01" + bytes(60))
    with pytest.raises(ElfError, match="is for machine EM_X86_64, not for Arm"):
        Elf.parse(
            b"\x7fELF\x01\x01\x01" + bytes(9) + (2).to_bytes(2, "little") + (62).to_bytes(2, "little") + bytes(40)
        )
