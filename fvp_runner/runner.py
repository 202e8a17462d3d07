"""The one face of every runner, and which of them is taken when the user names none.

Invariant: a runner starts the artifact on its planned pools and gives back what those pools
hold; it never computes a result itself. The automatic choice is the first of fvp, qemu,
unicorn, host that can run here, and the choice is always told to the user by name.

Each runner is a module `fvp_runner.<name>` with two functions: `missing(options) -> str | None`
and `create(artifact_directory, options) -> Runner`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from npu_memplan.artifact import Artifact
from npu_memplan.errors import NpuMemplanError

from .result import Array

# Order of preference: nearest to the real thing first.
RUNNERS = ("fvp", "qemu", "unicorn", "host")

# Every pool is filled with this byte before a run, so that a byte nobody wrote shows.
POISON = 0xA5


class RunnerError(NpuMemplanError):
    """A run could not be started, did not finish, or did not prove that it finished."""


class RunnerMissingError(RunnerError):
    """What the runner needs is not installed; the message says how to install it."""


class RunTimeoutError(RunnerError):
    """The time limit passed; nothing of the run is left behind."""


class FirmwareError(RunnerError):
    """The firmware ran and reported an error, or said something that contradicts itself."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a user may choose about a run; every runner takes what concerns it."""

    board: str | Path | None = None  # name or file; None: the accelerator's own board
    cpu: str | None = None  # GCC's -mcpu; None: the board's (unicorn: cortex-m33)
    timeout_s: float = 300.0  # wall time of one run, without the build
    interrupt: bool = False  # wait for the NPU's interrupt instead of polling
    build_folder: Path | None = None  # None: <artifact>/firmware
    fvp_path: Path | None = None  # binary of Arm's FVP, or the folder it is in
    checks: bool = True  # uninitialised reads, hazards: what hardware does not check
    npu_cycles: bool = False  # FVP: count cycles (slow) instead of --fast
    pools_after: bool = True  # read all pools back when the run is over
    progress: Callable[[str], None] | None = None  # told what is being done, a line at a time
    defines: tuple[str, ...] = ()  # extra -D for the firmware


@dataclass(frozen=True, slots=True)
class RunOutputs:
    """What came out of one run.

    `outputs` are in the artifact's order, with its shapes and types. `pools_after` has the
    final bytes of each pool in the artifact's order, where the runner can see them.
    """

    outputs: tuple[Array, ...]
    pools_after: tuple[Array, ...] | None = None
    npu_cycles: int | None = None
    cycles_are_estimates: bool = True  # the NPU model's guess, not a measurement
    stack: tuple[int, int] | None = None  # firmware: bytes used at most, measured; bytes there are
    transcript: str = ""
    version: str = ""
    seconds: float = 0.0
    notes: tuple[str, ...] = field(default_factory=tuple)

    @property
    def cycles(self) -> int | None:
        """NPU cycles of all calls of one inference, where known."""
        return self.npu_cycles


class Runner(Protocol):
    """One way to run an artifact."""

    name: str

    def run(self, inputs: Sequence[Array]) -> RunOutputs:
        """Run one inference on `inputs` (artifact's order, shapes and types)."""
        ...


def _module(name: str) -> Any:
    if name not in RUNNERS:
        raise RunnerError(f"unknown runner {name!r}; choose one of: {', '.join(RUNNERS)}")
    return importlib.import_module(f"fvp_runner.{name}")


def missing(name: str, options: RunOptions | None = None) -> str | None:
    """Why runner `name` cannot run here, with what to install; None when it can."""
    reason: str | None = _module(name).missing(options or RunOptions())
    return reason


def choose(options: RunOptions | None = None) -> str:
    """Name of the best runner that can run here; `RunnerMissingError` says why none can."""
    reasons = []
    for name in RUNNERS:
        reason = missing(name, options)
        if reason is None:
            return name
        reasons.append(f"  {name}: {reason}")
    raise RunnerMissingError("no runner can run here:\n" + "\n".join(reasons))


def create(name: str | None, artifact: Path | str, options: RunOptions | None = None) -> Runner:
    """The runner called `name` (None or "auto": the best one installed) for an artifact directory.

    Raises `RunnerMissingError` when it cannot run here, and what the build of the firmware raises.
    """
    from .build import board_of  # builds import this module

    options = options or RunOptions()
    board = board_of(Artifact.load(artifact), options)
    options = replace(options, board=board.path or board.name)
    chosen = choose(options) if name in (None, "auto") else str(name)
    reason = missing(chosen, options)
    if reason is not None:
        raise RunnerMissingError(f"runner {chosen!r} cannot run here: {reason}")
    runner: Runner = _module(chosen).create(Path(artifact), options)
    return runner
