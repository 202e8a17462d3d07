"""The C of planned modules: what it says, that it compiles without a warning, that it computes the same."""

from __future__ import annotations

import ctypes
import hashlib
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.script import tirx as T

import npu_memplan
from benchmarks.compile_cost import Growing
from npu_memplan import compiler
from npu_memplan.artifact import Artifact
from npu_memplan.artifact.model import TensorSlot
from npu_memplan.codegen import CodegenError
from npu_memplan.codegen.c_text import c_array
from npu_memplan.codegen.entry import RUNTIME_TEXT
from npu_memplan.codegen.header import print_model_header
from npu_memplan.codegen.host_c import print_functions
from npu_memplan.codegen.interface import Interface, PoolSpec
from npu_memplan.codegen.script import share_constants
from npu_memplan.codegen.sources import print_sources, write_sources
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.program.primfunc import to_primfunc
from npu_memplan.ethosu.program.program import BufferRole, NpuBuffer, NpuOperation, NpuProgram
from npu_memplan.ethosu.stream.decode import Operation, decode
from npu_memplan.ethosu.stream.isa import Op, Register
from npu_memplan.extract import extract
from npu_memplan.options import CompileOptions
from npu_memplan.planners import plan
from npu_memplan.problem import Pool
from npu_memplan.rewrite import rewrite
from npu_memplan.vocabulary import PLACED_INPUTS, PLACED_OUTPUTS, REGIONS
from tests.support.real_data import REPOSITORY, Models
from tests.support.saving import save
from tests.support.warnings_of_c import strict_compilers

SCALE = 0.1  # not a float32: seven printed digits would not be enough for its nearest one


@T.prim_func(s_tir=True)
def scaled(sram: T.Buffer((160,), "uint8"), dram: T.Buffer((32,), "uint8"), table: T.Buffer((8,), "int32")):
    """output[i] = table[i] * input[i] * 0.1, with an accumulator and planned scratch."""
    T.func_attr({"global_symbol": "scaled"})
    data = T.decl_buffer((8,), "int8", data=T.address_of(sram[16]))
    scratch = T.decl_buffer((8,), "int32", data=T.address_of(sram[32]))
    output = T.decl_buffer((8,), "float32", data=T.address_of(sram[64]))
    total = T.alloc_buffer((1,), "int32", scope="local")
    for i in range(8):
        total[0] = T.Cast("int32", data[i])
        total[0] = total[0] * table[i]
        scratch[i] = total[0]
    for i in range(8):
        output[i] = T.Cast("float32", scratch[i]) * T.float32(SCALE)


def copying_primfunc() -> Any:
    """An NPU function that copies 32 constant bytes to the output, planned at sram[112]."""
    program = NpuProgram(
        accelerator("ethos-u55-128"),
        (
            NpuBuffer("constants", 64, BufferRole.CONSTANTS),
            NpuBuffer("copied", 32, BufferRole.OUTPUT),
        ),
        (
            NpuOperation(
                Op.DMA_START, 0, {Register.DMA0_LEN: 32},
                {Register.DMA0_SRC: ("constants", 16), Register.DMA0_DST: ("copied", 0)},
            ),
        ),
        "copy",
    )  # fmt: skip
    function = to_primfunc(program)
    constants, copied = function.params
    sram, dram = (tirx.decl_buffer((n,), "uint8", name=p, layout=None) for p, n in (("sram", 160), ("dram", 32)))
    place = tirx.DeclBuffer(copied, data=tirx.address_of(tirx.BufferLoad(sram, [112])))
    planned = tirx.PrimFunc([sram, dram, constants], tirx.SeqStmt([place, function.body]), None, function.attrs)
    return planned.with_attr(REGIONS, [1, 2])


def planned_module(calls: int = 1) -> Any:
    """main(sram, dram): the host function, then `calls` times the NPU one."""
    builder = relax.BlockBuilder()
    pools = [relax.Var("sram", relax.TensorType((160,), "uint8")), relax.Var("dram", relax.TensorType((32,), "uint8"))]
    with builder.function("main", pools, pure=False):
        host = builder.add_func(scaled, "scaled")
        npu = builder.add_func(copying_primfunc(), "copy")
        table = relax.const(np.array([1, -2, 3, -4, 5, -6, 7, -(1 << 20)], np.int32), "int32")
        builder.emit(relax.Call(host, [*pools, table]))
        for _ in range(calls):
            builder.emit(relax.Call(npu, [*pools, relax.const(np.arange(64, dtype=np.uint8), "uint8")]))
        builder.emit_func_output(relax.Tuple([]))
    return builder.finalize()


def interface(name: str = "toy") -> Interface:
    """The interface of `planned_module`."""
    return Interface(
        name,
        (PoolSpec("sram", 160), PoolSpec("dram", 32, region=2)),
        (TensorSlot("data", "int8", (8,), "sram", 16, 8, 0.5, 3),),
        (TensorSlot("output", "float32", (8,), "sram", 64, 32, 0.0, 0),),
        (TensorSlot("memory", "int8", (2, 8), "dram", 0, 16, 0.25, -4),),
    )


LAUNCH = """
#include "npu_memplan_runtime.h"
#include <string.h>
uint32_t seen[8];
uint8_t first[16];
void *context;
uint32_t regions;
int32_t npu_memplan_npu_launch(void *given, uint32_t region_config, const uint32_t *s, uint32_t n,
                               const void *const b[], const uint32_t z[], int32_t c) {
  context = given;
  regions = region_config;
  seen[0]++; seen[1] = n; seen[2] = (uint32_t)c; seen[3] = z[0]; seen[4] = z[1]; seen[5] = z[2]; seen[6] = s[0];
  memcpy(first, b[0], sizeof first);
  memcpy((uint8_t *)b[1] + 112, (const uint8_t *)b[0] + 16, 32);
  return seen[0] > 3 ? 42 : 0;
}
"""


def test_golden(golden):
    sources = print_sources(planned_module(), interface())
    assert sorted(sources.texts) == [
        *("npu_memplan_runtime.h", "toy.c", "toy.cmake", "toy.h", "toy.mk", "toy_host.c", "toy_npu.c")
    ]
    for name, text in sources.texts.items():
        golden(f"codegen_{name}", text)
    assert sources.constants_bytes == 64 + 32


def test_the_header_has_a_launch_that_links(tmp_path, shared_object):
    """As a user finds it: the sources alone lack the launch; the header says what to add."""
    for name, text in print_sources(planned_module(), interface()).texts.items():
        (tmp_path / name).write_text(text)
    comment = RUNTIME_TEXT.partition("without an NPU")[2].partition("*/")[0].partition(":")[2].partition("* `")[0]
    (tmp_path / "launch.c").write_text(
        '#include "npu_memplan_runtime.h"\n' + comment.replace(" * ", " ").rstrip(" *\n")
    )
    whole = ("-Wl,--no-undefined",) if sys.platform == "linux" else ()
    library = ctypes.CDLL(
        str(shared_object(sorted(tmp_path.glob("*.c")), f"-I{tmp_path}", "-Wno-unused-parameter", *whole))
    )
    assert library.npu_memplan_npu_launch(None, 0, None, 0, None, None, 0) == -1


def test_the_printed_stream_is_the_encoded_one(tmp_path):
    text = print_sources(planned_module(), interface()).texts["toy_npu.c"]
    body = text[text.index("toy_copy_stream[") :]
    body = body[body.index("{") + 1 : body.index("}")]
    commands = decode([int(word, 16) for word in body.replace("\n", " ").split(",")])
    (operation,) = [c for c in commands if isinstance(c, Operation)]
    assert operation.op is Op.DMA_START
    assert (operation[Register.DMA0_SRC], operation[Register.DMA0_DST]) == (16, 112)
    assert (operation[Register.DMA0_SRC_REGION], operation[Register.DMA0_DST_REGION]) == (0, 1)


def _run(library, name, data):
    pools = [np.full(160 + 16, 0xA5, np.uint8), np.full(32 + 16, 0xA5, np.uint8)]
    views = [p[-p.ctypes.data % 16 :] for p in pools]
    views[0][16:24] = data.view(np.uint8)
    pointers = (ctypes.c_void_p * 2)(*(v.ctypes.data for v in views))
    return library[f"{name}_run"](pointers), views[0]


def test_it_computes_bit_exactly_and_two_models_link_together(tmp_path, shared_object):
    files = [tmp_path / "launch.c"]
    files[0].write_text(LAUNCH)
    for name in ("toy", "other"):
        write_sources(planned_module(), interface(name), tmp_path)
        files += [tmp_path / f"{name}{part}.c" for part in ("", "_host", "_npu")]
    library = ctypes.CDLL(str(shared_object(files, f"-I{tmp_path}")))
    data = np.array([1, 2, 3, -4, 100, -128, 127, 77], np.int8)
    table = np.array([1, -2, 3, -4, 5, -6, 7, -(1 << 20)], np.int32)
    for name in ("toy", "other"):
        (mine := ctypes.c_void_p.in_dll(library, f"{name}_npu_context")).value = len(name)
        status, sram = _run(library, name, data)
        assert (status, ctypes.c_void_p.in_dll(library, "context").value) == (0, mine.value)
        assert ctypes.c_uint32.in_dll(library, "regions").value == 3  # the toy's NPU writes through one port
        np.testing.assert_array_equal(
            sram[64:96].view(np.float32), (table * data).astype(np.float32) * np.float32(SCALE)
        )
        np.testing.assert_array_equal(sram[112:144], np.arange(16, 48, dtype=np.uint8))
        assert (sram[:16] == 0xA5).all()
        assert (sram[144:160] == 0xA5).all()
    seen = (ctypes.c_uint32 * 8).in_dll(library, "seen")
    assert list(seen)[:1] + list(seen)[2:6] == [2, 3, 64, 160, 32]
    assert bytes((ctypes.c_uint8 * 16).in_dll(library, "first")) == bytes(range(16))


def test_a_failed_launch_ends_the_run_with_its_status(tmp_path, shared_object):
    (tmp_path / "launch.c").write_text(LAUNCH)
    write_sources(planned_module(calls=5), interface(), tmp_path)
    files = [tmp_path / n for n in ("launch.c", "toy.c", "toy_host.c", "toy_npu.c")]
    library = ctypes.CDLL(str(shared_object(files, f"-I{tmp_path}")))
    status, _ = _run(library, "toy", np.zeros(8, np.int8))
    assert status == 42
    assert (ctypes.c_uint32 * 8).in_dll(library, "seen")[0] == 4


def test_equal_calls_share_one_function(tmp_path):
    texts = print_sources(planned_module(calls=3), interface()).texts
    assert texts["toy.c"].count("toy_copy(pools)") == 3
    assert texts["toy_npu.c"].count("int32_t toy_copy(") == 1


@pytest.mark.parametrize("size", [0, 1, 7, 600])
@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]
)
def test_arrays_keep_every_bit(dtype, size, tmp_path_factory, shared_object):
    generator = np.random.default_rng(size)
    values = np.frombuffer(generator.bytes(size * np.dtype(dtype).itemsize), dtype).copy()
    if dtype == "bool":
        values = generator.integers(0, 2, size).astype(bool)
    elif size > 6 and dtype.startswith("float"):
        values[:6] = [np.nan, np.inf, -np.inf, 0.0, -0.0, np.finfo(dtype).smallest_subnormal]
        values[np.isnan(values)] = np.nan  # C's NAN, not a payload
    elif size > 2 and not dtype.startswith("float"):
        values[:2] = [np.iinfo(dtype).min, np.iinfo(dtype).max]
    folder = tmp_path_factory.mktemp("array")
    (folder / "npu_memplan_runtime.h").write_text(RUNTIME_TEXT)
    source = folder / "a.c"
    includes = '#include <math.h>\n#include <stdbool.h>\n#include "npu_memplan_runtime.h"\n'
    source.write_text(f"{includes}extern {c_array('a', values)}")
    source.write_text(source.read_text().replace("extern NPU_MEMPLAN_CONSTANT", "NPU_MEMPLAN_CONSTANT"))
    library = ctypes.CDLL(str(shared_object([source], f"-I{folder}")))
    found = bytes((ctypes.c_uint8 * values.nbytes).in_dll(library, "a")) if size else b""
    assert found == values.tobytes()


def test_unused_pools_are_not_passed():
    texts = print_sources(planned_module(), interface()).texts
    assert "toy_scaled_body(pools[0], toy_host_constant_0)" in texts["toy_host.c"]
    assert "const int32_t* table" in texts["toy_host.c"]


def test_extern_functions_with_several_signatures_keep_one_declaration():
    @T.prim_func(s_tir=True)
    def calls(pool: T.Buffer((64,), "uint8")):
        a = T.decl_buffer((4,), "int8", data=T.address_of(pool[0]))
        b = T.decl_buffer((4,), "int32", data=T.address_of(pool[16]))
        T.evaluate(T.call_extern("int32", "one", a.data, b.data))
        T.evaluate(T.call_extern("int32", "two", a.data))
        T.evaluate(T.call_extern("int32", "two", b.data))
        T.evaluate(T.call_extern("int32", "memcpy", a.data, b.data, 4))

    text = print_functions({"f": calls}, {"f": [None]})
    assert "int32_t one(int8_t*, int32_t*);" in text
    assert "int32_t two();" in text
    assert "memcpy(" in text.split("{", 1)[1]
    assert "memcpy(" not in text.split("{", 1)[0]


def test_a_parameter_with_symbols_of_its_own_is_a_pointer_to_its_first_element():
    """TVM's SCATTER_ND takes a constant so."""

    @T.prim_func(s_tir=True)
    def copy_table(a: T.handle, pool: T.Buffer((64,), "uint8")):
        row, begin = T.int32(), T.int32()
        table = T.match_buffer(a, (2, 3), "uint8", strides=[row, 1], elem_offset=begin)
        for i, j in T.grid(2, 3):
            pool[i * 3 + j] = table[i, j]

    text = print_functions({"f": copy_table}, {"f": [np.arange(6, dtype=np.uint8).reshape(2, 3), None]})
    assert "int32_t cse_v1 = ((i * 3) + j);" in text
    assert "pool[cse_v1] = table[cse_v1];" in text


def test_an_allocation_that_was_not_planned_is_refused():
    @T.prim_func(s_tir=True)
    def unplanned(pool: T.Buffer((64,), "uint8")):
        a = T.alloc_buffer((4,), "int8")
        for i in range(4):
            a[i] = T.Cast("int8", pool[i])
        for i in range(4):
            pool[i] = T.Cast("uint8", a[i])

    with pytest.raises(CodegenError, match="the allocation a of f has scope global and is not placed in a pool"):
        print_functions({"f": unplanned}, {"f": [None]})


def test_a_module_that_is_not_planned_is_refused():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 4), "int8"))
    with builder.function("main", [x]):
        builder.emit_func_output(x)
    with pytest.raises(CodegenError, match=r"main's parameter x is int8\[1, 4\], not a pool"):
        print_sources(builder.finalize(), interface())


def test_an_operator_left_in_main_is_refused():
    builder = relax.BlockBuilder()
    pool = relax.Var("sram", relax.TensorType((160,), "uint8"))
    with builder.function("main", [pool], pure=False):
        builder.emit(relax.op.add(pool, pool))
        builder.emit_func_output(relax.Tuple([]))
    with pytest.raises(
        CodegenError, match=r"main calls relax\.add, which needs TVM's runtime and has no plain C form; plan the module"
    ):
        print_sources(builder.finalize(), interface())


def test_pools_of_another_plan_are_refused():
    other = Interface("toy", (PoolSpec("sram", 128), PoolSpec("dram", 32, region=2)))
    with pytest.raises(CodegenError, match=r"main takes pools of \[160, 32\] bytes, the plan has \[128, 32\]"):
        print_sources(planned_module(), other)


def test_a_tensor_in_an_unknown_pool_is_refused():
    with pytest.raises(CodegenError, match="lies in pool 'flash', but the plan has: sram, dram"):
        interface().pool_index("flash")


def run_planned(module, values, folder, build):
    """The results of `module` printed as C of one pool, built by `build(files)`, of one array, as bytes."""
    module = relax.transform.LegalizeOps()(module)
    problem = extract(module, [Pool("sram")])
    placed = plan(problem)
    planned = rewrite(module, problem, placed)
    height = placed.usage[0].used_bytes
    write_sources(planned, Interface("net", (PoolSpec("sram", height),)), folder)
    memory = np.full(height + 16, 0xA5, np.uint8)
    pool = memory[-memory.ctypes.data % 16 :]
    (place,) = planned["main"].attrs[PLACED_INPUTS]
    (result,) = planned["main"].attrs[PLACED_OUTPUTS]
    pool[int(place["offset_bytes"]) :][: values.nbytes] = values.reshape(-1).view(np.uint8)
    library = ctypes.CDLL(str(build([folder / "net.c", folder / "net_host.c"])))
    assert library.net_run((ctypes.c_void_p * 1)(pool.ctypes.data)) == 0
    return pool[int(result["offset_bytes"]) :]


@pytest.mark.parametrize("level", ["-O0", "-O1", "-O2", "-O3", "-Os"])
def test_no_compiler_leaves_a_conversion_out(level, tmp_path, shared_object):
    """GCC 12 at -O1 and -O2 took the loop of a dequantisation, whose pointers are of one pool, for one that stores
    nothing, and its call with it."""
    x = relax.Var("x", relax.TensorType((1, 1, 4, 8), "float32"))
    step, zero = relax.const(np.float32(0.25)), relax.const(np.int8(-11))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            stored = builder.emit(relax.op.quantize(x, step, zero, axis=0, out_dtype="int8"))
            y = builder.emit(relax.op.max(builder.emit(relax.op.dequantize(stored, step, zero, axis=0)), 0))
            stored = builder.emit(relax.op.quantize(y, step, zero, axis=0, out_dtype="int8"))
            y = builder.emit_output(relax.op.dequantize(stored, step, zero, axis=0))
        builder.emit_func_output(y)
    values = np.arange(32, dtype=np.float32) / 4
    found = run_planned(builder.finalize(), values, tmp_path, lambda f: shared_object(f, level, f"-I{tmp_path}"))
    np.testing.assert_array_equal(found[: values.nbytes].view(np.float32), values)


# -- The planned module as TVMScript: its length, and what it says


def test_equal_constants_are_printed_once() -> None:
    builder = relax.BlockBuilder()
    values = np.arange(4096, dtype=np.uint8)
    last = given = relax.Var("given", relax.TensorType((4096,), "uint8"))
    with builder.function("main", [given]):
        for step in range(8):
            last = builder.emit(relax.op.add(last, relax.const(values.copy() if step else values + 1, "uint8")))
        builder.emit_func_output(last)
    module = builder.finalize()
    shared = share_constants(module)
    tvm.ir.assert_structural_equal(shared, module)
    sizes = [len(one.script(show_meta=True)) for one in (module, shared)]
    assert sizes[1] < sizes[0] * 3 // 8


def test_the_script_of_a_compile_is_its_module(shared_model: Models) -> None:
    made = compiler.plan_model(shared_model("hello_world_int8"), CompileOptions(effort="quick"))
    tvm.ir.assert_structural_equal(tvm.script.from_source(made.script), made.module)


# -- What firmware reads of a model's header: compiled as C and as C++ by every compiler that is here


MODEL = REPOSITORY / "examples" / "digits" / "digits.tflite"
FIRMWARE = """
#include "digits.h"
static_assert(sizeof(DIGITS_MODEL_SHA256) == 65, "a digest has 64 digits");
static const int input_shape[DIGITS_INPUT_0_RANK] = DIGITS_INPUT_0_SHAPE;
static const int output_shape[DIGITS_OUTPUT_0_RANK] = DIGITS_OUTPUT_0_SHAPE;
static_assert(sizeof(DIGITS_INPUT_0_TYPE) * DIGITS_INPUT_0_ELEMENTS == DIGITS_INPUT_0_BYTES, "type and size agree");
int firmware(uint8_t *const pools[]);
int firmware(uint8_t *const pools[]) {
  struct digits_inputs inputs = digits_inputs(pools);
  struct digits_outputs outputs = digits_outputs(pools);
  inputs.NAME_OF_INPUT[0] = (DIGITS_INPUT_0_TYPE)input_shape[3];
  return digits_run(pools) + outputs.probabilities[output_shape[1] - 1];
}
"""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("header") / "out"
    npu_memplan.compile(MODEL, folder, effort="quick")
    return folder


def compile_with(compiler: str, language: str, source: str, header: str, folder: Path) -> subprocess.CompletedProcess:
    (folder / "digits.h").write_text(header, encoding="utf-8")
    standard = "-std=c11" if language == "c" else "-std=c++17"
    flags = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow=local", "-Werror", "-fsyntax-only"]
    command = [compiler, "-x", language, standard, *(f for f in flags if "=local" not in f or compiler == "gcc")]
    return subprocess.run([*command, "-I", str(folder), "-"], input=source, text=True, capture_output=True, check=False)


@pytest.mark.parametrize("language", ["c", "c++"])
@pytest.mark.parametrize("name", ["image", "int", "class", "2nd input", "a/b;c/x_1:0", "DIGITS_INPUT_0_POOL"])
def test_firmware_has_tensors_by_their_names(artifact: Path, name: str, language: str, tmp_path: Path) -> None:
    made = Artifact.load(artifact)
    text = print_model_header(Interface.from_artifact(replace(made, inputs=(replace(made.inputs[0], name=name),))), ())
    field = text.partition("struct digits_inputs {\n  int8_t *")[2].partition(";")[0]
    source = FIRMWARE.replace("NAME_OF_INPUT", field)
    for strict in strict_compilers():
        done = compile_with(strict, language, source, text, tmp_path)
        assert done.returncode == 0, done.stderr


def test_two_inputs_of_one_name_are_two_members(artifact: Path) -> None:
    made = Artifact.load(artifact)
    text = print_model_header(Interface.from_artifact(replace(made, inputs=(made.inputs[0], made.inputs[0]))), ())
    assert "  int8_t *image;\n  int8_t *image_1;\n" in text


def test_the_digest_is_that_of_the_model(artifact: Path) -> None:
    digest = hashlib.sha256(MODEL.read_bytes()).hexdigest()
    assert f'DIGITS_MODEL_SHA256 "{digest}"' in (artifact / "src" / "digits.h").read_text(encoding="utf-8")


def test_calls_that_do_the_same_share_a_body(tmp_path: Path) -> None:
    """Two maps of a chain change places, so its calls do one of two things."""
    maker = Growing()
    last = first = maker.map(1, 16, 16)
    for _ in range(6):
        last = maker.cumulative(last)
    path = save(tmp_path / "chain.tflite", maker.made([first], [last]).finish())
    text = compiler.plan_model(path, CompileOptions(effort="quick")).sources.texts["chain_host.c"]
    assert len(re.findall(r"(?m)^static .*_body\(", text)) == 2
    assert len(re.findall(r"(?m)^  \w+_body\(", text)) == 6
