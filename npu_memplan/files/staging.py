"""Output directories that are complete or absent, and that replace nothing but what we wrote.

Invariant: the final directory is never seen half-written: files go to a staging folder next to it, and take its place
in one rename that cannot replace anything. With `force` an earlier output is moved aside first, and only if every file
in it is one that we wrote (`manifest`); another output that was put there meanwhile stays. A staging folder whose
writer was killed is cleared away by the next one (`owned_folder`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from ..process.ending import HeldSignals, raise_if_ending
from . import manifest
from .owned_folder import NOTE, lock, owned_folder, sweep
from .whole_file import OutputError

__all__ = ["OutputError", "TakenError", "check_place", "staged_directory"]

_FORCE = {manifest.MODEL: "give --force to replace it, or ", manifest.PROJECT: "", manifest.FIRMWARE: ""}
_NEW, _OLD = "new", "old"  # what is being made, what it replaces
_Identity = tuple[int, int, int]


class TakenError(OutputError):
    """Somebody else put something into the place meanwhile; it was left as it is."""


def check_place(target: Path, force: bool = False, kind: str = manifest.MODEL) -> Path:
    """Where a directory for `target` would go (links are followed); `OutputError` when nothing may be written there."""
    place = Path(os.path.realpath(target))
    sweep(place.parent, *_known_by(place))
    if place.is_symlink():
        raise OutputError(f"{target} is a link that leads nowhere; choose another output directory")
    if place.exists() and not place.is_dir():
        raise OutputError(f"{target} exists and is a file; choose another output directory")
    if place in (Path.cwd(), *Path.cwd().parents) or place.is_mount():
        raise OutputError(
            f"{target} is the current directory, one above it, or a mounted one, which cannot be put in place in one "
            "step; choose a new directory below it"
        )
    if not place.is_dir() or not any(place.iterdir()):
        return place
    listed = manifest.read(place)
    if listed is None or listed[0] != kind:
        raise OutputError(
            f"{target} is not empty and is not {kind} of npu_memplan's (its {manifest.NAME} does not say so): it is "
            "never replaced; choose another directory"
        )
    if not force:
        raise OutputError(f"{target} has {kind}; {_FORCE[kind]}choose another directory")
    _check_ours(place)
    return place


def _check_ours(place: Path, shown: Path | None = None) -> None:
    found = manifest.strangers(place)
    if found:
        names = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
        raise OutputError(
            f"{shown or place} is not replaced: it has files that were added or changed since it was written: {names}; "
            "move them, or choose another directory"
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
    except OSError as error:
        raise _cannot_write(place, error) from None
    with contextlib.ExitStack() as stack:
        try:
            staging = stack.enter_context(owned_folder(place.parent, *_known_by(place)))
            (staging / _NEW).mkdir()
        except OSError as error:
            raise _cannot_write(place, error) from None
        yield staging / _NEW
        raise_if_ending()
        manifest.write(staging / _NEW, kind)
        try:
            with _alone(place.parent), HeldSignals():
                _put(staging, place, before)
        except OSError as error:
            raise _cannot_write(place, error) from None


def _put(staging: Path, place: Path, before: _Identity | None) -> None:
    """Put the new directory in its place, if that is still as it was."""
    taken = TakenError(
        f"{place} was made or changed by something else meanwhile and was left as it is; nothing was written. "
        "Run again, or choose another directory"
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
    """What identifies an output at its place; None where nothing of ours is."""
    try:
        found = os.stat(place / manifest.NAME)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _cannot_write(place: Path, error: OSError) -> OutputError:
    return OutputError(f"cannot write {place}: {error.strerror}; choose another directory")


def _known_by(place: Path) -> tuple[str, str, Callable[[Path], None]]:
    """Name and note of the staging folders for `place`, and what clears one away."""
    return f".{place.name[:200]}.npu_memplan-", f"staging {place.name}", lambda staging: _clear(staging, place)


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
        (staging / NOTE).unlink(missing_ok=True)
        staging.rmdir()


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One writer at a time puts something into `folder`, where the file system has locks."""
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        lock(descriptor)
        yield
    finally:
        os.close(descriptor)
