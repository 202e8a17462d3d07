"""Which buffers come out of hand-made streams, exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from npu_memplan.ethosu.program.overlap import find_overlaps
from npu_memplan.ethosu.program.program import BufferRole, NpuProgram
from npu_memplan.ethosu.stream.isa import Register
from npu_memplan.models.network import Network
from npu_memplan.models.vela import HeldBytes
from npu_memplan.vela.lift import LiftError, arguments, lift_program
from tests.support.hand_made import conv, dma, elementwise, lut_dma, network, pool, view

S = (4, 4, 16)  # 256 bytes


def _program(net: Network) -> NpuProgram:
    return lift_program(net, net.npu_calls[0])


def _internals(program: NpuProgram) -> list[tuple[str, int, int, int]]:
    """(name, region, address, size) of what is not a parameter."""
    return [
        (b.name, b.original_region, b.original_offset, b.size_bytes) for b in program.buffers if not b.role.is_parameter
    ]


def _conv(source: int, target: int, **more: Any) -> Any:
    return conv(view("IFM", source, S), view("OFM", target, S), depth=16, **more)


def test_buffers_folded_over_each_other_come_out_apart() -> None:
    """0 -> 256 -> 0 -> 256 -> 512: the two uses of 0 and of 256 are four buffers."""
    net = network([_conv(0, 256), _conv(256, 0), _conv(0, 256), _conv(256, 512)], [(S, 0)], [(S, 512)])
    program = _program(net)
    assert [(b.name, b.role, b.shape, b.dtype) for b in program.buffers if b.role.is_parameter] == [
        ("input0", BufferRole.INPUT, S, "int8"),
        ("constants", BufferRole.CONSTANTS, (1024,), "uint8"),
        ("output0", BufferRole.OUTPUT, S, "int8"),
    ]
    assert _internals(program) == [
        ("feature_map0", 1, 256, 256), ("feature_map1", 1, 0, 256), ("feature_map2", 1, 256, 256)]  # fmt: skip
    assert program.live_ranges() == {
        "input0": (0, 0), "constants": (0, 3), "feature_map0": (0, 1), "feature_map1": (1, 2),
        "feature_map2": (2, 3), "output0": (3, 3),
    }  # fmt: skip
    assert {n: moved for n, moved in program.moved_bytes().items() if n != "constants"} == {
        "input0": (256, 0), "feature_map0": (256, 256), "feature_map1": (256, 256), "feature_map2": (256, 256),
        "output0": (0, 256),
    }  # fmt: skip
    assert program.operations[1].addresses[Register.IFM_BASE0] == ("feature_map0", 0)
    assert program.operations[1].addresses[Register.OFM_BASE0] == ("feature_map1", 0)
    assert Register.IFM_BASE1 not in program.operations[1].addresses
    assert not {Register.IFM_REGION, Register.IFM_BASE1, Register.BLOCKDEP} & set(program.operations[1].registers)


def test_parts_that_are_read_together_are_one_buffer() -> None:
    """Two halves of channels are written apart and read as one."""
    wide, half = (4, 4, 32), (4, 4, 16)
    strides = (128, 32, 1)
    net = network(
        [
            conv(view("IFM", 0, S), view("OFM", 1024, half, strides=strides), depth=16),
            conv(view("IFM", 0, S), view("OFM", 1040, half, strides=strides), depth=16),
            conv(view("IFM", 1024, wide), view("OFM", 256, S), depth=32),
        ],
        [(S, 0)],
        [(S, 256)],
    )
    assert _internals(_program(net)) == [("feature_map0", 1, 1024, 512)]


def test_parts_that_interleave_stay_together_though_never_read_together() -> None:
    """Slices of one tensor whose consumers read them apart: separating them would cost memory."""
    strides = (128, 32, 1)
    parts = [view("OFM", 1024 + 16 * i, S, strides=strides) for i in (0, 1)]
    reads = [view("IFM", 1024 + 16 * i, S, strides=strides) for i in (0, 1)]
    net = network(
        [
            conv(view("IFM", 0, S), parts[0], depth=16),
            conv(view("IFM", 0, S), parts[1], depth=16),
            conv(reads[0], view("OFM", 256, S), depth=16),
            conv(reads[1], view("OFM", 512, S), depth=16),
        ],
        [(S, 0)],
        [(S, 256), (S, 512)],
    )
    assert _internals(_program(net)) == [("feature_map0", 1, 1024, 512)]


def test_a_rolling_buffer_is_one_buffer_with_tiles() -> None:
    """Rows 2, 3 wrap to the start: the reader uses two tiles, the writer overwrites rows."""
    row = (1, 4, 16)  # 64 bytes; a ring of two rows at 1024
    rolling_buffer = view("IFM", 0, (2, 4, 16), tiles=(1088, 0, 1024, 0), splits=(1, 2, 4))
    net = network(
        [
            conv(view("IFM", 0, row), view("OFM", 1024, row), depth=16),
            conv(view("IFM", 64, row), view("OFM", 1088, row), depth=16),
            pool(view("IFM", 1024, (2, 4, 16)), view("OFM", 512, row), kernel=(2, 1)),
            conv(view("IFM", 128, row), view("OFM", 1024, row), depth=16),
            pool(rolling_buffer, view("OFM", 576, row), kernel=(2, 1)),
        ],
        [((4, 4, 16), 0)],
        [((2, 4, 16), 512)],
    )
    program = _program(net)
    assert _internals(program) == [("rolling0", 1, 1024, 128)]
    assert program.buffer("rolling0").role is BufferRole.ROLLING
    last = program.operations[4].addresses
    assert (last[Register.IFM_BASE0], last[Register.IFM_BASE2]) == (("rolling0", 64), ("rolling0", 0))
    # One output tensor written in two parts.
    assert program.operations[2].addresses[Register.OFM_BASE0] == ("output0", 0)
    assert program.operations[4].addresses[Register.OFM_BASE0] == ("output0", 64)


def test_weight_buffers_and_tables_are_what_they_are() -> None:
    weights = {"weights": (1, 2048, 64), "scales": (1, 2112, 16)}
    add = elementwise(view("IFM", 256, S), view("OFM", 512, S), view("IFM2", 0, S), lut=1)
    net = network(
        [
            dma((0, 0), (1, 2048), 80),
            _conv(0, 256, **weights),
            dma((0, 80), (1, 2048), 80),
            lut_dma(512, 1),
            _conv(256, 1024, **weights),
            add,
        ],
        [(S, 0)],
        [(S, 512)],
    )
    program = _program(net)
    roles = {b.name: b.role for b in program.buffers if not b.role.is_parameter}
    assert roles == {
        "weights0": BufferRole.WEIGHTS, "feature_map0": BufferRole.FEATURE_MAP, "weights1": BufferRole.WEIGHTS,
        "feature_map1": BufferRole.FEATURE_MAP, "lut0": BufferRole.LUT,
    }  # fmt: skip
    assert program.operations[1].addresses[Register.SCALE_BASE] == ("weights0", 64)
    assert program.operations[0].addresses == {
        Register.DMA0_SRC: ("constants", 0), Register.DMA0_DST: ("weights0", 0)}  # fmt: skip
    assert ("lut0", False) in program.buffers_of(5)
    assert ("lut0", ((0, 256),), True) in program.accesses(3)
    assert ("lut0", ((0, 256),), False) in program.accesses(5)


def test_the_npus_own_memory_is_a_region_of_its_own() -> None:
    copies = [dma((1, 0), (2, 0), 256), dma((2, 256), (1, 256), 256)]
    work = conv(view("IFM", 0, S, region=2), view("OFM", 256, S, region=2), depth=16)
    net = network([copies[0], work, copies[1]], [(S, 0)], [(S, 256)], scratch=512, fast=512)
    assert _internals(_program(net)) == [("feature_map0", 2, 0, 256), ("feature_map1", 2, 256, 256)]


def test_without_a_fast_memory_region_two_is_the_arena() -> None:
    """Both scratch tensors are one: what region 1 wrote, region 2 reads."""
    net = network(
        [_conv(0, 256), conv(view("IFM", 256, S, region=2), view("OFM", 512, S), depth=16)], [(S, 0)], [(S, 512)]
    )
    assert _internals(_program(net)) == [("feature_map0", 1, 256, 256)]


def test_inputs_and_outputs_may_be_regions_of_their_own() -> None:
    """Vela's separate-io-regions: base pointer 3 is the input, 4 the output."""
    work = [
        conv(view("IFM", 0, S, region=3), view("OFM", 0, S), depth=16),
        conv(view("IFM", 0, S), view("OFM", 0, S, region=4), depth=16),
    ]
    net = network(work, [(S, 0)], [(S, 0)])
    call = replace(net.npu_calls[0], input_addresses=((3, 0),), output_addresses=((4, 0),))
    program = lift_program(net, call)
    assert _internals(program) == [("feature_map0", 1, 0, 256)]
    assert program.operations[0].addresses[Register.IFM_BASE0] == ("input0", 0)
    assert program.operations[1].addresses[Register.OFM_BASE0] == ("output0", 0)


def test_a_state_is_one_parameter_with_its_first_and_last_content() -> None:
    add = elementwise(view("IFM", 512, S), view("OFM", 512, S), view("IFM2", 0, S))
    net = network([add, _conv(512, 256)], [(S, 0)], [(S, 256)], states=[(S, 512)])
    program = _program(net)
    assert [(b.name, b.role) for b in program.buffers] == [
        ("input0", BufferRole.INPUT), ("state0", BufferRole.STATE), ("constants", BufferRole.CONSTANTS),
        ("output0", BufferRole.OUTPUT),
    ]  # fmt: skip
    assert program.buffers_of(0) == (("state0", False), ("input0", False), ("state0", True))
    assert find_overlaps(program) == ()  # one buffer: nothing to permit


def test_an_output_that_is_read_later_stays_the_output() -> None:
    net = network([_conv(0, 256), _conv(256, 512)], [(S, 0)], [(S, 256), (S, 512)])
    program = _program(net)
    assert _internals(program) == []
    assert program.operations[1].addresses[Register.IFM_BASE0] == ("output0", 0)


def test_an_input_that_several_operations_use_stays_the_input() -> None:
    net = network([_conv(0, 256), _conv(0, 512)], [(S, 0)], [(S, 256), (S, 512)])
    assert [op.addresses[Register.IFM_BASE0] for op in _program(net).operations] == [("input0", 0)] * 2


def test_two_inputs_read_as_one_are_copied_into_one_buffer() -> None:
    both = conv(view("IFM", 0, (8, 4, 16)), view("OFM", 1024, (8, 4, 16)), depth=16)
    net = network([both], [(S, 0), (S, 256)], [((8, 4, 16), 1024)])
    program = _program(net)
    assert _internals(program) == [("feature_map0", 1, 0, 512)]
    assert [op.addresses for op in program.operations[:2]] == [
        {Register.DMA0_SRC: ("input0", 0), Register.DMA0_DST: ("feature_map0", 0)},
        {Register.DMA0_SRC: ("input1", 0), Register.DMA0_DST: ("feature_map0", 256)},
    ]
    assert program.operations[2].addresses[Register.IFM_BASE0] == ("feature_map0", 0)


def test_a_result_that_is_held_in_part_is_copied_out_of_a_buffer_that_has_all_of_it() -> None:
    """Of the second output, 512 bytes from 384 on, later calls need bytes 512 to 768, which are the first output."""
    net = network([_conv(0, 512)], [(S, 0)], [(S, 512), ((8, 4, 16), 384)])
    held = HeldBytes((), ((512, 768),), updated=False)
    program = lift_program(net, replace(net.npu_calls[0], parts={2: held}))
    assert _internals(program) == [("feature_map0", 1, 384, 512)]
    assert [op.addresses for op in program.operations[1:]] == [
        {Register.DMA0_SRC: ("feature_map0", 0), Register.DMA0_DST: ("output1", 0)},
        {Register.DMA0_SRC: ("feature_map0", 128), Register.DMA0_DST: ("output0", 0)},
    ]


def test_an_input_and_an_output_in_one_web_are_copied_in_and_out() -> None:
    """The output tensor is the second half of a map whose first half is the input."""
    net = network(
        [_conv(0, 256), conv(view("IFM", 0, (8, 4, 16)), view("OFM", 1024, (8, 4, 16)), depth=16)],
        [(S, 0)],
        [(S, 256), ((8, 4, 16), 1024)],
    )
    program = _program(net)
    moves = [op.addresses for op in program.operations if Register.DMA0_SRC in op.addresses]
    assert moves == [
        {Register.DMA0_SRC: ("input0", 0), Register.DMA0_DST: ("feature_map0", 0)},
        {Register.DMA0_SRC: ("feature_map0", 256), Register.DMA0_DST: ("output0", 0)},
    ]


def test_copies_of_odd_sizes_are_refused() -> None:
    odd = (1, 1, 20)
    both = conv(view("IFM", 0, (2, 1, 20)), view("OFM", 1024, (2, 1, 16)), depth=20)
    with pytest.raises(LiftError, match=r"tensor 0 \(20 bytes\) is accessed together with other tensors"):
        _program(network([both], [(odd, 0), (odd, 20)], [((2, 1, 16), 1024)]))


def test_a_kernel_that_writes_more_than_its_tensor_is_refused() -> None:
    wide = conv(view("IFM", 0, S), view("OFM", 1024, (1, 2, 16)), depth=16)
    with pytest.raises(LiftError, match=r"accesses 32 bytes from tensor 1 on, which has 20"):
        _program(network([wide], [(S, 0)], [((1, 1, 20), 1024)]))


def test_partly_used_bricks_are_kept_whole_where_that_is_free() -> None:
    """Depth 4 of int16 fills 8 of a brick's 32 bytes; hardware may write all 32."""
    shape = (1, 2, 4)
    first = conv(view("IFM", 0, S), view("OFM", 1024, shape, brick=True, bits=16), depth=16)
    second = conv(view("IFM", 1024, shape, brick=True, bits=16), view("OFM", 256, (1, 2, 16)), depth=4)
    outputs = [((1, 2, 16), 256)]
    assert _internals(_program(network([first, second], [(S, 0)], outputs))) == [("feature_map0", 1, 1024, 64)]
    tight = network([first, second], [(S, 0)], outputs, scratch=1064)
    assert _internals(_program(tight)) == [("feature_map0", 1, 1024, 40)]


def test_reading_what_nothing_wrote_is_an_error() -> None:
    with pytest.raises(LiftError, match=r"CONV at stream offset .* reads its IFM from bytes 512 to 768 of region 1"):
        _program(network([_conv(512, 256)], [(S, 0)], [(S, 256)]))


def test_reading_more_than_was_written_is_an_error() -> None:
    half = conv(view("IFM", 0, (2, 4, 16)), view("OFM", 512, (2, 4, 16)), depth=16)
    with pytest.raises(LiftError, match="bytes 512 to 768 of region 1, some of which nothing has written"):
        _program(network([half, _conv(512, 1024)], [(S, 0)], [(S, 1024)]))


def test_a_result_that_is_not_written_whole_is_an_error() -> None:
    """Vela's MIRROR_PAD of int32 writes the middle alone."""
    half = conv(view("IFM", 0, (2, 4, 16)), view("OFM", 512, (2, 4, 16)), depth=16)
    with pytest.raises(LiftError, match=r"leaves bytes of its result, tensor 1 \(256 bytes\), unwritten"):
        _program(network([half], [(S, 0)], [(S, 512)]))


def test_an_access_outside_the_arena_is_an_error() -> None:
    with pytest.raises(LiftError, match="OFM ends at byte 4352 of region 1, which has 512 bytes"):
        _program(network([_conv(0, 4096)], [(S, 0)], [(S, 0)], scratch=512))


def test_versions_of_a_state_are_one_argument(compiled: Callable[..., Network]) -> None:
    """Vela's compiled core lists every time step's state among the outputs of the LSTM's NPU call."""
    net = compiled("trained_lstm_int8")
    found = arguments(net, net.npu_calls[0])
    assert [(a.name, a.role) for a in found] == [
        ("state0", BufferRole.STATE), ("input0", BufferRole.INPUT), ("state1", BufferRole.STATE),
        ("output0", BufferRole.OUTPUT),
    ]  # fmt: skip
    assert len(net.npu_calls[0].outputs) > 20
