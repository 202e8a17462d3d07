"""Closed forms of the verification against every execution, on random loop nests."""

from __future__ import annotations

import random

import numpy as np
import pytest

pytest.importorskip("tvm")

from tvm import tirx

from npu_memplan.transform.verification.accesses import (
    Nest,
    Undecided,
    begins_with_write,
    executions,
    linear,
    never_meets,
)

LENGTH = 64
A, B = (tirx.decl_buffer((LENGTH,), "int32", name=name) for name in ("a", "b"))


def nest_of(generator: random.Random) -> Nest:
    """Loops around one or two statements that read A and B and write B."""
    loops = [tirx.Var(f"i{k}", "int64") for k in range(3)]
    extents = [generator.randint(1, 3) for _ in loops]

    def index(depth: int):
        found = tirx.IntImm("int64", generator.randint(0, 12))
        for var in loops[:depth]:
            found = found + var * generator.choice((0, 0, 1, 2, 3, 6))
        return found

    def store(depth: int):
        to = index(depth)
        source = B if generator.random() < 0.3 else A
        at = to if source is B else index(depth)
        return tirx.BufferStore(B, tirx.BufferLoad(source, [at]), [to])

    def zero(depth: int, inside):
        clear = tirx.BufferStore(B, tirx.IntImm("int32", 0), [inside.indices[0]])
        if generator.random() < 0.5:
            clear = tirx.IfThenElse(tirx.EQ(loops[depth - 1], tirx.IntImm("int64", 0)), clear, None)
        return clear

    inner = store(3)
    body = tirx.SeqStmt([zero(3, inner), inner]) if generator.random() < 0.5 else inner
    for depth in (2, 1, 0):
        body = tirx.For(loops[depth], 0, extents[depth], tirx.ForKind.SERIAL, body)
        if depth and generator.random() < 0.4:
            body = tirx.SeqStmt([body, store(depth)] if generator.random() < 0.5 else [store(depth), body])
    nest = Nest()
    nest.visit(body)
    return nest


def happens(first, second, at: int, behind: int) -> bool:
    """Whether an execution of `second` meets what an earlier one of `first` touched, by looking at all of them."""
    (t, x), (u, y) = (executions(a, {}, 4) for a in (first, second))
    apart = abs((x + at)[:, None] - (y + behind)[None, :]) >= 4
    return bool(np.any(~apart & (t[:, None] < u[None, :])))


def test_what_is_proven_never_happens_and_much_is_proven():
    generator = random.Random(3)
    proven = possible = 0
    for _ in range(150):
        accesses = nest_of(generator).accesses
        for first in (a for a in accesses if a.writes):
            for second in (a for a in accesses if not a.writes and a.buffer.same_as(A)):
                at, behind = generator.choice((0, -8, 4, -40)), generator.choice((0, 8, 60))
                found = happens(first, second, at, behind)
                if never_meets(first, at, second, behind, {}):
                    proven += 1
                    assert not found
                possible += not found
    assert proven > possible * 0.7


def test_a_read_that_begins_with_a_write_has_one_before_it():
    generator = random.Random(4)
    proven = 0
    for _ in range(200):
        accesses = nest_of(generator).accesses
        writes = [a for a in accesses if a.writes]
        for read in (a for a in accesses if not a.writes and a.buffer.same_as(B)):
            if not begins_with_write(read, writes):
                continue
            proven += 1
            times, places = executions(read, {}, 4)
            for time, place in zip(times, places, strict=True):
                stored = [executions(w, {}, 4) for w in writes]
                assert any(np.any((t < time) & (p == place)) for t, p in stored)
    assert proven > 10


def test_what_is_not_linear_proves_nothing():
    i, j = tirx.Var("i", "int64"), tirx.Var("j", "int64")
    assert linear(3 * i + (j - 2) * 4, {}) == (-8, {i: 3, j: 4})
    assert linear(i * j, {j: 5}) == (0, {i: 5})
    for odd in (i * j, i // 2, i % 4):
        with pytest.raises(Undecided):
            linear(odd, {})
    nest = Nest()
    nest.visit(tirx.For(i, 0, 8, tirx.ForKind.SERIAL, tirx.BufferStore(B, tirx.BufferLoad(A, [i // 2]), [i])))
    load, store = nest.accesses
    assert not never_meets(store, 1000, load, 0, {})
