"""Proven overlap distances are safe, and as good as running the loops says they can be."""

from __future__ import annotations

import pytest

pytest.importorskip("tvm")

from tvm import tirx
from tvm.script import tirx as T

from npu_memplan.extract import tir
from npu_memplan.extract.program import number
from npu_memplan.extract.tir import highest_distance


@T.prim_func(s_tir=True)
def relu(x: T.Buffer((4, 5), "float32"), o: T.Buffer((4, 5), "float32")):
    for i, j in T.grid(4, 5):
        o[i, j] = T.max(x[i, j], T.float32(0))


@T.prim_func(s_tir=True)
def transposed_loops(x: T.Buffer((4, 5), "int8"), o: T.Buffer((4, 5), "int8")):
    for j, i in T.grid(5, 4):
        o[i, j] = x[i, j]


@T.prim_func(s_tir=True)
def narrow(x: T.Buffer((16,), "int32"), o: T.Buffer((16,), "int8")):
    for i in range(16):
        o[i] = T.Cast("int8", x[i])


@T.prim_func(s_tir=True)
def widen(x: T.Buffer((16,), "int8"), o: T.Buffer((16,), "int32")):
    for i in range(16):
        o[i] = T.Cast("int32", x[i])


@T.prim_func(s_tir=True)
def reverse(x: T.Buffer((16,), "int8"), o: T.Buffer((16,), "int8")):
    for i in range(16):
        o[i] = x[15 - i]


@T.prim_func(s_tir=True)
def pad(x: T.Buffer((4, 4, 3), "int8"), o: T.Buffer((6, 6, 3), "int8")):
    for i, j, c in T.grid(6, 6, 3):
        o[i, j, c] = T.if_then_else(i >= 1 and i < 5 and j >= 1 and j < 5, x[i - 1, j - 1, c], T.int8(0))


@T.prim_func(s_tir=True)
def conv(x: T.Buffer((8, 8, 4), "int8"), o: T.Buffer((6, 6, 4), "int32")):
    for y, z, f, c, r, s in T.grid(6, 6, 4, 4, 3, 3):
        if c == 0 and r == 0 and s == 0:
            o[y, z, f] = 0
        o[y, z, f] = o[y, z, f] + T.Cast("int32", x[y + r, z + s, c])


@T.prim_func(s_tir=True)
def strided_pool(x: T.Buffer((8, 8, 2), "int8"), o: T.Buffer((4, 4, 2), "int8")):
    for y, z, c, r, s in T.grid(4, 4, 2, 2, 2):
        if r == 0 and s == 0:
            o[y, z, c] = T.int8(-128)
        o[y, z, c] = T.max(o[y, z, c], x[y * 2 + r, z * 2 + s, c])


@T.prim_func(s_tir=True)
def matmul(x: T.Buffer((4, 6), "int8"), o: T.Buffer((4, 5), "int8")):
    for i, j, k in T.grid(4, 5, 6):
        if k == 0:
            o[i, j] = T.int8(0)
        o[i, j] = o[i, j] + x[i, k]


@T.prim_func(s_tir=True)
def flat_copy(x: T.Buffer((4, 6), "int8"), o: T.Buffer((24,), "int8")):
    for i in range(24):
        o[i] = x[i // 6, i % 6]


@T.prim_func(s_tir=True)
def twice(x: T.Buffer((16,), "int8"), o: T.Buffer((16,), "int8")):
    for _k in range(2):
        for i in range(16):
            o[i] = x[i]


@T.prim_func(s_tir=True)
def wide_index(x: T.Buffer((16,), "int8"), o: T.Buffer((16,), "int8")):
    for i in range(16):
        o[i] = x[T.Cast("int64", i)]


@T.prim_func(s_tir=True)
def integer_conv(x: T.Buffer((6, 6, 3), "int8"), o: T.Buffer((3, 3, 4), "int8")):
    total = T.alloc_buffer((1,), "int32", scope="local")
    row = T.alloc_buffer((1,), "int32", scope="local")
    column = T.alloc_buffer((1,), "int32", scope="local")
    for y, z, f in T.grid(3, 3, 4):
        total[0] = 7
        for r, s, c in T.grid(3, 3, 3):
            row[0] = y * 2 + r - 1
            column[0] = z * 2 + s - 1
            if row[0] >= 0 and row[0] < 6 and (column[0] >= 0 and column[0] < 6):
                total[0] = total[0] + T.Cast("int32", x[row[0], column[0], c])
        o[y, z, f] = T.Cast("int8", total[0])


CASES = [
    relu,
    transposed_loops,
    narrow,
    widen,
    reverse,
    pad,
    conv,
    strided_pool,
    matmul,
    flat_copy,
    twice,
    wide_index,
    integer_conv,
]
# Statements with one store (or none after a later read of the same step) are proven exactly; the
# others lose at most what one step of the loops around all accesses writes.
EXACT = {"relu", "transposed_loops", "narrow", "widen", "reverse", "flat_copy", "twice", "wide_index"}


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.attrs["global_symbol"])
def test_distance_is_safe_and_tight(function, exact_distance):
    source, target = function.params
    body = function.body.seq[-1] if isinstance(function.body, tirx.SeqStmt) else function.body  # after allocations
    proven = highest_distance(body, [source], target)
    truth = exact_distance(function, source, target)
    assert proven is not None
    assert truth is not None
    assert proven <= truth
    name = str(function.attrs["global_symbol"])
    if name in EXACT:
        assert proven == truth
    else:
        step = {"pad": 2 * 3, "conv": 4 * 4, "strided_pool": 2, "matmul": 5, "integer_conv": 0}[name]
        assert truth - proven <= step


def test_a_scalar_set_twice_is_unknown():
    @T.prim_func(s_tir=True)
    def work(x: T.Buffer((16,), "int8"), o: T.Buffer((16,), "int8")):
        at = T.alloc_buffer((1,), "int32", scope="local")
        for i in range(16):
            at[0] = i
            if x[0] > T.int8(0):
                at[0] = 15 - i
            o[i] = x[at[0]]

    distance = highest_distance(work.body.seq[-1], [work.params[0]], work.params[1])
    assert distance is not None
    assert distance <= -15


def test_parallel_loops_prove_nothing():
    @T.prim_func(s_tir=True)
    def parallel(x: T.Buffer((16,), "int8"), o: T.Buffer((16,), "int8")):
        for i in T.parallel(16):
            o[i] = x[i]

    assert highest_distance(parallel.body, [parallel.params[0]], parallel.params[1]) is None


def test_data_dependent_index_is_the_whole_buffer():
    @T.prim_func(s_tir=True)
    def gather(x: T.Buffer((16,), "int8"), n: T.Buffer((4,), "int32"), o: T.Buffer((4,), "int8")):
        for i in range(4):
            o[i] = x[n[i]]

    assert highest_distance(gather.body, [gather.params[0]], gather.params[2]) == -3
    assert highest_distance(gather.body, [gather.params[1]], gather.params[2]) == 3


def test_one_input_under_two_names_is_one_input():
    @T.prim_func(s_tir=True)
    def add(a: T.Buffer((16,), "int8"), b: T.Buffer((16,), "int8"), o: T.Buffer((16,), "int8")):
        for i in range(16):
            o[i] = a[i] + b[15 - i]

    a, b, o = add.params
    assert highest_distance(add.body, [a], o) == 0
    assert highest_distance(add.body, [a, b], o) == -15


@T.prim_func(s_tir=True)
def any_transpose(a: T.handle, b: T.handle, n: T.int64, m: T.int64):
    x = T.match_buffer(a, (n, m), "int32")
    o = T.match_buffer(b, (m, n), "int32")
    for i, j in T.grid(m, n):
        o[i, j] = x[j, i]


@T.prim_func(s_tir=True)
def any_pool(a: T.handle, b: T.handle, n: T.int64, m: T.int64):
    x = T.match_buffer(a, (n * 2, m, 4), "int16")
    o = T.match_buffer(b, (n, m, 4), "int16")
    for y, z, c, r in T.grid(n, m, 4, 2):
        if r == 0:
            o[y, z, c] = T.int16(0)
        o[y, z, c] = o[y, z, c] + x[y * 2 + r, z, c]


@T.prim_func(s_tir=True)
def any_widen(a: T.handle, b: T.handle, n: T.int64, m: T.int64):
    x = T.match_buffer(a, (n * m,), "int8")
    o = T.match_buffer(b, (n * m,), "int32")
    for i in range(n * m):
        o[i] = T.Cast("int32", x[i])


@T.prim_func(s_tir=True)
def any_matmul(a: T.handle, b: T.handle, n: T.int64, m: T.int64):
    x = T.match_buffer(a, (n, 3), "int8")
    o = T.match_buffer(b, (n, m), "int8")
    for i, j, k in T.grid(n, m, 3):
        if k == 0:
            o[i, j] = T.int8(0)
        o[i, j] = o[i, j] + x[i, k]


@pytest.mark.parametrize(
    "function", [any_transpose, any_pool, any_widen, any_matmul], ids=lambda f: f.attrs["global_symbol"]
)
def test_symbolic_distance_is_safe_at_every_size(function, exact_distance):
    x, o, n, m = function.params
    found = highest_distance(function.body, [x], o)
    assert found is not None
    for a, b in ((1, 1), (1, 5), (4, 1), (2, 3), (5, 2), (6, 6)):
        own = function.specialize({n: a, m: b})
        exact = exact_distance(own, own.params[0], own.params[1])
        assert exact is None or number(found, {n: a, m: b}) <= exact, (a, b)  # None: anything is safe


def test_functions_that_do_the_same_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(tir, "_PROVEN", {})
    monkeypatch.setattr(tir, "highest_distance", lambda *given: seen.append(given) or highest_distance(*given))
    for function, distance in ((reverse, -15), (reverse.with_attr("global_symbol", "other"), -15), (narrow, 3)):
        outline = tir.Outline(function)
        assert outline.distance(outline.nodes[0], (0,), 1) == distance
    assert len(seen) == 2
