"""Waits and block dependencies, against a machine that finishes things as late as it is allowed to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fvp_runner.npu_model.errors import BlockDependencyError
from fvp_runner.npu_model.model import NpuModel
from npu_memplan.ethosu.arch import Architecture, accelerator
from npu_memplan.ethosu.program.access import accesses
from npu_memplan.ethosu.program.hazards import largest_blockdep, schedule
from npu_memplan.ethosu.stream.decode import Command, Marker, Operation, Wait, decode
from npu_memplan.ethosu.stream.encode import encode
from npu_memplan.ethosu.stream.isa import Op, PoolMode, Register
from npu_memplan.models.network import Network
from tests.support.hand_made import conv, dma, elementwise, lut_dma, pool, view
from tests.support.provenance import element_bytes, shapes

S = (4, 4, 16)
U55, U65 = accelerator("ethos-u55-256"), accelerator("ethos-u65-256")


def _waits(commands: Sequence[Command]) -> list[list[tuple[str, int]]]:
    """Per operation: the waits before it."""
    found: list[list[tuple[str, int]]] = [[]]
    for c in commands:
        if isinstance(c, Wait):
            found[-1].append((c.op.name, c.outstanding))
        elif isinstance(c, Operation):
            found.append([])
    return found[:-1]


def _bytes(op: Operation, npu: Architecture, writes: bool) -> set[tuple[int, int]]:
    key = (id(op), writes)
    if key not in _KNOWN:
        found = {
            (a.region, b)
            for a in accesses(op, npu)
            if a.is_write == writes
            for start, stop in a.ranges.tolist()
            for b in range(start, stop)
        }
        _KNOWN[key] = op, found  # the operation is kept, so that its id stays its own
    return _KNOWN[key][1]


_KNOWN: dict[tuple[int, bool], tuple[Operation, set[tuple[int, int]]]] = {}


def _first_hazard(commands: Sequence[Command], npu: Architecture) -> int | None:
    """Index of the first command that meets an unfinished one of the other engine, or None.

    The lazy machine: a thing finishes only when a wait or a full queue forces it.
    """
    queues: dict[bool, list[Operation]] = {True: [], False: []}  # is DMA -> unfinished, oldest first
    for index, c in enumerate(commands):
        if isinstance(c, Wait):
            queue = queues[c.op is Op.DMA_WAIT]
            del queue[: max(0, len(queue) - c.outstanding)]
        if not isinstance(c, Operation):
            continue
        is_dma = c.op is Op.DMA_START
        rivals = list(queues[not is_dma])
        if is_dma and npu.max_outstanding_dma > 1:
            rivals += queues[True]
        mine = _bytes(c, npu, True), _bytes(c, npu, False)
        for other in rivals:
            theirs = _bytes(other, npu, True), _bytes(other, npu, False)
            if mine[0] & (theirs[0] | theirs[1]) or mine[1] & theirs[0]:
                return index
        queue = queues[is_dma]
        queue.append(c)
        del queue[: -npu.max_outstanding_dma if is_dma else -2]
    return None


def test_accumulators_may_reach_into_the_table_slots_of_the_smallest_parts() -> None:
    """U55-32 reserves nothing above the accumulators: a table must not be loaded under them."""
    small = accelerator("ethos-u55-32")
    big = conv(view("IFM", 0, S), view("OFM", 256, S), depth=16, block=(4, 8, 16), extra={Register.AB_START: 12})
    assert _waits(schedule([big, lut_dma(0, 1, npu="ethos-u55-32")], small))[1] == [("KERNEL_WAIT", 0)]
    below = conv(view("IFM", 0, S), view("OFM", 256, S), depth=16, block=(4, 8, 16), extra={Register.AB_START: 8})
    assert _waits(schedule([below, lut_dma(0, 1, npu="ethos-u55-32")], small))[1] == []


def test_streams_end_with_stop_and_carry_block_dependencies() -> None:
    first = conv(view("IFM", 0, S), view("OFM", 256, S), depth=16)
    second = conv(view("IFM", 256, S), view("OFM", 512, S), depth=16)
    commands = schedule([first, second, first], U55)
    assert commands[-1] == Marker(Op.STOP, 0xFFFF)
    assert [c[Register.BLOCKDEP] for c in commands if isinstance(c, Operation)] == [0, 0, 3]


_MODELS = [("digits", "ethos-u55-256"), ("kws_ref_model", "ethos-u65-256"), ("str_ww_ref_model", "ethos-u55-64")]


@pytest.mark.parametrize(("model", "npu"), _MODELS)
def test_real_streams_get_velas_waits_and_each_is_needed(
    compiled: Callable[..., Network], model: str, npu: str
) -> None:
    for call in compiled(model, accelerator=npu, memory_mode="Shared_Sram").npu_calls:
        original = decode(call.words)
        commands = schedule([c for c in original if isinstance(c, Operation)], call.accelerator)
        assert _waits(commands) == _waits(original)
        assert _first_hazard(commands, call.accelerator) is None
        for index, c in enumerate(commands):
            # The lazy machine knows nothing of accumulators, which reach into tables on the two smallest parts.
            if isinstance(c, Wait) and call.accelerator.macs > 64:
                without = [*commands[:index], *commands[index + 1 :]]
                assert _first_hazard(without, call.accelerator) is not None


_small = st.integers(0, 7).map(lambda n: n * 64)


@st.composite
def _programs(draw: Any) -> list[Operation]:
    found: list[Operation] = []
    shape = (1, 4, 16)
    for _ in range(draw(st.integers(1, 8))):
        a, b, c = draw(_small), draw(_small), draw(_small)
        kind = draw(st.integers(0, 2))
        if kind == 0:
            found.append(dma((draw(st.sampled_from((0, 1))), a), (1, b), 64))
        elif kind == 1:
            found.append(elementwise(view("IFM", a, shape), view("OFM", b, shape), view("IFM2", c, shape)))
        else:
            found.append(
                conv(view("IFM", a, shape), view("OFM", b, shape), depth=16, weights=(1, c, 32), scales=(1, c + 32, 16))
            )
    return found


@settings(max_examples=150, deadline=None)
@given(_programs(), st.sampled_from((U55, U65)))
def test_any_program_is_scheduled_without_hazards_and_without_needless_waits(
    program: list[Operation], npu: Architecture
) -> None:
    commands = schedule(program, npu)
    assert [c.op for c in commands if isinstance(c, Operation)] == [c.op for c in program]
    assert _first_hazard(commands, npu) is None
    for index, c in enumerate(commands):
        if isinstance(c, Wait):
            weaker = [*commands[:index], Wait(c.op, c.outstanding + 1), *commands[index + 1 :]]
            assert _first_hazard(weaker, npu) is not None


# --- BLOCKDEP -----------------------------------------------------------------------------


def _blocks(op: Operation) -> list[np.ndarray]:
    """Elements (y, x, c) of each OFM block in the order they are produced: depth, then x, then y."""
    g = {r.name: v + 1 for r, v in op.registers.items() if r.name.endswith("_M1")}
    found = []
    for y in range(0, g["OFM_HEIGHT_M1"], g["OFM_BLK_HEIGHT_M1"]):
        for x in range(0, g["OFM_WIDTH_M1"], g["OFM_BLK_WIDTH_M1"]):
            for c in range(0, g["OFM_DEPTH_M1"], g["OFM_BLK_DEPTH_M1"]):
                ends = (
                    min(y + g["OFM_BLK_HEIGHT_M1"], g["OFM_HEIGHT_M1"]),
                    min(x + g["OFM_BLK_WIDTH_M1"], g["OFM_WIDTH_M1"]),
                    min(c + g["OFM_BLK_DEPTH_M1"], g["OFM_DEPTH_M1"]),
                )
                grid = np.mgrid[y : ends[0], x : ends[1], c : ends[2]].reshape(3, -1).T
                found.append(grid)
    return found


def _job_channels(op: Operation) -> int:
    """Input channels a job takes in of those it sums: 16 with 16-bit elements or part-kernel-first, else 32."""
    wide = op[Register.IFM_PRECISION] >> 2 & 3 == 1
    return 16 if wide or op[Register.KERNEL_STRIDE] & 4 else 32


def _read_by_jobs(op: Operation, cautious: bool) -> list[set[int]]:
    """Bytes of the IFM that each job reads, one element at a time; cautious: as if it were depth first."""
    height, width, depth = shapes(op)["IFM"]
    address = element_bytes(op, "IFM", height, width, depth).reshape(height, width, depth, -1)
    g = op.registers
    stride = 1 + (g[Register.KERNEL_STRIDE] & 1) if op.op is not Op.ELEMENTWISE else 1
    taps = (1, 1)
    pads = (0, 0)
    if op.op is not Op.ELEMENTWISE:
        taps = (g[Register.KERNEL_HEIGHT_M1] + 1, g[Register.KERNEL_WIDTH_M1] + 1)
        pads = (g[Register.IFM_PAD_TOP], g[Register.IFM_PAD_LEFT])
    found: list[set[int]] = []
    for block in _blocks(op):
        slices = [set(block[:, 2].tolist())]
        if op.op is Op.CONV or (op.op is Op.POOL and op.parameter == PoolMode.REDUCE_SUM):
            whole = op.with_registers({Register.KERNEL_STRIDE: 0}) if cautious else op
            step = _job_channels(whole)
            slices = [set(range(c, min(c + step, depth))) for c in range(0, depth, step)]
        for channels in slices:
            read: set[int] = set()
            for y, x in {(int(y), int(x)) for y, x, _ in block}:
                for ky in range(taps[0]):
                    for kx in range(taps[1]):
                        iy, ix = y * stride + ky - pads[0], x * stride + kx - pads[1]
                        if 0 <= iy < height and 0 <= ix < width:
                            read.update(address[iy, ix, sorted(channels)].ravel().tolist())
            found.append(read)
    return found


def _largest_safe(previous: Operation, op: Operation, cautious: bool = False) -> int:
    """By the definition: job f may start while the last (value - f) OFM blocks are unwritten."""
    shape = shapes(previous)["OFM"]
    address = element_bytes(previous, "OFM", *shape).reshape(*shape, -1)
    written = [set(address[tuple(block.T)].ravel().tolist()) for block in _blocks(previous)]
    reads = _read_by_jobs(op, cautious)
    for value in (3, 2, 1):
        unwritten = [set().union(*written[-(value - f) :]) for f in range(value)]
        if not any(f < len(reads) and reads[f] & unwritten[f] for f in range(value)):
            return value
    return 0


@st.composite
def _pairs(draw: Any) -> tuple[Operation, Operation]:
    middle = (draw(st.integers(1, 6)), draw(st.integers(1, 6)), draw(st.sampled_from((8, 16, 40, 70))))
    brick = draw(st.booleans())

    def block() -> tuple[int, int, int]:
        return draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.sampled_from((8, 16, 32)))

    base = 32768
    bits = draw(st.sampled_from((8, 8, 16, 32)))
    previous = elementwise(
        view("IFM", 0, middle, bits=bits), view("OFM", base, middle, brick=brick, bits=bits), block=block()
    )
    shifted = base + draw(st.sampled_from((0, 0, 0, 16, 64)))
    source = view("IFM", shifted, middle, brick=brick, bits=bits)
    kind = draw(
        st.sampled_from(
            ("conv", "conv", "depthwise", "elementwise", "max", "sum") if bits < 32 else ("sum", "elementwise")
        )
    )
    if kind == "elementwise":
        return previous, elementwise(source, view("OFM", 131072, middle, bits=bits), block=block())
    if kind == "sum":
        target = view("OFM", 131072, (*middle[:2], 1), bits=32)
        return previous, pool(source, target, mode=PoolMode.REDUCE_SUM, depth=middle[2], block=block())
    size = draw(st.integers(1, 3))
    pad = draw(st.integers(0, size - 1))
    out = tuple(n + 2 * pad - size + 1 for n in middle[:2])
    if min(out) < 1:
        size, pad, out = 1, 0, middle[:2]
    if kind == "max":
        return previous, pool(source, view("OFM", 131072, middle, bits=bits), mode=PoolMode.MAX, block=block())
    depth = middle[2] if kind == "depthwise" else draw(st.sampled_from((8, 48)))
    op = conv(
        source, view("OFM", 131072, (*out, depth)), depth=middle[2], kernel=(size, size), pads=(pad,) * 4,
        block=block(),
        op=Op.DEPTHWISE if kind == "depthwise" else Op.CONV,
    )  # fmt: skip
    return previous, op.with_registers({Register.KERNEL_STRIDE: 4 if draw(st.booleans()) else 0})


@settings(max_examples=250, deadline=None)
@given(_pairs())
def test_blockdep_is_the_largest_value_that_is_safe_in_either_traversal(pair: tuple[Operation, Operation]) -> None:
    assert largest_blockdep(*pair) == _largest_safe(*pair, cautious=True) <= _largest_safe(*pair)


@settings(max_examples=250, deadline=None)
@given(_pairs())
def test_the_npu_model_takes_the_largest_safe_value_and_none_above_it(pair: tuple[Operation, Operation]) -> None:
    previous, op = pair
    safe = _largest_safe(*pair)
    for value in range(4):
        given = [previous.with_registers({Register.BLOCKDEP: 0}), op.with_registers({Register.BLOCKDEP: value})]
        words = encode([*given, Marker(Op.STOP, 0xFFFF)])
        if value <= safe:
            NpuModel(U55).prepare_stream(words)
        else:
            with pytest.raises(BlockDependencyError, match=f"has BLOCKDEP {value}: its block"):
                NpuModel(U55).prepare_stream(words)


def test_no_block_runs_ahead_into_a_kernel_whose_table_lies_under_its_accumulators() -> None:
    """U55-32 and -64 keep accumulators of kernels without a table where others have theirs."""
    small = accelerator("ethos-u55-64")
    ends = {Register.AB_START: 12, Register.IFM_IB_END: 4, Register.IFM2_IB_START: 6}
    add = elementwise(view("IFM", 0, S), view("OFM", 512, S), view("IFM2", 256, S), lut=1).with_registers(ends)
    other = conv(view("IFM", 1024, S), view("OFM", 2048, S), depth=16, extra={Register.AB_START: 12})
    below = conv(view("IFM", 1024, S), view("OFM", 2048, S), depth=16, block=(4, 4, 8), extra={Register.AB_START: 4})
    start = [lut_dma(0, 1, npu="ethos-u55-64")]
    for second, npu, expected in ((other, small, 0), (below, small, 3), (other, U55, 3)):
        commands = schedule([*start, add, second], npu)
        assert [c[Register.BLOCKDEP] for c in commands if isinstance(c, Operation) and c.op.is_kernel] == [0, expected]
    spoilt = [c.with_registers({Register.BLOCKDEP: 1}) if isinstance(c, Operation) and c.op is Op.CONV else c
              for c in schedule([*start, add, other], small)]  # fmt: skip
    NpuModel(small).prepare_stream(encode(schedule([*start, add, other], small)))
    with pytest.raises(BlockDependencyError, match="its working memory lies over the look-up table in slot 1, which"):
        NpuModel(small).prepare_stream(encode(spoilt))


def test_blockdep_without_a_shared_byte_is_three_and_on_one_block_is_zero() -> None:
    first = pool(view("IFM", 0, S), view("OFM", 1024, S))
    assert largest_blockdep(first, pool(view("IFM", 2048, S), view("OFM", 512, S))) == 3
    assert largest_blockdep(first, pool(view("IFM", 1024, S, region=2), view("OFM", 512, S))) == 3
    assert largest_blockdep(first, pool(view("IFM", 1024, S), view("OFM", 512, S))) == 0
