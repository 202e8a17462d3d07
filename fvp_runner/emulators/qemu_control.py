"""QEMU's test protocol, with a CPU that runs normally: memory in large pieces, and input lines.

Invariant: one request, one answer; an error answer is a `QemuError`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

from ..base import RunnerError
from .gdb import connect

_TIMEOUT_S = 20.0
_BLOCK = 1 << 16  # bytes of one request: the fastest size measured


class QemuError(RunnerError):
    """QEMU refused a request, answered nonsense or went away."""


class Qtest:
    """A connection to the unix socket at `path`, which QEMU opens while it is `alive`."""

    def __init__(self, path: Path, alive: Callable[[], bool]) -> None:
        self._socket = connect(path, _TIMEOUT_S, alive)
        self._socket.settimeout(_TIMEOUT_S)
        self._lines = self._socket.makefile("rwb")

    def request(self, text: str) -> bytes:
        """One request; `QemuError` unless it is answered with OK."""
        try:
            self._lines.write(text.encode("ascii") + b"\n")
            self._lines.flush()
            while line := self._lines.readline().strip():
                if line.startswith(b"OK"):
                    return line[2:].strip()
                if not line.startswith(b"IRQ"):
                    raise QemuError(f"QEMU answered {line.decode('utf-8', 'replace')!r} to {text[:40]!r}")
        except OSError as error:
            raise QemuError(f"QEMU's control channel gave no answer: {error}") from None
        raise QemuError("QEMU closed its control channel")

    def read_memory(self, address: int, size_bytes: int) -> bytes:
        blocks = ((start, min(_BLOCK, size_bytes - start)) for start in range(0, size_bytes, _BLOCK))
        return b"".join(
            base64.b64decode(self.request(f"b64read {address + start:#x} {count:#x}")) for start, count in blocks
        )

    def write_memory(self, address: int, data: bytes) -> None:
        for start in range(0, len(data), _BLOCK):
            part = data[start : start + _BLOCK]
            text = base64.b64encode(part).decode("ascii")
            self.request(f"b64write {address + start:#x} {len(part):#x} {text}")

    def set_line(self, path: str, name: str, number: int, level: bool) -> None:
        """Drive input line `name`[`number`] of the device at QOM `path`."""
        self.request(f"set_irq_in {path} {name} {number} {int(level)}")

    def close(self) -> None:
        self._socket.close()
