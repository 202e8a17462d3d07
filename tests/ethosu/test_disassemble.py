"""`npu-memplan disassemble` says what a stream says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npu_memplan.errors import NpuMemplanError
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.program.describe import describe
from npu_memplan.ethosu.stream.decode import Operation, Wait, decode
from npu_memplan.ethosu.stream.encode import encode
from npu_memplan.ethosu.stream.isa import Op, PoolMode, Register
from tests.support.entry import invoke
from tests.support.hand_made import STOP, conv, dma, elementwise, lut_dma, pool, view

U55 = accelerator("ethos-u55-256")
S = (4, 4, 16)


@pytest.fixture
def network_file(tmp_path: Path, compiled_bytes: Callable[..., bytes]) -> Path:
    path = tmp_path / "digits_vela.tflite"
    path.write_bytes(compiled_bytes("digits"))
    return path


def _lines(*commands: Any) -> list[Any]:
    return list(describe(encode([*commands, STOP]), U55))


def test_operations_in_words() -> None:
    scaled = {Register.OFM_SCALE: 31 << 32 | 0x40000000, Register.KERNEL_STRIDE: 0b111, Register.ACTIVATION: 3}
    lines = _lines(
        dma((0, 16), (1, 2048), 80),
        Wait(Op.DMA_WAIT, 1),
        conv(view("IFM", 0, S), view("OFM", 256, (2, 2, 16), brick=True), depth=16, stride=2, extra=scaled),
        lut_dma(0, 1),
        elementwise(view("IFM", 0, S), view("OFM", 512, S, bits=16), view("IFM2", 256, (1, 1, 16)), broadcast=3, lut=1),
        pool(view("IFM", 0, S), view("OFM", 512, S), mode=PoolMode.MAX),
    )
    assert [(line.operation, line.summary) for line in lines] == [
        ("DMA_START", "80 bytes, region 0 0x10 -> region 1 0x800"),
        ("DMA_WAIT 1", "go on when at most 1 DMAs are unfinished"),
        ("CONV", "int8[3,3,16] NHWC @1:0x0 -> int8[2,2,16] NHCWB16 @1:0x100 kernel 1x1 stride 2x2"),
        ("DMA_START", "256 bytes, region 0 0x0 -> SHRAM 0xb900"),
        ("ELEMENTWISE ADD",
         "int8[4,4,16] NHWC @1:0x0 , int8[1,1,16] NHWC @1:0x100 -> int16[4,4,16] NHWC @1:0x200 LUT 1"),
        ("POOL MAX", "int8[4,4,16] NHWC @1:0x0 -> int8[4,4,16] NHWC @1:0x200 kernel 1x1 stride 1x1"),
        ("STOP 0xffff", ""),
    ]  # fmt: skip
    meanings = {name: text for line in lines for name, _, text in line.registers}
    assert meanings["OFM_DEPTH_M1"] == "16"
    assert meanings["ACTIVATION_MIN"] == "-128"
    assert meanings["IFM2_BROADCAST"] == "HEIGHT WIDTH"
    conv_words = {name: text for name, _, text in lines[2].registers}
    assert conv_words["OFM_SCALE"] == "1073741824 >> 31"
    assert conv_words["KERNEL_STRIDE"] == "stride 2x2, dilation 1x1, part-kernel first"
    assert conv_words["OFM_PRECISION"] == "int8 NHCWB16 scale per channel TFL"
    assert conv_words["ACTIVATION"] == "tanh"


def test_only_changed_registers_are_shown_unless_all_are_wanted() -> None:
    op = pool(view("IFM", 0, S), view("OFM", 512, S))
    moved = op.with_registers({Register.IFM_BASE0: 256})
    assert [name for name, _, _ in _lines(op, moved)[1].registers] == ["IFM_BASE0"]
    everything = list(describe(encode([op, moved, STOP]), U55, everything=True))
    assert len(everything[1].registers) == len(everything[0].registers)


def test_text_names_every_command_of_a_real_stream(network_file: Path, compiled: Callable[..., Any]) -> None:
    result = invoke("disassemble", network_file)
    call = compiled("digits").npu_calls[0]
    lines = [line for line in result.output.splitlines() if line.startswith("0x")]
    assert [int(line.split()[0], 16) for line in lines] == [c.offset_bytes for c in decode(call.words)]
    assert result.output.startswith(f"; NPU call at operator 0: ethos-u55-256, {len(call.words)} words")


def test_json_holds_raw_values_and_accesses(network_file: Path, compiled: Callable[..., Any]) -> None:
    result = invoke("disassemble", network_file, "--json", "--all-registers", "--call", "0", code=None)
    (call,) = json.loads(result.output)["calls"]
    operations = [c for c in decode(compiled("digits").npu_calls[0].words) if isinstance(c, Operation)]
    shown = [c for c in call["commands"] if c["registers"]]
    assert len(shown) == len(operations)
    for line, op in zip(shown, operations, strict=True):
        for name, entry in line["registers"].items():
            assert entry["value"] == op[Register[name]]
        assert {a["writes"] for a in line["accesses"]} == {True, False}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--call", "7"], "has 1 NPU calls, counted from 0; there is no 7"),
        (["missing.tflite"], "cannot read missing.tflite: No such file"),
        (["{example}"], "digits.tflite has no ethos-u operator: it was not compiled by Vela"),
    ],
)
def test_bad_use_is_explained(network_file: Path, arguments: list[str], message: str) -> None:
    example = Path(__file__).resolve().parent.parent.parent / "examples" / "digits" / "digits.tflite"
    given = [a.format(example=example) for a in arguments]
    if given[0].startswith("--"):
        given = [str(network_file), *given]
    result = invoke("disassemble", *given, code=None)
    assert isinstance(result.exception, NpuMemplanError)
    assert message in str(result.exception)
