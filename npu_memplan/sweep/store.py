"""Results on disk: a folder of files with one JSON line each, which many may write and read at once.

Invariant: a writer has a file of its own that no other process opens for writing, and adds a line by one `write`. So no
locks are needed, on network file systems either; a writer that is killed leaves half a line at most, at the end of its
file, and half a line is no JSON. What is read is the same whatever the order of files and lines.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection
from pathlib import Path

from ..files.whole_file import OutputError
from .results import LIMITED, CaseLimits, Result


class Store:
    """The results in `folder`, which appears with the first of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file: int | None = None
        self.unreadable: dict[str, int] = {}  # file -> lines that `read` found to be no results

    def read(self, keys: Collection[str] | None = None, limits: CaseLimits | None = None) -> dict[str, Result]:
        """Key -> result, of `keys` (None: all); without those that may come out otherwise under `limits`."""
        wanted = None if keys is None else frozenset(keys)
        found: dict[str, Result] = {}
        self.unreadable = {}
        for path in sorted(self.folder.glob("*.jsonl")):
            for line in path.read_bytes().split(b"\n"):
                result = Result.of_line(line) if line else None
                if line and result is None:
                    self.unreadable[path.name] = self.unreadable.get(path.name, 0) + 1
                if result is None or (wanted is not None and result.key not in wanted):
                    continue
                if limits is None or result.holds_for(limits):
                    other = found.get(result.key)
                    found[result.key] = result if other is None else min(other, result, key=_rank)
        return found

    def add(self, result: Result) -> None:
        """Keep `result`; it is there for others when this returns."""
        line = result.line()
        try:
            if self._file is None:
                self.folder.mkdir(parents=True, exist_ok=True)
                path = self.folder / f"{secrets.token_hex(8)}.jsonl"
                self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
            written = os.write(self._file, line)
            while written < len(line):  # a signal came, or the disk is nearly full
                written += os.write(self._file, line[written:])
        except OSError as error:
            self.close()  # after half a line nothing may follow
            raise OutputError(f"cannot write to {self.folder}: {error.strerror}; what is there is whole") from None

    @property
    def warning(self) -> str:
        """A warning of lines that are no results; "" where there are none."""
        if not self.unreadable:
            return ""
        files = ", ".join(f"{count:,} of {name}" for name, count in sorted(self.unreadable.items()))
        count = sum(self.unreadable.values())
        return (
            f"{count:,} lines in {self.folder} are no results ({files}): a sweep was ended while "
            "it wrote, or another version wrote them; their cases are computed again"
        )

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _rank(result: Result) -> tuple[bool, float, bytes]:
    """Of two results of one case: one that no limit ended, else the larger limit's; then always the same one."""
    return result.outcome in LIMITED, -result.limit, result.line()
