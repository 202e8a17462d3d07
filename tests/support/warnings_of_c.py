"""C that tests build has no warnings, from no compiler that is here.

Invariant: CI has GCC and clang, and both look with the warnings that users turn on; elsewhere those that are there.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from npu_memplan.artifact import Artifact
from npu_memplan.codegen.builds import GLUE
from npu_memplan.codegen.interface import c_files

STRICT = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
_DRIVER = """#include <stddef.h>
#include <stdint.h>
struct ethosu_driver;
struct ethosu_driver *ethosu_reserve_driver(void);
void ethosu_release_driver(struct ethosu_driver *driver);
int ethosu_invoke(struct ethosu_driver *driver, const void *payload, int bytes, uint64_t *bases, const size_t *sizes,
                  int count);
"""  # what glue calls of Arm's driver, in the driver's own types
_clean: set[str] = set()  # digests of what has been looked at: many tests build the same


@functools.cache
def strict_compilers() -> tuple[str, ...]:
    """GCC and clang, those of them that are here."""
    found = tuple(name for name in ("gcc", "clang") if shutil.which(name))
    assert len(found) == 2 or not os.environ.get("CI"), f"CI compiles with gcc and clang; there is {found}"
    return found


@functools.cache
def arm_compilers() -> tuple[tuple[str, ...], ...]:
    """GCC and clang for Arm, those of them that are here; clang takes the C library of GCC's."""
    gcc = "arm-none-eabi-gcc"
    if shutil.which(gcc) is None:
        return ()
    found: list[tuple[str, ...]] = [(gcc,)]
    if "clang" in strict_compilers():
        library = subprocess.run([gcc, "-print-file-name=libc.a"], capture_output=True, text=True, check=True).stdout
        headers = Path(library.strip()).resolve().parent.parent / "include"
        found.append(("clang", "--target=arm-none-eabi", "-isystem", str(headers)))
    return tuple(found)


def check_warnings(sources: Iterable[Path], *options: str, compilers: Iterable[tuple[str, ...]] | None = None) -> None:
    """No compiler warns of any of `sources`; `compilers` are those of this machine, or other commands."""
    commands = [(name,) for name in strict_compilers()] if compilers is None else [*compilers]
    texts = [path for path in sources if path.suffix == ".c"]
    around = sorted(path for folder in {path.parent for path in texts} for path in folder.glob("*.[ch]"))
    contents = [path.read_bytes() for path in (*texts, *around)]
    digest = hashlib.sha256(b"".join([repr(commands).encode(), *contents])).hexdigest()
    if not texts or digest in _clean:
        return
    given = (f"-I{texts[0].parent}", *options)
    running = [
        subprocess.Popen(
            [*_reader(command, given), *map(str, texts)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        for command in commands
    ]
    said = [process.communicate()[1] for process in running]
    assert [process.returncode for process in running] == [0] * len(running), "".join(said)
    _clean.add(digest)


def _reader(command: tuple[str, ...], options: tuple[str, ...]) -> tuple[str, ...]:
    """The command that reads C with all warnings; without clang's driver, which starts a process for each file."""
    if command[0] != "clang":
        return (*command, *STRICT, "-fsyntax-only", *options)
    folders = tuple(option for option in options if option.startswith("-I"))
    others = tuple(option for option in options if not option.startswith(("-I", "-Wa,")))  # -Wa: of the assembler
    return (*_frontend(command, others), *folders)


@functools.cache
def _frontend(command: tuple[str, ...], options: tuple[str, ...]) -> tuple[str, ...]:
    """What clang's driver starts for a file."""
    asked = [*command, *STRICT, "-fsyntax-only", *options, "-###", "-x", "c", "-"]
    said = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stderr
    words = shlex.split(said.splitlines()[-1])
    assert words[1] == "-cc1", said
    assert words[-1] == "-", said
    of_one = words.index("-main-file-name")
    return tuple(words[:of_one] + words[of_one + 2 : -1])


def check_artifact(directory: Path, artifact: Artifact) -> None:
    """No compiler warns of an artifact's C; one that lacks files is for the runner to refuse."""
    sources = [directory / "src" / name for name in c_files(artifact)]
    if not all(source.is_file() for source in sources):
        return
    check_warnings(sources, f"-Wa,-I,{directory / 'src'}")
    if (glue := directory / "src" / GLUE).is_file():
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "ethosu_driver.h").write_text(_DRIVER)
            check_warnings([glue], f"-I{folder}")


def check_library(tree: Path) -> None:
    """No compiler warns of the C of a Model Library Format tree: of the model, and of the runtime beside it."""
    (tree / "ethosu_driver.h").write_text(_DRIVER)
    runtime = sorted((tree / "runtime").rglob("*.c"))
    folders = {tree, tree / "codegen/host/include", tree / "runtime/include", *(path.parent for path in runtime)}
    includes = [f"-I{folder}" for folder in sorted(folders)]
    check_warnings(sorted((tree / "codegen/host/src").glob("*.c")), *includes)
    check_warnings(runtime, *includes)
