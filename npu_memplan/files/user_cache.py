"""The folder of this user's caches, and a store of bytes in it that is bounded in size.

Invariant: nothing is read that another user can have written, nor what is not, byte for byte, what was put there under
that very name: such an entry is removed. Entries appear whole or not at all, so processes may share a store; the
entries that were not used for the longest time go first. Where the folder cannot be used, nothing is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

_ENTRY, _PART = ".entry", ".part"
_OLD_S = 3600.0  # a part that is older has no writer any more


def cache_folder() -> Path:
    """Where caches are kept: $NPU_MEMPLAN_CACHE, else $XDG_CACHE_HOME/npu_memplan, else ~/.cache/npu_memplan."""
    if named := os.environ.get("NPU_MEMPLAN_CACHE"):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "npu_memplan"


def is_ours(state: os.stat_result) -> bool:
    """Whether only this user can have written it."""
    owner = os.geteuid() if hasattr(os, "geteuid") else state.st_uid
    return state.st_uid == owner and not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@dataclass(frozen=True, slots=True)
class ContentStore:
    """Bytes by key in `folder`, in at most `max_bytes` of files; a key is a word of letters and digits."""

    folder: Path
    max_bytes: int

    def read(self, key: str) -> bytes | None:
        """What was put there; None where that is not known or not whole."""
        path = self.folder / f"{key}{_ENTRY}"
        with contextlib.suppress(OSError):
            if not is_ours(os.stat(self.folder)):
                return None
            state = os.lstat(path)
            if stat.S_ISREG(state.st_mode) and is_ours(state):
                digest, content = _split(path.read_bytes())
                if digest == _digest(key, content):
                    os.utime(path)  # it was used
                    return content
            path.unlink()
        return None

    def write(self, key: str, content: bytes) -> None:
        """Keep `content`, where that can be done."""
        whole = _digest(key, content) + content
        if len(whole) > self.max_bytes:
            return
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not is_ours(os.stat(self.folder)):
                return
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


def _split(whole: bytes) -> tuple[bytes, bytes]:
    length = hashlib.sha256().digest_size
    return whole[:length], whole[length:]


def _digest(key: str, content: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + content).digest()
