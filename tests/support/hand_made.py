"""Operations and networks made by hand, register by register, for tests of the Ethos-U language."""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.stream.decode import Marker, Operation
from npu_memplan.ethosu.stream.encode import Payload, encode
from npu_memplan.ethosu.stream.isa import SHRAM_REGION, ElementwiseMode, Op, PoolMode, Register
from npu_memplan.models.network import Network
from npu_memplan.models.tensor import Tensor
from npu_memplan.models.vela import NpuCall

R = Register
STOP = Marker(Op.STOP, 0xFFFF)


def view(
    name: str,
    base: int,
    shape: tuple[int, int, int],
    *,
    region: int = 1,
    brick: bool = False,
    bits: int = 8,
    strides: tuple[int, int, int] | None = None,
    tiles: tuple[int, int, int, int] | None = None,
    splits: tuple[int, int, int] | None = None,
) -> dict[Register, int]:
    """Registers of a feature map: strides are (y, x, c) bytes, splits (height0, height1, width0)."""
    height, width, depth = shape
    size = bits // 8
    if strides is None:
        bricks = -(-depth // 16)
        strides = (width * 16 * size * bricks, 16 * size, width * 16 * size) if brick else (
            width * depth * size, depth * size, size)  # fmt: skip
    bases = tiles or (base, 0, 0, 0)
    height0, height1, width0 = splits or (height, height, width)
    shift = 1 if name == "OFM" else 2
    values: dict[Register, int] = {
        R[f"{name}_REGION"]: region,
        R[f"{name}_HEIGHT0_M1"]: height0 - 1,
        R[f"{name}_HEIGHT1_M1"]: height1 - 1,
        R[f"{name}_WIDTH0_M1"]: width0 - 1,
        R[f"{name}_STRIDE_Y"]: strides[0],
        R[f"{name}_STRIDE_X"]: strides[1],
        R[f"{name}_STRIDE_C"]: strides[2],
        R[f"{name}_PRECISION"]: 1 | (size.bit_length() - 1) << shift | brick << 6,
        R[f"{name}_ZERO_POINT"]: 0,
    }
    values |= {R[f"{name}_BASE{i}"]: b for i, b in enumerate(bases)}
    if name == "OFM":
        values |= {R.OFM_HEIGHT_M1: height - 1, R.OFM_WIDTH_M1: width - 1, R.OFM_DEPTH_M1: depth - 1}
    return values


def _block(shape: tuple[int, int, int]) -> dict[Register, int]:
    return dict(zip((R.OFM_BLK_HEIGHT_M1, R.OFM_BLK_WIDTH_M1, R.OFM_BLK_DEPTH_M1), (n - 1 for n in shape), strict=True))


def _kernel(height: int, width: int, stride: int, pads: tuple[int, int, int, int]) -> dict[Register, int]:
    top, left, bottom, right = pads
    return {
        R.KERNEL_HEIGHT_M1: height - 1,
        R.KERNEL_WIDTH_M1: width - 1,
        R.KERNEL_STRIDE: (stride - 1 & 1) * 3,
        R.IFM_PAD_TOP: top,
        R.IFM_PAD_LEFT: left,
        R.IFM_PAD_BOTTOM: bottom,
        R.IFM_PAD_RIGHT: right,
        R.IFM_UPSCALE: 0,
    }


_COMMON = {
    R.ACTIVATION: 0, R.ACTIVATION_MIN: 0xFF80, R.ACTIVATION_MAX: 0x7F, R.OFM_SCALE: 1, R.ACC_FORMAT: 0,
    R.IFM_IB_END: 10, R.AB_START: 14,
}  # fmt: skip


def conv(
    ifm: dict[Register, int],
    ofm: dict[Register, int],
    *,
    depth: int,
    weights: tuple[int, int, int] = (0, 0, 64),
    scales: tuple[int, int, int] = (0, 64, 16),
    kernel: tuple[int, int] = (1, 1),
    stride: int = 1,
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    block: tuple[int, int, int] = (8, 8, 16),
    op: Op = Op.CONV,
    extra: dict[Register, int] | None = None,
) -> Operation:
    """A CONV or DEPTHWISE; weights and scales are (region, address, bytes)."""
    registers = {
        **_COMMON, **ifm, **ofm, **_kernel(*kernel, stride, pads), **_block(block),
        R.IFM_DEPTH_M1: depth - 1,
        R.WEIGHT_REGION: weights[0], R.WEIGHT_BASE: weights[1], R.WEIGHT_LENGTH: weights[2],
        R.SCALE_REGION: scales[0], R.SCALE_BASE: scales[1], R.SCALE_LENGTH: scales[2],
        **(extra or {}),
    }  # fmt: skip
    return Operation(op, 0, registers)


def pool(
    ifm: dict[Register, int],
    ofm: dict[Register, int],
    *,
    mode: PoolMode = PoolMode.AVERAGE,
    kernel: tuple[int, int] = (1, 1),
    stride: int = 1,
    block: tuple[int, int, int] = (8, 8, 16),
    depth: int = 1,
) -> Operation:
    """A POOL."""
    registers = {**_COMMON, **ifm, **ofm, **_kernel(*kernel, stride, (0, 0, 0, 0)), **_block(block)}
    return Operation(Op.POOL, mode, {**registers, R.IFM_DEPTH_M1: depth - 1})


def elementwise(
    ifm: dict[Register, int],
    ofm: dict[Register, int],
    ifm2: dict[Register, int] | None = None,
    *,
    mode: ElementwiseMode = ElementwiseMode.ADD,
    broadcast: int = 0,
    block: tuple[int, int, int] = (8, 8, 16),
    lut: int | None = None,
) -> Operation:
    """An ELEMENTWISE; without `ifm2` a unary one."""
    registers = {**_COMMON, **ifm, **ofm, **_block(block), R.AB_START: 46, R.IFM_IB_END: 22}
    if ifm2 is None:
        return Operation(Op.ELEMENTWISE, ElementwiseMode.ABS, registers)
    registers |= {**ifm2, R.IFM2_BROADCAST: broadcast, R.OPA_SCALE: 1, R.OPB_SCALE: 1}
    if lut is not None:
        registers[R.ACTIVATION] = 16 + lut
    return Operation(Op.ELEMENTWISE, mode, registers)


def dma(source: tuple[int, int], target: tuple[int, int], length: int) -> Operation:
    """A DMA_START of (region, address) to (region, address)."""
    registers = {
        R.DMA0_SRC_REGION: source[0], R.DMA0_SRC: source[1],
        R.DMA0_DST_REGION: target[0], R.DMA0_DST: target[1],
        R.DMA0_LEN: length,
    }  # fmt: skip
    return Operation(Op.DMA_START, 0, registers)


def lut_dma(source: int, slot: int, length: int = 256, npu: str = "ethos-u55-256") -> Operation:
    """A DMA of a table from constants into LUT slots."""
    return dma((0, source), (SHRAM_REGION, accelerator(npu).lut_address + 256 * slot), length)


def network(
    operations: list[Operation],
    inputs: list[tuple[tuple[int, ...], int]],
    outputs: list[tuple[tuple[int, ...], int]],
    *,
    states: list[tuple[tuple[int, ...], int]] | None = None,
    scratch: int = 4096,
    fast: int = 0,
    constants: int = 1024,
    npu: str = "ethos-u55-256",
) -> Network:
    """A network with one NPU call; inputs, outputs and states are (shape, arena offset) of int8 tensors."""
    tensors: list[Tensor] = []

    def add(kind: str, entries: list[tuple[tuple[int, ...], int]]) -> tuple[int, ...]:
        found = []
        for shape, offset in entries:
            found.append(len(tensors))
            variable = kind == "state"
            tensors.append(
                Tensor(len(tensors), f"{kind}{len(found)}", shape, "int8", is_variable=variable, arena_offset=offset)
            )
        return tuple(found)

    ins, stored, outs = add("input", inputs), add("state", states or []), add("output", outputs)
    words = encode([*operations, STOP])

    def addresses(indices: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        return tuple((1, tensors[i].arena_offset) for i in indices)

    call: Any = NpuCall(
        index=0,
        payload=Payload(accelerator(npu), words),
        read_only=np.zeros(constants, np.uint8),
        scratch_bytes=scratch,
        scratch_fast_bytes=fast,
        inputs=(*ins, *stored),
        outputs=outs,
        scratch_tensor=90,
        scratch_fast_tensor=91 if fast else -1,
        input_addresses=addresses((*ins, *stored)),
        output_addresses=addresses(outs),
    )
    return Network("hand made", tuple(tensors), (call,), ins, outs)
