"""The estimate of cycles, against figures worked out by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace
from math import ceil

import pytest

from npu_memplan.ethosu.arch import OutputKind, accelerator
from npu_memplan.ethosu.stream.decode import Operation, Wait
from npu_memplan.ethosu.stream.fields import ADDRESS_REGISTERS
from npu_memplan.ethosu.stream.isa import Op, PoolMode, Register
from npu_memplan.ethosu.time import ALONE, Bound, Cause, Direction, Memory, MemoryMap, Pulse, Traffic, estimate
from npu_memplan.ethosu.time.compute import multiplier_cycles, output_cycles
from npu_memplan.ethosu.time.cost import resource_use
from npu_memplan.ethosu.time.work import work_of
from tests.support.hand_made import STOP, conv, dma, elementwise, pool, view
from tests.support.traffic import bytes_of

U55, SMALL, DUAL = (accelerator(f"ethos-{n}") for n in ("u55-256", "u55-32", "u65-512"))
SRAM = Memory("sram", 0, 1.0, Direction(32), Direction(32))
FLASH = Memory("flash", 1, 0.125, Direction(64, 2), Direction(0))
WHERE = MemoryMap({0: FLASH, 1: SRAM}, FLASH)
SHAPE = (8, 8, 32)
BLOCK = {Register.OFM_BLK_HEIGHT_M1: 7, Register.OFM_BLK_WIDTH_M1: 7, Register.OFM_BLK_DEPTH_M1: 31}


def blocks(operation: Operation, shape: tuple[int, int, int]) -> Operation:
    return operation.with_registers(dict(zip(BLOCK, (n - 1 for n in shape), strict=True)))


CONV = blocks(conv(view("IFM", 0, SHAPE), view("OFM", 4096, SHAPE), depth=32, kernel=(3, 3)), SHAPE)
DEPTHWISE = blocks(
    conv(view("IFM", 0, SHAPE), view("OFM", 4096, SHAPE), depth=1, kernel=(3, 3), op=Op.DEPTHWISE), SHAPE
)
POOL = blocks(pool(view("IFM", 0, SHAPE), view("OFM", 4096, SHAPE), kernel=(2, 2), mode=PoolMode.MAX), SHAPE)
ADD = blocks(elementwise(view("IFM", 0, SHAPE), view("OFM", 4096, SHAPE), view("IFM2", 8192, SHAPE)), SHAPE)


@pytest.mark.parametrize(
    ("operation", "multiplied"),
    [(CONV, 8 * 8 * 32 * 9 * 32), (DEPTHWISE, 8 * 8 * 32 * 9), (POOL, 0), (ADD, 0), (dma((0, 0), (1, 0), 512), 0)],
    ids=["conv", "depthwise", "pool", "elementwise", "dma"],
)
def test_multiply_accumulates(operation: Operation, multiplied: int) -> None:
    assert estimate((operation, STOP), U55, WHERE).macs == multiplied


@pytest.mark.parametrize(
    ("operation", "npu", "cycles"),
    [
        (CONV, U55, 4 * 16 * 9 * 4),  # 16 micro-blocks of 2x2, 9 taps, 4 of 8 channels, 32 input channels a step
        (CONV, SMALL, 4 * 64 * 9 * 8),  # 64 of 1x1, 8 of 4 channels
        (blocks(CONV, (2, 2, 32)), U55, 16 * (32 * 9 * 4 + 2 * 8 * 4)),  # decoding is slower than one micro-block
        (blocks(CONV, (6, 8, 32)), U55, (4 * 12 + 32) * 9 * 4),  # a whole block; one of two rows waits for decoding
        (CONV.with_registers({Register.IFM_DEPTH_M1: 32}), U55, 2 * 4 * 16 * 9 * 4),  # 33 channels are two steps
        (CONV.with_registers({Register.KERNEL_STRIDE: 4, Register.IFM_DEPTH_M1: 0}), U55, 4 * 16 * 3 * 4),  # 4 taps
        (DEPTHWISE, U55, 4 * 16 * 3 * 4),
        (POOL, U55, 4 * 16 * 4),
        (ADD, U55, 0),
        (CONV.with_registers({Register.PARALLEL_MODE: 1}), DUAL, 4 * 16 * 9 * 2),  # each core half of the channels
    ],
)
def test_cycles_of_the_multipliers(operation: Operation, npu: object, cycles: int) -> None:
    assert multiplier_cycles(work_of(operation, npu), npu) == cycles  # type: ignore[arg-type]


def test_a_kernel_of_more_than_eight_rows_is_made_in_pieces() -> None:
    tall = blocks(pool(view("IFM", 0, (25, 5, 16)), view("OFM", 4096, (1, 1, 16)), kernel=(25, 5)), (2, 2, 16))
    work = work_of(tall, U55)
    assert work.pieces == (40, 40, 40, 5)
    assert multiplier_cycles(work, U55) == (40 + 40 + 40 + 5) * 2 + 4 * 2 * 0


@pytest.mark.parametrize(
    ("operation", "kind", "a_cycle"),
    [
        (CONV, OutputKind.OTHER, 0.25),
        (ADD, OutputKind.ADD, 0.75),
        (POOL, OutputKind.MAX_POOL, 0.125),
        (CONV.with_registers({Register.ACC_FORMAT: 1}), OutputKind.MUL, 0.375),
        (CONV.with_registers({Register.ACTIVATION: 16}), OutputKind.OTHER, 1.0),
        (POOL.with_registers({Register.ACTIVATION_MIN: 0}), OutputKind.MAX_POOL, 0.25),
    ],
)
def test_cycles_of_the_output_unit(operation: Operation, kind: OutputKind, a_cycle: float) -> None:
    work = work_of(operation, U55)
    assert work.traits.output is kind
    assert output_cycles(work, U55) == ceil(8 * 8 * 32 * a_cycle)


def test_inputs_are_read_again_for_each_block_that_needs_them() -> None:
    whole = {load.role.value: load.traffic.bytes for load in resource_use(CONV, U55, WHERE).loads}
    assert whole == {"ifm": 10 * 10 * 32, "weights": 64, "scales": 16, "ofm": 8 * 8 * 32}
    rows = {load.role.value: load.traffic.bytes for load in resource_use(blocks(CONV, (4, 8, 16)), U55, WHERE).loads}
    assert rows["ifm"] == (6 + 6) * 10 * 32 * 2, "two rows in common; all twice, for two depths of blocks"
    padded = CONV.with_registers({Register.IFM_PAD_TOP: 1, Register.IFM_PAD_LEFT: 1})
    assert resource_use(padded, U55, WHERE).loads[0].traffic.bytes == 9 * 9 * 32, "padding is not read"
    assert rows["weights"] == 2 * 64, "once for each block of a plane"


def test_both_cores_read_weights() -> None:
    second = CONV.with_registers({Register.PARALLEL_MODE: 1, Register.WEIGHT1_LENGTH: 160, Register.SCALE1_LENGTH: 0})
    read = {load.role.value: load.traffic.bytes for load in resource_use(second, DUAL, WHERE).loads}
    assert read["weights"] == 64 + 160
    alone = {
        load.role.value: load.traffic.bytes for load in resource_use(second, accelerator("ethos-u65-256"), WHERE).loads
    }
    assert alone["weights"] == 64


@pytest.mark.parametrize(
    ("memory", "cycles"),
    [
        (SRAM, 8000),  # a beat a cycle
        (FLASH, 64_000),  # an eighth of it
        (Memory("slow", 1, 1.0, Direction(92, 1), Direction(0)), 1000 * (92 + 8)),  # one request at a time
        (Memory("slow", 1, 1.0, Direction(92, 4), Direction(0)), 1000 * (92 + 8) / 4),
        (Memory("capped", 1, 1.0, Direction(0), Direction(0), Pulse(320, 80, 50)), 1000 / 7 * 400),  # 7 requests pass
        (Memory("paused", 1, 1.0, Direction(64, 2), Direction(0), Pulse(320, 80, 0)), 1000 / (5 * 2) * 400),
    ],
    ids=["fast", "slow", "one", "four", "capped", "paused"],
)
def test_cycles_of_a_thousand_whole_requests(memory: Memory, cycles: float) -> None:
    assert memory.cycles(Traffic(64_000, 8000, 1000), writes=False, requesters=1) == pytest.approx(cycles)
    assert memory.cycles(Traffic(), writes=False, requesters=1) == 0


def test_a_transfer_takes_as_long_as_its_slower_side() -> None:
    only = estimate((dma((0, 0), (1, 0), 6400), STOP), U55, WHERE)
    assert only.total == pytest.approx(64 + 64 + 6400 + 32, abs=60)  # the stream's start, flash, SRAM; and its words
    assert only.shares[0].bound == Bound(Cause.READ, "flash")
    assert (only.beats(1, False), only.beats(0, True)) == (800 + -(-only.stream_bytes // 8), 800)


def test_kernels_and_transfers_overlap_until_a_wait() -> None:
    load = dma((0, 0), (1, 8192), 1600)
    beside = estimate((load, CONV, STOP), U55, WHERE)
    assert beside.shares[1].start < beside.shares[0].stop
    behind = estimate((load, Wait(Op.DMA_WAIT, 0), CONV, CONV, STOP), U55, WHERE)
    assert behind.shares[1].start >= behind.shares[0].stop
    assert behind.shares[2].start >= behind.shares[1].stop, "kernels one after the other"
    one = estimate((load, load, Wait(Op.DMA_WAIT, 1), CONV, STOP), U55, WHERE)
    assert one.shares[1].start >= one.shares[0].stop, "one transfer at a time"
    assert one.shares[2].start < one.shares[1].stop
    assert estimate((STOP,), U55, WHERE).total == 64


def test_a_kernel_that_depends_on_the_one_before_cannot_read_ahead() -> None:
    apart = CONV.with_registers({Register.BLOCKDEP: 0})
    beside = CONV.with_registers({Register.BLOCKDEP: 3})
    assert estimate((CONV, apart, STOP), U55, WHERE).total > estimate((CONV, beside, STOP), U55, WHERE).total


def test_a_kernel_in_the_layout_of_the_one_before_multiplies_while_that_puts_out_its_last_block() -> None:
    """Slices of a convolution: blocks go on as inside one kernel. Another layout waits for the accumulators."""
    deep = (8, 8, 128)
    made = blocks(conv(view("IFM", 0, deep), view("OFM", 8192, deep), depth=128, kernel=(3, 3)), SHAPE)
    one = made.with_registers({Register.BLOCKDEP: 3, Register.AB_START: 40})
    other = one.with_registers({Register.AB_START: 44})
    same, apart = (estimate((one, second, STOP), U55, WHERE).total for second in (one, other))
    needs = resource_use(one, U55, WHERE)
    assert (needs.output / needs.blocks, needs.blocks) == (512, 4)
    begun = 80 + 32 + needs.traffic.input_asking / needs.jobs  # from when the input's room is free
    assert apart - same == pytest.approx(512 - begun, abs=1)


def test_operations_that_have_their_memories_alone_overlap_nowhere() -> None:
    load, small = dma((0, 0), (1, 8192), 1600), blocks(CONV, (4, 4, 16)).with_registers({Register.BLOCKDEP: 3})
    where = replace(WHERE, assumptions=ALONE)
    shares = estimate((load, small, load, small, STOP), U55, where).shares
    assert all(one.stop - 32 <= other.start for one, other in itertools.pairwise(shares))  # but for a write's answer
    needs = resource_use(small, U55, where)
    assert needs.multiplying_alone == needs.multiplying + 7 * 64, "eight blocks, of which each waits for its weights"


def test_needs_do_not_depend_on_addresses() -> None:
    moved = CONV.with_registers(dict.fromkeys(ADDRESS_REGISTERS & CONV.registers.keys(), 1 << 20))
    assert moved != CONV
    assert replace(resource_use(moved, U55, WHERE), operation=CONV) == resource_use(CONV, U55, WHERE)
    assert [s.operation for s in estimate((CONV, moved, STOP), U55, WHERE).shares] == [CONV, moved]


def test_the_cause_is_what_takes_longest() -> None:
    assert estimate((CONV,), U55, WHERE).shares[0].bound == Bound(Cause.MULTIPLY)
    heavy = CONV.with_registers({Register.WEIGHT_LENGTH: 9216, Register.WEIGHT_REGION: 0})
    share = estimate((heavy,), U55, WHERE).shares[0]
    assert str(share.bound) == "reading flash"
    assert bytes_of(share, "flash") == 9216 + 16
    assert share.cycles > 9216
    tiny = blocks(elementwise(view("IFM", 0, (1, 1, 8)), view("OFM", 4096, (1, 1, 8))), (2, 2, 8))
    assert str(estimate((tiny,), U55, WHERE).shares[0].bound) == "latency of sram"


def test_shares_add_up_to_the_total() -> None:
    made = estimate((dma((0, 0), (1, 9000), 800), CONV, Wait(Op.DMA_WAIT, 0), DEPTHWISE, ADD, POOL, STOP), U55, WHERE)
    assert sum(share.cycles for share in made.shares) == made.total == sum(made.bounds().values())


@pytest.mark.parametrize(
    ("beats", "latency", "writes", "cycles"),
    [
        (1000, 0, False, 1000),
        (1000, 92, False, 1000 / 8 * (92 + 8) / 4),  # four reads unfinished
        (1000, 92, True, 1000),  # of writes any number
    ],
)
def test_directions_have_unfinished_requests_apart(beats: int, latency: int, writes: bool, cycles: float) -> None:
    memory = Memory("m", 0, 1.0, Direction(latency, 4), Direction(latency))
    assert memory.cycles(Traffic(8 * beats, beats, beats // 8), writes, 1) == pytest.approx(cycles)


def test_what_a_kernel_reads_and_writes_shares_the_beats_and_nothing_else() -> None:
    slow = Memory("sram", 0, 1.0, Direction(92, 1), Direction(92, 1))
    traffic = resource_use(ADD, U55, MemoryMap({0: slow, 1: slow}, slow)).traffic
    reads, writes = (
        sum(load.cycles for load in resource_use(ADD, U55, MemoryMap({1: slow}, slow)).loads if load.writes is w)
        for w in (False, True)
    )
    assert traffic.cycles_of("sram") == max(reads, writes) < reads + writes


def test_reads_and_writes_of_a_duplex_memory_share_nothing() -> None:
    shared, apart = (
        resource_use(ADD, U55, MemoryMap({1: memory}, memory)).traffic.cycles_of("sram")
        for memory in (replace(SRAM, read=Direction(0), write=Direction(0), duplex=duplex) for duplex in (False, True))
    )
    assert shared == (3 * 8 * 8 * 32) / 8
    assert apart == (2 * 8 * 8 * 32) / 8


def test_transfers_keep_an_adapters_limit_of_words() -> None:
    """Of a kernel's reads, the request of 8 words that reaches 50 still passes."""
    flash = Memory("flash", 1, 1.0, Direction(0), Direction(0), Pulse(320, 80, 50))
    assert flash.cycles(Traffic(64_000, 8000, 1000), False, 1, whole_requests=False) == 8000 / 50 * 400
    copied = resource_use(dma((0, 0), (1, 0), 64_000), U55, MemoryMap({0: flash, 1: SRAM}, flash))
    assert copied.traffic.cycles_of("flash") == 8000 / 50 * 400


def test_a_kernel_that_its_memory_limits_ends_behind_its_last_block() -> None:
    """Of 8 blocks two are read before they are written; behind the last input come its step, its output, its write."""
    shape = (64, 8, 32)
    bound = blocks(conv(view("IFM", 0, shape), view("OFM", 1 << 15, shape), depth=32, kernel=(2, 3)), (8, 8, 32))
    slow = MemoryMap({0: FLASH, 1: replace(SRAM, clock_scale=0.25)}, FLASH)
    needs = resource_use(bound, U55, slow)
    busy, written = needs.traffic.cycles_of("sram"), needs.traffic.output_cycles
    assert needs.blocks == needs.jobs == 8
    assert needs.multipliers < busy
    last = (needs.multipliers + needs.output + written) / 8
    assert estimate((bound, STOP), U55, slow).total >= U55.launch_cycles + 32 + busy - written * 2 / 8 + last


def test_weights_are_fetched_two_kib_ahead() -> None:
    heavy = CONV.with_registers({Register.WEIGHT_LENGTH: 9216, Register.WEIGHT_REGION: 0})
    needs = resource_use(heavy, U55, WHERE)
    assert needs.multiplying == pytest.approx(9216 - 2048)
    assert needs.multiplying > needs.multipliers
    assert resource_use(CONV, U55, WHERE).multiplying == needs.multipliers


def test_pauses_of_an_adapter_delay_who_waits_for_answers() -> None:
    """Where each request waits for the one before, a pause costs what outlasts half of one: 871 cycles at 250."""
    paused, long, steady = (
        Memory("m", 1, 1.0, Direction(latency), Direction(0), pulse)
        for latency, pulse in ((250, Pulse(4000, 1000, 0)), (1000, Pulse(4000, 1000, 0)), (250, None))
    )
    assert paused.latency(False) == pytest.approx(250 * 5000 / 4129)
    moments = [max(0, 1000 - moment - 250) if moment < 1000 else 0 for moment in range(5000)]  # of requests
    assert paused.pause == pytest.approx(sum(moments) / 5000, rel=0.01)
    chain, passed = 0, 0  # requests in turn, each of which must be made while the adapter lets some pass
    while chain < 5_000_000:
        chain += 258 + (5000 - chain % 5000 if chain % 5000 >= 4000 else 0)
        passed += 1
    assert paused.latency(False) / 250 == pytest.approx(chain / passed / 258, rel=0.02)
    assert (long.latency(False), long.pause) == (pytest.approx(1000 * 5000 / 4504, rel=1e-4), 0)
    assert (steady.latency(False), steady.pause) == (250, 0)


def test_multipliers_go_on_in_a_pause_with_weights_fetched_ahead() -> None:
    """Of a memory that pauses every other while: of each pause, what outlasts the weights there are is lost."""
    heavy = CONV.with_registers({Register.WEIGHT_LENGTH: 8192, Register.WEIGHT_REGION: 0})
    steady, paused = (
        resource_use(heavy, U55, MemoryMap({0: flash, 1: SRAM}, flash))
        for flash in (
            Memory("flash", 1, 1.0, Direction(0), Direction(0), pulse) for pulse in (None, Pulse(4000, 4000, 0))
        )
    )
    ahead = steady.multipliers * 2048 / 8192
    assert steady.multiplying == steady.multipliers
    assert paused.multiplying == pytest.approx(steady.multipliers * 8000 / (4000 + ahead))


def test_a_memory_may_have_shorter_requests() -> None:
    long, short = (Memory("m", 0, 2.0, Direction(28, 8), Direction(0), burst_bytes=n) for n in (0, 64))
    moved = Traffic(128_000, 8000, 1000)
    assert long.cycles(moved, False, 1) == max(4000, 1000 * (28 + 8) / 8)
    assert short.cycles(moved, False, 1) == 2000 * (28 + 4) / 8
