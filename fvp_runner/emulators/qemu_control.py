"""QEMU's two control channels: QMP to read much memory at once, qtest to write it and to drive lines.

Invariant: one request, one answer; an error answer is a `QemuError`. Both listen on unix sockets.
"""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..base import RunnerError

_TIMEOUT_S = 20.0
_BLOCK = 1 << 16  # bytes of one qtest write: the fastest size measured


class QemuError(RunnerError):
    """QEMU refused a request, answered nonsense or went away."""


class _Lines:
    """Text lines over a unix socket."""

    def __init__(self, path: Path, alive: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(_TIMEOUT_S)
            try:
                self._socket.connect(str(path))
                break
            except OSError as error:
                self._socket.close()
                if time.monotonic() > deadline or not alive():
                    raise QemuError(f"QEMU did not open {path.name}: {error}") from None
                time.sleep(0.005)
        self._buffer = b""

    def send(self, text: str) -> None:
        try:
            self._socket.sendall(text.encode("ascii") + b"\n")
        except OSError as error:
            raise QemuError(f"QEMU closed its control channel: {error}") from None

    def line(self) -> str:
        while b"\n" not in self._buffer:
            try:
                data = self._socket.recv(1 << 16)
            except OSError as error:
                raise QemuError(f"QEMU's control channel gave no answer: {error}") from None
            if not data:
                raise QemuError("QEMU closed its control channel")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace").strip()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()


class Qmp:
    """The machine protocol, for reading memory into files."""

    def __init__(self, path: Path, alive: Callable[[], bool] = lambda: True) -> None:
        """Connect to the socket at `path`, for as long as QEMU is `alive`."""
        self._lines = _Lines(path, alive)
        version = json.loads(self._lines.line())["QMP"]["version"]["qemu"]
        self.version = f"QEMU {version['major']}.{version['minor']}.{version['micro']}"
        self.execute("qmp_capabilities")

    def execute(self, command: str, **arguments: Any) -> Any:
        """Run one command; events that come in between are dropped."""
        self._lines.send(json.dumps({"execute": command, "arguments": arguments}))
        while True:
            reply = json.loads(self._lines.line())
            if "return" in reply:
                return reply["return"]
            if "error" in reply:
                raise QemuError(f"QEMU refused {command}: {reply['error'].get('desc', reply['error'])}")

    def save_memory(self, address: int, size_bytes: int, path: Path) -> bytes:
        """Memory as the CPU sees it, by way of the file `path`."""
        self.execute("memsave", val=address, size=size_bytes, filename=str(path))
        data = path.read_bytes()
        if len(data) != size_bytes:
            raise QemuError(f"QEMU saved {len(data)} of {size_bytes} bytes at {address:#010x}")
        return data

    def close(self) -> None:
        self._lines.close()


class Qtest:
    """The test protocol, beside a CPU that runs normally."""

    def __init__(self, path: Path, alive: Callable[[], bool] = lambda: True) -> None:
        """Connect to the socket at `path`, for as long as QEMU is `alive`."""
        self._lines = _Lines(path, alive)

    def request(self, text: str) -> str:
        """One request; `QemuError` unless it is answered with OK."""
        self._lines.send(text)
        while True:
            line = self._lines.line()
            if line.startswith("OK"):
                return line[2:].strip()
            if not line.startswith("IRQ"):
                raise QemuError(f"QEMU answered {line!r} to {text[:40]!r}")

    def write_memory(self, address: int, data: bytes) -> None:
        for start in range(0, len(data), _BLOCK):
            part = data[start : start + _BLOCK]
            text = base64.b64encode(part).decode("ascii")
            self.request(f"b64write {address + start:#x} {len(part):#x} {text}")

    def set_line(self, path: str, name: str, number: int, level: bool) -> None:
        """Drive input line `name`[`number`] of the device at QOM `path`."""
        self.request(f"set_irq_in {path} {name} {number} {int(level)}")

    def close(self) -> None:
        self._lines.close()
