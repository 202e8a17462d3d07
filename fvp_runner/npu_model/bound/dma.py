"""DMA_START: bytes from one memory to another.

Invariant: a byte that was never written stays one wherever it is moved.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import OutOfRegionError, UninitialisedReadError
from ..spec.dma import DmaSpec, Side
from ..spec.layout import Bytes
from ..spec.registers import Registers
from .memory import RegionMemory, Shadow


class Dma:
    def __init__(self, spec: DmaSpec, memory: RegionMemory, regs: Registers) -> None:
        self.spec, self.regs = spec, regs
        self._from, self._from_shadow = self._views(spec.source, memory)
        self._to, self._to_shadow = self._views(spec.destination, memory)
        self._index, self._index_shadow = self._numbers(memory)
        if not spec.destination.internal:
            memory.writable(self._to, spec.destination.region, regs, spec.destination.name)

    def _views(self, side: Side, memory: RegionMemory) -> tuple[Bytes, Shadow | None]:
        shape, stop = side.reach(self.spec.shape), side.stop(self.spec.shape)
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

    def _numbers(self, memory: RegionMemory) -> tuple[NDArray[np.int32] | None, Shadow | None]:
        """Which rows an index chooses: [planes, rows], and the shadow of these bytes."""
        index = self.spec.index
        if index is None:
            return None, None
        planes, rows, _ = self.spec.shape
        stop = index.start + (planes - 1) * index.plane_stride + 4 * rows
        whole = memory.region(index.region, index.start, stop, self.regs, "DMA0_IDX")
        shadow = memory.shadows[index.region]
        strides = (index.plane_stride, 4)
        numbers: NDArray[np.int32] = np.ndarray((planes, rows), "<i4", whole.data, index.start, strides)
        if shadow is None:
            return numbers, None
        return numbers, np.ndarray((planes, 4 * rows), np.bool_, shadow.data, index.start, (index.plane_stride, 1))

    def check_defined(self) -> None:
        """`UninitialisedReadError` when a number of a row was never written."""
        if self._index_shadow is not None and not self._index_shadow.all():
            raise UninitialisedReadError(f"{self.regs.where}: DMA0_IDX reads numbers of rows that were never written")

    def run(self) -> None:
        self._move(self._to, self._from)

    def _move(self, to: NDArray[Any], source: NDArray[Any]) -> None:
        index = self.spec.index
        if index is None or self._index is None:
            np.copyto(to, source)
            return
        chosen = self._index.astype(np.int64)
        if chosen.min() < 0 or chosen.max() > index.largest:
            self.regs.illegal(
                f"DMA0_IDX holds row {int(chosen.max() if chosen.max() > index.largest else chosen.min())}, "
                f"but DMA0_IDX_MAX allows 0 to {index.largest}"
            )
        for plane, rows in enumerate(chosen):
            if self.spec.source.choices:
                to[plane] = source[plane][rows]
            else:
                to[plane][rows] = source[plane]

    def mark_defined(self) -> None:
        """Note of the destination what is known of the source: a byte that was never written stays one."""
        if self._to_shadow is not None:
            known: Any = self._from_shadow
            self._move(self._to_shadow, np.broadcast_to(True, self._from.shape) if known is None else known)
