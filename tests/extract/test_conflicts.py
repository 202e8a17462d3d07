"""The conflict set equals, pair by pair, what running the program point by point finds."""

from __future__ import annotations

import itertools
import random

import pytest

pytest.importorskip("tvm")

import tvm
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from npu_memplan.extract import extract
from npu_memplan.problem import AllowedOverlap, BufferKind, Pool, Problem

POOLS = (Pool("sram"),)


def conflicts(problem: Problem) -> set[frozenset[str]]:
    """Pairs of buffers that meet."""
    return {frozenset((a.name, b.name)) for a, b in itertools.combinations(problem.buffers, 2) if a.meets(b)}


def expand(problem: Problem) -> dict[str, set[int]]:
    """Points at which each buffer is live."""
    return {b.name: {p for life in b.lifetimes for p in range(life.first, life.last)} for b in problem.buffers}


@I.ir_module
class Inception:
    """Two padded branches over one input, added; every function has internals of its own."""

    @T.prim_func(s_tir=True)
    def conv(x: T.Buffer((4, 4), "int8"), o: T.Buffer((4, 4), "int8")):
        padded = T.alloc_buffer((6, 6), "int8")
        total = T.alloc_buffer((4, 4), "int32")
        for i, j in T.grid(6, 6):
            padded[i, j] = T.if_then_else(i >= 1 and i < 5 and j >= 1 and j < 5, x[i - 1, j - 1], T.int8(0))
        for i, j, k in T.grid(4, 4, 9):
            if k == 0:
                total[i, j] = 0
            total[i, j] = total[i, j] + T.Cast("int32", padded[i + k // 3, j + k % 3])
        for i, j in T.grid(4, 4):
            o[i, j] = T.Cast("int8", total[i, j])

    @T.prim_func(s_tir=True)
    def add(a: T.Buffer((4, 4), "int8"), b: T.Buffer((4, 4), "int8"), o: T.Buffer((4, 4), "int8")):
        for i, j in T.grid(4, 4):
            o[i, j] = a[i, j] + b[i, j]

    @R.function
    def main(x: R.Tensor((4, 4), "int8"), unused: R.Tensor((8,), "int8")):
        cls = Inception
        left = R.call_tir(cls.conv, (x,), out_ty=R.Tensor((4, 4), "int8"))
        right = R.call_tir(cls.conv, (x,), out_ty=R.Tensor((4, 4), "int8"))
        deep = R.call_tir(cls.conv, (right,), out_ty=R.Tensor((4, 4), "int8"))
        total = R.call_tir(cls.add, (left, deep), out_ty=R.Tensor((4, 4), "int8"))
        flat = R.reshape(total, R.shape([16]))
        return (flat, right)


@I.ir_module
class Loops:
    """Allocations inside loops, a loop that carries a buffer, and sequential scratch."""

    @T.prim_func(s_tir=True)
    def work(x: T.Buffer((3, 8), "int8"), o: T.Buffer((3, 8), "int8")):
        carried = T.alloc_buffer((8,), "int8")
        first = T.alloc_buffer((8,), "int8")
        second = T.alloc_buffer((8,), "int8")
        for j in range(8):
            carried[j] = T.int8(0)
        for j in range(8):
            first[j] = x[0, j]
        for j in range(8):
            carried[j] = carried[j] + first[j]
        for i, j in T.grid(3, 8):
            carried[j] = carried[j] + x[i, j]
        for j in range(8):
            second[j] = carried[j]
        for i, j in T.grid(3, 8):
            o[i, j] = second[j]

    @R.function
    def main(x: R.Tensor((3, 8), "int8")):
        cls = Loops
        y = R.call_tir(cls.work, (x,), out_ty=R.Tensor((3, 8), "int8"))
        z = R.call_tir(cls.work, (y,), out_ty=R.Tensor((3, 8), "int8"))
        return z


@I.ir_module
class Redefined:
    """A scratch buffer that is dead between its two uses lives in two intervals."""

    @T.prim_func(s_tir=True)
    def work(x: T.Buffer((8,), "int8"), o: T.Buffer((8,), "int8")):
        twice = T.alloc_buffer((8,), "int8")
        between = T.alloc_buffer((8,), "int8")
        for i in range(8):
            twice[i] = x[i]
        for i in range(8):
            o[i] = twice[i]
        for i in range(8):
            between[i] = o[i]
        for i in range(8):
            o[i] = between[i] + T.int8(1)
        for i in range(8):
            twice[i] = o[i]
        for i in range(8):
            o[i] = twice[i] + x[i]

    @R.function
    def main(x: R.Tensor((8,), "int8")):
        cls = Redefined
        y = R.call_tir(cls.work, (x,), out_ty=R.Tensor((8,), "int8"))
        return y


@I.ir_module
class Branches:
    """Each branch has its own points; what only one branch needs is dead in the other."""

    @T.prim_func(s_tir=True)
    def add(a: T.Buffer((8,), "int8"), b: T.Buffer((8,), "int8"), o: T.Buffer((8,), "int8")):
        for i in range(8):
            o[i] = a[i] + b[i]

    @R.function
    def main(x: R.Tensor((8,), "int8"), c: R.Tensor((), "bool"), d: R.Tensor((), "bool")):
        cls = Branches
        p = R.call_tir(cls.add, (x, x), out_ty=R.Tensor((8,), "int8"))
        q = R.call_tir(cls.add, (x, p), out_ty=R.Tensor((8,), "int8"))
        s = R.call_tir(cls.add, (q, p), out_ty=R.Tensor((8,), "int8"))
        if c:
            t1 = R.call_tir(cls.add, (p, p), out_ty=R.Tensor((8,), "int8"))
            y = R.call_tir(cls.add, (t1, s), out_ty=R.Tensor((8,), "int8"))
        else:
            e1 = R.call_tir(cls.add, (q, q), out_ty=R.Tensor((8,), "int8"))
            if d:
                f1 = R.call_tir(cls.add, (e1, q), out_ty=R.Tensor((8,), "int8"))
                w = R.call_tir(cls.add, (f1, q), out_ty=R.Tensor((8,), "int8"))
            else:
                g1 = R.call_tir(cls.add, (e1, e1), out_ty=R.Tensor((8,), "int8"))
                w = R.call_tir(cls.add, (g1, g1), out_ty=R.Tensor((8,), "int8"))
            y = R.call_tir(cls.add, (w, s), out_ty=R.Tensor((8,), "int8"))
        z = R.call_tir(cls.add, (y, x), out_ty=R.Tensor((8,), "int8"))
        return z


@I.ir_module
class Conditional:
    """A scratch buffer that the program writes a second time, or not: what was there is needed until it is read."""

    @T.prim_func(s_tir=True)
    def work(x: T.Buffer((8,), "int8"), o: T.Buffer((8,), "int8")):
        kept = T.alloc_buffer((8,), "int8")
        between = T.alloc_buffer((8,), "int8")
        for i in range(8):
            kept[i] = x[7 - i]
        for i in range(8):
            between[i] = x[i] + T.int8(1)
        for i in range(8):
            o[i] = between[7 - i]
        for i in range(8):
            if x[i] > T.int8(0):
                kept[i] = o[i]
        for i in range(8):
            o[i] = kept[i]

    @R.function
    def main(x: R.Tensor((8,), "int8")):
        cls = Conditional
        y = R.call_tir(cls.work, (x,), out_ty=R.Tensor((8,), "int8"))
        return y


def test_a_write_that_may_not_happen_ends_nothing():
    problem = extract(Conditional, POOLS)
    live = {name.rsplit(".", 1)[-1]: points for name, points in expand(problem).items()}
    assert live["kept"] == {0, 1, 2, 3, 4}
    assert live["between"] == {1, 2}
    assert any({"kept", "between"} == {name.rsplit(".", 1)[-1] for name in pair} for pair in conflicts(problem))


@pytest.mark.parametrize(
    "module", [Inception, Loops, Redefined, Branches], ids=["inception", "loops", "redefined", "branches"]
)
def test_lifetimes_equal_the_oracle(module, oracle):
    expected = oracle(module)
    problem = extract(module, POOLS)
    assert len(problem.points) == expected.points
    assert expand(problem) == expected.live
    assert conflicts(problem) == expected.conflicts()


def test_kinds_and_traffic():
    problem = extract(Inception, POOLS)
    kinds = {b.name: b.kind for b in problem.buffers}
    assert kinds["x"] is BufferKind.INPUT
    assert kinds["unused"] is BufferKind.INPUT
    assert kinds["total"] is BufferKind.OUTPUT
    assert kinds["right"] is BufferKind.OUTPUT
    assert kinds["left"] is BufferKind.TENSOR
    assert kinds["conv.padded_2"] is BufferKind.HOST_SCRATCH
    assert problem.buffer("conv.total").size_bytes == 64
    assert problem.buffer("left").producer == "0:conv.2"
    assert problem.buffer("left").consumers == ("3:add.0",)


def _random_module(seed: int) -> tvm.IRModule:
    """A random graph of small functions with internals, nested `if`s and several outputs."""
    rng = random.Random(seed)
    lines: list[str] = []
    counter = itertools.count()

    def call(known: list[str], indent: str) -> str:
        name = f"v{next(counter)}"
        kind = rng.choice(["one", "two", "scratch"])
        arguments = f"({rng.choice(known)},)" if kind == "one" else f"({rng.choice(known)}, {rng.choice(known)})"
        lines.append(f'{indent}{name} = R.call_tir(cls.{kind}, {arguments}, out_ty=R.Tensor((4,), "int8"))')
        return name

    def block(known: list[str], indent: str, depth: int, length: int) -> list[str]:
        known = list(known)
        for _ in range(length):
            if depth < 2 and rng.random() < 0.25:
                name = f"y{next(counter)}"
                condition = rng.choice(["c", "d"])
                for head in (f"if {condition}:", "else:"):
                    lines.append(f"{indent}{head}")
                    own = block(known, indent + "    ", depth + 1, rng.randint(0, 3))
                    last = call(own, indent + "    ")
                    # the value of a branch is the last binding, under the name of the `if`
                    lines[-1] = lines[-1].replace(f"{last} = ", f"{name} = ", 1)
                known.append(name)
            else:
                known.append(call(known, indent))
        return known

    known = block(["x", "z"], "        ", 0, rng.randint(3, 8))
    results = rng.sample([k for k in known if k not in ("x", "z")], k=min(2, len(known) - 2))
    text = (
        "@I.ir_module\nclass Module:\n"
        "    @T.prim_func(s_tir=True)\n"
        '    def one(a: T.Buffer((4,), "int8"), o: T.Buffer((4,), "int8")):\n'
        "        for i in range(4):\n            o[i] = a[3 - i]\n"
        "    @T.prim_func(s_tir=True)\n"
        '    def two(a: T.Buffer((4,), "int8"), b: T.Buffer((4,), "int8"), o: T.Buffer((4,), "int8")):\n'
        "        for i in range(4):\n            o[i] = a[3 - i] + b[i]\n"
        "    @T.prim_func(s_tir=True)\n"
        '    def scratch(a: T.Buffer((4,), "int8"), b: T.Buffer((4,), "int8"), o: T.Buffer((4,), "int8")):\n'
        '        s = T.alloc_buffer((4,), "int32")\n        t = T.alloc_buffer((8,), "int8")\n'
        "        for i in range(4):\n            s[i] = T.Cast('int32', a[i])\n"
        "        for i in range(8):\n            t[i] = T.Cast('int8', s[i // 2]) + b[i // 2]\n"
        "        for i in range(4):\n            o[i] = t[2 * i]\n"
        "    @R.function\n"
        '    def main(x: R.Tensor((4,), "int8"), z: R.Tensor((4,), "int8"), c: R.Tensor((), "bool"), '
        'd: R.Tensor((), "bool")):\n        cls = Module\n'
        + "\n".join(lines)
        + f"\n        return ({', '.join(results)},)\n"
    )
    return tvm.script.from_source(text)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_equal_the_oracle(seed, oracle):
    module = _random_module(seed)
    expected = oracle(module)
    problem = extract(module, POOLS)
    assert len(problem.points) == expected.points
    used = {name: points for name, points in expected.live.items() if points}
    # The value of an `if` at the very end is a buffer without points, placed with its sources.
    assert {name: points for name, points in expand(problem).items() if points} == used
    assert conflicts(problem) == expected.conflicts()


def test_overlap_is_offered_only_where_one_dies_and_the_other_is_born():
    assert all(isinstance(o, AllowedOverlap) for o in extract(Inception, POOLS).overlaps)


def test_an_input_that_nobody_reads_gives_way_to_what_is_born_at_once() -> None:
    """But not to another input, which is written before anything runs."""
    problem = extract(Inception, POOLS)
    found = {o.second: o for o in problem.overlaps if o.first == "unused"}
    born = {b.name for b in problem.buffers if b.lifetimes[0].first == 0 and b.kind is not BufferKind.INPUT}
    assert found.keys() == born != set()
    assert all(overlap.permits(distance) for overlap in found.values() for distance in (-99, 0, 99))
