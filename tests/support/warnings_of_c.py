"""C that tests build has no warnings, from no compiler that is here.

Invariant: CI has GCC and clang, and both look with the warnings that users turn on; elsewhere those that are there.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from npu_memplan.artifact import Artifact
from npu_memplan.codegen.interface import c_files

STRICT = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
_clean: set[str] = set()  # digests of what has been looked at: many tests build the same


@functools.cache
def strict_compilers() -> tuple[str, ...]:
    """GCC and clang, those of them that are here."""
    found = tuple(name for name in ("gcc", "clang") if shutil.which(name))
    assert len(found) == 2 or not os.environ.get("CI"), f"CI compiles with gcc and clang; there is {found}"
    return found


def check_warnings(sources: Iterable[Path], *options: str) -> None:
    """No compiler warns of any of `sources`."""
    texts = [path for path in sources if path.suffix == ".c"]
    around = sorted(path for folder in {path.parent for path in texts} for path in folder.glob("*.[ch]"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in (*texts, *around))).hexdigest()
    if not texts or digest in _clean:
        return
    running = [
        subprocess.Popen(
            [name, *STRICT, "-fsyntax-only", f"-I{texts[0].parent}", *options, *map(str, texts)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in strict_compilers()
    ]
    said = [process.communicate()[1] for process in running]
    assert [process.returncode for process in running] == [0] * len(running), "".join(said)
    _clean.add(digest)


def check_artifact(directory: Path, artifact: Artifact) -> None:
    """No compiler warns of an artifact's C; one that lacks files is for the runner to refuse."""
    sources = [directory / "src" / name for name in c_files(artifact)]
    if all(source.is_file() for source in sources):
        check_warnings(sources, f"-Wa,-I,{directory / 'src'}")
