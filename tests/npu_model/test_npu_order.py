"""The checks of order: a wait that is missing, a BLOCKDEP that is too large."""

from __future__ import annotations

import numpy as np
import pytest

from fvp_runner.npu_model.errors import BlockDependencyError, MissingWaitError, ScheduleError, UninitialisedReadError
from fvp_runner.npu_model.model import NpuModel
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.stream.decode import Wait, decode
from npu_memplan.ethosu.stream.encode import encode
from npu_memplan.ethosu.stream.isa import Op
from tests.support.assembler import Assembler
from tests.support.compiled_cases import network
from tests.support.pooling_stream import SIZE, U55, pooling, run


def kernel_after_dma(wait: bool) -> tuple[int, ...]:
    s = Assembler().dma(0, 0, SIZE)
    if wait:
        s.op(Op.DMA_WAIT, 0)
    return (*s.words, *pooling())


def test_kernel_before_the_dma_it_needs() -> None:
    run(kernel_after_dma(True))
    with pytest.raises(MissingWaitError) as caught:
        run(kernel_after_dma(False))
    message = str(caught.value)
    assert "operation 1 (POOL at stream offset" in message
    assert "may start before operation 0 (DMA_START at stream offset" in message
    assert "IFM meets its DMA0_DST at byte 0x0 of region 1; put DMA_WAIT 0 before it" in message
    run(kernel_after_dma(False), checks=False)


def test_dma_that_overwrites_what_a_kernel_reads() -> None:
    words = Assembler()
    words.words = list(pooling())[:-1]
    with pytest.raises(MissingWaitError, match="put KERNEL_WAIT 0 before it"):
        run(words.dma(0, 8, 16).stop())
    words.words = list(pooling())[:-1]
    run(words.op(Op.KERNEL_WAIT, 0).dma(0, 8, 16).stop())


def test_lut_loaded_while_a_kernel_reads_it() -> None:
    start = Assembler().dma(0, U55.lut_address, 64, (0, 0x103)).op(Op.DMA_WAIT, 0)
    start.words += pooling(ACTIVATION=16)[:-1]
    with pytest.raises(MissingWaitError, match="the NPU's internal memory"):
        run(start.dma(0, U55.lut_address, 64, (0, 0x103)).stop())


def test_transfers_in_flight_together_must_not_depend_on_each_other() -> None:
    regions = [np.arange(64, dtype=np.uint8), np.zeros(64, np.uint8)]
    words = Assembler().set(BLOCKDEP=0).dma(0, 0, 16).dma(0, 32, 16, (1, 1)).stop()
    NpuModel(U55).run(words, regions)  # one at a time
    with pytest.raises(MissingWaitError, match="DMA0_SRC meets its DMA0_DST at byte 0x0 of region 1; put DMA_WAIT 0"):
        NpuModel(accelerator("ethos-u65-256")).run(words, regions)


@pytest.mark.parametrize("name", ["ethos-u55-32", "ethos-u55-64", "ethos-u55-128"])
def test_small_configurations_keep_accumulators_where_the_tables_are(name: str) -> None:
    small = accelerator(name).macs < 128
    start = Assembler().set(AB_START=accelerator(name).shram_kib - 4)
    start.dma(0, accelerator(name).lut_address, 64, (0, 0x103)).op(Op.DMA_WAIT, 0)
    start.words += pooling()[:-1]
    model, regions = NpuModel(accelerator(name)), [np.zeros(64, np.uint8), np.zeros(0x200, np.uint8)]
    again = Assembler()
    again.words = [*start.words]
    again.dma(0, accelerator(name).lut_address, 64, (0, 0x103)).op(Op.DMA_WAIT, 0)
    if small:
        with pytest.raises(MissingWaitError, match="DMA0_DST meets its working memory at byte"):
            model.run(again.stop(), regions)
    else:
        model.run(again.stop(), regions)
    loaded = Assembler().set(AB_START=accelerator(name).shram_kib - 4)
    for _ in range(4):
        loaded.op(Op.KERNEL_WAIT, 0).dma(0, accelerator(name).lut_address, 256, (0, 0x103)).op(Op.DMA_WAIT, 0)
    loaded.words += pooling()[:-1]
    loaded.words += Assembler().set(ACTIVATION=16).op(Op.POOL, 1).words
    regions[0] = np.arange(256, dtype=np.uint8)
    if small:
        with pytest.raises(UninitialisedReadError, match="LUT slot 0"):
            model.run(loaded.stop(), regions)
    else:
        model.run(loaded.stop(), regions)


def two_poolings(blockdep: int) -> tuple[int, ...]:
    first = list(pooling(OFM_BLK_WIDTH_M1=0, OFM_BLK_HEIGHT_M1=0))[:-1]
    second = Assembler().set(IFM_BASE0=0x100, OFM_BASE0=0x180, BLOCKDEP=blockdep).op(Op.POOL, 1)
    return (*first, *second.stop())


def test_blockdep_larger_than_is_safe() -> None:
    # Six blocks of one pixel: the next kernel's block f reads block f, so three of six may be unwritten.
    for blockdep in range(4):
        run(two_poolings(blockdep))
    # With a window over everything the first block needs the last.
    tail = Assembler().set(IFM_BASE0=0x100, OFM_BASE0=0x180, KERNEL_HEIGHT_M1=1, KERNEL_WIDTH_M1=2)
    tail.set(OFM_HEIGHT_M1=0, OFM_WIDTH_M1=0, BLOCKDEP=1).op(Op.POOL, 0)
    words = (
        *two_poolings(0)[: -len(Assembler().set(IFM_BASE0=0, OFM_BASE0=0, BLOCKDEP=0).op(Op.POOL).words) - 1],
        *tail.stop(),
    )
    with pytest.raises(BlockDependencyError) as caught:
        run(words)
    assert "has BLOCKDEP 1: its block 0 may read byte 0x114 of region 1 (IFM) before operation 0" in str(caught.value)


CASES_WITH_WAITS = [
    (name, config)
    for name in (
        *("softmax_int8", "softmax_int16", "softmax_rows", "softmax_wide", "tanh_int8", "leaky_relu_int8"),
        *("hard_swish_int8", "prelu_channel", "bilinear_half", "bilinear_x8", "logistic_int8", "matmul_int8"),
        *("argmax_depth", "rsqrt_int8", "dense_1000_40", "mean_large"),
    )
    for config in ("ethos-u55-256", "ethos-u65-512")
]


def test_removing_any_one_wait_is_reported() -> None:
    streams = waits = 0
    for name, config in CASES_WITH_WAITS:
        for call in network(name, config).npu_calls:
            commands = decode(call.words)
            model = NpuModel(call.accelerator)
            model.prepare_stream(call.words)
            places = [i for i, c in enumerate(commands) if isinstance(c, Wait)]
            streams += bool(places)
            for place in places:
                waits += 1
                with pytest.raises(MissingWaitError):
                    model.prepare_stream(encode(commands[:place] + commands[place + 1 :]))
    assert streams >= 20
    assert waits >= streams


def test_a_missing_wait_shows_in_another_completion_order() -> None:
    memory = [np.arange(64, dtype=np.uint8), np.zeros(0x200, np.uint8)]
    model = NpuModel(U55, checks=False)
    model.fuzz_schedule(kernel_after_dma(True), memory, 6)
    memory[1][:] = 0
    with pytest.raises(ScheduleError, match="the result depends on when transfers finish"):
        model.fuzz_schedule(kernel_after_dma(False), memory, 6)
    assert memory[1][0x100 : 0x100 + SIZE].tolist() == list(range(SIZE))  # as after a plain run
