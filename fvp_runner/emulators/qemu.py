"""Firmware on QEMU, with our NPU model behind the NPU's real register addresses: the runner, the machine, its test
protocol.

Invariant: the guest is stopped before every access to the NPU's page and the access is done by `EthosURegisters`; the
firmware needs to know nothing of it. A job reads the planned bytes from the guest's memory and writes its results back
there; nothing is kept elsewhere. The protocol has one answer for each request; an error answer is a `QemuError`.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import os
import re
import select
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from npu_memplan.c_compiler import compiler_command
from npu_memplan.c_compiler import missing_compiler as missing_c
from npu_memplan.files.folders import scratch_folder
from npu_memplan.target_data import Board, board_names, load_board

from ..base import RunnerError, RunnerMissingError, RunOptions
from ..firmware_build.build import Elf, Firmware, build, missing_compiler
from ..firmware_run import END_OF_TRANSMISSION, Stopwatch
from ..npu_model.spec.feature_maps import Bytes
from ..process import read_output, start_child
from ..register_page import EthosURegisters
from .device import EmulatedRunner, End, Machine, reaching_memory
from .gdb import GdbClient, GdbError, open_socket
from .trap import Trap

_TIMEOUT_S = 20.0
_BLOCK = 1 << 16  # bytes of one request: the fastest size measured


class QemuError(RunnerError):
    """QEMU refused a request, answered nonsense or went away."""


class Qtest:
    """A connection to the unix socket at `path`, which QEMU opens while it is `alive`."""

    def __init__(self, path: Path, alive: Callable[[], bool]) -> None:
        self._socket = open_socket(path, _TIMEOUT_S, alive)
        self._socket.settimeout(_TIMEOUT_S)
        self._lines = self._socket.makefile("rwb")

    def send_request(self, text: str) -> bytes:
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
            base64.b64decode(self.send_request(f"b64read {address + start:#x} {count:#x}")) for start, count in blocks
        )

    def write_memory(self, address: int, data: bytes) -> None:
        for start in range(0, len(data), _BLOCK):
            part = data[start : start + _BLOCK]
            text = base64.b64encode(part).decode("ascii")
            self.send_request(f"b64write {address + start:#x} {len(part):#x} {text}")

    def set_line(self, path: str, name: str, number: int, level: bool) -> None:
        """Drive input line `name`[`number`] of the device at QOM `path`."""
        self.send_request(f"set_irq_in {path} {name} {number} {int(level)}")

    def close(self) -> None:
        self._socket.close()


PROGRAM = "qemu-system-arm"
_SYSTEM_VECTORS = 16  # before those of interrupts
_END = bytes([END_OF_TRANSMISSION])  # a firmware's last byte
_EXITED = re.compile(r"W([0-9a-f]{2})")  # the debug stub's reply when the guest has ended by semihosting

Console = Callable[[bytes], None]


@functools.cache
def qemu_version() -> str:
    match = re.search(r"version (\S+)", read_output([PROGRAM, "--version"]).first_line)
    return f"QEMU {match[1] if match else 'of an unknown version'}"


@dataclass(frozen=True, slots=True)
class Semihosting:
    """The means of a program by semihosting: open files, relative to `folder`, read its command line, and exit."""

    command_line: str = ""
    folder: Path | None = None  # None: the current folder


@contextlib.contextmanager
def boot_machine(board: Board, image: Elf, semihosting: Semihosting | None = None) -> Iterator[QemuMachine]:
    """The board with `image` loaded, its CPU at reset; gone when the context is left."""
    with scratch_folder("qemu") as folder:
        kernel = folder / "firmware.elf"
        kernel.write_bytes(_with_reset_vectors(board, image).image)
        command = [*_qemu_command(board, folder, kernel, semihosting), *_memory_options(board, folder)]
        place = semihosting.folder if semihosting else None
        with start_child(command, folder, cwd=place) as process, contextlib.ExitStack() as stack:
            try:
                machine = QemuMachine(board, image, process, folder, stack)
            except RunnerError as error:
                process.kill()
                stderr_text = process.communicate()[1].decode("utf-8", "replace").strip()
                raise QemuError(f"QEMU did not start: {stderr_text or error}") from None
            yield machine


def _with_reset_vectors(board: Board, image: Elf) -> Elf:
    """`image` with its vectors also where QEMU's machine has them, for programs that do not say where they are."""
    qemu = board.qemu
    assert qemu is not None
    for place in (qemu.program_vectors, board.memory(board.firmware.code).base) if qemu.program_vectors else ():
        for words in (_SYSTEM_VECTORS + board.vectors.irq_count, 2):  # without interrupts, the first two may be all
            if (vectors := image.read(place, 4 * words)) is not None:
                return image.with_segment(qemu.machine_vectors, bytes(vectors))
    return image


def _memory_options(board: Board, folder: Path) -> list[str]:
    """QEMU's options that add memories which its machine lacks, by a plugin that is built in `folder`."""
    assert board.qemu is not None
    if not board.qemu.memories:
        return []
    compiler = compiler_command()
    if compiler is None:
        raise RunnerMissingError(f"QEMU's machine lacks memories of {board.name}, and C adds them: {missing_c()}")
    source, plugin = Path(__file__).with_name("qemu_memories.c"), folder / "memories.so"
    done = read_output([*compiler, "-shared", "-fPIC", "-O1", source, "-o", plugin])
    if done.code != 0:
        raise QemuError(f"{source.name} did not compile: {done.text.strip() or done.stopped or done.code}")
    places = (f"{m.base:#x}:{m.size_bytes:#x}:{m.like:#x}:{m.first_word:#x}" for m in board.qemu.memories)
    return ["-plugin", ",".join((str(plugin), *(f"m{number}={place}" for number, place in enumerate(places))))]


def _qemu_command(board: Board, folder: Path, kernel: Path, semihosting: Semihosting | None) -> list[str]:
    qemu = board.qemu
    assert qemu is not None
    command = [PROGRAM, "-M", qemu.machine, "-accel", "tcg", "-nodefaults", "-display", "none", "-monitor", "none"]
    command += ["-kernel", str(kernel), "-serial", "stdio", "-S"]
    command += qemu.options
    if semihosting is not None:
        words = "".join(f",arg={word.replace(',', ',,')}" for word in semihosting.command_line.split())
        command += ["-semihosting-config", f"enable=on,target=native{words}"]
    for channel in ("gdb", "qtest"):
        command += [f"-{channel}", f"unix:{folder / channel},server=on,wait=off"]
    return [*command, "-qtest-log", "/dev/null"]


class QemuMachine:
    """A running QEMU: its control channels, and its memory as the NPU sees it."""

    def __init__(
        self, board: Board, elf: Elf, process: subprocess.Popen[bytes], folder: Path, stack: contextlib.ExitStack
    ) -> None:
        self._board, self._elf, self._process = board, elf, process
        self._fetched: list[tuple[int, Bytes, Bytes]] = []  # address, as it was, as the job leaves it

        self._qtest = stack.enter_context(contextlib.closing(Qtest(folder / "qtest", lambda: process.poll() is None)))
        self._gdb = stack.enter_context(contextlib.closing(GdbClient(folder / "gdb")))

    def run(
        self,
        device: EthosURegisters,
        watch: Stopwatch,
        console: Console | None = None,
        ends: tuple[bytes, ...] = (_END,),
    ) -> End:
        """Let the CPU run, serving its register accesses, until the program ends or QEMU goes away.

        A program ends when it has printed one of `ends`, or by semihosting where it may. `console` is given what it
        prints.
        """
        device.set_irq = self._set_irq
        trap = Trap(self._gdb, self._board, device, self._elf.read)
        trap.arm_watch()
        process, gdb = self._process, self._gdb
        assert process.stdout is not None
        assert process.stderr is not None
        uart, errors = bytearray(), bytearray()
        pipes = {process.stdout.fileno(): uart, process.stderr.fileno(): errors}
        debugger = gdb.fileno()
        gdb.resume_cpu()
        while True:
            ready = select.select([*pipes, debugger], [], [], watch.left_s())[0]
            for pipe in [p for p in ready if p in pipes]:
                data = os.read(pipe, 1 << 16)
                known = len(pipes[pipe])
                pipes[pipe] += data
                if pipes[pipe] is uart:
                    ended = _cut_after(uart, known, ends)
                    if console is not None and data:
                        console(bytes(uart[known:]))
                    if ended:
                        return End(bytes(uart), None, trap.accesses)
                if not data:
                    pipes.pop(pipe)
                    if pipe == process.stdout.fileno():
                        if exited := _EXITED.match(_last_word(gdb)):
                            return End(bytes(uart), int(exited[1], 16), trap.accesses)
                        stderr_lines = errors.decode("utf-8", "replace").strip().splitlines() or ["without a word"]
                        raise QemuError(f"QEMU ended before the firmware did: {stderr_lines[-1]}")
            if debugger in ready:
                reason = gdb.wait_stop(0.0)  # it may have been an acknowledgement alone
                if reason is not None and (exited := _EXITED.match(reason)):
                    return End(bytes(uart) + _remaining_output(process, console), int(exited[1], 16), trap.accesses)
                if reason is not None:
                    if "watch:" not in reason:
                        raise QemuError(f"QEMU stopped the firmware: {reason}")
                    trap.handle_access()
                    gdb.resume_cpu()
            watch.check_limit(uart)

    def _set_irq(self, level: bool) -> None:
        qemu = self._board.qemu
        assert qemu is not None
        self._qtest.set_line(qemu.irq_object, qemu.irq_name, qemu.irq_line, level)

    def read(self, address: int, size_bytes: int) -> Bytes:
        data: Bytes = np.frombuffer(self._qtest.read_memory(address, size_bytes), np.uint8)
        return data

    def can_access(self, address: int, size_bytes: int) -> bool:
        return reaching_memory(self._board, address, size_bytes) is not None

    def fetch_bytes(self, address: int, size_bytes: int) -> Bytes:
        """See `GuestMemory.fetch_bytes`: constants come from the ELF, everything else from the guest."""
        constant = self._elf.read_only(address, size_bytes)
        if constant is not None:
            read_only: Bytes = np.frombuffer(constant, np.uint8)
            return read_only
        before = self.read(address, size_bytes)
        after: Bytes = before.copy()
        self._fetched.append((address, before, after))
        return after

    def commit_writes(self) -> None:
        """See `GuestMemory.commit_writes`: only what changed is written back."""
        for address, before, after in self._fetched:
            changed = np.flatnonzero(before != after)
            if changed.size:
                for start, stop in _index_ranges(changed):
                    self._qtest.write_memory(address + start, after[start:stop].tobytes())
        self._fetched.clear()


def _cut_after(uart: bytearray, known: int, ends: tuple[bytes, ...]) -> bool:
    """Cut what follows the first of `ends` that ends behind the first `known` bytes; whether there is one."""
    first = max(0, known - max(map(len, ends), default=0))
    found = [place + len(end) for end in ends if (place := uart.find(end, first)) >= 0]
    if found:
        del uart[min(found) :]
    return bool(found)


def _last_word(gdb: GdbClient) -> str:
    """The last reply of the debug stub of a QEMU that has ended."""
    try:
        return gdb.wait_stop(1.0) or ""
    except GdbError:
        return ""


def _remaining_output(process: subprocess.Popen[bytes], console: Console | None) -> bytes:
    assert process.stdout is not None
    found = b""
    while select.select([process.stdout], [], [], 0.1)[0] and (data := os.read(process.stdout.fileno(), 1 << 16)):
        found += data
        if console is not None:
            console(data)
    return found


def _index_ranges(changed: np.ndarray[tuple[int], np.dtype[np.intp]], gap: int = 4096) -> list[tuple[int, int]]:
    """Half-open ranges that cover the ascending indices, joined over gaps of up to `gap`."""
    breaks = np.flatnonzero(np.diff(changed) > gap)
    starts = changed[np.concatenate(([0], breaks + 1))]
    stops = changed[np.concatenate((breaks, [changed.size - 1]))] + 1
    return list(zip(starts.tolist(), stops.tolist(), strict=True))


HINT = "apt-get install qemu-system-arm gcc-arm-none-eabi libnewlib-arm-none-eabi"


def missing(options: RunOptions) -> str | None:
    if (reason := missing_emulator()) is not None:
        return reason
    if options.board is not None and (board := load_board(options.board)).qemu is None:
        return no_model(board)
    return missing_compiler()


def missing_emulator() -> str | None:
    """Why there is no QEMU here, or None."""
    if shutil.which(PROGRAM) is None:
        return f"the emulator {PROGRAM} is not on PATH; install it with: {HINT}"
    return None


def create(directory: Path, options: RunOptions) -> QemuRunner:
    return QemuRunner(build(directory, options), options)


def no_model(board: Board) -> str:
    """The error that QEMU has no such board, and which it has."""
    others = [name for name in board_names() if load_board(name).qemu is not None]
    return f"QEMU has no model of board {board.name}; choose one that has: {', '.join(others)}"


class QemuRunner(EmulatedRunner):
    name = "qemu"

    def __init__(self, firmware: Firmware, options: RunOptions) -> None:
        if firmware.board.qemu is None:
            raise RunnerMissingError(no_model(firmware.board))
        super().__init__(firmware, options)

    def _machine(self, image: Elf) -> AbstractContextManager[Machine]:
        return boot_machine(self.firmware.board, image)

    def _emulator_version(self) -> str:
        return qemu_version()
