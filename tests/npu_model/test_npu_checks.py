"""Each strict check, met by a stream that breaks exactly one rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from fvp_runner.npu_model.errors import (
    AccumulatorOverflowError,
    IllegalValueError,
    MalformedStreamError,
    NpuModelError,
    OutOfRegionError,
    SelfOverwriteError,
    UninitialisedReadError,
    UnsetRegisterError,
    WeightStreamError,
    WeightStreamLongError,
    WeightStreamShortError,
)
from fvp_runner.npu_model.model import NpuModel
from npu_memplan.ethosu.stream.decode import Command, Operation, decode
from npu_memplan.ethosu.stream.encode import encode
from npu_memplan.ethosu.stream.isa import Op, Register
from tests.support.assembler import Assembler
from tests.support.pooling_stream import SIZE, U55, pooling, run
from tests.support.trial import network


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
        ({"IFM_PRECISION": 0xC001}, "IFM_PRECISION = 3 is not one of [0, 1, 2]"),
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
    assert "IFM reads 1 bytes of region 1 that were never written, the first at address 0x11" in str(caught.value)
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
    with pytest.raises(UninitialisedReadError, match="reads LUT slot 2, of which no DMA has filled 256 bytes"):
        run(pooling(ACTIVATION=18))


def test_undefined_bytes_travel_and_are_found_where_they_are_used() -> None:
    """A transfer of 32 bytes takes along eight that were never written; only a use of one of them is wrong."""
    shadow = np.zeros(0x200, np.bool_)
    shadow[0x80 : 0x80 + SIZE] = shadow[0x20:0x40] = True
    moved = Assembler().set(BLOCKDEP=0).dma(0x80, 0x20, 32, (1, 1)).op(Op.DMA_WAIT, 0)
    memory = [np.zeros(64, np.uint8), np.arange(0x200, dtype=np.int64).astype(np.uint8)]
    NpuModel(U55).run((*moved.words, *pooling(IFM_BASE0=0x20)), memory, [None, shadow])
    assert memory[1][0x100 : 0x100 + SIZE].tolist() == list(range(0x80, 0x80 + SIZE))
    assert shadow[0x20 : 0x20 + SIZE].all()
    assert not shadow[0x20 + SIZE : 0x40].any()  # what was defined there is overwritten by what is not
    with pytest.raises(UninitialisedReadError, match=r"IFM reads 1 bytes of region 1 .* at address 0x38"):
        NpuModel(U55).run((*moved.words, *pooling(IFM_BASE0=0x21)), memory, [None, shadow])


def test_a_table_of_undefined_bytes() -> None:
    shadow = np.ones(0x200, np.bool_)
    shadow[255] = False
    load = Assembler().dma(0, U55.lut_address, 256, (1, 0x103)).op(Op.DMA_WAIT, 0)
    with pytest.raises(UninitialisedReadError, match="reads LUT slot 0, of which no DMA has filled 1 bytes"):
        run((*load.words, *pooling(ACTIVATION=16)), defined=[None, shadow])


def test_dma_leaves_internal_memory() -> None:
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
    run(Assembler().set(BLOCKDEP=0).dma(8, 8, 16, (1, 1)).stop())  # bytes onto themselves: Vela left a copy out


def in_place(kind: str, by: int) -> tuple[int, ...]:
    """A kernel that writes its output over its input, or `by` bytes behind where that lies."""
    deep, op, parameter = {
        "elementwise": (4, Op.ELEMENTWISE, 6),
        "maximum": (4, Op.POOL, 0),
        "average": (4, Op.POOL, 1),
        "sum of one channel": (1, Op.POOL, 2),
        "sum of channels": (4, Op.POOL, 2),
        "depthwise": (4, Op.DEPTHWISE, 0),
        "convolution of one channel": (1, Op.CONV, 0),
        "convolution": (4, Op.CONV, 0),
    }[kind]
    out = 1 if parameter == 2 else deep
    s = Assembler().feature_map("IFM", (2, 3, deep), 0x40).kernel().common().set(OFM_SCALE=1, OPA_SCALE=1)
    s.feature_map("OFM", (2, 3, out), 0x40 + by, more_precision=256).constants((0, 0, 16), (0, 16, 16 * out))
    return s.op(op, parameter).stop()


@pytest.mark.parametrize(
    ("kind", "allowed"),
    [
        ("elementwise", True),
        ("maximum", True),
        ("average", True),
        ("sum of one channel", True),
        ("sum of channels", False),
        ("depthwise", True),
        ("convolution of one channel", True),
        ("convolution", False),
    ],
)
def test_in_place_is_judged_by_element(kind: str, allowed: bool) -> None:
    model = NpuModel(U55)
    for by in (-1, 0, 1):
        if allowed and by == 0:
            model.prepare_stream(in_place(kind, by))
            continue
        with pytest.raises(SelfOverwriteError, match="writes its OFM over its own IFM at byte"):
            model.prepare_stream(in_place(kind, by))
    model.prepare_stream(in_place(kind, 24))


def test_in_place_with_the_same_bytes_in_another_order() -> None:
    """Rows and columns change places: the same bytes, but not the same elements."""
    square = Assembler().feature_map("IFM", (3, 3, 1), 0).feature_map("OFM", (3, 3, 1), 0, more_precision=256)
    square.kernel().common().set(OFM_SCALE=1)
    NpuModel(U55).prepare_stream(Assembler(square.words).op(Op.POOL, 1).stop())
    with pytest.raises(SelfOverwriteError):
        NpuModel(U55).prepare_stream(Assembler(square.words).set(OFM_STRIDE_X=3, OFM_STRIDE_Y=1).op(Op.POOL, 1).stop())
    tiled = {"OFM_WIDTH0_M1": 0, "OFM_HEIGHT1_M1": 2, "OFM_BASE1": 1}  # two tiles, but each element where it was
    NpuModel(U55).prepare_stream(Assembler(square.words).set(**tiled).op(Op.POOL, 1).stop())


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
    from fvp_runner.npu_model.bound import kernels as module
    from fvp_runner.npu_model.errors import ModelFaultError

    def broken(self: object) -> None:
        raise ValueError("shapes do not match")

    monkeypatch.setattr(module.Pooling, "run", broken)
    with pytest.raises(ModelFaultError, match=r"failed on this stream \(ValueError: shapes do not match\)"):
        run(pooling())
