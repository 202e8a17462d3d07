"""Folders that belong to a living process, so that what a killed one has left is known and cleared away.

Invariant: a folder is swept only if this user made it, its name and its note are ours, and no process holds the note's
lock, which ends with its owner however that ends. Where a file system has no locks, nothing is swept.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from ..process.ending import HeldSignals

if sys.platform != "win32":
    import fcntl

NOTE = "owner"  # locked by its writer as long as that lives


@contextlib.contextmanager
def scratch_folder(purpose: str, parent: Path | None = None) -> Iterator[Path]:
    """A temporary folder, in `parent` or where temporary files go; gone on leaving."""
    parent, prefix = parent or Path(tempfile.gettempdir()), f"npu_memplan-{purpose}-"
    sweep(parent, prefix, purpose, _remove)
    with owned_folder(parent, prefix, purpose, _remove) as folder:
        yield folder


@contextlib.contextmanager
def owned_folder(parent: Path, prefix: str, about: str, clear: Callable[[Path], None]) -> Iterator[Path]:
    """A new folder in `parent` with a locked note; `clear` removes it on leaving."""
    folder: Path | None = None
    try:
        with HeldSignals():
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        with open(folder / NOTE, "xb", buffering=0) as note:
            lock(note.fileno())
            note.write(_note(about))  # last: a folder with an empty note has no owner
            yield folder
    finally:
        if folder is not None:
            clear(folder)


def sweep(parent: Path, prefix: str, about: str, clear: Callable[[Path], None]) -> None:
    """Call `clear` for each folder that a dead owner has left in `parent`."""
    for stale in parent.glob(f"{glob.escape(prefix)}*"):
        with contextlib.suppress(OSError), open(stale / NOTE, "rb") as note:
            ours = note.read() == _note(about) and os.fstat(note.fileno()).st_uid == _user()
            if ours and lock(note.fileno(), wait=False):
                clear(stale)


def lock(descriptor: int, wait: bool = True) -> bool:
    """Lock an open file or directory for this process; whether that was done."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # another's, or a file system without locks
        return False
    return True


def _note(about: str) -> bytes:
    return f"a folder of npu_memplan for {about}\n".encode("utf-8", "surrogateescape")


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
