"""Writes command streams by hand, register by register.

Invariant: shares nothing with the package's encoder; a stream is exactly the commands written, in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fvp_runner.npu_model.model import NpuModel, RunStats
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.stream.isa import Op, Register

_PRECISION = {"int8": 1, "uint8": 0, "int16": 5, "int32": 9}
_OFM_PRECISION = {"int8": 1, "uint8": 0, "int16": 3, "int32": 5}


class Assembler:
    """Collects the words of a stream."""

    def __init__(self, words: Sequence[int] = ()) -> None:
        self.words = list(words)

    def set(self, **values: int) -> Assembler:
        """Write registers by name."""
        for name, value in values.items():
            register = Register[name]
            if register.has_payload:
                self.words += [register.opcode | 0x4000 | (value >> 32) << 16, value & 0xFFFFFFFF]
            else:
                self.words.append(register.opcode | (value & 0xFFFF) << 16)
        return self

    def op(self, op: Op, parameter: int = 0) -> Assembler:
        """Start an operation, or wait."""
        self.words.append(op.value | parameter << 16)
        return self

    def feature_map(
        self,
        name: str,
        shape: tuple[int, int, int],
        base: int,
        dtype: str = "int8",
        region: int = 1,
        zero_point: int = 0,
        more_precision: int = 0,
    ) -> Assembler:
        """IFM, IFM2 or OFM as one NHWC tile."""
        height, width, depth = shape
        element = np.dtype(dtype).itemsize
        precision = (_OFM_PRECISION if name == "OFM" else _PRECISION)[dtype] | more_precision
        values = {
            "REGION": region,
            "BASE0": base,
            "BASE1": 0,
            "BASE2": 0,
            "BASE3": 0,
            "HEIGHT0_M1": height - 1,
            "HEIGHT1_M1": height - 1,
            "WIDTH0_M1": width - 1,
            "STRIDE_X": depth * element,
            "STRIDE_Y": width * depth * element,
            "STRIDE_C": element,
            "PRECISION": precision,
            "ZERO_POINT": zero_point,
        }
        if name == "OFM":
            values |= {"HEIGHT_M1": height - 1, "WIDTH_M1": width - 1, "DEPTH_M1": depth - 1}
        if name == "IFM":
            values["DEPTH_M1"] = depth - 1
        return self.set(**{f"{name}_{key}": value for key, value in values.items()})

    def kernel(
        self, height: int = 1, width: int = 1, stride: int = 0, pads: tuple[int, ...] = (0, 0, 0, 0)
    ) -> Assembler:
        """Kernel registers; pads are top, left, bottom, right."""
        top, left, bottom, right = pads
        return self.set(
            KERNEL_HEIGHT_M1=height - 1,
            KERNEL_WIDTH_M1=width - 1,
            KERNEL_STRIDE=stride,
            IFM_PAD_TOP=top,
            IFM_PAD_LEFT=left,
            IFM_PAD_BOTTOM=bottom,
            IFM_PAD_RIGHT=right,
            IFM_UPSCALE=0,
        )

    def common(self, low: int = -128, high: int = 127, blockdep: int = 0) -> Assembler:
        """Activation, block and accumulator registers."""
        return self.set(
            ACTIVATION=0,
            ACTIVATION_MIN=low,
            ACTIVATION_MAX=high,
            OFM_BLK_HEIGHT_M1=1,
            OFM_BLK_WIDTH_M1=1,
            OFM_BLK_DEPTH_M1=15,
            ACC_FORMAT=0,
            BLOCKDEP=blockdep,
        )

    def constants(self, weights: tuple[int, int, int], scales: tuple[int, int, int]) -> Assembler:
        """Where the weight stream and the scale table lie: region, address and bytes of each."""
        self.set(WEIGHT_REGION=weights[0], WEIGHT_BASE=weights[1], WEIGHT_LENGTH=weights[2])
        return self.set(SCALE_REGION=scales[0], SCALE_BASE=scales[1], SCALE_LENGTH=scales[2])

    def dma(self, source: int, destination: int, length: int, regions: tuple[int, int] = (0, 1)) -> Assembler:
        """A 1D transfer."""
        self.set(DMA0_SRC_REGION=regions[0], DMA0_SRC=source, DMA0_DST_REGION=regions[1], DMA0_DST=destination)
        return self.set(DMA0_LEN=length).op(Op.DMA_START)

    def stop(self) -> tuple[int, ...]:
        """The finished stream."""
        return (*self.op(Op.STOP, 0xFFFF).words,)


def elementwise(
    mode: int, a: np.ndarray, b: np.ndarray | None, out: str, **registers: int
) -> tuple[np.ndarray, RunStats]:
    """Run one ELEMENTWISE on [h, w, c] arrays; the output array and the run's figures."""
    shape = a.shape
    memory = np.zeros(1 << 16, np.uint8)
    memory[: a.nbytes] = a.reshape(-1).view(np.uint8)
    s = Assembler().feature_map("IFM", shape, 0, str(a.dtype))
    if b is not None:
        memory[0x4000 : 0x4000 + b.nbytes] = b.reshape(-1).view(np.uint8)
        s.feature_map("IFM2", shape, 0x4000, str(b.dtype)).set(IFM2_BROADCAST=0)
    low, high = (np.iinfo(out).min, np.iinfo(out).max) if out != "int32" else (0, 0)
    s.feature_map("OFM", shape, 0x8000, out, more_precision=256).common(low, high)
    s.set(OFM_SCALE=1, OPA_SCALE=1, OPB_SCALE=1).set(**registers)
    stats = NpuModel(accelerator("ethos-u55-256")).run(s.op(Op.ELEMENTWISE, mode).stop(), [None, memory])
    size = int(np.prod(shape)) * np.dtype(out).itemsize
    return memory[0x8000 : 0x8000 + size].view(out).reshape(shape).copy(), stats
