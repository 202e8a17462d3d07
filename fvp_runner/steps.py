"""A sequence of inferences, states kept from one to the next, on a runner and on its reference.

Invariant: outputs hold all steps, as their first dimension, so code that compares and writes one inference serves a
sequence too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np

from .base import Runner, RunnerError, RunOutputs
from .host.runner import LocalRunner
from .result import Array


class SteppedReference(Protocol):
    def reset(self) -> None: ...
    def step(self, inputs: Sequence[Array]) -> tuple[Array, ...]: ...


@runtime_checkable
class SteppedRunner(Protocol):
    """A runner whose firmware makes several inferences."""

    def run_steps(self, sequence: Sequence[Sequence[Array]]) -> RunOutputs: ...


def run_steps(runner: Runner, sequence: Sequence[Sequence[Array]]) -> RunOutputs:
    """One inference for each of `sequence`, from a fresh start; `RunnerError` where the runner does one only."""
    if isinstance(runner, SteppedRunner):
        return runner.run_steps(sequence)
    if not isinstance(runner, LocalRunner):
        raise RunnerError(
            f"several inferences one after another are for the local runner and the emulators; {runner.name} starts "
            "anew for each: add --on local or --on qemu"
        )
    runner.reset()
    ran = [runner.run_next(inputs) for inputs in sequence]
    outputs = tuple(np.stack(step) for step in zip(*(r.outputs for r in ran), strict=True))
    notes = tuple(dict.fromkeys(note for r in ran for note in r.notes))
    return replace(ran[-1], outputs=outputs, notes=notes, seconds=sum(r.seconds for r in ran))


def reference_steps(model: SteppedReference, sequence: Sequence[Sequence[Array]]) -> tuple[Array, ...]:
    model.reset()
    made = [model.step(inputs) for inputs in sequence]
    return tuple(np.stack(step) for step in zip(*made, strict=True))
