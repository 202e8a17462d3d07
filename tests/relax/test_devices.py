"""One set of pools for each device: programs on two of them, run on the VM with poisoned pools."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from npu_memplan.extract import ExtractionError
from npu_memplan.planners import PlanningError
from npu_memplan.problem import Pool
from npu_memplan.transform import PlanMemory, Workspace, WorkspaceMemoryPools, WorkspacePoolInfo, pipeline
from npu_memplan.vocabulary import CONSTANT_POOLS, PLACED_CONSTANTS, POOL_DEVICES, POOLS, RUN_TIME


@I.ir_module
class ThereAndBack:
    """Work on both devices, with copies in between; scratch in softmax on the second."""

    I.module_global_infos({"vdevice": [I.vdevice({"kind": "llvm"}, 0), I.vdevice({"kind": "llvm"}, 1)]})

    @R.function
    def main(x: R.Tensor((4, 16), "float32", "llvm:0")):
        y: R.Tensor((4, 16), "float32", "llvm:0") = R.add(x, x)
        z: R.Tensor((4, 16), "float32", "llvm:1") = R.to_vdevice(y, "llvm:1")
        w: R.Tensor((4, 16), "float32", "llvm:1") = R.nn.softmax(z)
        v: R.Tensor((4, 16), "float32", "llvm:1") = R.multiply(w, z)
        u: R.Tensor((4, 16), "float32", "llvm:0") = R.to_vdevice(v, "llvm:0")
        t: R.Tensor((4, 16), "float32", "llvm:0") = R.add(u, y)
        s: R.Tensor((4, 16), "float32", "llvm:0") = R.exp(t)
        return s


@I.ir_module
class Hinted:
    """The same idea with hints, which TVM turns into copies."""

    I.module_global_infos({"vdevice": [I.vdevice({"kind": "llvm"}, 0), I.vdevice({"kind": "llvm"}, 1)]})

    @R.function
    def main(x: R.Tensor((8, 8), "float32")):
        a = R.hint_on_device(x, tvm.cpu(0))
        b = R.add(a, a)
        c = R.hint_on_device(b, tvm.cpu(1))
        d = R.nn.softmax(c)
        e = R.multiply(d, d)
        return e


@I.ir_module
class Branches:
    """An `if` on the second device."""

    I.module_global_infos({"vdevice": [I.vdevice({"kind": "llvm"}, 0), I.vdevice({"kind": "llvm"}, 1)]})

    @R.function
    def main(x: R.Tensor((8,), "float32", "llvm:0"), c: R.Tensor((), "bool", "llvm:0")):
        y: R.Tensor((8,), "float32", "llvm:0") = R.exp(x)
        z: R.Tensor((8,), "float32", "llvm:1") = R.to_vdevice(y, "llvm:1")
        if c:
            p: R.Tensor((8,), "float32", "llvm:1") = R.add(z, z)
            q: R.Tensor((8,), "float32", "llvm:1") = R.nn.softmax(p)
        else:
            q: R.Tensor((8,), "float32", "llvm:1") = R.negative(z)
        w: R.Tensor((8,), "float32", "llvm:1") = R.multiply(q, z)
        return w


def matrix(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


PROGRAMS = {
    "there and back": (ThereAndBack, [[matrix(4, 16)]]),
    "hinted": (Hinted, [[matrix(8, 8)]]),
    "branches": (Branches, [[matrix(8), np.array(True)], [matrix(8), np.array(False)]]),
}


def execute(module, inputs) -> list[bytes]:
    """Results on two CPU devices."""
    vm = relax.VirtualMachine(
        tvm.compile(module, target="llvm", relax_pipeline=pipeline(plan=False)), [tvm.cpu(0), tvm.cpu(1)]
    )
    return [vm["main"](*[tvm.runtime.tensor(a) for a in arguments]).numpy().tobytes() for arguments in inputs]


def realised(module):
    return relax.transform.RealizeVDevice()(module)


def pools_of(module) -> dict[str, tuple[int, int]]:
    """Pool -> (device, bytes)."""
    attributes = module["main"].attrs
    sizes = {str(n): int(b) for n, b in attributes[POOLS]}
    return dict(zip(sizes, zip(map(int, attributes[POOL_DEVICES]), sizes.values(), strict=True), strict=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_devices_run_on_their_pools(name):
    module, inputs = PROGRAMS[name]
    planned = PlanMemory(poison=0xA5)(module)
    assert execute(planned, inputs) == execute(realised(module), inputs)
    used = pools_of(planned)
    assert {n: device for n, (device, _) in used.items()} == {"workspace_llvm_0": 0, "workspace_llvm_1": 1}
    assert all(size > 0 for _, size in used.values())
    left = {str(reason) for _, reason in planned["main"].attrs[RUN_TIME]}
    assert left <= {"the caller owns it", "the caller gets it"}
    tvm.ir.assert_structural_equal(tvm.script.from_source(planned.script(show_meta=True)), planned)
    tvm.ir.assert_structural_equal(PlanMemory()(planned), planned)


def test_pools_say_which_device_they_serve():
    pools = [
        Pool("fast", 256, targets=("llvm:1",)),
        Pool("first", targets=("llvm:0",)),
        Pool("slow", targets=("llvm",)),
    ]
    planned = PlanMemory(pools, poison=0xA5)(ThereAndBack)
    assert {n: d for n, (d, _) in pools_of(planned).items()} == {
        "first": 0,
        "slow_llvm_0": 0,
        "fast": 1,
        "slow_llvm_1": 1,
    }
    used = {n: size for n, (_, size) in pools_of(planned).items()}
    assert used["slow_llvm_0"] == 0  # all fits the first choice
    assert used["fast"] == 256
    assert used["slow_llvm_1"] > 0
    assert execute(planned, PROGRAMS["there and back"][1]) == execute(ThereAndBack, PROGRAMS["there and back"][1])


def test_devices_do_not_share_capacity():
    with pytest.raises(PlanningError, match="do not fit pool 'sram_llvm_1': required 784 bytes, available 512"):
        PlanMemory([Pool("sram", 512)], overlaps=False)(ThereAndBack)


def test_a_device_without_a_pool_is_named():
    message = r"buffers of 'main' lie on device llvm:1, which no pool serves \('sram' serves llvm:0\); give Pool"
    with pytest.raises(ExtractionError, match=message):
        PlanMemory([Pool("sram", targets=("llvm:0",))])(ThereAndBack)


def test_legacy_targets_name_devices():
    pools = WorkspaceMemoryPools([WorkspacePoolInfo("a", ["llvm:0"]), WorkspacePoolInfo("b", ["llvm:1"])])
    assert {n: d for n, (d, _) in pools_of(PlanMemory(pools)(ThereAndBack)).items()} == {"a": 0, "b": 1}


def test_a_module_without_devices_ignores_targets(zoo, run):
    entry = zoo.ZOO["matmul_residual"]()
    planned = PlanMemory([Pool("sram", targets=("llvm:1",))])(entry.module)
    assert [str(n) for n, _ in planned["main"].attrs[POOLS]] == ["sram"]
    assert POOL_DEVICES not in planned["main"].attrs


def test_inputs_and_outputs_lie_in_their_device_s_pools():
    module, inputs = PROGRAMS["there and back"]
    planned = PlanMemory(use_workspace_io=True)(module)
    workspace = Workspace(planned)
    vm = relax.VirtualMachine(
        tvm.compile(planned, target="llvm", relax_pipeline=pipeline(plan=False)), [tvm.cpu(0), tvm.cpu(1)]
    )
    workspace.input("x")[...] = inputs[0][0]
    vm["main"](*workspace.tensors)
    assert workspace.output("s").tobytes() == execute(module, inputs)[0]
    types = [p.ty.vdevice for p in planned["main"].params]
    assert [int(t.vdevice_id) for t in types] == [0, 1]


@I.ir_module
class Weighted:
    """The same constant on both devices."""

    I.module_global_infos({"vdevice": [I.vdevice({"kind": "llvm"}, 0), I.vdevice({"kind": "llvm"}, 1)]})

    @R.function
    def main(x: R.Tensor((4,), "float32", "llvm:0")):
        y: R.Tensor((4,), "float32", "llvm:0") = R.add(x, R.const([1, 2, 3, 4], "float32"))
        z: R.Tensor((4,), "float32", "llvm:1") = R.to_vdevice(y, "llvm:1")
        w: R.Tensor((4,), "float32", "llvm:1") = R.multiply(z, R.const([1, 2, 3, 4], "float32"))
        return w


@pytest.mark.parametrize("read_only", [True, False])
def test_constants_lie_on_the_device_that_reads_them(read_only):
    planned = PlanMemory(constant_pools=[Pool("flash", read_only=read_only)], poison=0xA5)(Weighted)
    places = [(str(e["pool"]), int(e["size_bytes"])) for e in planned["main"].attrs[PLACED_CONSTANTS]]
    assert places == [("flash_llvm_0", 16), ("flash_llvm_1", 16)]
    assert len(planned["main"].attrs[CONSTANT_POOLS]) == (2 if read_only else 0)
    x = np.array([1, -2, 0.5, 7], np.float32)
    scale = np.array([1, 2, 3, 4], np.float32)
    assert execute(planned, [[x]]) == [((x + scale) * scale).tobytes()]


@I.ir_module
class OtherPools:
    """Two functions that share a kernel, one of them on one device alone."""

    I.module_global_infos({"vdevice": [I.vdevice({"kind": "llvm"}, 0), I.vdevice({"kind": "llvm"}, 1)]})

    @R.function
    def other(x: R.Tensor((4, 16), "float32", "llvm:0")):
        y: R.Tensor((4, 16), "float32", "llvm:0") = R.exp(x)
        z: R.Tensor((4, 16), "float32", "llvm:0") = R.exp(y)
        return R.exp(z)

    @R.function
    def main(x: R.Tensor((4, 16), "float32", "llvm:0")):
        y: R.Tensor((4, 16), "float32", "llvm:0") = R.exp(x)
        z: R.Tensor((4, 16), "float32", "llvm:0") = R.exp(y)
        w: R.Tensor((4, 16), "float32", "llvm:1") = R.to_vdevice(z, "llvm:1")
        v: R.Tensor((4, 16), "float32", "llvm:1") = R.nn.softmax(w)
        u: R.Tensor((4, 16), "float32", "llvm:1") = R.multiply(v, w)
        return u


def test_functions_with_pools_on_other_devices_share_kernels():
    planned = PlanMemory(poison=0xA5)(OtherPools)
    assert len(planned["other"].attrs[POOLS]) == 1
    assert len(planned["main"].attrs[POOLS]) == 2
    x = tvm.runtime.tensor(np.linspace(-1, 0, 64, dtype="float32").reshape(4, 16))
    wanted, got = (
        relax.VirtualMachine(tvm.compile(m, "llvm", relax_pipeline=pipeline(plan=False)), [tvm.cpu(0), tvm.cpu(1)])
        for m in (OtherPools, planned)
    )
    for name in ("main", "other"):
        assert np.array_equal(wanted[name](x).numpy(), got[name](x).numpy())
