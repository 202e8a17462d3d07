"""What all runners of firmware share: the image with inputs, the board's memory map, the verdict.

Invariant: a run's outputs are exactly those its transcript proves; each run starts from a
freshly loaded image, so one run never sees another's memory.
"""

from __future__ import annotations

import struct
import threading
import time
import zlib
from collections.abc import Callable, Sequence

from npu_memplan.artifact import Artifact

from .base import RunnerError, RunOptions, RunOutputs, RunTimeoutError, fitting_inputs
from .firmware_build.build import Firmware
from .firmware_build.elf import Elf
from .register_page import JobOutcome
from .result import Array
from .transcript import check, parse

_INPUT_MAGIC = 0x494D504E
_TEXT_BYTES = 1 << 20  # in addition to the outputs, which are printed in hexadecimal
_PROGRESS_S = 2.0  # between two lines of progress


def image_with_inputs(firmware: Firmware, *sequence: Sequence[Array]) -> Elf:
    """The firmware with the inputs of its inferences in its image; `RunnerError` when they do not fit the model."""
    data = b"".join(array.tobytes() for inputs in sequence for array in fitting_inputs(firmware.artifact, inputs))
    header = struct.pack("<4I", _INPUT_MAGIC, len(data), zlib.crc32(data), 0)
    return firmware.elf.with_data("npu_memplan_inputs", header + data)


class Stopwatch:
    """The time limit of one run, and a line of progress now and then; use it as a context.

    Progress is reported from a thread of its own, so that a long job of the NPU model does not silence it.
    """

    def __init__(
        self, what: str, options: RunOptions, jobs: Sequence[JobOutcome] = (), most_bytes: int = _TEXT_BYTES
    ) -> None:
        """`what` runs; it may print `most_bytes`."""
        self._started = time.monotonic()
        self._what, self._options, self._jobs, self._most_bytes = what, options, jobs, most_bytes
        self._over = threading.Event()

    def __enter__(self) -> Stopwatch:
        if self._options.progress:
            threading.Thread(target=self._tell, args=(self._options.progress,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()

    def _tell(self, progress: Callable[[str], None]) -> None:
        while not self._over.wait(_PROGRESS_S):
            done = f"{len(self._jobs)} NPU jobs done, " if self._jobs else ""
            progress(f"{self._what}: {done}{self.seconds:.0f} s")

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def left(self) -> float:
        """Seconds until the limit."""
        return max(0.0, self._options.timeout_s - self.seconds)

    def check(self, text: bytes | bytearray) -> None:
        """`RunTimeoutError` when the limit has passed; `text` is what the firmware has printed."""
        if len(text) > self._most_bytes:
            raise RunnerError(
                f"{self._what} printed {len(text):,} bytes and was stopped: that is more than "
                "the firmware's lines and all outputs"
            )
        if self.seconds >= self._options.timeout_s:
            lines = [line for line in text.decode("ascii", "replace").splitlines() if line.strip()]
            last = f"its last line was {lines[-1].strip()!r}" if lines else "it printed nothing"
            raise RunTimeoutError(
                f"{self._what} did not end within {self._options.timeout_s:g} s and was "
                f"stopped; {last}. Give more time with --timeout"
            )


def stopwatch(runner: str, artifact: Artifact, options: RunOptions, jobs: Sequence[JobOutcome] = ()) -> Stopwatch:
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
    transcript = parse(uart)
    outputs = check(transcript, firmware.artifact, messages, steps)
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
