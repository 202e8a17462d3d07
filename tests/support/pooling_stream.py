"""The smallest sound stream: a 1x1 average pool that copies its input, with registers to overwrite."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fvp_runner.npu_model.model import NpuModel
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.stream.isa import Op
from tests.support.assembler import Assembler

U55 = accelerator("ethos-u55-256")
SHAPE = (2, 3, 4)
SIZE = 24  # bytes of it


def pooling(**changes: int) -> tuple[int, ...]:
    """A 1x1 average pool from byte 0 to byte 0x100 of region 1, with registers overwritten."""
    s = Assembler().feature_map("IFM", SHAPE, 0).feature_map("OFM", SHAPE, 0x100, more_precision=256)
    return s.kernel().common().set(OFM_SCALE=1).set(**changes).op(Op.POOL, 1).stop()


def run(words: Sequence[int], size: int = 0x200, checks: bool = True, **more: object) -> np.ndarray:
    """Region 1 after a run in which byte i of it began as i."""
    memory = np.arange(size, dtype=np.uint8)
    NpuModel(U55, checks).run(words, [np.zeros(64, np.uint8), memory], **more)  # type: ignore[arg-type]
    return memory
