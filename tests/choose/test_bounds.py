"""The bound on cycles where kernels may run in other blocks than their own: no clock and no stream goes below."""

from __future__ import annotations

import random

import pytest

from npu_memplan.choose.placed import stream_cycles
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.layers.pool import PoolKind
from npu_memplan.ethosu.lower.lower import lower
from npu_memplan.ethosu.schedule.copies.bounds import least_cycles
from npu_memplan.ethosu.schedule.copies.course import Course
from npu_memplan.ethosu.schedule.copies.fitted import Fitted
from npu_memplan.ethosu.schedule.copies.greedy import Choice, Greedy
from npu_memplan.ethosu.schedule.copies.insert import insert
from npu_memplan.ethosu.schedule.copies.reads import pieces
from npu_memplan.ethosu.schedule.copies.room import Room
from npu_memplan.ethosu.schedule.regions import places
from npu_memplan.options import CompileOptions
from tests.support.chains import Chain

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


@pytest.mark.parametrize(
    ("seed", "npu"),
    # the first four: a kernel may start the sooner, the larger the blocks of the one before are, and its own be faster
    [(10, "u55-128"), (25, "u55-128"), (49, "u55-128"), (50, "u65-512"), (3, "u55-256")],
)
def test_no_stream_in_its_own_or_the_best_blocks_goes_below_the_bound(seed: int, npu: str) -> None:
    rng, npu = random.Random(seed), f"ethos-{npu}"
    program = lower(three_layers(rng, seed).graph(), accelerator(npu)).program
    where = CompileOptions(npu, memory_mode="Shared_Sram").resolved().memory_map()
    assert where is not None
    place = places(program, where)
    line = Course(program, pieces(program), place, Fitted(program.accelerator, where), 1)
    assert line.blocks  # there are better ones
    least, count = least_cycles(line, [MUCH] * len(line)), len(line.pieces)
    for _ in range(12):
        kept = frozenset(k for k in range(count) if rng.random() < 0.4)
        made = Greedy(line, Room([], MUCH, len(line)), Choice(kept, {k: rng.randint(0, 5) for k in range(count)})).made
        assert made.cycles >= least
        for reblocked in (False, True):
            other, copies = insert(line, made.copies, 1, reblocked)
            at = {b.name: (1, MUCH + copies[b.name]) if b.name in copies else place(b.name) for b in other.buffers}
            assert stream_cycles(other, at, where) >= least
