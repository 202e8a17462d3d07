"""Output files that are complete or as they were.

Invariant: a regular file is never seen half-written: its bytes go to a temporary sibling that takes its place in one
rename. What is no regular file (a pipe, /dev/null) is written to and never replaced; a link is followed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path

from ..errors import NpuMemplanError


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
            _replace(Path(os.path.realpath(path)), content)
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise OutputError(f"cannot write {path}: {reason}; choose another place for it") from None
    return path


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}.part")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        with contextlib.suppress(FileNotFoundError):  # a file that is there keeps its permissions
            temporary.chmod(stat.S_IMODE(path.stat().st_mode))
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
