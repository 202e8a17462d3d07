"""Model Library Format trees: the legacy names, true numbers, and code that computes the right thing."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from npu_memplan.compiler import plan_model
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from npu_memplan.pipeline import read
from npu_memplan.request import request
from npu_memplan.tvmc import TvmcError
from npu_memplan.tvmc.compile import compile_to_mlf
from npu_memplan.tvmc.options import parse_compile
from tests.support.demo_library import DATE, EXAMPLE, empty_outputs, library, tensors
from tests.support.mlf_host import Application, address, aligned, metadata_main
from tests.support.real_data import Models
from tests.support.saving import save
from tests.support.tflite_builder import ModelBuilder, TensorSpec, single_operator

WORKSPACE_IO = ("--pass-config", "tir.usmp.use_workspace_io=1")


def test_tree_has_the_legacy_files_and_the_header_names(tmp_path: Path) -> None:
    made = library(EXAMPLE)
    path = tmp_path / "module.tar"
    made.write_tar(path)
    with tarfile.open(path) as tar:
        names = set(tar.getnames())
    assert {
        *("./metadata.json", "./parameters/default.params", "./codegen/host/include/tvmgen_default.h"),
        *(f"./codegen/host/src/default_lib{i}.c" for i in range(3)),
        *("./templates/crt_config.h.template", "./templates/platform.c.template"),
        "./runtime/include/tvm/runtime/crt/module.h",
    } <= names
    header = made.files["codegen/host/include/tvmgen_default.h"].decode()
    for text in (
        "struct tvmgen_default_inputs {",
        "struct tvmgen_default_outputs {",
        "void* ethos_u;",
        "tvmgen_default_run(",
    ):
        assert text in header
    assert [p.name for p in tmp_path.iterdir()] == ["module.tar"]


def test_same_options_and_date_make_the_same_tar(tmp_path: Path) -> None:
    for name in ("a.tar", "b.tar"):
        library(EXAMPLE).write_tar(tmp_path / name)
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_metadata_holds_the_numbers_of_the_generated_code() -> None:
    made = library(EXAMPLE)
    document = json.loads(made.files["metadata.json"])
    assert document["version"] == 7
    assert document["modules"]["default"]["export_datetime"] == "2026-01-02 03:04:05Z"
    assert document["modules"]["default"]["target"] == ["c -keys=arm_cpu,cpu -mcpu=cortex-m55"]
    main = metadata_main(made)
    source = made.files["codegen/host/src/default_lib0.c"].decode()
    assert f"tvmgen_default_global_workspace[{main['workspace_size_bytes']}]" in source
    assert main["constants_size_bytes"] == made.constants_bytes + made.payload_bytes > 0
    assert main["io_size_bytes"] == sum(t["size"] for kind in ("inputs", "outputs") for t in main[kind].values())


@pytest.mark.parametrize(
    "extra",
    [
        (),
        ("--npu-compiler=vela",),
        ("--target-ethos-u-enable_cascader=1",),
        ("--target-ethos-u-enable_cascader=1", "--target-ethos-u-enable_striping=1"),
    ],
    ids=str,
)
def test_module_is_exact_and_passes_the_legacy_regions(tmp_path: Path, extra: tuple[str, ...]) -> None:
    made = library(EXAMPLE, *extra)
    application = Application([made], tmp_path)
    inputs, expected = tensors(EXAMPLE, 1)
    outputs = empty_outputs(expected)
    device = aligned(16)
    for _ in range(2):
        structs = ([address(i) for i in inputs], [address(o) for o in outputs], [address(device)])
        assert application.run("default", *structs) == 0
        for ours, theirs in zip(outputs, expected, strict=True):
            assert np.array_equal(ours, theirs)
    assert set(application.launches[0]) == {0, 1, 3, 4}
    assert application.launches[0][3] == inputs[0].size
    assert application.launches[0][4] == outputs[0].size
    assert application.launches[0][1] == metadata_main(made)["workspace_size_bytes"]


def test_a_refused_launch_ends_the_run(tmp_path: Path) -> None:
    application = Application([library(EXAMPLE)], tmp_path)
    inputs, expected = tensors(EXAMPLE, 1)
    outputs = empty_outputs(expected)
    assert application.run("default", [address(inputs[0])], [address(outputs[0])], [0]) == -1
    assert not application.launches


def test_user_pools_are_arguments_and_workspace_io_is_mapped(tmp_path: Path) -> None:
    made = library(
        EXAMPLE, "--workspace-pools=sram", "--pass-config=tir.usmp.use_workspace_io=1", "--module-name=digits"
    )
    header = made.files["codegen/host/include/tvmgen_digits.h"].decode()
    size = metadata_main(made, "digits")["workspace_size_bytes"]
    assert f"#define TVMGEN_DIGITS_SRAM_WORKSPACE_POOL_SIZE {size}" in header
    assert metadata_main(made, "digits")["io_size_bytes"] == 0
    application = Application([made], tmp_path)
    pool, device = aligned(size), aligned(16)
    inputs, expected = tensors(EXAMPLE, 2)
    mapped = _mapped(application, "digits", "inputs", pool)
    np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * inputs[0].size).from_address(mapped))[:] = inputs[0]
    assert application.run("digits", [address(pool)], [address(device)]) == 0
    found = _mapped(application, "digits", "outputs", pool) - address(pool)
    assert np.array_equal(pool[found : found + expected[0].size], expected[0])
    assert set(application.launches[0]) == {0, 1}


def _mapped(application: Application, module: str, kind: str, pool: np.ndarray) -> int:
    """What map_<kind> says of a struct with one pointer."""
    import ctypes

    function = getattr(application.library, f"tvmgen_{module}_map_{kind}")
    function.restype = ctypes.c_void_p  # a struct of one pointer is returned as a pointer
    argument = (ctypes.c_void_p * 1)(address(pool))
    result = function(ctypes.byref(argument))
    assert result is not None
    return int(result)


def test_two_models_share_one_workspace_interleaved(tmp_path: Path, shared_model: Models) -> None:
    other = shared_model("kws_ref_model")
    first = library(EXAMPLE, "--workspace-pools=sram", "--module-name=digits")
    second = library(other, "--workspace-pools=sram", "--module-name=kws")
    application = Application([first, second], tmp_path)
    sizes = [metadata_main(m, n)["workspace_size_bytes"] for m, n in ((first, "digits"), (second, "kws"))]
    pool, device = aligned(max(sizes)), aligned(16)
    for seed in (3, 4):
        for name, model in (("digits", EXAMPLE), ("kws", other)):
            inputs, expected = tensors(model, seed)
            outputs = empty_outputs(expected)
            structs = ([address(inputs[0])], [address(outputs[0])], [address(pool)], [address(device)])
            assert application.run(name, *structs) == 0
            assert np.array_equal(outputs[0], expected[0])


def test_two_pools_are_regions_one_and_two(tmp_path: Path) -> None:
    small = 2048
    made = library(EXAMPLE, "--workspace-pools=fast,slow", f"--workspace-pools-size-hint-bytes=fast:{small}")
    header = made.files["codegen/host/include/tvmgen_default.h"].decode()
    assert "void* fast;" in header
    assert "void* slow;" in header
    application = Application([made], tmp_path)
    sizes = [_pool_size(header, name) for name in ("FAST", "SLOW")]
    assert sizes[0] <= small
    pools = [aligned(max(s, 16)) for s in sizes]
    inputs, expected = tensors(EXAMPLE, 5)
    outputs, device = empty_outputs(expected), aligned(16)
    structs = ([address(inputs[0])], [address(outputs[0])], [address(p) for p in pools], [address(device)])
    assert application.run("default", *structs) == 0
    assert np.array_equal(outputs[0], expected[0])
    assert application.launches[0].get(2, 0) == sizes[1] > 0


def _pool_size(header: str, name: str) -> int:
    (line,) = (x for x in header.splitlines() if x.startswith(f"#define TVMGEN_DEFAULT_{name}_WORKSPACE_POOL_SIZE"))
    return int(line.split()[-1])


@pytest.mark.parametrize("name", ["tvm", "c"])
def test_without_an_npu_the_host_runs_everything(tmp_path: Path, name: str) -> None:
    made = compile_to_mlf(parse_compile(["--target=c", f"--module-name={name}", str(EXAMPLE)]), DATE)
    assert "devices" not in made.files[f"codegen/host/include/tvmgen_{name}.h"].decode()
    application = Application([made], tmp_path)
    inputs, expected = tensors(EXAMPLE, 6)
    outputs = empty_outputs(expected)
    assert application.run(name, [address(inputs[0])], [address(outputs[0])]) == 0
    assert np.array_equal(outputs[0], expected[0])


def test_two_inputs_take_the_third_and_the_sixth_base_address(tmp_path: Path) -> None:
    model = save(tmp_path / "add.tflite", _addition())
    made = library(model)
    application = Application([made], tmp_path)
    inputs, expected = tensors(model, 7)
    outputs, device = empty_outputs(expected), aligned(16)
    structs = ([address(i) for i in inputs], [address(o) for o in outputs], [address(device)])
    assert application.run("default", *structs) == 0
    assert np.array_equal(outputs[0], expected[0])
    assert {3, 4, 6} <= set(application.launches[0])
    assert application.launches[0][6] == inputs[1].size


def test_tensors_without_a_name_have_one_in_the_header(tmp_path: Path) -> None:
    x, y = TensorSpec((1, 4, 4, 8), "int8", 0.1, 2), TensorSpec((1, 4, 4, 8), "int8", 0.2, -3)
    data = single_operator("ABS", [x], [y], "AbsOptions", 2).finish()
    for name in (b"t0", b"t1"):
        data = data.replace(b"\x02\0\0\0" + name + b"\0", bytes(7))
    model = save(tmp_path / "unnamed.tflite", data)
    assert [t.name for t in read_network(data).tensors] == ["", ""]
    application = Application([library(model)], tmp_path)
    inputs, expected = tensors(model, 5)
    outputs = empty_outputs(expected)
    assert application.run("default", [address(inputs[0])], [address(outputs[0])], [address(aligned(16))]) == 0
    assert np.array_equal(outputs[0], expected[0])


def test_models_with_states_are_refused(shared_model: Models) -> None:
    with pytest.raises(TvmcError, match=r"keeps 7 tensors from one run to the next.*use npu-memplan compile"):
        library(shared_model("keyword_scrambled_8bit"))


def test_more_inputs_than_base_addresses_are_refused(tmp_path: Path) -> None:
    model = tmp_path / "concat.tflite"
    b = ModelBuilder()
    inputs = [b.tensor((1, 2, 2, 4), "int8", 0.1, 1) for _ in range(3)]
    out = b.tensor((1, 2, 2, 12), "int8", 0.1, 1)
    b.operator("CONCATENATION", inputs, [out], "ConcatenationOptions", 2, Axis=3)
    model.write_bytes(b.made(inputs, [out]).finish())
    with pytest.raises(TvmcError, match=r"use_workspace_io=1"):
        library(model)
    assert metadata_main(library(model, "--pass-config=tir.usmp.use_workspace_io=1"))["workspace_size_bytes"] >= 96


def _addition() -> bytes:
    x, y = TensorSpec((1, 4, 4, 8), "int8", 0.1, 1), TensorSpec((1, 4, 4, 8), "int8", 0.07, -4)
    z = TensorSpec((1, 4, 4, 8), "int8", 0.15, 2)
    return single_operator("ADD", [x, y], [z], "AddOptions", 2).finish()


def test_the_program_is_that_of_a_compile_by_default() -> None:
    made = compile_to_mlf(parse_compile([*WORKSPACE_IO, str(EXAMPLE)]), DATE)
    plan = plan_model(EXAMPLE, CompileOptions().resolve_defaults()).artifact.plan
    assert metadata_main(made)["workspace_size_bytes"] == plan.usage[0].used_bytes


@pytest.mark.parametrize("pools", [(), ("--workspace-pools=mine,other",)])
def test_pools_without_a_size_keep_their_names_and_velas_bytes(pools: tuple[str, ...]) -> None:
    made = compile_to_mlf(parse_compile([*WORKSPACE_IO, *pools, str(EXAMPLE)]), DATE)
    header = made.files["codegen/host/include/tvmgen_default.h"].decode()
    loaded = read(EXAMPLE, request(CompileOptions(npu_compiler="vela").resolve_defaults()))
    size = metadata_main(made)["workspace_size_bytes"]
    assert 0 < size <= loaded.vela_arena_bytes["sram"]
    if pools:
        assert f"#define TVMGEN_DEFAULT_MINE_WORKSPACE_POOL_SIZE {size}\n" in header
        assert "#define TVMGEN_DEFAULT_OTHER_WORKSPACE_POOL_SIZE 0\n" in header
