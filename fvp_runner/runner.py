"""The choice of a runner, also where the user names none.

Invariant: a runner starts the artifact on its planned pools and gives back what those pools hold; it never computes a
result itself. The automatic choice is the first of fvp, qemu, unicorn, local that can run here and whose board the
program fits; it is always reported by name.

Each runner is a module with two functions: `missing(options) -> str | None` and `create(directory, options) -> Runner`.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from npu_memplan.process.incidents import Fallback, fall_back

from .base import Runner, RunnerError, RunnerMissingError, RunOptions, load_artifact
from .firmware_build.build import board_of
from .firmware_build.sources import LayoutError

# Order of preference: nearest to the real thing first.
_MODULES = {"fvp": "fvp", "qemu": "emulators.qemu", "unicorn": "emulators.unicorn", "local": "host.runner"}
RUNNERS = tuple(_MODULES)


def _runner_module(name: str) -> Any:
    if name not in RUNNERS:
        raise RunnerError(f"unknown runner {name!r}; choose one of: {', '.join(RUNNERS)}")
    return importlib.import_module(f"fvp_runner.{_MODULES[name]}")


def missing(name: str, options: RunOptions | None = None) -> str | None:
    """Why runner `name` cannot run here, with what to install; None when it can."""
    reason: str | None = _runner_module(name).missing(options or RunOptions())
    return reason


def choose_runner(options: RunOptions | None = None) -> str:
    """Name of the best runner that can run here, which is reported where a better one cannot (`process.incidents`);
    `RunnerMissingError` says why none can."""
    reasons: list[str] = []
    for name in RUNNERS:
        reason = missing(name, options)
        if reason is None:
            if reasons:
                passed = ", ".join(RUNNERS[: len(reasons)])
                fall_back(
                    Fallback.RUNNER, f"runner {name} was taken: {passed} cannot run here (npu-memplan doctor says why)"
                )
            return name
        reasons.append(f"  {name}: {reason}")
    raise RunnerMissingError("no runner can run here:\n" + "\n".join(reasons))


def create(name: str | None, artifact: Path | str, options: RunOptions | None = None) -> Runner:
    """The runner called `name` (None or "auto": the best one installed) for an artifact directory.

    Raises `RunnerMissingError` when it cannot run here, and what the build of the firmware raises.
    """
    options = options or RunOptions()
    board = board_of(load_artifact(artifact, options), options)
    options = replace(options, board=board.path or board.name)
    if name in (None, "auto"):
        return _create_best(Path(artifact), options)
    reason = missing(str(name), options)
    if reason is not None:
        raise RunnerMissingError(f"runner {name!r} cannot run here: {reason}")
    runner: Runner = _runner_module(str(name)).create(Path(artifact), options)
    return runner


def _create_best(artifact: Path, options: RunOptions) -> Runner:
    """The best runner that can run here; the local one where its board is too small for the program."""
    best = choose_runner(options)
    runner: Runner
    try:
        runner = _runner_module(best).create(artifact, options)
    except LayoutError as error:
        if missing("local", options) is not None:
            raise
        runner = _runner_module("local").create(artifact, options)
        fall_back(Fallback.RUNNER, f"runner local, which has no board, runs it instead of {best}: {error}")
    return runner
