"""An oracle for BLOCKDEP on Ethos-U85: bytes that the last blocks of a kernel write, and that jobs of the next read.

Invariant: worked out element by element from the numbers in registers; neither the compiler's feature maps and
analysis nor the NPU model's are used. Blocks of results are made depth first, then along x, then along y. Job f of the
next kernel may start while the last BLOCKDEP - f blocks before it are unwritten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from npu_memplan.ethosu.stream.decode import Command, Operation, Wait
from npu_memplan.ethosu.stream.isa import Op, Register

MOST = 7
Registers = dict[str, int]
Box = tuple[range, range, range]  # rows, columns, channels
_AXES = {0: (0, 1, 2), 1: (1, 0, 2), 2: (0, 2, 1), 3: (1, 2, 0), 6: (2, 0, 1), 7: (2, 1, 0)}  # of OFM_PRECISION's order


def pairs(commands: Sequence[Command]) -> Iterator[tuple[list[Operation], list[Operation], bool]]:
    """Kernels that follow each other without a wait for all kernels between: chains as lists, and whether a transfer
    or its wait stands between."""
    before: list[Operation] = []
    group: list[Operation] = []
    apart = False
    for command in commands:
        if isinstance(command, Wait):
            if command.op is Op.KERNEL_WAIT and command.outstanding == 0:
                before = []
            apart = True
        elif isinstance(command, Operation) and command.op is Op.DMA_START:
            apart = True
        elif isinstance(command, Operation):
            group.append(command)
            if command.get(Register.OFM_PRECISION) >> 14 != 2:  # not chained
                if before:
                    yield before, group, apart
                before, group, apart = group, [], False


def largest(before: Sequence[Operation], after: Sequence[Operation], macs: int) -> int:
    """The largest BLOCKDEP, up to 7, of the chain `after` that cannot read what `before` has yet to write."""
    last = _numbers(before[-1])
    if last["ACC_FORMAT"] >> 6 & 1 or last["OFM_PRECISION"] >> 14 == 3:
        return MOST  # nothing is written
    blocks = [_stored(last, block) for block in list(_blocks(last))[: -MOST - 1 : -1]]
    low = min(int(b.min()) for b in blocks)
    age = np.zeros(max(int(b.max()) for b in blocks) - low + 1, np.int8)  # 1: of the last block
    for number, block in reversed(list(enumerate(blocks, start=1))):
        age[block - low] = number
    safe = MOST
    for operation in after:
        numbers = _numbers(operation)
        for job, reads in zip(range(MOST), _jobs(operation, numbers, macs), strict=False):
            for region, bytes_read in reads:
                if region != last["OFM_REGION"] or not bytes_read.size:
                    continue
                near = bytes_read[(bytes_read >= low) & (bytes_read < low + age.size)] - low
                ages = age[near]
                ages = ages[ages > 0]
                if ages.size:
                    safe = min(safe, job + int(ages.min()) - 1)
    return safe


def _numbers(operation: Operation) -> Registers:
    found = dict.fromkeys(("ACC_FORMAT", "IFM_BROADCAST", "IFM2_BROADCAST", "KERNEL_STRIDE", "IFM_UPSCALE"), 0)
    return found | {register.name: value for register, value in operation.registers.items()}


def _made(n: Registers) -> tuple[int, int, int]:
    return n["OFM_HEIGHT_M1"] + 1, n["OFM_WIDTH_M1"] + 1, n["OFM_DEPTH_M1"] + 1


def _blocks(n: Registers) -> Iterator[Box]:
    sizes = (n["OFM_BLK_HEIGHT_M1"] + 1, n["OFM_BLK_WIDTH_M1"] + 1, n["OFM_BLK_DEPTH_M1"] + 1)
    parts = [
        [range(start, min(start + size, whole)) for start in range(0, whole, size)]
        for whole, size in zip(_made(n), sizes, strict=True)
    ]
    for y in parts[0]:
        for x in parts[1]:
            for c in parts[2]:
                yield y, x, c


def _stored(n: Registers, block: Box) -> np.ndarray:
    """Bytes that a block of results is written to."""
    made, order, backwards = _made(n), n["OFM_PRECISION"] >> 11 & 7, n["OFM_PRECISION"] >> 9 & 3
    axes = _AXES[order]
    places = []
    for stored, axis in enumerate(axes):
        place = np.array(block[axis])
        places.append(made[axis] - 1 - place if backwards == stored + 1 else place)
    return _bytes(n, "OFM", places)


def _bytes(n: Registers, name: str, places: Sequence[np.ndarray | range]) -> np.ndarray:
    """Addresses of the bytes of elements at all (row, column, channel) of `places`."""
    y, x, c = np.meshgrid(*(np.asarray(p, np.int64) for p in places), indexing="ij")
    precision = n[f"{name}_PRECISION"]
    size = 1 << (precision >> (1 if name == "OFM" else 2) & 3)
    right = x > n[f"{name}_WIDTH0_M1"]
    rows = np.where(right, n[f"{name}_HEIGHT1_M1"], n[f"{name}_HEIGHT0_M1"]) + 1
    below = y >= rows
    bases = np.array([n.get(f"{name}_BASE{i}", 0) for i in range(4)], np.int64)
    address = bases[2 * below + right]
    y, x = y - np.where(below, rows, 0), x - np.where(right, n[f"{name}_WIDTH0_M1"] + 1, 0)
    address = address + y * n[f"{name}_STRIDE_Y"]
    if precision >> 6 & 3:
        address = address + c // 16 * n[f"{name}_STRIDE_C"] + (x * 16 + c % 16) * size
    else:
        address = address + x * n[f"{name}_STRIDE_X"] + c * size
    found: np.ndarray = (address[..., None] + np.arange(size)).reshape(-1)
    return found


def _jobs(operation: Operation, n: Registers, macs: int) -> Iterator[list[tuple[int, np.ndarray]]]:
    """(region, bytes) that each job reads, in order."""
    matrix = operation.op is Op.CONV and bool(operation.parameter & 1)
    loaded = operation.op is not Op.ELEMENTWISE and n["ACC_FORMAT"] >> 4 & 3 == 2
    for block in _blocks(n):
        if operation.op is Op.ELEMENTWISE:
            names = ("IFM",) if operation.parameter in _UNARY else ("IFM", "IFM2")
            yield [(n[f"{name}_REGION"], _by_element(n, name, block)) for name in names if _in_memory(n, name)]
            continue
        if operation.op is Op.RESIZE:
            yield [(n["IFM_REGION"], _bytes(n, "IFM", (*_resized(n, block), block[2])))]
            continue
        sums = operation.op is Op.CONV or (operation.op is Op.POOL and operation.parameter == _REDUCE_SUM)
        rows, columns = _window(n, "HEIGHT", block[0], _made(n)[0]), _window(n, "WIDTH", block[1], _made(n)[1])
        for depth in _slices(operation, n, macs) if sums else [block[2]]:
            reads = [(n["IFM_REGION"], _bytes(n, "IFM", (rows, columns, depth)))] if _in_memory(n, "IFM") else []
            if matrix:
                reads.append((n["IFM2_REGION"], _bytes(n, "IFM2", (range(1), block[2], depth))))
            if loaded:
                reads.append((n["IFM2_REGION"], _bytes(n, "IFM2", block)))
            yield reads


_UNARY = (5, 6, 7, 24)  # LRELU, ABS, CLZ, NOT
_REDUCE_SUM = 2
_SIXTEEN_DEEP = ((128, 0), (256, 1))  # multipliers and micro-block of 16 channels: 1x1 and 1x2


def _in_memory(n: Registers, name: str) -> bool:
    return n[f"{name}_PRECISION"] >> 14 == 0


def _by_element(n: Registers, name: str, block: Box) -> np.ndarray:
    word = n[f"{name}_BROADCAST"]
    return _bytes(n, name, [range(1) if word >> axis & 1 else part for axis, part in enumerate(block)])


def _slices(operation: Operation, n: Registers, macs: int) -> list[range]:
    """Input channels of each job: regor's depths of an IFM block."""
    depth, bits = n["IFM_DEPTH_M1"] + 1, 8 << (n["IFM_PRECISION"] >> 2 & 3)
    by_weights = operation.op is Op.CONV and not operation.parameter & 1
    sparse = by_weights and bool(n.get("WEIGHT_FORMAT", 0) >> 4 & 1)
    step = 128 if sparse and bits == 8 else 64
    if bits == 32 or (not sparse and (macs, n["ACC_FORMAT"] >> 8 & 7) in _SIXTEEN_DEEP):
        step = 32
    if n["KERNEL_STRIDE"] >> 2 & 1 and not (operation.op is Op.CONV and operation.parameter & 1):
        step = 16
    return [range(start, min(start + step, depth)) for start in range(0, depth, step)]


def _window(n: Registers, name: str, block: range, made: int) -> range:
    """Rows or columns of the input that those of a block need; padding is not in memory."""
    across = name == "WIDTH"
    word = n["KERNEL_STRIDE"]
    stride = 1 + ((word & 1) + 2 * (word >> 6 & 7) if across else (word >> 1 & 1) + 2 * (word >> 9 & 7))
    before = n["IFM_PAD_LEFT" if across else "IFM_PAD_TOP"]
    after = n["IFM_PAD_RIGHT" if across else "IFM_PAD_BOTTOM"]
    extent = n[f"KERNEL_{name}_M1"] + 1
    there = (made - 1) * stride + extent - before - after
    first, stop = block[0] * stride - before, block[-1] * stride - before + extent
    if n["IFM_UPSCALE"]:
        there, first, stop = -(-there // 2), first // 2, -(-stop // 2)
    return range(max(first, 0), max(min(stop, there), 0))


def _resized(n: Registers, block: Box) -> tuple[range, range]:
    found = []
    for letter, part, name in (("Y", block[0], "HEIGHT"), ("X", block[1], "WIDTH")):
        whole = n[f"KERNEL_{name}_M1"] + 1
        numerator, step = n[f"RESIZE_{letter}_SCALE_N_M1"] + 1, n[f"RESIZE_{letter}_STEP"]
        offset = (n[f"RESIZE_{letter}_OFFSET"] + 0x800 & 0xFFF) - 0x800
        step = (step >> 32 & 15) * numerator + (step & 0x7FF)
        at = [(place * step + offset) // numerator for place in (part[0], part[-1])]
        found.append(range(min(max(at[0], 0), whole - 1), min(max(at[1] + 2, 1), whole)))
    return found[0], found[1]
