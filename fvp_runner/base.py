"""What all runners share: their interface, options and errors, and loading of an artifact.

Invariant: no runner gets an artifact whose plan violates a constraint of `npu_memplan.verify`, and this module imports
no other one of the runners'.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from npu_memplan.artifact import Artifact
from npu_memplan.artifact.model import FILE_NAME
from npu_memplan.errors import NpuMemplanError
from npu_memplan.problem import POISON as POISON  # runners take it from here
from npu_memplan.problem import ProblemError
from npu_memplan.sizes import count_text
from npu_memplan.verify import VerificationError, check

from .result import Array


class RunnerError(NpuMemplanError):
    """A run could not be started, did not finish, or did not prove that it finished."""


class RunnerMissingError(RunnerError):
    """The runner needs something that is not installed; the message says how to install it."""


class PlanRefusedError(RunnerError):
    """The plan of an artifact is not right; nothing was built or run."""


class RunCheckError(RunnerError):
    """A run did something that no right program does."""


class RunTimeoutError(RunnerError):
    """The time limit passed; nothing of the run is left behind, but for C of this process that cannot be stopped."""


class FirmwareError(RunnerError):
    """The firmware ran and reported an error, or said something that contradicts itself."""


def wants_sanitizer() -> bool:
    """Whether $NPU_MEMPLAN_SANITIZE sets `RunOptions.sanitize`."""
    return os.environ.get("NPU_MEMPLAN_SANITIZE", "") not in ("", "0")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run that a user may choose; every runner takes what concerns it."""

    board: str | Path | None = None  # name or file; None: the accelerator's own board
    cpu: str | None = None  # GCC's -mcpu; None: the board's (unicorn: cortex-m33)
    timeout_s: float = 300.0  # wall time of one run; a host build may take as long, a minute at least
    interrupt: bool = False  # wait for the NPU's interrupt instead of polling
    build_folder: Path | None = None  # None: <artifact>/firmware
    fvp_path: Path | None = None  # binary of Arm's FVP, or the folder it is in
    checks: bool = True  # uninitialised reads, hazards: what hardware does not check
    sanitize: bool = field(default_factory=wants_sanitizer)  # host: build its C with the compiler's sanitizers
    verify: bool = True  # hold the plan to `npu_memplan.verify` first; tests of wrong plans do not
    npu_cycles: bool = False  # FVP: count cycles (slow) instead of --fast
    pools_after: bool = True  # read all pools back when the run is over
    progress: Callable[[str], None] | None = None  # called with what is being done, a line at a time
    defines: tuple[str, ...] = ()  # extra -D for the firmware
    steps: int = 1  # inferences one after another that the firmware makes; its image holds the inputs of all
    external_sources: tuple[Path, ...] = ()  # C that defines the artifact's external functions


@dataclass(frozen=True, slots=True)
class RunOutputs:
    """The results of one run."""

    outputs: tuple[Array, ...]  # in the artifact's order, with its shapes and types
    pools_after: tuple[Array, ...] | None = None  # final bytes in the artifact's order, where the runner sees them
    npu_cycles: int | None = None  # of all calls of one inference, where known
    cycles_are_estimates: bool = True  # the NPU model's guess, not a measurement
    adapters_set: bool = False  # the FVP's timing adapters have the system configuration's speeds, read back
    npu_beats: tuple[int, ...] | None = None  # AXI port 0 read, written, port 1 read, written; as sure as the cycles
    stack: tuple[int, int] | None = None  # firmware: bytes used at most, measured; bytes there are
    transcript: str = ""
    version: str = ""
    seconds: float = 0.0
    notes: tuple[str, ...] = field(default_factory=tuple)


class Runner(Protocol):
    """One way to run an artifact."""

    name: str

    def run(self, inputs: Sequence[Array]) -> RunOutputs:
        """Run one inference on `inputs` (artifact's order, shapes and types)."""


def load_artifact(directory: Path | str, options: RunOptions) -> Artifact:
    artifact = Artifact.load(directory)
    if options.verify:
        try:
            check(artifact.problem, artifact.plan)
        except (VerificationError, ProblemError) as error:
            raise PlanRefusedError(f"{Path(directory) / FILE_NAME} is not run: {error}") from None
    return artifact


def fitting_inputs(artifact: Artifact, inputs: Sequence[Array]) -> Sequence[Array]:
    """`inputs`, which have the number, types and shapes of the artifact's, or `RunnerError`; scalars are [1]."""
    if len(inputs) != len(artifact.inputs):
        raise RunnerError(f"{artifact.name} has {count_text(len(artifact.inputs), 'input')}, {len(inputs)} were given")
    inputs = [
        values.reshape(slot.shape) if values.shape == () and slot.shape == (1,) else values
        for slot, values in zip(artifact.inputs, inputs, strict=True)
    ]
    for slot, values in zip(artifact.inputs, inputs, strict=True):
        if values.dtype.name != slot.dtype or values.shape != slot.shape:
            raise RunnerError(
                f"input {slot.name!r} of {artifact.name} is {slot.dtype}{list(slot.shape)}, "
                f"but {values.dtype.name}{list(values.shape)} was given"
            )
    return inputs
