"""Programs that a run needs, and questions to programs that may not answer.

Invariant: what `npu_memplan.process.programs` says of every program; one that cannot be started is a missing runner.
A question ends with its time limit, and reads a bounded number of bytes, whatever the program does.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from npu_memplan.files.folders import scratch_folder
from npu_memplan.process.programs import end_program, start_program

from .base import RunnerMissingError

_OUTPUT_BYTES = 1 << 16  # a version or a path is far shorter
_LOOK_S = 0.02  # between two looks at whether the program has ended


@contextlib.contextmanager
def start_child(
    command: Sequence[str | Path], folder: Path, cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start `command` in `cwd` with stdout and stderr piped, its temporary files in `folder`; end it on leaving."""
    try:
        process = start_program(command, folder, cwd=cwd)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise RunnerMissingError(f"cannot start {command[0]}: {reason or error}") from None
    try:
        yield process
    finally:
        end_program(process)


@dataclass(frozen=True, slots=True)
class ProcessOutput:
    """The output of a program: stdout, then stderr. `stopped`: why it had to be stopped, if it had."""

    text: str
    code: int | None = None
    stopped: str = ""

    @property
    def first_line(self) -> str:
        """The first line that it printed, if it ended well; else nothing."""
        return next(iter(self.text.strip().splitlines()), "").strip() if self.code == 0 else ""


def read_output(command: Sequence[str | Path], timeout_s: float = 30.0) -> ProcessOutput:
    """Run a program for its output alone, and stop it with all that it started; `RunnerMissingError`."""
    deadline = time.monotonic() + timeout_s
    with scratch_folder("ask") as folder, start_child(command, folder) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        pipes = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
        opened = set(pipes)

        def output_text() -> str:
            return b"".join(pipes.values())[:_OUTPUT_BYTES].decode("utf-8", "replace")

        while time.monotonic() < deadline:
            code = process.poll()  # before the pipes: what it wrote before it ended is in them
            ready = select.select(list(opened), [], [], _LOOK_S if code is None else 0)[0]
            for pipe in ready:
                data = os.read(pipe, _OUTPUT_BYTES)
                pipes[pipe] += data
                if not data:
                    opened.remove(pipe)
            if sum(map(len, pipes.values())) > _OUTPUT_BYTES:
                return ProcessOutput(output_text(), stopped=f"it printed more than {_OUTPUT_BYTES:,} bytes")
            if code is not None and not ready:
                return ProcessOutput(output_text(), code)
        return ProcessOutput(output_text(), stopped=f"it had not ended after {timeout_s:g} s")
