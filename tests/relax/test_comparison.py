"""TVM's plan, ours and the bound, side by side: static programs, several functions and devices, random sizes."""

from __future__ import annotations

import pytest

pytest.importorskip("tvm")

import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from benchmarks.relax import bytes_against_tvm, storages
from npu_memplan import analysis
from npu_memplan.extract import ExtractionError
from npu_memplan.transform import ConfigError, PlanMemory, memory_plan_faults, pool_sizes
from npu_memplan.transform.comparison import FunctionBytes, planned_by_tvm
from tests.relax.test_devices import ThereAndBack
from tests.support.random_symbolic import random_program, random_sizes, symbolic_programs
from tests.support.relax_results import build_for_host

OF_THE_ZOO = ("attention", "cnn_nhwc", "mlp", "nested_if", "relax_calls")


@I.ir_module
class Reversed:
    """Two functions; the kernel of `main` has 256 bytes of its own."""

    @T.prim_func(s_tir=True)
    def turn(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32")):
        t = T.alloc_buffer((64,), "float32")
        for i in range(64):
            t[i] = a[63 - i]
        for i in range(64):
            b[i] = t[i] + a[i]

    @R.function
    def main(x: R.Tensor((64,), "float32")):
        y = R.exp(x)
        z = R.call_tir(Reversed.turn, (y,), out_ty=R.Tensor((64,), "float32"))
        return R.add(z, y)

    @R.function
    def other(x: R.Tensor((16,), "float32")):
        y = R.exp(x)
        z = R.tanh(y)
        return R.add(z, y)


def test_bytes_by_function():
    found = analysis.compare(Reversed)
    # the kernel's own bytes, which TVM's plan does not see, are those of its result, too
    assert found.rows == (FunctionBytes("main", "", 512, 256, 512, 512), FunctionBytes("other", "", 128, 0, 128, 128))
    lines = found.table().splitlines()
    assert lines[0] == "| function | device | TVM's plan | in kernels | ours | bound | ours / TVM |"
    assert lines[2:] == ["| main | - | 512 | 256 | 512 | 512 | 0.67 |", "| other | - | 128 | 0 | 128 | 128 | 1.00 |"]


@I.ir_module
class Vectors:
    """A kernel with vectors and threads, and empty tensors of sizes that are known and that are not."""

    @T.prim_func(s_tir=True)
    def turn(a: T.Buffer((64, 16), "float32"), b: T.Buffer((64, 16), "float32")):
        t = T.alloc_buffer((64, 16), "float32")
        for i in T.parallel(64):
            for j in T.vectorized(16):
                t[i, j] = a[i, j] * T.float32(3)
        for i in T.parallel(64):
            for j in T.vectorized(16):
                b[i, j] = t[63 - i, j]

    @R.function
    def main(x: R.Tensor((64, 16), "float32"), empty: R.Tensor((0, 16), "float32")):
        y = R.exp(x)
        z = R.call_tir(Vectors.turn, (y,), out_ty=R.Tensor((64, 16), "float32"))
        e = R.tanh(empty)
        return R.add(z, y), R.concat([e, e], axis=0), R.sum(e)

    @R.function
    def of_any_size(x: R.Tensor(("n", 8), "float32"), empty: R.Tensor((0, 8), "float32")):
        y = R.exp(x)
        e = R.tanh(empty)
        z = R.concat([y, e], axis=0)
        return R.add(z, y), R.concat([e, e], axis=0)


@pytest.mark.parametrize("n", [0, 1, 7])
def test_vectors_and_empty_tensors(n):
    main, other = analysis.compare(Vectors, {"n": n}).rows
    assert main == FunctionBytes("main", "", 8192, 4096, 12288, 12288)
    assert other == FunctionBytes("of_any_size", "", 64 * n, 0, 64 * n, 64 * n)
    planned = PlanMemory(poison=0xA5)(Vectors)
    assert memory_plan_faults(planned) == ((), ())
    inputs = [tvm.runtime.tensor(np.ones((n, 8), "float32")), tvm.runtime.tensor(np.ones((0, 8), "float32"))]
    found, empty = relax.VirtualMachine(build_for_host(planned), tvm.cpu())["of_any_size"](*inputs)
    assert np.allclose(found.numpy(), 2 * np.e)
    assert (tuple(found.shape), tuple(empty.shape)) == ((n, 8), (0, 8))


def test_bytes_by_device():
    rows = analysis.compare(ThereAndBack).rows
    assert [(row.function, row.device) for row in rows] == [("main", "llvm:0"), ("main", "llvm:1")]
    sizes = pool_sizes(PlanMemory()(ThereAndBack))
    assert [row.planned_bytes for row in rows] == [sizes["workspace_llvm_0"], sizes["workspace_llvm_1"]]
    first, second = rows
    assert first.tvm_internal_bytes == 0 < second.tvm_internal_bytes  # of the softmax
    assert [row.tvm_bytes for row in rows] == [256, 512]  # without the tensor of 256 bytes that is copied to either
    assert [row.planned_bytes - row.bound_bytes for row in rows] == [0, 0]


@pytest.mark.parametrize("name", OF_THE_ZOO)
def test_no_plan_is_below_the_bound_nor_ours_above_that_of_tvm(name, zoo):
    entry = zoo.ZOO[name]()
    for row in analysis.compare(entry.module, entry.bounds).rows:
        assert row.bound_bytes <= row.planned_bytes <= row.tvm_bytes + row.tvm_internal_bytes


def test_what_stays_at_run_time_is_counted():
    @I.ir_module
    class Late:
        @R.function
        def main(x: R.Tensor(ndim=1, dtype="float32")):
            n = T.int64()
            y = R.match_cast(x, R.Tensor((n,), "float32"))
            z = R.add(y, y)
            return R.multiply(z, z)

    row = FunctionBytes("main", "", 20, 0, 20, 0)
    assert analysis.compare(Late, {"n": 5}).rows == (row,)


def test_a_symbol_without_a_value_is_an_error():
    with pytest.raises(ConfigError, match="sizes of 'main' depend on m without a value or a bound; give symbols="):
        analysis.compare(random_program(0), {"n": 4})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"symbols": {"n": 4, "m": -1}}, "the shape symbol 'm' is -1; give a whole number >= 0"),
        ({"symbols": {"n": 4, "m": 2.5}}, "the shape symbol 'm' is 2.5; give a whole number >= 0"),
        ({"symbols": ["n"]}, "symbols must be of type mapping, not"),
        ({"symbols": {"n": 9, "m": 2}, "bounds": {"n": 8}}, "the shape symbol 'n' is 9, above its bound 8"),
        ({"bounds": ["n"]}, "bounds must be of type mapping"),
    ],
)
def test_values_that_symbols_cannot_have_are_errors(given, message):
    with pytest.raises(ConfigError, match=message):
        analysis.compare(random_program(0), **given)


def test_what_has_no_plan_to_compare_is_an_error():
    for module in (PlanMemory()(Reversed), planned_by_tvm(Reversed)):
        with pytest.raises(ExtractionError, match="is planned already; give the module as it was before"):
            analysis.compare(module)
    with pytest.raises(ExtractionError, match="an IRModule is needed, not Function"):
        analysis.compare(Reversed["main"])


def test_values_may_be_bounds():
    module = random_program(0)
    bounded = analysis.compare(module, bounds={"n": 4, "m": 9})
    assert bounded.symbols == {"n": 4, "m": 9}
    assert bounded.rows[0].bound_bytes == analysis.compare(module, {"n": 4, "m": 9}).rows[0].bound_bytes


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_no_symbolic_plan_takes_more_than_that_of_tvm_at_any_drawn_size(seed):
    _, module, symbols = list(symbolic_programs())[seed]
    planned, stock = PlanMemory()(module), storages(module)
    for values in random_sizes(seed, symbols, 100):
        assert bytes_against_tvm(module, planned, stock, values) <= 1, values
