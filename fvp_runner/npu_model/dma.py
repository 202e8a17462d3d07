"""DMA_START: bytes from one memory to another.

Invariant: a transfer is a list of equally long rows; 1D transfers, the only ones compilers emit, have one.
2D and 3D transfers follow their description (rows of DMA0_LEN bytes, DMA0_SKIP0 bytes left out after each
row, DMA0_SKIP1 after each plane, on the side whose region register asks for it) and are not verified.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.stream.isa import Register

from .errors import OutOfRegionError
from .layout import Bytes
from .memory import Memory, Shadow
from .registers import Registers

_INTERNAL = 1 << 8
_MAX_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class Side:
    """Source or destination: [planes, rows, length] bytes."""

    name: str
    region: int
    internal: bool
    start: int
    strides: tuple[int, int]  # between planes, between rows

    def stop(self, shape: tuple[int, int, int]) -> int:
        """One past the last byte."""
        return self.start + (shape[0] - 1) * self.strides[0] + (shape[1] - 1) * self.strides[1] + shape[2]


@dataclass(frozen=True, slots=True)
class DmaSpec:
    """A DMA_START as its registers describe it."""

    source: Side
    destination: Side
    shape: tuple[int, int, int]  # planes, rows, bytes

    @staticmethod
    def read(regs: Registers) -> DmaSpec:
        """Read and check all registers of the operation."""
        r = Register
        if regs.operation.parameter:
            regs.illegal(f"DMA_START has parameter {regs.operation.parameter}; only channel 0, mode 0 exists")
        length = regs.raw(r.DMA0_LEN)
        words = [regs.bits(x, 0x707) for x in (r.DMA0_SRC_REGION, r.DMA0_DST_REGION)]
        dimensions = [regs.one_of(r.DMA0_SRC_REGION, (0, 1, 2), word >> 9 & 3) + 1 for word in words]
        rows = regs.raw(r.DMA0_SIZE0) if max(dimensions) > 1 else 1
        planes = regs.raw(r.DMA0_SIZE1) if max(dimensions) > 2 else 1
        if length < 1 or rows < 1 or planes < 1 or rows * planes > _MAX_ROWS:
            regs.illegal(f"a transfer of {planes} x {rows} rows of {length} bytes is empty or too large")
        sides = []
        for name, word, dims, base in (
            ("DMA0_SRC", words[0], dimensions[0], r.DMA0_SRC),
            ("DMA0_DST", words[1], dimensions[1], r.DMA0_DST),
        ):
            row = length + (regs.low(r.DMA0_SKIP0) if dims > 1 else 0)
            plane = row * rows + (regs.low(r.DMA0_SKIP1) if dims > 2 else 0)
            sides.append(Side(name, word & 7, bool(word & _INTERNAL), regs.raw(base), (plane, row)))
        if sides[0].internal:
            regs.illegal("DMA0_SRC_REGION asks to read from inside the NPU, which is not possible")
        return DmaSpec(sides[0], sides[1], (planes, rows, length))

    @property
    def size_bytes(self) -> int:
        """Bytes moved."""
        return self.shape[0] * self.shape[1] * self.shape[2]

    @property
    def is_1d(self) -> bool:
        """True for the only kind that compilers emit."""
        return self.shape[:2] == (1, 1)


class Dma:
    """The bound transfer; `run` executes it once."""

    def __init__(self, spec: DmaSpec, memory: Memory, regs: Registers) -> None:
        self.spec, self.regs = spec, regs
        self._from, self._from_shadow = self._views(spec.source, memory)
        self._to, self._to_shadow = self._views(spec.destination, memory)
        if not spec.destination.internal:
            memory.writable(self._to, spec.destination.region, regs, spec.destination.name)

    def _views(self, side: Side, memory: Memory) -> tuple[Bytes, Shadow | None]:
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
