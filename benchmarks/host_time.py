"""The rough estimate of host operators beside the instructions that an emulated Cortex-M33 executes for them.

    python -m benchmarks.host_time MODEL.tflite...

Each model is compiled for the host alone, its firmware (GCC, the firmware's own flags) runs in Unicorn, and every
instruction is counted from the call of the model's `run` to its return.

Invariant: instructions are counted, not cycles: a core of one instruction a cycle needs at least as many cycles.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from fvp_runner.base import RunOptions
from fvp_runner.emulators.unicorn import create
from npu_memplan.artifact import Artifact
from npu_memplan.compiler import compile_model
from npu_memplan.options import CompileOptions


def instructions(code: bytes) -> int:
    """Instructions in Thumb-2 code: a halfword of 0b11101, 0b11110 or 0b11111 begins one of two."""
    at = count = 0
    while at < len(code):
        at += 4 if code[at + 1] >> 3 in (0x1D, 0x1E, 0x1F) else 2
        count += 1
    return count


def executed(folder: Path) -> int:
    """Instructions of one run of the artifact in `folder`, inputs of zeros."""
    import numpy as np
    import unicorn
    from unicorn import arm_const

    runner = create(folder, RunOptions(timeout_s=600))
    artifact, known = runner.firmware.artifact, dict[tuple[int, int], int]()
    begin = runner.firmware.elf.symbol(f"{artifact.name}_run").address
    total, inside, end = 0, False, 0

    def block(uc: Any, address: int, size: int, _: Any) -> None:
        nonlocal total, inside, end
        if address == begin and not inside:
            inside, end = True, uc.reg_read(arm_const.UC_ARM_REG_LR) & ~1
        elif address == end:
            inside = False
        if not inside:
            return
        key = address, size
        if key not in known:
            known[key] = instructions(bytes(uc.mem_read(address, size)))
        total += known[key]

    usual, hooked = unicorn.Uc.emu_start, set[int]()

    def emu_start(self: Any, *arguments: Any) -> Any:
        if id(self) not in hooked:  # not before: the engine takes no CPU model after a hook
            hooked.add(id(self))
            self.hook_add(unicorn.UC_HOOK_BLOCK, block)
        return usual(self, *arguments)

    unicorn.Uc.emu_start = emu_start
    try:
        runner.run([np.zeros(slot.shape, slot.dtype) for slot in artifact.inputs])
    finally:
        unicorn.Uc.emu_start = usual
    return total


def main() -> None:
    """A row a model."""
    print("| model | estimate, cycles | instructions, emulated M33 | estimate / instructions |\n|---|--:|--:|--:|")
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "out"
            compile_model(Path(name), CompileOptions("none"), folder)
            estimate, count = Artifact.load(folder).host_cycles or 0, executed(folder)
        print(f"| {Path(name).stem} | {estimate:,} | {count:,} | {estimate / count:.2f} |", flush=True)


if __name__ == "__main__":
    main()
