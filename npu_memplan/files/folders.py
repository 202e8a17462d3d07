"""Folders: those of living processes, staged output, lists of the files we wrote, and the user's cache.

Invariant: an output directory is never seen half-written: files go to a staging folder next to it, and take its place
in one rename that cannot replace anything. With `force` an earlier output is moved aside first, and only if every file
in it is one that we wrote: it is listed (a text that `sha256sum -c` reads) and still has the bytes that we gave it. A
folder of a process is swept only if this user made it, its name and its note are ours, and no process holds the note's
lock, which ends with its owner however that ends; where a file system has no locks, nothing is swept. Nothing is read
of a cache that another user can have written, nor what is not, byte for byte, what was put there under that very name:
such an entry is removed. Entries appear whole or not at all, so processes may share a store; those that were not used
for the longest time go first, and where the folder cannot be used, nothing is kept.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ..process.ending import HeldSignals, forget_undo, undo_at_end
from .paths import OutputError, lock_file, open_file, read_bytes, read_text, write_inside

NOTE = "owner"  # locked by its writer as long as that lives
_NOTE_BYTES = 4096  # more than one has


@contextlib.contextmanager
def scratch_folder(purpose: str, parent: Path | None = None) -> Iterator[Path]:
    """A temporary folder, in `parent` or where temporary files go; gone on leaving."""
    parent, prefix = parent or Path(tempfile.gettempdir()), f"npu_memplan-{purpose}-"
    sweep(parent, prefix, purpose, _remove_folder)
    with owned_folder(parent, prefix, purpose, _remove_folder) as folder:
        yield folder


@contextlib.contextmanager
def owned_folder(parent: Path, prefix: str, about: str, clear: Callable[[Path], None]) -> Iterator[Path]:
    """A new folder in `parent` with a locked note; `clear` removes it on leaving."""
    with HeldSignals():
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        undo_at_end(folder, lambda: clear(folder))
    try:
        with open(folder / NOTE, "xb", buffering=0) as note:
            lock_file(note.fileno())
            note.write(_owner_note(about))  # last: a folder with an empty note has no owner
            yield folder
    finally:
        with HeldSignals():
            clear(folder)
            forget_undo(folder)


def sweep(parent: Path, prefix: str, about: str, clear: Callable[[Path], None]) -> None:
    """Call `clear` for each folder that a dead owner has left in `parent`."""
    for stale in parent.glob(f"{glob.escape(prefix)}*"):
        with contextlib.suppress(OSError), open_file(stale / NOTE) as note:
            ours = note.read(_NOTE_BYTES) == _owner_note(about) and os.fstat(note.fileno()).st_uid == os.geteuid()
            if ours and lock_file(note.fileno(), wait=False):
                clear(stale)


def _owner_note(about: str) -> bytes:
    return f"a folder of npu_memplan for {about}\n".encode("utf-8", "surrogateescape")


def _remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


NAME = "manifest.sha256"
MODEL, FIRMWARE, PROJECT = "a compiled model", "built firmware", "a firmware project"  # what a directory can be
_TITLE = "# written by npu_memplan: "
_PART_BYTES = 1 << 20
_BUILDS = "firmware"  # folder of an artifact's builds, which have lists of their own


def write(folder: Path, kind: str) -> None:
    """List every file that is in `folder` now; `kind` says what the folder is."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    _save_list(folder, kind, {_relative_name(folder, path): _file_digest(path) for path in files})


def add(folder: Path, paths: Iterable[Path]) -> None:
    """List `paths` too, if `folder` has a list and they are in it."""
    listed = read(folder)
    if listed is not None:
        kind, digests = listed
        inside = [path for path in paths if path.resolve().is_relative_to(folder.resolve())]
        _save_list(
            folder,
            kind,
            {**digests, **{_relative_name(folder.resolve(), path.resolve()): _file_digest(path) for path in inside}},
        )


def read(folder: Path) -> tuple[str, dict[str, str]] | None:
    """The kind of `folder`, and the digest of each of our files in it; None when the list is absent or not ours."""
    try:
        title, *lines = read_text(folder / NAME).splitlines()
    except (OSError, ValueError):  # not text, or empty
        return None
    rows = [line.partition("  ") for line in lines]
    if not title.startswith(_TITLE) or not all(len(digest) == 64 and _is_inside(name) for digest, _, name in rows):
        return None
    return title.removeprefix(_TITLE), {name: digest for digest, _, name in rows}


def changed_files(folder: Path) -> list[str]:
    """The files in `folder` that we wrote and that have other bytes now, in order."""
    _, digests = read(folder) or ("", {})
    return sorted(n for n, digest in digests.items() if (folder / n).is_file() and _file_digest(folder / n) != digest)


def foreign_files(folder: Path) -> list[str]:
    """The files in `folder` that are not, byte for byte, what we wrote; names relative to it, in order."""
    ours = _own_files(folder)
    homes = {parent for path in ours for parent in path.relative_to(folder).parents}
    found = []
    for root, directories, files in os.walk(folder):
        for name in (*directories, *files):
            path = Path(root, name)
            relative = path.relative_to(folder)
            if path.is_symlink() or (name in files and not _is_ours(path, ours)):
                found.append(str(relative))
            elif name in directories and relative not in homes:
                found.append(f"{relative}/")
    return sorted(found)


def remove(folder: Path) -> None:
    """Remove our files and then what is empty; `OSError` when something else is in `folder`."""
    ours = _own_files(folder)
    for path in ours:
        inside = path.parent.resolve() == folder.resolve() / path.parent.relative_to(folder)  # through no link
        if inside and not path.is_symlink() and path.is_file() and _is_ours(path, ours):
            path.unlink()
    homes = {parent for path in ours for parent in path.parents if parent.is_relative_to(folder)}
    for home in sorted({folder, *homes}, key=lambda path: len(path.parts), reverse=True):
        if home.is_dir():
            home.rmdir()


def _own_files(folder: Path) -> dict[Path, str]:
    """Path -> digest of our files in `folder` and in the builds of firmware below it; lists have none."""
    ours: dict[Path, str] = {}
    for home in (folder, *sorted((folder / _BUILDS).glob("*/"))):
        listed = read(home)
        if listed is not None and (home == folder or listed[0] == FIRMWARE):
            ours |= {home / NAME: "", **{home / name: digest for name, digest in listed[1].items()}}
    return ours


def _is_ours(path: Path, ours: dict[Path, str]) -> bool:
    digest = ours.get(path)
    return digest is not None and digest in ("", _file_digest(path))


def _save_list(folder: Path, kind: str, digests: dict[str, str]) -> None:
    lines = [f"{_TITLE}{kind}", *(f"{digests[name]}  {name}" for name in sorted(digests) if name != NAME)]
    write_inside(folder, NAME, ("\n".join(lines) + "\n").encode())


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts


def _relative_name(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix()


def _file_digest(path: Path) -> str:
    found = hashlib.sha256()
    with open_file(path) as file:
        while part := file.read(_PART_BYTES):
            found.update(part)
    return found.hexdigest()


_FORCE = {MODEL: "give --force to replace it, or ", PROJECT: "", FIRMWARE: ""}
_NEW, _OLD = "new", "old"  # what is being made, what it replaces
_Identity = tuple[int, int, int]


class TakenError(OutputError):
    """Somebody else put something into the place meanwhile; it was left as it is."""


def check_place(target: Path, force: bool = False, kind: str = MODEL) -> Path:
    """The place of a directory for `target` (links are followed); `OutputError` when nothing may be written there."""
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
    listed = read(place)
    if listed is None or listed[0] != kind:
        raise OutputError(
            f"{target} is not empty and is not {kind} of npu_memplan's (its {NAME} does not say so): it is "
            "never replaced; choose another directory"
        )
    if not force:
        raise OutputError(f"{target} has {kind}; {_FORCE[kind]}choose another directory")
    _check_ours(place)
    return place


def _check_ours(place: Path, shown: Path | None = None) -> None:
    found = foreign_files(place)
    if found:
        names = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
        raise OutputError(
            f"{shown or place} is not replaced: it has files that were added or changed since it was written: {names}; "
            "move them, or choose another directory"
        )


@contextlib.contextmanager
def staged_directory(target: Path, force: bool = False, kind: str = MODEL) -> Iterator[Path]:
    """Yield an empty staging folder; on success it becomes `target`, with a list of its files.

    A non-empty `target` is an `OutputError` unless `force`, and is then replaced; but only when it is `kind` of ours
    and nothing in it was added or changed. `TakenError` when the place is not as it was, and nothing was written.
    """
    place = check_place(target, force, kind)
    before = _output_identity(place)
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
        write(staging / _NEW, kind)
        try:
            with _lock_folder(place.parent), HeldSignals():
                _put_in_place(staging, place, before)
        except OSError as error:
            raise _cannot_write(place, error) from None


def _put_in_place(staging: Path, place: Path, before: _Identity | None) -> None:
    """Put the new directory in its place, if that is still as it was."""
    taken = TakenError(
        f"{place} was made or changed by something else meanwhile and was left as it is; nothing was written. "
        "Run again, or choose another directory"
    )
    if _output_identity(place) != before:
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


def _output_identity(place: Path) -> _Identity | None:
    """The identity of an output at its place; None where nothing of ours is."""
    try:
        found = os.stat(place / NAME)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _cannot_write(place: Path, error: OSError) -> OutputError:
    file = next((folder for folder in (place, *place.parents) if folder.is_file()), None)
    reason = error.strerror if file is None else f"{file} is a file"
    return OutputError(f"cannot write {place}: {reason}; choose another directory")


def _known_by(place: Path) -> tuple[str, str, Callable[[Path], None]]:
    """Name and note of the staging folders for `place`, and what clears one away."""
    return f".{place.name[:200]}.npu_memplan-", f"staging {place.name}", lambda staging: _clear_staging(staging, place)


def _clear_staging(staging: Path, place: Path) -> None:
    """Remove a staging folder; what it moved aside goes back if the place is free (its writer ended between two
    renames), and else only if it is ours."""
    shutil.rmtree(staging / _NEW, ignore_errors=True)
    with contextlib.suppress(OSError):
        if (staging / _OLD).exists():
            if place.exists():
                remove(staging / _OLD)
            else:
                (staging / _OLD).rename(place)
    with contextlib.suppress(OSError):
        (staging / NOTE).unlink(missing_ok=True)
        staging.rmdir()


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """One writer at a time puts something into `folder`, where the file system has locks."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        lock_file(descriptor)
        yield
    finally:
        os.close(descriptor)


_ENTRY, _PART = ".entry", ".part"
_OLD_S = 3600.0  # a part that is older has no writer any more


def cache_folder() -> Path:
    """The folder of caches: $NPU_MEMPLAN_CACHE, else $XDG_CACHE_HOME/npu_memplan, else ~/.cache/npu_memplan."""
    if named := os.environ.get("NPU_MEMPLAN_CACHE"):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "npu_memplan"


def is_ours(state: os.stat_result) -> bool:
    """Whether only this user can have written it."""
    return state.st_uid == os.geteuid() and not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@dataclass(frozen=True, slots=True)
class ContentStore:
    """Bytes by key in `folder`, in at most `max_bytes` of files; a key is a word of letters and digits."""

    folder: Path
    max_bytes: int

    def read(self, key: str) -> bytes | None:
        """The bytes that were put there; None where that is not known or not whole."""
        path = self.folder / f"{key}{_ENTRY}"
        with contextlib.suppress(OSError):
            if not is_ours(os.stat(self.folder)):
                return None
            state = os.lstat(path)
            if stat.S_ISREG(state.st_mode) and is_ours(state):
                digest, content = _split_digest(read_bytes(path))
                if digest == _entry_digest(key, content):
                    os.utime(path)  # it was used
                    return content
            path.unlink()
        return None

    def write(self, key: str, content: bytes) -> None:
        """Keep `content`, where that can be done."""
        whole = _entry_digest(key, content) + content
        if len(whole) > self.max_bytes:
            return
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not is_ours(os.stat(self.folder)):
                return
            with HeldSignals():
                descriptor, name = tempfile.mkstemp(suffix=_PART, dir=self.folder)
                try:
                    with os.fdopen(descriptor, "wb") as file:
                        file.write(whole)
                    os.replace(name, self.folder / f"{key}{_ENTRY}")
                except BaseException:
                    os.unlink(name)
                    raise
            self._remove_oldest()

    def _remove_oldest(self) -> None:
        """Keep to `max_bytes`; what a killed writer left goes too."""
        entries = []
        for path in self.folder.iterdir():
            with contextlib.suppress(OSError):
                state = os.lstat(path)
                if path.suffix == _ENTRY:
                    entries.append((state.st_mtime_ns, path.name, state.st_size))
                elif path.suffix == _PART and time.time() - state.st_mtime > _OLD_S:
                    path.unlink()
        total = sum(size for _, _, size in entries)
        for _, name, size in sorted(entries):
            if total <= self.max_bytes:
                break
            with contextlib.suppress(OSError):
                (self.folder / name).unlink()
            total -= size


def _split_digest(whole: bytes) -> tuple[bytes, bytes]:
    length = hashlib.sha256().digest_size
    return whole[:length], whole[length:]


def _entry_digest(key: str, content: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + content).digest()
