"""The model of Ethos-U85: operators and networks against tflite-micro; what is broken is reported; BLOCKDEP."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from fvp_runner.npu_model.arithmetic import weights
from fvp_runner.npu_model.arithmetic.rescale import Scale
from fvp_runner.npu_model.checks import hazards as check
from fvp_runner.npu_model.errors import (
    BlockDependencyError,
    IllegalValueError,
    MalformedStreamError,
    MissingWaitError,
    ModelFaultError,
    NpuModelError,
    WeightStreamError,
    WeightStreamShortError,
)
from fvp_runner.npu_model.model import NpuModel
from fvp_runner.npu_model.network import NetworkModel
from fvp_runner.npu_model.spec.stream import DecodedStep, DecodedStream
from fvp_runner.npu_model.spec.u85 import CONFIRMED, divides_average, unconfirmed_features
from npu_memplan.errors import NpuMemplanError
from npu_memplan.ethosu.arch import Architecture, Language
from npu_memplan.ethosu.arch.configurations import ETHOS_U85
from npu_memplan.ethosu.program.describe import describe
from npu_memplan.ethosu.program.hazards import largest_blockdep
from npu_memplan.ethosu.stream.decode import Marker, Operation, StreamError, Wait, decode
from npu_memplan.ethosu.stream.encode import encode
from npu_memplan.ethosu.stream.isa import ElementwiseMode, Op, PoolMode, Register, ScaleRounding, TableKind
from npu_memplan.models.tflite import read_network
from npu_memplan.models.vela import NpuCall
from npu_memplan.vela.compiler import VelaOptions, compile_tflite
from npu_memplan.vela.lift import lift_program
from tests.support.block_order import MOST, largest, pairs
from tests.support.damage import damaged_streams, targets, wrong_registers
from tests.support.needs import need_data
from tests.support.real_data import REPOSITORY, shared_folder
from tests.support.single_operators import all_cases
from tests.support.tflite_builder import TensorSpec, single_operator
from tests.support.trial import try_case

pytest.importorskip("tflite_micro", reason="needs tflite-micro as the reference (pip install npu_memplan[reference])")


NPUS = [a.name for a in ETHOS_U85]
CASES = tuple(all_cases())
# Vela 5.2 gives int16 convolutions with 32-bit biases multipliers of 31 bits, and writes 15 of them.
TRUNCATED_BY_VELA = "conv_int16_narrow_bias"


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.name for case in CASES])
def test_single_operator_is_bit_exact(number: int) -> None:
    npu = NPUS[number % len(NPUS)]
    trial = try_case(CASES[number], npu, fuzz=1)
    assert trial.messages == ()
    assert trial.timing == ()
    if CASES[number].name == TRUNCATED_BY_VELA:
        assert trial.wrong > 0
    else:
        assert trial.wrong == 0, f"{trial.wrong} of {trial.elements} elements differ on {npu}"


# Average pools (window, stride, padding of TFLite) and the OFM_SCALE (shift and rounding, multiplier) that Vela 4.5 and
# 5.0 write for them; Vela 5.2 writes 1 for all, and nothing else differs.
_AVERAGES = {
    "2x2": ((2, 2, 1), (0x2020, 0x40000001)),
    "3x3": ((3, 1, 1), (0x2022, 0x71C71C73)),
    "padded 3x3": ((3, 1, 0), (0x2022, 0x71C71C73)),
    "8x8": ((8, 1, 1), (0x2024, 0x40000001)),
}
_ONE = struct.pack("<HI", 0x201E, 1 << 30)


@pytest.mark.parametrize("name", _AVERAGES)
def test_an_average_divides_once_whichever_vela_wrote_its_scale(name: str) -> None:
    from fvp_runner.references.kernels import TFLiteReference

    (size, stride, padding), scale = _AVERAGES[name]
    made = 8 if padding == 0 else (8 - size) // stride + 1
    x, y = TensorSpec((1, 8, 8, 16), "int8", 0.05, -7), TensorSpec((1, made, made, 16), "int8", 0.05, -7)
    options = {"FilterWidth": size, "FilterHeight": size, "StrideW": stride, "StrideH": stride, "Padding": padding}
    source = single_operator("AVERAGE_POOL_2D", [x], [y], "Pool2DOptions", 2, **options).finish()
    now = compile_tflite(source, VelaOptions("ethos-u85-256"), name).network
    assert now.count(_ONE) == 1
    before = now.replace(_ONE, struct.pack("<HI", *scale))
    inputs = [np.random.default_rng(3).integers(-128, 128, (1, 8, 8, 16), np.int64).astype(np.int8)]
    (expected,) = TFLiteReference(source, name).run(inputs)
    for data in (now, before):
        network = read_network(data, name)
        (got,) = NetworkModel(network, data).run(inputs).outputs
        assert np.array_equal(got.reshape(-1), expected.reshape(-1))
        assert unconfirmed_features(decode(network.npu_calls[0].words, Language.U85)) == ()


@lru_cache(maxsize=8)
def _compiled(name: str, npu: str, optimise: str) -> bytes:
    path = REPOSITORY / "tests" / "models" / f"{name}.tflite"
    return compile_tflite(path.read_bytes(), VelaOptions(npu, optimise=optimise), name).network


@pytest.mark.parametrize("npu", NPUS)
@pytest.mark.parametrize(
    ("name", "optimise"),
    [("kws_ref_model", "Performance"), ("pretrainedResnet_quant", "Size"), ("trained_lstm_int8", "Performance")],
)
def test_networks_are_bit_exact(name: str, optimise: str, npu: str) -> None:
    from fvp_runner.references.kernels import TFLiteReference

    data = _compiled(name, npu, optimise)
    network = read_network(data, name)
    generator = np.random.default_rng(5)
    shapes = [network.tensors[i].shape for i in network.inputs]
    inputs = [generator.integers(-128, 128, shape, np.int64).astype(np.int8) for shape in shapes]
    source = (REPOSITORY / "tests" / "models" / f"{name}.tflite").read_bytes()
    ran = NetworkModel(network, data).run(inputs)
    for got, expected in zip(ran.outputs, TFLiteReference(source, name).run(inputs), strict=True):
        assert np.array_equal(got.reshape(-1), expected.reshape(-1))


@pytest.mark.parametrize("name", ["rnnoise_u85_256.npz", "kws_micronet_m_u85_256.npz"])
def test_streams_of_others_raise_no_alarm(name: str) -> None:
    path = need_data(shared_folder("streams") / name)
    data = path.read_bytes()
    network = read_network(data, name)
    inputs = [np.zeros(network.tensors[i].shape, network.tensors[i].dtype) for i in network.inputs]
    (stats,) = NetworkModel(network, data).run(inputs, fuzz_schedules=2).stats
    assert stats.operations > 15
    assert stats.timing == ()


def _call() -> tuple[NpuCall, list[Any]]:
    network = read_network(_compiled("kws_ref_model", "ethos-u85-256", "Performance"), "kws")
    call = network.npu_calls[0]
    return call, list(decode(call.words, call.accelerator.language))


def test_every_wait_that_is_removed_is_missed() -> None:
    call, commands = _call()
    waits = [place for place, command in enumerate(commands) if isinstance(command, Wait)]
    assert len(waits) > 15
    for place in waits:
        with pytest.raises(MissingWaitError):
            NpuModel(call.accelerator).prepare_stream(encode(commands[:place] + commands[place + 1 :]))


def test_a_kernel_that_runs_too_far_ahead_is_reported() -> None:
    call, commands = _call()
    found = 0
    for place, command in enumerate(commands):
        if isinstance(command, Operation) and command.op.is_kernel and command[Register.BLOCKDEP] < 7:
            changed = command.with_registers({Register.BLOCKDEP: 7})
            try:
                NpuModel(call.accelerator).prepare_stream(encode([*commands[:place], changed, *commands[place + 1 :]]))
            except BlockDependencyError:
                found += 1
    assert found >= 14  # where the input is what the kernel before wrote, unlike where Vela gives up


def _chained(commands: list[Any]) -> int:
    """Place of the first kernel whose input is chained."""
    return next(
        place
        for place, command in enumerate(commands)
        if isinstance(command, Operation)
        and command.op is Op.ELEMENTWISE
        and command[Register.IFM_PRECISION] >> 14 == 2
    )


def _run(call: NpuCall, words: tuple[int, ...]) -> bytes:
    network = read_network(_compiled("kws_ref_model", "ethos-u85-256", "Performance"), "kws")
    changed = replace(network, operators=tuple(
        replace(o, payload=replace(o.payload, words=words)) if isinstance(o, NpuCall) else o for o in network.operators
    ))  # fmt: skip
    value = np.random.default_rng(1).integers(-128, 128, (1, 490), np.int64).astype(np.int8)
    shape = network.tensors[network.inputs[0]].shape
    return NetworkModel(changed, b"").run([value.reshape(shape)]).outputs[0].tobytes()


def test_a_chained_operand_has_no_address() -> None:
    call, commands = _call()
    place = _chained(commands)
    moved = commands[place].with_registers({Register.IFM_BASE0: 0x7FFFFFF0, Register.IFM_STRIDE_Y: 0x7FFFFFF0})
    again = encode([*commands[:place], moved, *commands[place + 1 :]])
    assert _run(call, again) == _run(call, call.words)


def test_a_chaining_buffer_that_nobody_filled_is_an_error() -> None:
    call, commands = _call()
    place = _chained(commands)
    region = commands[place][Register.IFM_REGION]
    moved = commands[place].with_registers({Register.IFM_REGION: (region + 3) % 8})
    with pytest.raises(IllegalValueError, match="in which no operation before leaves"):
        _run(call, encode([*commands[:place], moved, *commands[place + 1 :]]))


@pytest.mark.parametrize(
    ("register", "value", "message"),
    [
        (Register.ACC_FORMAT, 0x500, "selects micro-blocks of 4x4, but ethos-u85-256 has 1x2, 1x4, 2x2"),
        (Register.BLOCKDEP, 8, "BLOCKDEP = 8 is not one of"),
        (Register.OFM_PRECISION, 4 << 11 | 0x41, "OFM_PRECISION = 4 is not one of"),
    ],
)
def test_registers_that_mean_nothing_are_refused(register: Register, value: int, message: str) -> None:
    call, commands = _call()
    place = next(i for i, c in enumerate(commands) if isinstance(c, Operation) and c.op is Op.CONV)
    changed = commands[place].with_registers({register: value})
    with pytest.raises(IllegalValueError, match=message):
        NpuModel(call.accelerator).prepare_stream(encode([*commands[:place], changed, *commands[place + 1 :]]))


def test_damaged_streams_finish_or_say_why_not() -> None:
    """`python -m benchmarks.npu_model_flips 5000 1 --npu ethos-u85-...` does this for thousands."""
    found = targets(
        (), ("ethos-u85-128", "ethos-u85-1024"), ("hard_swish_int8", "bilinear_x2", "matmul_int8", "conv_d2x2")
    )
    chance, outcomes = random.Random(3), set()
    for target, words in (*damaged_streams(found, 100, chance), *wrong_registers(found, 200, chance)):
        for reader, read in target.readers(words).items():
            try:
                read()
                outcomes.add(f"{reader} ends")
            except ModelFaultError as error:
                pytest.fail(f"{target.name}, {target.difference(words)}: {error}")
            except NpuMemplanError as error:
                outcomes.add(type(error).__name__)
    assert {"run ends", "lift ends", "MalformedStreamError", "OutOfRegionError", "IllegalValueError"} <= outcomes


def _fast(raw: bool, small: bool, palette: list[int], body: bytes, offset: int = 0) -> bytes:
    header = raw | small << 1 | (offset & 0xFF) << 104
    for place, value in enumerate(palette):
        header |= (abs(value) << 1 | (value < 0)) << 112 + 9 * place
    return header.to_bytes(32, "little") + body


def test_fast_weights() -> None:
    """Codes of 4, 2 and 8 bits, as the header says; a zero point that raw values were moved by."""
    four = _fast(False, False, [0, 5, -255, 7], bytes([0x21, 0x03]))
    assert weights.decode_fast(four, 3).tolist() == [5, -255, 7]
    two = _fast(False, True, [1, -1, 2, -2], bytes([0b11100100]))
    assert weights.decode_fast(two, 4).tolist() == [1, -1, 2, -2]
    raw = _fast(True, False, [], np.array([-128, 0, 127], np.int8).tobytes(), offset=-10)
    assert weights.decode_fast(raw, 3).tolist() == [-118, 10, 137]
    with pytest.raises(WeightStreamShortError, match="holds at most 4 weights of 2 bits"):
        weights.decode_fast(two, 5)
    with pytest.raises(WeightStreamError, match="raw values and a palette at once"):
        weights.decode_fast(_fast(True, True, [], b"\0"), 1)


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [
        (ScaleRounding.SYMMETRIC, [-2, -1, -1, 0, 1, 1, 2]),
        (ScaleRounding.TRUNCATE_TO_LOWER, [-2, -1, -1, 0, 0, 1, 1]),
        (ScaleRounding.DOUBLE_ASYMMETRIC, [-1, -1, 0, 0, 1, 1, 2]),
    ],
)
def test_roundings_of_the_output(rounding: ScaleRounding, expected: list[int]) -> None:
    values = np.arange(-3, 4)
    assert Scale.single_scale(1, 1, rounding).rescale_exact(values).tolist() == expected
    wide = values.astype(np.int64) << 40  # products that do not fit 64 bits
    if rounding is not ScaleRounding.DOUBLE_ASYMMETRIC:  # which rounds twice where 31 bits and more go
        assert Scale.single_scale(1 << 22, 63, rounding).rescale_exact(wide).tolist() == expected


def test_what_no_reference_confirms_is_reported() -> None:
    call, commands = _call()
    assert unconfirmed_features(commands) == ()
    place = next(i for i, c in enumerate(commands) if isinstance(c, Operation) and c.op is Op.ELEMENTWISE)
    other = commands[place]
    changed = [
        *commands[:place],
        other.with_registers({Register.OFM_SCALE: 4 << 45 | 1, Register.ACTIVATION: int(TableKind.U8_U8)}),
        *commands[place + 1 :],
    ]
    at = f"(first at ELEMENTWISE at stream offset {other.offset_bytes:#x})"
    assert unconfirmed_features(changed) == (
        f"look-up U8_U8 is unconfirmed: modelled from its description, no reference confirms it {at}",
        f"rounding TRUNCATE_TO_ZERO is unconfirmed: modelled from its description, no reference confirms it {at}",
    )
    assert set(NpuModel(call.accelerator).prepare_stream(call.words).messages) == set()


@pytest.mark.parametrize(
    ("scale", "is_known", "is_said"),
    [((1 << 30) + 1 | 36 << 32, True, False), (1 << 30 | 30 << 32, False, False),
     (1 << 30 | 36 << 32, False, True), (1789569776 | 36 << 32, False, True), (1789569773 | 30 << 32, False, False)],
)  # fmt: skip
def test_averages_whose_scale_may_divide_too_are_marked_unconfirmed(scale: int, is_known: bool, is_said: bool) -> None:
    """Of a window of 8x8; 1/64 rounded up is Vela's up to 5.0, exactly 1/64 and 5/3 of it may be ratios of scales."""
    window = {Register.KERNEL_HEIGHT_M1: 7, Register.KERNEL_WIDTH_M1: 7}
    registers = {**window, Register.OFM_PRECISION: 0x101, Register.OFM_SCALE: scale | 1 << 45}
    operation = Operation(Op.POOL, PoolMode.AVERAGE, registers, language=Language.U85)
    assert divides_average(scale | 1 << 45, 64) == is_known
    assert any("POOL AVERAGE" in text for text in unconfirmed_features([operation])) == is_said


@pytest.mark.parametrize("name", sorted({f.split()[-1] for f in CONFIRMED if f.startswith("ELEMENTWISE")}))
def test_confirmed_kinds_exist(name: str) -> None:
    assert name in ElementwiseMode.__members__


_ALWAYS, _IF_TRUE = 0x0000_4100, 0x0001_4100  # BRANCH, before its target


def test_streams_that_jump_are_executed_and_not_lifted() -> None:
    call, _ = _call()
    words = (_ALWAYS, 8, *call.words)
    assert next(describe(words, call.accelerator)).operation.startswith("BRANCH")
    program = NpuModel(call.accelerator).prepare_stream(words)
    assert [step for step in program.executed_commands(bool) if isinstance(step, DecodedStep)] == list(program.steps)
    assert program.messages[-1] == "the stream jumps: the estimate of time takes each operation once"
    network = read_network(_compiled("kws_ref_model", "ethos-u85-256", "Performance"), "kws")
    with pytest.raises(StreamError, match="BRANCH at stream offset 0x0 goes on at offset 0x8: streams that jump "):
        lift_program(network, replace(call, payload=replace(call.payload, words=words)))


def test_jumps_that_lead_nowhere_never_end_or_do_not_wait_are_found() -> None:
    call, commands = _call()
    model, end = NpuModel(call.accelerator), 4 * len(call.words)
    for target in (6, end + 8, 1 << 31):
        with pytest.raises(MalformedStreamError, match=f"goes on at offset {target:#x}: no command is there"):
            model.prepare_stream((_ALWAYS, target, *call.words))
    with pytest.raises(NpuModelError, match="BRANCH at stream offset 0x0 goes back after 16384 commands of loops"):
        model.run((_ALWAYS, 0, *call.words[-1:]), [])
    with pytest.raises(NpuModelError, match="a BRANCH needs a result where the last kernel made no single element"):
        model.run((_IF_TRUE, 0, *call.words[-1:]), [])
    start = next(c.offset_bytes for c in commands if isinstance(c, Operation)) // 4 + 1
    with pytest.raises(MissingWaitError, match="put KERNEL_WAIT 0 and DMA_WAIT 0 before it"):
        model.prepare_stream((*call.words[:start], _ALWAYS, 4 * start + 8, *call.words[start:]))


# Name -> (kernels or chains that follow another, those that must wait for its blocks, those where Vela waits longer).
STREAMS = {
    "kws_ref_model": (129, 120, 1),
    "pretrainedResnet_quant": (126, 118, 0),
    "str_ww_ref_model": (123, 108, 2),
    "micro_speech_quantized": (80, 71, 5),
}


def is_clean(npu: Architecture, before: Sequence[Operation], after: Sequence[Operation], value: int) -> bool:
    """What the model says of the two with this BLOCKDEP."""
    first = after[0].with_registers({Register.BLOCKDEP: value})
    stream = encode([*before, first, *after[1:], Marker(Op.STOP, 0xFFFF)])
    try:
        return check.check_blockdep(DecodedStream.decode_words(stream, npu)) == ()
    except BlockDependencyError:
        return False


@pytest.mark.parametrize("name", STREAMS)
def test_raising_any_blockdep_beyond_what_is_safe_is_reported(name: str) -> None:
    """20 streams in all: the largest safe value is never an alarm, one more always is, and Vela never goes beyond."""
    found: Counter[str] = Counter()
    model = (REPOSITORY / "tests" / "models" / f"{name}.tflite").read_bytes()
    for npu in ETHOS_U85:
        (call,) = read_network(compile_tflite(model, VelaOptions(npu.name), name).network).npu_calls
        for before, after, _ in pairs(decode(call.words, npu.language)):
            safe, vela = largest(before, after, npu.macs), after[0][Register.BLOCKDEP]
            assert vela <= safe
            assert is_clean(npu, before, after, safe)
            assert safe == MOST or not is_clean(npu, before, after, safe + 1)
            assert vela <= min(largest_blockdep(before[-1], one, npu) for one in after) <= safe
            found.update(all=1, waits=safe < MOST, longer=vela < safe)
    assert (found["all"], found["waits"], found["longer"]) == STREAMS[name]
