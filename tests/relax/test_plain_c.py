"""The planned module as plain C computes what it computes on the Relax VM, bit for bit."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

pytest.importorskip("tvm")

from tvm.script import ir as I
from tvm.script import relax as R

from npu_memplan.codegen.errors import CodegenError
from npu_memplan.extract import ExtractionError
from npu_memplan.problem import Pool
from npu_memplan.rewrite import CONSTANT_POOLS
from npu_memplan.transform import Workspace, write_c

CC = shutil.which("cc") or shutil.which("gcc")


def call_c(folder, planned, inputs, *, initialise=False) -> list[np.ndarray]:
    """Compiles the sources and runs them on a poisoned workspace, twice: the second run finds what the first left."""
    library = folder / "model.so"
    flags = ["-O2", "-std=c99", "-fno-strict-aliasing", "-ffp-contract=off", "-shared", "-fPIC", "-Wall", "-Werror"]
    # The launch function of a platform is not needed: there is no NPU call.
    subprocess.run([CC, *flags, *map(str, folder.glob("*.c")), "-o", str(library), "-lm"], check=True)
    workspace = Workspace(planned)
    pools = (ctypes.c_void_p * len(workspace.pools))(*(p.ctypes.data for p in workspace.pools.values()))
    model = ctypes.CDLL(str(library))
    if initialise:
        assert model.model_initialise(pools) == 0
    for _ in range(2):
        for view, value in zip(map(workspace.input, workspace.inputs), inputs, strict=True):
            view[...] = value
        assert model.model_run(pools) == 0
    return [workspace.output(name).copy() for name in workspace.outputs]


@pytest.mark.skipif(CC is None, reason="needs a C compiler")
@pytest.mark.parametrize("name", ["cnn_nhwc", "casts_and_views", "in_place_call"])
def test_c_equals_vm(name, unplanned, tmp_path):
    entry, expected = unplanned(name)
    planned = write_c(entry.module, tmp_path)
    outputs = call_c(tmp_path, planned, entry.inputs[0])
    # Transcendental functions come from different libraries; everything else is the same to the bit.
    for want, got in zip(expected[0], outputs, strict=True):
        if name == "casts_and_views":
            assert want.tobytes() == got.tobytes()
        else:
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


@I.ir_module
class Quantised:
    """Constants of two types, one of them used twice."""

    @R.function
    def main(x: R.Tensor((4, 6), "int32")):
        table = R.const(list(range(-12, 12)), "int8")
        a = R.multiply(R.reshape(x, (24,)), R.astype(table, "int32"))
        b = R.add(a, R.const(list(range(24)), "int32"))
        c = R.subtract(b, R.astype(table, "int32"))
        return c


@pytest.mark.skipif(CC is None, reason="needs a C compiler")
@pytest.mark.parametrize(
    "pools",
    [[Pool("flash", read_only=True)], [Pool("near", 24, read_only=True), Pool("flash", read_only=True)]],
    ids=["one", "two"],
)
def test_read_only_constant_pools_are_arrays_of_their_own(pools, run, tmp_path):
    planned = write_c(Quantised, tmp_path, constant_pools=pools)
    x = np.arange(24, dtype=np.int32).reshape(4, 6)
    assert call_c(tmp_path, planned, [x])[0].tobytes() == run(Quantised, [[x]])[0][0].tobytes()
    text = (tmp_path / "model_constants.c").read_text()
    header = (tmp_path / "model.h").read_text()
    for pool in pools:
        assert f'NPU_MEMPLAN_CONSTANT_POOL("{pool.name}", 16) uint8_t model_{pool.name}_constants[' in text
        assert f"extern const uint8_t model_{pool.name}_constants[];" in header
    used = dict(planned["main"].attrs[CONSTANT_POOLS])
    assert sum(int(n) for n in used.values()) == 24 + 24 * 4
    assert "NPU_MEMPLAN_CONSTANT " not in (tmp_path / "model_host.c").read_text()


@pytest.mark.skipif(CC is None, reason="needs a C compiler")
def test_writable_constant_pools_are_initialised_by_a_function(run, tmp_path):
    planned = write_c(Quantised, tmp_path, constant_pools=[Pool("workspace")])
    x = np.arange(24, dtype=np.int32).reshape(4, 6)
    assert call_c(tmp_path, planned, [x], initialise=True)[0].tobytes() == run(Quantised, [[x]])[0][0].tobytes()


def test_branches_have_no_plain_c_form(zoo, tmp_path):
    with pytest.raises(CodegenError, match="is not a call of a PrimFunc"):
        write_c(zoo.ZOO["nested_if"]().module, tmp_path)
    assert not list(tmp_path.iterdir())


def test_constant_results_cannot_lie_in_a_pool(zoo, tmp_path):
    with pytest.raises(ExtractionError, match="a result of 'main' is a constant or has no bytes"):
        write_c(zoo.ZOO["many_outputs"]().module, tmp_path)
