"""Which files are read, and what is done in a folder that a stranger may have made.

Invariant: a file that is read is a regular one, and no more of it than a limit; what else has its name (a pipe, a
device) is not waited for. In the folder of an artifact or of a project there are regular files and folders alone: a
link or a pipe anywhere in it is refused by name before anything there is read, copied or written, and what is written
there takes the place of a file of its own name, never of what that leads to.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from ..errors import NpuMemplanError
from .whole_file import cannot_write, replace_file

MODEL_BYTES = (2 << 30) - 1  # of a model: offsets in a flatbuffer have 31 bits
_MORE_BYTES = 1 << 20
TEXT_BYTES = 1 << 30  # of a document, such as plan.json
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a link",
}


class FolderError(NpuMemplanError):
    """A folder has something that is neither a file nor a folder."""


def open_file(path: str | Path) -> IO[bytes]:
    """A regular file to read from; `OSError` says what else it is."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, f"it is {_kind(mode)}, and only files are read; save it as one", str(path))


def read_bytes(path: str | Path, limit_bytes: int = MODEL_BYTES) -> bytes:
    """The bytes of a regular file; `OSError` also where there are more than `limit_bytes`."""
    with open_file(path) as file:
        content = file.read(min(limit_bytes, os.fstat(file.fileno()).st_size) + 1)
        if len(content) <= limit_bytes:
            content += file.read(_MORE_BYTES)  # the size of a file in /proc is 0
    if len(content) > limit_bytes:
        raise OSError(errno.EFBIG, f"it has more than {limit_bytes:,} bytes", str(path))
    return content


def read_text(path: str | Path, limit_bytes: int = TEXT_BYTES, encoding: str = "utf-8", errors: str = "strict") -> str:
    """The text of a regular file, its ends of lines as `open` makes them."""
    text = read_bytes(path, limit_bytes).decode(encoding, errors)
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def read_c(path: str | Path) -> str:
    """The text of generated C; bytes that are no UTF-8 are kept for `encode_c`."""
    return read_text(path, errors="surrogateescape")


def encode_c(text: str) -> bytes:
    """The bytes of what `read_c` returned."""
    return text.encode("utf-8", "surrogateescape")


def check_folder(folder: Path) -> None:
    """`FolderError` names the first thing in `folder`, at any depth, that is neither a file nor a folder, or whose name
    a list of files could not have."""
    for root, folders, files in os.walk(folder):
        for name in sorted((*folders, *files)):
            if not name.isprintable():
                raise FolderError(f"{Path(root, name)} has a name that is no text; rename it, or remove it")
            _check_kind(Path(root, name), folder)


def copy_folder(source: Path, target: Path) -> None:
    """Copy an artifact to a place where nothing is; `FolderError` as of `check_folder`."""
    check_folder(source)
    shutil.copytree(source, target, symlinks=True)


def write_inside(folder: Path, name: str, content: bytes) -> Path:
    """Write a file of `folder`, all or nothing; `FolderError` where something else has its name."""
    path = folder / name
    _check_kind(path, folder)
    try:
        return replace_file(path, content)
    except OSError as error:
        raise cannot_write(path, error) from None


def write_files(folder: Path, files: Mapping[str, bytes]) -> dict[str, Path]:
    """Write files by name into `folder`, which is made where there is none; on an error it is not left behind."""
    for name in files:
        _check_kind(folder / name, folder)
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return {name: write_inside(folder, name, content) for name, content in files.items()}
    except OSError as error:
        _remove(made, files)
        raise cannot_write(folder, error) from None
    except BaseException:
        _remove(made, files)
        raise


def _remove(made: list[Path], files: Mapping[str, bytes]) -> None:
    """Remove folders that were made for `files`, the innermost first."""
    for number, path in enumerate(made):
        for name in files if number == 0 else ():
            (path / name).unlink(missing_ok=True)
        if path.is_dir():
            path.rmdir()


def _check_kind(path: Path, folder: Path) -> None:
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise FolderError(f"cannot read {path}: {error.strerror}") from None
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return
    leads = f" to {os.readlink(path)}" if stat.S_ISLNK(mode) else ""
    raise FolderError(
        f"{path} is {_kind(mode)}{leads}: {folder} may have files and folders alone, so that nothing outside is "
        "read or written; remove it, or put a file in its place"
    )


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "no file")
