"""The shared library of the host backend, built against the installed package executorch.

Invariant: it is built anew for another source or another ExecuTorch, into a folder of the caller's.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import npu_memplan.executorch
from npu_memplan.errors import NpuMemplanError
from npu_memplan.files.folders import scratch_folder
from npu_memplan.process.programs import run_program

SOURCE = Path(__file__).parent / "host_backend.cpp"
_HEADERS = Path(npu_memplan.executorch.__file__).parent  # one_arena.h
_TIMEOUT_S = 300
_PORTABLE = "runtime/core/portable_type/c10"  # in the package's includes


class BenchError(NpuMemplanError):
    """The test bench cannot be built, or a program cannot be run on it."""


def executorch_folder() -> Path:
    """Where the package executorch is installed; `BenchError` where it is not."""
    found = importlib.util.find_spec("executorch")
    places = [] if found is None else list(found.submodule_search_locations or ())
    for place in map(Path, places):
        if (place / "lib" / "libexecutorch.so").is_file():
            return place
    raise BenchError("the package executorch with its runtime is not installed: pip install executorch==1.5.1")


def build_library(folder: Path) -> Path:
    """The library in `folder`, built where it is not there yet; `BenchError` has the compiler's message."""
    package = executorch_folder()
    compiler = shlex.split(os.environ.get("CXX", "")) or [shutil.which("g++") or shutil.which("clang++") or ""]
    if not compiler[0]:
        raise BenchError("no C++ compiler found; set CXX, or install one (e.g. apt install g++)")
    source = SOURCE.read_bytes() + (_HEADERS / "one_arena.h").read_bytes()
    key = hashlib.sha256(source + str(package).encode() + shlex.join(compiler).encode()).hexdigest()[:16]
    library = folder / f"libhost_backend_{key}.so"
    if library.is_file():
        return library
    include = package / "include"
    made = library.with_suffix(f".{os.getpid()}.so")
    command = [
        *compiler, "-std=c++17", "-O1", "-fPIC", "-shared", "-DC10_USING_CUSTOM_GENERATED_MACROS", f"-I{include}",
        f"-I{include / 'executorch' / _PORTABLE}", f"-I{_HEADERS}", str(SOURCE), "-o", str(made),
        f"-L{package / 'lib'}", "-lexecutorch", f"-Wl,-rpath,{package / 'lib'}",
    ]  # fmt: skip
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with scratch_folder("bench") as temporary:
            done = run_program(command, temporary, _TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchError(f"the host backend cannot be built: {error}") from None
    if done.returncode:
        raise BenchError(f"the host backend cannot be built: {done.stderr.strip()[-2000:]}")
    made.replace(library)
    return library
