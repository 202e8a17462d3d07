"""One inference on the local runner, with every tensor that is written kept as it is written.

Invariant: the program, its pools and its streams are those of an ordinary run; what is kept are copies, made when an
NPU operation or a host call has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npu_memplan.artifact import Artifact
from npu_memplan.problem import Agent
from npu_memplan.vocabulary import TFLITE_RESHAPING

from ..base import RunOutputs
from ..host.runner import LocalRunner
from ..npu_model.bound.dma import Dma
from ..npu_model.bound.operation import Bound
from ..npu_model.network.layers import Written, seen
from ..npu_model.spec.layout import Bytes
from ..npu_model.spec.stream import DecodedStep
from ..result import Array


@dataclass(frozen=True, slots=True)
class NpuOutput(Written):
    """What one kernel wrote."""

    operator: int = -1  # of the source model; -1: not known


@dataclass(frozen=True, slots=True)
class HostOutput:
    """What a host call wrote: the bytes of a planned buffer."""

    where: str
    operator: int  # of the source model; -1: not known
    buffer: str
    data: Bytes


class Recorder:
    """Watches a `LocalRunner`; see `LocalRunner.watch`."""

    def __init__(self, runner: LocalRunner) -> None:
        self.written: list[NpuOutput | HostOutput] = []
        self._runner, self._artifact = runner, runner.artifact
        self._served = [call.operators for call in self._artifact.calls if call.agent is Agent.NPU]
        self._operator_of = _host_operators(self._artifact)

    def npu(self, launch: int, step: DecodedStep, bound: Bound) -> None:
        if isinstance(bound, Dma):
            return
        served = self._served[launch] if launch < len(self._served) else ()
        index = step.registers.index
        operator = served[index] if index < len(served) else -1
        self.written.append(NpuOutput(*seen(step, bound, launch), operator))

    def host(self, number: int) -> None:
        call = self._artifact.calls[number]
        for name in call.writes:
            operator = self._operator_of.get(number, -1)
            self.written.append(HostOutput(f"host call {call.function}", operator, name, self._bytes(name)))

    def _bytes(self, buffer: str) -> Bytes:
        artifact = self._artifact
        place = next(p for p in artifact.plan.placements if p.buffer == buffer)
        pool = [p.name for p in artifact.run_pools].index(place.pool)
        size = artifact.problem.buffer(buffer).size_bytes
        data: Bytes = self._runner.pools[pool][place.offset_bytes : place.offset_bytes + size].copy()
        return data


def _host_operators(artifact: Artifact) -> dict[int, int]:
    """Call -> operator of the source model, where each of the host's operators that computes is one call, in order."""
    calls = [number for number, call in enumerate(artifact.calls) if call.agent is Agent.HOST]
    operators = [
        index
        for index, operator in enumerate(artifact.operators)
        if operator.agent is Agent.HOST and operator.kind not in TFLITE_RESHAPING
    ]
    return dict(zip(calls, operators, strict=True)) if len(calls) == len(operators) else {}


def recorded_run(runner: LocalRunner, inputs: Sequence[Array]) -> tuple[RunOutputs, list[NpuOutput | HostOutput]]:
    """One inference from a fresh start and what it wrote. `RunnerError` for programs with branches."""
    recorder = Recorder(runner)
    runner.watch = recorder
    try:
        return runner.run(inputs), recorder.written
    finally:
        runner.watch = None
