"""Each constraint of a plan, broken one at a time; random plans against an oracle; mutations."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from npu_memplan.errors import InternalError
from npu_memplan.planners import PlanningError, plan
from npu_memplan.problem import (
    AccessHistory,
    Agent,
    AliasGroup,
    AllowedOverlap,
    Buffer,
    BufferAccess,
    BufferKind,
    Lifetime,
    Placement,
    Plan,
    PlanStatus,
    Pool,
    PoolUsage,
    Problem,
    ProblemError,
    used_bytes,
)
from npu_memplan.verify import Constraint, VerificationError, check, check_own, verify
from tests.support.random_problems import pairs_of, random_problem, share

A = Buffer("a", 32, (Lifetime(0, 2),))
B = Buffer("b", 32, (Lifetime(1, 3),))
SRAM = Pool("sram", 128)
DRAM = Pool("dram", agents=frozenset((Agent.NPU,)))
BASE = Problem((A, B), (SRAM, DRAM), points=("conv", "add"), name="base")


def plan_of(*placements: tuple[str, str, int], usage: tuple[PoolUsage, ...] = ()) -> Plan:
    return Plan(tuple(Placement(*p) for p in placements), usage, PlanStatus.FEASIBLE, "by hand")


def constraints(problem: Problem, *placements: tuple[str, str, int]) -> list[Constraint]:
    return [v.constraint for v in verify(problem, plan_of(*placements))]


def test_a_right_plan_has_no_violations() -> None:
    good = plan_of(("a", "sram", 0), ("b", "sram", 32), usage=(PoolUsage("sram", 64, 64),))
    assert verify(BASE, good) == ()
    check(BASE, good)


def test_a_wrong_plan_of_our_own_is_an_internal_error() -> None:
    check_own(BASE, plan_of(("a", "sram", 0), ("b", "sram", 32), usage=(PoolUsage("sram", 64, 64),)))
    with pytest.raises(InternalError, match="overlap"):
        check_own(BASE, plan_of(("a", "sram", 0), ("b", "sram", 16)))


def test_overlap_names_both_buffers_bytes_and_point() -> None:
    (violation,) = verify(BASE, plan_of(("a", "sram", 0), ("b", "sram", 16)))
    assert (violation.constraint, violation.buffer, violation.other) == (Constraint.OVERLAP, "a", "b")
    assert (violation.pool, violation.start_bytes, violation.stop_bytes, violation.point) == ("sram", 16, 32, 1)
    assert violation.message == "'a' and 'b' share bytes [16, 32) of pool 'sram' at point 1 (add)"


def test_outside_pool() -> None:
    assert constraints(BASE, ("a", "sram", 112), ("b", "sram", 0)) == [Constraint.OUTSIDE]
    assert constraints(BASE, ("a", "sram", -16), ("b", "sram", 32)) == [Constraint.OUTSIDE]
    anywhere = Problem((A,), (Pool("heap"),))
    (violation,) = verify(anywhere, plan_of(("a", "heap", -16)))
    assert violation.message == "'a' takes bytes [-16, 16) of pool 'heap' (unbounded)"


def test_misaligned() -> None:
    assert constraints(BASE, ("a", "sram", 8), ("b", "sram", 48)) == [Constraint.MISALIGNED]


def test_unreachable_pool() -> None:
    (violation,) = verify(BASE, plan_of(("a", "dram", 0), ("b", "sram", 0)))
    assert (violation.constraint, violation.buffer, violation.pool) == (Constraint.UNREACHABLE, "a", "dram")


def test_resident_constants_live_through_the_program_in_a_writable_pool() -> None:
    kept = Buffer("kept", 32, (Lifetime(0, 2),), kind=BufferKind.RESIDENT)
    problem = replace(BASE, buffers=(kept,))
    assert constraints(problem, ("kept", "sram", 0)) == []
    shorter = replace(problem, buffers=(replace(kept, lifetimes=(Lifetime(1, 2),)),))
    assert constraints(shorter, ("kept", "sram", 0)) == [Constraint.RESIDENT]
    split = replace(problem, buffers=(replace(kept, lifetimes=(Lifetime(0, 1), Lifetime(1, 2))),))
    assert constraints(split, ("kept", "sram", 0)) == []
    fixed = replace(kept, fixed=("sram", 0))
    flash = replace(problem, buffers=(fixed,), pools=(Pool("sram", 128, read_only=True), DRAM))
    assert constraints(flash, ("kept", "sram", 0)) == [Constraint.RESIDENT]


def test_resident_constants_are_never_written() -> None:
    kept = Buffer("kept", 32, (Lifetime(0, 2),), kind=BufferKind.RESIDENT)
    read = AccessHistory("kept", reads=(BufferAccess(1),))
    problem = replace(BASE, buffers=(kept,), accesses=(read,))
    assert Constraint.RESIDENT not in constraints(problem, ("kept", "sram", 0))
    written = replace(problem, accesses=(replace(read, writes=(BufferAccess(1),)),))
    (violation,) = [v for v in verify(written, plan_of(("kept", "sram", 0))) if v.constraint is Constraint.RESIDENT]
    assert (violation.buffer, violation.point) == ("kept", 1)
    assert violation.message == "'kept' is put into its pool once, and written at point 1 (add)"


def test_missing_unknown_and_duplicate() -> None:
    assert constraints(BASE, ("a", "sram", 0)) == [Constraint.MISSING]
    assert constraints(BASE, ("a", "sram", 0), ("b", "sram", 32), ("c", "sram", 64)) == [Constraint.UNKNOWN]
    assert constraints(BASE, ("a", "sram", 0), ("b", "tcm", 32)) == [Constraint.UNKNOWN, Constraint.MISSING]
    assert constraints(BASE, ("a", "sram", 0), ("b", "sram", 32), ("a", "sram", 0)) == [Constraint.DUPLICATE]
    assert constraints(BASE, ("a", "sram", 0), ("b", "sram", 32.0)) == [Constraint.UNKNOWN, Constraint.MISSING]  # type: ignore[arg-type]


def test_moved_fixed_buffer() -> None:
    fixed = replace(BASE, buffers=(replace(A, fixed=("sram", 64)), B))
    assert constraints(fixed, ("a", "sram", 64), ("b", "sram", 0)) == []
    assert constraints(fixed, ("a", "sram", 32), ("b", "sram", 0)) == [Constraint.MOVED]
    assert constraints(fixed, ("a", "dram", 64), ("b", "sram", 0)) == [Constraint.MOVED]


def test_alias_group_stays_together_and_may_share() -> None:
    group = replace(BASE, aliases=(AliasGroup("view", (("a", 0), ("b", 16))), AliasGroup("empty", ())))
    assert constraints(group, ("a", "sram", 0), ("b", "sram", 16)) == []
    assert constraints(group, ("a", "sram", 0), ("b", "sram", 64)) == [Constraint.ALIAS]
    assert constraints(group, ("a", "sram", 0), ("b", "dram", 16)) == [Constraint.UNREACHABLE, Constraint.ALIAS]


@pytest.mark.parametrize(("first", "second", "sign"), [("a", "b", 1), ("b", "a", -1)])
def test_allowed_overlap_only_at_its_distances(first: str, second: str, sign: int) -> None:
    low, high = sorted((16 * sign, 16 * sign))
    allowed = replace(BASE, overlaps=(AllowedOverlap(first, second, low, high),))
    assert constraints(allowed, ("a", "sram", 0), ("b", "sram", 16)) == []
    assert constraints(allowed, ("a", "sram", 16), ("b", "sram", 0)) == [Constraint.OVERLAP]
    assert constraints(allowed, ("a", "sram", 0), ("b", "sram", 0)) == [Constraint.OVERLAP]


def test_explicit_conflict_needs_no_common_point() -> None:
    apart = Problem((A, replace(B, lifetimes=(Lifetime(5, 6),))), (SRAM,), (("a", "b"),))
    (violation,) = verify(apart, plan_of(("a", "sram", 0), ("b", "sram", 0)))
    assert (violation.constraint, violation.point) == (Constraint.OVERLAP, None)
    assert "lists the pair as a conflict" in violation.message
    assert constraints(apart, ("a", "sram", 0)) == [Constraint.MISSING]


def test_stated_heights_must_be_true() -> None:
    wrong = plan_of(("a", "sram", 0), ("b", "sram", 32), usage=(PoolUsage("sram", 63, 0), PoolUsage("dram", 0, 0)))
    (violation,) = verify(BASE, wrong)
    assert violation.constraint is Constraint.USAGE
    assert "states 63 bytes used of pool 'sram', its placements end at 64" in violation.message


def test_check_raises_with_all_of_them() -> None:
    many = Problem(tuple(replace(A, name=f"s{k}") for k in range(5)), (SRAM,), name="many")
    with pytest.raises(VerificationError, match=r"'by hand' for problem 'many' violates 10 constraints") as caught:
        check(many, plan_of(*((f"s{k}", "sram", 0) for k in range(5))))
    assert len(caught.value.violations) == 10
    assert "and 5 more" in str(caught.value)
    with pytest.raises(VerificationError, match="violates 1 constraint:"):
        check(BASE, plan_of(("a", "sram", 0)))


def test_a_contradictory_problem_is_no_plan_fault() -> None:
    with pytest.raises(ProblemError):
        verify(replace(BASE, buffers=(A, A)), plan_of())


@pytest.mark.parametrize("seed", range(150))
def test_overlaps_equal_an_oracle(seed: int) -> None:
    """Placements at random: the pairs reported are exactly those that share a byte by definition."""
    problem = random_problem(seed)
    random = Random(seed)
    at = [
        Placement(b.name, random.choice(problem.pools).name, b.alignment * random.randint(0, 6))
        for b in problem.buffers
    ]
    by_name = {p.buffer: p for p in at}
    try:
        found = verify(problem, Plan(tuple(at), (), PlanStatus.FEASIBLE, "random"))
    except ProblemError:
        return
    reported = {frozenset((v.buffer, v.other)) for v in found if v.constraint is Constraint.OVERLAP}
    expected = {
        frozenset((a.name, b.name)) for a, b in pairs_of(problem) if share(problem, by_name[a.name], by_name[b.name])
    }
    assert reported == expected


def mutations(problem: Problem, good: Plan, random: Random) -> list[tuple[str, Plan]]:
    """Plans that differ from `good` in one placement or are short of or over one."""
    found = []
    for k, p in enumerate(good.placements):
        rest = (*good.placements[:k], *good.placements[k + 1 :])
        found.append(("dropped", replace(good, placements=rest)))
        found.append(("doubled", replace(good, placements=(*good.placements, p))))
        for step in (-64, -16, -1, 1, 16, 64, random.randint(-200, 200)):
            moved = replace(p, offset_bytes=p.offset_bytes + step)
            found.append(("moved", replace(good, placements=(*rest[:k], moved, *rest[k:]))))
        for pool in problem.pools:
            if pool.name != p.pool:
                found.append(("pool", replace(good, placements=(*rest[:k], replace(p, pool=pool.name), *rest[k:]))))
        other = random.choice(good.placements)
        swapped = replace(p, offset_bytes=other.offset_bytes, pool=other.pool)
        found.append(("onto", replace(good, placements=(*rest[:k], swapped, *rest[k:]))))
    return found


def violates_a_constraint(problem: Problem, mutant: Plan) -> bool:
    """The constraints again, straight from their definitions (quadratic, byte by byte)."""
    at: dict[str, Placement] = {}
    for p in mutant.placements:
        if p.buffer in at:
            return True
        at[p.buffer] = p
    if set(at) != {b.name for b in problem.buffers}:
        return True
    for b in problem.buffers:
        p = at[b.name]
        pool = problem.pool(p.pool)
        outside = p.offset_bytes < 0 or (
            pool.size_bytes is not None and p.offset_bytes + b.size_bytes > pool.size_bytes
        )
        if outside or p.offset_bytes % b.alignment:
            return True
        if b.fixed is not None and b.fixed != (p.pool, p.offset_bytes):
            return True
        if b.fixed is None and pool not in problem.candidates(b):
            return True
    for group in problem.aliases:
        if len({(at[n].pool, at[n].offset_bytes - inner) for n, inner in group.members}) > 1:
            return True
    return any(share(problem, at[a.name], at[b.name]) for a, b in pairs_of(problem))


def test_every_breaking_mutation_is_caught() -> None:
    caught = kept = 0
    for seed in range(120):
        problem = random_problem(seed, 6)
        try:
            good = plan(problem, "first-fit")
        except (PlanningError, ProblemError):
            continue
        for what, mutant in mutations(problem, good, Random(seed)):
            # heights are a constraint of their own: state them as they are
            names = {b.name for b in problem.buffers}
            heights = used_bytes(problem, [p for p in mutant.placements if p.buffer in names])
            mutant = replace(mutant, usage=tuple(PoolUsage(n, h, 0) for n, h in heights.items()))
            broken = violates_a_constraint(problem, mutant)
            assert bool(verify(problem, mutant)) is broken, (seed, what)
            caught += broken
            kept += not broken
    assert caught > 2000
    assert kept > 50
