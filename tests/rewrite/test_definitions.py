"""Definitions of variables are computed by one function, with the values that they have one by one."""

from __future__ import annotations

import random

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm
from tvm import ir, tirx

from npu_memplan.extract.program import number
from npu_memplan.extract.tir import nodes_of
from npu_memplan.rewrite.pools import Selection, evaluate, evaluation, formula, used_by
from npu_memplan.transform.verification.kernel import KernelText, run

h, w = tirx.Var("h", "int64"), tirx.Var("w", "int64")


def random_expr(rng: random.Random, leaves, depth: int):
    """A random expression with a value for all values of its leaves."""
    if depth == 0 or rng.random() < 0.1:
        return rng.choice([*leaves, tirx.IntImm("int64", rng.randrange(1, 9))])
    a, b = (random_expr(rng, leaves, depth - 1) for _ in range(2))
    kind = rng.randrange(9)
    if kind < 4:
        return (tirx.Add, tirx.Sub, tirx.Min, tirx.Max)[kind](a, b)
    if kind == 4:  # no more than an int64 holds
        return tirx.Mul(tirx.FloorMod(a, tirx.IntImm("int64", 99)), rng.choice([h, w]))
    if kind == 5:
        return tirx.FloorDiv(a, tirx.IntImm("int64", rng.randrange(1, 9)))
    if kind == 6:
        return tirx.Select(tirx.LT(a, b), b, a)
    if kind == 7:  # without the condition there is no value for h = 0
        positive = tirx.GT(h, tirx.IntImm("int64", 0))
        return tirx.if_then_else(positive, tirx.FloorDiv(a, h), b)
    return tirx.Cast("int64", tirx.FloorMod(a, tirx.IntImm("int64", rng.randrange(1, 9))))


def random_definitions(seed: int):
    """Three levels of definitions."""
    rng = random.Random(seed)
    levels, leaves = [], [h, w]
    for level in range(3):
        levels.append([(tirx.Var(f"v{level}_{i}", "int64"), random_expr(rng, leaves, 3)) for i in range(5)])
        leaves = [*leaves, *(var for var, _ in levels[-1])]
    return levels, rng.sample([var for level in levels for var, _ in level], 6)


@pytest.mark.parametrize("seed", range(5))
def test_the_function_computes_the_values_of_the_expressions(seed):
    levels, some = random_definitions(seed)
    wanted = used_by([var + 1 for var in some], levels)
    assert set(wanted) == set(some)
    function, symbols = evaluation(levels, wanted)
    library = tvm.compile(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}), target="llvm")
    for point in ({h: 0, w: 0}, {h: 1, w: 5}, {h: 7, w: 3}, {h: 64, w: 33}):
        values = dict(point)
        for level in levels:
            values |= {var: number(expr, values) for var, expr in level}
        found, others = (tvm.runtime.tensor(np.zeros(int(p.shape[0]), "int64")) for p in function.params[:2])
        library["main"](found, others, *(point[s] for s in symbols))
        assert found.numpy().tolist() == [values[var] for var in wanted]
        seen: dict[int, int] = {}
        run(KernelText(function), [seen, {}, *(point[s] for s in symbols)])
        assert [seen[i] for i in range(len(wanted))] == found.numpy().tolist()


def test_a_selection_is_the_value_that_is_taken():
    taken = [tirx.Var(f"taken_{i}", "int64") for i in range(4)]
    area, chosen = tirx.Var("area", "int64"), tirx.Var("chosen", "int64")
    levels = [
        [
            (area, h * w),
            *((t, tirx.Select(h.equal(i), *(tirx.IntImm("int64", n) for n in (1, 0)))) for i, t in enumerate(taken)),
        ],
        [(chosen, Selection(taken, [area, 64, 0, area]))],
    ]
    text = formula(levels[1][0][1], choices=True)
    assert text == "(((taken_0 + taken_3) * area) + (taken_1 * 64))"
    function, symbols = evaluation(levels, [chosen])
    for i, wanted in enumerate((0, 64, 0, 3 * 5)):
        seen: dict[int, int] = {}
        run(KernelText(function), [seen, {}, *({"h": i, "w": 5}[s.name] for s in symbols)])
        assert seen == {0: wanted}
        assert evaluate(text, {"area": i * 5, **{f"taken_{k}": int(k == i) for k in range(4)}}) == wanted


def test_one_definition_is_one_statement():
    seen: dict[int, int] = {}
    size = tirx.Var("size", "int64")
    run(KernelText(evaluation([[(size, h * 16)]], [size])[0]), [seen, {}, 5])
    assert seen == {0: 80}


def test_equal_products_and_choices_are_computed_once():
    area, other, third = (tirx.Var(name, "int64") for name in ("area", "other", "third"))
    levels = [[(area, h * w * 4), (other, tirx.max(h * w, h + 8))], [(third, area + tirx.max(h * w, h + 8))]]
    body = evaluation(levels, [third])[0].body
    assert len([m for m in nodes_of(body, tirx.Mul) if isinstance(m.b, ir.Var)]) == 1
    assert len(list(nodes_of(body, tirx.Max))) == 1


def test_values_take_the_places_of_those_that_nothing_needs_any_more():
    levels, before = [], h
    for k in range(20):
        levels.append([(tirx.Var(f"v{k}", "int64"), tirx.max(before * w, w + k))])
        before = levels[-1][0][0]
    function, _ = evaluation(levels, [before])
    assert len(function.body.seq) > 20
    assert int(function.params[1].shape[0]) == 1


def test_what_is_not_understood_leaves_no_numbers():
    out, n = tirx.decl_buffer((2,), "int64", name="out", layout=None), tirx.Var("n", "int64")
    store = tirx.BufferStore(out, n, [tirx.IntImm("int64", 0)])
    loop = tirx.For(tirx.Var("i", "int64"), 0, 2, tirx.ForKind.SERIAL, store)
    seen: dict[int, int] = {}
    run(KernelText(tirx.PrimFunc([out, n], tirx.SeqStmt([store, loop]))), [seen, 3])
    assert seen == {}
    run(KernelText(tirx.PrimFunc([out, n], tirx.SeqStmt([store, store]))), [seen, None])
    assert seen == {}
    run(KernelText(tirx.PrimFunc([out, n], tirx.SeqStmt([store, store]))), [seen, 3])
    assert seen == {0: 3}
