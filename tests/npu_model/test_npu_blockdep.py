"""BLOCKDEP: how deep the jobs of each kernel are, and what else may stand between two kernels."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from fvp_runner.npu_model.errors import BlockDependencyError
from fvp_runner.npu_model.model import NpuModel
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.program.hazards import largest_blockdep
from npu_memplan.ethosu.stream.decode import Operation, decode
from npu_memplan.ethosu.stream.encode import encode
from npu_memplan.ethosu.stream.isa import Op, Register
from tests.support.assembler import Assembler
from tests.support.compiled_cases import network
from tests.support.pooling_stream import SIZE, U55, pooling

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
