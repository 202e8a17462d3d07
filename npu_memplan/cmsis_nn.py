"""CMSIS-NN's source, a folder of the user's: the files that `--host-ops cmsis-nn=DIR` takes.

Invariant: nothing of it is here and nothing is downloaded. What an artifact takes are copies of the files that the
functions it calls are made of, and of their headers, unchanged; how much scratch a function needs is what the folder's
own C says, for every kind of core.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .c_compiler import compiler_command, missing_compiler
from .errors import NpuMemplanError
from .files.folders import scratch_folder
from .files.paths import read_bytes
from .process.programs import run_program

CMSIS_NN = "cmsis-nn"
HEADER = "arm_nnfunctions.h"
_NAME = re.compile(r"\barm_\w+")
_STRUCTURES = """\
#include "arm_nnfunctions.h"
#define MOST(a, b) ((a) > (b) ? (a) : (b))
int32_t convolution_bytes(const int32_t *n);
int32_t convolution_bytes(const int32_t *n) {
  const cmsis_nn_conv_params p = {n[12], 0, {n[13], n[14]}, {n[15], n[16]}, {n[17], n[18]}, {-128, 127}};
  const cmsis_nn_dims in = {n[0], n[1], n[2], n[3]}, filter = {n[4], n[5], n[6], n[7]};
  const cmsis_nn_dims out = {n[8], n[9], n[10], n[11]};
  return MOST(arm_convolve_wrapper_s8_get_buffer_size(&p, &in, &filter, &out),
              MOST(arm_convolve_wrapper_s8_get_buffer_size_dsp(&p, &in, &filter, &out),
                   arm_convolve_wrapper_s8_get_buffer_size_mve(&p, &in, &filter, &out)));
}
int32_t depthwise_bytes(const int32_t *n);
int32_t depthwise_bytes(const int32_t *n) {
  const cmsis_nn_dw_conv_params p = {
      n[12], 0, n[11] / n[3], {n[13], n[14]}, {n[15], n[16]}, {n[17], n[18]}, {-128, 127}};
  const cmsis_nn_dims in = {n[0], n[1], n[2], n[3]}, filter = {n[4], n[5], n[6], n[7]};
  const cmsis_nn_dims out = {n[8], n[9], n[10], n[11]};
  return MOST(arm_depthwise_conv_wrapper_s8_get_buffer_size(&p, &in, &filter, &out),
              MOST(arm_depthwise_conv_wrapper_s8_get_buffer_size_dsp(&p, &in, &filter, &out),
                   arm_depthwise_conv_wrapper_s8_get_buffer_size_mve(&p, &in, &filter, &out)));
}
int32_t dense_bytes(const int32_t *n);
int32_t dense_bytes(const int32_t *n) {
  const cmsis_nn_dims filter = {n[0], 1, 1, n[1]};
  return MOST(arm_fully_connected_s8_get_buffer_size_dsp(&filter), arm_fully_connected_s8_get_buffer_size_mve(&filter));
}
int32_t average_bytes(const int32_t *n);
int32_t average_bytes(const int32_t *n) {
  return MOST(arm_avgpool_s8_get_buffer_size(n[0], n[1]),
              MOST(arm_avgpool_s8_get_buffer_size_dsp(n[0], n[1]), arm_avgpool_s8_get_buffer_size_mve(n[0], n[1])));
}
"""  # dimensions are n, h, w, c; pairs are w, h


class CmsisNNError(NpuMemplanError):
    """The folder is not CMSIS-NN's source, or not one that can be used."""


@dataclass(frozen=True, slots=True)
class CmsisNN:
    """The source in `folder`; every file is read once a process."""

    folder: Path

    @property
    def option_text(self) -> str:
        """The text of `--host-kernels` for it."""
        return f"{CMSIS_NN}={self.folder}"

    def source_files(self, called: Iterable[str]) -> Mapping[str, bytes]:
        """File name -> content of all headers, and of the C files that define `called` and what these call."""
        texts = _source_texts(self.folder)
        homes = _defining_files(self.folder)
        needed: set[str] = set()
        waiting = list(called)
        seen = set(waiting)
        while waiting:
            name = waiting.pop()
            if name not in homes:
                raise CmsisNNError(
                    f"{self.folder} defines no {name}, which the generated C calls; take a release of 2025 or later"
                )
            file = homes[name]
            if file in needed:
                continue
            needed.add(file)
            fresh = {n for n in _NAME.findall(texts[file].decode(errors="replace")) if n in homes} - seen
            seen |= fresh
            waiting += sorted(fresh)
        headers = [name for name in texts if name.endswith(".h")]
        return {name: texts[name] for name in sorted((*headers, *needed))}

    def content_digest(self) -> str:
        """A hash of all that is read of it."""
        return files_digest(_source_texts(self.folder))

    def defined_names(self, files: Iterable[str]) -> tuple[str, ...]:
        """Functions and tables with external linkage that these of its files define, sorted."""
        wanted = set(files)
        return tuple(sorted(name for name, file in _defining_files(self.folder).items() if file in wanted))

    def scratch_bytes(self, kind: str, numbers: tuple[int, ...]) -> int:
        """The scratch of `kind` (convolution, depthwise, dense, average) on the core that needs most."""
        values = (ctypes.c_int32 * len(numbers))(*numbers)
        return max(0, int(getattr(_size_functions(self.folder), f"{kind}_bytes")(values)))


def open_cmsis_nn(text: str) -> CmsisNN:
    """The source that an option's `cmsis-nn=DIR` names; `CmsisNNError` where it is none."""
    name, equals, folder = text.partition("=")
    if name != CMSIS_NN or not equals or not folder:
        raise CmsisNNError(f"--host-ops {text!r} is not {CMSIS_NN}=DIR, with DIR the folder of CMSIS-NN's source")
    root = Path(os.path.realpath(Path(folder).expanduser()))  # a loop of links is nothing that is there
    if not (root / "Include" / HEADER).is_file() or not (root / "Source").is_dir():
        raise CmsisNNError(
            f"--host-ops: {folder} has no Include/{HEADER} and Source; it has to be CMSIS-NN's source "
            "(https://github.com/ARM-software/CMSIS-NN)"
        )
    return CmsisNN(root)


@functools.cache
def _source_texts(folder: Path) -> Mapping[str, bytes]:
    """Headers, by their path below Include, and C files by their name; those of floats are left out."""
    include = folder / "Include"
    found = {path.relative_to(include).as_posix(): path for path in sorted(include.rglob("*.h"))}
    for path in sorted((folder / "Source").rglob("*.[ch]")):
        found[path.name] = path
    return {
        name: read_bytes(path)
        for name, path in found.items()
        if name.endswith(".h") or not re.search(r"_(f16|f32|flt)\.c$", name)
    }


@functools.cache
def _defining_files(folder: Path) -> Mapping[str, str]:
    """Name -> the C file that defines it."""
    homes: dict[str, str] = {}
    for file, content in _source_texts(folder).items():
        if not file.endswith(".c"):
            continue
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", content.decode(errors="replace"), flags=re.S)
        for match in re.finditer(r"^(?P<before>[A-Za-z_][\w \t*]*?)\b(?P<name>arm_\w+)\s*\([^;{}]*\)\s*\{", text, re.M):
            if "static" not in match["before"].lower():
                homes.setdefault(match["name"], file)
    return homes


@functools.cache
def _size_functions(folder: Path) -> ctypes.CDLL:
    """The folder's own functions of sizes, compiled for this machine."""
    command = compiler_command()
    if command is None:
        raise CmsisNNError(f"--host-ops asks CMSIS-NN's C for the scratch of its functions: {missing_compiler()}")
    sources = sorted((folder / "Source").rglob("*_get_buffer_sizes_s8.c"))
    with scratch_folder("cmsis-nn") as temporary:
        source, target = temporary / "sizes.c", temporary / "sizes.so"
        source.write_text(_STRUCTURES, encoding="utf-8")
        flags = ["-std=c11", "-O1", "-w", "-fPIC", "-shared", f"-I{folder / 'Include'}"]
        done = run_program([*command, *flags, source, *sources, "-o", target], temporary, 300)
        if done.returncode:
            first = "\n".join(done.stderr.splitlines()[:8])
            raise CmsisNNError(f"{folder}: its functions of buffer sizes cannot be compiled by {command[0]}:\n{first}")
        return ctypes.CDLL(str(target), mode=ctypes.RTLD_LOCAL)


def files_digest(files: Mapping[str, bytes]) -> str:
    """SHA-256 of names and contents."""
    found = hashlib.sha256()
    for name in sorted(files):
        found.update(name.encode() + b"\0" + files[name])
    return found.hexdigest()
