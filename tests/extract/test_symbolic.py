"""Symbolic offsets: apart for every value of the symbols, checked value by value."""

from __future__ import annotations

import itertools

import pytest

pytest.importorskip("tvm")

import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from npu_memplan.extract.build import Options, build
from npu_memplan.extract.liveness import lifetimes
from npu_memplan.extract.relax_walk import walk
from npu_memplan.extract.symbolic import _not_negative, _polynomial, plan_symbolic
from npu_memplan.problem import Pool
from npu_memplan.transform.legalize import legalize


@I.ir_module
class Mixed:
    """Sizes that grow, shrink and cross each other: h*w, h*w*4, (h+2)*(w+2), h, a constant."""

    @R.function
    def main(x: R.Tensor((1, 3, "h", "w"), "float32"), k: R.Tensor((3, 3, 3, 3), "float32")):
        a = R.nn.conv2d(x, k, padding=1)
        b = R.astype(a, "int8")
        c = R.concat([a, a, a, a], axis=1)
        d = R.sum(c, axis=[1, 3])
        e = R.astype(b, "float32")
        f = R.nn.conv2d(e, k, padding=1)
        g = R.add(f, a)
        i = R.sum(g, axis=[1, 3])
        j = R.add(i, d)
        return j


def evaluate(expr, values) -> int:
    replaced = tvm_ffi.structural_map(expr, (ir.Var, lambda v: tirx.IntImm(str(v.ty.dtype), values[v.name])))
    return int(tvm.sym.Analyzer().simplify(replaced))


@pytest.fixture(scope="module")
def planned():
    program = walk(legalize(Mixed), "main")
    build(program, (Pool("any"),), Options(io_in_pools=False))
    lives = lifetimes(program)
    return program, lives, plan_symbolic(program, lives)


def sizes(program, values) -> dict[str, int]:
    found = {t.name: (t.shape, t.dtype) for t in program.tensors}
    for call in program.calls:
        found.update({i.name: (i.shape, str(i.allocation.buffer.dtype)) for i in call.internals})
    result = {}
    for name, (shape, dtype) in found.items():
        total = tvm.DataType(dtype).bits // 8
        for extent in shape:
            total *= evaluate(extent, values)
        result[name] = total
    return result


@pytest.mark.parametrize("h, w", [(0, 0), (1, 1), (1, 40), (2, 3), (5, 1), (7, 9), (16, 16), (33, 2)])
def test_live_storages_are_apart_and_inside_the_pool(planned, h, w):
    program, lives, plan = planned
    values = {"h": h, "w": w}
    bytes_of = sizes(program, values)
    at = {name: evaluate(offset, values) for name, offset in plan.offsets.items()}
    life = {s.name: lives[s] for s in lives}
    assert len(at) >= 9
    assert all(offset % 16 == 0 for offset in at.values())
    pool = evaluate(plan.size, values)
    assert all(at[n] + bytes_of[n] <= pool for n in at)
    for a, b in itertools.combinations(at, 2):
        if any(x.meets(y) for x in life[a] for y in life[b]):
            assert at[a] + bytes_of[a] <= at[b] or at[b] + bytes_of[b] <= at[a], (a, b)


def test_the_pool_is_near_the_most_bytes_live(planned):
    program, lives, plan = planned
    values = {"h": 32, "w": 32}
    bytes_of = sizes(program, values)
    last = max(life.last for found in lives.values() for life in found)
    most = max(
        sum(bytes_of[s.name] for s in lives if s.name in plan.offsets and any(x.first <= t < x.last for x in lives[s]))
        for t in range(last)
    )
    assert most <= evaluate(plan.size, values) <= 1.3 * most


def test_comparisons_hold_for_zero_as_well():
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")

    def at_least(a, b):
        return _not_negative(_polynomial(a), _polynomial(b))

    assert at_least(n * m + n, n * m)
    assert at_least((n + 2) * (m + 2), n * m)
    assert not at_least(n * 4, n * 0 + 4)  # wrong for n = 0
    assert not at_least(n * n, n * 2)
    assert at_least(n * n, n)  # 0, 1, 4, ... against 0, 1, 2, ...
    assert not at_least(n, m)


def test_unknown_symbols_stay_at_run_time():
    @I.ir_module
    class Late:
        @R.function
        def main(x: R.Tensor(ndim=1, dtype="float32")):
            n = T.int64()
            y = R.match_cast(x, R.Tensor((n,), "float32"))
            z = R.add(y, y)
            v = R.multiply(z, z)
            return v

    program = walk(legalize(Late), "main")
    build(program, (Pool("any"),), Options(io_in_pools=False))
    plan = plan_symbolic(program, lifetimes(program))
    assert not plan.offsets
    (z,) = [t for t in program.tensors if t.name == "z"]
    assert z.external == "its size depends on n, which the inputs do not tell"
