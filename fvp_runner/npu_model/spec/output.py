"""What the registers say of a kernel's output: its map, rounding, limits and activation.

Invariant: the limits are those of the clamp as it is applied: inside the type, and of its sign.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from npu_memplan.ethosu.stream.isa import Register, Rounding
from npu_memplan.ethosu.stream.isa_u85 import ScaleRounding, TableKind

from .layout import ELEMENT_TYPES, MapLayout
from .registers import Registers


class Activation(Enum):
    """ACTIVATION, low 5 bits; LUT slots are 16 and up."""

    NONE = 0
    TANH = 3
    SIGMOID = 4
    LUT = 16


_CLIP = {0: None, 2: np.dtype("u1"), 3: np.dtype("i1"), 5: np.dtype("<i2")}
LUT_BYTES = {1: 256, 2: 2048, 4: 1024}  # by bytes of an output element


@dataclass(frozen=True, slots=True)
class OutputSpec:
    layout: MapLayout
    height: int
    width: int
    depth: int
    rounding: Rounding | ScaleRounding
    global_scale: bool
    activation: Activation
    lut_slot: int
    low: int  # clamp, inclusive
    high: int
    zero_point: int  # that is added (0 when the output path adds none)
    table: TableKind = TableKind.NONE  # of a look-up that says its own types
    axes: tuple[int, int, int] = (0, 1, 2)  # of the results that are the rows, columns and channels in memory
    reverse: int = -1  # the axis that is stored backwards; -1: none
    wraps: bool = False  # values beyond the type lose their high bits, in place of the clamp
    kept: bool = False  # nothing is written: the accumulators stay for the next operation

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.layout.dtype

    @property
    def lut_bytes(self) -> int:
        """Bytes of the table the activation reads; 0 when it reads none."""
        if self.table is not TableKind.NONE:
            return self.table.size_bytes
        return LUT_BYTES[self.dtype.itemsize] if self.activation is Activation.LUT else 0

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, columns and channels of the results."""
        return self.height, self.width, self.depth

    @property
    def stored(self) -> tuple[int, int, int]:
        """Rows, columns and channels in memory; none of what is kept."""
        made = self.shape
        return (0, 0, 0) if self.kept else (made[self.axes[0]], made[self.axes[1]], made[self.axes[2]])

    def stored_box(self, box: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        """Where half-open rows, columns and channels of the results are in memory."""
        if self.reverse >= 0:
            first, stop = box[self.reverse]
            extent = self.shape[self.reverse]
            turned = (extent - stop, extent - first)
            box = tuple(turned if axis == self.reverse else span for axis, span in enumerate(box))
        return tuple(box[axis] for axis in self.axes)

    @staticmethod
    def read(regs: Registers) -> OutputSpec:
        r = Register
        precision = regs.bits(r.OFM_PRECISION, 0b1100_0001_0100_0111)
        size = regs.one_of(r.OFM_PRECISION, (0, 1, 2), precision >> 1 & 3)
        dtype = ELEMENT_TYPES[size, precision & 1]
        rounding = Rounding(regs.one_of(r.OFM_PRECISION, (0, 1, 2), precision >> 14))
        height, width, depth = (regs.raw(x) + 1 for x in (r.OFM_HEIGHT_M1, r.OFM_WIDTH_M1, r.OFM_DEPTH_M1))
        layout = MapLayout.read(regs, "OFM", dtype, bool(precision & 64), height, width)
        word = regs.bits(r.ACTIVATION, 0x701F)
        function = word & 0x1F
        if function not in (0, 3, 4) and not 16 <= function < 24:
            regs.illegal(f"ACTIVATION = {word:#x}: function {function} is none of 0 (none), 3, 4 and 16 to 23 (LUT)")
        forced = _CLIP[regs.one_of(r.ACTIVATION, tuple(_CLIP), word >> 12)]
        activation = Activation(min(function, 16))
        clip = forced or dtype
        info = np.iinfo(clip)
        low, high, zero_point = int(info.min), int(info.max), 0
        if dtype.itemsize < 4 or forced is not None:
            # The limits are 16 bits wide and signed like the range they clamp to.
            low = max(low, regs.signed16(r.ACTIVATION_MIN, clip.kind == "i"))
            high = min(high, regs.signed16(r.ACTIVATION_MAX, clip.kind == "i"))
            zero_point = layout.zero_point
            if low > high:
                regs.illegal(f"ACTIVATION_MIN {low} is above ACTIVATION_MAX {high}")
        return OutputSpec(
            layout=layout,
            height=height,
            width=width,
            depth=depth,
            rounding=rounding,
            global_scale=bool(precision & 256),
            activation=activation,
            lut_slot=max(function - 16, 0),
            low=low,
            high=high,
            zero_point=zero_point,
        )


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """The fields that every kernel has, whatever it computes."""

    output: OutputSpec

    @property
    def macs(self) -> int:
        """Multiply-accumulates, or elements taken in; one for each result unless a kernel overrides it."""
        return math.prod(self.output.shape)
