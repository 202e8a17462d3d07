"""A legacy application on a Cortex-M: the tar's C compiled as the old Makefiles did, and run bit-exact on QEMU.

The application calls `tvmgen_<module>_run` with the legacy structs; `TVMEthosULaunch` is the application's own, on
the project's register-level driver instead of Arm's. The emulated NPU works on the guest's memory.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from fvp_runner.base import RunOptions
from fvp_runner.emulators import qemu
from npu_memplan.artifact import Artifact
from npu_memplan.artifact.model import TensorSlot
from npu_memplan.codegen.c_text import member_name
from npu_memplan.codegen.entry import RUNTIME_HEADER, RUNTIME_TEXT
from npu_memplan.codegen.header import print_model_header
from npu_memplan.codegen.interface import Interface
from npu_memplan.codegen.mlf import ETHOSU, Library
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from npu_memplan.problem import (
    Buffer,
    BufferKind,
    Lifetime,
    Placement,
    Plan,
    PlanStatus,
    Pool,
    PoolUsage,
    Problem,
    used_bytes,
)
from tests.support.demo_library import EXAMPLE, library, tensors
from tests.support.mlf_host import metadata_main, write_tree
from tests.support.needs import need, need_runner
from tests.support.real_data import Models

CROSS = "arm-none-eabi-gcc"
LAUNCH = """
#define TVMGEN_CONSTANT_SECTION ".rodata.npu_memplan"
#include <stddef.h>
#include "legacy.h"
#include "npu_memplan_runtime.h"
#include "tvm_ethosu_runtime.h"

/* What the core driver does with a payload: find the stream behind the header's actions, then run it. */
int32_t TVMEthosULaunch(tvm_device_ethos_u_t *handle, void *cms, size_t size, uint64_t *bases, size_t *sizes, int n) {
  const uint32_t *words = cms;
  const void *pointers[8];
  uint32_t bytes[8];
  uint32_t at = 1;
  if (handle == NULL || n > 8 || words[0] != 0x31504f43u) return -1;
  while (at < size / 4 && (words[at] & 0xffu) != 2u) at += (words[at] & 0xffu) == 1u ? 3u : 1u;
  for (int i = 0; i < n; i++) {
    pointers[i] = (const void *)(uintptr_t)bases[i];
    bytes[i] = (uint32_t)sizes[i];
  }
  at++;
  return npu_memplan_npu_launch(NULL, 3, words + at, (uint32_t)(size - 4u * at), pointers, bytes, n);
}
int32_t TVMDeviceEthosUActivate(tvm_device_ethos_u_t *c) { return c ? 0 : -1; }
int32_t TVMDeviceEthosUOpen(tvm_device_ethos_u_t *c) { return c ? 0 : -1; }
int32_t TVMDeviceEthosUClose(tvm_device_ethos_u_t *c) { return c ? 0 : -1; }
int32_t TVMDeviceEthosUDeactivate(tvm_device_ethos_u_t *c) { return c ? 0 : -1; }
"""

# Every name in the tar that the runtime glue, NPU start and main file of TVM 0.14 to 0.18's Ethos-U demo use.
LEGACY_APPLICATION = """
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <tvm/runtime/c_runtime_api.h>
#include <tvm/runtime/crt/stack_allocator.h>
#include <tvmgen_default.h>

static uint8_t memory[4096];
tvm_workspace_t app_workspace;

/* values of TVM 0.14 to 0.18, the first and last of some categories */
_Static_assert(kTvmErrorNoError == 0 && kTvmErrorCategoryTimeEvaluator == 9, "");
_Static_assert(kTvmErrorFunctionNameNotFound == 0x100 && kTvmErrorBufferTooSmall == 0x104, "");
_Static_assert(kTvmErrorPlatformNoMemory == 0x503 && kTvmErrorPlatformStackAllocBadFree == 0x505, "");
_Static_assert(kTvmErrorFunctionCallNotImplemented == 0x802 && kTvmErrorTimeEvaluatorBadHandle == 0x900, "");
_Static_assert(kTvmErrorSystemErrorMask < 0 && kDLCPU == 1, "");

void __attribute__((noreturn)) TVMPlatformAbort(tvm_crt_error_t code) {
  printf("abort %d", (int)code);
  exit(-1);
}
tvm_crt_error_t TVMPlatformMemoryAllocate(size_t bytes, DLDevice device, void **out) {
  (void)device;
  return StackMemoryManager_Allocate(&app_workspace, (int32_t)bytes, out);
}
tvm_crt_error_t TVMPlatformMemoryFree(void *pointer, DLDevice device) {
  if (device.device_type != kDLCPU || device.device_id != 0) return kTvmErrorFunctionCallNotImplemented;
  return StackMemoryManager_Free(&app_workspace, pointer);
}
void TVMLogf(const char *format, ...) {
  va_list values;
  va_start(values, format);
  vfprintf(stdout, format, values);
  va_end(values);
}
TVM_DLL int TVMFuncRegisterGlobal(const char *name, TVMFunctionHandle f, int override) {
  return name && f && override ? 0 : 0;
}
int run_demo(void *driver, void *input, void *output) {
  struct tvmgen_default_inputs inputs = {input};
  struct tvmgen_default_outputs outputs = {output};
  struct tvmgen_default_devices devices = {.ethos_u = driver};
  StackMemoryManager_Init(&app_workspace, memory, sizeof memory);
  return tvmgen_default_run(&inputs, &outputs, &devices);
}
"""


def _application(folder: Path, modules: Sequence[tuple[str, Library, Path]]) -> Path:
    """An artifact directory whose one function runs every module twice, in turns, over one shared workspace."""
    source = folder / "src"
    source.mkdir(parents=True)
    buffers, placements, inputs, outputs = [], [], [], []
    at = 0

    def put(name: str, size: int, kind: BufferKind) -> int:
        nonlocal at
        offset, at = at, at + -(-size // 16) * 16
        buffers.append(Buffer(name, size, (Lifetime(0, 1),), kind=kind))
        placements.append(Placement(name, "sram", offset))
        return offset

    workspace = put(
        "workspace", max(metadata_main(m, n)["workspace_size_bytes"] for n, m, _ in modules), BufferKind.TENSOR
    )
    calls = []
    for name, made, model in modules:
        network = read_network(model.read_bytes(), model.name)
        arguments = []
        for kind, found, slots in (("inputs", network.inputs, inputs), ("outputs", network.outputs, outputs)):
            members = []
            for index in found:
                tensor = network.tensors[index]
                wanted = BufferKind.INPUT if kind == "inputs" else BufferKind.OUTPUT
                offset = put(f"{name}_{kind}_{index}", tensor.size_bytes, wanted)
                slots.append(
                    TensorSlot(tensor.name, tensor.dtype, tensor.shape, "sram", offset, tensor.size_bytes, 1.0, 0)
                )
                members.append(f".{member_name(tensor.name)} = pools[0] + {offset}")
            arguments.append(f"struct tvmgen_{name}_{kind} {name}_{kind} = {{{', '.join(members)}}};")
        arguments += [
            f"struct tvmgen_{name}_workspace_pools {name}_pools = {{.sram = pools[0] + {workspace}}};",
            f"struct tvmgen_{name}_devices {name}_devices = {{.ethos_u = &device}};",
        ]
        run = f"if (tvmgen_{name}_run(&{name}_inputs, &{name}_outputs, &{name}_pools, &{name}_devices)) return -1;"
        calls.append((arguments, run))
        for path, content in made.files.items():
            if path.startswith("codegen/host/") or path.startswith(ETHOSU):
                (source / Path(path).name).write_bytes(content)
    parts = [f'#include "{n}_lib{i}.c"' for n, _, _ in modules for i in range(3)]
    body = [line for arguments, _ in calls for line in arguments] + [run for _, run in calls] * 2
    function = "int32_t legacy_run(uint8_t *const pools[]) {\n  static int device;\n  " + "\n  ".join(body)
    (source / "legacy.c").write_text("\n".join([LAUNCH, *parts, function + "\n  return 0;\n}\n"]))
    for part in ("host", "npu"):
        (source / f"legacy_{part}.c").write_text(f"typedef int legacy_{part}_is_empty;\n")
    (source / RUNTIME_HEADER).write_text(RUNTIME_TEXT)
    problem = Problem(tuple(buffers), (Pool("sram"),), name="main")
    used = used_bytes(problem, placements)["sram"]
    plan = Plan(tuple(placements), (PoolUsage("sram", used, 0),), PlanStatus.FEASIBLE, "by hand")
    target = CompileOptions("ethos-u55-256", "", "Shared_Sram", npu_compiler="tvm", objective="bytes")
    artifact = Artifact(
        "legacy", "legacy", "0" * 64, target, problem, plan, (1,), tuple(inputs), tuple(outputs), npu_operations=1
    )
    (source / "legacy.h").write_text(print_model_header(Interface.from_artifact(artifact), ()))
    artifact.save(folder)
    return folder


def _check_on_qemu(folder: Path, modules: Sequence[tuple[str, Library, Path]]) -> None:
    need_runner("qemu")
    runner = qemu.create(_application(folder, modules), RunOptions())
    given, wanted = [], []
    for seed, (_, _, model) in enumerate(modules):
        inputs, expected = tensors(model, seed + 20)
        given += inputs
        wanted += expected
    shaped = [g.view(s.dtype).reshape(s.shape) for g, s in zip(given, runner.firmware.artifact.inputs, strict=True)]
    result = runner.run(shaped)
    for ours, theirs in zip(result.outputs, wanted, strict=True):
        assert np.array_equal(np.asarray(ours).reshape(-1).view(np.uint8), theirs)


@pytest.mark.qemu
def test_the_demo_runs_bit_exact_on_qemu(tmp_path: Path) -> None:
    made = library(EXAMPLE, "--workspace-pools=sram")
    _check_on_qemu(tmp_path / "app", [("default", made, EXAMPLE)])


@pytest.mark.qemu
def test_two_modules_share_a_workspace_on_qemu(tmp_path: Path, shared_model: Models) -> None:
    other = shared_model("kws_ref_model")
    modules = [
        (name, library(model, "--workspace-pools=sram", f"--module-name={name}"), model)
        for name, model in (("digits", EXAMPLE), ("kws", other))
    ]
    _check_on_qemu(tmp_path / "app", modules)


@pytest.mark.qemu
def test_every_source_compiles_the_way_the_demo_makefile_does(tmp_path: Path) -> None:
    need(CROSS)
    write_tree(library(EXAMPLE), tmp_path)
    driver = tmp_path / "driver"
    driver.mkdir()
    (driver / "ethosu_driver.h").write_text(
        "#include <stddef.h>\n#include <stdint.h>\nstruct ethosu_driver;\n"
        "int ethosu_invoke(struct ethosu_driver *d, const void *c, int s, const uint64_t *b, const size_t *z, int n);\n"
    )
    includes = ["codegen/host/include", "runtime/include", ETHOSU, "driver"]
    flags = ["-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard", "-std=gnu99", "-O2", "-Wall", "-Wextra", "-Werror"]
    (driver / "application.c").write_text(LEGACY_APPLICATION)
    objects = []
    for source in sorted(tmp_path.rglob("*.c")):
        objects.append(source.with_suffix(".o"))
        command = [CROSS, *flags, *(f"-I{tmp_path / i}" for i in includes), "-c", str(source), "-o", str(objects[-1])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    linked = [CROSS, *flags[:3], "-r", "-nostdlib", *map(str, objects), "-o", str(tmp_path / "all.o")]
    assert subprocess.run(linked, check=False).returncode == 0
    symbols = subprocess.run(["arm-none-eabi-nm", str(tmp_path / "all.o")], capture_output=True, text=True, check=True)
    undefined = {line.split()[-1] for line in symbols.stdout.splitlines() if " U " in line}
    assert undefined <= {
        "_impure_ptr",
        "vfprintf",
        "ethosu_invoke",
        "memcpy",
        "memset",
        "abort",
        "exit",
        "printf",
        "puts",
    }
    assert " T tvmgen_default_run" in symbols.stdout
