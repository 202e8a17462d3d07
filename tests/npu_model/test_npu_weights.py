"""Weight streams: decoding and order, against Vela's encoder, over shapes, blocks and traversals."""

from __future__ import annotations

import random
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fvp_runner.npu_model.arithmetic.weights import ScaleTable, WeightOrder, decode_mlw
from fvp_runner.npu_model.errors import WeightStreamError, WeightStreamLongError, WeightStreamShortError
from npu_memplan.ethosu import weight_codec
from npu_memplan.ethosu.arch import ACCELERATORS, accelerator
from npu_memplan.ethosu.weight_codec import (
    about_encoded_bytes,
    decode_weights,
    encode_scales,
    encode_stream,
    encode_weights,
)


def values(shape: tuple[int, ...], kind: str, seed: int) -> np.ndarray:
    """Weights of various statistics, so that all modes of the coding occur."""
    rng = np.random.default_rng(seed)
    if kind == "wide":
        return rng.integers(-255, 256, shape)
    if kind == "narrow":
        return rng.integers(-2, 3, shape)
    if kind == "sparse":
        return rng.integers(-127, 128, shape) * (rng.random(shape) < 0.07)
    if kind == "few":
        return rng.choice([-100, 3, 77], shape)
    if kind == "constant":
        return np.full(shape, 5)
    return rng.normal(0, 20, shape).astype(np.int64).clip(-127, 127)


KINDS = ["wide", "narrow", "sparse", "few", "constant", "normal"]


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(["ethos-u55-32", "ethos-u55-256", "ethos-u65-256"]),
    kernel=st.tuples(st.integers(1, 11), st.integers(1, 11)),
    dilation=st.tuples(st.sampled_from([1, 2]), st.sampled_from([1, 2])),
    depths=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    block=st.sampled_from([8, 16, 24, 40]),
    part_kernel=st.booleans(),
    depthwise=st.booleans(),
    bits=st.sampled_from([8, 16]),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 1000),
)
def test_what_vela_encodes_is_decoded_into_place(
    name: str,
    kernel: tuple[int, int],
    dilation: tuple[int, int],
    depths: tuple[int, int],
    block: int,
    part_kernel: bool,
    depthwise: bool,
    bits: int,
    kind: str,
    seed: int,
) -> None:
    target = accelerator(name)
    inputs = 1 if depthwise else depths[0]
    weights = values((depths[1], *kernel, inputs), kind, seed)
    stream = encode_weights(
        weights,
        target,
        block_depth=block,
        depthwise=depthwise,
        part_kernel_first=part_kernel,
        ifm_bits=bits,
        dilation_xy=(dilation[1], dilation[0]),
    )
    order = WeightOrder(
        *kernel, *dilation, inputs, depths[1], block, bits, part_kernel, depthwise, target.ofm_micro.depth,
        16 if part_kernel or bits == 16 else 32,
    )  # fmt: skip
    assert np.array_equal(order.arrange_weights([decode_mlw(stream)], "test"), weights.transpose(1, 2, 3, 0))


@pytest.mark.parametrize("kind", KINDS)
def test_the_codec_in_c_gives_what_its_python_form_gives(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ordered = values((3000,), kind, 1).astype(np.int16)
    stream = encode_stream(ordered)
    assert weight_codec._functions() is not None
    monkeypatch.setattr(weight_codec, "_functions", lambda: None)
    assert encode_stream(ordered) == stream
    assert np.array_equal(decode_weights(stream), ordered)


def test_a_guess_of_the_encoded_bytes_takes_little_memory() -> None:
    weights = values((1024, 1, 1, 1024), "normal", 0).astype(np.int16)
    tracemalloc.start()
    guess = about_encoded_bytes(weights)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    made = encode_weights(
        weights, accelerator("ethos-u55-256"), block_depth=64, depthwise=False, part_kernel_first=False
    )
    assert abs(guess - len(made)) < len(made) // 20
    assert peak < weights.nbytes


def test_a_stream_that_is_cut_off() -> None:
    stream = encode_weights(
        values((64, 3, 3, 8), "wide", 1),
        ACCELERATORS["ethos-u55-256"],
        block_depth=64,
        depthwise=False,
        part_kernel_first=False,
    )
    with pytest.raises(WeightStreamShortError, match="ends inside a slice"):
        decode_mlw(stream[: len(stream) // 2])
    with pytest.raises(WeightStreamShortError):
        decode_mlw(stream[:4])
    assert len(decode_mlw(b"")) == 0


def test_random_bytes_never_do_anything_but_decode_or_raise() -> None:
    chance = random.Random(5)
    outcomes = set()
    for _ in range(1500):
        data = chance.randbytes(chance.choice((1, 7, 16, 64, 400)))
        try:
            assert np.abs(decode_mlw(data)).max(initial=0) <= 512
            outcomes.add("decoded")
        except WeightStreamError as error:
            outcomes.add(type(error).__name__)
    assert {"WeightStreamError", "WeightStreamShortError"} <= outcomes


def test_padding_that_is_not_zero_is_noticed() -> None:
    order = WeightOrder(1, 1, 1, 1, 3, 5, 8, 8, False, False, 8, 32)
    stream = np.zeros(order.weight_count, np.int16)
    assert not order.arrange_weights([stream], "test").any()
    stream[7] = 1  # input channel 7 of 3
    with pytest.raises(WeightStreamError, match="1 weights that stand outside the kernel are not zero"):
        order.arrange_weights([stream], "test")
    with pytest.raises(WeightStreamLongError):
        order.arrange_weights([np.zeros(order.weight_count + 1, np.int16)], "test")
    with pytest.raises(WeightStreamShortError):
        order.arrange_weights([np.zeros(order.weight_count - 1, np.int16)], "test")


@given(
    st.lists(
        st.tuples(st.integers(-(1 << 39), (1 << 39) - 1), st.integers(0, (1 << 32) - 1), st.integers(0, 63)),
        min_size=1,
        max_size=20,
    )
)
def test_scale_tables_are_read_back(channels: list[tuple[int, int, int]]) -> None:
    biases, scales, shifts = zip(*channels, strict=True)
    table = ScaleTable.parse_records(
        np.frombuffer(encode_scales(biases, scales, shifts), np.uint8), len(channels), "test"
    )
    assert table.bias.tolist() == list(biases)
    assert table.scale.tolist() == list(scales)
    assert table.shift.tolist() == list(shifts)


def test_tables_of_two_cores_interleave() -> None:
    def part(values: list[int]) -> ScaleTable:
        array = np.array(values, np.int64)
        return ScaleTable(array, array + 100, array + 200)

    merged = ScaleTable.interleave_cores([part([0, 2, 4]), part([1, 3])])
    assert merged.bias.tolist() == [0, 1, 2, 3, 4]
    assert merged.shift.tolist() == [200, 201, 202, 203, 204]
