"""Kernels in place keep `tirx.noalias` where it holds; TVM applies that of the last kernel, by name, to all."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm
from tvm import tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from npu_memplan.extract.tir import nodes_of
from npu_memplan.transform import PlanMemory, memory_plan_faults
from tests.support.relax_results import build_for_host, results


@I.ir_module
class Quantized:
    """Bytes made in place of floats, four bytes for one; and a kernel that nobody calls."""

    @T.prim_func(s_tir=True)
    def transposed(x: T.Buffer((64, 10), "int8"), y: T.Buffer((10, 64), "int8")):
        T.func_attr({"tirx.noalias": True, "global_symbol": "transposed"})
        for i, j in T.grid(10, 64):
            with T.sblock("copy"):
                v, w = T.axis.remap("SS", [i, j])
                y[v, w] = x[w, v]

    @R.function
    def main(x: R.Tensor((1, 32, 32, 16), "float32")):
        a = R.add(x, x)
        b = R.quantize(a, R.const(0.039393551647663116, "float32"), R.const(-128, "int8"), out_dtype="int8")
        return R.maximum(b, R.const(-100, "int8"))


def test_a_kernel_in_place_is_right_beside_one_with_noalias():
    planned = PlanMemory(poison=0xA5)(Quantized)
    kernels = {gv.name_hint: f for gv, f in planned.functions.items() if isinstance(f, tirx.PrimFunc)}
    assert "transposed" in kernels
    assert all("tirx.noalias" in f.attrs for f in kernels.values())
    assert results_are_equal(planned)


def test_where_one_kernel_lacks_noalias_all_do():
    function = Quantized["transposed"].without_attr("tirx.noalias")
    module = tvm.IRModule({**dict(Quantized.functions.items()), Quantized.get_global_var("transposed"): function})
    planned = PlanMemory(poison=0xA5)(module)
    kernels = [f for f in planned.functions.values() if isinstance(f, tirx.PrimFunc)]
    assert kernels
    assert not any("tirx.noalias" in f.attrs for f in kernels)
    assert results_are_equal(planned)


def declared(planned, name: str) -> list[str]:
    """How each buffer on a pool is declared, in textual order."""
    return [stmt.data.op.name for stmt in nodes_of(planned[name].body, tirx.DeclBuffer)]


def test_only_storages_that_share_bytes_are_declared_over_their_pool():
    planned = PlanMemory()(Quantized)
    assert declared(planned, "add") == ["tirx.address_of"]
    assert declared(planned, "quantize") == ["tirx.buffer_data"] * 2  # in place
    apart = PlanMemory(overlaps=False)(Quantized)
    assert declared(apart, "quantize") == ["tirx.address_of"] * 2


def results_are_equal(planned, plain=Quantized, shape=(1, 32, 32, 16)) -> bool:
    x = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    return results(build_for_host(plain), [x]) == results(build_for_host(planned), [x])


@I.ir_module
class Folded:
    """A kernel that works in place on its argument and, while that lives, elsewhere; called at several places."""

    @T.prim_func(s_tir=True, private=True)
    def fold(x: T.Buffer((1024,), "float32"), y: T.Buffer((1024,), "float32")):
        T.func_attr({"tirx.noalias": True})
        a = T.sblock_alloc_buffer((1024,), "float32")
        b = T.sblock_alloc_buffer((1024,), "float32")
        c = T.sblock_alloc_buffer((1024,), "float32")
        for i in range(1024):
            with T.sblock("a"):
                v = T.axis.spatial(1024, i)
                a[v] = x[v] * T.float32(2)
        for i in range(1024):
            with T.sblock("b"):
                v = T.axis.spatial(1024, i)
                b[v] = a[v] + a[1023 - v]
        for i in range(1024):
            with T.sblock("c"):
                v = T.axis.spatial(1024, i)
                c[v] = b[v] + T.float32(1)
        for i in range(1024):
            with T.sblock("y"):
                v = T.axis.spatial(1024, i)
                y[v] = a[v] + c[v]

    @R.function
    def main(x: R.Tensor((1024,), "float32")):
        cls = Folded
        with R.dataflow():
            kept = R.exp(x)
            first = R.add(x, x)
            second = R.call_tir(cls.fold, (first,), out_ty=R.Tensor((1024,), "float32"))
            third = R.call_tir(cls.fold, (second,), out_ty=R.Tensor((1024,), "float32"))
            fourth = R.call_tir(cls.fold, (third,), out_ty=R.Tensor((1024,), "float32"))
            other = R.add(third, kept)
            result = R.add(fourth, other)
            R.output(result)
        return result


def test_storages_that_share_no_bytes_are_declared_over_two_names_of_their_pool():
    planned = PlanMemory(poison=0xA5)(Folded)
    over = {
        stmt.buffer.name: stmt.data.args[0].name
        for stmt in nodes_of(planned["fold"].body, tirx.DeclBuffer)
        if stmt.data.op.name == "tirx.buffer_data"
    }
    assert over.keys() == set("xabcy")
    assert {over["x"], over["b"]} == {"workspace", "workspace_1"}
    assert (over["a"], over["c"]) == (over["x"], over["b"])
    assert memory_plan_faults(planned) == ((), ())
    assert results_are_equal(planned, Folded, (1024,))


def test_storages_at_one_distance_in_all_calls_have_one_offset():
    fold = PlanMemory()(Folded)["fold"]
    assert [parameter.name for parameter in fold.params] == ["workspace", "offset_0"]
    first = {s.buffer.name: str(s.buffer.elem_offset) for s in nodes_of(fold.body, tirx.DeclBuffer)}
    assert "offset_0" not in first["x"]  # at the same bytes in all three calls
    assert first["a"] == first["y"]
    assert first["b"] == first["c"]


@I.ir_module
class AnyLength:
    """An operator in place and one that is not, of any size."""

    @R.function
    def main(x: R.Tensor(("n", 16), "float32")):
        a = R.add(x, x)
        b = R.exp(a)
        c = R.permute_dims(b)
        return R.multiply(c, c)


@pytest.mark.parametrize("size", [1, 2, 33, 500])
@pytest.mark.parametrize("overlaps", [True, False])
def test_kernels_of_any_size_have_the_mark_and_are_right(overlaps, size):
    planned = PlanMemory(overlaps=overlaps, poison=0xA5)(AnyLength)
    kernels = [f for f in planned.functions.values() if isinstance(f, tirx.PrimFunc)]
    assert all("tirx.noalias" in f.attrs for f in kernels)
    assert declared(planned, "tir_exp") == ["tirx.buffer_data" if overlaps else "tirx.address_of"] * 2
    assert memory_plan_faults(planned) == ((), ())
    assert results_are_equal(planned, AnyLength, (size, 16))


def test_arguments_of_any_size_that_are_apart_have_a_parameter_each_for_the_pool():
    planned = PlanMemory(overlaps=False)(AnyLength)
    names = {s.buffer.name: s.data.args[0].source.name for s in nodes_of(planned["tir_exp"].body, tirx.DeclBuffer)}
    assert set(names.values()) == {"workspace", "workspace_1"}
    assert {"workspace", "workspace_1"} <= {parameter.name for parameter in planned["tir_exp"].params}


def test_storages_of_any_size_at_the_same_place_have_one_offset():
    planned = PlanMemory()(AnyLength)
    offsets = {str(s.buffer.elem_offset) for s in nodes_of(planned["tir_exp"].body, tirx.DeclBuffer)}
    assert len(offsets) == 1
