"""Links MLF modules into one shared library and calls them as a legacy application would.

Invariant: memory is the caller's and the generated code's own; NPU launches run on those very bytes.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fvp_runner.npu_model.model import NpuModel
from npu_memplan.c_compiler import compiler_command
from npu_memplan.codegen.mlf import ETHOSU, Library
from npu_memplan.ethosu.stream.encode import parse_payload

from .warnings_of_c import check_library

LAUNCHER = """
#include "tvm_ethosu_runtime.h"
int32_t (*test_hook)(void*, size_t, uint64_t*, size_t*, int);
int32_t TVMEthosULaunch(tvm_device_ethos_u_t* handle, void* cms, size_t size, uint64_t* bases, size_t* sizes, int n) {
  return handle ? test_hook(cms, size, bases, sizes, n) : -7;
}
int32_t TVMDeviceEthosUActivate(tvm_device_ethos_u_t* c) { return c ? 0 : -1; }
int32_t TVMDeviceEthosUOpen(tvm_device_ethos_u_t* c) { return c ? 0 : -1; }
int32_t TVMDeviceEthosUClose(tvm_device_ethos_u_t* c) { return c ? 0 : -1; }
int32_t TVMDeviceEthosUDeactivate(tvm_device_ethos_u_t* c) { return c ? 0 : -1; }
"""
_HOOK = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.c_int,
)


def write_tree(library: Library, directory: Path) -> None:
    """The files of a library below an existing `directory`, as its tar unpacks."""
    for name, content in library.files.items():
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


class Application:
    """One shared library with the modules in it."""

    def __init__(self, libraries: Sequence[Library], folder: Path) -> None:
        sources = [folder / "launcher.c"]
        sources[0].write_text(LAUNCHER)
        includes = []
        for number, library in enumerate(libraries):
            tree = folder / f"tree{number}"
            tree.mkdir()
            write_tree(library, tree)
            check_library(tree)
            sources += sorted((tree / "codegen/host/src").glob("*.c"))
            includes += [tree / "codegen/host/include", tree / ETHOSU, tree / "runtime/include"]
        shared = folder / "application.so"
        flags = ["-std=gnu99", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
        command = [
            *compiler_command(),
            *flags,
            *(f"-I{i}" for i in includes),
            *map(str, sources),
            "-lm",
            "-o",
            str(shared),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        self.library = ctypes.CDLL(str(shared))
        self.launches: list[dict[int, int]] = []  # of each launch: region -> bytes
        self._models: dict[str, NpuModel] = {}
        self._hook = _HOOK(self._launch)
        ctypes.c_void_p.in_dll(self.library, "test_hook").value = ctypes.cast(self._hook, ctypes.c_void_p).value

    def _launch(self, cms: int, size: int, bases: Any, sizes: Any, count: int) -> int:
        payload = parse_payload(ctypes.string_at(cms, size))
        self.launches.append({i: sizes[i] for i in range(count) if bases[i]})
        regions = [_view(bases[i], sizes[i]) if bases[i] and sizes[i] else None for i in range(count)]
        name = payload.accelerator.name
        model = self._models.setdefault(name, NpuModel(payload.accelerator))
        model.run(payload.words, regions)
        return 0

    def run(self, module: str, *structs: Sequence[int]) -> int:
        """Call `tvmgen_<module>_run`; each struct is a list of addresses."""
        arguments = [(ctypes.c_void_p * len(s))(*s) for s in structs]
        function = getattr(self.library, f"tvmgen_{module}_run")
        function.restype = ctypes.c_int32
        return int(function(*(ctypes.byref(a) for a in arguments)))


def _view(address: int, size: int) -> np.ndarray:
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8)), (size,))


def aligned(size: int, fill: int = 0xA5) -> np.ndarray:
    """Bytes whose address is a multiple of 16."""
    raw = np.full(size + 16, fill, np.uint8)
    start = -raw.ctypes.data % 16
    return raw[start : start + size]


def address(values: np.ndarray) -> int:
    """Address of the first byte."""
    return int(values.ctypes.data)


def metadata_main(library: Library, module: str = "default") -> Mapping[str, Any]:
    """The memory map of main in metadata.json."""
    import json

    found: Mapping[str, Any] = json.loads(library.files["metadata.json"])["modules"][module]["memory"]["functions"]
    return dict(found["main"][0])
