"""A run of firmware: the image with inputs, the board's memory map, its transcript on the UART, the verdict.

Invariant: a run's outputs are exactly those its transcript proves: `check_transcript` gives them only when the run
printed the positive mark, the exit code 0, the end mark, and outputs whose sizes, checksums and digest all agree. Lines
of the simulator itself may stand before and between and are ignored. Each run starts from a freshly loaded image, so
one run never sees another's memory.
"""

from __future__ import annotations

import re
import struct
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from npu_memplan.artifact import Artifact
from npu_memplan.names import c_identifier

from .base import FirmwareError, RunnerError, RunOptions, RunOutputs, RunTimeoutError, fitting_inputs
from .firmware_build.build import Elf, Firmware
from .guards import GuardError
from .register_page import JobOutcome
from .result import Array

END_OF_TRANSMISSION = 0x04


@dataclass(slots=True)
class Transcript:
    """The firmware's lines as data; a field stays None when its line never came."""

    text: str
    model: str | None = None
    board: str | None = None
    calls: int | None = None
    cycles: int | None = None
    beats: tuple[int, ...] | None = None  # AXI port 0 read, written; port 1 read, written
    adapters: tuple[int, int] | None = None  # timing adapters to set; those that have what was written
    status: int | None = None
    outputs: list[bytearray] = field(default_factory=list)
    output_rows: list[tuple[int, int]] = field(default_factory=list)  # (bytes, crc)
    pool_rows: list[tuple[int, int]] = field(default_factory=list)  # (bytes, crc)
    digest: int | None = None
    stack: tuple[int, int] | None = None  # bytes used at most, bytes there are
    guards: list[tuple[int, int, int]] = field(default_factory=list)  # pool, offset of the first changed, how many
    errors: list[str] = field(default_factory=list)
    passes: int = 0
    failed: bool = False
    exit_code: int | None = None
    ended: bool = False


_NUMBER = r"(\d{1,20})"  # of 64 bits; a line with more digits is nobody's
_ROW = re.compile(rf"{_NUMBER} bytes={_NUMBER} crc=([0-9a-f]{{8}})")


def parse_transcript(data: bytes) -> Transcript:
    """Read the bytes of a UART (or of a simulator's output with a UART in it); never raises."""
    text = data.decode("ascii", "replace")
    result = Transcript(text)
    body, end, _ = text.partition(chr(END_OF_TRANSMISSION))
    result.ended = bool(end) or any(line.strip() == "EXITTHESIM" for line in body.splitlines())
    for line in body.splitlines():
        _parse_line(result, line.strip())
    return result


def _parse_line(t: Transcript, line: str) -> None:
    word, _, rest = line.partition(" ")
    if word.startswith("EXIT:") and re.fullmatch(r"[0-9a-f]{8}", word[5:]) and not rest:
        t.exit_code = int(word[5:], 16)
    elif word == "NPU_MEMPLAN":
        if rest == "PASS":
            t.passes += 1
        elif rest == "FAIL":
            t.failed = True
        elif match := re.fullmatch(r"1 model=(\S+) board=(\S+)", rest):
            t.model, t.board = match[1], match[2]
    elif word in ("CALLS", "CYCLES") and re.fullmatch(_NUMBER, rest):
        setattr(t, word.lower(), int(rest))
    elif word == "BEATS" and re.fullmatch(rf"{_NUMBER}( {_NUMBER}){{3}}", rest):
        t.beats = tuple(map(int, rest.split()))
    elif word == "ADAPTERS" and (match := re.fullmatch(rf"{_NUMBER} set={_NUMBER}", rest)):
        t.adapters = int(match[1]), int(match[2])
    elif word == "STATUS" and re.fullmatch(rf"-?{_NUMBER}", rest):
        t.status = int(rest)
    elif word in ("OUTPUT", "POOL") and (match := _ROW.fullmatch(rest)):
        rows = t.output_rows if word == "OUTPUT" else t.pool_rows
        if int(match[1]) == len(rows):
            rows.append((int(match[2]), int(match[3], 16)))
            if word == "OUTPUT":
                t.outputs.append(bytearray())
    elif word == "DATA" and t.outputs and re.fullmatch(r"(?:[0-9a-f]{2})+", rest):
        t.outputs[-1] += bytes.fromhex(rest)
    elif word == "DIGEST" and re.fullmatch(r"[0-9a-f]{8}", rest):
        t.digest = int(rest, 16)
    elif word == "STACK" and (match := re.fullmatch(rf"used={_NUMBER} bytes={_NUMBER}", rest)):
        t.stack = int(match[1]), int(match[2])
    elif word == "GUARD" and (match := re.fullmatch(rf"{_NUMBER} offset=(-?\d{{1,20}}) bytes={_NUMBER}", rest)):
        t.guards.append((int(match[1]), int(match[2]), int(match[3])))
    elif word == "ERROR":
        t.errors.append(rest)


def check_transcript(
    t: Transcript, artifact: Artifact, device_messages: Sequence[str] = (), steps: int = 1
) -> tuple[Array, ...]:
    """The outputs of `steps` inferences as arrays, or an error that says what is missing or wrong.

    It is a `GuardError` where bytes around a pool were written, else a `FirmwareError`.

    `device_messages` is what the NPU model had to say; it explains a fault better than STATUS.
    """
    for pool, offset, count in t.guards:
        if pool < len(artifact.run_pools):
            raise GuardError(artifact, pool, offset, count)
    reason = _find_objection(t, artifact, steps)
    if reason is not None:
        lines = [f"{artifact.name}: {reason}", *(f"  firmware: {e}" for e in t.errors)]
        lines += [f"  NPU model: {m}" for m in device_messages]
        tail = [line for line in t.text.splitlines() if line.strip() and not line.startswith("DATA ")][-6:]
        if not t.errors:
            lines += ["  the last lines it printed:", *(f"    {line.strip()}" for line in tail)] if tail else []
        raise FirmwareError("\n".join(lines))
    return tuple(
        np.frombuffer(bytes(data), slot.dtype).reshape(slot.shape)
        for data, slot in zip(t.outputs, artifact.outputs * steps, strict=True)
    )


def _find_objection(t: Transcript, artifact: Artifact, steps: int) -> str | None:
    """Why the transcript proves nothing, or None when it proves a good run."""
    if not t.text.strip():
        return "nothing was printed: the firmware did not start, or its UART does not reach this program"
    if t.errors or t.failed:
        return "the firmware reported an error" + (f"; the program returned {t.status}" if t.status else "")
    if t.model is None:
        return "the firmware's first line never came: it did not start"
    if t.model != c_identifier(artifact.name):
        return f"the firmware is of model {t.model}"
    if not t.ended or t.exit_code is None:
        return "the run ended early: the firmware's exit text never came"
    if t.exit_code != 0:
        return f"the firmware exited with code {t.exit_code:#x}"
    if t.passes != 1:
        return f"the firmware printed its positive mark {t.passes} times, not once"
    if t.status != 0:
        return f"the program returned {t.status}"
    expected = [slot.size_bytes for slot in artifact.outputs * steps]
    if [size for size, _ in t.output_rows] != expected:
        return f"the outputs have {[size for size, _ in t.output_rows]} bytes, the plan says {expected}"
    digest = 0
    for index, (data, (size, crc)) in enumerate(zip(t.outputs, t.output_rows, strict=True)):
        digest = zlib.crc32(data, digest)
        if len(data) != size or zlib.crc32(data) != crc:
            return f"output {index} arrived damaged: {len(data)} of {size} bytes, checksum {zlib.crc32(data):08x}"
    if t.digest != digest:
        digest_text = "missing" if t.digest is None else f"{t.digest:08x}"
        return f"the digest of the outputs is {digest_text}, but what arrived has {digest:08x}"
    return None


_INPUT_MAGIC = 0x494D504E
_TEXT_BYTES = 1 << 20  # in addition to the outputs, which are printed in hexadecimal
_PROGRESS_S = 2.0  # between two lines of progress


def image_with_inputs(firmware: Firmware, *sequence: Sequence[Array]) -> Elf:
    """The firmware with the inputs of its inferences in its image; `RunnerError` when they do not fit the model."""
    data = b"".join(array.tobytes() for inputs in sequence for array in fitting_inputs(firmware.artifact, inputs))
    header = struct.pack("<4I", _INPUT_MAGIC, len(data), zlib.crc32(data), 0)
    return firmware.elf.with_data("npu_memplan_inputs", header + data)


class Stopwatch:
    """The time limit of one run, and a line of progress now and then, from a thread of its own; a context."""

    def __init__(
        self, what: str, options: RunOptions, jobs: Sequence[JobOutcome] = (), most_bytes: int = _TEXT_BYTES
    ) -> None:
        """`what` runs; it may print `most_bytes`."""
        self._started = time.monotonic()
        self._what, self._options, self._jobs, self._most_bytes = what, options, jobs, most_bytes
        self._over = threading.Event()

    def __enter__(self) -> Stopwatch:
        if self._options.progress:
            threading.Thread(target=self._report_progress, args=(self._options.progress,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()

    def _report_progress(self, progress: Callable[[str], None]) -> None:
        while not self._over.wait(_PROGRESS_S):
            done = f"{len(self._jobs)} NPU jobs done, " if self._jobs else ""
            progress(f"{self._what}: {done}{self.limit_s:.0f} s")

    @property
    def limit_s(self) -> float:
        return time.monotonic() - self._started

    def left_s(self) -> float:
        """Seconds until the limit."""
        return max(0.0, self._options.timeout_s - self.limit_s)

    def check_limit(self, text: bytes | bytearray) -> None:
        """`RunTimeoutError` when the limit has passed; `text` is what the firmware has printed."""
        if len(text) > self._most_bytes:
            raise RunnerError(
                f"{self._what} printed {len(text):,} bytes and was stopped: that is more than "
                "the firmware's lines and all outputs"
            )
        if self.limit_s >= self._options.timeout_s:
            lines = [line for line in text.decode("ascii", "replace").splitlines() if line.strip()]
            last = f"its last line was {lines[-1].strip()!r}" if lines else "it printed nothing"
            raise RunTimeoutError(
                f"{self._what} did not end within {self._options.timeout_s:g} s and was "
                f"stopped; {last}. Give more time with --timeout"
            )


def start_stopwatch(runner: str, artifact: Artifact, options: RunOptions, jobs: Sequence[JobOutcome] = ()) -> Stopwatch:
    """The watch of one run of an artifact's firmware, which may print its lines and its outputs."""
    most_bytes = _TEXT_BYTES + 4 * options.steps * sum(slot.size_bytes for slot in artifact.outputs)
    return Stopwatch(f"{artifact.name} on {runner}", options, jobs, most_bytes)


def outputs_of(
    firmware: Firmware,
    uart: bytes,
    *,
    messages: Sequence[str] = (),
    notes: Sequence[str] = (),
    pools: tuple[Array, ...] | None = None,
    version: str = "",
    seconds: float = 0.0,
    cycles_are_estimates: bool = True,
    steps: int = 1,
) -> RunOutputs:
    """The result that the UART's text proves, outputs step by step; `FirmwareError` when it proves none."""
    transcript = parse_transcript(uart)
    outputs = check_transcript(transcript, firmware.artifact, messages, steps)
    if pools is not None:
        if len(transcript.pool_rows) != len(pools):
            raise RunnerError(f"the firmware printed {len(transcript.pool_rows)} of {len(pools)} lines POOL")
        for index, (pool, (size, crc)) in enumerate(zip(pools, transcript.pool_rows, strict=True)):
            if pool.size != size or zlib.crc32(pool.tobytes()) != crc:
                raise RunnerError(f"pool {index} was read back as {pool.size} bytes that are not the firmware's")
    cycles, beats = transcript.cycles, transcript.beats
    return RunOutputs(
        outputs=outputs,
        pools_after=pools,
        adapters_set=transcript.adapters is not None and transcript.adapters[0] == transcript.adapters[1],
        npu_cycles=cycles // steps if transcript.calls and cycles is not None else None,
        npu_beats=tuple(n // steps for n in beats) if transcript.calls and beats is not None else None,
        cycles_are_estimates=cycles_are_estimates,
        stack=transcript.stack,
        transcript=transcript.text,
        version=version,
        seconds=seconds,
        notes=(*firmware.layout.notes, *notes),
    )
