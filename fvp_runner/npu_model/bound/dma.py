"""DMA_START: bytes from one memory to another.

Invariant: a byte that nobody wrote stays one wherever it is moved.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import OutOfRegionError
from ..spec.dma import DmaSpec, Side
from ..spec.layout import Bytes
from ..spec.registers import Registers
from .memory import RegionMemory, Shadow


class Dma:
    """The bound transfer; `run` executes it once."""

    def __init__(self, spec: DmaSpec, memory: RegionMemory, regs: Registers) -> None:
        self.spec, self.regs = spec, regs
        self._from, self._from_shadow = self._views(spec.source, memory)
        self._to, self._to_shadow = self._views(spec.destination, memory)
        if not spec.destination.internal:
            memory.writable(self._to, spec.destination.region, regs, spec.destination.name)

    def _views(self, side: Side, memory: RegionMemory) -> tuple[Bytes, Shadow | None]:
        shape, stop = self.spec.shape, side.stop(self.spec.shape)
        shadow: Shadow | None
        if side.internal:
            if stop > memory.shram.size:
                raise OutOfRegionError(
                    f"{self.regs.where}: {side.name} covers bytes {side.start:#x} to {stop:#x} of the NPU's internal "
                    f"memory, which has only {memory.shram.size:#x} bytes"
                )
            whole, shadow = memory.shram, memory.shram_shadow
        else:
            whole = memory.region(side.region, side.start, stop, self.regs, side.name)
            shadow = memory.shadows[side.region]
        strides = (*side.strides, 1)

        def view(array: NDArray[Any]) -> NDArray[Any]:
            result: NDArray[Any] = np.ndarray(shape, array.dtype, array.data, side.start, strides)
            return result

        return view(whole), None if shadow is None else view(shadow)

    def run(self) -> None:
        """Move the bytes."""
        np.copyto(self._to, self._from)

    def mark_defined(self) -> None:
        """Note of the destination what is known of the source: a byte that nobody wrote stays one."""
        if self._to_shadow is not None:
            self._to_shadow[...] = True if self._from_shadow is None else self._from_shadow
