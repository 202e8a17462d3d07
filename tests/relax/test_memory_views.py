"""Views of tensors - at offsets, of other types, of each other - are what they are without a plan."""

from __future__ import annotations

import random

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm
import tvm_ffi
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import npu_memplan as nm
from npu_memplan.transform import PlanMemory, Workspace, map_outputs, memory_plan_faults, pipeline
from tests.relax.test_plain_c import CC, call_c


def leaves(value) -> list[tuple]:
    """(dtype, shape, bytes) of the tensors of a result, left to right."""
    if hasattr(value, "numpy"):
        array = value.numpy()
        return [(str(array.dtype), array.shape, array.tobytes())]
    return [leaf for item in value for leaf in leaves(item)]


def same_as_tvm(module, *calls, **options):
    """The module as planned, after each of `calls` gave the same with TVM's pipeline and on two kinds of poison."""
    theirs = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
    for poison in (0xA5, 0xFF):
        planned = PlanMemory(poison=poison, **options)(module)
        assert not memory_plan_faults(planned)[0]
        assert relax.analysis.check_well_formed(planned)
        ours = relax.VirtualMachine(tvm.compile(planned, "llvm", relax_pipeline=pipeline()), tvm.cpu())
        for call in calls:
            want, got = (vm["main"](*(tvm.runtime.tensor(a) for a in call)) for vm in (theirs, ours))
            assert leaves(got) == leaves(want)
    return planned


X = np.arange(256, dtype="float32").reshape(4, 64) / 64


@I.ir_module
class Row:
    @R.function
    def main(x: R.Tensor((4, 64), "float32")):
        a = R.exp(x)
        k = R.memory.view(a, (64,), R.dtype("float32"), R.prim_value(256))
        return R.negative(R.memory.ensure_zero_offset(k))


@I.ir_module
class OddRow:
    """At 4 bytes: the run time copies what does not begin at a multiple of 64."""

    @R.function
    def main(x: R.Tensor((4, 64), "float32")):
        a = R.exp(x)
        k = R.memory.ensure_zero_offset(R.memory.view(a, (63,), R.dtype("float32"), R.prim_value(4)))
        given = R.memory.ensure_zero_offset(R.memory.view(x, (5, 5), R.dtype("float32"), R.prim_value(28)))
        return R.add(R.negative(k), R.sum(given)), R.add(a, a)


@I.ir_module
class InBranches:
    @R.function
    def main(x: R.Tensor((4, 64), "float32"), c: R.Tensor((), "bool")):
        a = R.exp(x)
        if c:
            b = R.tanh(a)
            y: R.Tensor((64,), "float32") = R.memory.ensure_zero_offset(
                R.memory.view(b, (64,), R.dtype("float32"), R.prim_value(512))
            )
        else:
            y: R.Tensor((64,), "float32") = R.memory.ensure_zero_offset(
                R.memory.view(a, (64,), R.dtype("float32"), R.prim_value(256))
            )
        return R.negative(y), a


@I.ir_module
class AsValuesOfBranches:
    """Views at odd offsets that nobody moved: no PrimFunc takes them, but an `if` may choose between them."""

    @R.function
    def main(x: R.Tensor((4, 64), "float32"), c: R.Tensor((), "bool")):
        a = R.exp(x)
        if c:
            y: R.Tensor((8,), "float32") = R.memory.view(a, (8,), R.dtype("float32"), R.prim_value(12))
        else:
            y: R.Tensor((8,), "float32") = R.memory.view(x, (8,), R.dtype("float32"), R.prim_value(20))
        return R.memory.ensure_zero_offset(y), R.add(a, a)


@I.ir_module
class InTuplesAndFunctions:
    @R.function(private=True)
    def part(x: R.Tensor((4, 64), "float32")):
        k = R.memory.view(x, (2, 64), R.dtype("float32"), R.prim_value(512))
        return (R.memory.ensure_zero_offset(k), x)

    @R.function
    def halved(x: R.Tensor((4, 64), "float32"), n: R.Tensor((), "int32")) -> R.Tensor((4, 64), "float32"):
        if R.less(n, R.const(3, "int32")):
            rest = R.memory.ensure_zero_offset(R.memory.view(x, (2, 64), R.dtype("float32"), R.prim_value(512)))
            y = R.concat([R.negative(rest), rest], axis=0)
            r: R.Tensor((4, 64), "float32") = InTuplesAndFunctions.halved(y, R.add(n, R.const(1, "int32")))
        else:
            r: R.Tensor((4, 64), "float32") = x
        return r

    @R.function
    def main(x: R.Tensor((4, 64), "float32")):
        a = R.exp(x)
        t = InTuplesAndFunctions.part(a)
        u = (t[0], R.add(t[0], t[0]))
        h: R.Tensor((4, 64), "float32") = InTuplesAndFunctions.halved(a, R.const(0, "int32"))
        return R.multiply(u[0], u[1]), h, R.tanh(t[1])


@I.ir_module
class KnownAtRunTime:
    """Offsets and sizes of which only the run time can tell whether they fit."""

    @R.function
    def main(x: R.Tensor((4, 64), "float32"), y: R.Tensor(("n", 4), "float32")):
        n = T.int64()
        a = R.exp(x)
        b = R.memory.ensure_zero_offset(R.memory.view(a, (16,), R.dtype("float32"), R.prim_value(n * 4)))
        c = R.memory.ensure_zero_offset(R.memory.view(a, (n, 3), R.dtype("float32"), R.prim_value(128)))
        e = R.exp(y)
        d = R.memory.view(e, (2 * n, 4), R.dtype("float16"))
        f = R.memory.ensure_zero_offset(R.memory.view(e, (n,), R.dtype("uint16"), R.prim_value(8)))
        return R.add(b, b), R.add(c, c), R.add(d, d), R.negative(a), R.add(f, f), R.add(e, e)


@I.ir_module
class WrittenInPlace:
    @T.prim_func(s_tir=True)
    def double(x: T.Buffer((64,), "float32")):
        for i in range(64):
            with T.sblock("b"):
                v = T.axis.remap("S", [i])
                x[v] = x[v] * T.float32(2)

    @T.prim_func(s_tir=True)
    def five(x: T.Buffer((64,), "float32")):
        for i in range(64):
            with T.sblock("b"):
                v = T.axis.remap("S", [i])
                x[v] = T.float32(5)

    @R.function
    def main(x: R.Tensor((4, 64), "float32")):
        cls = WrittenInPlace
        a = R.exp(x)
        k = R.memory.ensure_zero_offset(R.memory.view(a, (64,), R.dtype("float32"), R.prim_value(256)))
        b = R.call_tir_inplace(cls.double, (k,), inplace_indices=[0], out_ty=R.Tensor((64,), "float32"))
        s = R.add(a, R.const(0, "float32"))
        m = R.memory.ensure_zero_offset(R.memory.view(a, (64,), R.dtype("float32"), R.prim_value(512)))
        c = R.call_tir_inplace(cls.five, (m,), inplace_indices=[0], out_ty=R.Tensor((64,), "float32"))
        return R.negative(b), R.negative(c), s, R.negative(a)


@pytest.mark.parametrize(
    "module, calls",
    [
        (Row, [[X]]),
        (OddRow, [[X]]),
        (InBranches, [[X, np.array(c)] for c in (True, False)]),
        (AsValuesOfBranches, [[X, np.array(c)] for c in (True, False)]),
        (InTuplesAndFunctions, [[X]]),
        (KnownAtRunTime, [[X, np.ones((n, 4), "float32")] for n in (4, 7)]),
        (WrittenInPlace, [[X]]),
    ],
    ids=lambda value: getattr(value, "__name__", None) or getattr(value, "name", None) or "",
)
def test_views_see_what_they_see_without_a_plan(module, calls):
    same_as_tvm(module, *calls)


def test_a_view_at_a_multiple_of_64_costs_nothing():
    planned = same_as_tvm(Row, [X])
    assert dict(planned["main"].attrs["npu.pools"]) == {"workspace": 1024}
    assert set(dict(planned["main"].attrs["npu.run_time"]).values()) == {"the caller owns it", "the caller gets it"}


def test_a_view_beyond_its_tensor_is_an_error_of_the_run_time_as_without_a_plan():
    vm = relax.VirtualMachine(tvm.compile(PlanMemory()(KnownAtRunTime), "llvm", relax_pipeline=pipeline()), tvm.cpu())
    with pytest.raises(ValueError, match="only contains 1024 bytes"):
        vm["main"](tvm.runtime.tensor(X), tvm.runtime.tensor(np.ones((250, 4), "float32")))


def test_a_result_that_is_a_view_lies_at_its_offset_of_the_pool():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 64), "float32")):
            a = R.negative(x)
            return R.memory.ensure_zero_offset(R.memory.view(a, (64,), R.dtype("uint32"), R.prim_value(256)))

    planned = PlanMemory(use_workspace_io=True)(Module)
    assert not memory_plan_faults(planned)[0]
    (name,) = map_outputs(planned)
    workspace = Workspace(planned)
    workspace.input("x")[...] = X
    vm = relax.VirtualMachine(tvm.compile(planned, "llvm", relax_pipeline=pipeline()), tvm.cpu())
    vm["main"](*workspace.tensors)
    assert workspace.output(name).tobytes() == (-X[1]).tobytes()


@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_a_value_of_a_branch_that_is_not_made_there(shape):
    builder = relax.BlockBuilder()
    x, c = relax.Var("x", relax.TensorType(shape, "float32")), relax.Var("c", relax.TensorType((), "bool"))
    with builder.function("main", [c, x], pure=True):
        a = builder.emit(relax.op.exp(x))
        then = relax.SeqExpr([], a)
        other = relax.SeqExpr([], x)
        y = builder.emit(relax.If(c, then, other))
        builder.emit_func_output(builder.emit(relax.op.add(y, a)))
    values = np.arange(int(np.prod(shape)), dtype="float32").reshape(shape)
    same_as_tvm(builder.get(), *([np.array(c), values] for c in (True, False)))


@I.ir_module
class ShapesOfTheirOwn:
    """The two sides give tensors of different shapes."""

    @R.function
    def main(x: R.Tensor((4, 64), "float32"), c: R.Tensor((), "bool")):
        a = R.exp(x)
        if c:
            s = R.concat([a, x], axis=1)
            y: R.Tensor(ndim=2, dtype="float32") = s
        else:
            t = R.tanh(a)
            y: R.Tensor(ndim=2, dtype="float32") = t
        b = R.add(a, a)
        m, n = T.int64(), T.int64()
        z = R.match_cast(y, R.Tensor((m, n), "float32"))
        return R.negative(z), R.multiply(b, a)


@I.ir_module
class ShapesThatNobodyKnows:
    @R.function
    def main(x: R.Tensor(ndim=2, dtype="float32")):
        y = R.reshape(x, R.shape([256]))
        return R.add(y, y)


def test_branches_may_give_tensors_of_different_shapes():
    same_as_tvm(ShapesOfTheirOwn, *([X, np.array(c)] for c in (True, False)))


def test_a_tensor_of_unknown_shape_is_reshaped():
    same_as_tvm(ShapesThatNobodyKnows, [X])


def drawn(seed: int):
    """A random chain of views, copies and branches over `main(x, c)`; the operators keep every bit pattern."""
    draw = random.Random(seed)
    builder = relax.BlockBuilder()
    x, c = relax.Var("x", relax.TensorType((4, 64), "float32")), relax.Var("c", relax.TensorType((), "bool"))

    def computed(value):
        kind = str(value.ty.dtype)
        found = relax.op.negative(value) if kind.startswith("float") else relax.op.bitwise_not(value)
        return builder.emit(found)

    def viewed(value):
        size = int(np.prod([int(e) for e in value.ty.shape.values])) * np.dtype(str(value.ty.dtype)).itemsize
        kind = draw.choice(["float32", "uint8", "int16", "int64"])
        item = np.dtype(kind).itemsize
        start = draw.choice([0, 64, 128, draw.randrange(0, 64, item), draw.randrange(64)])
        count = draw.randint(0, max(0, size - start) // item)
        if start > size:
            return value
        shape = [count] if count % 2 else [2, count // 2]
        found = builder.emit(relax.op.memory.view(value, shape, kind, relax.prim_value(start)))
        return builder.emit(relax.op.memory.ensure_zero_offset(found))

    with builder.function("main", [x, c], pure=True):
        values = [builder.emit(relax.op.negative(x)), x]
        for _ in range(draw.randint(3, 9)):
            value = draw.choice(values)
            values.append(draw.choice([computed, viewed, viewed])(value))
            if draw.random() < 0.25:
                alike = [v for v in values if tvm_ffi.structural_equal(v.ty, values[-1].ty)]
                sides = [relax.SeqExpr([], draw.choice(alike)) for _ in range(2)]
                values.append(builder.emit(relax.If(c, *sides)))
        results = draw.sample(values, min(3, len(values)))
        builder.emit_func_output(relax.Tuple([computed(v) for v in results]))
    return builder.get()


@pytest.mark.parametrize("seed", range(12))
def test_random_chains_of_views(seed):
    same_as_tvm(drawn(seed), *([X, np.array(c)] for c in (True, False)))


@pytest.mark.skipif(CC is None, reason="needs a C compiler")
@pytest.mark.parametrize("module", [Row, OddRow, InBranches, WrittenInPlace])
def test_views_in_plain_c(module, tmp_path):
    same_in_plain_c(module, tmp_path)


def same_in_plain_c(module, tmp_path):
    given = [X, np.array(True)][: len(module["main"].params)]
    wanted = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())["main"](*map(tvm.runtime.tensor, given))
    wanted = [wanted] if hasattr(wanted, "numpy") else wanted
    got = call_c(tmp_path, nm.transform.write_c(module, tmp_path), given)
    for want, found in zip(wanted, got, strict=True):
        np.testing.assert_allclose(found, want.numpy(), rtol=1e-6)
