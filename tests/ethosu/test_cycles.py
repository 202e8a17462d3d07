"""Estimated cycles, against figures worked out by hand."""

from __future__ import annotations

import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.cycles import cost, macs, timeline
from npu_memplan.ethosu.stream.commands import Wait
from npu_memplan.ethosu.stream.isa import Op, PoolMode, Register
from tests.support.hand_made import STOP, conv, dma, elementwise, pool, view

U55, U65, DUAL = (accelerator(f"ethos-{n}") for n in ("u55-256", "u65-256", "u65-512"))
SHAPE = (8, 8, 32)
START = 64

CONV = conv(view("IFM", 0, SHAPE), view("OFM", 4096, SHAPE), depth=32, kernel=(3, 3))
DEPTHWISE = conv(view("IFM", 0, SHAPE), view("OFM", 4096, SHAPE), depth=1, kernel=(3, 3), op=Op.DEPTHWISE)


@pytest.mark.parametrize(
    ("operation", "multiplied"),
    [
        (CONV, 8 * 8 * 32 * 9 * 32),
        (DEPTHWISE, 8 * 8 * 32 * 9),
        (pool(view("IFM", 0, SHAPE), view("OFM", 4096, SHAPE), kernel=(2, 2)), 0),
        (elementwise(view("IFM", 0, SHAPE), view("OFM", 4096, SHAPE)), 0),
        (dma((0, 0), (1, 0), 512), 0),
    ],
    ids=["conv", "depthwise", "pool", "elementwise", "dma"],
)
def test_multiply_accumulates(operation, multiplied: int) -> None:
    assert macs(operation) == multiplied


def test_a_dilated_kernel_has_fewer_taps_than_its_extent() -> None:
    dilated = CONV.with_registers({Register.KERNEL_HEIGHT_M1: 4, Register.KERNEL_STRIDE: 1 << 4})
    assert macs(dilated) == macs(CONV)


def test_the_slowest_of_multiplying_writing_and_moving_counts() -> None:
    assert cost(CONV, U55) == START + 8 * 8 * 32 * 9 * 32 // 256
    assert cost(DEPTHWISE, U55) == START + 8 * 8 * 32 * 9 // 32, "one of 8 lanes is busy"
    heavy = conv(view("IFM", 0, SHAPE), view("OFM", 4096, SHAPE), depth=1, weights=(0, 0, 90_000), scales=(0, 0, 16))
    assert cost(heavy, U55) == START + (8 * 8 * 32 + 90_000 + 16) // 8, "8 bytes a cycle"
    assert cost(heavy, U65) == START + -(-(8 * 8 * 32 + 90_000 + 16) // 16)
    plain = elementwise(view("IFM", 0, SHAPE), view("OFM", 4096, SHAPE))
    assert cost(plain, U55) == START + 8 * 8 * 32 // 8, "8 outputs a cycle"
    summed = pool(view("IFM", 0, SHAPE), view("OFM", 4096, (8, 8, 1)), mode=PoolMode.REDUCE_SUM, depth=32)
    assert cost(summed, U55) == START + 8 * 8 * 32 // 8
    assert cost(dma((0, 0), (1, 0), 513), U55) == START + 65


def test_both_cores_read_weights() -> None:
    second = {Register.PARALLEL_MODE: 1, Register.WEIGHT1_LENGTH: 160_000, Register.SCALE1_LENGTH: 0}
    assert cost(CONV.with_registers(second), DUAL) == START + (8 * 8 * 32 + 64 + 16 + 160_000) // 16
    assert cost(CONV.with_registers(second), U65) == cost(CONV, U65), "one core has no second stream"


def test_rows_and_planes_of_a_transfer_count() -> None:
    rows = {Register.DMA0_SRC_REGION: 2 << 9, Register.DMA0_SIZE0: 4, Register.DMA0_SIZE1: 3}
    assert cost(dma((0, 0), (1, 0), 64).with_registers(rows), U55) == START + 4 * 3 * 64 // 8


def test_kernels_and_transfers_overlap_until_a_wait() -> None:
    load = dma((0, 0), (1, 8192), 800)
    quick, slow = cost(load, U55), cost(CONV, U55)
    beside = timeline((load, CONV, STOP), U55)
    assert [(s.start, s.stop) for s in beside.slots] == [(0, quick), (0, slow)]
    assert beside.total == slow
    assert beside.macs == macs(CONV)
    behind = timeline((load, Wait(Op.DMA_WAIT, 0), CONV, CONV, STOP), U55)
    assert [s.start for s in behind.slots] == [0, quick, quick + slow]
    allowed = timeline((load, load, Wait(Op.DMA_WAIT, 1), CONV, STOP), U55)
    assert [s.start for s in allowed.slots] == [0, quick, quick]
    assert timeline((STOP,), U55).total == 0
