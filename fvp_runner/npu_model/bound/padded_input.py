"""The input of a windowed kernel with its padding around it.

Invariant: what is padding, or left out by upscaling, is never read from memory and never changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.stream.isa import Upscale

from ..spec.registers import Registers
from ..spec.sums import SumSpec
from .memory import FeatureMapAccess, RegionMemory


class PaddedInput:
    """The input of a windowed kernel: `load` brings it into `array`, [padded height, padded width, depth].

    Padding (and what upscaling leaves out) holds `fill`; `array` has type `dtype`.
    """

    def __init__(self, spec: SumSpec, memory: RegionMemory, regs: Registers, dtype: Any, fill: int) -> None:
        window = spec.window
        self.map = FeatureMapAccess(memory, regs, spec.ifm, spec.input.shape, is_write=False)
        source = self.map.array
        self.array: NDArray[Any] = np.full(
            (window.padded_height, window.padded_width, spec.input.shape[2]), fill, dtype
        )
        inner = self.array[window.inner]
        self._parts: list[tuple[NDArray[Any], NDArray[Any]]] = []
        if window.upscale is Upscale.NONE:
            self._parts.append((inner, source))
        else:
            phases = (0, 1) if window.upscale is Upscale.NEAREST else (0,)
            for dy in phases:
                for dx in phases:
                    target = inner[dy::2, dx::2]
                    if target.size:
                        self._parts.append((target, source[: target.shape[0], : target.shape[1]]))

    def load(self) -> None:
        self.map.load()
        for target, source in self._parts:
            np.copyto(target, source, casting="unsafe")
