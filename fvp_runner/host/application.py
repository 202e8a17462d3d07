"""Linked networks on one memory, in a random order of runs, each compared with the same network alone.

Invariant: the pools are the application's, of the bytes that its plan gives them. Before every run, each byte that no
network keeps is poisoned, so a network that needs what another one's run destroys gives other outputs or reads what
was never written.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from npu_memplan.artifact import Artifact
from npu_memplan.artifact.files import Application, ApplicationError, joint_name, tensor_buffers
from npu_memplan.artifact.model import TensorSlot
from npu_memplan.files.arrays import random_array
from npu_memplan.problem import POISON, BufferKind

from ..base import RunCheckError, RunOptions, load_artifact
from ..guards import GuardedPool
from ..result import Array
from .runner import ALIGNMENT_BYTES, LocalRunner

_KEPT = (BufferKind.STATE, BufferKind.RESIDENT)
_OVERLAPPED = 0.5  # of the runs of networks that may run together
_Flags = Sequence[npt.NDArray[np.bool_]]  # by pool


class ApplicationRunError(RunCheckError):
    """A linked network gave other outputs than alone."""


@dataclass(frozen=True, slots=True)
class ApplicationResult:
    """How often each network ran, all of them with the outputs that they have alone; `overlapped`: during another."""

    runs: Mapping[str, int]
    overlapped: int = 0


class ApplicationRunner:
    """The application in `folder`; its joint plan, and the places of the networks, are verified first."""

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
        connected = {end for pair in self.application.connected for end in pair}
        self._passing = [~kept for kept in self._bytes_of("", _KEPT, connected)]
        self._own = {
            name: [
                own & passing for own, passing in zip(self._bytes_of(joint_name(name, "")), self._passing, strict=True)
            ]
            for name in self._shared
        }
        self._made: dict[str, Array] = {}  # outputs of the last runs, by joint name
        self._events = dict.fromkeys(self._shared, 1)  # of the last run: places at which another network may run

    def _bytes_of(
        self, prefix: str, kinds: Collection[BufferKind] = tuple(BufferKind), others: Collection[str] = ()
    ) -> _Flags:
        """The bytes of the buffers of these names and kinds, and of `others`, by pool."""
        found = [np.zeros(guarded.pool.size, np.bool_) for guarded in self._guarded]
        index = {pool.name: i for i, pool in enumerate(self.joint.run_pools)}
        for buffer, at in zip(self.joint.problem.buffers, self.joint.plan.placements, strict=True):
            if (buffer.name.startswith(prefix) and buffer.kind in kinds) or buffer.name in others:
                found[index[at.pool]][at.offset_bytes : at.offset_bytes + buffer.size_bytes] = True
        return found

    def run(self, count: int, seed: int) -> ApplicationResult:
        """`count` runs in a random order; `ApplicationRunError` at the first that differs."""
        order, generator = random.Random(seed), np.random.default_rng(seed)
        names = list(self._shared)
        for name in names:
            self._alone[name].reset()
            self._shared[name].reset()  # what its init writes is looked at
        for guarded in self._guarded:
            guarded.pool[:] = POISON
        for name in names:  # as the application's own init does
            self._shared[name].start()
        done: Counter[str] = Counter()
        overlapped = 0
        while done.total() < count:
            number = done.total()
            name = names[number] if number < len(names) else order.choice(names)  # each once, then any
            others = self._partner_names(name) if names[-1] in done and number + 1 < count else []
            other = order.choice(others) if others and order.random() < _OVERLAPPED else ""
            where = f"run {number + 1} of {count}, of {name}" + (f", with {other} during it" if other else "")
            at = order.randrange(self._events[name])
            both = self._run_network(name, generator, self._passing, where, other, at) > at and bool(other)
            done.update([name, other] if both else [name])
            overlapped += both
        return ApplicationResult(dict(done), overlapped)

    def _input_array(self, name: str, slot: TensorSlot, generator: np.random.Generator, where: str) -> Array:
        """A random array; or what another network has made, which is still there."""
        buffer = tensor_buffers(self._shared[name].artifact, BufferKind.INPUT).get(slot.name, "")
        output = next((one for one, given in self.application.connected if given == joint_name(name, buffer)), "")
        if output not in self._made:
            made: Array = random_array(slot, generator)
            return made
        wanted = self._made[output]
        pool = [pool.name for pool in self.joint.run_pools].index(slot.pool)
        there = self._guarded[pool].pool[slot.offset_bytes : slot.offset_bytes + slot.size_bytes]
        if not np.array_equal(there, np.ascontiguousarray(wanted).reshape(-1).view(np.uint8)):
            raise ApplicationRunError(
                f"{where}: input {slot.name} has not the bytes that {output} was given; link the networks again"
            )
        found: Array = there.copy().view(slot.dtype).reshape(slot.shape)
        return found

    def _partner_names(self, name: str) -> list[str]:
        """Networks that may run together with `name`."""
        pairs = self.application.together
        return sorted({other for pair in pairs if name in pair for other in pair if other != name})

    def _run_network(
        self, name: str, generator: np.random.Generator, poisoned: _Flags, where: str, other: str = "", at: int = 0
    ) -> int:
        """One run of `name`, with a run of `other` at its event `at`; how many events there were."""
        shared, events = self._shared[name], 0

        def at_event() -> None:
            nonlocal events
            if other and events == at:
                self._run_network(other, generator, self._own[other], f"{where}: {other}")
            events += 1

        inputs: list[Array] = [self._input_array(name, slot, generator, where) for slot in shared.artifact.inputs]
        for guarded, flags in zip(self._guarded, poisoned, strict=True):
            guarded.pool[flags] = POISON
        shared.forget_pools()
        shared.between = at_event
        found = shared.run_next(inputs).outputs
        self._events[name] = max(1, events)
        buffers = tensor_buffers(shared.artifact, BufferKind.OUTPUT)
        for slot, made in zip(shared.artifact.outputs, found, strict=True):
            if slot.name in buffers:
                self._made[joint_name(name, buffers[slot.name])] = made
        wanted = self._alone[name].run_next(inputs).outputs
        for slot, one, wants in zip(shared.artifact.outputs, found, wanted, strict=True):
            bytes_of = (np.frombuffer(values.tobytes(), np.uint8) for values in (one, wants))
            differ = int(np.count_nonzero(np.not_equal(*bytes_of)))
            if differ:
                raise ApplicationRunError(
                    f"{where}: {differ} bytes of output {slot.name} differ from those of {name} alone; link the "
                    "networks again"
                )
        return events


def _check_places(network: str, artifact: Artifact, joint: Artifact) -> None:
    at = {p.buffer: p for p in joint.plan.placements}
    for placement in artifact.plan.placements:
        name = joint_name(network, placement.buffer)
        if at.get(name) != replace(placement, buffer=name):
            raise ApplicationError(
                f"buffer {placement.buffer} of {network} does not lie where the plan of the application says; link the "
                "networks again"
            )
