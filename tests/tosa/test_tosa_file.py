"""TOSA files: what a reader finds, what users are told, damage. The files are made here, byte by byte."""

from __future__ import annotations

import pytest

from npu_memplan.errors import NpuMemplanError
from npu_memplan.models.flatbuffer import NetworkError, UnsupportedModelError
from npu_memplan.models.tosa import OPERATORS, is_tosa, read_tosa
from npu_memplan.vela.compiler import VelaOptions, compile_tosa
from tests.support.tosa_file import tosa_file


def test_a_graph_is_its_tensors_operators_inputs_and_outputs() -> None:
    network = read_tosa(tosa_file(), "two")
    assert [(t.name, t.dtype, t.shape) for t in network.tensors] == [
        ("a", "int32", (2, 3)), ("b", "int32", (2, 3)), ("c", "int32", (2, 3))
    ]  # fmt: skip
    assert [(o.name, o.inputs, o.outputs) for o in network.cpu_operators] == [("ADD", (0, 1), (2,))]
    assert (network.inputs, network.outputs, network.name) == ((0, 1), (2,), "two")


def test_files_are_recognised_by_their_bytes() -> None:
    assert is_tosa(tosa_file())
    assert not is_tosa(b"\0\0\0\0TFL3")


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (b"\0\0\0\0TFL3", NetworkError, r"x is not a TOSA file: bytes 4 to 8 must be TOSA, but are b'TFL3'"),
        (tosa_file(operator=200), UnsupportedModelError, r"operator 0 has the code 200; TOSA 1.0 ends at 75"),
        (tosa_file(dtype=9), UnsupportedModelError, r"tensor 'a' is of TOSA type 9; integers of 4 to 64 bits"),
        (tosa_file(inputs=("a", "z")), NetworkError, r"the graph's inputs names 'z', which is no tensor"),
        (tosa_file()[:60], NetworkError, r"x is a damaged or truncated TOSA file \(60 bytes\)"),
    ],
)
def test_what_cannot_be_read_is_reported(data: bytes, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        read_tosa(data, "x")


def test_every_damaged_byte_is_read_or_refused() -> None:
    whole = tosa_file()
    refused = 0
    for place in range(len(whole)):
        for value in (0, 0x7F, 0xFF):
            data = bytearray(whole)
            data[place] = value
            try:
                read_tosa(bytes(data), "x")
            except NpuMemplanError:
                refused += 1
    assert refused > len(whole) // 4


def test_the_operators_are_numbered_as_in_the_schema() -> None:
    numbers = {name: place for place, name in enumerate(OPERATORS, 1)}
    assert (numbers["ARGMAX"], numbers["ADD"], numbers["CONST"], numbers["CONST_SHAPE"]) == (1, 15, 67, 75)


def test_vela_compiles_it_with_the_files_names_and_types() -> None:
    compiled = compile_tosa(tosa_file(), VelaOptions("ethos-u85-256"), "two")
    (call,) = compiled.parsed.npu_calls
    assert call.accelerator.name == "ethos-u85-256"
    tensors = [compiled.parsed.tensors[i] for i in (*compiled.parsed.inputs, *compiled.parsed.outputs)]
    assert [(t.name, t.dtype, t.shape) for t in tensors] == [(n, "int32", (2, 3)) for n in "abc"]


def test_what_vela_refuses_is_its_words() -> None:
    # float32 is no type of the integer profile
    with pytest.raises(NpuMemplanError, match="Vela's compiled core"):
        compile_tosa(tosa_file(dtype=7), VelaOptions("ethos-u85-256"), "two")
