"""The compiled search for aliases, overlaps, fixed places and any conflicts: exact where small, near where large."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from npu_memplan.planners import PlanningError, plan
from npu_memplan.planners.bounds import live_peak, load_peak
from npu_memplan.planners.first_fit import by_size, first_fit, fixed_first
from npu_memplan.planners.general import General, infeasible_subset, run
from npu_memplan.planners.model import Model
from npu_memplan.planners.registry import Context
from npu_memplan.problem import (
    AliasGroup,
    AllowedOverlap,
    Buffer,
    Lifetime,
    Plan,
    PlanStatus,
    Pool,
    Problem,
    ProblemError,
)
from npu_memplan.verify import verify
from tests.support.random_problems import brute_force, from_graph, random_problem


def searched(model: Model, low: int = 0, nodes: int = 3000, enough: int | None = None) -> General:
    """The search over all of a one-pool problem, from a single pass of first fit."""
    layout = first_fit(model, fixed_first(model, by_size(model)), limit=[None])
    assert not isinstance(layout, int)
    items = [item for item in model.items if item.size]
    search = General.over(model, items, low, [layout.origins[item.index] for item in items])
    assert search is not None
    run(search, Context(model, 0, nodes), enough)
    return search


@pytest.mark.parametrize("block", range(3))
def test_general_search_equals_brute_force(block: int) -> None:
    compared = 0
    for seed in range(50 * block, 50 * block + 50):
        problem = random_problem(seed, 5)
        pool = replace(problem.pools[0], size_bytes=None)
        buffers = tuple(
            replace(b, pools=(), size_bytes=1 + b.size_bytes // 4, fixed=b.fixed and (pool.name, b.fixed[1]))
            for b in problem.buffers
        )
        problem = replace(problem, pools=(pool,), buffers=buffers)
        try:
            model = Model(problem)
        except ProblemError:
            continue
        if not buffers:
            continue
        search = searched(model)
        assert search.low == search.best == brute_force(problem), seed
        origins = [0] * len(model.items)
        for item, at in zip(search.items, search.origins, strict=True):
            origins[item.index] = at
        placements = model.placements([0] * len(origins), origins)
        assert verify(problem, Plan(placements, (), PlanStatus.FEASIBLE, "general")) == (), seed
        compared += 1
    assert compared > 30


def chain(count: int, seed: int, size: int | None = None) -> Problem:
    """Operators in a row with uses up to six steps back, every second one in place, every fourth one with a
    padded copy of its input that its output may trail by 4 bytes."""
    random = Random(seed)
    last = list(range(1, count + 1))
    buffers, overlaps = [], []
    for k in range(1, count):
        back = random.randint(0, 6)
        if k > back:
            last[k - 1 - back] = max(last[k - 1 - back], k + 1)
    sizes = [size or random.randint(50, 400) for _ in range(count)]
    for k in range(count):
        buffers.append(Buffer(f"t{k}", sizes[k], (Lifetime(2 * k, 2 * last[k] + 2),)))
        if k % 4 == 3:
            padded = Buffer(f"p{k}", sizes[k] + sizes[k] // 4, (Lifetime(2 * k - 1, 2 * k + 1),))
            buffers.append(padded)
            overlaps.append(AllowedOverlap(f"t{k}", f"p{k}", 4, None, "read ahead of what is written"))
        elif k % 2 and last[k - 1] == k:
            overlaps.append(AllowedOverlap(f"t{k - 1}", f"t{k}", 0, 0, "in place"))
    return Problem(tuple(buffers), (Pool("m"),), overlaps=tuple(overlaps))


@pytest.mark.parametrize("count", [60, 200])
def test_chains_of_operators_are_proven_least(count: int) -> None:
    for problem in (chain(count, 1, 8192), chain(count, 2)):
        answer = plan(problem)
        assert answer.status is PlanStatus.OPTIMAL
        assert answer == plan(problem)


def mixed(count: int, seed: int) -> Problem:
    """Lifetimes with aliases, in-place pairs, conflicts beyond time and one fixed buffer."""
    random = Random(seed)
    buffers = []
    for k in range(count):
        at = random.randint(0, count)
        buffers.append(Buffer(f"b{k}", random.randint(20, 2000), (Lifetime(at, at + random.randint(1, 12)),)))
    buffers[0] = replace(buffers[0], fixed=("m", 0))
    aliases, overlaps = [], []
    for k in range(1, count, 12):
        whole = buffers[k]
        after = Lifetime(whole.lifetimes[0].last, whole.lifetimes[0].last + 4)
        buffers.append(Buffer(f"v{k}", max(1, whole.size_bytes // 3), (after,), 1))
        aliases.append(AliasGroup(f"g{k}", ((whole.name, 0), (f"v{k}", random.randint(0, whole.size_bytes // 2)))))
    for k in range(2, count - 1, 5):
        overlaps.append(AllowedOverlap(f"b{k}", f"b{k + 1}", None, random.choice([0, -16, -100])))
    conflicts = tuple((f"b{k}", f"b{(7 * k + 3) % count}") for k in range(4, count, 6) if (7 * k + 3) % count != k)
    return Problem(tuple(buffers), (Pool("m"),), conflicts, tuple(aliases), tuple(overlaps))


def test_a_capacity_is_met_or_proven_too_small() -> None:
    problem = mixed(80, 3)
    least = plan(problem).usage[0]
    assert least.used_bytes == least.lower_bound_bytes
    held = replace(problem, pools=(Pool("m", least.used_bytes),))
    assert plan(held).usage[0].used_bytes == least.used_bytes


def test_a_proof_beyond_the_bound_names_an_irreducible_subset() -> None:
    """Two rings of five, and fifty others: any two neighbours fit 2 bytes, five in a ring need 3."""
    ring = [(k, (k + 1) % 5) for k in range(5)]
    problem = from_graph([1] * 60, [*ring, *((a + 5, b + 5) for a, b in ring)], capacity=2)
    overlap = (AllowedOverlap("n0", "n20", 0, 0), AllowedOverlap("n30", "n31", 0, 0))
    problem = replace(problem, overlaps=overlap, conflicts=(*problem.conflicts, ("n0", "n20")))
    with pytest.raises(PlanningError) as caught:
        plan(problem)
    assert caught.value.proven
    assert caught.value.required_bytes == 3
    assert caught.value.subset in (tuple(f"n{k}" for k in range(5)), tuple(f"n{k}" for k in range(5, 10)))


def test_infeasible_subsets_are_infeasible_and_irreducible() -> None:
    model = Model(mixed(40, 5))
    search = searched(model, load_peak(model, 0).bytes, 30_000)
    assert search.low == search.best
    ceiling = search.best - 1
    context = Context(model)
    kept = infeasible_subset(search, model, ceiling, context)

    def infeasible(positions: list[int]) -> bool:
        if live_peak(model, [search.items[k] for k in positions]).bytes > ceiling:
            return True
        part = General.over(model, [search.items[k] for k in positions], 0, [search.origins[k] for k in positions])
        assert part is not None
        part.call(ceiling, 10_000, 0.0, 1)
        return part.low > ceiling

    assert infeasible(kept)
    assert not any(infeasible([k for k in kept if k != left]) for left in kept)


def test_padding_is_planned_well_with_one_alignment_and_with_several() -> None:
    """Odd sizes: where the search by sections alone stays 2 to 9 % above the bound."""
    random = Random(5)
    sizes = [(random.randint(0, 30), random.randint(1, 6), random.randint(1, 400)) for _ in range(60)]
    for alignments, most in (((16,), 1.005), ((1, 16, 64), 1.05)):
        buffers = tuple(
            Buffer(f"b{k}", size, (Lifetime(at, at + live),), alignments[k % len(alignments)])
            for k, (at, live, size) in enumerate(sizes)
        )
        problem = Problem(buffers, (Pool("m"),))
        (usage,) = plan(problem, node_budget=50_000).usage
        assert usage.used_bytes <= most * usage.lower_bound_bytes
