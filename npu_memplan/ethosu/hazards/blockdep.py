"""How far a kernel may run ahead into the one before it: the BLOCKDEP register.

Invariant: with the value returned, job f of the kernel reads no byte that the last (value - f) OFM
blocks of the previous kernel write. The value is the largest with that property, up to 3; where a
job's extent is not exactly known the analysis takes more, never less.

OFM blocks are produced depth first, then in x, then in y. A convolution or sum over channels has one job for
every 32 input channels of each block (16 with 16-bit elements); other kernels have one job a block. Part-kernel-first
convolutions take in 16 channels of 8 bits; they are treated as if it were 32, which can only make the value smaller.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from ...errors import NpuMemplanError
from ..arch.architecture import Architecture, Language
from ..program.extents import is_product, sums_depth
from ..program.featuremap import FeatureMap
from ..program.kernel import Kernel
from ..program.ranges import Ranges, share_byte
from ..program.slices import PART_KERNEL_SLICE, deep_slice
from ..stream.commands import Content, Operation
from ..stream.fields_u85 import AccumulatorWord
from ..stream.groups import ADDRESS_REGISTERS, IFM, IFM2, OFM, SCALES, WEIGHTS
from ..stream.isa import Op, Register, Upscale
from ..stream.isa_u85 import AccumulatorInput
from .inplace import is_turned

MAX_BLOCKDEP = 3

Box = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]  # half-open rows, columns, channels


def blockdep(previous: Operation, op: Operation, accelerator: Architecture | None = None) -> int:
    """The largest BLOCKDEP with which kernel `op` reads nothing that `previous` has yet to write.

    `accelerator`: the configuration, where it says how many blocks there may be and how deep jobs are.
    """
    try:
        written = previous[Register.OFM_BASE0]
        apart = tuple(op.registers.get(base, written) - written for base in (Register.IFM_BASE0, Register.IFM2_BASE0))
        known = _at_distances(previous.content(_UNUSED), op.content(_UNUSED), apart, accelerator)
        return _known(previous.content(_NOT_WRITTEN), op.content(_NOT_READ), accelerator) if known is None else known
    except NpuMemplanError:
        return _found(previous, op, accelerator)  # which says where


_UNUSED = ADDRESS_REGISTERS | {stream.length for stream in (*WEIGHTS, *SCALES)}
_NOT_WRITTEN = _UNUSED - {*OFM.bases}  # what the kernel before says otherwise changes nothing
_NOT_READ = _UNUSED - {*IFM.bases, *IFM2.bases}  # nor what the kernel says


_BASE = 1 << 40  # more bytes than any distance


@lru_cache(1 << 12)
def _at_distances(
    previous: Content, op: Content, apart: tuple[int, ...], accelerator: Architecture | None
) -> int | None:
    """Of kernels whose inputs lie `apart` from the output before, wherever that is: plans that are compared have most
    of these distances in common. None where a map is in several tiles, of which each has a place of its own.
    """
    before = Operation.of(previous).with_registers({Register.OFM_BASE0: _BASE})
    bases = (Register.IFM_BASE0, Register.IFM2_BASE0)
    kernel = Operation.of(op).with_registers({b: _BASE + far for b, far in zip(bases, apart, strict=True)})
    maps = (FeatureMap.ofm(before), FeatureMap.ifm(kernel), FeatureMap.ifm2(kernel))
    if any(tile for v in maps if v is not None for tile, _, _ in v.tiles(v.height, v.width)):
        return None
    return _found(before, kernel, accelerator)


@lru_cache(1 << 12)
def _known(previous: Content, op: Content, accelerator: Architecture | None) -> int:
    """Programs that are compared have most of their pairs in common, or all but the maps around them and constants."""
    return _found(Operation.of(previous), Operation.of(op), accelerator)


def _found(previous: Operation, op: Operation, accelerator: Architecture | None) -> int:
    most = MAX_BLOCKDEP if accelerator is None else accelerator.max_blockdep
    if op.language is Language.U85 and AccumulatorWord.INPUT.of(op.get(Register.ACC_FORMAT)) == AccumulatorInput.KEEP:
        return 0
    output = FeatureMap.ofm(previous)
    inputs = [v for v in (FeatureMap.ifm(op), FeatureMap.ifm2(op)) if v is not None and v.region == output.region]
    low, high = output.span()
    inputs = [v for v in inputs if v.span()[0] < high and low < v.span()[1]]
    if inputs:
        written = output.ranges()
        inputs = [v for v in inputs if share_byte(v.ranges(), written)]
    if not inputs:
        return most
    if is_turned(previous):
        return 0
    last: list[Ranges] = [output.box_ranges(*box) for box in last_blocks(previous, most)]
    safe = most
    for job, block in enumerate(jobs(op, accelerator)):
        if job >= safe:
            break
        read = [v.box_ranges(*input_box(op, v, block)) for v in inputs]
        for age, ranges in enumerate(last[: safe - job], start=1):
            if any(share_byte(r, ranges) for r in read):
                safe = job + age - 1
                break
    return safe


def _grid(op: Operation) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """(extent, block) of the OFM in y, x and channels."""
    r = Register
    return (
        (op[r.OFM_HEIGHT_M1] + 1, op[r.OFM_BLK_HEIGHT_M1] + 1),
        (op[r.OFM_WIDTH_M1] + 1, op[r.OFM_BLK_WIDTH_M1] + 1),
        (op[r.OFM_DEPTH_M1] + 1, op[r.OFM_BLK_DEPTH_M1] + 1),
    )


def _block(op: Operation, index: int) -> Box:
    (height, by), (width, bx), (depth, bz) = _grid(op)
    columns, slices = -(-width // bx), -(-depth // bz)
    rest, z = divmod(index, slices)
    y, x = divmod(rest, columns)
    return (
        (y * by, min((y + 1) * by, height)),
        (x * bx, min((x + 1) * bx, width)),
        (z * bz, min((z + 1) * bz, depth)),
    )


def block_count(op: Operation) -> int:
    count = 1
    for extent, block in _grid(op):
        count *= -(-extent // block)
    return count


def last_blocks(op: Operation, number: int) -> Iterator[Box]:
    """The last `number` OFM blocks of a kernel (or all, when it has fewer), latest first."""
    total = block_count(op)
    for index in range(total - 1, max(total - 1 - number, -1), -1):
        yield _block(op, index)


def jobs(op: Operation, accelerator: Architecture | None = None) -> Iterator[Box]:
    """OFM rows and columns, and input channels, of a kernel's jobs in order."""
    if not sums_depth(op):
        for index in range(block_count(op)):
            yield _block(op, index)
        return
    view = FeatureMap.ifm(op)
    step = 16 if view.element_bytes == 2 else 32
    if accelerator is not None and op.language is Language.U85:
        part = not is_product(op) and Kernel.of(op).part_kernel_first
        step = PART_KERNEL_SLICE if part else deep_slice(op, accelerator)
    for index in range(block_count(op)):
        rows, columns, _ = _block(op, index)
        for start in range(0, view.depth, step):
            yield rows, columns, (start, min(start + step, view.depth))


def input_box(op: Operation, view: FeatureMap, job: Box) -> Box:
    """Elements of an input that a job reads."""
    rows, columns, channels = job
    if op.op is Op.RESIZE or (view.name == "IFM2" and is_product(op)):
        return (0, view.height), (0, view.width), (0, view.depth)
    if op.op is Op.ELEMENTWISE or view.name == "IFM2":
        # A broadcast axis has extent 1: every job reads its only element.
        return _clip(rows, view.height), _clip(columns, view.width), _clip(channels, view.depth)
    kernel = Kernel.of(op)
    upscaled = op.get(Register.IFM_UPSCALE) != Upscale.NONE
    y = _window(rows, kernel.stride_y, kernel.height, kernel.pad_top, view.height, upscaled)
    x = _window(columns, kernel.stride_x, kernel.width, kernel.pad_left, view.width, upscaled)
    return y, x, (channels[0], min(channels[1], view.depth))


def _clip(part: tuple[int, int], extent: int) -> tuple[int, int]:
    return (0, 1) if extent == 1 else (part[0], min(part[1], extent))


def _window(part: tuple[int, int], stride: int, kernel: int, pad: int, extent: int, upscaled: bool) -> tuple[int, int]:
    start, stop = part[0] * stride - pad, (part[1] - 1) * stride - pad + kernel
    if upscaled:
        start, stop = start // 2, -(-stop // 2)
    return max(start, 0), max(min(stop, extent), 0)
