"""A client of the GDB remote protocol, as far as trapping register accesses needs it.

Invariant: every packet sent is answered or the call raises; a stop is only ever read by
`wait_stop`. QEMU keeps sending acknowledgements, and answers single-register packets only
after its target description was read; both are dealt with here. Source: GDB manual,
appendix "Remote Serial Protocol".
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable
from pathlib import Path

from ..base import RunnerError, RunTimeoutError

XPSR = 25  # QEMU's number of the program status register
_WATCH_ACCESS = 4
_MAX_MEMORY = 0x700  # bytes of one m/M packet: QEMU 7 takes packets of 4096 characters


class GdbError(RunnerError):
    """The emulator's debug stub refused a request or went away."""


class GdbClient:
    """A connection to a stub that listens on a unix socket."""

    def __init__(self, path: Path) -> None:
        self._buffer = bytearray()
        self._running = False
        self._socket = open_socket(path)
        self._request_reply("qSupported:multiprocess-;swbreak+;hwbreak+")
        self._request_reply("qXfer:features:read:target.xml:0,ffb")

    def close(self) -> None:
        """Drop the connection; the emulator keeps its state."""
        self._socket.close()

    def fileno(self) -> int:
        """The descriptor for select: readable when a stop may have arrived."""
        return self._socket.fileno()

    def _send_packet(self, text: str) -> None:
        data = text.encode("ascii")
        packet = b"$" + data + b"#" + b"%02x" % (sum(data) & 0xFF)
        try:
            self._socket.sendall(packet)
        except OSError as error:
            raise GdbError(f"the emulator closed its debug connection: {error}") from None

    def _read_packet(self, timeout_s: float | None) -> str | None:
        """Next packet without its frame; None when `timeout_s` passes first."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            start = self._buffer.find(b"$")
            end = self._buffer.find(b"#", start) if start >= 0 else -1
            if end >= 0 and len(self._buffer) >= end + 3:
                body = bytes(self._buffer[start + 1 : end])
                del self._buffer[: end + 3]
                with contextlib.suppress(OSError):  # it may be its last word
                    self._socket.sendall(b"+")
                return body.decode("latin-1")
            wait = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._socket], [], [], wait)[0]:
                return None
            try:
                data = self._socket.recv(1 << 16)
            except OSError as error:
                raise GdbError(f"the emulator closed its debug connection: {error}") from None
            if not data:
                raise GdbError("the emulator closed its debug connection")
            self._buffer += data

    def _request_reply(self, text: str) -> str:
        if self._running:
            raise GdbError(f"request {text[:20]!r} while the CPU runs")
        self._send_packet(text)
        reply = self._read_packet(10.0)
        if reply is None:
            raise RunTimeoutError(f"the emulator's debug stub did not answer {text[:20]!r} within 10 s")
        return reply

    def _require_ok(self, text: str) -> None:
        reply = self._request_reply(text)
        if reply != "OK":
            raise GdbError(f"the emulator's debug stub answered {reply!r} to {text[:40]!r}")

    def read_registers(self) -> list[int]:
        """r0..r15; r15 is the address of the next instruction."""
        data = bytes.fromhex(self._request_reply("g")[: 16 * 8])
        return [int.from_bytes(data[i : i + 4], "little") for i in range(0, 64, 4)]

    def read_register(self, number: int) -> int:
        reply = self._request_reply(f"p{number:x}")
        if len(reply) != 8:
            raise GdbError(f"the emulator's debug stub answered {reply!r} for register {number}")
        return int.from_bytes(bytes.fromhex(reply), "little")

    def set_register(self, number: int, value: int) -> None:
        self._require_ok(f"P{number:x}={value.to_bytes(4, 'little').hex()}")

    def read(self, address: int, size_bytes: int) -> bytes:
        """Memory as the CPU sees it; `GdbError` where nothing answers."""
        result = bytearray()
        while len(result) < size_bytes:
            count = min(_MAX_MEMORY, size_bytes - len(result))
            reply = self._request_reply(f"m{address + len(result):x},{count:x}")
            if len(reply) != 2 * count:
                raise GdbError(f"cannot read {count} bytes at {address + len(result):#010x}: {reply!r}")
            result += bytes.fromhex(reply)
        return bytes(result)

    def write(self, address: int, data: bytes) -> None:
        """Write memory as the CPU sees it (not devices)."""
        for start in range(0, len(data), _MAX_MEMORY):
            part = data[start : start + _MAX_MEMORY]
            self._require_ok(f"M{address + start:x},{len(part):x}:{part.hex()}")

    def watch_range(self, address: int, size_bytes: int) -> None:
        """Stop before any access in `[address, address + size_bytes)`."""
        self._require_ok(f"Z{_WATCH_ACCESS},{address:x},{size_bytes:x}")

    def resume_cpu(self) -> None:
        """Let the CPU run; the next thing to call is `wait_stop`."""
        self._send_packet("c")
        self._running = True

    def wait_stop(self, timeout_s: float | None) -> str | None:
        """Reason of the next stop (`T05watch:...;`, `W00`, ...), or None when the time passes first."""
        reply = self._read_packet(timeout_s)
        if reply is not None:
            self._running = False
        return reply


def open_socket(path: Path, timeout_s: float = 10.0, alive: Callable[[], bool] = lambda: True) -> socket.socket:
    """The unix socket at `path`, which an emulator opens while it is `alive`."""
    deadline = time.monotonic() + timeout_s
    while True:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            client.connect(str(path))
            return client
        except OSError as error:
            client.close()
            if time.monotonic() > deadline or not alive():
                raise GdbError(f"the emulator did not open {path.name} within {timeout_s:.0f} s: {error}") from None
            with contextlib.suppress(InterruptedError):
                time.sleep(0.005)
