"""The planned module as plain C computes what it computes on the Relax VM, bit for bit."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

pytest.importorskip("tvm")

from npu_memplan.codegen.errors import CodegenError
from npu_memplan.extract import ExtractionError
from npu_memplan.transform import Workspace, write_c

CC = shutil.which("cc") or shutil.which("gcc")


def call_c(folder, planned, inputs) -> list[np.ndarray]:
    """Compiles the sources and runs them on a poisoned workspace."""
    library = folder / "model.so"
    flags = ["-O2", "-std=c99", "-fno-strict-aliasing", "-ffp-contract=off", "-shared", "-fPIC", "-Wall", "-Werror"]
    # The launch function of a platform is not needed: there is no NPU call.
    subprocess.run([CC, *flags, *map(str, folder.glob("*.c")), "-o", str(library), "-lm"], check=True)
    workspace = Workspace(planned)
    for view, value in zip(map(workspace.input, workspace.inputs), inputs, strict=True):
        view[...] = value
    pools = (ctypes.c_void_p * len(workspace.pools))(*(p.ctypes.data for p in workspace.pools.values()))
    assert ctypes.CDLL(str(library)).model_run(pools) == 0
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


def test_branches_have_no_plain_c_form(zoo, tmp_path):
    with pytest.raises(CodegenError, match="is not a call of a PrimFunc"):
        write_c(zoo.ZOO["nested_if"]().module, tmp_path)
    assert not list(tmp_path.iterdir())


def test_constant_results_cannot_lie_in_a_pool(zoo, tmp_path):
    with pytest.raises(ExtractionError, match="a result of 'main' is a constant or has no bytes"):
        write_c(zoo.ZOO["many_outputs"]().module, tmp_path)
