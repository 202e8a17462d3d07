"""The planned module as plain C computes what it computes on the Relax VM, bit for bit."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess

import numpy as np
import pytest

pytest.importorskip("tvm")

from tvm.script import ir as I
from tvm.script import relax as R

from npu_memplan.codegen import CodegenError
from npu_memplan.extract import ExtractionError
from npu_memplan.problem import Pool
from npu_memplan.transform import Workspace, map_inputs, write_c
from npu_memplan.vocabulary import CONSTANT_POOLS

EXACT = ("casts_and_views", "issue_20191")
CC = shutil.which("cc") or shutil.which("gcc")


def compiled(folder) -> ctypes.CDLL:
    """The sources in `folder` as a loaded library."""
    library = folder / "model.so"
    flags = ["-O2", "-std=c99", "-fno-strict-aliasing", "-ffp-contract=off", "-shared", "-fPIC", "-Wall", "-Werror"]
    # The launch function of a platform is not needed: there is no NPU call.
    subprocess.run([CC, *flags, *map(str, folder.glob("*.c")), "-o", str(library), "-lm"], check=True)
    return ctypes.CDLL(str(library))


def call_c(folder, planned, inputs, *, initialise=False) -> list[np.ndarray]:
    """Compiles the sources and runs them on a poisoned workspace, twice: the second run finds what the first left."""
    workspace = Workspace(planned)
    pools = (ctypes.c_void_p * len(workspace.pools))(*(p.ctypes.data for p in workspace.pools.values()))
    model = compiled(folder)
    if initialise:
        assert model.model_init(pools) == 0
    for _ in range(2):
        for view, value in zip(map(workspace.input, workspace.inputs), inputs, strict=True):
            view[...] = value
        assert model.model_run(pools) == 0
    return [workspace.output(name).copy() for name in workspace.outputs]


@pytest.mark.skipif(CC is None, reason="needs a C compiler")
@pytest.mark.parametrize("name", ["cnn_nhwc", "in_place_call", *EXACT, "nested_if", "condition_computed"])
def test_c_equals_vm(name, unplanned, tmp_path):
    entry, expected = unplanned(name)
    planned = write_c(entry.module, tmp_path)
    for inputs, wanted in zip(entry.inputs, expected, strict=True):
        outputs = call_c(tmp_path, planned, inputs)
        # Transcendental functions come from different libraries; everything else is the same to the bit.
        for want, got in zip(wanted, outputs, strict=True):
            if name in EXACT:
                assert want.tobytes() == got.tobytes()
            else:
                np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


@pytest.mark.skipif(CC is None, reason="needs a C compiler")
def test_a_branch_is_an_if_on_a_byte_of_a_pool(zoo, tmp_path):
    planned = write_c(zoo.ZOO["tuple_if"]().module, tmp_path)
    place = map_inputs(planned)["c"]
    text = (tmp_path / "model.c").read_text()
    assert f"  if (pools[0][{place.offset_bytes}]) {{\n    status = model_tir_exp(pools)" in text
    assert "  } else {\n" in text


def test_a_branch_that_does_nothing_is_no_if(zoo, tmp_path):
    write_c(zoo.ZOO["issue_20191"]().module, tmp_path)
    assert "if (" not in (tmp_path / "model.c").read_text()


@I.ir_module
class Told:
    """A condition that is a constant: TVM does not fold it."""

    @R.function
    def main(x: R.Tensor((4,), "int32")):
        c = R.const(True, "bool")
        if c:  # noqa: SIM108
            y = R.add(x, x)
        else:
            y = R.subtract(x, x)
        z = R.add(y, x)
        return z


def test_a_condition_that_lies_in_no_pool_is_refused(tmp_path):
    with pytest.raises(CodegenError, match=r"the condition .* of an `if` does not lie in a pool"):
        write_c(Told, tmp_path)
    assert not list(tmp_path.iterdir())


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


@I.ir_module
class Packed:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.add(x, x)
        z = R.call_dps_packed("npu_memplan.zoo.double", (y,), out_ty=R.Tensor((4,), "float32"))
        w = R.add(z, y)
        return w


def test_packed_calls_have_no_plain_c_form(tmp_path):
    message = "main calls the packed function npu_memplan.zoo.double, which needs TVM's runtime and has no plain C form"
    with pytest.raises(CodegenError, match=message):
        write_c(Packed, tmp_path)
    assert not list(tmp_path.iterdir())


@I.ir_module
class Returned:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.add(x, x)
        z = R.sort(y, axis=-1)
        return z


def test_results_at_run_time_cannot_lie_in_a_pool(tmp_path):
    message = "result 'z' of 'main' cannot lie in a pool: it is the result of relax.sort; leave inputs"
    with pytest.raises(ExtractionError, match=re.escape(message)):
        write_c(Returned, tmp_path)


def test_symbols_without_bounds_have_no_plain_c_form(zoo, tmp_path):
    entry = zoo.ZOO["dynamic_convs"]()
    message = (
        "input 'x' of 'main' has the shape (1, 4, h, w), which is not known at compile time: it cannot lie in a pool"
    )
    with pytest.raises(ExtractionError, match=re.escape(message)):
        write_c(entry.module, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(CC is None, reason="needs a C compiler")
def test_bounded_symbols_are_arguments_of_the_run_function(unplanned, tmp_path):
    entry, expected = unplanned("dynamic_convs")
    planned = write_c(entry.module, tmp_path, bounds=entry.bounds)
    assert "int32_t model_run(uint8_t *const pools[], int64_t h, int64_t w);" in (tmp_path / "model.h").read_text()
    library = compiled(tmp_path)
    for inputs, wanted in zip(entry.inputs, expected, strict=True):
        workspace = Workspace(planned, symbols=dict(zip("hw", inputs[0].shape[2:], strict=True)))
        for view, value in zip(map(workspace.input, workspace.inputs), inputs, strict=True):
            view[...] = value
        pools = (ctypes.c_void_p * len(workspace.pools))(*(p.ctypes.data for p in workspace.pools.values()))
        assert library.model_run(pools, *(ctypes.c_int64(workspace.symbols[s]) for s in "hw")) == 0
        np.testing.assert_allclose(workspace.output("g"), wanted[0], rtol=1e-6, atol=1e-7)
    for h, w in ((17, 3), (3, 17), (-1, 3)):  # refused, not run beyond the pool
        assert library.model_run(pools, ctypes.c_int64(h), ctypes.c_int64(w)) == -1


def test_public_relax_functions_are_not_part_of_main(zoo, tmp_path):
    with pytest.raises(CodegenError, match="main calls shared, which is no PrimFunc; make a Relax function private"):
        write_c(zoo.ZOO["relax_calls"]().module, tmp_path)


def test_constant_results_cannot_lie_in_a_pool(zoo, tmp_path):
    with pytest.raises(ExtractionError, match="a result of 'main' is a constant or has no bytes"):
        write_c(zoo.ZOO["many_outputs"]().module, tmp_path)
