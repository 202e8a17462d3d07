"""Weights in Ethos-U85's order: what the NPU model reads back, and what Vela writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fvp_runner.npu_model.arithmetic.weights import StreamOrder, decode_fast, decode_mlw
from fvp_runner.npu_model.spec.feature_maps import Registers
from fvp_runner.npu_model.spec.u85 import read_sum
from npu_memplan.ethosu.arch import Architecture, accelerator
from npu_memplan.ethosu.arch.configurations import ETHOS_U85
from npu_memplan.ethosu.stream.decode import Operation, decode
from npu_memplan.ethosu.stream.isa import Op
from npu_memplan.ethosu.weight_codec import encode_ordered
from npu_memplan.ethosu.weight_order import WeightArrangement, is_sparse, streams
from npu_memplan.models.tflite import read_network
from npu_memplan.vela.compiler import VelaOptions, compile_tflite
from tests.npu_model.test_npu_weights import KINDS, values
from tests.support.real_data import REPOSITORY

# what a header holds, and where; weights of a palette have nine bits, the sign in the lowest
_HEADER_BYTES, _OFFSET_BIT, _PALETTE_BIT, _PALETTE, _FEW = 32, 104, 112, 16, 4


def encode_fast(weights: NDArray[Any], target: Architecture, order: WeightArrangement) -> bytes:
    """One stream of weights [O, H, W, I] for all cores; not of depthwise kernels."""
    ordered = streams(np.ascontiguousarray(weights, np.int16), order, target)
    rows = [values.reshape(-1, order.in_a_row // target.cores) for values in ordered]
    return _encode_fast(np.stack(rows, axis=1).reshape(-1))


def _encode_fast(values: NDArray[np.int16]) -> bytes:
    """A header of 32 bytes, then codes of 2 or 4 bits into a palette, or values of 8 bits less a zero point."""
    palette = np.unique(values)
    if len(palette) > _PALETTE:
        offset = -128 - int(palette[0])
        if int(palette[-1]) + offset > 127:
            raise ValueError(f"weights from {palette[0]} to {palette[-1]} do not fit the fast format's 8 bits")
        body = (values + offset).astype(np.int8).tobytes()
        header = 1 | (offset & 0xFF) << _OFFSET_BIT
    else:
        small = len(palette) <= _FEW
        width = 2 if small else 4
        codes = np.searchsorted(palette, values).astype(np.uint8)
        codes = np.append(codes, np.zeros(-len(codes) % (8 // width), np.uint8)).reshape(-1, 8 // width)
        shifts = np.arange(8 // width, dtype=np.uint8) * width
        body = np.bitwise_or.reduce(codes << shifts, axis=1).astype(np.uint8).tobytes()
        header = small << 1
        for place, value in enumerate(palette.tolist()):
            header |= (abs(value) << 1 | (value < 0)) << (_PALETTE_BIT + 9 * place)
    return header.to_bytes(_HEADER_BYTES, "little") + body + bytes(-len(body) % 16)


NPUS = [a.name for a in ETHOS_U85]


def unpacked(stream: bytes, order: StreamOrder) -> list[np.ndarray[Any, Any]]:
    """The weights of each core in a stream of the fast format."""
    whole = decode_fast(stream, order.weight_count * order.cores).reshape(-1, order.cores, order.interleaved_count)
    return [np.ascontiguousarray(whole[:, core]).reshape(-1) for core in range(order.cores)]


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(NPUS),
    micro=st.integers(0, 2),
    kernel=st.tuples(st.integers(1, 11), st.integers(1, 11)),
    dilation=st.tuples(st.sampled_from([1, 2]), st.sampled_from([1, 2])),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    depths=st.tuples(st.integers(1, 150), st.integers(1, 70)),
    block=st.sampled_from([8, 16, 32, 48, 80]),
    order=st.sampled_from(["depth first", "part kernel", "depthwise"]),
    sparse=st.booleans(),
    bits=st.sampled_from([8, 16]),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 1000),
)
def test_weights_are_read_back_in_their_places(
    name: str,
    micro: int,
    kernel: tuple[int, int],
    dilation: tuple[int, int],
    stride: tuple[int, int],
    depths: tuple[int, int],
    block: int,
    order: str,
    sparse: bool,
    bits: int,
    kind: str,
    seed: int,
) -> None:
    target = accelerator(name)
    depth = target.micro_blocks[micro % len(target.micro_blocks)].depth
    depthwise, part = order == "depthwise", order == "part kernel"
    sparse = sparse and not depthwise
    deep = 128 if sparse and bits == 8 else 64
    slice_depth = 16 if part else 32 if target.cores == 1 and depth == 16 and not sparse else deep
    weights = values((depths[1], *kernel, 1 if depthwise else depths[0]), kind, seed)
    if sparse:
        weights[..., 1::2] = 0
        assert is_sparse(weights)
    block = max(block, depth)
    how = WeightArrangement(block, depth, slice_depth, bits, depthwise, part, sparse, stride, dilation)
    encoded = encode_ordered(weights, target, how)
    assert len(encoded) == target.cores
    assert all(len(stream) % 16 == 0 for stream in encoded)
    read = StreamOrder(
        *kernel, *dilation, weights.shape[3], depths[1], block, bits, part, depthwise, depth, slice_depth,
        cores=target.cores, stride_y=stride[0], stride_x=stride[1], sparse=sparse, macs=target.macs,
    )  # fmt: skip
    found = read.arrange_weights([decode_mlw(stream) for stream in encoded], "test")
    assert np.array_equal(found, weights.transpose(1, 2, 3, 0))
    if not depthwise and np.ptp(weights) <= 255:
        fast = encode_fast(weights, target, how)
        assert np.array_equal(read.arrange_weights(unpacked(fast, read), "test"), found)


@pytest.mark.parametrize("npu", ["ethos-u85-128", "ethos-u85-256", "ethos-u85-512", "ethos-u85-2048"])
@pytest.mark.parametrize("name", ["pretrainedResnet_quant", "kws_ref_model"])
def test_weights_stand_where_vela_puts_them(name: str, npu: str) -> None:
    """Each stream holds the values of Vela's, fillings included. Its bytes differ: the compressor in Vela's core cuts
    sections elsewhere than the one in its Python package, which ours are made with.
    """
    path = REPOSITORY / "tests" / "models" / f"{name}.tflite"
    options = VelaOptions(npu, memory_mode="Sram_Only", system_config="Ethos_U85_SYS_DRAM_Mid")
    network = read_network(compile_tflite(path.read_bytes(), options, name).network, name)
    (call,) = network.npu_calls
    ours = velas = count = 0
    for index, operation in enumerate(decode(call.words, call.accelerator.language)):
        if not isinstance(operation, Operation) or operation.op not in (Op.CONV, Op.DEPTHWISE):
            continue
        spec = read_sum(Registers(operation, index), call.accelerator)
        (order,) = spec.orders
        written = [call.read_only[s.start : s.start + s.length].tobytes() for s in spec.weights]
        assert all(s.region == 0 for s in spec.weights)
        decoded = unpacked(written[0], order) if spec.fast else [decode_mlw(stream) for stream in written]
        weights = np.ascontiguousarray(order.arrange_weights(decoded, "test").transpose(3, 0, 1, 2))
        how = WeightArrangement(
            order.block_depth, order.micro_depth, order.slice_depth, order.ifm_bits, order.depthwise,
            order.part_kernel_first, order.sparse, (order.stride_y, order.stride_x),
            (order.dilation_y, order.dilation_x),
        )  # fmt: skip
        for mine, theirs in zip(streams(weights, how, call.accelerator), decoded, strict=True):
            assert np.array_equal(mine, theirs)
        target = call.accelerator
        made = (encode_fast(weights, target, how),) if spec.fast else encode_ordered(weights, target, how)
        ours += sum(map(len, made))
        velas += sum(map(len, written))
        count += 1
    assert count > 8
    assert ours < 1.02 * velas
