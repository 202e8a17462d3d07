"""The output path of every kernel: rescale, zero point, clamp, activation, element type.

Invariant: blocks of accumulator sums go in, in any order, and the output feature map comes out; nothing
of a kernel's arithmetic is in here, and nothing of the output path anywhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.stream.isa import Register, Rounding

from . import tables
from .layout import Layout
from .memory import FeatureMapAccess, Memory
from .registers import Registers
from .rescale import Clamped, Scale

Int64 = NDArray[np.int64]
BLOCK_ELEMENTS = 1 << 15  # sums handled at once: a float64 block of these stays in a level-2 cache

_OFM_TYPES = {(0, 0): "u1", (0, 1): "i1", (1, 0): "<u2", (1, 1): "<i2", (2, 0): "<u4", (2, 1): "<i4"}


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
    """Everything the registers say about the output of one kernel."""

    layout: Layout
    height: int
    width: int
    depth: int
    rounding: Rounding
    global_scale: bool
    activation: Activation
    lut_slot: int
    low: int  # clamp, inclusive
    high: int
    zero_point: int  # that is added (0 when the output path adds none)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of an output element."""
        return self.layout.dtype

    @property
    def lut_bytes(self) -> int:
        """Bytes of the table the activation reads; 0 when it reads none."""
        return LUT_BYTES[self.dtype.itemsize] if self.activation is Activation.LUT else 0

    @staticmethod
    def read(regs: Registers) -> OutputSpec:
        """Read and check the OFM registers and the activation."""
        r = Register
        precision = regs.bits(r.OFM_PRECISION, 0b1100_0001_0100_0111)
        size = regs.one_of(r.OFM_PRECISION, (0, 1, 2), precision >> 1 & 3)
        dtype = np.dtype(_OFM_TYPES[size, precision & 1])
        rounding = Rounding(regs.one_of(r.OFM_PRECISION, (0, 1, 2), precision >> 14))
        height, width, depth = (regs.raw(x) + 1 for x in (r.OFM_HEIGHT_M1, r.OFM_WIDTH_M1, r.OFM_DEPTH_M1))
        layout = Layout.read(regs, "OFM", dtype, bool(precision & 64), height, width)
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


class Output:
    """The bound output of one kernel. `put` takes sums; `finish` writes what is not yet in memory."""

    def __init__(self, spec: OutputSpec, memory: Memory, regs: Registers) -> None:
        self.spec = spec
        self.shape = (spec.height, spec.width, spec.depth)
        self.map = FeatureMapAccess(memory, regs, spec.layout, self.shape, is_write=True)
        self._row = spec.width * spec.depth
        self.rows_per_block = max(1, min(spec.height, BLOCK_ELEMENTS // self._row))
        self._work: NDArray[np.float64] = np.empty(0)
        self.clamp: Clamped | None = None
        self._rows: tuple[int, ...] = ()
        self._lut: NDArray[np.uint8] | None = None
        if spec.activation is Activation.LUT:
            start = memory.accelerator.lut_address + 256 * spec.lut_slot
            self._lut = memory.shram[start : start + spec.lut_bytes]

    def rescale(self, scale: Scale, bias: Int64 | None, reach: float) -> None:
        """Set how sums become values; `reach` bounds |sum + bias|."""
        spec = self.spec
        low, high, zero = spec.low, spec.high, spec.zero_point
        if spec.activation in (Activation.TANH, Activation.SIGMOID):
            low, high, zero = -(1 << 31), (1 << 31) - 1, 0  # these functions take the value before it is narrowed
        clamp = Clamped(scale, bias, zero, low, high, reach)
        # Short rows of channels make numpy loop in small steps: handle a row of pixels as one.
        times = spec.width if clamp.exact and spec.depth < 64 and spec.width * spec.depth <= 4096 else 1
        self.clamp = clamp.tiled(times)
        self._rows = (times * spec.depth,)
        self._work = np.empty(self.rows_per_block * self._row)

    def put(self, first: int, sums: NDArray[Any]) -> None:
        """Sums of rows [first, first + n): [n, width, depth] or any shape with as many elements, channels last."""
        assert self.clamp is not None
        spec = self.spec
        count = sums.size // self._row
        work = self._work[: sums.size].reshape(-1, *self._rows)
        self.clamp(sums.reshape(work.shape), work)
        values = work.reshape(count, spec.width, spec.depth)
        target = self.map.array[first : first + count]
        if spec.activation is Activation.NONE:
            np.copyto(target, values, casting="unsafe")
        else:
            target[...] = self._activate(values.astype(np.int64))

    def put_values(self, first: int, values: Int64) -> None:
        """Values that are not rescaled: zero point, clamp and activation only; rows as in `put`."""
        spec = self.spec
        values = np.clip(values + spec.zero_point, spec.low, spec.high)
        if spec.activation is not Activation.NONE:
            values = self._activate(values)
        self.map.array[first : first + len(values)] = values

    def _activate(self, values: Int64) -> Int64:
        spec = self.spec
        if spec.activation is Activation.LUT:
            assert self._lut is not None
            if spec.dtype.itemsize == 2:
                return tables.lut16(self._lut.view("<i4").astype(np.int64), np.clip(values, -32768, 32767))
            index = values if spec.dtype == np.uint8 else values + 128
            table = self._lut.view(spec.dtype)
            return table[np.clip(index, 0, len(table) - 1)].astype(np.int64)
        result = tables.tanh(values) if spec.activation is Activation.TANH else tables.sigmoid(values)
        return np.clip(result + spec.zero_point, spec.low, spec.high)

    @property
    def may_overwrite(self) -> bool:
        """True when `put` writes to memory at once, so inputs must have been copied."""
        return not self.map.is_scratch

    def finish(self) -> None:
        """Write the output feature map to memory."""
        self.map.store()
