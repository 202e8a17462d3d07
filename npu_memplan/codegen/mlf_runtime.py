"""The runtime part of a Model Library Format tree: headers and sources under their legacy names.

Invariant: generated code needs `tvm_ethosu_runtime.h` alone; everything else here exists so that Makefiles which
compile the standalone C runtime of the legacy tree find the files they name.
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

_API = """\
/* Generated code needs nothing of TVM's runtime; applications may include this name. */
#ifndef TVM_RUNTIME_C_RUNTIME_API_H_
#define TVM_RUNTIME_C_RUNTIME_API_H_

#include <stddef.h>
#include <stdint.h>

#ifndef TVM_DLL
#define TVM_DLL
#endif

typedef int32_t tvm_crt_error_t;

#endif
"""

_MODULE = """\
#ifndef TVM_RUNTIME_CRT_MODULE_H_
#define TVM_RUNTIME_CRT_MODULE_H_

#include <tvm/runtime/c_runtime_api.h>

#endif
"""

_ALLOCATOR = """\
/* The workspace is planned when the model is compiled: there is no allocator at run time. */
#ifndef TVM_RUNTIME_CRT_STACK_ALLOCATOR_H_
#define TVM_RUNTIME_CRT_STACK_ALLOCATOR_H_

#include <tvm/runtime/c_runtime_api.h>

#endif
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

#include "tvm/runtime/c_runtime_api.h"

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
        f"{INCLUDE}/tvm/runtime/c_backend_api.h": _API.replace("C_RUNTIME_API", "C_BACKEND_API").replace(
            "typedef int32_t tvm_crt_error_t;", "#include <tvm/runtime/c_runtime_api.h>"
        ),
        f"{INCLUDE}/tvm/runtime/crt/module.h": _MODULE,
        f"{INCLUDE}/tvm/runtime/crt/stack_allocator.h": _ALLOCATOR,
        "runtime/src/runtime/crt/common/crt_backend_api.c": _UNIT.format(name="crt_backend_api"),
        "runtime/src/runtime/crt/memory/stack_allocator.c": _UNIT.format(name="stack_allocator"),
        f"{ETHOSU}/tvm_ethosu_runtime.h": _LAUNCH,
        f"{ETHOSU}/tvm_ethosu_runtime.c": _LAUNCH_C,
        "templates/crt_config.h.template": _CRT_CONFIG,
        "templates/platform.c.template": _PLATFORM,
    }
