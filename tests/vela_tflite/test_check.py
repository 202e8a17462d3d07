"""`npu-memplan check`: a right file has nothing wrong, and every fault put into one is named."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import tflite

from npu_memplan.ethosu.stream.encode import Payload, build_payload
from npu_memplan.ethosu.stream.isa import Register
from npu_memplan.models.network import Network
from npu_memplan.models.tflite import data_offsets, read_network
from npu_memplan.models.vela_file import ArenaPlan, NpuOperator, rebuild_file
from npu_memplan.options import CompileOptions
from npu_memplan.target_data import board_names, load_board
from npu_memplan.vela_tflite.emit import emit
from tests.support.entry import invoke
from tests.support.real_data import real_model
from tests.support.saving import save

pytest.importorskip("tflite_micro")
U55, U65 = (next(n for n in board_names() if n.endswith(f"300-{npu}")) for npu in ("u55", "u65"))


@cache
def right(name: str = "micro_speech_quantized") -> bytes:
    return emit(real_model(name), CompileOptions(objective="bytes", effort="quick")).content


def wrong_findings(tmp_path: Path, content: bytes, *more: str, board: str = U55) -> list[tuple[str, str]]:
    """(topic, text) of what `check` calls wrong."""
    path = save(tmp_path / "net.tflite", content)
    done = invoke("check", path, "--board", board, "--json", *more, code=None)
    document = json.loads(done.output)
    found = [(f["topic"], f["text"]) for f in document["findings"] if f["level"] == "WRONG"]
    assert (done.exit_code, document["wrong"]) == (int(bool(found)), len(found))
    return found


def rewritten(network: Network, words: tuple[int, ...] | None = None, arena_bytes: int | None = None) -> bytes:
    """The file once more, with another stream or another size of the arena."""
    (call,) = network.npu_calls
    payload = build_payload(replace(call.payload, words=words or call.words))
    operator = NpuOperator(payload, call.read_only.tobytes(), call.inputs, call.outputs)
    offsets = {t.index: t.arena_offset for t in network.tensors if t.arena_offset >= 0}
    plan = ArenaPlan(arena_bytes or call.scratch_bytes, 0, offsets)
    return rebuild_file(right(), [operator], network.inputs, network.outputs, plan)


def network() -> Network:
    return read_network(right(), "net")


@pytest.mark.parametrize("name", ["micro_speech_quantized", "keyword_scrambled_8bit"])
def test_a_right_file_has_nothing_wrong(tmp_path: Path, name: str) -> None:
    assert wrong_findings(tmp_path, right(name), "--reference", str(real_model(name))) == []


def test_the_text_says_what_the_firmware_needs(tmp_path: Path) -> None:
    path = save(tmp_path / "net.tflite", right())
    done = invoke("check", path, "--board", U55)
    assert f"net.tflite on {U55}: nothing wrong was found" in done.output
    assert "ok     operators    the firmware has to register ethos-u" in done.output
    assert "planned tensors need 5,968 bytes; TFLite Micro adds" in done.output


def test_another_accelerator(tmp_path: Path) -> None:
    found = wrong_findings(tmp_path, right(), board=U65)
    assert [topic for topic, _ in found] == ["accelerator"]
    assert "operator 0 is compiled for ethos-u55-256 (CONFIG 0x00003008)" in found[0][1]

    assert f"npu-memplan compile MODEL.tflite --board {U65} --emit vela-tflite -o FILE.tflite" in found[0][1]


def test_a_damaged_payload_is_a_finding(tmp_path: Path) -> None:
    """It ended the command, without a table."""
    (found,) = wrong_findings(tmp_path, right().replace(b"COP1", b"COPX"))
    assert found[0] == "payload"
    assert "must begin with COP1 or COP2, this one begins with b'COPX'" in found[1]


def test_a_file_that_vela_has_not_compiled_names_our_command(tmp_path: Path) -> None:
    found = wrong_findings(tmp_path, real_model("micro_speech_quantized").read_bytes())
    assert any(f"--board {U55} --emit vela-tflite" in text for topic, text in found if topic == "operators")


def test_the_verdict_has_the_npus_time_and_the_cpus_operators(tmp_path: Path) -> None:
    path = save(tmp_path / "net.tflite", right("keyword_scrambled_8bit"))
    first = invoke("check", path, "--board", U55, code=None).output.splitlines()[0]
    assert re.search(
        r"; NPU about \d+\.\d{3} to \d+\.\d{3} ms \(estimated\); \d+ of \d+ operators on the CPU \(.*SVDF", first
    ), first
    assert first.endswith("whose time is not estimated")
    document = json.loads(invoke("check", path, "--board", U55, "--json", code=None).output)
    assert 0 < document["npu_ms"] == document["npu_ms_by_model"]["shared by halves"]
    assert document["npu_ms"] < max(document["npu_ms_by_model"].values())
    assert "SVDF" in document["cpu_operators"]


def test_without_a_board_all_that_have_the_npu_are_listed(tmp_path: Path) -> None:
    path = save(tmp_path / "net.tflite", right())
    done = invoke("check", path, "--json", code=None)
    document = json.loads(done.output)
    assert (done.exit_code, document["board"], document["npu_ms"]) == (0, None, None)
    texts = [f["text"] for f in document["findings"] if f["topic"] == "board"]
    have = [name for name in board_names() if "ethos-u55-256" in load_board(name).accelerators]
    assert [text.partition(":")[0] for text in texts] == have
    for text in texts:  # the time is that of a check for the board alone
        name = text.partition(":")[0]
        headline = invoke("check", path, "--board", name, code=None).output.splitlines()[0]
        assert text.partition("; ")[2] in headline


def test_a_board_that_lacks_the_mode_or_the_room_is_said(tmp_path: Path) -> None:
    path = save(tmp_path / "net.tflite", right())
    done = invoke("check", path, "--memory-mode", "Dedicated_Sram", code=None)
    assert re.search(r"note +board +himax|note +board +alif-e7-hp: does not fit: .*Dedicated_Sram", done.output)


def test_a_newer_architecture(tmp_path: Path) -> None:
    (call,) = network().npu_calls
    newer = Payload(call.accelerator, call.words, architecture_id=0x12006001)
    content = right().replace(build_payload(call.payload), build_payload(newer))
    found = wrong_findings(tmp_path, content)
    assert [topic for topic, _ in found] == ["versions"]
    assert "is for architecture 1.32.0, ethos-u55-256 is 1." in found[0][1]


@pytest.mark.parametrize("npu", ["ethos-u55-64", "ethos-u65-256", "ethos-u85-256"])
def test_a_file_of_ours_is_for_an_architecture_that_the_npu_has(npu: str) -> None:
    (call,) = read_network(
        emit(real_model("hello_world_int8"), CompileOptions(npu, objective="bytes", effort="quick")).content, "x"
    ).npu_calls
    made, has = call.payload.architecture_id, call.accelerator.id_word
    assert (call.accelerator.name, made >> 28) == (npu, has >> 28)
    assert made >> 20 & 0xFF <= has >> 20 & 0xFF


def test_a_wrong_region(tmp_path: Path) -> None:
    (call,) = network().npu_calls
    at = next(i for i, word in enumerate(call.words) if word & 0xFFFF == Register.OFM_REGION.opcode)
    words = (*call.words[:at], Register.OFM_REGION.opcode | 7 << 16, *call.words[at + 1 :])
    found = wrong_findings(tmp_path, rewritten(network(), words))
    reason = "operator 0 uses region 7, but its tensors give base pointers 0 to 4"
    reason += ": the NPU reads at an address that was never set"
    assert ("regions", reason) in found


def test_an_arena_that_is_16_bytes_short(tmp_path: Path) -> None:
    found = wrong_findings(tmp_path, rewritten(network(), arena_bytes=5968 - 16))
    assert ("arena", "operator 0 touches 5,960 bytes of region 1 (arena), the file gives it 5,952: 8 too few") in found
    given = wrong_findings(tmp_path, right(), "--arena", "5952")
    assert [topic for topic, _ in given] == ["arena"]
    assert "the arena has 5,952 bytes, the planned tensors need 5,968: 16 too few" in given[0][1]
    tight = wrong_findings(tmp_path, right(), "--arena", "6000")
    assert "that leaves 32 for TFLite Micro's own structures, which took at least 452" in tight[0][1]


def misaligned() -> bytes:
    """The payload once more behind the file, 4 bytes beyond a multiple of 16."""
    (call,) = network().npu_calls
    payload = build_payload(call.payload)
    data = bytearray(right())
    model = tflite.Model.GetRootAsModel(right(), 0)
    table = model.Buffers(model.Subgraphs(0).Tensors(call.stream_tensor).Buffer())._tab
    place = table.Pos + table.Offset(4)
    data += bytes(-len(data) % 16)
    struct.pack_into("<I", data, place, len(data) - place)
    return bytes(data + struct.pack("<I", len(payload)) + payload)


def test_a_misaligned_payload(tmp_path: Path) -> None:
    found = wrong_findings(tmp_path, misaligned())
    assert [topic for topic, _ in found] == ["alignment"]
    assert "the payload of operator 0" in found[0][1]
    assert "4 beyond a multiple of 16: the driver refuses them" in found[0][1]


def test_an_operator_that_is_not_registered(tmp_path: Path) -> None:
    named = wrong_findings(tmp_path, right("keyword_scrambled_8bit"), "--registered", "ethos-u,QUANTIZE")
    assert named == [("operators", "SVDF is needed and not among the registered (ethos-u, QUANTIZE): AllocateTensors "
                      "fails; register it")]  # fmt: skip


def test_an_operator_that_tflite_micro_does_not_have(tmp_path: Path) -> None:
    content = bytearray(right("keyword_scrambled_8bit"))
    model = tflite.Model.GetRootAsModel(bytes(content), 0)
    for i in range(model.OperatorCodesLength()):
        code = model.OperatorCodes(i)
        if code.BuiltinCode() == tflite.BuiltinOperator.SVDF:
            content[code._tab.Pos + code._tab.Offset(4)] = tflite.BuiltinOperator.LSH_PROJECTION
            struct.pack_into("<i", content, code._tab.Pos + code._tab.Offset(10), tflite.BuiltinOperator.LSH_PROJECTION)
    found = wrong_findings(tmp_path, bytes(content))
    assert any(topic == "operators" and "LSH_PROJECTION: TFLite Micro does not run it" in text for topic, text in found)


@pytest.mark.parametrize(
    "at, said",
    [
        (14721, "the first layer that differs is"),
        (26008, "WeightStream: weight stream: a symbol of the slice"),
        (4208, "WeightStreamShort: the weight stream of 2880 bytes ends inside a slice"),
    ],
)
def test_a_damaged_weight(tmp_path: Path, at: int, said: str) -> None:
    """Also where the outputs happen to be right: the layers are compared too."""
    content = bytearray(right("kws_ref_model"))
    (call,) = read_network(bytes(content), "net").npu_calls
    content[data_offsets(bytes(content))[call.constants_tensor] + at] ^= 0x10
    found = wrong_findings(tmp_path, bytes(content), "--reference", str(real_model("kws_ref_model")))
    assert [topic for topic, _ in found] == ["run"]
    assert said in found[0][1]
