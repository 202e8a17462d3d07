"""The door of `.tflite`: nothing outside of the file is followed, and no value that no model has goes further."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tflite

from npu_memplan.errors import NpuMemplanError
from npu_memplan.exactness import EXACT, Code
from npu_memplan.frontend.host_ops.operator import lower_operator
from npu_memplan.frontend.tflite.lifted import import_host_only
from npu_memplan.frontend.tflite.lowered import build_module
from npu_memplan.models.flatbuffer import FlatbufferError, NetworkError, verify_flatbuffer
from npu_memplan.models.network import Network
from npu_memplan.models.tensor import Tensor
from npu_memplan.models.tflite import read_network
from tests.support.operator_table import row
from tests.support.single_operators import all_cases
from tests.support.tflite_builder import ModelBuilder, TensorSpec, constant, single_operator

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"


def dense(**weights: object) -> ModelBuilder:
    x = TensorSpec((1, 4), "int8", 0.5, 3)
    w = constant(np.ones((8, 4)), "int8", **({"scale": 0.25} | weights))
    bias = constant(np.zeros(8), "int32", 0.125)
    y = TensorSpec((1, 8), "int8", 1.0)
    return single_operator("FULLY_CONNECTED", [x, w, bias], [y], "FullyConnectedOptions")


def with_tensor(index: int, **values: object) -> Callable[[ModelBuilder], None]:
    def change(b: ModelBuilder) -> None:
        for name, value in values.items():
            object.__setattr__(b.tensors[index], name, value)

    return change


def with_operator(place: int, value: object) -> Callable[[ModelBuilder], None]:
    def change(b: ModelBuilder) -> None:
        parts = list(b.operators[0])
        parts[place] = value
        b.operators[0] = tuple(parts)  # type: ignore[assignment]

    return change


def test_a_tensor_that_nobody_reads_may_be_anything() -> None:
    b = ModelBuilder()
    x, y = b.tensor((1, 4), "int8", 0.5), b.tensor((1, 4), "int8", 0.5)
    b.operator("RELU", [x], [y])
    b.tensor((2, 3), "int8", [-1.0, float("nan")], 300)
    b.constant(np.zeros(3, np.int8), float("inf"))
    b.tensors[-1] = replace(b.tensors[-1], shape=(1 << 20, -4))
    network = read_network(b.made([x], [y]).finish())
    assert [t.index for t in network.tensors] == [0, 1, 2, 3]
    assert not network.tensors[3].size_bytes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_tensor(0, shape=(1, -4)), r"tensor 0 't0' has shape \[1, -4\]; extents are not negative"),
        (with_tensor(0, shape=(1 << 20, 1 << 20)), "1099511627776 bytes; at most 2147483648 are possible"),
        (with_tensor(0, scale=float("nan")), "tensor 0 't0' has scale nan; scales are finite and positive"),
        (with_tensor(3, scale=float("inf")), "has scale inf"),
        (with_tensor(1, scale=-1.0), "has scale -1.0"),
        (with_tensor(0, zero_point=200), r"type int8 has zero point 200; it must be in -128..127"),
        (with_tensor(1, scale=[0.5] * 5), r"tensor 1 't1' has 5 scales for dimension 0 of \[8, 4\]"),
        (with_tensor(1, shape=(8, 5)), r"tensor 1 't1' has 32 constant bytes; int8\[8, 5\] needs 40"),
        (with_operator(1, [0, 9]), "tensor 9 does not exist, there are 4"),
        (with_operator(2, [-1]), r"operator 0 FULLY_CONNECTED has outputs \[-1\]; none can be left out"),
        (with_operator(2, [1]), "operator 0 FULLY_CONNECTED writes tensor 1, which is a constant"),
        (with_operator(2, [0]), "operator 0 FULLY_CONNECTED writes tensor 0, which is a constant, an input or made"),
        (lambda b: b.made([0, 0], [3]), r"its inputs are \[0, 0\]: one stands there twice"),
        (lambda b: b.made([0], []), r"its inputs are \[0\] and its outputs \[\]"),
        (lambda b: b.made([0], [-1]), r"its outputs \[-1\]"),
    ],
)
def test_a_value_is_named_with_its_tensor(change: Callable[[ModelBuilder], None], message: str) -> None:
    builder = dense()
    change(builder)
    with pytest.raises(NetworkError, match=message):
        read_network(builder.finish(), "m")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_operator(1, []), "FULLY_CONNECTED has 0 inputs; it takes 2 to 3"),
        (with_operator(2, []), "FULLY_CONNECTED has 0 outputs; it takes 1"),
        (with_operator(3, "SVDFOptions"), "has SVDFOptions; it takes FullyConnectedOptions"),
        (with_operator(3, None), "has no FullyConnectedOptions, which it cannot be without"),
        (with_tensor(0, shape=(1, 3)), r"its input \[1, 3\] is not cut into rows of 4"),
        (with_tensor(2, shape=(4,)), r"its bias, tensor 2, is \[4\], not \[8\]"),
        (with_tensor(3, scale=None), r"tensor 3 't3' int8\[1, 8\] without a scale beside tensor 0"),
    ],
)
def test_what_contradicts_itself_is_refused_by_both_producers(
    change: Callable[[ModelBuilder], None], message: str
) -> None:
    builder = dense()
    change(builder)
    model = builder.finish()
    with pytest.raises(NetworkError, match=message):
        import_host_only(model, "m")
    with pytest.raises(NetworkError, match=message):
        build_module(model, name="m")


def test_padded_constants() -> None:
    builder = dense()
    object.__setattr__(builder.tensors[1], "data", np.ones(64, np.int8))
    model = builder.finish()
    assert read_network(model, "m").tensors[1].array().shape == (8, 4)
    assert "npu.operator_agents" in build_module(model, name="m").module["main"].attrs


def test_every_word_of_a_model_may_be_any_number() -> None:
    model = dense().finish()
    refused = 0
    for at in range(0, len(model) - 3, 4):
        for value in (0, 1, 0x7FFFFFFF, 0xFFFFFFFF, len(model) - at):
            damaged = model[:at] + struct.pack("<I", value) + model[at + 4 :]
            try:
                read_network(damaged, "m")
            except NetworkError:
                refused += 1
    assert refused > len(model) / 2


@pytest.mark.parametrize("length", [0, 4, 8, 30, 1000, 20_000])
def test_a_part_of_a_model_is_none(length: int) -> None:
    with pytest.raises(FlatbufferError):
        verify_flatbuffer(EXAMPLE.read_bytes()[:length])


@pytest.mark.parametrize(("option", "value"), [("StrideH", -2), ("StrideW", 1 << 26), ("FilterWidth", 0)])
def test_a_window_that_cannot_be_is_refused_at_the_door(option: str, value: int) -> None:
    x, y = TensorSpec((1, 4, 4, 8), "int8", 0.5), TensorSpec((1, 2, 2, 8), "int8", 0.5)
    sound = {"Padding": tflite.Padding.VALID, "StrideH": 2, "StrideW": 2, "FilterHeight": 2, "FilterWidth": 2}
    b = single_operator("MAX_POOL_2D", [x], [y], "Pool2DOptions", **(sound | {option: value}))
    with pytest.raises(NetworkError, match=rf"operator 0 MAX_POOL_2D has {option} {value}; it must be in 1..65536"):
        read_network(b.finish(), "m")


# -- Operators whose tensors contradict each other are refused by name: nothing that nobody expects is raised


CASES = 4000
_DTYPES = ("int8", "uint8", "int16", "int32", "int64", "float32", "bool")


def drawn_shape(shape: tuple[int, ...], rng: random.Random) -> tuple[int, ...]:
    found, kind = list(shape), rng.randrange(5)
    if kind == 0 and found:
        del found[rng.randrange(len(found))]
    elif kind == 1:
        found.insert(rng.randrange(len(found) + 1), rng.choice((0, 1, 2, 5)))
    elif kind == 2 and found:
        found[rng.randrange(len(found))] = rng.choice((0, 1, 2, 3, 7, 300))
    elif kind == 3:
        rng.shuffle(found)
    else:
        found = [rng.choice((0, 1, 2, 3, 5)) for _ in range(rng.randrange(6))]
    return tuple(found)


def damaged(tensor: Tensor, rng: random.Random) -> Tensor:
    kind = rng.randrange(4)
    if kind < 2:
        changed = replace(tensor, shape=drawn_shape(tensor.shape, rng))
        if tensor.data is None:
            return changed
        return replace(changed, data=np.resize(np.append(tensor.data, np.uint8(1)), changed.size_bytes))
    if kind == 2 and tensor.data is None:
        return replace(tensor, dtype=rng.choice(_DTYPES))
    if kind == 2 and tensor.data is not None and tensor.data.size:
        data = tensor.data.copy()
        data[rng.randrange(data.size)] = rng.randrange(256)
        return replace(tensor, data=data)
    return replace(tensor, scales=rng.choice([(), tensor.scales[:1] * 3]))


def networks() -> list[Network]:
    models = [case.build() for case in list(all_cases())[::3]]
    models += [row(kind, dtype).build() for dtype in EXACT[Code.HOST] for kind in sorted(EXACT[Code.HOST][dtype])]
    return [read_network(model, "m") for model in models]


def test_what_contradicts_itself_is_refused_with_a_reason() -> None:
    rng, known, outcomes = random.Random(5), networks(), {True: 0, False: 0}
    for _ in range(CASES):
        network = rng.choice(known)
        tensors = list(network.tensors)
        for _ in range(rng.choice((1, 1, 2))):
            index = rng.randrange(len(tensors))
            tensors[index] = damaged(tensors[index], rng)
        network = replace(network, tensors=tuple(tensors))
        for operator in network.cpu_operators:
            try:
                lower_operator(network, operator)  # strict: an InternalError for what it does not name
            except NpuMemplanError:
                outcomes[False] += 1
            else:
                outcomes[True] += 1
    assert min(outcomes.values()) > CASES / 10
