"""The stack that firmware measures by its paint, beside the stack pointer that an emulator watches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fvp_runner.base import RunOptions
from fvp_runner.emulators import unicorn as runner
from fvp_runner.runner import create
from npu_memplan.artifact.model import TensorSlot
from tests.support.plain_artifacts import plain_artifact, write

pytestmark = [pytest.mark.qemu, pytest.mark.usefixtures("qemu", "unicorn_engine")]

IN = TensorSlot("in", "int8", (1, 16), "sram", 0, 16, 1.0, 0)
OUT = TensorSlot("out", "int8", (1, 16), "sram", 32, 16, 1.0, 0)
STEP = """
int32_t toy_step(uint8_t *const pools[]) {{
  volatile uint8_t local[{bytes}];
  for (uint32_t i = 0; i < sizeof local; i++) local[i] = (uint8_t)(pools[0][i & 15u] + i);
  for (uint32_t i = 0; i < 16; i++) pools[0][32 + i] = local[sizeof local - 16 + i];
  return 0;
}}
"""


def toy(folder: Path, local_bytes: int) -> Path:
    """An artifact whose step keeps `local_bytes` on the stack."""
    write(plain_artifact("toy", "none", 4096, (IN,), (OUT,)), folder, STEP.format(bytes=local_bytes))
    return folder


@pytest.mark.parametrize("local_bytes", [64, 5000])
def test_the_paint_shows_how_deep_the_stack_pointer_went(
    tmp_path: Path, local_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unicorn import UC_HOOK_CODE, arm_const

    lowest: list[int] = []
    start = runner._UnicornMachine.__init__

    def watched(self: Any, *arguments: Any) -> None:
        start(self, *arguments)
        seen = lambda uc, *_: lowest.append(uc.reg_read(arm_const.UC_ARM_REG_SP))  # noqa: E731
        self._uc.hook_add(UC_HOOK_CODE, seen)

    monkeypatch.setattr(runner._UnicornMachine, "__init__", watched)
    machine: Any = create("unicorn", toy(tmp_path, local_bytes), RunOptions())
    result = machine.run([np.arange(16, dtype=np.int8).reshape(1, 16)])
    depth = machine.firmware.elf.find_symbol("__stack_top").address - min(sp for sp in lowest if sp)
    used, there = result.stack
    assert there == machine.firmware.board.firmware.stack_bytes
    assert local_bytes < depth < local_bytes + 256
    assert used <= depth
    assert depth - used <= 16, "the deepest words may be reserved and not written"


def test_what_the_driver_keeps(tmp_path: Path) -> None:
    """The figure of docs/corstone.md."""
    machine: Any = create("qemu", toy(tmp_path, 16), RunOptions())
    symbols = machine.firmware.elf.symbols
    assert symbols["info"].size_bytes + symbols["totals"].size_bytes == 96


def test_qemu_measures_it_too(tmp_path: Path) -> None:
    result = create("qemu", toy(tmp_path, 2000), RunOptions()).run([np.zeros((1, 16), np.int8)])
    assert result.stack is not None
    assert 2000 < result.stack[0] < 2256
