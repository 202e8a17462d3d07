"""Reads of bytes that their buffer did not write last: by hand, and against one writer for each byte."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest

from npu_memplan.problem import (
    AccessHistory,
    AliasGroup,
    AllowedOverlap,
    BranchPoints,
    Buffer,
    BufferAccess,
    BufferKind,
    ByteRun,
    Lifetime,
    Placement,
    Plan,
    PlanStatus,
    Pool,
    Problem,
    ProblemError,
)
from npu_memplan.problem.spans import runs_of
from npu_memplan.verify import Constraint, Violation, verify
from npu_memplan.verify.last_writers import LastWriters

A = Buffer("a", 32, (Lifetime(0, 3),), kind=BufferKind.INPUT)
B = Buffer("b", 32, (Lifetime(1, 5),))
C = Buffer("c", 32, (Lifetime(2, 6),))
POOL = Pool("sram")
At = BufferAccess
READ_A = AccessHistory("a", (At(1), At(2)))


def found(problem: Problem, *offsets: int) -> tuple[Violation, ...]:
    placements = tuple(Placement(b.name, "sram", o) for b, o in zip(problem.buffers, offsets, strict=True))
    return verify(problem, Plan(placements, (), PlanStatus.FEASIBLE, "by hand"))


def with_b(reads: tuple[At, ...], writes: tuple[At, ...], *branches: BranchPoints) -> Problem:
    return Problem((A, B), (POOL,), accesses=(READ_A, AccessHistory("b", reads, writes)), branches=branches)


def spans_of(runs: Iterable[tuple[int, int, int, int]], offset: int = 0) -> list[tuple[int, int]]:
    return [
        (offset + start + k * stride, offset + start + k * stride + size)
        for start, size, pieces, stride in runs
        for k in range(pieces)
    ]


def half(point: int, start: int = 0) -> At:
    return At(point, (ByteRun(start, 16, 1, 0),))


def test_a_slice_that_nothing_writes_is_named() -> None:
    """As when one of two calls that fill a tensor writes into a buffer of its own."""
    problem = replace(with_b((At(3), At(4)), (half(1),)), points=("in", "conv", "add", "concat"))
    (violation,) = found(problem, 0, 32)
    assert violation == Violation(
        Constraint.UNWRITTEN,
        "bytes [16, 32) of 'b' are read at point 3 (concat), but nothing has written bytes [48, 64) of pool 'sram'",
        "b", "", "sram", 48, 64, 3,
    )  # fmt: skip
    assert found(with_b((half(3),), (half(1),)), 0, 32) == ()
    strided = (At(1, (ByteRun(0, 4, 4, 8),)),)
    assert [(v.start_bytes, v.stop_bytes) for v in found(with_b((At(3),), strided), 0, 32)] == [(36, 40)]


def test_who_wrote_last_is_named() -> None:
    """An overlap that is said to be allowed, and is not right at every distance."""
    problem = replace(
        Problem((A, B), (POOL,)),
        accesses=(AccessHistory("a", (half(1), half(2, 16))), AccessHistory("b", (At(3),), (half(1), half(2, 16)))),
        overlaps=(AllowedOverlap("a", "b", -16, 16),),
    )
    assert found(problem, 16, 16) == ()
    assert found(problem, 16, 0) == ()
    (violation,) = found(problem, 0, 16)
    assert (violation.constraint, violation.buffer, violation.other, violation.point) == (
        Constraint.UNWRITTEN,
        "a",
        "b",
        2,
    )
    assert violation.message == (
        "bytes [16, 32) of 'a' are read at point 2, but 'b' wrote last bytes [16, 32) of pool 'sram'"
    )


def test_members_of_an_alias_group_write_for_each_other() -> None:
    problem = Problem((A, B, C), (POOL,), aliases=(AliasGroup("g", (("b", 0), ("c", 16))),))
    problem = replace(
        problem, accesses=(AccessHistory("b", (half(4, 16),), ()), AccessHistory("c", (half(4),), (half(2),)))
    )
    assert found(problem, 0, 32, 48) == ()
    alone = replace(problem, aliases=())
    assert [v.buffer for v in found(alone, 0, 32, 64)] == ["b"]


@pytest.mark.parametrize(
    ("accesses", "message"),
    [
        (AccessHistory("x", (At(0),)), "an access names buffer 'x', which the problem does not have"),
        (AccessHistory("b", (half(0, 17),)), "'b' is accessed at point 0 in the runs .* inside its 32 bytes"),
        (AccessHistory("b", (), (At(0, (ByteRun(0, 8, 2, 7),)),)), r"in the runs \[\(0, 8, 2, 7\)\]"),
        (AccessHistory("b", (), (At(0, (ByteRun(8, 8, 1, 0), ByteRun(0, 8, 1, 0))),)), "ascending, disjoint"),
        (AccessHistory("b", (), (At(0, (ByteRun(0, 0, 1, 0),)),)), "ascending, disjoint"),
        (AccessHistory("b", (), (At(0, (ByteRun(0, 1, 0, 0),)),)), "ascending, disjoint"),
        (AccessHistory("b", (), (At(0.5),)), "'b' is accessed at point 0.5"),  # type: ignore[arg-type]
    ],
)
def test_accesses_that_are_none_are_refused(accesses: AccessHistory, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        found(Problem((A, B), (POOL,), accesses=(accesses,)), 0, 32)


@pytest.mark.parametrize(
    "branches",
    [
        (BranchPoints(2, 1, 3),),
        (BranchPoints(1, 4, 3),),
        (BranchPoints(1, 2, 3), BranchPoints(0, 0, 1)),
        (BranchPoints(1, 3, 5), BranchPoints(2, 3, 4)),
        (BranchPoints(1, 3, 5), BranchPoints(3, 4, 6)),
    ],
)
def test_branches_that_cross_are_refused(branches: tuple[BranchPoints, ...]) -> None:
    with pytest.raises(ProblemError, match="each wholly inside one side of another or behind it"):
        found(Problem((A, B), (POOL,), branches=branches), 0, 32)


def test_random_programs_against_one_writer_for_each_byte() -> None:
    verdicts = set()
    for seed in range(400):
        problem, offsets = random_program(Random(seed))
        names = {v.buffer for v in found(problem, *offsets)}
        assert names == stale_by_byte(problem, dict(zip((b.name for b in problem.buffers), offsets, strict=True))), seed
        verdicts.add(bool(names))
    assert verdicts == {True, False}


def test_runs_of_many_shapes_against_one_writer_for_each_byte() -> None:
    for seed in range(60):
        random, writers, known = Random(seed), LastWriters(4), [0] * 120
        for _ in range(60):
            size, pieces = random.choice([(1, 6), (6, 2), (3, 3), (2, 5), (20, 1)])
            stride = size + random.randint(0, 4)
            run = ByteRun(random.randrange(40), size, pieces, stride)
            owner, touched = random.randint(1, 4), [k for start, stop in spans_of([run]) for k in range(start, stop)]
            first = next((k for k in touched if known[k] != owner), None)
            missing = writers.missing(run, owner)
            expected = None if first is None else (first, known[first])
            assert (missing and (missing[0], missing[2])) == expected, (seed, run)
            if random.random() < 0.7:
                writers.write(run, owner)
                for byte in touched:
                    known[byte] = owner


def random_program(random: Random) -> tuple[Problem, list[int]]:
    """Buffers over each other, which may all overlap, and accesses to parts of them."""
    kinds = (BufferKind.INPUT, BufferKind.TENSOR, BufferKind.STATE, BufferKind.HOST_SCRATCH)
    buffers = tuple(
        Buffer(f"b{k}", random.randint(1, 12), (Lifetime(0, 9),), 1, kind=random.choice(kinds)) for k in range(4)
    )

    def access(buffer: Buffer) -> At:
        if random.random() < 0.4:
            return At(random.randrange(8))
        chosen = sorted(random.sample(range(buffer.size_bytes + 1), min(buffer.size_bytes + 1, 4)))
        spans = tuple(zip(chosen[::2], chosen[1::2], strict=False))
        return At(random.randrange(8), tuple(ByteRun(*run) for run in runs_of(spans)))

    def several(buffer: Buffer, most: int) -> tuple[At, ...]:
        return tuple(access(buffer) for _ in range(random.randint(0, most)))

    overlaps = tuple(AllowedOverlap(a.name, b.name) for k, a in enumerate(buffers) for b in buffers[k + 1 :])
    accesses = tuple(AccessHistory(b.name, several(b, 1), several(b, 4)) for b in buffers)
    branches = random.choice([(), (BranchPoints(1, 3, 5),), (BranchPoints(1, 4, 6), BranchPoints(2, 3, 3))])
    places = [random.randrange(3) * 12 + random.randrange(2) for _ in buffers]
    return Problem(buffers, (POOL,), overlaps=overlaps, accesses=accesses, branches=branches), places


def stale_by_byte(problem: Problem, at: dict[str, int]) -> set[str]:
    """The same by a plain simulation: one writer for each byte, every way through the branches in turn."""
    sizes = {b.name: b.size_bytes for b in problem.buffers}
    stale = set()

    def touched(name: str, access: At) -> list[int]:
        spans = spans_of(access.runs) if access.runs else [(0, sizes[name])]
        return [at[name] + byte for start, stop in spans for byte in range(start, stop)]

    for way in range(1 << len(problem.branches)):
        skipped = {
            point
            for k, b in enumerate(problem.branches)
            for point in (range(b.first, b.middle) if way >> k & 1 else range(b.middle, b.last))
        }
        writers: dict[int, str] = {}
        for buffer in problem.buffers:
            if buffer.kind in (BufferKind.INPUT, BufferKind.STATE):
                writers.update(dict.fromkeys(touched(buffer.name, At(0)), buffer.name))
        for point in (p for p in range(9) if p not in skipped):
            for known in problem.accesses:
                for access in known.reads:
                    if access.point == point and any(
                        writers.get(k) != known.buffer for k in touched(known.buffer, access)
                    ):
                        stale.add(known.buffer)
            for known in problem.accesses:
                for access in known.writes:
                    if access.point == point:
                        writers.update(dict.fromkeys(touched(known.buffer, access), known.buffer))
    return stale
