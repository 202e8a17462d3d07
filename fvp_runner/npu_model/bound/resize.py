"""Ethos-U85's RESIZE.

Invariant: an output place is (place * step + offset) / numerator input places; what is outside the input is its edge.
"""

from __future__ import annotations

import numpy as np

from npu_memplan.ethosu.stream.isa_u85 import ResizeKind

from ..arithmetic.rescale import Int64
from ..spec.registers import Registers
from ..spec.u85.kernels import ResizeAxis, ResizeSpec
from .memory import FeatureMapAccess, RegionMemory
from .output import OutputPath

_FRACTION = 16  # bits that OFM_SCALE has too many


class Resizing:
    def __init__(self, spec: ResizeSpec, memory: RegionMemory, regs: Registers) -> None:
        self.spec = spec
        self._input = FeatureMapAccess(memory, regs, spec.input.map, spec.input.shape, is_write=False)
        self.maps = [self._input]
        self.output = OutputPath(spec.output, memory, regs)

    def run(self) -> None:
        spec = self.spec
        self._input.load()
        values = self._input.array.astype(np.int64) - spec.input.zero_point
        top, down = _places(spec.y, spec.output.height)
        left, right = _places(spec.x, spec.output.width)
        if spec.kind is ResizeKind.BILINEAR:
            rows = [_clip(top + step, values.shape[0]) for step in (0, 1)]
            columns = [_clip(left + step, values.shape[1]) for step in (0, 1)]
            shares = (spec.y.numerator - down, down), (spec.x.numerator - right, right)
            sums = np.zeros(spec.output.shape, np.int64)
            for i in (0, 1):
                for j in (0, 1):
                    part = values[rows[i]][:, columns[j]]
                    sums += part * shares[0][i][:, None, None] * shares[1][j][None, :, None]
            result = sums << _FRACTION  # OFM_SCALE takes these out, and the product of both numerators
        else:
            nearest = spec.kind is ResizeKind.NEAREST
            rows0 = _clip(top + (nearest & (2 * down >= spec.y.numerator)), values.shape[0])
            columns0 = _clip(left + (nearest & (2 * right >= spec.x.numerator)), values.shape[1])
            result = values[rows0][:, columns0] << _FRACTION
        self.output.put(0, spec.scale.exact(result))
        self.output.finish()


def _places(axis: ResizeAxis, count: int) -> tuple[Int64, Int64]:
    """Input place and the rest of the way to the next, in parts of the numerator."""
    at = np.arange(count, dtype=np.int64) * axis.step + axis.offset
    return at // axis.numerator, at % axis.numerator


def _clip(places: Int64, extent: int) -> Int64:
    found: Int64 = np.clip(places, 0, extent - 1)
    return found
