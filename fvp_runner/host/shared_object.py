"""The artifact's C as a shared object in this process.

Invariant: the C is the artifact's, unchanged; what is added is one file that forwards NPU
calls to a function pointer. Everything is built in a temporary folder.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from npu_memplan.artifact import Artifact
from npu_memplan.c_compiler import compiler_command, missing_compiler
from npu_memplan.codegen.interface import c_files
from npu_memplan.files.folders import scratch_folder
from npu_memplan.files.paths import read_c
from npu_memplan.names import c_identifier
from npu_memplan.process.programs import run_program

from ..base import RunnerError, RunnerMissingError
from ..process import read_output
from .instrumented import instrument_sources

# Warnings are errors: the C that users put into their own builds has to be clean.
# No fused multiply-add: host and target must round alike. Pools hold values of many types.
FLAGS = (
    "-std=c11 -O2 -Wall -Wextra -Werror -ffp-contract=off -fno-strict-aliasing -fPIC -shared".split()  # noqa: SIM905
)

_FORWARD = """\
#include "npu_memplan_runtime.h"

typedef int32_t (*launch_function)(const uint32_t *, uint32_t, const void *const *, const uint32_t *, int32_t);

static launch_function launch;

void npu_memplan_host_set_launch(launch_function function);
void npu_memplan_host_set_launch(launch_function function) { launch = function; }

int32_t npu_memplan_npu_launch(void *context, uint32_t region_config, const uint32_t *command_stream, uint32_t bytes,
                               const void *const bases[], const uint32_t base_bytes[], int32_t count) {
  (void)context, (void)region_config;
  return launch == 0 ? -2 : launch(command_stream, bytes, bases, base_bytes, count);
}
"""


INIT = -2  # what a sanitizer calls `<name>_init` among the calls of a program


class SharedObject:
    def __init__(self, path: Path, name: str) -> None:
        try:
            self._library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            raise RunnerError(_not_loaded(name, str(error))) from None
        self._name = name
        self._run = self._library[f"{name}_run"]
        self._run.restype = ctypes.c_int32
        self._guard: Any = None

    def set_launch(self, callback: Any) -> None:
        """`callback` handles NPU calls; the caller keeps it alive."""
        self._library.npu_memplan_host_set_launch(callback)

    def reset(self, pointers: Any) -> None:
        """`<name>_reset`, which programs with states have."""
        self._library[f"{self._name}_reset"](pointers)

    def init_constants(self, pointers: Any) -> int:
        """`<name>_init`, which programs with resident constants have."""
        try:
            function = self._library[f"{self._name}_init"]
        except AttributeError:
            raise RunnerError(
                f"plan.json says that {self._name} has resident constants, but its C has no {self._name}_init; "
                "compile the model again"
            ) from None
        function.restype = ctypes.c_int32
        return int(function(pointers) if self._guard is None else self._guard(function, pointers, INIT))

    def sanitizer_functions(self) -> Any:
        """The functions of `sanitizer.c`, with which it was built; runs and steps go through them from here on."""
        self._guard = self._library.npu_memplan_sanitizer_run
        self._guard.restype = ctypes.c_int32
        return self._library

    def run_step(self, symbol: str, pointers: Any, number: int) -> int:
        """One of the functions that `<name>_run` calls, its call `number`."""
        function = self._library[symbol]
        function.restype = ctypes.c_int32
        return int(function(pointers) if self._guard is None else self._guard(function, pointers, number))

    def run(self, pointers: Any) -> int:
        """`<name>_run` on an array of pool pointers."""
        return int(self._run(pointers) if self._guard is None else self._guard(self._run, pointers, -1))


def step_symbols(directory: Path, artifact: Artifact) -> tuple[str, ...]:
    """The functions that `<name>_run` calls, in order; `RunnerError` where it chooses between some."""
    name = c_identifier(artifact.name)
    text = read_c(directory / "src" / f"{name}.c")
    body = text[text.index(f"int32_t {name}_run(") :]
    symbols = tuple(re.findall(r"^  status = (\w+)\(pools\);", body, re.M))
    if len(symbols) != len(artifact.calls):
        raise RunnerError(f"{name}_run has branches: its steps cannot be run one by one")
    return symbols


def _not_loaded(name: str, message: str) -> str:
    """The cause of a loader's error: as a rule a function without a definition."""
    missing = re.search(rf"undefined symbol: ({re.escape(name)}_external_\w+)", message)
    if missing is None:
        return f"the C of {name} was built, but cannot be loaded: {message}"
    return (
        f"{name} calls {missing[1]}, an operator that is external, and it is not defined: give its C with "
        f"--external-source FILE.c (its prototype is in src/{name}.h)"
    )


@functools.cache
def compiler_version() -> str:
    """The first line of the compiler's version; empty without one."""
    command = compiler_command()
    return "" if command is None else read_output([*command, "--version"]).first_line or command[0]


def build_library(
    directory: Path,
    artifact: Artifact,
    progress: Callable[[str], None] | None = None,
    external_sources: Sequence[Path] = (),
    sanitize: bool = False,
    timeout_s: float = 300.0,
) -> SharedObject:
    """Compile and load `directory`'s sources and `external_sources`; `RunnerError` has the compiler's messages."""
    command = compiler_command()
    if command is None:
        raise RunnerMissingError(str(missing_compiler()))
    folder = directory / "src"
    sources = [folder / name for name in c_files(artifact)]
    for source in sources:
        if not source.is_file():
            raise RunnerError(f"the artifact {directory} lacks {source.name} in {folder}; compile the model again")
    for source in external_sources:
        if not source.is_file():
            raise RunnerError(f"--external-source {source}: there is no such file")
    sources += external_sources
    if progress is not None:
        progress(f"compile {len(sources)} C files of {directory} with {command[0]}")
    with scratch_folder("host") as temporary:
        forward = temporary / "launch.c"
        name = c_identifier(artifact.name)
        forward.write_text(_FORWARD, encoding="utf-8")
        target = temporary / "model.so"
        included = [f"-Wa,-I,{folder}"] if any(folder.glob("*.bin")) else []
        if sanitize:
            plain = [flag for flag in FLAGS if flag != "-shared"]
            made = instrument_sources(command, name, sources, temporary, plain)
            for one in made.lines:
                _run_compiler(one, directory, temporary, timeout_s)
            sources = list(made.inputs)
        line = [*command, *FLAGS, f"-I{folder}", *included, *map(str, sources), str(forward), "-o", str(target), "-lm"]
        _run_compiler(line, directory, temporary, timeout_s)
        # A loaded object stays valid when its file goes.
        return SharedObject(target, name)


def _run_compiler(line: Sequence[str], directory: Path, temporary: Path, timeout_s: float) -> None:
    try:
        done = run_program(line, temporary, timeout_s)
    except subprocess.TimeoutExpired:
        raise RunnerError(
            f"{line[0]} took longer than {timeout_s:g} s for the C of {directory}; give more time with --timeout"
        ) from None
    if done.returncode:
        first = "\n".join(done.stderr.splitlines()[:20])
        raise RunnerError(f"{line[0]} could not compile the C of {directory}:\n{first}")
