"""What the registers of a DMA_START say.

Invariant: a transfer is a list of equally long rows; 1D transfers, the only ones compilers emit, have one.
2D and 3D transfers follow their description (rows of DMA0_LEN bytes, DMA0_SKIP0 bytes left out after each
row, DMA0_SKIP1 after each plane, on the side whose region register selects it) and are not verified.
"""

from __future__ import annotations

from dataclasses import dataclass

from npu_memplan.ethosu.stream.isa import Register

from .registers import Registers

INTERNAL = 1 << 8
_MAX_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class Side:
    """Source or destination: [planes, rows, length] bytes."""

    name: str
    region: int
    internal: bool
    start: int
    strides: tuple[int, int]  # between planes, between rows
    choices: int = 0  # rows that an index may choose; 0: every row is the next one

    def reach(self, shape: tuple[int, int, int]) -> tuple[int, int, int]:
        """[planes, rows, length] that may be touched when `shape` is moved."""
        return (shape[0], self.choices, shape[2]) if self.choices else shape

    def stop(self, shape: tuple[int, int, int]) -> int:
        shape = self.reach(shape)
        return self.start + (shape[0] - 1) * self.strides[0] + (shape[1] - 1) * self.strides[1] + shape[2]


@dataclass(frozen=True, slots=True)
class Index:
    """Where the numbers of rows are: [planes, rows] of 32 bits, rows close together."""

    region: int
    start: int
    plane_stride: int
    largest: int  # number that may occur


@dataclass(frozen=True, slots=True)
class DmaSpec:
    source: Side
    destination: Side
    shape: tuple[int, int, int]  # planes, rows, bytes
    index: Index | None = None

    @staticmethod
    def read(regs: Registers) -> DmaSpec:
        check_mode(regs)
        r = Register
        words = [regs.bits(x, 0x707) for x in (r.DMA0_SRC_REGION, r.DMA0_DST_REGION)]
        dimensions = [regs.one_of(r.DMA0_SRC_REGION, (0, 1, 2), word >> 9 & 3) + 1 for word in words]
        planes, rows, length = read_extents(regs, max(dimensions) > 1, max(dimensions) > 2, _MAX_ROWS)
        sides = []
        for name, word, dims, base in (
            ("DMA0_SRC", words[0], dimensions[0], r.DMA0_SRC),
            ("DMA0_DST", words[1], dimensions[1], r.DMA0_DST),
        ):
            row = length + (regs.low(r.DMA0_SKIP0) if dims > 1 else 0)
            plane = row * rows + (regs.low(r.DMA0_SKIP1) if dims > 2 else 0)
            sides.append(Side(name, word & 7, bool(word & INTERNAL), regs.raw(base), (plane, row)))
        return DmaSpec(sides[0], sides[1], (planes, rows, length))

    @property
    def size_bytes(self) -> int:
        return self.shape[0] * self.shape[1] * self.shape[2]


def check_mode(regs: Registers) -> None:
    """The operation's own parameter, before any register."""
    if regs.operation.parameter:
        regs.illegal(f"DMA_START has parameter {regs.operation.parameter}; only channel 0, mode 0 exists")


def read_extents(regs: Registers, has_rows: bool, has_planes: bool, most_rows: int) -> tuple[int, int, int]:
    """Planes, rows and bytes of a transfer that there can be."""
    r = Register
    length = regs.raw(r.DMA0_LEN)
    rows = regs.raw(r.DMA0_SIZE0) if has_rows else 1
    planes = regs.raw(r.DMA0_SIZE1) if has_planes else 1
    if length < 1 or rows < 1 or planes < 1 or rows * planes > most_rows:
        regs.illegal(f"a transfer of {planes} x {rows} rows of {length} bytes is empty or too large")
    if regs.raw(r.DMA0_SRC_REGION) & INTERNAL:
        regs.illegal("DMA0_SRC_REGION selects a read from inside the NPU, which is not possible")
    return planes, rows, length
