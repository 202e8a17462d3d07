"""Linked networks on one memory, in a random order of runs, each beside the same network alone.

Invariant: the pools are the application's, of the bytes that its plan gives them. Before every run, each byte that no
network keeps is poisoned, so a network that needs what another one's run destroys gives other outputs or reads what
was never written.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from npu_memplan.artifact import Artifact
from npu_memplan.artifact.application import Application, ApplicationError, named
from npu_memplan.files.arrays import random_array
from npu_memplan.problem import POISON, BufferKind

from ..base import RunCheckError, RunOptions, load_artifact
from ..guards import GuardedPool
from ..result import Array
from .runner import ALIGNMENT_BYTES, LocalRunner

_KEPT = (BufferKind.STATE, BufferKind.RESIDENT)


class ApplicationRunError(RunCheckError):
    """A linked network gave other outputs than alone."""


@dataclass(frozen=True, slots=True)
class ApplicationResult:
    """How often each network ran, all of them with the outputs that they have alone."""

    runs: Mapping[str, int]


class ApplicationRunner:
    """The application in `folder`; its joint plan, and that networks lie where it says, are verified first."""

    def __init__(self, folder: Path, options: RunOptions) -> None:
        self.application = Application.load(folder)
        self.joint = load_artifact(folder, options)
        pools = self.joint.run_pools
        self._guarded = tuple(
            GuardedPool(self.joint.pool_bytes(pool.name), max(pool.alignment, ALIGNMENT_BYTES)) for pool in pools
        )
        self._shared: dict[str, LocalRunner] = {}
        self._alone: dict[str, LocalRunner] = {}
        for network in self.application.networks:
            place = folder / network.name
            artifact = Artifact.load(place)
            _check_places(network.name, artifact, self.joint)
            self._shared[network.name] = LocalRunner(place, options, self._guarded)
            self._alone[network.name] = LocalRunner(place, options)
        self._kept = [np.zeros(guarded.pool.size, np.bool_) for guarded in self._guarded]
        index = {pool.name: i for i, pool in enumerate(pools)}
        for buffer, at in zip(self.joint.problem.buffers, self.joint.plan.placements, strict=True):
            if buffer.kind in _KEPT:
                self._kept[index[at.pool]][at.offset_bytes : at.offset_bytes + buffer.size_bytes] = True

    def run(self, count: int, seed: int) -> ApplicationResult:
        """`count` runs in a random order; `ApplicationRunError` at the first that differs."""
        order, generator = random.Random(seed), np.random.default_rng(seed)
        names = [network.name for network in self.application.networks]
        for name in names:
            self._alone[name].reset()
            self._shared[name].reset()  # what its init writes is looked at
        for guarded in self._guarded:
            guarded.pool[:] = POISON
        for name in names:  # as the application's own init does
            self._shared[name].start()
        done: Counter[str] = Counter()
        for number in range(count):
            name = names[number] if number < len(names) else order.choice(names)  # each once, then any
            inputs: list[Array] = [random_array(slot, generator) for slot in self._shared[name].artifact.inputs]
            for guarded, kept in zip(self._guarded, self._kept, strict=True):
                guarded.pool[~kept] = POISON
            self._shared[name].forget()
            found = self._shared[name].infer(inputs).outputs
            wanted = self._alone[name].infer(inputs).outputs
            for slot, one, other in zip(self._shared[name].artifact.outputs, found, wanted, strict=True):
                bytes_of = (np.frombuffer(values.tobytes(), np.uint8) for values in (one, other))
                differ = int(np.count_nonzero(np.not_equal(*bytes_of)))
                if differ:
                    raise ApplicationRunError(
                        f"run {number + 1} of {count}, of {name}: {differ} bytes of output {slot.name} differ from "
                        f"those of {name} alone; link the networks again"
                    )
            done[name] += 1
        return ApplicationResult(done)


def _check_places(network: str, artifact: Artifact, joint: Artifact) -> None:
    at = {p.buffer: p for p in joint.plan.placements}
    for placement in artifact.plan.placements:
        name = named(network, placement.buffer)
        if at.get(name) != replace(placement, buffer=name):
            raise ApplicationError(
                f"buffer {placement.buffer} of {network} does not lie where the plan of the application says; link the "
                "networks again"
            )
