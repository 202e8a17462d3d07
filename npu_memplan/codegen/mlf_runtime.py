"""The runtime part of a Model Library Format tree: headers and sources under their legacy names.

Invariant: generated code needs `tvm_ethosu_runtime.h` alone; everything else here exists so that applications and
Makefiles of the legacy tree find the files and the names they use. Names and values are those of TVM 0.14 to 0.18
(include/tvm/runtime/crt/error_codes.h, dlpack.h), where they did not change.
"""

from __future__ import annotations

from collections.abc import Sequence

from .interface import C_LINKAGE

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


def _header(guard: str, about: str, includes: Sequence[str], body: str = "", functions: bool = False) -> str:
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
        f"{INCLUDE}/{_C_API}": _header(
            "TVM_RUNTIME_C_RUNTIME_API_H_",
            "Generated code needs nothing of TVM's runtime; legacy applications name these types.",
            api,
            _API,
        ),
        f"{INCLUDE}/tvm/runtime/c_backend_api.h": _header("TVM_RUNTIME_C_BACKEND_API_H_", "", (_C_API,)),
        f"{INCLUDE}/tvm/runtime/crt/error_codes.h": _header("TVM_RUNTIME_CRT_ERROR_CODES_H_", "", (), _error_codes()),
        f"{INCLUDE}/tvm/runtime/crt/module.h": _header("TVM_RUNTIME_CRT_MODULE_H_", "", (_C_API,)),
        f"{INCLUDE}/tvm/runtime/crt/platform.h": _header(
            "TVM_RUNTIME_CRT_PLATFORM_H_",
            "What applications of the standalone C runtime define; planned code calls none of it.",
            (_C_API,),
            _PLATFORM_API,
            functions=True,
        ),
        f"{INCLUDE}/tvm/runtime/crt/stack_allocator.h": _header(
            "TVM_RUNTIME_CRT_STACK_ALLOCATOR_H_",
            "A last-in first-out allocator for applications; planned code allocates nothing.",
            (_C_API,),
            _ALLOCATOR,
            functions=True,
        ),
        "runtime/src/runtime/crt/common/crt_backend_api.c": _UNIT,
        "runtime/src/runtime/crt/memory/stack_allocator.c": _ALLOCATOR_C,
        f"{ETHOSU}/tvm_ethosu_runtime.h": _header(
            "TVM_RUNTIME_CONTRIB_ETHOSU_ETHOSU_RUNTIME_H_",
            "Entry points between code generated for Ethos-U and the NPU's driver.",
            ("stddef.h", "stdint.h"),
            _LAUNCH,
            functions=True,
        ),
        f"{ETHOSU}/tvm_ethosu_runtime.c": _LAUNCH_C,
        "templates/crt_config.h.template": _header(
            "TVM_RUNTIME_CRT_CONFIG_H_",
            "Configuration of the standalone C runtime. Planned code reads none of it.",
            (),
            "#define TVM_CRT_LOG_LEVEL 0\n",
        ),
        "templates/platform.c.template": _PLATFORM,
    }
