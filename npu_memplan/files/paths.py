"""Reading and writing single files, and working in a folder that a stranger may have made.

Invariant: a regular file is never seen half-written: its bytes go to a temporary sibling that takes its place in one
rename; what a killed writer left goes with the next write. What is no regular file (a pipe, /dev/null) is written to
and never replaced, where it takes the bytes within a few seconds; a link is followed. A file that is read is a regular
one, and no more of it than a limit; what else has its name is not waited for. In the folder of an artifact or of a
project there are regular files and folders alone: a link or a pipe anywhere in it is refused by name before anything
there is read, copied or written, and what is written there takes the place of a file of its own name, never of what
that leads to.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import io
import os
import secrets
import select
import shutil
import stat
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

from ..errors import NpuMemplanError
from ..process.ending import forget_undo, undo_at_end

_READER_S = 5.0  # how long a pipe may take no bytes
_YOUNG_S = 60.0  # a sibling that is younger may be one that its writer has not locked yet


class OutputError(NpuMemplanError):
    """An output cannot be written, or would overwrite something."""


def write_whole(path: Path, content: bytes) -> Path:
    """Write `content` to `path`, all or nothing; returns `path`. `OutputError` says why it cannot be."""
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.exists() and not path.is_file():
            with open_to_write(path) as stream:
                stream.write(content)
        else:
            replace_file(follow_links(path), content)
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        raise cannot_write(path, error) from None
    return path


def check_file_place(path: Path) -> None:
    """`OutputError` where `write_whole` could not write `path` now; for those who work long before they write."""
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        folder = follow_links(path).parent
        os.stat(folder / ".")  # where a part of it is missing or is a file
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except (OSError, ValueError) as error:
        raise cannot_write(path, error) from None


class _Stream(io.RawIOBase):
    """What takes bytes and is no regular file; one that takes none for `_READER_S` is an `OSError`."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._descriptor = self._open(time.monotonic() + _READER_S)

    def _open(self, deadline: float) -> int:
        while True:
            try:
                return os.open(self._path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                if time.monotonic() > deadline:
                    raise self._unread() from None
            time.sleep(0.01)  # the program that reads a pipe may begin beside this one

    def _unread(self) -> OSError:
        return OSError(errno.ENXIO, f"it is no file, and nothing read it within {_READER_S:g} s", str(self._path))

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        rest = memoryview(content)
        while rest:
            if not select.select([], [self._descriptor], [], _READER_S)[1]:
                raise self._unread()
            with contextlib.suppress(BlockingIOError):
                rest = rest[os.write(self._descriptor, rest) :]
        return len(content)

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._descriptor)


def open_to_write(path: Path) -> io.RawIOBase:
    """The file `path`, emptied, or what else takes bytes there and is waited for a few seconds; `OSError`."""
    if path.exists() and not path.is_file():
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return _Stream(path)
    return open(path, "wb", buffering=0)


def follow_links(path: Path) -> Path:
    """The place that `path` leads to, at which there may be nothing; `OSError` where links lead to themselves."""
    place = Path(os.path.realpath(path))
    if place.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return place


def cannot_write(path: Path, error: OSError | ValueError) -> OutputError:
    """The error of an output that cannot be written."""
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return OutputError(f"cannot write {path}: {reason}; choose another place for it")


def replace_file(path: Path, content: bytes) -> Path:
    """Write a file in place of what has its name, a link itself included; `OSError` where it cannot be."""
    prefix = f".{path.name[:200]}."
    for left in path.parent.glob(f"{glob.escape(prefix)}{'[0-9a-f]' * 8}.part"):
        _remove_of_the_dead(left)
    temporary = path.with_name(f"{prefix}{secrets.token_hex(4)}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    undo_at_end(temporary, lambda: temporary.unlink(missing_ok=True))
    try:
        with os.fdopen(os.open(temporary, flags, 0o666), "wb") as file:
            lock_file(file.fileno())
            file.write(content)
            file.flush()
        with contextlib.suppress(FileNotFoundError):  # a file that is there keeps its permissions
            temporary.chmod(stat.S_IMODE(path.stat(follow_symlinks=False).st_mode))
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        forget_undo(temporary)
    return path


def _remove_of_the_dead(left: Path) -> None:
    """Remove a temporary file whose writer has ended: ours, and with no lock on it."""
    with contextlib.suppress(OSError), open_file(left) as file:
        found = os.fstat(file.fileno())
        ours, old = found.st_uid == os.geteuid(), time.time() - found.st_mtime > _YOUNG_S
        if ours and old and lock_file(file.fileno(), wait=False):
            left.unlink()


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
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, f"it is {_file_kind(mode)}, and only files are read; save it as one", str(path))


def open_to_append(path: Path) -> IO[bytes]:
    """A regular file, made where there is none, to read and to add to; `OSError` says what else it is."""
    if path.exists():
        open_file(path).close()
    return open(path, "ab+", buffering=0)


def read_bytes(path: str | Path, limit_bytes: int = MODEL_BYTES) -> bytes:
    """The bytes of a regular file; `OSError` also where there are more than `limit_bytes`."""
    with open_file(path) as file:
        content = file.read(min(limit_bytes, os.fstat(file.fileno()).st_size) + 1)
        if content is None:  # such as /proc/kmsg, which looks like a file
            raise OSError(errno.EAGAIN, "it has nothing to read now", str(path))
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


_PART = 1 << 20  # characters that are encoded at a time


def write_text(path: Path, text: str) -> None:
    """Write a text that may be as large as all constants, a part at a time."""
    with path.open("wb") as file:
        for first in range(0, len(text), _PART):
            file.write(text[first : first + _PART].encode())


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


def check_names(folder: Path, names: Iterable[str]) -> None:
    """`FolderError` where one of `names`, files of ours, is something else in `folder`."""
    for name in names:
        _check_kind(folder / name, folder)


def copy_folder(source: Path, target: Path) -> None:
    """Copy an artifact to a place where nothing is; `FolderError` as of `check_folder`, `OutputError`."""
    check_folder(source)
    try:
        shutil.copytree(source, target, symlinks=True)
    except shutil.Error as error:
        _, _, reason = error.args[0][0]  # of the first file
        raise OutputError(f"cannot write {target}: {reason}; choose another place for it") from None


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
    check_names(folder, files)
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    remove = partial(_remove_made, made, files)
    undo_at_end(remove, remove)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return {name: write_inside(folder, name, content) for name, content in files.items()}
    except OSError as error:
        remove()
        raise cannot_write(folder, error) from None
    except BaseException:
        remove()
        raise
    finally:
        forget_undo(remove)


def _remove_made(made: list[Path], files: Mapping[str, bytes]) -> None:
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
        f"{path} is {_file_kind(mode)}{leads}: {folder} may have files and folders alone, so that nothing outside is "
        "read or written; remove it, or put a file in its place"
    )


def _file_kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "no file")


def lock_file(descriptor: int, wait: bool = True) -> bool:
    """Lock an open file or directory for this process; whether that was done."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # another's, or a file system without locks
        return False
    return True
