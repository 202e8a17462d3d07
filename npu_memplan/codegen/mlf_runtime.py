"""The runtime part of a Model Library Format tree: headers and sources under their legacy names.

Invariant: generated code needs `tvm_ethosu_runtime.h` alone; everything else here exists so that applications and
Makefiles of the legacy tree find the files and the names they use. Names and values are those of TVM 0.14 to 0.18
(include/tvm/runtime/crt/error_codes.h, dlpack.h), where they did not change.
"""

from __future__ import annotations

_LAUNCH = """\
/* Entry points between code generated for Ethos-U and the NPU's driver. */
#ifndef TVM_RUNTIME_CONTRIB_ETHOSU_ETHOSU_RUNTIME_H_
#define TVM_RUNTIME_CONTRIB_ETHOSU_ETHOSU_RUNTIME_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void tvm_device_ethos_u_t;

/* Runs the driver payload `cms_data`; base_addrs[i] is base pointer i. 0 is success. */
int32_t TVMEthosULaunch(tvm_device_ethos_u_t* resource_handle, void* cms_data, size_t cms_data_size,
                        uint64_t* base_addrs, size_t* base_addrs_size, int num_tensors);

int32_t TVMDeviceEthosUActivate(tvm_device_ethos_u_t* context);
int32_t TVMDeviceEthosUOpen(tvm_device_ethos_u_t* context);
int32_t TVMDeviceEthosUClose(tvm_device_ethos_u_t* context);
int32_t TVMDeviceEthosUDeactivate(tvm_device_ethos_u_t* context);

#ifdef __cplusplus
}
#endif

#endif
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
_ERRORS = {
    "FunctionRegistry": (
        "FunctionNameNotFound",
        "FunctionIndexInvalid",
        "FunctionRegistryFull",
        "FunctionAlreadyDefined",
        "BufferTooSmall",
    ),
    "Framing": (
        "FramingInvalidState",
        "FramingShortPacket",
        "FramingInvalidEscape",
        "FramingPayloadOverflow",
        "FramingPayloadIncomplete",
    ),
    "WriteStream": ("WriteStreamShortWrite", "WriteStreamLongWrite"),
    "Session": ("SessionInvalidState", "SessionReceiveBufferBusy", "SessionReceiveBufferShortWrite"),
    "Platform": (
        "PlatformCheckFailure",
        "PlatformMemoryManagerInitialized",
        "PlatformShutdown",
        "PlatformNoMemory",
        "PlatformTimerBadState",
        "PlatformStackAllocBadFree",
    ),
    "Generated": ("GeneratedInvalidStorageId",),
    "Executor": ("ExecutorModuleAlreadyCreated", "ExecutorModuleBadContext", "ExecutorModuleNoSuchInput"),
    "FunctionCall": (
        "FunctionCallNumArguments",
        "FunctionCallWrongArgType",
        "FunctionCallNotImplemented",
        "FunctionCallInvalidArg",
    ),
    "TimeEvaluator": ("TimeEvaluatorBadHandle",),
}


def _error_codes() -> str:
    """error_codes.h: what platform functions of legacy applications return."""
    categories = [f"  kTvmErrorCategory{name} = {number}," for number, name in enumerate(_ERRORS, 1)]
    codes = [
        f"  kTvmError{name} = {category << 8 | code:#06x},"
        for category, names in enumerate(_ERRORS.values(), 1)
        for code, name in enumerate(names)
    ]
    return "\n".join(
        [
            "#ifndef TVM_RUNTIME_CRT_ERROR_CODES_H_",
            "#define TVM_RUNTIME_CRT_ERROR_CODES_H_",
            "",
            "typedef enum {",
            *categories,
            "} tvm_crt_error_category_t;",
            "",
            "typedef enum {",
            "  kTvmErrorNoError = 0,",
            *codes,
            "  kTvmErrorSystemErrorMask = (-2147483647 - 1), /* the sign: an error of the system */",
            "} tvm_crt_error_t;",
            "",
            "#endif",
            "",
        ]
    )


_API = """\
/* Generated code needs nothing of TVM's runtime; legacy applications name these types. */
#ifndef TVM_RUNTIME_C_RUNTIME_API_H_
#define TVM_RUNTIME_C_RUNTIME_API_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tvm/runtime/crt/error_codes.h>

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

#endif
"""

_PLATFORM_API = """\
/* What applications of the standalone C runtime define; planned code calls none of it. */
#ifndef TVM_RUNTIME_CRT_PLATFORM_H_
#define TVM_RUNTIME_CRT_PLATFORM_H_

#include <tvm/runtime/c_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

void __attribute__((noreturn)) TVMPlatformAbort(tvm_crt_error_t code);
tvm_crt_error_t TVMPlatformMemoryAllocate(size_t num_bytes, DLDevice dev, void** out_ptr);
tvm_crt_error_t TVMPlatformMemoryFree(void* ptr, DLDevice dev);

#ifdef __cplusplus
}
#endif

#endif
"""

_BACKEND_API = """\
#ifndef TVM_RUNTIME_C_BACKEND_API_H_
#define TVM_RUNTIME_C_BACKEND_API_H_

#include <tvm/runtime/c_runtime_api.h>

#endif
"""

_MODULE = """\
#ifndef TVM_RUNTIME_CRT_MODULE_H_
#define TVM_RUNTIME_CRT_MODULE_H_

#include <tvm/runtime/c_runtime_api.h>

#endif
"""

_ALLOCATOR = """\
/* A last-in first-out allocator for applications; planned code allocates nothing. */
#ifndef TVM_RUNTIME_CRT_STACK_ALLOCATOR_H_
#define TVM_RUNTIME_CRT_STACK_ALLOCATOR_H_

#include <tvm/runtime/c_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  uint8_t* next_alloc;
  uint8_t* workspace;
  size_t workspace_size;
} tvm_workspace_t;

tvm_crt_error_t StackMemoryManager_Init(tvm_workspace_t* allocator, uint8_t* buffer, size_t buffer_size);
tvm_crt_error_t StackMemoryManager_Allocate(tvm_workspace_t* allocator, int32_t nbytes, void** current_alloc);
tvm_crt_error_t StackMemoryManager_Free(tvm_workspace_t* allocator, void* ptr);

#ifdef __cplusplus
}
#endif

#endif
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

typedef int npu_memplan_{name}_is_empty;
"""

_CRT_CONFIG = """\
/* Configuration of the standalone C runtime. Planned code reads none of it. */
#ifndef TVM_RUNTIME_CRT_CONFIG_H_
#define TVM_RUNTIME_CRT_CONFIG_H_

#define TVM_CRT_LOG_LEVEL 0

#endif
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


def runtime_files() -> dict[str, str]:
    """Path in the tree -> text."""
    return {
        f"{INCLUDE}/tvm/runtime/c_runtime_api.h": _API,
        f"{INCLUDE}/tvm/runtime/c_backend_api.h": _BACKEND_API,
        f"{INCLUDE}/tvm/runtime/crt/error_codes.h": _error_codes(),
        f"{INCLUDE}/tvm/runtime/crt/module.h": _MODULE,
        f"{INCLUDE}/tvm/runtime/crt/platform.h": _PLATFORM_API,
        f"{INCLUDE}/tvm/runtime/crt/stack_allocator.h": _ALLOCATOR,
        "runtime/src/runtime/crt/common/crt_backend_api.c": _UNIT.format(name="crt_backend_api"),
        "runtime/src/runtime/crt/memory/stack_allocator.c": _ALLOCATOR_C,
        f"{ETHOSU}/tvm_ethosu_runtime.h": _LAUNCH,
        f"{ETHOSU}/tvm_ethosu_runtime.c": _LAUNCH_C,
        "templates/crt_config.h.template": _CRT_CONFIG,
        "templates/platform.c.template": _PLATFORM,
    }
