"""Every planner on every feature: valid, deterministic, independent of order, optimal where small."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npu_memplan.artifact.files import read_problem
from npu_memplan.errors import InternalError
from npu_memplan.planners import Context, PlannerUseError, PlanningError, plan, register
from npu_memplan.planners.model import Model
from npu_memplan.problem import (
    AliasGroup,
    AllowedOverlap,
    Buffer,
    Lifetime,
    Placement,
    Plan,
    PlanStatus,
    Pool,
    Problem,
    ProblemError,
)
from npu_memplan.verify import VerificationError, verify
from tests.support.random_problems import BUILT_IN, brute_force, from_graph, random_problem


def attempt(problem: Problem, planner: str, **options: object) -> Plan | None:
    """The plan, or None where the problem has none or contradicts itself."""
    try:
        return plan(problem, planner, **options)  # type: ignore[arg-type]
    except (PlanningError, ProblemError):
        return None


@pytest.mark.parametrize("planner", BUILT_IN)
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10**9))
def test_plans_of_random_problems_verify(planner: str, seed: int) -> None:
    problem = random_problem(seed)
    answer = attempt(problem, planner, node_budget=300)
    if answer is not None:
        assert verify(problem, answer) == ()
        assert [p.buffer for p in answer.placements] == [b.name for b in problem.buffers]
        assert all(u.lower_bound_bytes <= u.used_bytes for u in answer.usage)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**9), shuffle=st.integers(0, 10**6))
def test_auto_ignores_the_order_of_the_input_and_repeats_itself(seed: int, shuffle: int) -> None:
    problem = random_problem(seed)
    random = Random(shuffle)
    mixed = replace(
        problem,
        buffers=tuple(random.sample(problem.buffers, len(problem.buffers))),
        conflicts=tuple(random.sample(problem.conflicts, len(problem.conflicts))),
        overlaps=tuple(random.sample(problem.overlaps, len(problem.overlaps))),
    )
    first, again, other = (attempt(p, "auto", node_budget=500) for p in (problem, problem, mixed))
    assert first == again
    assert (first is None) == (other is None)
    if first is not None and other is not None:
        assert set(first.placements) == set(other.placements)
        assert (first.usage, first.status) == (other.usage, other.status)


@pytest.mark.parametrize("block", range(6))
def test_auto_equals_brute_force_on_small_problems(block: int) -> None:
    compared = 0
    for seed in range(40 * block, 40 * block + 40):
        problem = random_problem(seed, 5)
        # one pool and small sizes, so that every offset can be tried
        pool = problem.pools[0]
        buffers = tuple(
            replace(b, pools=(), size_bytes=b.size_bytes // 4, fixed=b.fixed and (pool.name, b.fixed[1]))
            for b in problem.buffers
        )
        problem = replace(problem, pools=(pool,), buffers=buffers)
        try:
            Model(problem)
        except ProblemError:
            continue
        least = brute_force(problem)
        answer = attempt(problem, "auto")
        if least is None:
            assert answer is None, seed
            continue
        assert answer is not None, seed
        assert answer.usage[0].used_bytes == least, seed
        assert answer.status is PlanStatus.OPTIMAL, seed
        compared += 1
    assert compared > 20


def test_real_and_legacy_instances_are_optimal(
    small_instances: list[tuple[str, Problem, dict[str, int]]], shared_instances: Callable[[str], Path]
) -> None:
    """Optimal with proof, and never above what the legacy planners reached."""
    for name, problem, legacy in small_instances:
        answer = plan(problem)
        assert answer.status is PlanStatus.OPTIMAL, name
        height = answer.usage[0].used_bytes
        if name != "fanout":  # its legacy numbers come from asymmetric conflicts, see below
            assert height <= legacy["hill_climb"], name
        assert height == legacy.get("optimum", legacy.get("pressure", height)), name
    for path in sorted(shared_instances("tflite").glob("*.csv")):
        assert plan(read_problem(path)).status is PlanStatus.OPTIMAL, path.stem


def test_str_ww_is_settled(small_instances: list[tuple[str, Problem, dict[str, int]]]) -> None:
    """Legacy hill-climb stopped at 26,496; the bound of 26,176 is reached."""
    problem = next(p for name, p, _ in small_instances if name == "str_ww_ref_model")
    answer = plan(problem)
    assert (answer.usage[0].used_bytes, answer.status) == (26176, PlanStatus.OPTIMAL)


# -- what a problem may say ----------------------------------------------------


def chain(*sizes: int) -> tuple[Buffer, ...]:
    return tuple(Buffer(f"t{k}", size, (Lifetime(k, k + 2),), 16) for k, size in enumerate(sizes))


def test_in_place_and_partial_overlap_are_used_and_proven() -> None:
    buffers = chain(160, 160, 160, 160)
    plain = plan(Problem(buffers, (Pool("m"),)))
    in_place = tuple(AllowedOverlap(f"t{k}", f"t{k + 1}", 0, 0, "elementwise") for k in range(3))
    trailing = tuple(AllowedOverlap(f"t{k}", f"t{k + 1}", None, -32, "rows") for k in range(3))
    same = plan(Problem(buffers, (Pool("m"),), overlaps=in_place))
    rows = plan(Problem(buffers, (Pool("m"),), overlaps=trailing))
    heights = [p.usage[0].used_bytes for p in (plain, same, rows)]
    assert heights == [320, 160, 256]
    assert all(p.status is PlanStatus.OPTIMAL for p in (plain, same, rows))


def test_alias_groups_move_as_one_and_may_start_below_their_leader() -> None:
    parts = (Buffer("view", 32, (Lifetime(1, 2),)), Buffer("base", 64, (Lifetime(0, 2),)))
    other = Buffer("other", 48, (Lifetime(0, 1),))
    problem = Problem((*parts, other), (Pool("m"),), aliases=(AliasGroup("slice", (("view", 0), ("base", -32))),))
    answer = plan(problem)
    assert answer.placement("view").offset_bytes - answer.placement("base").offset_bytes == 32
    assert (answer.usage[0].used_bytes, answer.status) == (112, PlanStatus.OPTIMAL)


def test_impossible_alias_groups_are_refused() -> None:
    lives = (Lifetime(0, 1),)
    a, b = Buffer("a", 8, lives, 16), Buffer("b", 8, lives, 16)
    group = (AliasGroup("g", (("a", 0), ("b", 8))),)
    with pytest.raises(ProblemError, match="cannot be aligned: 'b' at inner offset 8"):
        plan(Problem((a, b), (Pool("m"),), aliases=group))
    even = (AliasGroup("g", (("a", 0), ("b", 0))),)
    fixed = replace(a, fixed=("m", 0)), replace(b, fixed=("m", 16))
    with pytest.raises(ProblemError, match="fixed at two places"):
        plan(Problem(fixed, (Pool("m"),), aliases=even))
    apart = replace(a, pools=("m",)), replace(b, pools=("n",))
    with pytest.raises(ProblemError, match="no pool that all of its members may live in"):
        plan(Problem(apart, (Pool("m"), Pool("n")), aliases=even))
    low = replace(a, fixed=("m", 0)), b
    with pytest.raises(ProblemError, match="fixed where another member would be misplaced"):
        plan(Problem(low, (Pool("m"),), aliases=(AliasGroup("g", (("a", 16), ("b", 0))),)))


def test_fixed_buffers_that_collide_are_refused() -> None:
    lives = (Lifetime(0, 1),)
    a = Buffer("a", 32, lives, fixed=("m", 0))
    b = Buffer("b", 32, lives, fixed=("m", 16))
    with pytest.raises(ProblemError, match="'a' and 'b' conflict but are fixed on the same bytes of pool 'm'"):
        plan(Problem((a, b), (Pool("m"),)))
    later = replace(b, lifetimes=(Lifetime(1, 2),))
    assert plan(Problem((a, later), (Pool("m"),))).usage[0].used_bytes == 48


def test_no_buffers_and_empty_buffers() -> None:
    assert plan(Problem((), (Pool("m", 0),))).status is PlanStatus.OPTIMAL
    nothing = Buffer("nothing", 0, (Lifetime(0, 1),))
    for planner in BUILT_IN:
        assert plan(Problem((nothing,), (Pool("m", 0),)), planner).usage[0].used_bytes == 0


# -- the interface ----------------------------------------------------------------


def test_a_users_planner_is_a_decorated_function() -> None:
    @register("mine")
    def mine(problem: Problem, context: Context) -> list[Placement]:
        """All of it in a row."""
        at, placed = 0, []
        for buffer in problem.buffers:
            at += -at % buffer.alignment
            placed.append(Placement(buffer.name, problem.pools[0].name, at))
            at += buffer.size_bytes
        return placed

    answer = plan(Problem(chain(16, 32, 48), (Pool("m"),)), "mine")
    assert (answer.planner, answer.usage[0].used_bytes, answer.status) == ("mine", 96, PlanStatus.FEASIBLE)

    @register("mine")
    def wrong(problem: Problem, context: Context) -> list[Placement]:
        return [Placement(b.name, problem.pools[0].name, 0) for b in problem.buffers]

    with pytest.raises(InternalError, match="'t0' and 't1' share bytes"):
        plan(Problem(chain(16, 32), (Pool("m"),)), "mine")


def test_a_users_planner_that_invents_or_forgets_is_reported() -> None:
    problem = Problem(chain(16, 32), (Pool("m"),))
    for placements, message in (
        ([], "'t0' has no placement"),
        ([Placement("t0", "m", 0), Placement("x", "m", 0)], "'x' is placed but not in the problem"),
        ([Placement("t0", "n", 0), Placement("t1", "m", 0)], "pool 'n', which does not exist"),
        ([Placement("t0", "m", 0), Placement("t0", "m", 32), Placement("t1", "m", 64)], "two placements"),
    ):
        register("forgetful")(lambda problem, context, placements=placements: placements)
        with pytest.raises(InternalError, match=message):
            plan(problem, "forgetful")


def test_unknown_planner_and_bad_budgets() -> None:
    problem = Problem(chain(16), (Pool("m"),))
    with pytest.raises(PlannerUseError, match=r"no planner is called 'best'; there are: .*auto.*"):
        plan(problem, "best")
    for limit in (float("nan"), float("inf"), -1.0):
        with pytest.raises(PlannerUseError, match="time limit"):
            plan(problem, time_limit_s=limit)
    with pytest.raises(PlannerUseError, match="node budget"):
        plan(problem, node_budget=-1)


def test_a_plan_is_never_worse_than_its_incumbent() -> None:
    for seed in range(60):
        problem = random_problem(seed)
        known = attempt(problem, "auto")
        if known is None:
            continue
        for planner in ("linear", "greedy-by-conflicts", "first-fit"):
            answer = plan(problem, planner, incumbent=known)
            assert sum(u.used_bytes for u in answer.usage) <= sum(u.used_bytes for u in known.usage) or (
                answer.placements != known.placements
            )
    small = Problem(chain(16, 16, 16), (Pool("m", 32),))
    known = plan(small)
    kept = plan(small, "linear", incumbent=known)  # linear alone does not fit 32 bytes
    assert (kept.placements, kept.planner) == (known.placements, "auto")
    with pytest.raises(VerificationError):
        plan(small, incumbent=replace(known, placements=known.placements[:1]))


def test_time_limit_and_node_budget_are_in_the_plan() -> None:
    problem = Problem(chain(16, 32), (Pool("m"),))
    assert plan(problem, time_limit_s=5, node_budget=7, seed=3).budget == "5 s, 7 nodes"
    assert plan(problem, seed=3).seed == 3
    spent = plan(random_interval_problem(80), "auto", time_limit_s=0)
    assert verify(random_interval_problem(80), spent) == ()
    assert spent.status is PlanStatus.OPTIMAL or spent.stopped_early


def random_interval_problem(count: int, seed: int = 1) -> Problem:
    random = Random(seed)
    starts = [random.randint(0, 60) for _ in range(count)]
    return Problem(
        tuple(
            Buffer(f"b{k}", random.randint(1, 999), (Lifetime(at, at + random.randint(1, 20)),), 1)
            for k, at in enumerate(starts)
        ),
        (Pool("m"),),
    )


# -- what does not fit --------------------------------------------------------------


def test_no_fit_says_required_available_excess_peak_largest_and_remedy() -> None:
    problem = replace(
        Problem(chain(16, 64, 48, 32), (Pool("sram", 100),), name="kws"), points=("in", "conv", "add", "pool", "out")
    )
    with pytest.raises(PlanningError) as caught:
        plan(problem)
    error = caught.value
    assert (error.required_bytes, error.available_bytes, error.excess_bytes) == (112, 100, 12)
    assert (error.pool, error.point, error.point_label, error.proven) == ("sram", 2, "add", True)
    assert error.largest == (("t1", 64), ("t2", 48))
    assert error.subset == ("t1", "t2")
    assert str(error) == (
        "the buffers of problem 'kws' do not fit pool 'sram': required 112 bytes, available 100, excess 12\n"
        "  memory is fullest at point 2 (add); largest buffers there:\n"
        "    t1: 64 bytes\n"
        "    t2: 48 bytes\n"
        "  these 2 cannot be together in 100 bytes: t1, t2\n"
        "  to make it fit: enlarge pool 'sram' by 12 bytes, or add a second pool that buffers may spill to, "
        "or make the buffers at the peak smaller or shorter-lived"
    )


def test_infeasible_although_every_clique_fits() -> None:
    """Five in a ring, each in the way of the next: any two fit 2 bytes, all five need 3."""
    ring = [(k, (k + 1) % 5) for k in range(5)]
    extra = from_graph([1] * 7, [*ring, (5, 6)])
    answer = plan(extra)
    assert (answer.usage[0].used_bytes, answer.usage[0].lower_bound_bytes) == (3, 3)
    assert answer.status is PlanStatus.OPTIMAL
    with pytest.raises(PlanningError) as caught:
        plan(from_graph([1] * 7, [*ring, (5, 6)], capacity=2))
    assert caught.value.subset == ("n0", "n1", "n2", "n3", "n4")
    assert caught.value.proven


def test_another_pool_is_offered_as_remedy() -> None:
    stuck = tuple(replace(b, pools=("sram",)) for b in chain(64, 64))
    with pytest.raises(PlanningError, match="let 't0' live in 'dram' too"):
        plan(Problem(stuck, (Pool("sram", 100), Pool("dram"))))


def test_a_greedy_planner_that_fails_does_not_claim_a_proof() -> None:
    problem = from_graph([3, 3, 2, 2], [(0, 1), (1, 2), (2, 3)], capacity=6)
    assert plan(problem).usage[0].used_bytes <= 6
    lives = [Lifetime(k, k + 1) for k in range(3)]
    tight = Problem(tuple(Buffer(f"x{k}", 4, (life,), 1) for k, life in enumerate(lives)), (Pool("m", 8),))
    with pytest.raises(PlanningError) as caught:
        plan(tight, "linear")
    assert not caught.value.proven
    assert "(a better plan may exist)" in str(caught.value)


# -- imports ---------------------------------------------------------------------------


def test_planning_imports_no_tvm_or_numpy() -> None:
    """Not when imported, and not while small problems are planned and verified."""
    code = """
import json, sys
from npu_memplan import planners, problem, verify
import npu_memplan.artifact.files
P = problem
buffers = tuple(P.Buffer(f"t{k}", 16 * (k % 3 + 1), (P.Lifetime(k, k + 3),)) for k in range(20))
answer = planners.plan(P.Problem(buffers, (P.Pool("m"),)))
heavy = [m for m in ("tvm", "tvm_ffi", "ethosu", "numpy", "tflite") if m in sys.modules]
print(json.dumps([answer.status.value, heavy]))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(result.stdout) == ["optimal", []]
