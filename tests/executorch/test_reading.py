"""The reader of `.pte`: every container and value, what users are told, damage. Files are made here, byte by byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from npu_memplan.errors import NpuMemplanError
from npu_memplan.models.executorch.delegates import BlockSlot, build_blocks, read_blocks
from npu_memplan.models.executorch.program import (
    DelegateCall,
    FreeCall,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    PlannedPlace,
    ValueList,
    ValueTensor,
    is_program,
    read_named_data,
    read_program,
)
from npu_memplan.models.flatbuffer import NetworkError
from tests.support.pte_file import Calls, Tensor, bundle, ptd_file, pte_file

MODELS = Path(__file__).resolve().parents[1] / "models"
BLOB, OTHER = bytes(range(48)), b"other" * 9


def two_methods(**how: object) -> bytes:
    first = Calls(
        [Tensor("int8", (1, 4), (1, 16)), Tensor("float32", (2, 2), (2, 1 << 33), order=(1, 0)), 7, 0.5, None, [0, 1],
         Tensor("int8", (3,), constant=1)],
        [0], [1], [("kernel", "aten::add.out", [0, 5, 1]), ("delegate", 1, [0, 1]), (3, 0, 1), (4, 2, 4), (5, 0, 0)],
        [0, 64, 1 << 34], [("EthosUBackend", 0), ("XnnpackBackend", 1)],
    )  # fmt: skip
    second = Calls([Tensor("int8", (2,))], [0], [0], [], [0], name="encode")
    return pte_file([first, second], [BLOB, OTHER], constants=[b"abc"], **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("bundled", [False, True])
def test_methods_values_instructions_and_delegates(inline: bool, bundled: bool) -> None:
    data = two_methods(inline=inline)
    program = read_program(bundle(data) if bundled else data, "p")
    assert [m.name for m in program.methods] == ["forward", "encode"]
    assert program.bundled is bundled
    method = program.methods[0]
    assert method.planned_bytes == {1: 64, 2: 1 << 34}
    first, second, constant = method.values[0], method.values[1], method.values[6]
    assert isinstance(first, ValueTensor)
    assert (first.dtype, first.size_bytes, first.place) == ("int8", 4, PlannedPlace(1, 16))
    assert isinstance(second, ValueTensor)
    assert (second.size_bytes, second.dim_order, second.place) == (16, (1, 0), PlannedPlace(2, 1 << 33))
    assert isinstance(constant, ValueTensor)
    assert constant.is_constant
    assert constant.data == b"abc"
    assert method.values[2:6] == (7, 0.5, None, ValueList((0, 1)))
    assert method.instructions == (
        KernelCall("aten::add.out", (0, 5, 1)), DelegateCall(1, (0, 1)), MoveCall(0, 1), JumpFalseCall(2, 4),
        FreeCall(0),
    )  # fmt: skip
    assert [(d.backend, bytes(d.data), d.inline) for d in method.delegates] == [
        ("EthosUBackend", BLOB, inline), ("XnnpackBackend", OTHER, inline)
    ]  # fmt: skip
    assert [bytes(data[d.file_offset :][: len(d.data)]) for d in method.delegates] == [BLOB, OTHER]
    assert list(method.tensors_in(5)) == [0, 1]


def test_data_by_name_is_in_the_program_or_in_ptd_files() -> None:
    program = read_program(two_methods(named={"here": b"inside"}), "p", read_named_data([("d", ptd_file({"k": BLOB}))]))
    assert {key: bytes(value) for key, value in program.named_data.items()} == {"here": b"inside", "k": BLOB}
    with pytest.raises(NetworkError, match=r"d is not a \.ptd file: bytes 4 to 8 must be FT01"):
        read_named_data([("d", b"x" * 99)])
    with pytest.raises(NetworkError, match=r"d is a damaged or truncated \.ptd file"):
        read_named_data([("d", ptd_file({"k": BLOB})[:-20])])


@pytest.mark.parametrize(
    ("name", "accelerator", "scratch", "slots"),
    [
        ("three_convolutions_u65", "ethos-u65-256", 12288, (0, 0)),
        ("three_convolutions_u85", "ethos-u85-256", 81920, (65536, 0)),
    ],
)
def test_a_real_program(name: str, accelerator: str, scratch: int, slots: tuple[int, int]) -> None:
    program = read_program((MODELS / f"{name}.pte").read_bytes(), name)
    method = program.methods[0]
    assert [i.name for i in method.instructions if isinstance(i, KernelCall)] == [
        "quantized_decomposed::quantize_per_tensor.out", "quantized_decomposed::dequantize_per_tensor.out"
    ]  # fmt: skip
    assert method.planned_bytes == {1: 61440}
    blocks = read_blocks(method.delegates[0], program.named_data, name)
    assert (blocks.payload.accelerator.name, blocks.scratch_bytes) == (accelerator, scratch)
    assert blocks.inputs == (BlockSlot((1, 1, 1, 3, 64, 64), 1, slots[0], 1),)
    assert blocks.outputs == (BlockSlot((1, 1, 1, 1, 1, 10), 1, slots[1], 1),)


def blob_of(blocks: dict[str, bytes]) -> tuple[object, ...]:
    program = read_program(pte_file([Calls([], [], [], [], [0], [("EthosUBackend", 0)])], [build_blocks(blocks)]), "p")
    return program.methods[0].delegates[0], {}, "delegate 0"


@pytest.mark.parametrize(
    ("blocks", "text"),
    [
        ({}, "delegate 0: it has no block cmd_data"),
        ({"cmd_data": b"", "scratch_size": b"1"}, "its scratch_size has 1 bytes, not 4"),
        ({"nonsense": b""}, "the block at byte 32 is called 'nonsense'; known are vela_bin_stream, cmd_data"),
        ({"cmd_data": b"COP1", "scratch_size": bytes(4)}, "a driver payload of 4 bytes is truncated"),
    ],
)
def test_blocks_that_cannot_be_read_are_named(blocks: dict[str, bytes], text: str) -> None:
    with pytest.raises(NetworkError, match=text):
        read_blocks(*blob_of(blocks))  # type: ignore[arg-type]


def test_external_blocks_are_found_by_their_key() -> None:
    program = read_program((MODELS / "three_convolutions_u65.pte").read_bytes(), "p")
    delegate = program.methods[0].delegates[0]
    whole, at = bytes(delegate.data), bytes(delegate.data).index(b"weight_data")
    size = int.from_bytes(whole[at + 16 : at + 20], "little")
    weights = whole[at + 32 : at + 32 + size]
    key = b"k" * 64
    changed = whole[: at + 16] + (64).to_bytes(4, "little") + b"\1" + bytes(11) + key
    changed += whole[at + 32 + -(-size // 16) * 16 :]
    file = pte_file([Calls([], [], [], [], [0], [("EthosUBackend", 0)])], [changed])
    data = read_named_data([("d.ptd", ptd_file({key.decode(): weights}))])
    outside = read_program(file, "p", data)
    blocks = read_blocks(outside.methods[0].delegates[0], outside.named_data, "x")
    assert blocks.constants.tobytes() == weights
    assert blocks.external == ("weight_data",)
    with pytest.raises(NetworkError, match=r"its weight_data is external, .* give the \.ptd file too"):
        read_blocks(outside.methods[0].delegates[0], {}, "x")


def test_files_are_recognised_by_their_bytes() -> None:
    assert is_program(two_methods())
    assert is_program(bundle(two_methods()))
    assert not is_program(b"\0\0\0\0TFL3")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\0\0\0\0TFL3", "x is not an ExecuTorch program: bytes 4 to 8 must be ET12"),
        (two_methods()[:200], r"x is a damaged or truncated \.pte file \(200 bytes\)"),
        (pte_file([]), "it has no method"),
        (bundle(b"1234TFL3" + bytes(40)), "the bundled program begins with b'TFL3'"),
        (pte_file([Calls([7], [1], [], [], [0])]), "a list names value 1; there are 1"),
        (pte_file([Calls([], [], [], [("delegate", 0, [])], [0])]), "calls delegate 0; there are 0"),
        (pte_file([Calls([7], [], [], [(4, 0, 9)], [0])]), "jumps to instruction 9; there are 1"),
        (pte_file([Calls([Tensor("int8", (2, -1))], [], [], [], [0])]), r"a tensor has the shape \[2, -1\]"),
        (pte_file([Calls([Tensor("int8", (9,), constant=1)], [], [], [], [0])], constants=[b"ab"]), "at byte 9 of 2"),
    ],
)
def test_what_cannot_be_read_is_reported(data: bytes, text: str) -> None:
    with pytest.raises(NetworkError, match=text):
        read_program(data, "x")


@pytest.mark.parametrize("whole", [two_methods(), bundle(two_methods(inline=True))], ids=["segments", "bundle"])
def test_every_damaged_byte_is_read_or_refused(whole: bytes) -> None:
    refused = 0
    for place in range(len(whole)):
        for value in (0, 0x7F, 0xFF):
            data = bytearray(whole)
            data[place] = value
            try:
                read_program(bytes(data), "x")
            except NpuMemplanError:
                refused += 1
    assert refused > len(whole) // 8
