"""Model Library Format, version 7: the tree, `metadata.json`, the runtime's headers and sources, the tar.

Invariant: a tree is a mapping of paths to bytes, made before anything is written; the same module, options and date
give the same tar, byte for byte. All numbers of the metadata are those of the generated C, which needs
`tvm_ethosu_runtime.h` alone; the other files exist so that applications and Makefiles of the legacy tree find the names
they use. These are those of TVM 0.14 to 0.18 (include/tvm/runtime/crt/error_codes.h, dlpack.h), where they did not
change. `TVMEthosULaunch` is given base address 0 for the weights and the regions of the planned PrimFunc for the
others, at least six in all, unused ones as 0; the stream is wrapped as Arm's driver wants it (COP1).
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from ..ethosu.arch import accelerator
from ..ethosu.program.primfunc import encode_primfunc
from ..ethosu.stream.encode import Payload, build_payload
from ..files.paths import write_whole
from ..vocabulary import ACCELERATOR, REGIONS
from . import CodegenError
from .c_text import LONG_STRINGS, OPAQUE_FUNCTIONS, c_array
from .entry import RUNTIME_HEADER
from .header import ModuleInterface, print_entry, print_executor_header, print_main
from .interface import C_LINKAGE, Interface, PoolSpec
from .program import ConstantArgument, FunctionCall, IfElse, PlannedProgram, PoolArgument, read_program
from .sources import print_sources

_BASES = 6
SECTION = (
    LONG_STRINGS
    + OPAQUE_FUNCTIONS
    + (
        "#ifndef TVMGEN_CONSTANT_SECTION\n"
        '#define TVMGEN_CONSTANT_SECTION ".rodata.tvm"\n'
        "#endif\n"
        "#undef NPU_MEMPLAN_CONSTANT\n"
        "#define NPU_MEMPLAN_CONSTANT const __attribute__((section(TVMGEN_CONSTANT_SECTION), aligned(16)))\n"
    )
)


def print_npu(program: PlannedProgram, interface: Interface) -> tuple[str, int, int]:
    """Text of the NPU's C file, bytes of constants in no pool, bytes of payloads."""
    parts = ['#include "tvm_ethosu_runtime.h"', "#include <stddef.h>\n#include <stdint.h>\n", SECTION]
    weights: dict[int, str] = {}  # constant -> C array
    constants = payloads = 0
    for symbol, call in {call.symbol: call for call in program.calls if call.is_npu}.items():
        index = _weights_argument(call)
        values, array = np.zeros(0, np.uint8), "NULL"
        if index is not None:
            values = np.ascontiguousarray(program.constants[index]).view(np.uint8).reshape(-1)
        if index in program.constant_pools:
            array = interface.constant_expressions()[program.constant_pools[index]]
        elif index is not None and values.size:
            if index not in weights:
                weights[index] = f"{symbol}_weights"
                parts.append("static " + c_array(weights[index], values))
                constants += values.nbytes
            array = weights[index]
        target = accelerator(str(call.primfunc.attrs[ACCELERATOR]))
        payload = np.frombuffer(build_payload(Payload(target, encode_primfunc(call.primfunc))), np.uint8)
        parts.append("static " + c_array(f"{symbol}_cms_data_data", payload))
        payloads += payload.nbytes
        parts.append(_launch_code(call, array, values.nbytes, payload.nbytes, [p.size_bytes for p in interface.pools]))
    return "\n".join(parts), constants, payloads


def _weights_argument(call: FunctionCall) -> int | None:
    found = [a.index for a in call.arguments if isinstance(a, ConstantArgument)]
    if len(found) > 1:
        raise CodegenError(f"{call.symbol}: an NPU function has one constant at most, this one has {len(found)}")
    return found[0] if found else None


def _launch_code(
    call: FunctionCall, array: str, weights_bytes: int, payload_bytes: int, pool_bytes: Sequence[int]
) -> str:
    symbol, regions = call.symbol, [int(r) for r in call.primfunc.attrs[REGIONS] if r]  # 0 are the constants
    pools = [a.index for a in call.arguments if isinstance(a, PoolArgument)]
    count = max([_BASES, *(r + 1 for r in regions)])
    lines = [f"int32_t {symbol}(uint8_t* const pools[], void* ethos_u) {{"]
    lines += [f"  uint64_t base_addrs[{count}] = {{0}};", f"  size_t base_addrs_size[{count}] = {{0}};"]
    lines += [f"  base_addrs[0] = (uintptr_t){array};", f"  base_addrs_size[0] = {weights_bytes};"]
    for region, pool in zip(regions, pools, strict=True):
        lines += [f"  base_addrs[{region}] = (uintptr_t)pools[{pool}];"]
        lines += [f"  base_addrs_size[{region}] = {pool_bytes[pool]};"]
    if not pools and "pools[" not in array:
        lines += ["  (void)pools;"]
    lines += [
        f"  return TVMEthosULaunch(ethos_u, (void*)(uintptr_t){symbol}_cms_data_data, {payload_bytes}, base_addrs,",
        f"                         base_addrs_size, {count});",
        "}",
        "",
    ]
    return "\n".join(lines)


_LAUNCH = """\
typedef void tvm_device_ethos_u_t;

/* Runs the driver payload `cms_data`; base_addrs[i] is base pointer i. 0 is success. */
int32_t TVMEthosULaunch(tvm_device_ethos_u_t* resource_handle, void* cms_data, size_t cms_data_size,
                        uint64_t* base_addrs, size_t* base_addrs_size, int num_tensors);

int32_t TVMDeviceEthosUActivate(tvm_device_ethos_u_t* context);
int32_t TVMDeviceEthosUOpen(tvm_device_ethos_u_t* context);
int32_t TVMDeviceEthosUClose(tvm_device_ethos_u_t* context);
int32_t TVMDeviceEthosUDeactivate(tvm_device_ethos_u_t* context);
"""

_LAUNCH_C = """\
/* TVMEthosULaunch on Arm's core driver. */
#include "tvm_ethosu_runtime.h"

#include <ethosu_driver.h>

int32_t TVMEthosULaunch(tvm_device_ethos_u_t* resource_handle, void* cms_data, size_t cms_data_size,
                        uint64_t* base_addrs, size_t* base_addrs_size, int num_tensors) {
  struct ethosu_driver* driver = (struct ethosu_driver*)resource_handle;
  return ethosu_invoke(driver, cms_data, (int)cms_data_size, base_addrs, base_addrs_size, num_tensors) == 0 ? 0 : -1;
}

int32_t TVMDeviceEthosUActivate(tvm_device_ethos_u_t* context) { return context == NULL ? -1 : 0; }
int32_t TVMDeviceEthosUOpen(tvm_device_ethos_u_t* context) { return context == NULL ? -1 : 0; }
int32_t TVMDeviceEthosUClose(tvm_device_ethos_u_t* context) { return context == NULL ? -1 : 0; }
int32_t TVMDeviceEthosUDeactivate(tvm_device_ethos_u_t* context) { return context == NULL ? -1 : 0; }
"""

# Category -> its codes from 0; an error is category << 8 | code.
_ERRORS = """
FunctionRegistry: FunctionNameNotFound FunctionIndexInvalid FunctionRegistryFull FunctionAlreadyDefined BufferTooSmall
Framing: FramingInvalidState FramingShortPacket FramingInvalidEscape FramingPayloadOverflow FramingPayloadIncomplete
WriteStream: WriteStreamShortWrite WriteStreamLongWrite
Session: SessionInvalidState SessionReceiveBufferBusy SessionReceiveBufferShortWrite
Platform: PlatformCheckFailure PlatformMemoryManagerInitialized PlatformShutdown PlatformNoMemory
 PlatformTimerBadState PlatformStackAllocBadFree
Generated: GeneratedInvalidStorageId
Executor: ExecutorModuleAlreadyCreated ExecutorModuleBadContext ExecutorModuleNoSuchInput
FunctionCall: FunctionCallNumArguments FunctionCallWrongArgType FunctionCallNotImplemented FunctionCallInvalidArg
TimeEvaluator: TimeEvaluatorBadHandle
"""


def _error_codes() -> str:
    """Body of error_codes.h: what platform functions of legacy applications return."""
    table = [line.split(": ") for line in _ERRORS.strip().replace("\n ", " ").splitlines()]
    categories = "".join(f"  kTvmErrorCategory{name} = {number},\n" for number, (name, _) in enumerate(table, 1))
    codes = "".join(
        f"  kTvmError{name} = {category << 8 | code:#06x},\n"
        for category, (_, names) in enumerate(table, 1)
        for code, name in enumerate(names.split())
    )
    return f"""\
typedef enum {{
{categories}}} tvm_crt_error_category_t;

typedef enum {{
  kTvmErrorNoError = 0,
{codes}  kTvmErrorSystemErrorMask = (-2147483647 - 1), /* the sign: an error of the system */
}} tvm_crt_error_t;
"""


_API = """\
#ifndef TVM_DLL
#define TVM_DLL __attribute__((visibility("default")))
#endif
#define TVM_WEAK __attribute__((weak))
#define TVM_ATTRIBUTE_UNUSED __attribute__((unused))

typedef void* TVMFunctionHandle;

typedef enum { kDLCPU = 1 } DLDeviceType;

typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;
"""

_PLATFORM_API = """\
void __attribute__((noreturn)) TVMPlatformAbort(tvm_crt_error_t code);
tvm_crt_error_t TVMPlatformMemoryAllocate(size_t num_bytes, DLDevice dev, void** out_ptr);
tvm_crt_error_t TVMPlatformMemoryFree(void* ptr, DLDevice dev);
"""

_ALLOCATOR = """\
typedef struct {
  uint8_t* next_alloc;
  uint8_t* workspace;
  size_t workspace_size;
} tvm_workspace_t;

tvm_crt_error_t StackMemoryManager_Init(tvm_workspace_t* allocator, uint8_t* buffer, size_t buffer_size);
tvm_crt_error_t StackMemoryManager_Allocate(tvm_workspace_t* allocator, int32_t nbytes, void** current_alloc);
tvm_crt_error_t StackMemoryManager_Free(tvm_workspace_t* allocator, void* ptr);
"""

_ALLOCATOR_C = """\
/* Blocks lie one behind the other, each 16-byte aligned; freeing one frees all behind it. */
#include <tvm/runtime/crt/stack_allocator.h>

tvm_crt_error_t StackMemoryManager_Init(tvm_workspace_t* allocator, uint8_t* buffer, size_t buffer_size) {
  size_t skipped = (size_t)(-(uintptr_t)buffer & 15u);
  if (skipped > buffer_size) skipped = buffer_size;
  allocator->workspace = buffer + skipped;
  allocator->next_alloc = allocator->workspace;
  allocator->workspace_size = buffer_size - skipped;
  return kTvmErrorNoError;
}

tvm_crt_error_t StackMemoryManager_Allocate(tvm_workspace_t* allocator, int32_t nbytes, void** current_alloc) {
  const size_t used = (size_t)(allocator->next_alloc - allocator->workspace);
  const size_t wanted = ((size_t)nbytes + 15u) & ~(size_t)15u;
  if (nbytes < 0 || wanted > allocator->workspace_size - used) return kTvmErrorPlatformNoMemory;
  *current_alloc = allocator->next_alloc;
  allocator->next_alloc += wanted;
  return kTvmErrorNoError;
}

tvm_crt_error_t StackMemoryManager_Free(tvm_workspace_t* allocator, void* ptr) {
  uint8_t* const block = (uint8_t*)ptr;
  if (block < allocator->workspace || block > allocator->next_alloc) return kTvmErrorPlatformStackAllocBadFree;
  allocator->next_alloc = block;
  return kTvmErrorNoError;
}
"""

_UNIT = """\
/* Part of the standalone C runtime's file list; planned code calls nothing of it. */
#include <tvm/runtime/c_runtime_api.h>

typedef int npu_memplan_crt_backend_api_is_empty;
"""

_PLATFORM = """\
/* Platform functions of the standalone C runtime. Planned code calls none of them; an abort is all that
 * other parts of an application may need. */
#include <stdlib.h>

#include <tvm/runtime/crt/platform.h>

void TVMPlatformAbort(tvm_crt_error_t error) {
  (void)error;
  abort();
}
"""

ETHOSU = "runtime/src/runtime/contrib/ethosu/bare_metal"
INCLUDE = "runtime/include"
_C_API = "tvm/runtime/c_runtime_api.h"


def _header_text(guard: str, about: str, includes: Sequence[str], body: str = "", functions: bool = False) -> str:
    """A header; one that declares `functions` can be included from C++."""
    parts = [f"/* {about} */\n" if about else "", f"#ifndef {guard}\n#define {guard}\n\n"]
    parts += [*(f"#include <{name}>\n" for name in includes), "\n" if includes else ""]
    before, after = (f"{line}\n" if functions else "" for line in C_LINKAGE)
    parts += [before, f"{body}\n" if body else "", after]
    return "".join([*parts, "#endif\n"])


def runtime_files() -> dict[str, str]:
    """Path in the tree -> text."""
    api = ("stdbool.h", "stddef.h", "stdint.h", "tvm/runtime/crt/error_codes.h")
    return {
        f"{INCLUDE}/{_C_API}": _header_text(
            "TVM_RUNTIME_C_RUNTIME_API_H_",
            "Generated code needs nothing of TVM's runtime; legacy applications name these types.",
            api,
            _API,
        ),
        f"{INCLUDE}/tvm/runtime/c_backend_api.h": _header_text("TVM_RUNTIME_C_BACKEND_API_H_", "", (_C_API,)),
        f"{INCLUDE}/tvm/runtime/crt/error_codes.h": _header_text(
            "TVM_RUNTIME_CRT_ERROR_CODES_H_", "", (), _error_codes()
        ),
        f"{INCLUDE}/tvm/runtime/crt/module.h": _header_text("TVM_RUNTIME_CRT_MODULE_H_", "", (_C_API,)),
        f"{INCLUDE}/tvm/runtime/crt/platform.h": _header_text(
            "TVM_RUNTIME_CRT_PLATFORM_H_",
            "What applications of the standalone C runtime define; planned code calls none of it.",
            (_C_API,),
            _PLATFORM_API,
            functions=True,
        ),
        f"{INCLUDE}/tvm/runtime/crt/stack_allocator.h": _header_text(
            "TVM_RUNTIME_CRT_STACK_ALLOCATOR_H_",
            "A last-in first-out allocator for applications; planned code allocates nothing.",
            (_C_API,),
            _ALLOCATOR,
            functions=True,
        ),
        "runtime/src/runtime/crt/common/crt_backend_api.c": _UNIT,
        "runtime/src/runtime/crt/memory/stack_allocator.c": _ALLOCATOR_C,
        f"{ETHOSU}/tvm_ethosu_runtime.h": _header_text(
            "TVM_RUNTIME_CONTRIB_ETHOSU_ETHOSU_RUNTIME_H_",
            "Entry points between code generated for Ethos-U and the NPU's driver.",
            ("stddef.h", "stdint.h"),
            _LAUNCH,
            functions=True,
        ),
        f"{ETHOSU}/tvm_ethosu_runtime.c": _LAUNCH_C,
        "templates/crt_config.h.template": _header_text(
            "TVM_RUNTIME_CRT_CONFIG_H_",
            "Configuration of the standalone C runtime. Planned code reads none of it.",
            (),
            "#define TVM_CRT_LOG_LEVEL 0\n",
        ),
        "templates/platform.c.template": _PLATFORM,
    }


VERSION = 7
_CPU = 1  # kDLCPU
_EMPTY_PARAMETERS = bytes.fromhex("b79c04054f8de5f7") + bytes(24)  # TVM's list of named arrays, with none in it


@dataclass(frozen=True, slots=True)
class Library:
    files: Mapping[str, bytes]  # path in the tree -> content
    constants_bytes: int
    payload_bytes: int

    def tar_bytes(self) -> bytes:
        """The tar file: the same bytes for the same files."""
        sink = io.BytesIO()
        with tarfile.open(fileobj=sink, mode="w") as tar:
            for name, content in sorted(self.files.items()):
                entry = tarfile.TarInfo(f"./{name}")
                entry.size = len(content)
                entry.mode = 0o644
                tar.addfile(entry, io.BytesIO(content))
        return sink.getvalue()

    def write_tar(self, path: Path) -> None:
        """Write the tar; no half-written file is ever left under `path`."""
        write_whole(path, self.tar_bytes())


def build_library(
    module: Any,
    interface: ModuleInterface,
    pools: Sequence[PoolSpec],
    source: str,
    targets: Sequence[str],
    date: datetime,
) -> Library:
    """The tree of a planned module. `pools` are main's parameters in order; `source` is the module as text."""
    name, program = interface.module, read_program(module, interface.macro_prefix)
    if any(isinstance(item, IfElse) for item in program.body):
        raise CodegenError(f"{name} has branches, which Model Library Format has no code for; use npu-memplan compile")
    places = Interface(
        interface.macro_prefix, tuple(pools), constant_pools=interface.constant_pools, constants_passed=True
    )
    printed = print_sources(module, places)
    npu_text, constants_bytes, payload_bytes = print_npu(program, places)
    images = {p.name: bytes(1) for p in interface.constant_pools}  # C has no empty arrays
    images |= {pool: program.constants[index].tobytes() for index, pool in program.constant_pools.items()}
    steps = [(call.symbol, call.is_npu) for call in program.calls]
    texts = {
        f"codegen/host/include/{interface.macro_prefix}.h": print_executor_header(interface, images),
        f"codegen/host/src/{name}_lib0.c": print_entry(interface),
        f"codegen/host/src/{name}_lib1.c": print_main(interface, steps),
        f"src/{name}.relax": source,
    }
    number = 2
    if any(npu for _, npu in steps):
        texts[f"codegen/host/src/{name}_lib{number}.c"] = npu_text
        number += 1
    host_constants = printed.constants_bytes - constants_bytes
    if not all(npu for _, npu in steps):
        text = printed.texts[f"{interface.macro_prefix}_host.c"]
        text = text.replace(f'#include "{interface.macro_prefix}.h"\n#include "{RUNTIME_HEADER}"\n', SECTION)
        texts[f"codegen/host/src/{name}_lib{number}.c"] = text
    constants_bytes += max(host_constants, 0)
    metadata = _metadata_document(interface, steps, constants_bytes + payload_bytes, targets, date)
    texts["metadata.json"] = json.dumps(metadata, indent=2, sort_keys=True)
    texts |= runtime_files()
    files = {path: text.encode() for path, text in texts.items()}
    files[f"parameters/{name}.params"] = _EMPTY_PARAMETERS
    return Library(files, constants_bytes, payload_bytes)


def _metadata_document(
    interface: ModuleInterface,
    steps: Sequence[tuple[str, bool]],
    constants_bytes: int,
    targets: Sequence[str],
    date: datetime,
) -> dict[str, Any]:
    def tensor_entries(listed: Sequence[Any]) -> dict[str, Any]:
        return {t.name: {"dtype": t.dtype, "size": t.size_bytes} for t in listed}

    io_bytes = sum(t.size_bytes for t in (*interface.inputs, *interface.outputs))
    main = {
        "device": _CPU,
        "workspace_size_bytes": interface.workspace_bytes,
        "constants_size_bytes": constants_bytes,
        "io_size_bytes": 0 if interface.workspace_io else io_bytes,
        "inputs": tensor_entries(interface.inputs),
        "outputs": tensor_entries(interface.outputs),
    }
    functions = [
        {"function_name": symbol, "workspace": [{"device": _CPU, "workspace_size_bytes": 0}]}
        for symbol, _ in dict.fromkeys(steps)
    ]
    dependency = {
        "short_name": "tvm_standalone_crt",
        "url": "./runtime",
        "url_type": "mlf_path",
        "version_spec": "0.14.0",
    }
    return {
        "version": VERSION,
        "modules": {
            interface.module: {
                "model_name": interface.module,
                "export_datetime": date.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ"),
                "target": list(targets),
                "executors": ["aot"],
                "style": "full-model",
                "external_dependencies": [dependency],
                "memory": {"functions": {"main": [main], "operator_functions": functions}},
            }
        },
    }
