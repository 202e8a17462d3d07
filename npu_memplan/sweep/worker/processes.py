"""What Linux says of a process and of all that it started.

Invariant: nothing here fails because a process has ended meanwhile; where there is no /proc, nothing is known.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def family(process: int) -> Iterator[int]:
    """The process and its descendants, parents first."""
    yield process
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            with contextlib.suppress(OSError):
                for child in (task / "children").read_text().split():
                    yield from family(int(child))


def resident_bytes(process: int) -> int:
    """Bytes in memory of the process and its descendants; what two share counts twice."""
    total = 0
    for member in family(process):
        with contextlib.suppress(OSError, IndexError, ValueError):
            total += int(Path(f"/proc/{member}/statm").read_text().split()[1]) * _PAGE_BYTES
    return total


def kill_family(process: int) -> None:
    """End a process that leads a group, its group, and its descendants in groups of their own."""
    members = list(family(process))
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)
    for member in members[1:]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(member, signal.SIGKILL)
