"""Containers and network files: round trips, and typed errors for every kind of damage."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_memplan.errors import NpuMemplanError
from npu_memplan.ethosu.arch import ACCELERATORS, AcceleratorError, accelerator, accelerator_of_config
from npu_memplan.ethosu.stream.encode import ContainerError, ContainerFormat, Payload, build_payload, parse_payload
from npu_memplan.models.flatbuffer import NetworkError
from npu_memplan.models.network import CpuOperator, Network
from npu_memplan.models.tflite import read_network
from npu_memplan.models.vela import NpuCall
from tests.support.real_data import Models
from tests.support.tflite_builder import ModelBuilder

_payloads = st.builds(
    Payload,
    st.sampled_from(list(ACCELERATORS.values())),
    st.lists(st.integers(0, 0xFFFFFFFF), min_size=1, max_size=50).map(tuple),
    st.sampled_from((0x10066001, 0x10060000)),
)


@given(_payloads)
def test_cop1_round_trip_and_alignment(payload: Payload) -> None:
    data = build_payload(payload)
    assert parse_payload(data) == payload
    assert data[:4] == b"COP1"
    assert data.endswith(np.asarray(payload.words, "<u4").tobytes())
    assert (len(data) - 4 * len(payload.words)) % 16 == 0


@given(_payloads, st.integers(0, 1 << 20))
def test_cop2_round_trip(payload: Payload, scratch: int) -> None:
    payload = Payload(payload.accelerator, payload.words, payload.architecture_id, 0x10, ContainerFormat.COP2, scratch)
    assert parse_payload(build_payload(payload)) == payload


def test_long_streams_use_the_reserved_bits_of_the_length() -> None:
    payload = Payload(accelerator("ethos-u55-256"), (0,) * 70000)
    assert parse_payload(build_payload(payload)).words == payload.words


def test_both_compilers_payloads_are_rebuilt_byte_for_byte(compiled_bytes: Callable[..., bytes]) -> None:
    import tflite

    for core in ("regor", "legacy"):
        model = tflite.Model.GetRootAsModel(compiled_bytes("digits", core=core), 0)
        operator = model.Subgraphs(0).Operators(0)
        tensor = model.Subgraphs(0).Tensors(operator.Inputs(0))
        data = model.Buffers(tensor.Buffer()).DataAsNumpy().tobytes()
        rebuilt = build_payload(parse_payload(data))
        assert data.startswith(rebuilt)
        assert not any(data[len(rebuilt) :])


@given(_payloads, st.data())
@settings(max_examples=100)
def test_damaged_payloads_are_typed_errors(payload: Payload, data: Any) -> None:
    raw = bytearray(build_payload(payload))
    if data.draw(st.booleans()):
        raw = raw[: data.draw(st.integers(0, len(raw) - 1))]
    else:
        raw[data.draw(st.integers(0, min(31, len(raw) - 1)))] ^= data.draw(st.integers(1, 255))
    try:
        parse_payload(bytes(raw))
    except NpuMemplanError as error:
        assert isinstance(error, ContainerError | AcceleratorError)  # noqa: PT017


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((0x31504F44, 0, 0, 0), "must begin with COP1 or COP2"),
        ((0x31504F43, 5, 5, 5), "has no command stream"),
        ((0x31504F43, 5, 5, 2 | 9 << 16), "comes before the configuration"),
        ((0x31504F43, 1, 0x3008, 0, 2 | 9 << 16), r"says 9 words, but the payload has 0 left"),
        ((0x31504F43, 5, 5, 1), "the configuration at offset 0xc is cut off"),
        ((0x31504F43, 5, 5, 77), "unknown driver action 77 at offset 0xc"),
        ((0x31504F43, 1, 0x2000300F, 0, 2), "is no Ethos-U55, U65 or U85"),
        ((0x32504F43,) + (0,) * 20, "COP2: version 0"),
    ],
)
def test_payload_faults_are_named(words: tuple[int, ...], message: str) -> None:
    with pytest.raises(NpuMemplanError, match=message):
        parse_payload(np.asarray(words, "<u4").tobytes())


@pytest.mark.parametrize("name", list(ACCELERATORS))
def test_configuration_words_name_their_accelerator(name: str) -> None:
    assert accelerator_of_config(accelerator(name).config_word).name == name


def test_a_compiled_network(compiled: Callable[..., Network]) -> None:
    net = compiled("digits")
    (call,) = net.npu_calls
    assert isinstance(call, NpuCall)
    assert call.accelerator.name == "ethos-u55-256"
    assert call.input_addresses == ((1, net.tensors[net.inputs[0]].arena_offset),)
    assert call.scratch_fast_bytes == 0
    assert 0 < call.scratch_bytes < 1 << 20
    assert call.read_only.nbytes > 0


def test_a_fast_memory_counts_only_where_the_stream_uses_it(compiled: Callable[..., Network]) -> None:
    for core in ("regor", "legacy"):
        shared = compiled("kws_ref_model", accelerator="ethos-u65-256", memory_mode="Shared_Sram", core=core)
        spilled = compiled("kws_ref_model", accelerator="ethos-u65-256", memory_mode="Dedicated_Sram", core=core)
        assert shared.npu_calls[0].scratch_fast_bytes == 0
        assert spilled.npu_calls[0].scratch_fast_bytes > spilled.npu_calls[0].scratch_bytes


def test_an_uncompiled_model_is_all_cpu_operators(shared_model: Models) -> None:

    net = read_network(shared_model("kws_ref_model").read_bytes())
    assert [o.name for o in net.cpu_operators][-3:] == ["RESHAPE", "FULLY_CONNECTED", "SOFTMAX"]
    softmax = net.operators[-1]
    assert isinstance(softmax, CpuOperator)
    options = softmax.options("SoftmaxOptions")
    assert options is not None
    assert options.Beta() == 1.0
    assert net.npu_calls == ()
    weights = net.tensors[net.operators[0].inputs[1]]
    assert weights.array().shape == weights.shape
    assert len(weights.scales) == 64


def test_states_are_variable_tensors_that_something_reads(compiled: Callable[..., Network]) -> None:
    net = compiled("trained_lstm_int8")
    assert [net.tensors[i].dtype for i in net.states] == ["int8", "int16"]


def test_raw_networks_read_like_tflite(tmp_path: Path, compiled: Callable[..., Network]) -> None:
    net = compiled("digits")
    call = net.npu_calls[0]
    inputs = [net.tensors[i] for i in call.inputs]
    outputs = [net.tensors[i] for i in call.outputs]
    file = io.BytesIO()
    np.savez(
        file,
        cmd_data=np.bytes_(build_payload(call.payload)),
        weight_data=np.bytes_(call.read_only.tobytes() + b"\1"),  # numpy drops trailing zeros of bytes
        scratch_size=call.scratch_bytes,
        scratch_fast_size=0,
        **{
            f"{kind}_{field}": [value(t) for t in tensors]
            for kind, tensors in (("input", inputs), ("output", outputs), ("variable", []))
            for field, value in (
                ("shape", lambda t: t.shape),
                ("elem_size", lambda t: np.dtype(t.dtype).itemsize),
                ("region", lambda t: 1),
                ("offset", lambda t: t.arena_offset),
            )
        },
    )
    raw = read_network(file.getvalue(), "digits.npz")
    assert raw.npu_calls[0].words == call.words
    assert raw.npu_calls[0].input_addresses == call.input_addresses
    assert [raw.tensors[i].shape for i in raw.outputs] == [t.shape for t in outputs]


def test_a_raw_network_with_parts_missing_is_an_error() -> None:
    file = io.BytesIO()
    np.savez(file, cmd_data=np.bytes_(b"x"))
    with pytest.raises(NpuMemplanError):
        read_network(file.getvalue())
    with pytest.raises(NetworkError, match="is no raw Vela network"):
        read_network(b"PK\x03\x04 not a zip")


def constant_of(values: np.ndarray) -> bytes:
    b = ModelBuilder()
    x, y = b.tensor((1, 5), "int8", 0.5), b.tensor((1, 5), "int8", 0.5)
    c = b.tensor((1, 5), "int8", 0.5, data=values)
    b.operator("ADD", [x, c], [y])
    return b.made([x], [y]).finish()


def test_constants_that_are_too_short_are_named_and_padding_is_left_out() -> None:
    with pytest.raises(NetworkError, match=r"tensor 2 't2' has 4 constant bytes; int8\[1, 5\] needs 5; get the file"):
        read_network(constant_of(np.zeros(4, np.int8)), "m")
    padded = read_network(constant_of(np.arange(7, dtype=np.int8)), "m")
    assert padded.tensors[2].array().tolist() == [[0, 1, 2, 3, 4]]
