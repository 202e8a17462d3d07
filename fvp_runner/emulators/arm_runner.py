"""Arm's own inference runners, compiled by Arm, on QEMU and our NPU model: TFLite Micro or ExecuTorch, Arm's driver.

Invariant: the program is Arm's binary of the wheel `mlia-ethos-u`, unchanged; network and inputs are put where it reads
them, outputs are read back from where it writes them. Results are what Arm's firmware computed with our NPU; cycles are
our estimate, whatever the firmware prints. Addresses: what the runner of MLEK 26.03 prints, and MLIA's command line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from npu_memplan.ethosu.arch import Architecture
from npu_memplan.target_data import Board

from ..base import RunnerError, RunnerMissingError, RunOptions
from ..result import Array
from ..transcript import END_OF_TRANSMISSION
from .fvp_command import find_models
from .own_elf import MemoryFiles, run_elf
from .qemu_machine import Semihosting

_MODEL, _INPUTS, _OUTPUTS = 0x9000_0000, 0x9200_0000, 0x9300_0000
_MODEL_BYTES = _INPUTS - _MODEL
_BINARY = "mlek_inference_runner.axf"
_WHEEL, _FOLDER = "mlia-ethos-u", "mlia/resources/backends/applications"
_ENVIRONMENT = "NPU_MEMPLAN_ARM_RUNNERS"
HINT = f"pip install 'npu_memplan[arm]', or name the folder of its inference runners in {_ENVIRONMENT}"
_SERIES = re.compile(r"SSE-(\d+)")  # in the name of the board's FVP
_ARENA = re.compile(r"tensor arena\) size used: (\d+)")
_TEMPORARY = re.compile(r"Temp memory: Used: \d+; Peak: (\d+)")
_ERROR = re.compile(r"^(?:ERROR - |E \[ExecuTorch:|TFLM - (?:Failed|Didn't)).*$", re.M)


class ArmRunnerError(RunnerError):
    """Arm's runner did not run the network; the message has its own words."""


@dataclass(frozen=True, slots=True, eq=False)
class ArmRun:
    """What Arm's runner did with a network. `memory_bytes` as the runner printed it: TFLite Micro's arena with its own
    structures, or the peak of ExecuTorch's temporary memory.
    """

    outputs: tuple[Array, ...]
    runner: str  # name of Arm's application
    memory_bytes: int
    cycles: int  # of the NPU: an estimate of ours
    seconds: float
    console: str


def find_application(runtime: str, npu: Architecture, board: str = "") -> tuple[Path, Board]:
    """Arm's runner of `runtime` ("tflm" or "executorch") for an NPU, and the board that QEMU has for it.

    `RunnerMissingError` where the wheel is not installed, or has none for them.
    """
    family, what = npu.name.rpartition("-")[0], {"tflm": "TFLite Micro", "executorch": "ExecuTorch"}[runtime]
    known = find_boards(npu)
    boards = {name: place for name, place in known.items() if board in ("", name)}
    if not boards:
        there_are = ", ".join(known) or "none"
        raise RunnerMissingError(
            f"Arm's runners for {npu.name} cannot run on {board or 'any board'} here; QEMU has: {there_are}"
        )
    folder = _applications()
    for place in boards.values():
        series = _SERIES.search(place.fvp.binary if place.fvp else "")
        pattern = f"inference_runner-sse-{series[1] if series else ''}-*-{runtime}-ethos-U{family[-2:]}-*/{_BINARY}"
        if found := sorted(folder.glob(pattern)):
            return found[-1], place
    raise RunnerMissingError(
        f"Arm's wheel has no runner of {what} for {family} on {', '.join(boards)} ({folder}); {HINT}"
    )


def find_boards(npu: Architecture) -> dict[str, Board]:
    """Boards with an FVP that QEMU runs, by name, each with `npu`, which is in it or in another FVP of the board."""
    found: dict[str, Board] = {}
    for board, _ in find_models().values():
        if npu.name in board.accelerators:
            found[board.name] = board
    return found


def _applications() -> Path:
    if named := os.environ.get(_ENVIRONMENT):
        return Path(named)
    try:
        return Path(str(metadata.distribution(_WHEEL).locate_file(_FOLDER)))
    except metadata.PackageNotFoundError:
        raise RunnerMissingError(f"Arm's inference runners are not installed: {HINT}") from None


def run_network(
    network: bytes,
    inputs: Sequence[Array],
    wanted: Sequence[tuple[str, tuple[int, ...]]],
    npu: Architecture,
    runtime: str,
    options: RunOptions,
) -> ArmRun:
    """Run a `.tflite` or `.pte` once in Arm's runner; `wanted` has type and shape of each output.

    `ArmRunnerError` where it ends without outputs, `RunTimeoutError` where it does not end.
    """
    if len(network) > _MODEL_BYTES:
        raise ArmRunnerError(f"the network has {len(network):,} bytes; Arm's runner has {_MODEL_BYTES:,} for it")
    program, board = find_application(runtime, npu, str(options.board or ""))
    given = b"".join(np.ascontiguousarray(array).tobytes() for array in inputs)
    sizes = [np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64)) for dtype, shape in wanted]
    memory = MemoryFiles(((_MODEL, network), (_INPUTS, given)), ((_OUTPUTS, sum(sizes)),))
    ends = (bytes([END_OF_TRANSMISSION]),)
    ran = run_elf(program, board, options, npu.name, Semihosting(), memory=memory, ends=ends)
    errors = [*ran.failed_jobs, *_ERROR.findall(ran.console)]
    if errors or "Inference completed" not in ran.console:
        raise ArmRunnerError(f"{program.parent.name}: {'; '.join(errors[:3]) or 'it ended before the inference did'}")
    places = np.cumsum([0, *sizes]).tolist()
    outputs: list[Any] = [
        np.frombuffer(ran.contents[0][start:stop], dtype).reshape(shape)
        for (dtype, shape), start, stop in zip(wanted, places, places[1:], strict=False)
    ]
    printed = (_ARENA if runtime == "tflm" else _TEMPORARY).findall(ran.console)
    return ArmRun(
        tuple(outputs), program.parent.name, int(printed[-1]) if printed else 0, sum(j.cycles for j in ran.jobs),
        ran.seconds, ran.console,
    )  # fmt: skip
