"""The checks of order: a wait that is missing, a BLOCKDEP that is too large, and what may stand between two kernels."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from fvp_runner.npu_model.errors import BlockDependencyError, MissingWaitError, ScheduleError, UninitialisedReadError
from fvp_runner.npu_model.model import NpuModel
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.program.hazards import largest_blockdep
from npu_memplan.ethosu.stream.decode import Operation, Wait, decode
from npu_memplan.ethosu.stream.encode import encode
from npu_memplan.ethosu.stream.isa import Op, Register
from tests.support.assembler import Assembler
from tests.support.pooling_stream import SIZE, U55, pooling, run
from tests.support.trial import network


def kernel_after_dma(wait: bool) -> tuple[int, ...]:
    s = Assembler().dma(0, 0, SIZE)
    if wait:
        s.op(Op.DMA_WAIT, 0)
    return (*s.words, *pooling())


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


DEPTH, BLOCK = 48, 16  # the kernel before makes its channels in three blocks
CONVOLUTION, SUM = (Op.CONV, 0), (Op.POOL, 2)


def behind_three_blocks(op: tuple[Op, int], dtype: str, part_kernel_first: bool, dependency: int) -> tuple[int, ...]:
    """ABS in three blocks of channels, then a kernel that reads what it made."""
    shape = (1, 1, DEPTH)
    s = Assembler().feature_map("IFM", shape, 0, dtype).feature_map("OFM", shape, 0x1000, dtype, more_precision=256)
    s.kernel(stride=4 * part_kernel_first).common(blockdep=0).set(OFM_SCALE=1, AB_START=8).op(Op.ELEMENTWISE, 6)
    s.feature_map("IFM", shape, 0x1000, dtype).constants((0, 0, 16), (0, 16, 16))
    out = (1, 1, 1 if op == SUM else DEPTH)
    s.feature_map("OFM", out, 0x2000, "int32" if op == SUM else dtype, more_precision=256)
    return s.set(BLOCKDEP=dependency).op(*op).stop()


@pytest.mark.parametrize(
    ("op", "dtype", "part_kernel_first", "largest"),
    [
        # Jobs of 32 channels: the second reads the last block. Of 16: the third does, which a value of 2 waits for.
        (CONVOLUTION, "int8", False, 1),
        (CONVOLUTION, "int8", True, 2),
        (CONVOLUTION, "int16", False, 2),
        (CONVOLUTION, "int16", True, 2),
        (SUM, "int8", False, 1),
        (SUM, "int16", False, 2),
        (SUM, "int32", False, 1),
        # One job a block, of the block's own channels.
        ((Op.DEPTHWISE, 0), "int8", False, 2),
        ((Op.DEPTHWISE, 0), "int8", True, 2),
        ((Op.POOL, 0), "int8", False, 2),
        ((Op.POOL, 1), "int16", False, 2),
        ((Op.ELEMENTWISE, 6), "int32", False, 2),
    ],
)
@pytest.mark.parametrize("name", ["ethos-u55-32", "ethos-u55-256", "ethos-u65-512"])
def test_the_traversal_says_how_deep_a_job_is(
    op: tuple[Op, int], dtype: str, part_kernel_first: bool, largest: int, name: str
) -> None:
    npu = accelerator(name)
    for dependency in range(4):
        words = behind_three_blocks(op, dtype, part_kernel_first, dependency)
        words = (*Assembler().set(PARALLEL_MODE=0).words, *words) if npu.parallel else words
        if dependency <= largest:
            NpuModel(npu).prepare_stream(words)
        else:
            with pytest.raises(BlockDependencyError, match=f"has BLOCKDEP {dependency}: its block"):
                NpuModel(npu).prepare_stream(words)


def after_a_copy(*between: str) -> tuple[int, ...]:
    """A copying POOL of one block, what `between` says, and another that reads its result with BLOCKDEP 3."""
    s = Assembler(pooling(OFM_BLK_WIDTH_M1=3)[:-1])
    for what in between:
        if what == "transfer":
            s.dma(0, 0x40, 16)
        else:
            s.op(Op[what.split()[0]], int(what.split()[1]))
    return s.set(IFM_BASE0=0x100, OFM_BASE0=0x180, BLOCKDEP=3).op(Op.POOL, 1).stop()


@pytest.mark.parametrize(
    "between", [(), ("DMA_WAIT 0",), ("KERNEL_WAIT 1",), ("transfer",), ("transfer", "DMA_WAIT 1")]
)
def test_what_takes_no_time_is_no_order_and_no_excuse(between: tuple[str, ...]) -> None:
    with pytest.raises(BlockDependencyError, match="BLOCKDEP must be lower"):
        NpuModel(U55).prepare_stream(after_a_copy(*between))


def test_a_wait_for_a_transfer_that_started_before_the_kernel_is_no_excuse_either() -> None:
    early = Assembler().dma(0, 0x40, 16).words
    with pytest.raises(BlockDependencyError):
        NpuModel(U55).prepare_stream((*early, *after_a_copy("DMA_WAIT 0")))


def test_a_wait_for_a_transfer_relies_on_timing_and_is_reported() -> None:
    memory = [np.zeros(64, np.uint8), np.arange(0x200, dtype=np.int64).astype(np.uint8)]
    stats = NpuModel(U55).run(after_a_copy("KERNEL_WAIT 1", "transfer", "DMA_WAIT 0"), memory)
    assert memory[1][0x180 : 0x180 + SIZE].tolist() == list(range(SIZE))
    (message,) = stats.timing
    assert message.startswith("relies on timing: operation 2 (POOL at stream offset 0x")
    assert "BLOCKDEP 3: its block 0 may read byte 0x100 of region 1 (IFM) before operation 0 (POOL at" in message
    assert "unless that ends during the wait for operation 1 (DMA_START at stream offset 0x" in message
    assert message.endswith("between them (16 bytes); nothing but time orders the two: BLOCKDEP should be lower")
    assert stats.messages == ()


def test_a_kernel_wait_is_order() -> None:
    memory = [np.zeros(64, np.uint8), np.zeros(0x200, np.uint8)]
    assert NpuModel(U55).run(after_a_copy("KERNEL_WAIT 0"), memory).timing == ()


@pytest.mark.parametrize("config", ["ethos-u55-64", "ethos-u65-512"])
def test_raising_any_blockdep_too_far_is_reported(config: str) -> None:
    """The compiler's side, a twin written on its own, says how far; one more must be an error here."""
    raised = 0
    for name in (
        "softmax_rows",
        "hard_swish_int8",
        "bilinear_x8",
        "argmax_depth",
        "mean_large",
        "transpose_conv_k3_s2",
    ):
        for call in network(name, config).npu_calls:
            commands = decode(call.words)
            kernels = [i for i, c in enumerate(commands) if isinstance(c, Operation) and c.op.is_kernel]
            for before, place in pairwise(kernels):
                previous, op = commands[before], commands[place]
                assert isinstance(previous, Operation)
                assert isinstance(op, Operation)
                limit = largest_blockdep(previous, op)
                if limit == 3 or place != before + 1:
                    continue
                again = [*commands[:place], op.with_registers({Register.BLOCKDEP: limit + 1}), *commands[place + 1 :]]
                with pytest.raises(BlockDependencyError):
                    NpuModel(call.accelerator).prepare_stream(encode(again))
                raised += 1
    assert raised >= 25
