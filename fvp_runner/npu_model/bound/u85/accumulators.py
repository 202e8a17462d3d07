"""Accumulators that an operation finds or leaves.

Invariant: what is kept are the sums themselves, with the input's zero point taken in and without any bias.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.stream.isa_u85 import AccumulatorInput

from ...arithmetic.rescale import Int64
from ...spec.registers import Registers
from ...spec.u85.kernels import SumSpec
from ..memory import FeatureMapAccess, RegionMemory


class Accumulators:
    """What the sums of one operation start from, and where they go."""

    def __init__(self, spec: SumSpec, memory: RegionMemory, regs: Registers) -> None:
        self._memory, self._regs, self.keeps = memory, regs, spec.output.kept
        self._shape = spec.output.shape
        self._continues = spec.start is AccumulatorInput.KEEP
        self.loaded: FeatureMapAccess | None = None
        if spec.loaded is not None:
            assert spec.loaded.layout is not None
            self.loaded = FeatureMapAccess(memory, regs, spec.loaded.layout, spec.loaded.shape, is_write=False)

    @property
    def plain(self) -> bool:
        """Sums start from nothing and go to the output at once."""
        return not (self._continues or self.keeps or self.loaded is not None)

    def begin(self) -> Int64 | None:
        """What the sums start from; None: zero."""
        if self.loaded is not None:
            self.loaded.load()
            return self.loaded.array.astype(np.int64)
        if not self._continues:
            return None
        found = self._memory.accumulators
        if found is None or found.shape != self._shape:
            self._regs.illegal("ACC_FORMAT keeps the accumulators, but no operation before left them in this shape")
        return found

    def keep(self, sums: NDArray[Any]) -> None:
        self._memory.accumulators = sums.astype(np.int64)
