"""The FVP runner: the same ELF on Arm's Fixed Virtual Platform, which has Arm's own NPU.

Invariant: a pass needs the firmware's positive mark, its exit text and the digest of its outputs;
the simulator's own exit status proves nothing and is only shown when something went wrong.
This runner has been tested with stand-ins for the binary alone; see docs/corstone.md.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from npu_memplan.ethosu.arch import ACCELERATORS
from npu_memplan.files.folders import scratch_folder
from npu_memplan.target_data import Board, board_names, load_board

from .base import FirmwareError, RunnerError, RunnerMissingError, RunOptions, RunOutputs
from .firmware_build.build import Firmware, build, missing_compiler
from .firmware_run import END_OF_TRANSMISSION, Stopwatch, image_with_inputs, outputs_of, start_stopwatch
from .process import read_output, start_child
from .result import Array

HINT = (
    "download it from https://developer.arm.com (Arm Ecosystem FVPs), run its .sh with "
    "--i-agree-to-the-contained-eula --no-interactive -d ~/fvp, and set FVP_PATH=~/fvp"
)
_VERSION_S = 60.0  # to say its version, or less if a run may take less
_STDERR_BYTES = 1 << 16  # of the simulator's own errors, the last ones
_GRACE_S = 10.0  # between the firmware's end mark and the simulator's own end


class FvpError(RunnerError):
    """The FVP did not start, has no licence, or ended on its own."""


def find_binary(board: Board, options: RunOptions) -> Path | None:
    """The board's FVP: under the path that the options or FVP_PATH name, else on PATH."""
    if board.fvp is None:
        return None
    named = options.fvp_path or (Path(os.environ["FVP_PATH"]) if os.environ.get("FVP_PATH") else None)
    if named is None:
        found = shutil.which(board.fvp.binary)
        return Path(found) if found else None
    named = named.expanduser()
    if named.is_file():
        return named
    for candidate in _installed_paths(named, board.fvp.binary):
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    return None


def _installed_paths(folder: Path, binary: str) -> Iterator[Path]:
    """The places where Arm's installers put a binary below the folder they were given."""
    yield folder / binary
    yield folder / "bin" / binary
    yield from sorted(folder.glob(f"models/*/{binary}"), reverse=True)


def missing(options: RunOptions) -> str | None:
    boards = [load_board(options.board)] if options.board is not None else [load_board(n) for n in board_names()]
    names = list(dict.fromkeys(b.fvp.binary for b in boards if b.fvp is not None))
    if not names:
        return f"board {boards[0].name} names no FVP; add an [fvp] table to {boards[0].path}"
    if not any(find_binary(board, options) for board in boards):
        named = options.fvp_path or os.environ.get("FVP_PATH")
        where = f"not under {named}" if named else "neither on PATH nor named by FVP_PATH"
        return f"{' or '.join(names)} is {where}; {HINT}"
    return missing_compiler()


def create(directory: Path, options: RunOptions) -> FvpRunner:
    return FvpRunner(build(directory, options), options)


def command_line(binary: Path, firmware: Firmware, elf: Path, options: RunOptions) -> list[str]:
    """The FVP's command line: parameters and arguments of the board file, filled in."""
    board = firmware.board
    fvp = board.fvp
    assert fvp is not None
    accelerator = firmware.artifact.target.accelerator
    macs = ACCELERATORS[accelerator if accelerator != "none" else board.accelerators[0]].macs
    values = {"elf": str(elf), "macs": str(macs), "timeout_s": str(max(1, round(options.timeout_s)))}
    parameters = {**fvp.parameters, **({} if options.npu_cycles else fvp.fast_parameters)}
    command = [str(binary)]
    for name, value in parameters.items():
        command += ["-C", f"{name}={_fill_text(str(value), values, board)}"]
    return command + [_fill_text(argument, values, board) for argument in fvp.arguments]


def _fill_text(text: str, values: dict[str, str], board: Board) -> str:
    def field_value(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise FvpError(f"{board.path}: {{{match[1]}}} is unknown; the FVP's text may use: {', '.join(values)}")
        return values[match[1]]

    return re.sub(r"\{(\w+)\}", field_value, text)


class FvpRunner:
    name = "fvp"

    def __init__(self, firmware: Firmware, options: RunOptions) -> None:
        binary = find_binary(firmware.board, options)
        if binary is None:
            wanted = firmware.board.fvp.binary if firmware.board.fvp else "an FVP"
            raise RunnerMissingError(f"board {firmware.board.name} needs {wanted}, which is not installed; {HINT}")
        self.firmware = firmware
        self.binary = binary
        self.version = _binary_version(binary, options.timeout_s)
        self._options = options

    def run(self, inputs: Sequence[Array]) -> RunOutputs:
        image = image_with_inputs(self.firmware, inputs)
        if self._options.progress:
            self._options.progress(f"{self.binary.name}: {self.version}")
        with scratch_folder("fvp") as folder:
            elf = folder / "firmware.elf"
            elf.write_bytes(image.image)
            command = command_line(self.binary, self.firmware, elf, self._options)
            with (
                start_stopwatch(self.name, self.firmware.artifact, self._options) as watch,
                start_child(command, folder) as process,
            ):
                output, errors = _until_end(process, watch)
                seconds = watch.limit_s
        try:
            result = outputs_of(
                self.firmware,
                output,
                version=f"{self.binary.name} {self.version}",
                seconds=seconds,
                cycles_are_estimates=False,
            )
            if self._options.npu_cycles:
                return result
            return replace(result, npu_cycles=None, npu_beats=None)  # --fast counts nothing
        except FirmwareError as error:
            raise FirmwareError(_with_simulator(str(error), process, errors, self.binary)) from None


def _with_simulator(text: str, process: subprocess.Popen[bytes], errors: bytes, binary: Path) -> str:
    """The objection, with what the simulator itself wrote to stderr and how it ended."""
    stderr_lines = [line.strip() for line in errors.decode("utf-8", "replace").splitlines() if line.strip()][-6:]
    lines = [text, f"  {binary.name} ended with status {process.returncode}"]
    if any("licen" in line.lower() for line in stderr_lines) or "licen" in text.lower():
        lines.append("  it looks like a licence problem: check the FVP's licence before anything else")
    return "\n".join(lines + [f"    {line}" for line in stderr_lines])


def _until_end(process: subprocess.Popen[bytes], watch: Stopwatch) -> tuple[bytes, bytes]:
    """The simulator's output and errors, up to its end or shortly after the firmware's end mark."""
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors = bytearray(), bytearray()
    pipes = {process.stdout.fileno(): output, process.stderr.fileno(): errors}
    ended_at: float | None = None
    while pipes:
        wait = watch.left_s() if ended_at is None else max(0.0, ended_at + _GRACE_S - time.monotonic())
        for pipe in select.select(list(pipes), [], [], wait)[0]:
            data = os.read(pipe, 1 << 16)
            if ended_at is None or pipes[pipe] is errors:  # nothing of the firmware's comes after its end mark
                pipes[pipe] += data
            del errors[:-_STDERR_BYTES]
            if not data:
                pipes.pop(pipe)
        if ended_at is None and END_OF_TRANSMISSION in output:
            ended_at = time.monotonic()
        if ended_at is None:
            watch.check_limit(output)
        elif time.monotonic() >= ended_at + _GRACE_S:
            break
    if not pipes:
        process.wait()
    return bytes(output), bytes(errors)


def _binary_version(binary: Path, timeout_s: float) -> str:
    """The version that the binary prints; "unknown version" when it prints none."""
    try:
        answer = read_output([binary, "--version"], min(timeout_s, _VERSION_S))
    except RunnerMissingError as error:
        raise FvpError(f"{binary} does not start: {error}") from None
    if answer.stopped:
        raise FvpError(f"{binary} was run with --version and was stopped: {answer.stopped}; is it Arm's FVP?")
    match = re.search(r"\d+\.\d+[._]\d+[^\s\]]*", answer.text)
    return match[0] if match else "unknown version"
