"""What PlanMemory does: pools, overlaps, bounded symbols, order, alignment, reshapes."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import npu_memplan as nm
from npu_memplan.planners import PlanningError
from npu_memplan.problem import Pool
from npu_memplan.rewrite.pools import FormulaError
from npu_memplan.transform import PlanMemory, Workspace, map_outputs, pool_sizes
from npu_memplan.vocabulary import ORDER_PEAKS, POOLS, RUN_TIME


def pools_of(module) -> dict[str, int]:
    """Pool name -> bytes of a planned main."""
    return {str(n): b for n, b in module["main"].attrs[POOLS]}


def test_the_documented_call(zoo, run):
    entry = zoo.ZOO["cnn_nhwc"]()
    planned = nm.transform.PlanMemory(pools=[nm.Pool("sram", 512 * 1024), nm.Pool("dram")], planner="auto")(
        entry.module
    )
    executable = tvm.compile(planned, target="llvm", relax_pipeline=nm.transform.pipeline())
    vm = relax.VirtualMachine(executable, tvm.cpu())
    output = vm["main"](*[tvm.runtime.tensor(a) for a in entry.inputs[0]]).numpy()
    np.testing.assert_array_equal(output, run(entry.module, entry.inputs[:1])[0][0])
    assert set(pools_of(planned)) == {"sram", "dram"}


def test_overlaps_lower_the_pool_and_keep_the_results(zoo, run):
    entry = zoo.ZOO["cnn_nhwc"]()
    without = PlanMemory(overlaps=False, poison=0xA5)(entry.module)
    with_them = PlanMemory(poison=0xA5)(entry.module)
    assert pools_of(with_them)["workspace"] < pools_of(without)["workspace"]
    for a, b in zip(run(without, entry.inputs), run(with_them, entry.inputs), strict=True):
        assert a[0].tobytes() == b[0].tobytes()


def test_overlaps_can_be_switched_off_per_function(zoo):
    entry = zoo.ZOO["cnn_nhwc"]()
    gv = entry.module.get_global_var("main")
    module = tvm.IRModule(dict(entry.module.functions.items()))
    module.update_func(gv, entry.module["main"].with_attr("npu_memplan.overlaps", False))
    assert pools_of(PlanMemory()(module)) == pools_of(PlanMemory(overlaps=False)(entry.module))


def test_hard_pool_sizes_are_hard(zoo):
    with pytest.raises(PlanningError) as caught:
        PlanMemory([Pool("sram", 8 * 1024)])(zoo.ZOO["cnn_nhwc"]().module)
    assert caught.value.available_bytes == 8 * 1024
    assert caught.value.required_bytes > 8 * 1024


def test_two_pools_spill_and_still_run(zoo, run):
    entry = zoo.ZOO["cnn_nhwc"]()
    planned = PlanMemory([Pool("fast", 24 * 1024), Pool("slow")], poison=0xA5)(entry.module)
    used = pools_of(planned)
    assert 0 < used["fast"] <= 24 * 1024
    assert used["slow"] > 0
    assert run(planned, entry.inputs)[0][0].tobytes() == run(entry.module, entry.inputs)[0][0].tobytes()


# -- dynamic shapes ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dynamic_convs", "dynamic_match_cast"])
def test_bounded_symbols_make_a_pool_of_constant_size(name, unplanned, run):
    entry, expected = unplanned(name)
    planned = PlanMemory(bounds=entry.bounds, worst_case=True, poison=0xA5)(entry.module)
    assert set(pools_of(planned)) == {"workspace"}
    assert isinstance(pools_of(planned)["workspace"], int)
    for want, got in zip(expected, run(planned, entry.inputs), strict=True):
        assert [a.tobytes() for a in want] == [b.tobytes() for b in got]
    tvm.ir.assert_structural_equal(tvm.script.from_source(planned.script(show_meta=True)), planned)


def test_bounded_symbols_and_inputs_in_the_pools(unplanned):
    entry, expected = unplanned("dynamic_convs")
    planned = PlanMemory(bounds=entry.bounds, use_workspace_io=True)(entry.module)
    tvm.ir.assert_structural_equal(tvm.script.from_source(planned.script(show_meta=True)), planned)
    assert map_outputs(planned)["g"].shape == (1, 8, "(h - 1)", "(w - 1)")
    executable = tvm.compile(planned, target="llvm", relax_pipeline=nm.transform.pipeline())
    vm = relax.VirtualMachine(executable, tvm.cpu())
    workspace = Workspace(planned)
    for inputs, wanted in zip(entry.inputs, expected, strict=True):  # one workspace for all shapes
        workspace.symbols = dict(zip("hw", inputs[0].shape[2:], strict=True))
        for name, value in zip(workspace.inputs, inputs, strict=True):
            workspace.input(name)[...] = value
        vm["main"](*workspace.tensors)
        assert workspace.output("g").tobytes() == wanted[0].tobytes()
    workspace.symbols = {"h": 17, "w": 2}
    with pytest.raises(Exception, match="promised at most"):
        vm["main"](*workspace.tensors)
    workspace.symbols = {"h": 3}
    with pytest.raises(FormulaError, match="needs a value of 'w'"):
        workspace.output("g")


def test_values_above_a_promised_bound_are_refused(zoo):
    entry = zoo.ZOO["dynamic_convs"]()
    planned = PlanMemory(bounds={"h": 4, "w": 4})(entry.module)
    executable = tvm.compile(planned, target="llvm", relax_pipeline=nm.transform.pipeline())
    vm = relax.VirtualMachine(executable, tvm.cpu())
    small, large = entry.inputs[2], entry.inputs[1]
    vm["main"](*[tvm.runtime.tensor(a) for a in small])
    with pytest.raises(Exception, match="promised at most"):
        vm["main"](*[tvm.runtime.tensor(a) for a in large])


def test_symbolic_pool_is_smaller_than_all_storages(zoo):
    planned = PlanMemory()(zoo.ZOO["dynamic_convs"]().module)
    # conv2d pads, convolves, activates, permutes twice, pads, convolves, activates, sums: two live at once.
    h = w = 16
    assert pool_sizes(planned, {"h": h, "w": w})["workspace"] <= (8 * (h + 2) * (w + 2) + 8 * h * w) * 4 + 128


def test_what_stays_at_run_time_says_why(zoo):
    left = dict(PlanMemory()(zoo.ZOO["packed_calls"]().module)["main"].attrs[RUN_TIME])
    assert left["x"] == "the caller owns it"
    assert any(reason.startswith("it is the result of relax.") for reason in left.values())


# -- order ---------------------------------------------------------------------------------------


def _wide(branches: int):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((256,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            wide = [builder.emit(relax.op.concat([x] * 4, axis=0)) for _ in range(branches)]
            sums = [builder.emit(relax.op.sum(relax.op.multiply(b, relax.const(i + 1.0)))) for i, b in enumerate(wide)]
            total = sums[0]
            for s in sums[1:]:
                total = builder.emit(relax.op.add(total, s))
            out = builder.emit_output(total)
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("branches", [3, 12])
def test_reordering_lowers_the_peak_of_a_branchy_graph(branches, run):
    module = _wide(branches)
    plain, ordered = PlanMemory(overlaps=False)(module), PlanMemory(overlaps=False, reorder=True)(module)
    before, after = ordered["main"].attrs[ORDER_PEAKS]["main"]
    assert after < before
    assert pools_of(ordered)["workspace"] < pools_of(plain)["workspace"]
    x = [[np.arange(256, dtype=np.float32)]]
    assert run(ordered, x)[0][0].tobytes() == run(module, x)[0][0].tobytes()


def test_reordering_leaves_a_chain_alone(zoo):
    planned = PlanMemory(reorder=True)(zoo.ZOO["cnn_nhwc"]().module)
    assert ORDER_PEAKS not in planned["main"].attrs


# -- a planned module can be broken on purpose ---------------------------------------------------


@I.ir_module
class NotInPlace:
    """Reading backwards: an output on its dying input would be wrong."""

    @T.prim_func(s_tir=True)
    def flip(x: T.Buffer((64,), "int32"), o: T.Buffer((64,), "int32")):
        for i in range(64):
            o[i] = x[63 - i] + 1

    @R.function
    def main(x: R.Tensor((64,), "int32")):
        cls = NotInPlace
        a = R.call_tir(cls.flip, (x,), out_ty=R.Tensor((64,), "int32"))
        b = R.call_tir(cls.flip, (a,), out_ty=R.Tensor((64,), "int32"))
        c = R.call_tir(cls.flip, (b,), out_ty=R.Tensor((64,), "int32"))
        return c


def test_what_is_not_proven_does_not_overlap(run):
    planned = PlanMemory()(NotInPlace)
    assert pools_of(planned)["workspace"] == 2 * 64 * 4 - 4  # the last element written is the last one read
    x = np.arange(64, dtype=np.int32)
    np.testing.assert_array_equal(run(planned, [[x]])[0][0], (((x[::-1] + 1)[::-1]) + 1)[::-1] + 1)


@I.ir_module
class Vectors:
    """The same operation element by element and on vectors, on tensors of 20 bytes."""

    @T.prim_func(s_tir=True)
    def plain(x: T.Buffer((5,), "float32"), o: T.Buffer((5,), "float32")):
        for i in range(5):
            o[i] = x[4 - i] + T.float32(1)

    @T.prim_func(s_tir=True)
    def wide(x: T.Buffer((5,), "float32"), o: T.Buffer((5,), "float32")):
        for i in T.vectorized(5):
            o[i] = x[4 - i] + T.float32(1)

    @R.function
    def elements(x: R.Tensor((5,), "float32"), f: R.Tensor((5,), "bool")):
        cls = Vectors
        a = R.call_tir(cls.plain, (x,), out_ty=R.Tensor((5,), "float32"))
        b = R.call_tir(cls.plain, (x,), out_ty=R.Tensor((5,), "float32"))
        return R.where(f, R.add(a, b), x)

    @R.function
    def vectors(x: R.Tensor((5,), "float32"), f: R.Tensor((5,), "bool")):
        cls = Vectors
        a = R.call_tir(cls.wide, (x,), out_ty=R.Tensor((5,), "float32"))
        b = R.call_tir(cls.wide, (x,), out_ty=R.Tensor((5,), "float32"))
        return R.where(f, R.add(a, b), x)


def test_a_buffer_is_aligned_as_its_kernels_require():
    planned = PlanMemory(overlaps=False)(Vectors)
    assert dict(planned["elements"].attrs[POOLS]) == {"workspace": 3 * 20}
    assert dict(planned["vectors"].attrs[POOLS]) == {"workspace": 48 + 20}
    assert dict(PlanMemory(overlaps=False, alignment=64)(Vectors)["elements"].attrs[POOLS]) == {"workspace": 148}


@I.ir_module
class Reshaped:
    @R.function
    def main(x: R.Tensor((4, 16), "float32"), c: R.Tensor((), "bool")):
        a = R.exp(x)
        b = R.reshape(a, (8, 8))
        if c:  # noqa: SIM108
            d = R.reshape(R.add(b, b), (64,))
        else:
            d = R.reshape(R.negative(b), (64,))
        return R.multiply(d, d)


@pytest.mark.parametrize(
    "before",
    [
        [],
        [relax.transform.LegalizeOps()],
        [relax.transform.LegalizeOps(), relax.transform.ToNonDataflow()],
        [relax.transform.ConvertToDataflow(), relax.transform.LegalizeOps(), relax.transform.RewriteDataflowReshape()],
    ],
    ids=["operators", "legalised", "without dataflow", "rewritten"],
)
def test_reshapes_are_never_copies_whatever_ran_before(before, run):
    module = tvm.ir.transform.Sequential(before)(Reshaped) if before else Reshaped
    planned = PlanMemory([Pool("sram")], poison=0xA5)(module)
    assert pools_of(planned)["sram"] <= 512  # b, and the value of the `if`
    assert "reshape" not in planned["main"].script().replace("R.reshape", "")
    x = np.arange(64, dtype=np.float32).reshape(4, 16) / 64
    for c in (True, False):
        inputs = [[x, np.array(c)]]
        assert run(planned, inputs)[0][0].tobytes() == run(Reshaped, inputs)[0][0].tobytes()


def test_the_first_rows_of_a_tensor_are_no_reshape(run):
    """Legalised, a slice from 0 has the addresses of a reshape (found in Swin): only as many elements make one."""

    @I.ir_module
    class Slices:
        @R.function
        def main(x: R.Tensor((8, 6), "float32")):
            a = R.exp(x)
            b = R.strided_slice(a, axes=[0], begin=[0], end=[5])
            c = R.reshape(R.add(b, b), (30,))
            return c

    legalised = tvm.relax.transform.LegalizeOps()(Slices)
    planned = PlanMemory(poison=0xA5)(legalised)
    x = np.arange(48, dtype=np.float32).reshape(8, 6) / 48
    np.testing.assert_array_equal(run(planned, [[x]])[0][0], run(Slices, [[x]])[0][0])
    names = {gv.name_hint for gv in planned.functions}
    assert "strided_slice" in names
    assert "reshape" not in names  # this one is no copy, and nobody compiles it
