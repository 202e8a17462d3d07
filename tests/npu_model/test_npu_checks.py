"""Each strict check, met by a stream that breaks exactly one rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from assembler import Assembler
from compiled_cases import network

from fvp_runner.npu_model import (
    AccumulatorOverflowError,
    BlockDependencyError,
    IllegalValueError,
    MalformedStreamError,
    MissingWaitError,
    NpuModel,
    NpuModelError,
    OutOfRegionError,
    ScheduleError,
    SelfOverwriteError,
    UninitialisedReadError,
    UnsetRegisterError,
    WeightStreamError,
    WeightStreamLongError,
    WeightStreamShortError,
)
from npu_memplan.ethosu.accelerator import accelerator
from npu_memplan.ethosu.decode import decode
from npu_memplan.ethosu.encode import encode
from npu_memplan.ethosu.isa import Op, Register
from npu_memplan.ethosu.stream import Command, Operation, Wait

U55 = accelerator("ethos-u55-256")
SHAPE = (2, 3, 4)
SIZE = 24


def pooling(**changes: int) -> tuple[int, ...]:
    """A 1x1 average pool from byte 0 to byte 0x100 of region 1, with registers overwritten."""
    s = Assembler().feature_map("IFM", SHAPE, 0).feature_map("OFM", SHAPE, 0x100, more_precision=256)
    return s.kernel().common().set(OFM_SCALE=1).set(**changes).op(Op.POOL, 1).stop()


def run(words: Sequence[int], size: int = 0x200, checks: bool = True, **more: object) -> np.ndarray:
    memory = np.arange(size, dtype=np.uint8)
    NpuModel(U55, checks).run(words, [np.zeros(64, np.uint8), memory], **more)  # type: ignore[arg-type]
    return memory


def test_the_sound_stream_copies_its_input() -> None:
    assert run(pooling())[0x100 : 0x100 + SIZE].tolist() == list(range(SIZE))


def test_unset_register_is_named_with_operation_and_offset() -> None:
    words = list(pooling())
    at = next(i for i, w in enumerate(words) if w & 0x3FF == Register.ACTIVATION_MIN.opcode and not w & 0x4000)
    del words[at]
    with pytest.raises(UnsetRegisterError) as caught:
        run(words)
    assert "operation 0 (POOL at stream offset 0x" in str(caught.value)
    assert "needs register ACTIVATION_MIN, which the stream never set" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"IFM_PRECISION": 0x2}, "IFM_PRECISION = 0x2 sets bits 0x2"),
        ({"OFM_PRECISION": 0xC101}, "OFM_PRECISION = 3 is not one of [0, 1, 2]"),
        ({"IFM_UPSCALE": 3}, "IFM_UPSCALE = 3 is not one of [0, 1, 2]"),
        ({"ACTIVATION": 1}, "function 1 is none of 0 (none), 3, 4 and 16 to 23 (LUT)"),
        ({"ACTIVATION_MIN": 5, "ACTIVATION_MAX": -5}, "ACTIVATION_MIN 5 is above ACTIVATION_MAX -5"),
        ({"IFM_REGION": 9}, "IFM_REGION = 9 is not one of"),
        ({"BLOCKDEP": 4}, "BLOCKDEP = 4 is not one of [0, 1, 2, 3]"),
        ({"KERNEL_HEIGHT_M1": 2, "KERNEL_STRIDE": 1 << 4, "IFM_PAD_TOP": 9}, "leaves no input"),
        ({"KERNEL_HEIGHT_M1": 1, "KERNEL_STRIDE": 1 << 4}, "not a dilated extent"),
        ({"OFM_SCALE": 64 << 32}, "OFM_SCALE has shift 64"),
        ({"OFM_PRECISION": 0x141, "OFM_STRIDE_C": 96, "OFM_BASE0": 0x101}, "is not 16-byte aligned, as NHCWB16 needs"),
        ({"OFM_HEIGHT_M1": 0xFFFF, "OFM_WIDTH_M1": 0xFFFF, "OFM_DEPTH_M1": 0xFFFF}, "its sizes are damaged"),
    ],
)
def test_illegal_value(changes: dict[str, int], words: str) -> None:
    with pytest.raises(IllegalValueError) as caught:
        run(pooling(**changes))
    assert words in str(caught.value)
    assert "POOL at stream offset" in str(caught.value)


def test_illegal_modes() -> None:
    for op, parameter in ((Op.POOL, 3), (Op.ELEMENTWISE, 10), (Op.DMA_START, 1)):
        words = list(pooling())[:-1]
        words[-1] = op.value | parameter << 16
        with pytest.raises(IllegalValueError):
            run((*words, 0xFFFF0000))


def test_output_beyond_its_region() -> None:
    with pytest.raises(OutOfRegionError) as caught:
        run(pooling(), size=0x100 + SIZE - 1)
    assert "OFM covers bytes 0x100 to 0x118 of region 1, which has only 0x117 bytes: 0x1 bytes too far" in str(
        caught.value
    )


def test_region_that_is_not_there_and_read_only_region() -> None:
    with pytest.raises(OutOfRegionError, match="region 5, which has no memory"):
        run(pooling(IFM_REGION=5))
    frozen = np.zeros(0x200, np.uint8)
    frozen.flags.writeable = False
    with pytest.raises(OutOfRegionError, match="writes to region 1, which is read-only"):
        NpuModel(U55).run(pooling(), [None, frozen])


def test_checks_of_memory_hold_without_checks_too() -> None:
    with pytest.raises(OutOfRegionError):
        run(pooling(), size=0x100, checks=False)


def test_uninitialised_read_names_the_first_byte() -> None:
    shadow = np.zeros(0x200, np.bool_)
    shadow[:SIZE] = True
    shadow[17] = False
    with pytest.raises(UninitialisedReadError) as caught:
        run(pooling(), defined=[None, shadow])
    assert "IFM reads 1 bytes of region 1 that nobody wrote, the first at address 0x11" in str(caught.value)
    shadow[17] = True
    run(pooling(), defined=[None, shadow])
    assert shadow[0x100 : 0x100 + SIZE].all()
    assert not shadow[0x100 + SIZE :].any()


def test_first_undefined_byte_of_a_map_with_gaps() -> None:
    # Rows 32 bytes apart from byte 0x20 on; only the bytes of the map itself have to be defined.
    changes = {"IFM_BASE0": 0x20, "IFM_STRIDE_Y": 32}
    shadow = np.zeros(0x200, np.bool_)
    shadow[0x20 : 0x20 + 12] = shadow[0x40 : 0x40 + 12] = True
    run(pooling(**changes), defined=[None, shadow])
    shadow[0x20 + 11] = shadow[0x40 + 5] = False
    with pytest.raises(UninitialisedReadError, match=r"reads 2 bytes .* the first at address 0x2b"):
        run(pooling(**changes), defined=[None, shadow])


def test_lut_that_was_never_loaded() -> None:
    with pytest.raises(UninitialisedReadError, match="reads LUT slot 2, which no DMA has filled"):
        run(pooling(ACTIVATION=18))


def test_dma_reads_undefined_bytes_and_leaves_internal_memory() -> None:
    shadow = np.zeros(64, np.bool_)
    words = Assembler().set(BLOCKDEP=0).dma(0, 0, 32).stop()
    with pytest.raises(UninitialisedReadError, match="DMA0_SRC reads 32 bytes of region 0"):
        NpuModel(U55).run(words, [np.zeros(64, np.uint8), np.zeros(64, np.uint8)], [shadow, None])
    words = Assembler().set(BLOCKDEP=0).dma(0, 48 * 1024 - 16, 32, (0, 0x103)).stop()
    with pytest.raises(OutOfRegionError, match="internal memory, which has only 0xc000 bytes"):
        NpuModel(U55).run(words, [np.zeros(64, np.uint8)])


# Convolutions: real streams, with one operation changed.


def convolution(name: str = "conv_i32_o64") -> tuple[list[Command], list[np.ndarray | None]]:
    net = network(name)
    (call,) = net.npu_calls
    arena = np.zeros(call.scratch_bytes, np.uint8)
    return list(decode(call.words)), [call.read_only.copy(), arena, arena]


def changed(commands: Sequence[Command], change: Callable[[Operation], dict[Register, int]]) -> tuple[int, ...]:
    return encode(
        [c.with_registers(change(c)) if isinstance(c, Operation) and c.op is Op.CONV else c for c in commands]
    )


def test_weight_stream_too_short() -> None:
    commands, regions = convolution()
    words = changed(commands, lambda op: {Register.WEIGHT_LENGTH: op[Register.WEIGHT_LENGTH] // 32 * 16})
    with pytest.raises(WeightStreamShortError, match="too short"):
        NpuModel(U55, checks=False).run(words, regions)


def test_weight_stream_too_long_for_the_kernel() -> None:
    commands, regions = convolution()
    words = changed(
        commands, lambda op: {Register.KERNEL_HEIGHT_M1: 0, Register.IFM_PAD_TOP: 0, Register.IFM_PAD_BOTTOM: 0}
    )
    with pytest.raises(WeightStreamLongError, match=r"too long: it holds \d+ weights, the operation consumes \d+"):
        NpuModel(U55, checks=False).run(words, regions)


def test_weight_stream_for_another_kernel_of_as_many_weights() -> None:
    commands, regions = convolution("conv_k1x7")
    swap = {Register.KERNEL_HEIGHT_M1: 6, Register.KERNEL_WIDTH_M1: 0}
    pads = {Register.IFM_PAD_TOP: 3, Register.IFM_PAD_BOTTOM: 3, Register.IFM_PAD_LEFT: 0, Register.IFM_PAD_RIGHT: 0}
    NpuModel(U55, checks=False).run(changed(commands, lambda op: {**swap, **pads}), regions)  # the same order: accepted
    commands, regions = convolution("conv_i17_o33")
    words = changed(commands, lambda op: {Register.IFM_DEPTH_M1: 10})
    with pytest.raises(WeightStreamError):
        NpuModel(U55, checks=False).run(words, regions)


def test_scale_table_too_short() -> None:
    commands, regions = convolution()
    words = changed(commands, lambda op: {Register.SCALE_LENGTH: 32})
    with pytest.raises(WeightStreamShortError, match="the scale table of 32 bytes is too short for 64 channels"):
        NpuModel(U55, checks=False).run(words, regions)


def test_accumulator_overflow() -> None:
    commands, regions = convolution("conv_int16_k5")
    words = changed(commands, lambda op: {Register.ACC_FORMAT: 0})
    constants, arena = regions[0], regions[1]
    assert constants is not None
    assert arena is not None
    (op,) = (c for c in commands if isinstance(c, Operation) and c.op is Op.CONV)
    constants[op[Register.SCALE_BASE] : op[Register.SCALE_BASE] + 4] = (0xFF, 0xFF, 0xFF, 0x7F)  # bias 2**31 - 1
    arena.view("<i2")[:] = 20000
    with pytest.raises(AccumulatorOverflowError, match="beyond the accumulator's 2147483648"):
        NpuModel(U55).run(words, regions)
    NpuModel(U55, checks=False).run(words, regions)
    NpuModel(U55).run(encode(commands), regions)  # the 40-bit accumulator holds it


def test_sum_over_the_depth_that_overflows() -> None:
    memory = np.zeros(0x200, np.uint8)
    memory[:64].view("<i4")[:] = (1 << 30) - 1
    s = Assembler().feature_map("IFM", (1, 4, 4), 0, "int32").feature_map("OFM", (1, 4, 1), 0x100, "int32")
    words = s.kernel().common(0, 0).op(Op.POOL, 2).stop()
    with pytest.raises(
        AccumulatorOverflowError, match=f"a sum reaches {4 * ((1 << 30) - 1)}, beyond the accumulator's"
    ):
        NpuModel(U55).run(words, [None, memory])
    memory[32:64] = 0xFF  # the other pixels: -1, and the first two are halved
    memory[:32].view("<i4")[:] = [1 << 29, 1 << 29, 1 << 29, (1 << 29) - 1, -(1 << 29), 0, 0, 0]
    NpuModel(U55).run(words, [None, memory])
    assert memory[0x100:0x110].view("<i4").tolist() == [(1 << 31) - 1, -(1 << 29), -4, -4]


# Waits and BLOCKDEP.


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


def test_output_over_the_input_it_still_reads() -> None:
    run(pooling(OFM_BASE0=0))  # a 1x1 window: element by element
    with pytest.raises(SelfOverwriteError, match="writes its OFM over its own IFM at byte 0xa of region 1"):
        run(pooling(OFM_BASE0=10))
    wide = {"KERNEL_WIDTH_M1": 2, "IFM_PAD_LEFT": 1, "IFM_PAD_RIGHT": 1, "OFM_PRECISION": 1}
    with pytest.raises(SelfOverwriteError, match="at byte 0x0 of region 1 while it still reads it"):
        run(pooling(OFM_BASE0=0, **wide))
    run(pooling(OFM_BASE0=0, **wide), checks=False)
    words = Assembler().set(BLOCKDEP=0).dma(0, 8, 16, (1, 1)).stop()
    with pytest.raises(SelfOverwriteError, match="writes its DMA0_DST over its own DMA0_SRC"):
        run(words)


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
            model.prepare(call.words)
            places = [i for i, c in enumerate(commands) if isinstance(c, Wait)]
            streams += bool(places)
            for place in places:
                waits += 1
                with pytest.raises(MissingWaitError):
                    model.prepare(encode(commands[:place] + commands[place + 1 :]))
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


@pytest.mark.parametrize(
    "words", [(), (0x0000FFFF,), (0x4000_0001,), (Register.IFM_BASE0.opcode | 0x4000,), (-1,), ("a",)]
)
def test_no_stream_at_all(words: tuple[int, ...]) -> None:
    with pytest.raises(MalformedStreamError):
        run(words)


def test_regions_must_be_plain_bytes() -> None:
    for bad in (np.zeros(8, np.int8), np.zeros((4, 4), np.uint8), np.zeros(32, np.uint8)[::2]):
        with pytest.raises(NpuModelError, match="contiguous one-dimensional uint8"):
            NpuModel(U55).run(pooling(), [None, bad])
    with pytest.raises(NpuModelError, match="shadow of region 1 must be a bool array of 512 elements"):
        run(pooling(), defined=[None, np.zeros(3, np.bool_)])


def test_a_fault_of_the_model_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    from fvp_runner.npu_model import ModelFaultError
    from fvp_runner.npu_model import pooling as module

    def broken(self: object) -> None:
        raise ValueError("shapes do not match")

    monkeypatch.setattr(module.Pooling, "run", broken)
    with pytest.raises(ModelFaultError, match=r"failed on this stream \(ValueError: shapes do not match\)"):
        run(pooling())
