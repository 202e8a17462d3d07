"""Output files that are complete or as they were.

Invariant: a regular file is never seen half-written: its bytes go to a temporary sibling that takes its place in one
rename; what a killed writer left goes with the next write. What is no regular file (a pipe, /dev/null) is written to
and never replaced; a link is followed.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import secrets
import stat
import time
from pathlib import Path

from ..errors import NpuMemplanError
from ..process.ending import raise_if_ending
from .owned_folder import lock

_YOUNG_S = 60.0  # a sibling that is younger may be one that its writer has not locked yet


class OutputError(NpuMemplanError):
    """An output cannot be written, or would overwrite something."""


def write_whole(path: Path, content: bytes) -> Path:
    """Write `content` to `path`, all or nothing; returns `path`. `OutputError` says why it cannot be."""
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.exists() and not path.is_file():
            path.write_bytes(content)
        else:
            replace_file(Path(os.path.realpath(path)), content)
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        raise cannot_write(path, error) from None
    return path


def cannot_write(path: Path, error: OSError | ValueError) -> OutputError:
    """The error that says so."""
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return OutputError(f"cannot write {path}: {reason}; choose another place for it")


def replace_file(path: Path, content: bytes) -> Path:
    """Write a file in place of what has its name, a link itself included; `OSError` where it cannot be."""
    prefix = f".{path.name[:200]}."
    for left in path.parent.glob(f"{glob.escape(prefix)}{'[0-9a-f]' * 8}.part"):
        _remove_of_the_dead(left)
    temporary = path.with_name(f"{prefix}{secrets.token_hex(4)}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    try:
        with os.fdopen(os.open(temporary, flags, 0o666), "wb") as file:
            lock(file.fileno())
            file.write(content)
            file.flush()
        raise_if_ending()
        with contextlib.suppress(FileNotFoundError):  # a file that is there keeps its permissions
            temporary.chmod(stat.S_IMODE(path.stat(follow_symlinks=False).st_mode))
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


def _remove_of_the_dead(left: Path) -> None:
    """Remove a temporary file whose writer has ended: ours, and with no lock on it."""
    with contextlib.suppress(OSError), open(left, "rb") as file:
        found = os.fstat(file.fileno())
        ours = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
        if ours and time.time() - found.st_mtime > _YOUNG_S and lock(file.fileno(), wait=False):
            left.unlink()
