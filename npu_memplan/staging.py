"""Output directories that are complete or absent.

Invariant: the final directory is never seen half-written: files go to a temporary sibling
that takes its place in one rename when everything has succeeded.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .artifact import FILE_NAME
from .errors import NpuMemplanError


class OutputError(NpuMemplanError):
    """The output directory cannot be written, or would overwrite something."""


@contextmanager
def staged_directory(target: Path, force: bool = False, mark: str = FILE_NAME) -> Iterator[Path]:
    """Yield an empty temporary sibling of `target`; on success it becomes `target`.

    An existing non-empty `target` is an `OutputError` unless `force`, and is then replaced; but only when it has a file
    `mark`, as compiled models have plan.json: nobody's home directory is ever replaced.
    """
    target = target.absolute()
    if target.exists() and not target.is_dir():
        raise OutputError(f"{target} exists and is a file; choose another output directory with -o")
    if target.is_dir() and any(target.iterdir()):
        if not (target / mark).is_file():
            raise OutputError(
                f"{target} is not empty and has no {mark}: nothing was compiled into it, and it is never replaced; "
                "choose another directory with -o"
            )
        if not force:
            raise OutputError(f"{target} has a compiled model; give --force to replace it, or another one with -o")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise OutputError(f"cannot write beside {target}: {error.strerror}; choose another directory with -o") from None
    try:
        staging.chmod(0o755)
        yield staging
        try:
            if target.exists():
                shutil.rmtree(target)
            staging.rename(target)
        except OSError as error:
            raise OutputError(f"cannot write {target}: {error.strerror}; choose another directory with -o") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
