"""The bound on cycles where kernels may run in other blocks than their own: no clock and no stream goes below."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.layers.pool import PoolKind
from npu_memplan.ethosu.lower.lower import lower
from npu_memplan.ethosu.program.program import NpuProgram
from npu_memplan.ethosu.schedule.prefetch.bounds import least_cycles
from npu_memplan.ethosu.schedule.prefetch.bounds.capacity import CapacityWindow
from npu_memplan.ethosu.schedule.prefetch.demand_cache import DemandCache
from npu_memplan.ethosu.schedule.prefetch.free_space import FreeCapacity, FreeRanges, OccupiedRange
from npu_memplan.ethosu.schedule.prefetch.insert import insert
from npu_memplan.ethosu.schedule.prefetch.reads import constant_blocks
from npu_memplan.ethosu.schedule.prefetch.schedules import Choice
from npu_memplan.ethosu.schedule.prefetch.search import without_copies
from npu_memplan.ethosu.schedule.prefetch.slices import Slicer, Slices
from npu_memplan.ethosu.schedule.prefetch.timed_program import TimedProgram
from npu_memplan.ethosu.schedule.regions import places
from npu_memplan.ethosu.schedule.stripes.apply import apply
from npu_memplan.ethosu.schedule.stripes.cascade_space import CascadeSpace
from npu_memplan.options import CompileOptions
from npu_memplan.tuning.placed import stream_cycles
from tests.support.chains import Chain
from tests.support.prefetch_oracle import Greedy, best_copies

MUCH = 1 << 20


def three_layers(rng: random.Random, seed: int) -> Chain:
    chain = Chain(seed, (rng.randint(24, 70), rng.randint(24, 70), rng.choice((1, 3, 8, 16))))
    for _ in range(3):
        kind = rng.choice(("conv", "conv", "pool", "depthwise"))
        if kind == "conv":
            chain.conv(rng.choice((8, 16, 24, 48)), rng.choice((1, 3)), rng.choice((1, 2)))
        elif kind == "depthwise":
            chain.conv(0, 3, 1, depthwise=True)
        else:
            chain.pool(PoolKind.MAX, 2, 2)
    return chain


def much_to_bring(rng: random.Random, seed: int) -> Chain:
    """Weights that take longer to come than to be multiplied with, then work without any."""
    side = rng.choice((4, 6, 8))
    chain = Chain(seed, (side, side, rng.choice((32, 64))))
    chain.conv(0, 3, 1, depthwise=True)
    for _ in range(rng.randint(3, 9)):
        if rng.random() < 0.1:
            chain.lookup()  # a transfer that is no copy
        chain.conv(rng.choice((32, 64, 96, 128)), 1, 1)
    for _ in range(rng.randint(1, 6)):
        chain.pool(PoolKind.MAX, 3, 1)
    return chain


def timed_program_of(chain: Chain, npu: str) -> TimedProgram:
    return timed_program_in(lower(chain.graph(), accelerator(f"ethos-{npu}")).program, npu)


def timed_program_in(program: NpuProgram, npu: str) -> TimedProgram:
    memory_map = CompileOptions(f"ethos-{npu}", memory_mode="Shared_Sram", objective="bytes").resolved().memory_map()
    assert memory_map is not None
    return TimedProgram(
        program, constant_blocks(program), places(program, memory_map), DemandCache(program.accelerator, memory_map), 1
    )


@pytest.mark.parametrize(
    ("seed", "npu"),
    # the first four: a kernel may start the sooner, the larger the blocks of the one before are, and its own be faster
    [(10, "u55-128"), (25, "u55-128"), (49, "u55-128"), (47, "u65-512"), (3, "u55-256")],
)
def test_no_stream_in_its_own_or_the_best_blocks_goes_below_the_bound(seed: int, npu: str) -> None:
    rng = random.Random(seed)
    timed = timed_program_of(three_layers(rng, seed), npu)
    program, memory_map = timed.program, timed.memory_map
    place = places(program, memory_map)
    assert timed.blocks  # there are better ones
    least, count = least_cycles(timed, [MUCH] * len(timed)), len(timed.constants)
    for _ in range(12):
        kept = frozenset(k for k in range(count) if rng.random() < 0.4)
        made = Greedy(
            timed, FreeRanges([], MUCH, len(timed)), Choice(kept, {k: rng.randint(0, 5) for k in range(count)})
        ).made
        assert made.cycles >= least
        for reblocked in (False, True):
            other, copies = insert(timed, made.copies, 1, reblocked)
            at = {b.name: (1, MUCH + copies[b.name]) if b.name in copies else place(b.name) for b in other.buffers}
            assert stream_cycles(other, at, memory_map) >= least


def fewest_cycles(timed: TimedProgram, volume: FreeCapacity, rng: random.Random) -> int:
    """Of the schedule that is searched for and of six that are drawn."""
    count, found = len(timed.constants), [best_copies(timed, volume, 5_000)]
    for _ in range(6):
        kept = frozenset(k for k in range(count) if rng.random() < 0.5)
        choice = Choice(kept, {k: rng.randint(0, 6) for k in range(count)}, rng.random() < 0.5)
        found.append(Greedy(timed, volume, choice).made)
    return min(made.cycles for made in found)


@pytest.mark.parametrize(
    ("seed", "npu"),
    # of three that read flash at once one passes before flash has worked that off, so the last reader ends early
    [(33, "u55-256"), (47, "u55-256"), (75, "u55-128"), (85, "u55-128"), (26, "u65-512")],
)
def test_what_flash_still_has_to_bring_is_no_more_than_the_clock_asks(seed: int, npu: str) -> None:
    rng = random.Random(seed)
    timed = timed_program_of(much_to_bring(rng, seed), npu)
    limit = sum(constant.size_bytes for constant in timed.constants) + 64
    for full_until, free_bytes in ((0, 0), (1, 0), (1, 1000), (0, 1000)):
        volume = FreeCapacity([OccupiedRange(0, full_until, 0, limit - free_bytes)], limit, len(timed))
        least = least_cycles(timed, volume.free_bytes)
        assert fewest_cycles(timed, volume, rng) >= least


@pytest.mark.parametrize("npu", ["u55-128", "u55-256", "u65-512"])
def test_the_bound_is_what_is_reached_where_nothing_can_be_copied(npu: str) -> None:
    """Not with kernels that have better blocks: they may have the least of each form, which none has. Nor with tables:
    how late commands make them depends on the copies.
    """
    exact = 0
    for seed in range(24):
        timed = timed_program_of(much_to_bring(random.Random(seed), seed), npu)
        least, reached = least_cycles(timed, [0] * len(timed)), without_copies(timed).cycles
        assert least <= reached
        assert least_cycles(timed, [0] * len(timed), in_slices=True) < least  # of slices, copies might have room
        if not timed.blocks and not any(timed.step(i).slow.is_transfer for i in range(len(timed))):
            exact += 1
            assert least == reached
    assert exact >= 2


def twice_read(rng: random.Random, seed: int, npu: str) -> TimedProgram:
    """Convolutions in slices of output channels and in two or three stripes, which read the same weights."""
    side = rng.choice((6, 8, 12))
    chain = Chain(seed, (side, side, rng.choice((16, 32))))
    for _ in range(rng.randint(2, 4)):
        chain.conv(rng.choice((32, 48, 64)), rng.choice((1, 1, 3)), 1)
    lowered = lower(chain.graph(), accelerator(f"ethos-{npu}"))
    groups = CascadeSpace(lowered.program)
    found = [groups.chains.chain(k, k) for k in range(len(lowered.program.operations))]
    striped = apply(lowered.program, [groups.even(one, rng.choice((2, 3))) for one in found if one])
    return timed_program_in(Slicer(striped, Slices(lowered.constants)).sliced(1024) or striped, npu)


@pytest.mark.parametrize("npu", ["u55-128", "u55-256", "u65-512"])
def test_of_pieces_that_are_read_again_some_stay_where_not_all_have_room(npu: str) -> None:
    rng, higher = random.Random(npu), 0
    for seed in range(6):
        timed = twice_read(rng, seed, npu)
        size = sum(constant.size_bytes for constant in timed.constants)
        assert any(len(constant.readers) > 1 for constant in timed.constants)
        for part in (0.2, 0.4, 0.7):
            volume = FreeCapacity([], int(part * size), len(timed))
            free = volume.free_bytes
            least = least_cycles(timed, free)
            higher += least > 1.05 * least_cycles(timed, free, in_slices=True)
            assert fewest_cycles(timed, volume, rng) >= least
    assert higher >= 6


def test_what_stays_costs_the_least_that_makes_room() -> None:
    """Every choice of constants is tried, in drawn crowds."""
    rng = random.Random(5)
    for _ in range(200):
        costs = {k: float(rng.randint(0, 30)) for k in range(rng.randint(1, 7))}
        sizes = [rng.randint(1, 9) for _ in costs]
        excess_bytes = rng.randint(1, sum(sizes))
        choices = (c for n in range(len(sizes) + 1) for c in combinations(range(len(sizes)), n))
        best = min(sum(costs[k] for k in c) for c in choices if sum(sizes[k] for k in c) >= excess_bytes)
        bound = CapacityWindow(0, 1, ((excess_bytes, tuple(costs)),)).least(costs, sizes)
        assert best - max(costs.values()) <= bound <= best + 1e-9
    assert CapacityWindow(0, 1, ((10, (0, 1, 2)),)).least({0: 3.0, 1: 4.0, 2: 9.0}, [12, 12, 12]) == 3.0  # one is whole
