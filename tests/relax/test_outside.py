"""Calls that are not looked into: packed functions, closures, recursion, objects - on poisoned pools."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from npu_memplan.extract import ExtractionError
from npu_memplan.planners import PlanningError
from npu_memplan.problem import Pool
from npu_memplan.transform import AllocateWorkspaces, PlanMemory, pool_sizes
from npu_memplan.vocabulary import POOLS, RUN_TIME


def pools_of(module) -> dict[str, int]:
    """Pool name -> bytes of a planned main."""
    return {str(n): b for n, b in module["main"].attrs[POOLS]}


def left(module) -> dict[str, str]:
    """What main still allocates at run time -> why."""
    return {str(n): str(why) for n, why in module["main"].attrs[RUN_TIME]}


@tvm.register_global_func("npu_memplan.test.twice", override=True)
def _twice(source, target) -> None:
    target.copyfrom(source.numpy() * 2)


@tvm.register_global_func("npu_memplan.test.split", override=True)
def _split(source, count, low, high) -> None:
    low.copyfrom(source.numpy() - count)
    high.copyfrom(source.numpy() + count)


@tvm.register_global_func("npu_memplan.test.scratched", override=True)
def _scratched(source, workspace, target) -> None:
    """Needs its workspace: what it computes goes through it; it leaves rubbish there."""
    size = 4 * int(np.prod(source.shape))
    assert workspace.shape[0] >= size
    bytes_ = np.zeros(workspace.shape[0], np.uint8)
    bytes_[:size] = (source.numpy() + 1).view(np.uint8).reshape(-1)
    workspace.copyfrom(bytes_)
    target.copyfrom(workspace.numpy()[:size].view(np.float32).reshape(source.shape))
    workspace.copyfrom(np.full(workspace.shape[0], 0xEE, np.uint8))


@I.ir_module
class Packed:
    """Three library calls, one with two results, between two operators."""

    @R.function
    def main(x: R.Tensor((16, 16), "float32")) -> R.Tensor((16, 16), "float32"):
        y = R.exp(x)
        a = R.call_dps_packed("npu_memplan.test.twice", (y,), out_ty=R.Tensor((16, 16), "float32"))
        b = R.call_dps_packed("npu_memplan.test.twice", (a,), out_ty=R.Tensor((16, 16), "float32"))
        t = R.call_dps_packed(
            "npu_memplan.test.split",
            (b, R.prim_value(3)),
            out_ty=[R.Tensor((16, 16), "float32"), R.Tensor((16, 16), "float32")],
        )
        return R.add(t[0], t[1])


def test_results_of_packed_functions_are_planned(run):
    planned = PlanMemory([Pool("sram")], poison=0xA5)(Packed)
    assert pools_of(planned) == {"sram": 3 * 1024}  # b and both results of the split
    assert set(left(planned).values()) == {"the caller owns it", "the caller gets it"}
    x = np.random.default_rng(0).standard_normal((16, 16), dtype=np.float32)
    assert run(planned, [[x]])[0][0].tobytes() == run(Packed, [[x]])[0][0].tobytes()
    tvm.ir.assert_structural_equal(tvm.script.from_source(planned.script(show_meta=True)), planned)


def test_a_hard_pool_holds_results_of_packed_functions_or_says_so():
    PlanMemory([Pool("sram", 3072)])(Packed)
    with pytest.raises(PlanningError, match="do not fit pool 'sram': required 3072 bytes, available 3071"):
        PlanMemory([Pool("sram", 3071)])(Packed)


@I.ir_module
class Sorted:
    @R.function
    def main(x: R.Tensor((6, 7), "float32")) -> R.Tensor((6, 7), "float32"):
        y = R.sort(R.exp(x), axis=-1)
        return R.add(y, y)


def test_what_hard_pools_cannot_hold_is_named():
    with pytest.raises(ExtractionError) as caught:
        PlanMemory([Pool("sram", 1024), Pool("sdram", 4096)])(Sorted)
    assert str(caught.value) == (
        "'main' was given hard pools only ('sram' of 1024 bytes, 'sdram' of 4096 bytes), but these would lie outside"
        " them, wherever the run time allocates them: 'y' (168 bytes, it is the result of relax.sort); add a pool"
        " without a size to allow that, give shape symbols bounds (bounds={...}), or call packed functions in"
        " destination-passing style (R.call_dps_packed)"
    )
    PlanMemory([Pool("sram", 1024), Pool("dram")])(Sorted)


@I.ir_module
class Workspaces:
    """A workspace that two calls share, as `relax.transform.AllocateWorkspace` makes it."""

    @R.function
    def main(x: R.Tensor((16, 16), "float32")) -> R.Tensor((16, 16), "float32"):
        workspace = R.builtin.alloc_tensor(R.shape([1024]), R.dtype("uint8"), R.prim_value(0))
        a = R.call_dps_packed("npu_memplan.test.scratched", (x, workspace), out_ty=R.Tensor((16, 16), "float32"))
        b = R.add(a, x)
        c = R.multiply(b, a)
        d = R.call_dps_packed("npu_memplan.test.scratched", (c, workspace), out_ty=R.Tensor((16, 16), "float32"))
        return R.exp(d)


def test_a_workspace_lives_only_while_it_is_used(run):
    planned = PlanMemory([Pool("sram")], poison=0xA5)(Workspaces)
    # c, d and the workspace at the second call; while c is made, a and b (or c in place) live, not the workspace
    assert pools_of(planned) == {"sram": 3 * 1024}
    assert "workspace" not in left(planned)
    x = np.random.default_rng(0).standard_normal((16, 16), dtype=np.float32)
    assert run(planned, [[x]])[0][0].tobytes() == run(Workspaces, [[x]])[0][0].tobytes()


@I.ir_module
class Objects:
    """A tuple parameter with a tensor and an object, as an `nn` export with effects has it."""

    @R.function
    def main(x: R.Tensor((4,), "float32"), state: R.Tuple(R.Tensor((4,), "float32"), R.Object)) -> R.Tuple(
        R.Tensor((4,), "float32"), R.Tuple(R.Object)
    ):
        y = R.add(x, state[0])
        z = R.exp(y)
        o = state[1]
        return (z, (o,))


def test_a_tuple_parameter_may_hold_an_object():
    from npu_memplan.transform import pipeline

    planned = PlanMemory(poison=0xA5)(Objects)
    vm = relax.VirtualMachine(tvm.compile(planned, target="llvm", relax_pipeline=pipeline(plan=False)), tvm.cpu())
    x, thing = np.arange(4, dtype=np.float32), tvm.runtime.ShapeTuple([7])
    z, (same,) = vm["main"](tvm.runtime.tensor(x), (tvm.runtime.tensor(x), thing))
    np.testing.assert_allclose(z.numpy(), np.exp(x + x), rtol=1e-6)
    assert list(same) == [7]
    with pytest.raises(ExtractionError, match="parameter 'state_1' of 'main' is no tensor"):
        PlanMemory(use_workspace_io=True)(Objects)


@I.ir_module
class Asking:
    """The library function takes a workspace that the program does not pass yet."""

    @R.function
    def main(x: R.Tensor(("n", 16), "float32")):
        n = T.int64()
        with R.dataflow():
            y = R.exp(x)
            z = R.call_dps_packed("npu_memplan.test.scratched", (y,), out_ty=R.Tensor((n, 16), "float32"))
            u = R.add(z, y)
            R.output(u)
        return u


@tvm.register_global_func("npu_memplan.test.scratched.bytes", override=True)
def _bytes(source, result):
    assert len(result.shape) == 2
    return source.shape[0] * source.shape[1] * 4


@pytest.mark.parametrize("size", [4096, _bytes, "npu_memplan.test.scratched.bytes"], ids=["number", "function", "name"])
def test_workspaces_by_a_number_or_a_function_are_planned(size, run):
    module = AllocateWorkspaces({"npu_memplan.test.scratched": size})(Asking)
    planned = PlanMemory(poison=0xA5)(module)
    assert set(left(planned).values()) == {"the caller owns it", "the caller gets it"}
    # y, z and the workspace
    assert pool_sizes(planned, {"n": 8})["workspace"] == 2 * 512 + (4096 if size == 4096 else 512)
    x = np.random.default_rng(0).standard_normal((8, 16), dtype=np.float32)
    assert run(planned, [[x]])[0][0].tobytes() == run(module, [[x]])[0][0].tobytes()
    tvm.ir.assert_structural_equal(AllocateWorkspaces({"npu_memplan.test.scratched": 0})(Asking), Asking)
