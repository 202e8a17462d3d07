"""PrimFuncs of every kind that Relax may call: narrow shape symbols, handles, strides, and extents that are no sums."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm
import tvm_ffi
from tvm import relax
from tvm.script import from_source
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from npu_memplan.planners import prefetch
from npu_memplan.transform import PlanMemory, memory_plan_faults, pipeline, pool_sizes
from tests.relax.test_memory_views import same_as_tvm
from tests.support.relax_results import build_for_host, results

SYMBOLS = """
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def f(x: T.handle, y: T.handle):
        n = T.{kind}()
        A = T.match_buffer(x, (n, 16))
        B = T.match_buffer(y, (n, 16))
        g = T.sblock_alloc_buffer((n * T.{kind}(2), 16))
        for i, j in T.grid(n, 16):
            with T.sblock("g"):
                vi, vj = T.axis.remap("SS", [i, j])
                g[vi, vj] = A[vi, vj] * T.float32(3)
        for i, j in T.grid(n, 16):
            with T.sblock("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = g[n - T.{kind}(1) - vi, vj] + T.float32(1)

    @R.function
    def main(x: R.Tensor(("n", 16), "float32")):
        n = T.int64()
        a = R.exp(x)
        b = R.call_tir(Module.f, (a,), out_ty=R.Tensor((n, 16), "float32"))
        c = R.call_tir(Module.f, (b,), out_ty=R.Tensor((n, 16), "float32"))
        return R.add(c, b)
"""


@pytest.mark.parametrize("options", [{}, {"bounds": {"n": 40}}, {"bounds": {"n": 40}, "worst_case": False}])
@pytest.mark.parametrize("kind", ["int64", "int32", "int16", "int8"])
def test_shape_symbols_of_every_integer_type(kind, options):
    module = from_source(SYMBOLS.format(kind=kind))
    same_as_tvm(module, *([np.arange(16 * n, dtype="float32").reshape(n, 16) / 99] for n in (1, 5, 33)), **options)


@I.ir_module
class Strided:
    """A buffer whose strides and offset are symbols of their own, which the caller's tensor tells."""

    @T.prim_func(s_tir=True)
    def f(x: T.handle, y: T.handle):
        s, t, o = T.int32(), T.int32(), T.int32()
        A = T.match_buffer(x, (8, 16), strides=(s, t), elem_offset=o)
        B = T.match_buffer(y, (8, 16))
        for i, j in T.grid(8, 16):
            with T.sblock("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[7 - vi, vj] + T.float32(1)

    @R.function
    def main(x: R.Tensor((8, 16), "float32")):
        a = R.exp(x)
        b = R.call_tir(Strided.f, (a,), out_ty=R.Tensor((8, 16), "float32"))
        return R.add(b, b)


@I.ir_module
class StridedAndSymbolic:
    @T.prim_func(s_tir=True)
    def f(x: T.handle, y: T.handle):
        n, s, t, o = T.int32(), T.int32(), T.int32(), T.int32()
        A = T.match_buffer(x, (n, n, 4), strides=(s, t, 1), elem_offset=o)
        B = T.match_buffer(y, (n, n, 4))
        for i, j, k in T.grid(n, n, 4):
            with T.sblock("b"):
                vi, vj, vk = T.axis.remap("SSS", [i, j, k])
                B[vi, vj, vk] = A[vi, n - 1 - vj, vk] + T.float32(1)

    @R.function
    def main(x: R.Tensor(("n", "n", 4), "float32")):
        n = T.int64()
        a = R.exp(x)
        b = R.call_tir(StridedAndSymbolic.f, (a,), out_ty=R.Tensor((n, n, 4), "float32"))
        return R.add(b, b)


def test_strides_and_offsets_that_are_symbols():
    same_as_tvm(Strided, [np.arange(128, dtype="float32").reshape(8, 16) / 50])
    same_as_tvm(StridedAndSymbolic, *([np.arange(4 * n * n, dtype="float32").reshape(n, n, 4) / 50] for n in (1, 5)))


class _Object(ctypes.Structure):
    """The tensor object behind a handle."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


@tvm_ffi.register_global_func("npu_memplan.tests.shifted", override=True)
def _shifted(*handles):
    source, target = (_Object.from_address(handle.value) for handle in handles)
    for tensor in (source, target):
        assert (tensor.ndim, tensor.shape[0], tensor.shape[1], tensor.byte_offset) == (2, 2, 4, 0)
    given, made = ((ctypes.c_float * 8).from_address(tensor.data) for tensor in (source, target))
    made[:] = [2 * value + 1 for value in given]


@I.ir_module
class Handles:
    """Handles without a buffer: the kernel gets tensor objects, and hands them on."""

    @T.prim_func(s_tir=True)
    def k(x: T.handle, y: T.handle):
        T.evaluate(T.call_packed("npu_memplan.tests.shifted", x, y))

    @R.function
    def main(x: R.Tensor((2, 4), "float32")):
        cls = Handles
        a = R.exp(x)
        b = R.call_tir(cls.k, (a,), out_ty=R.Tensor((2, 4), "float32"))
        c = R.call_tir(cls.k, (b,), out_ty=R.Tensor((2, 4), "float32"))
        d = R.add(c, a)
        return R.call_tir(cls.k, (d,), out_ty=R.Tensor((2, 4), "float32"))


def test_handles_get_tensor_objects_on_the_pool():
    planned = same_as_tvm(Handles, [np.arange(8, dtype="float32").reshape(2, 4) / 8])
    assert set(dict(planned["main"].attrs["npu.run_time"]).values()) == {"the caller owns it", "the caller gets it"}


@I.ir_module
class PlannedByTvm:
    @T.prim_func(s_tir=True)
    def k(x: T.handle, y: T.handle):
        T.evaluate(T.call_extern("int32", "my_kernel", x, y))

    @R.function
    def main(x: R.Tensor((8,), "float32")):
        R.func_attr({"relax.force_pure": True})
        cls = PlannedByTvm
        a: R.Tensor((8,), "float32") = R.builtin.alloc_tensor(R.shape([8]), "float32", 0)
        cls.k(x, a)
        b: R.Tensor((8,), "float32") = R.builtin.alloc_tensor(R.shape([8]), "float32", 0)
        cls.k(a, b)
        c: R.Tensor((8,), "float32") = R.builtin.alloc_tensor(R.shape([8]), "float32", 0)
        cls.k(b, c)
        d: R.Tensor((8,), "float32") = R.builtin.alloc_tensor(R.shape([8]), "float32", 0)
        cls.k(c, d)
        return d


def test_kernels_that_take_handles_are_verified():
    theirs = relax.transform.StaticPlanBlockMemory()(PlannedByTvm)
    assert memory_plan_faults(theirs) == ((), ())
    assert memory_plan_faults(PlanMemory()(PlannedByTvm)) == ((), ())
    text = theirs.script(show_meta=True)
    assert "my_kernel" in text
    wrong = from_source(text.replace("cls.k(b, c)", "cls.k(a, c)"))  # whose bytes `c` has by now
    faults, _ = memory_plan_faults(wrong)
    assert faults, text


@I.ir_module
class Storage:
    @R.function
    def main(x: R.Tensor((6,), "float32")):
        R.func_attr({"relax.force_pure": True})
        s = R.vm.alloc_storage(R.shape([6]), R.prim_value(0), R.dtype("float32"))
        a = R.vm.alloc_tensor(s, R.prim_value(0), R.shape([6]), R.dtype("float32"))
        return a


def test_a_storage_of_the_run_time_has_elements_of_its_type():
    faults, _ = memory_plan_faults(Storage)
    assert not [f for f in faults if "lies in a storage" in f.text]


@I.ir_module
class Sizes:
    """Extents that choose, and divisions that round towards 0."""

    @R.function
    def main(x: R.Tensor(("n", "m"), "float32")):
        n, m = T.int64(), T.int64()
        a = R.strided_slice(x, axes=[0, 1], begin=[0, 0], end=[n // 2 + n % 2, m - m % 3], strides=[1, 1])
        b = R.exp(a)
        d = R.concat([b, R.exp(R.negative(a)), b], axis=1)
        f = R.subtract(d, R.sum(d, axis=[1], keepdims=True))
        h = R.nn.softmax(R.permute_dims(f, [1, 0]), axis=-1)
        k = R.flatten(h)
        return R.sum(k), R.max(f, axis=[0])


@pytest.mark.parametrize("options", [{}, {"bounds": {"n": 64, "m": 40}, "worst_case": False}])
def test_extents_that_choose_have_formulas(options):
    planned = PlanMemory(poison=0xA5, **options)(Sizes)
    assert not memory_plan_faults(planned)[0]
    assert pool_sizes(planned, {"n": 8, "m": 9})["workspace"] > 0
    vms = [
        relax.VirtualMachine(tvm.compile(m, "llvm", relax_pipeline=p), tvm.cpu())
        for m, p in ((Sizes, "default"), (planned, pipeline()))
    ]
    for n, m in ((1, 3), (9, 11), (64, 40)):
        x = tvm.runtime.tensor(np.random.default_rng(1).random((n, m), "float32"))
        wanted, got = ([a.numpy() for a in vm["main"](x)] for vm in vms)
        assert all(np.array_equal(a, b) for a, b in zip(wanted, got, strict=True))


@I.ir_module
class Declared:
    @R.function
    def main(x: R.Tensor(["n", "m"], "int32"), y: R.Any) -> R.Tensor(["m", "n"], dtype=None):
        return y


def test_the_declared_type_of_the_result_is_checked():
    vm = relax.VirtualMachine(tvm.compile(PlanMemory()(Declared), "llvm", relax_pipeline=pipeline()), tvm.cpu())
    x, right, wrong = (tvm.runtime.tensor(np.zeros(s, "int32")) for s in ((1, 2), (2, 1), (1, 2)))
    vm["main"](x, right)
    with pytest.raises(RuntimeError, match="return"):
        vm["main"](x, wrong)


@I.ir_module
class FromObjects:
    """Tensors that come out of an object, as of LazyTransformParams."""

    @R.function(pure=False)
    def main(o: R.Any):
        n = T.int64()
        x = R.match_cast(o, R.Tensor((3, n), "float32"))
        a = R.permute_dims(x, [1, 0])
        b = R.add(a, a)
        return R.exp(b)


def test_tensors_out_of_objects():
    same_as_tvm(FromObjects, [np.arange(12, dtype="float32").reshape(3, 4) / 12])


def test_a_module_without_call_tir_is_well_formed_afterwards():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((64, 64), "float32")):
            a = R.exp(x)
            b = R.matmul(a, a)
            return R.add(R.matmul(b, a), b)

    t = relax.transform
    passes = [t.LegalizeOps(), t.ToNonDataflow(), t.RemovePurityChecking(), t.CallTIRRewrite()]
    lowered = tvm.transform.Sequential(passes)(Module)
    planned = PlanMemory(poison=0xA5)(lowered)
    assert relax.analysis.check_well_formed(planned)
    x = tvm.runtime.tensor(np.random.default_rng(0).random((64, 64), "float32"))
    wanted, got = (
        relax.VirtualMachine(tvm.compile(m, "llvm", relax_pipeline=p), tvm.cpu())["main"](x).numpy()
        for m, p in ((Module, "default"), (planned, pipeline()))
    )
    assert np.array_equal(wanted, got)


def many_functions(rng, count):
    """Functions of one shape, whose operators are drawn: the kernels are the same, their places are not."""
    builder = relax.BlockBuilder()
    for k in range(count):
        x = relax.Var("x", relax.TensorType((8, 8), "float32"))
        with builder.function("main" if k == 0 else f"f{k}", [x]):
            values = [x]
            for _ in range(int(rng.integers(3, 12))):
                first, second = (values[int(i)] for i in rng.integers(max(0, len(values) - 4), len(values), 2))
                made = (relax.op.tanh(first), relax.op.add(first, second), relax.op.nn.softmax(first))
                values.append(builder.emit(made[int(rng.integers(3))]))
            builder.emit_func_output(relax.op.add(values[-1], values[-2]))
    return builder.get()


@pytest.mark.parametrize("seed", range(3))
def test_functions_share_kernels(seed):
    module = many_functions(np.random.default_rng(seed), 12)
    planned = PlanMemory(poison=0xA5)(module)
    assert memory_plan_faults(planned) == ((), ())
    relaxed = [f for f in planned.functions.values() if isinstance(f, relax.Function)]
    kernels = len(planned.functions) - 2 * len(relaxed)  # without what fills a pool
    forms = 2**3 + 2**2 + 2**2  # each tensor of add, tanh and softmax is in the pool or not
    assert kernels <= forms < sum(len(f.attrs["npu.calls"]) for f in relaxed)
    unplanned, own = (
        relax.VirtualMachine(tvm.compile(m, target="llvm", relax_pipeline=pipeline(plan=False)), tvm.cpu())
        for m in (module, planned)
    )
    x = tvm.runtime.tensor(np.random.default_rng(seed).standard_normal((8, 8)).astype("float32"))
    for gv, function in module.functions.items():
        if isinstance(function, relax.Function):
            name = gv.name_hint
            assert own[name](x).numpy().tobytes() == unplanned[name](x).numpy().tobytes()
            alone = PlanMemory()(tvm.IRModule({gv: function.with_attr("global_symbol", name)}))
            assert pool_sizes(planned, {}, name) == pool_sizes(alone, {}, name)


def test_equal_functions_have_one_plan(monkeypatch):
    one = many_functions(np.random.default_rng(3), 2)
    first, other = (f for f in one.functions.values() if isinstance(f, relax.Function))
    builder = relax.BlockBuilder()
    for k, function in enumerate((first, other, first, first)):
        copy = relax.utils.copy_with_new_vars(function).with_attr("global_symbol", f"f{k}")
        builder.add_func(copy, f"f{k}")
    module = builder.get()
    planned_problems = []
    plan_last_pool = prefetch.plan_last_pool
    monkeypatch.setattr(
        prefetch, "plan_last_pool", lambda *given: planned_problems.append(given) or plan_last_pool(*given)
    )
    planned = PlanMemory()(module)
    assert len(planned_problems) == 2
    assert memory_plan_faults(planned) == ((), ())
    sizes = [pool_sizes(planned, {}, f"f{k}") for k in range(4)]
    assert sizes[0] == sizes[2] == sizes[3] != sizes[1]


def test_a_kernel_that_is_also_a_value_keeps_its_form():
    @I.ir_module
    class Module:
        @T.prim_func(s_tir=True)
        def double(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
            for i in range(8):
                b[i] = a[i] * T.float32(2)

        @R.function
        def main(x: R.Tensor((8,), "float32")):
            y = R.call_tir(Module.double, (x,), out_ty=R.Tensor((8,), "float32"))
            return R.call_tir(Module.double, (y,), out_ty=R.Tensor((8,), "float32"))

        @R.function(pure=False)
        def other(x: R.Tensor((8,), "float32")):
            y = R.builtin.alloc_tensor(R.shape([8]), "float32", 0)
            _ = R.call_packed("tests.call_kernel", Module.double, x, y, ty_args=(R.Tuple,))
            return y

    planned = PlanMemory()(Module)
    assert tvm_ffi.structural_equal(planned["double"], Module["double"])
    assert {"double_1", "double_2"} & {gv.name_hint for gv in planned.functions}


def test_a_function_of_the_name_that_copies_have_stays():
    @I.ir_module
    class Module:
        @R.function
        def copy(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            return R.negative(x)

        @R.function
        def main(x: R.Tensor((8,), "float32"), c: R.Tensor((), "bool")):
            cls = Module
            y = R.exp(x)
            if c:
                z = y  # not made in the branch, so it is copied
            else:
                w = R.add(y, x)
                z = R.tanh(w)
            return R.add(cls.copy(z), y)

    planned = PlanMemory(poison=0xA5)(Module)
    assert {"copy", "copy_1"} <= {gv.name_hint for gv in planned.functions}
    plain, own = build_for_host(Module), build_for_host(planned)
    for chosen in (True, False):
        inputs = [np.arange(8, dtype="float32"), np.array(chosen)]
        assert results(own, inputs) == results(plain, inputs)
