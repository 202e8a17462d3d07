"""Ethos-U85's language: streams of Vela and of others decode, say what they mean, and encode back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npu_memplan.ethosu.arch import ACCELERATORS, Language, accelerator, accelerator_of_config
from npu_memplan.ethosu.arch.configurations import ETHOS_U85
from npu_memplan.ethosu.program.describe import describe
from npu_memplan.ethosu.stream.decode import Operation, StreamError, decode
from npu_memplan.ethosu.stream.encode import Payload, build_payload, encode, parse_payload
from npu_memplan.ethosu.stream.isa import Op, Register
from npu_memplan.models.network import Network
from npu_memplan.models.tflite import read_network
from tests.support.needs import need_data
from tests.support.real_data import shared_folder

U85 = accelerator("ethos-u85-256")


def shared_stream(name: str) -> Path:
    return need_data(shared_folder("streams") / name)


def _plain(words: tuple[int, ...]) -> list[Any]:
    return [(c.op, getattr(c, "registers", None)) for c in decode(words, Language.U85)]


def _round_trip(network: Network) -> None:
    for call in network.npu_calls:
        again = encode(decode(call.words, call.accelerator.language))
        assert _plain(again) == _plain(call.words)
        # Kernels of chains have their maps' registers written anew, and decoding knows more of them than Vela writes.
        assert len(again) <= 1.4 * len(call.words)
        lines = list(describe(call.words, call.accelerator))
        assert len(lines) == len(_plain(call.words))


@pytest.mark.parametrize("npu", [a.name for a in ETHOS_U85])
def test_streams_of_vela_are_read_and_written_back(compiled: Callable[..., Network], npu: str) -> None:
    network = compiled("digits", accelerator=npu)
    assert {call.accelerator.name for call in network.npu_calls} == {npu}
    _round_trip(network)


@pytest.mark.parametrize("name", ["rnnoise_u85_256.npz", "kws_micronet_m_u85_256.npz"])
def test_streams_of_others_are_read_and_written_back(name: str) -> None:
    _round_trip(read_network(shared_stream(name).read_bytes(), name))


def test_configuration_words() -> None:
    assert [hex(a.config_word) for a in ETHOS_U85] == [
        "0x20000117",
        "0x20000118",  # of the streams that others published
        "0x20001119",
        "0x2000251a",
        "0x2000261b",
    ]
    for npu in ACCELERATORS.values():
        assert accelerator_of_config(npu.config_word) is npu
    payload = Payload(U85, (0xFFFF0000,), U85.id_word)
    assert parse_payload(build_payload(payload)) == payload


@pytest.mark.parametrize(
    ("words", "one", "other"),
    [
        ([0x4025, 5], Register.OPA_SCALE, Register.IFM_SCALE),
        ([0x4092, 5], Register.SCALE1_BASE, Register.WEIGHT2_BASE),
        ([0x4033, 5], Register.DMA0_SKIP0, Register.DMA0_SRC_STRIDE0),
        ([0x5012D], Register.AB_START, Register.RESIZE_Y_OFFSET),
    ],
)
def test_an_opcode_means_what_its_language_says(words: list[int], one: Register, other: Register) -> None:
    for language, register in ((Language.U55_U65, one), (Language.U85, other)):
        operation = decode([*words, 0x0005, 0xFFFF0000], language)[0]
        assert isinstance(operation, Operation)
        assert operation.registers == {register: 5}
        assert operation.language is language


@pytest.mark.parametrize(
    ("words", "language"), [([0x0007], Language.U55_U65), ([0x0123], Language.U85), ([0x4100, 0], Language.U55_U65)]
)
def test_what_a_language_has_not_is_no_command(words: list[int], language: Language) -> None:
    with pytest.raises(StreamError, match="unknown"):
        decode([*words, 0xFFFF0000], language)


def test_registers_say_what_they_mean() -> None:
    registers = {
        Register.IFM_PRECISION: 0x8041,  # chained
        Register.IFM_BROADCAST: 5,
        Register.IFM_SCALE: 20 << 38 | 10 << 32 | 7,
        Register.IFM2_PRECISION: 0xC001,  # a scalar
        Register.IFM2_BROADCAST: 8,
        Register.OP_SCALAR: 0xFFFFFFFF,
        Register.OFM_PRECISION: 0x1105,  # 32 bits, global scale, HCW
        Register.OFM_HEIGHT_M1: 1,
        Register.OFM_WIDTH_M1: 2,
        Register.OFM_DEPTH_M1: 3,
        Register.OFM_HEIGHT0_M1: 1,
        Register.OFM_HEIGHT1_M1: 1,
        Register.OFM_WIDTH0_M1: 3,
        Register.OFM_REGION: 1,
        Register.OFM_STRIDE_X: 12,
        Register.OFM_STRIDE_Y: 48,
        Register.ACC_FORMAT: 0x311,
        Register.ACTIVATION: 5 | 2 << 5 | 1 << 12,
    }
    operation = Operation(Op.ELEMENTWISE, 19, registers, language=Language.U85)
    first = next(describe([*encode([operation]), 0xFFFF0000], U85))
    assert first.operation == "ELEMENTWISE CMP_GT"
    assert first.summary == "int8 not in memory -> int32[2,4,3] NHWC @1:0x0 LUT 4"
    assert {name: meaning for name, _, meaning in first.registers if meaning} == {
        "IFM_PRECISION": "int8 NHCWB16 CHAINED",
        "IFM_BROADCAST": "HEIGHT DEPTH",
        "IFM_SCALE": "7 >> 10 DOUBLE_SYMMETRIC, first rounding 20 bits earlier",
        "IFM2_PRECISION": "int8 NHWC NONE",
        "IFM2_BROADCAST": "SCALAR",
        "OP_SCALAR": "-1",
        "OFM_PRECISION": "int32 NHWC global scale stored as HCW",
        "OFM_HEIGHT_M1": "2",
        "OFM_WIDTH_M1": "3",
        "OFM_DEPTH_M1": "4",
        "OFM_HEIGHT0_M1": "2",
        "OFM_HEIGHT1_M1": "2",
        "OFM_WIDTH0_M1": "4",
        "ACC_FORMAT": "INT48 KEEP micro-block 2x2",
        "ACTIVATION": "s8_s16 table 2, not clipped",
    }
