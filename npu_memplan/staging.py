"""Output directories that are complete or absent, and that replace nothing but what we wrote.

Invariant: the final directory is never seen half-written: files go to a staging folder beside it, and take its place
in one rename that cannot replace anything. With `force` an earlier output is moved aside first, and only if every file
in it is one that we wrote (`manifest`); whoever else took the place meanwhile keeps it. A staging folder whose writer
was killed is cleared away by the next one: it is known by its name, its note and the lock that died with its writer.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from . import manifest
from .whole_file import OutputError

if sys.platform != "win32":
    import fcntl

__all__ = ["OutputError", "TakenError", "check_place", "staged_directory"]

_NOTE = "owner"  # locked by the writer as long as it lives
_NEW, _OLD = "new", "old"  # what is being made, what it replaces
_Identity = tuple[int, int, int]


class TakenError(OutputError):
    """Somebody else put something into the place meanwhile; it was left as it is."""


def check_place(target: Path, force: bool = False, kind: str = manifest.MODEL) -> Path:
    """Where a directory for `target` would go (links are followed); `OutputError` when nothing may be written there."""
    place = Path(os.path.realpath(target))
    _sweep(place)
    if place.is_symlink():
        raise OutputError(f"{target} is a link that leads nowhere; choose another output directory with -o")
    if place.exists() and not place.is_dir():
        raise OutputError(f"{target} exists and is a file; choose another output directory with -o")
    if place in (Path.cwd(), *Path.cwd().parents) or place.is_mount():
        raise OutputError(
            f"{target} is the current directory, one above it, or a mounted one, which cannot be put in place in one "
            "step; choose a new directory below it with -o"
        )
    if not place.is_dir() or not any(place.iterdir()):
        return place
    listed = manifest.read(place)
    if listed is None or listed[0] != kind:
        raise OutputError(
            f"{target} is not empty and is not {kind} of npu_memplan's (its {manifest.NAME} does not say so): it is "
            "never replaced; choose another directory with -o"
        )
    if not force:
        raise OutputError(f"{target} has {kind}; give --force to replace it, or another one with -o")
    _check_ours(place)
    return place


def _check_ours(place: Path, shown: Path | None = None) -> None:
    found = manifest.strangers(place)
    if found:
        names = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
        raise OutputError(
            f"{shown or place} is not replaced: it has files that were added or changed since it was written: {names}; "
            "move them, or choose another directory with -o"
        )


@contextlib.contextmanager
def staged_directory(target: Path, force: bool = False, kind: str = manifest.MODEL) -> Iterator[Path]:
    """Yield an empty staging folder; on success it becomes `target`, with a list of its files.

    A non-empty `target` is an `OutputError` unless `force`, and is then replaced; but only when it is `kind` of ours
    and nothing in it was added or changed. `TakenError` when the place is not as it was, and nothing was written.
    """
    place = check_place(target, force, kind)
    before = _identity(place)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=_prefix(place), dir=place.parent))
    except OSError as error:
        raise OutputError(f"cannot write beside {place}: {error.strerror}; choose another directory with -o") from None
    with contextlib.ExitStack() as stack:
        stack.callback(_clear, staging, place)
        stack.enter_context(_locked_note(staging, place))
        (staging / _NEW).mkdir()
        yield staging / _NEW
        manifest.write(staging / _NEW, kind)
        try:
            with _alone(place.parent):
                _put(staging, place, before)
        except OSError as error:
            raise OutputError(f"cannot write {place}: {error.strerror}; choose another directory with -o") from None


def _put(staging: Path, place: Path, before: _Identity | None) -> None:
    """Put the new directory in its place, if that is still as it was."""
    taken = TakenError(
        f"{place} was made or changed by something else meanwhile and was left as it is; nothing was written. "
        "Run again with --force, or choose another directory with -o"
    )
    if _identity(place) != before:
        raise taken
    if before is not None:
        place.rename(staging / _OLD)
        try:
            _check_ours(staging / _OLD, place)
        except OutputError:
            (staging / _OLD).rename(place)
            raise
    try:
        (staging / _NEW).rename(place)  # takes the place of nothing, or of an empty directory
    except (FileExistsError, NotADirectoryError):
        raise taken from None
    except OSError as error:
        if place.exists() and any(place.iterdir()):  # ENOTEMPTY has no class of its own
            raise taken from error
        raise


def _identity(place: Path) -> _Identity | None:
    """What tells one output from another at the same place; None where nothing of ours is."""
    try:
        found = os.stat(place / manifest.NAME)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _clear(staging: Path, place: Path) -> None:
    """Remove a staging folder; what it moved aside goes back if the place is free (its writer ended between two
    renames), and else only if it is ours."""
    shutil.rmtree(staging / _NEW, ignore_errors=True)
    with contextlib.suppress(OSError):
        if (staging / _OLD).exists():
            if place.exists():
                manifest.remove(staging / _OLD)
            else:
                (staging / _OLD).rename(place)
    with contextlib.suppress(OSError):
        (staging / _NOTE).unlink(missing_ok=True)
        staging.rmdir()


def _prefix(place: Path) -> str:
    return f".{place.name[:200]}.npu_memplan-"


def _note(place: Path) -> bytes:
    return f"a staging folder of npu_memplan for {place.name}\n".encode("utf-8", "surrogateescape")


@contextlib.contextmanager
def _locked_note(staging: Path, place: Path) -> Iterator[None]:
    """The note that makes `staging` known as ours; its lock ends with this process, however that ends."""
    with open(staging / _NOTE, "xb", buffering=0) as note:
        _lock(note.fileno())
        note.write(_note(place))  # last: a folder with an empty note is nobody's
        yield


def _sweep(place: Path) -> None:
    """Clear away what writers that are dead have left beside `place`."""
    for stale in place.parent.glob(f"{glob.escape(_prefix(place))}*"):
        with contextlib.suppress(OSError), open(stale / _NOTE, "rb") as note:
            if note.read() != _note(place) or not {p.name for p in stale.iterdir()} <= {_NOTE, _NEW, _OLD}:
                continue
            if _lock(note.fileno(), wait=False):
                _clear(stale, place)


def _lock(descriptor: int, wait: bool = True) -> bool:
    """Lock an open file or directory for this process; whether that was done."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # another's, or a file system without locks
        return False
    return True


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One writer at a time puts something into `folder`, where the file system has locks."""
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _lock(descriptor)
        yield
    finally:
        os.close(descriptor)
