"""The compiled searches as a shared library: built once on a machine by its C compiler, then loaded from a cache.

Invariant: a library in the cache was built from exactly these sources by exactly this compiler, for this kind of
machine: its name is a hash of them. It appears whole or not at all, so processes may build at the same time; where the
cache cannot be written it is built for this process alone. While it is built, the clock of time limits stands still.
A wheel may have one that was built with it; it is loaded where its sources and this kind of machine are its own and no
$CC is set.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..c_compiler import compiler_command, missing_compiler
from ..clock import pause_clock
from ..files.folders import cache_folder, is_ours, scratch_folder
from ..process.programs import run_program

# No fused multiply-add: choices must not depend on the machine.
FLAGS = ("-std=c11", "-O3", "-ffp-contract=off", "-fPIC", "-shared")
_SHARED = '#include "common.h"'  # the header of a family of searches has this line
TIMEOUT_S = 120.0
_PREBUILT = Path(__file__).parent / "prebuilt.so"  # of a wheel
_DIGEST = ".sha256"  # what a library of the cache is known by, beside it


@dataclass(frozen=True, slots=True)
class CFunctions:
    """The functions of the library, or why there are none."""

    functions: Any  # ctypes.CDLL, or None
    missing: str = ""


class _CannotBuild(Exception):
    """The libraries cannot be built, for the reason given."""


@functools.cache
def c_library() -> CFunctions:
    """The library: loaded, or else built; requested once a process."""
    with pause_clock():
        try:
            library = _open_library()
        except (_CannotBuild, OSError) as error:
            return CFunctions(None, str(error))
    for name in ("stack", "count_pairs", "list_pairs", "fit_pairs", "fit_scan", "prefetch"):
        getattr(library, f"npu_memplan_{name}").restype = ctypes.c_int64
    return CFunctions(library)


def sources() -> list[Path]:
    """All C sources and headers, sorted: those here, and those beside a header that includes `common.h`."""
    here = Path(__file__).resolve().parent
    families = {path.parent for path in here.parent.rglob("*.h") if _SHARED in path.read_text(encoding="utf-8")}
    return sorted(path for folder in (here, *families) for path in folder.glob("*.[ch]"))


def prebuild_library(folder: Path) -> tuple[Path, ...]:
    """The files of a wheel that has the library, made in `folder`; none without a C compiler."""
    command = compiler_command()
    if command is None:
        return ()
    built = folder / _PREBUILT.name
    _build_library(command, built)
    digest = built.with_suffix(_DIGEST)
    digest.write_text(_library_key(None), encoding="ascii")
    return built, digest


def _wheel_library() -> Any:
    """The library of the wheel; None where it has none, or one of other sources or for another machine."""
    with suppress(OSError):
        known = _PREBUILT.with_suffix(_DIGEST).read_text(encoding="ascii")
        if known == _library_key(None) and not os.environ.get("CC"):
            return ctypes.CDLL(str(_PREBUILT))
    return None


def _open_library() -> Any:
    library = _wheel_library()
    if library is not None:
        return library
    command = compiler_command()
    if command is None:
        raise _CannotBuild(missing_compiler())
    name = f"searches-{_library_key(command)}.so"
    with ExitStack() as stack:
        try:
            folder = cache_folder()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            kept = folder / name if is_ours(os.stat(folder)) else None
            if kept is not None and _is_whole(kept):
                with suppress(OSError):  # one that cannot be loaded is built anew
                    return ctypes.CDLL(str(kept))
            private = stack.enter_context(scratch_folder("build", None if kept is None else folder))
        except (OSError, RuntimeError):  # no home, or a cache that cannot be written
            kept, private = None, stack.enter_context(scratch_folder("build"))
        built = private / name
        _build_library(command, built)
        library = ctypes.CDLL(str(built))  # a loaded library stays valid when its file goes
        if kept is not None:
            with suppress(OSError):
                _keep_library(built, kept)
    return library


def _keep_library(built: Path, kept: Path) -> None:
    """Put a library into the cache, and what it is known by beside it."""
    digest = built.with_suffix(_DIGEST)
    digest.write_text(hashlib.sha256(built.read_bytes()).hexdigest(), encoding="ascii")
    for path in (built, digest):
        path.chmod(0o700)
        path.replace(kept.with_name(path.name))


def _is_whole(kept: Path) -> bool:
    """Whether a library of the cache is the user's, and has the bytes that were put there; links are not followed."""
    try:
        ours = all(is_ours(os.lstat(path)) and not path.is_symlink() for path in (kept, kept.with_suffix(_DIGEST)))
        known = kept.with_suffix(_DIGEST).read_bytes() if ours else b""
        return ours and hashlib.sha256(kept.read_bytes()).hexdigest().encode() == known
    except OSError:
        return False


def _library_key(command: list[str] | None) -> str:
    """A hash of the sources, the compiler (None: any) and the kind of machine."""
    hashed = hashlib.sha256()
    parts = list(FLAGS)
    if command is not None:
        found = shutil.which(command[0]) or command[0]
        state = os.stat(found)
        parts = [*command, *FLAGS, f"{os.path.realpath(found)} {state.st_size} {state.st_mtime_ns}"]
    for part in (*parts, sys.platform, platform.machine()):
        hashed.update(part.encode() + b"\0")
    for path in sources():
        hashed.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return hashed.hexdigest()[:32]


def _build_library(command: list[str], target: Path) -> None:
    """Each source on its own, side by side, then one library: the first plan of a machine waits for it."""
    files = sources()
    folders = sorted({f"-I{path.parent}" for path in files})
    objects = {path: target.with_name(f"{i}.o") for i, path in enumerate(f for f in files if f.suffix == ".c")}
    with ThreadPoolExecutor(os.cpu_count()) as beside:
        lines = [[*command, *FLAGS[:-1], *folders, "-c", str(c), "-o", str(o)] for c, o in objects.items()]
        list(beside.map(lambda line: _run_compiler(line, target.parent), lines))
    _run_compiler([*command, *FLAGS, *map(str, objects.values()), "-o", str(target)], target.parent)


def _run_compiler(line: list[str], folder: Path) -> None:
    try:
        done = run_program(line, folder, TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise _CannotBuild(f"{line[0]} did not compile the searches within {TIMEOUT_S:g} s") from None
    if done.returncode:
        first = next((text for text in done.stderr.splitlines() if "error" in text), done.stderr.strip()[:200])
        raise _CannotBuild(f"{line[0]} could not compile the searches: {first}")
