"""An oracle for re-planning: where every byte that every operation reads came from.

A stream is executed on memories that hold, for each byte, which write put it there and as the how-manieth
byte. Two streams compute the same exactly when every operation reads the same provenance. Addresses are
worked out here from registers, element by element, without the package's feature maps, ranges or webs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from npu_memplan.ethosu.arch import Architecture
from npu_memplan.ethosu.stream.decode import Operation
from npu_memplan.ethosu.stream.isa import Op, Register

UNDEFINED = -1
_SPAN = 1 << 32  # provenance = write number * _SPAN + byte number
_SHRAM = 0x103


def element_bytes(op: Operation, name: str, height: int, width: int, depth: int) -> np.ndarray:
    """Byte addresses of every element of a feature map: [height * width * depth, bytes of an element]."""
    value = {r.name.removeprefix(f"{name}_"): v for r, v in op.registers.items() if r.name.startswith(f"{name}_")}
    size = 1 << (value["PRECISION"] >> (1 if name == "OFM" else 2) & 3)
    y, x, c = np.indices((height, width, depth)).reshape(3, -1)
    right = x > value["WIDTH0_M1"]
    rows = np.where(right, value["HEIGHT1_M1"], value["HEIGHT0_M1"]) + 1
    below = y >= rows
    bases = np.array([value.get(f"BASE{i}", 0) for i in range(4)])
    y = y - np.where(below, rows, 0)
    x = x - np.where(right, value["WIDTH0_M1"] + 1, 0)
    address = bases[below * 2 + right * 1] + y * value["STRIDE_Y"]
    if value["PRECISION"] >> 6 & 1:
        address = address + c // 16 * value["STRIDE_C"] + (x * 16 + c % 16) * size
    else:
        address = address + x * value["STRIDE_X"] + c * size
    return address[:, None] + np.arange(size)


def shapes(op: Operation) -> dict[str, tuple[int, int, int]]:
    """Height, width, depth of what a kernel touches, by feature map."""
    g = {r.name: v for r, v in op.registers.items()}
    ofm = (g["OFM_HEIGHT_M1"] + 1, g["OFM_WIDTH_M1"] + 1, g["OFM_DEPTH_M1"] + 1)
    found = {"OFM": ofm}
    if op.op is Op.ELEMENTWISE:
        found["IFM"] = ofm
        if op.parameter not in (5, 6, 7) and not g["IFM2_BROADCAST"] & 128:
            found["IFM2"] = tuple(1 if g["IFM2_BROADCAST"] >> bit & 1 else n for bit, n in enumerate(ofm))  # type: ignore[assignment]
        return found
    stride = g["KERNEL_STRIDE"]
    steps = (1 + (stride >> 1 & 1) + 2 * (stride >> 9 & 7), 1 + (stride & 1) + 2 * (stride >> 6 & 7))
    pads = (g["IFM_PAD_TOP"] + g["IFM_PAD_BOTTOM"], g["IFM_PAD_LEFT"] + g["IFM_PAD_RIGHT"])
    taps = (g["KERNEL_HEIGHT_M1"] + 1, g["KERNEL_WIDTH_M1"] + 1)
    extent = [(n - 1) * s + k - p for n, s, k, p in zip(ofm, steps, taps, pads, strict=False)]
    if g["IFM_UPSCALE"]:
        extent = [-(-n // 2) for n in extent]
    whole = op.op is Op.CONV or (op.op is Op.POOL and op.parameter == 2)
    found["IFM"] = (extent[0], extent[1], g["IFM_DEPTH_M1"] + 1 if whole else ofm[2])
    return found


class Memory:
    """Memories by region, holding provenance."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        self.bytes = {region: np.full(size, UNDEFINED, np.int64) for region, size in sizes.items()}
        self.bytes[0] = -10 - np.arange(sizes[0], dtype=np.int64)
        self.bytes[_SHRAM] = np.full(1 << 17, UNDEFINED, np.int64)

    def define(self, region: int, address: int, size: int, number: int) -> None:
        """Content from outside: an input or a state."""
        self.bytes[region][address : address + size] = -((number + 1) * _SPAN + np.arange(size, dtype=np.int64)) - _SPAN


def execute(
    operations: Sequence[Operation], memory: Memory, accelerator: Architecture, *, see_through_copies: bool = False
) -> list[list[np.ndarray]]:
    """What each operation reads, in element order. Fails when one overwrites its input out of step.

    `see_through_copies`: a DMA's bytes keep the provenance of its source, and DMAs are not in the trace, so that
    programs that differ in copies can be compared.
    """
    trace: list[list[np.ndarray]] = []
    number = -1
    for op in operations:
        reads, writes = _accesses(op, accelerator)
        if see_through_copies and op.op is Op.DMA_START:
            (source, start), (target, stop) = *reads, *writes
            memory.bytes[target][stop] = memory.bytes[source][start].copy()
            continue
        number += 1
        trace.append([memory.bytes[region][where].copy() for region, where in reads])
        for region, where in writes:
            for other, source in reads:
                if other == region and np.intersect1d(source, where).size:
                    assert source.shape == where.shape, f"operation {number} overwrites part of its input"
                    assert np.array_equal(source, where), f"operation {number} overwrites its input out of step"
                    assert op.op in (Op.ELEMENTWISE, Op.POOL), f"operation {number} overwrites its input"
            flat = where.ravel()
            memory.bytes[region][flat] = (number + 1) * _SPAN + np.arange(flat.size)
    return trace


def _accesses(op: Operation, accelerator: Architecture) -> tuple[list[Any], list[Any]]:
    r = Register
    if op.op is Op.DMA_START:
        length = np.arange(op[r.DMA0_LEN])
        return [(op[r.DMA0_SRC_REGION], op[r.DMA0_SRC] + length)], [(op[r.DMA0_DST_REGION], op[r.DMA0_DST] + length)]
    found = {name: (op[r[f"{name}_REGION"]], element_bytes(op, name, *shape)) for name, shape in shapes(op).items()}
    reads = [found[name] for name in ("IFM", "IFM2") if name in found]
    if op.op in (Op.CONV, Op.DEPTHWISE):
        cores = ("", "1") if op.get(r.PARALLEL_MODE) else ("",)
        for kind in ("WEIGHT", "SCALE"):
            for core in cores:
                where = op.get(r[f"{kind}{core}_BASE"]) + np.arange(op.get(r[f"{kind}{core}_LENGTH"]))
                reads.append((op[r[f"{kind}_REGION"]], where))
    table = op.get(r.ACTIVATION) & 31
    if table >= 16:
        size = {0: 256, 1: 2048, 2: 1024}[op[r.OFM_PRECISION] >> 1 & 3]
        reads.append((_SHRAM, accelerator.lut_address + 256 * (table - 16) + np.arange(size)))
    return reads, [found["OFM"]]


def same(first: list[list[np.ndarray]], second: list[list[np.ndarray]]) -> bool:
    """Whether two traces agree wherever the first one is defined."""
    if len(first) != len(second):
        return False
    for left, right in zip(first, second, strict=True):
        for a, b in zip(left, right, strict=True):
            if a.shape != b.shape or not np.array_equal(a[a != UNDEFINED], b[a != UNDEFINED]):
                return False
    return True
