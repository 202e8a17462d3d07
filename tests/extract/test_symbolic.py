"""Sizes and offsets as formulas: apart for every value of the symbols, checked value by value."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm_ffi
from tvm import ir, sym, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from npu_memplan import planners
from npu_memplan.extract.build import build
from npu_memplan.extract.program import lower_bound, number, value
from npu_memplan.extract.symbolic import Extents, Formulas, conflicts, dynamic_sizes, middle_sample, orient
from npu_memplan.extract.tir import nodes_of
from npu_memplan.extract.walk import walk
from npu_memplan.options import NO_NPU, CompileOptions
from npu_memplan.problem import Buffer, Lifetime, Pool, Problem
from npu_memplan.request import Request
from npu_memplan.transform.legalize import legalize
from npu_memplan.transform.symbolic import join_small_buffers, plan_symbolic

n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")


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


@I.ir_module
class Halved:
    """`//` and transpositions: outputs trail through inputs at distances that depend on h and w."""

    @R.function
    def main(x: R.Tensor((1, 4, "h", "w"), "float32")):
        a = R.nn.relu(x)
        b = R.permute_dims(a, axes=[0, 2, 3, 1])
        c = R.nn.avg_pool2d(b, pool_size=(2, 2), strides=(2, 2), layout="NHWC")
        d = R.permute_dims(c, axes=[0, 3, 1, 2])
        e = R.multiply(d, d)
        f = R.strided_slice(e, [1], [0], [2])
        return R.exp(f)


@I.ir_module
class Normed:
    """A kernel with small buffers of its own, some of which are dead while others live."""

    @R.function
    def main(x: R.Tensor((1, 8, "h", "w"), "float32"), g: R.Tensor((8,), "float32"), b: R.Tensor((8,), "float32")):
        a = R.nn.relu(x)
        c = R.nn.group_norm(a, g, b, num_groups=4, channel_axis=1, axes=[2, 3])
        d = R.add(c, a)
        return R.exp(d)


def planned(module):
    """(problem, sample, symbols, plan) of a module's main."""
    program = walk(legalize(module), "main")
    sample = middle_sample(program, (Pool("any"),))
    assert sample is not None
    symbols = sorted({v for t in program.inputs for v in t.shape if isinstance(v, tirx.Var)}, key=lambda v: v.name)
    problem, _ = build(
        program,
        Request(CompileOptions(NO_NPU, objective="bytes"), (Pool("any"),), io_in_pools=False, alignment=1),
        sample,
    )
    kernels = [[internal.name for internal in call.internals] for call in program.calls]
    return problem, sample, symbols, plan_symbolic(problem, sample, "auto", 0, kernels)


@pytest.fixture(scope="module", params=[Mixed, Halved, Normed], ids=lambda m: m.__name__)
def plan(request):
    """A planned program."""
    return planned(request.param)


@pytest.mark.parametrize(
    "h, w", [(0, 0), (1, 1), (1, 40), (2, 3), (5, 1), (7, 9), (16, 16), (33, 2), (64, 3), (500, 301), (3, 5000)]
)
def test_live_buffers_are_apart_and_inside_the_pool(plan, h, w):
    problem, sample, symbols, found = plan
    values = dict(zip(symbols, (h, w), strict=True))
    for level in found.definitions:  # of one level, none uses another
        values |= {v: number(e, values) for v, e in level}
    numbers = {s.name: k for s, k in sample.numbers.items()}
    extents = sample.extents
    size = {
        b.name: extents.value(extents.exact_size(numbers[b.name]), values) if b.name in numbers else b.size_bytes
        for b in problem.buffers
    }
    at = {b: number(o, values) for b, o in found.offsets.items()}
    pool = values[found.sizes["any"]]
    assert len(at) == len(problem.buffers) >= 5
    assert all(0 <= at[b] <= at[b] + size[b] <= max(pool, 64) for b in at)
    assert extents.alignment == 4  # of float32
    assert all(at[b] % 4 == 0 for b in at)
    allowed = {(o.first, o.second) for o in problem.overlaps}
    for a, b in itertools.combinations(problem.buffers, 2):
        disjoint = at[a.name] >= at[b.name] + size[b.name] or at[b.name] >= at[a.name] + size[a.name]
        assert disjoint or not found.apart(a.name, b.name), (a.name, b.name)
        if a.meets(b) and at[a.name] < at[b.name] + size[b.name] and at[b.name] < at[a.name] + size[a.name]:
            first, second = (a.name, b.name) if (a.name, b.name) in allowed else (b.name, a.name)
            gap = extents.value(sample.distances[first, second], values)
            assert at[second] + gap <= at[first], (first, second)


def test_what_lives_together_is_known_to_be_apart():
    problem, _, _, found = planned(Mixed)
    allowed = {frozenset((o.first, o.second)) for o in problem.overlaps}
    pairs = [(a.name, b.name) for a, b in itertools.combinations(problem.buffers, 2) if a.meets(b)]
    pairs = [pair for pair in pairs if frozenset(pair) not in allowed]
    assert pairs
    assert all(found.apart(*pair) and found.apart(*pair[::-1]) for pair in pairs)


def test_small_buffers_of_a_kernel_lie_side_by_side():
    problem, sample, _, found = planned(Normed)
    changing = {storage.name for storage in sample.numbers}
    small = [b for b in problem.buffers if b.name not in changing]
    assert len(small) >= 4
    variables = {v for b in small for v in nodes_of(found.offsets[b.name], ir.Var)}
    assert len(variables) == 1
    assert all(found.apart(a.name, b.name) for a, b in itertools.combinations(small, 2))
    assert {p.buffer for p in found.plan.placements} == {b.name for b in problem.buffers}


def test_few_small_buffers_are_planned_one_by_one():
    problem, sample, _, _ = planned(Normed)
    changing = {storage.name for storage in sample.numbers}
    names = [b.name for b in problem.buffers if b.name not in changing]
    assert join_small_buffers(problem, [names[:3]], changing, 4).problem.buffers == problem.buffers
    assert set(join_small_buffers(problem, [names[:4]], changing, 4).inner) == set(names[:4])


def test_pools_with_a_size_have_no_blocks():
    problem, sample, _, _ = planned(Normed)
    changing = {storage.name for storage in sample.numbers}
    names = [b.name for b in problem.buffers]
    assert join_small_buffers(problem, [names], changing, 4).inner
    hard = replace(problem, pools=(Pool("sram", 1 << 20), *problem.pools))
    assert join_small_buffers(hard, [names], changing, 4).inner == {}
    assert join_small_buffers(hard, [names], changing, 4).problem.buffers == problem.buffers


def comparer(*shapes, bounds=None):
    """`at_least` of two expressions, as numbers of bytes."""
    extents = Extents([[e] for e in shapes], bounds or {})
    return lambda a, b: extents.at_least(extents.size([a], "int8"), extents.size([b], "int8"))


def test_quotients_rests_and_choices_are_compared():
    half = n // 2
    at_least = comparer(half, n % 2)
    assert at_least(n * m * 128, half * m * 128)
    assert at_least(n * 64, (n // 2) * 128)
    assert not at_least(half * 128, n * 64)
    assert at_least((n % 2) * 64 + half * 128, n * 64)
    assert comparer()(tirx.max(n, m), n)
    assert comparer()(n, tirx.min(n, m))


def test_random_orders_are_right_for_all_values():
    """A plan at one sample, as formulas, at others: nothing that lives together shares a byte."""
    generator = random.Random(7)
    for _ in range(60):
        extents = Extents([], {})
        points = ({n: 0, m: 0}, {n: 1, m: 90}, {n: 33, m: 2})
        formulas = Formulas(extents, points)
        number = {}
        for i in range(generator.randint(3, 14)):
            a, b, c = (generator.choice((0, 1, 3, 8)) for _ in range(3))
            number[f"b{i}"] = extents.size([n * (a * 64) + m * (b * 64) + n * m * (c * 64) + 64], "int8")
        lives = {k: generator.randint(0, 9) for k in number}
        lives = {k: (Lifetime(first, first + generator.randint(1, 5)),) for k, first in lives.items()}

        def problem(values, number=number, lives=lives, extents=extents):
            return Problem(
                tuple(Buffer(k, extents.value(s, values), lives[k], 64) for k, s in number.items()), (Pool("p"),)
            )

        first = problem({n: generator.randint(1, 60), m: generator.randint(1, 60)})
        pairs = tuple(conflicts(first))
        offsets, heights = orient(formulas, first, planners.plan(first, "first-fit"), number, {}, number, ["p"], pairs)
        for k, values in enumerate(points):
            numbers = [at[k] for at in formulas.at]
            own = problem(values)
            size = {b.name: b.size_bytes for b in own.buffers}
            at = {k: numbers[f] for k, f in offsets.items()}
            assert numbers[heights["p"]] == max(at[k] + size[k] for k in at)
            for a, b in itertools.combinations(own.buffers, 2):
                if a.meets(b):
                    assert at[a.name] + size[a.name] <= at[b.name] or at[b.name] + size[b.name] <= at[a.name]


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
    _, sizes = dynamic_sizes(program, (Pool("any"),))
    assert not sizes
    (z,) = [t for t in program.tensors if t.name == "z"]
    assert z.external == "its size depends on n, which the inputs do not tell"


@pytest.mark.parametrize(
    "make",
    [
        lambda n, m: n * m * 4 - m,
        lambda n, m: tirx.min(n - 4, m * 2) - tirx.max(n, m),
        lambda n, m: n // 3 * 8 - m % 5,
        lambda n, m: tirx.Select(n < 2, tirx.IntImm("int64", 1 << 40), 64 - n * m),
    ],
)
def test_a_lower_bound_is_the_least_value(make):
    expr = make(n, m)
    found = lower_bound(expr, {n: 9, m: 7})
    values = []
    for i in range(10):
        for j in range(8):
            known = {n: tirx.IntImm("int64", i), m: tirx.IntImm("int64", j)}
            values.append(int(sym.Analyzer().simplify(tvm_ffi.structural_map(expr, (ir.Var, known.get)))))
    assert found == min(values)
    assert lower_bound(expr, {n: 9}) is None
    axes = dict(zip((n, m), np.ix_(np.arange(601), np.arange(502)), strict=True))
    assert lower_bound(expr, {n: 600, m: 501}) == int(np.min(value(expr, axes)))  # too many to be tried at once


def test_symbols_of_one_name_keep_the_order_in_which_they_were_met() -> None:
    first, second = tirx.Var("n", "int64"), tirx.Var("n", "int64")
    for left, right in ((first, second), (second, first)):
        (monomial,) = Extents([], {}).polynomial(left * right) or ()
        assert [symbol.same_as(wanted) for symbol, wanted in zip(monomial, (left, right), strict=True)] == [True, True]
