"""The list of files that we wrote into a directory, so that nothing else in it is ever removed.

Invariant: a file is ours only if it is listed and still has the bytes that we gave it; a directory is ours only if one
of our files is in it. The list is a text that `sha256sum -c` reads, next to the files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from .paths import open_file, read_text, write_inside

NAME = "manifest.sha256"
MODEL, FIRMWARE, PROJECT = "a compiled model", "built firmware", "a firmware project"  # what a directory can be
_TITLE = "# written by npu_memplan: "
_PART_BYTES = 1 << 20
_BUILDS = "firmware"  # folder of an artifact's builds, which have lists of their own


def write(folder: Path, kind: str) -> None:
    """List every file that is in `folder` now; `kind` says what the folder is."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    _save(folder, kind, {_name(folder, path): _digest(path) for path in files})


def add(folder: Path, paths: Iterable[Path]) -> None:
    """List `paths` too, if `folder` has a list and they are in it."""
    listed = read(folder)
    if listed is not None:
        kind, digests = listed
        inside = [path for path in paths if path.resolve().is_relative_to(folder.resolve())]
        _save(folder, kind, {**digests, **{_name(folder.resolve(), path.resolve()): _digest(path) for path in inside}})


def read(folder: Path) -> tuple[str, dict[str, str]] | None:
    """What `folder` is, and the digest of each of our files in it; None when the list is absent or not ours."""
    try:
        title, *lines = read_text(folder / NAME).splitlines()
    except (OSError, ValueError):  # not text, or empty
        return None
    rows = [line.partition("  ") for line in lines]
    if not title.startswith(_TITLE) or not all(len(digest) == 64 and _is_inside(name) for digest, _, name in rows):
        return None
    return title.removeprefix(_TITLE), {name: digest for digest, _, name in rows}


def strangers(folder: Path) -> list[str]:
    """What is in `folder` and not, byte for byte, what we wrote; names relative to it, in order."""
    ours = _ours(folder)
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
    ours = _ours(folder)
    for path in ours:
        if not path.is_symlink() and path.is_file() and _is_ours(path, ours):
            path.unlink()
    homes = {parent for path in ours for parent in path.parents if parent.is_relative_to(folder)}
    for home in sorted({folder, *homes}, key=lambda path: len(path.parts), reverse=True):
        if home.is_dir():
            home.rmdir()


def _ours(folder: Path) -> dict[Path, str]:
    """Path -> digest of our files in `folder` and in the builds of firmware below it; lists have none."""
    ours: dict[Path, str] = {}
    for home in (folder, *sorted((folder / _BUILDS).glob("*/"))):
        listed = read(home)
        if listed is not None and (home == folder or listed[0] == FIRMWARE):
            ours |= {home / NAME: "", **{home / name: digest for name, digest in listed[1].items()}}
    return ours


def _is_ours(path: Path, ours: dict[Path, str]) -> bool:
    digest = ours.get(path)
    return digest is not None and digest in ("", _digest(path))


def _save(folder: Path, kind: str, digests: dict[str, str]) -> None:
    lines = [f"{_TITLE}{kind}", *(f"{digests[name]}  {name}" for name in sorted(digests) if name != NAME)]
    write_inside(folder, NAME, ("\n".join(lines) + "\n").encode())


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts


def _name(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix()


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with open_file(path) as file:
        while part := file.read(_PART_BYTES):
            found.update(part)
    return found.hexdigest()
