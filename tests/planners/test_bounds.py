"""Bounds: never above the least height, and at it where alignment or overlaps force bytes."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from npu_memplan.planners import plan
from npu_memplan.planners.bounds import load_peak
from npu_memplan.planners.model import Model
from npu_memplan.problem import AliasGroup, AllowedOverlap, Buffer, Lifetime, PlanStatus, Pool, Problem, ProblemError
from tests.support.random_problems import brute_force, from_graph, random_problem

LIVE = (Lifetime(0, 1),)


def bound(problem: Problem) -> int:
    return load_peak(Model(problem), 0).bytes


def aligned_problem(seed: int) -> Problem:
    """A one-pool problem of every feature in which alignment matters: multiples of 4, sizes that are none."""
    random = Random(seed)
    problem = random_problem(seed, 5)
    (name, *_) = (p.name for p in problem.pools)
    buffers = tuple(
        replace(
            b,
            size_bytes=random.randint(0, 14),
            alignment=random.choice([4, 4, 8]),
            pools=(),
            fixed=None if b.fixed is None else (name, 8 * (b.fixed[1] % 3)),
        )
        for b in problem.buffers
    )
    aliases = tuple(
        AliasGroup(g.name, tuple((m, random.choice([0, 0, 4, 8, -8, 3])) for m, _ in g.members))
        for g in problem.aliases
    )
    return replace(problem, pools=(Pool(name),), buffers=buffers, aliases=aliases)


@pytest.mark.parametrize("block", range(4))
def test_no_bound_is_above_the_least_height(block: int) -> None:
    compared = met = 0
    for seed in range(60 * block, 60 * block + 60):
        problem = aligned_problem(seed)
        try:
            low = bound(problem)
        except ProblemError:
            continue
        least = brute_force(problem)
        assert least is not None
        assert low <= least, seed
        answer = plan(problem)
        assert (answer.usage[0].used_bytes, answer.status) == (least, PlanStatus.OPTIMAL), seed
        compared += 1
        met += low == least
    assert compared > 40
    assert met > 0.7 * compared


def test_all_but_the_topmost_are_padded() -> None:
    """64 + 64 + 48 + 48 + 20: the plan of the lifted LSTM's peak in small."""
    buffers = tuple(Buffer(f"b{k}", size, LIVE) for k, size in enumerate((64, 64, 40, 40, 20)))
    assert bound(Problem(buffers, (Pool("m"),))) == 64 + 64 + 48 + 48 + 32 - 12


def test_a_distance_that_alignment_rules_out_is_not_counted_on() -> None:
    """An output 4 bytes behind its input lies 16 behind it when both are aligned to 16."""
    buffers = (Buffer("sum", 8192, LIVE), Buffer("pad", 10368, LIVE))
    overlap = AllowedOverlap("sum", "pad", 4, None)
    problem = Problem(buffers, (Pool("m"),), overlaps=(overlap,))
    assert bound(problem) == 10368 + 16
    assert plan(problem).status is PlanStatus.OPTIMAL
    never = replace(problem, overlaps=(replace(overlap, highest=15),))
    assert bound(never) == 8192 + 10368


def test_parts_inside_a_group_may_share_a_block() -> None:
    """Two views of 8 bytes each, side by side in one block: no padding between them."""
    buffers = tuple(Buffer(f"b{k}", 8, LIVE, 8) for k in range(2))
    group = (AliasGroup("g", (("b0", 0), ("b1", 8))),)
    assert bound(Problem(buffers, (Pool("m"),), aliases=group)) == 16
    wide = (replace(buffers[0], alignment=16), buffers[1], Buffer("other", 40, LIVE))
    assert bound(Problem(wide, (Pool("m"),), aliases=group)) == 16 + 40


@pytest.mark.parametrize("seed", range(20))
def test_the_parts_of_a_group_count_while_they_live(seed: int) -> None:
    """Parts without a common byte, each with several lifetimes, some of which follow each other at once."""
    random = Random(seed)
    parts = []
    for number in range(12):
        points = sorted(random.sample(range(60), 8))
        lives = tuple(Lifetime(a, b) for a, b in zip(points[::2], points[1::2], strict=True))
        if random.random() < 0.5:
            lives = (Lifetime(lives[0].first, lives[1].first), *lives[1:])
        parts.append(Buffer(f"b{number}", random.randint(1, 9), lives, 1))
    beside = [Buffer(f"at{point}", 1, (Lifetime(point, point + 1),), 1) for point in random.sample(range(60), 15)]
    placed = [(part.name, 9 * number) for number, part in enumerate(parts)]
    problem = Problem((*parts, *beside), (Pool("p"),), aliases=(AliasGroup("g", tuple(placed)),))
    live = {point: sum(b.size_bytes for b in problem.buffers if b.lives_at(point)) for point in range(60)}
    assert max(live[b.lifetimes[0].first] for b in beside) <= bound(problem) <= max(live.values())


def test_cliques_are_padded_too() -> None:
    ring = from_graph([20, 20, 20, 8], [(0, 1), (1, 2), (0, 2), (2, 3)], 16)
    assert bound(ring) == 32 + 32 + 20
