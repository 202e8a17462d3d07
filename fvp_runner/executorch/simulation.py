"""One inference of a method on the NPU model: the whole method where all its kernels are known, else its delegates.

Invariant: delegates that are run alone get inputs of their own, and the result says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.time import MemoryMap
from npu_memplan.models.executorch.program import ExecutorchProgram, KernelCall, Method
from npu_memplan.models.executorch.vela_network import EthosUCall, npu_calls

from ..npu_model.checks.footprint import extents
from ..npu_model.model import NpuModel, RunStats
from .inputs import MethodInput, delegate_inputs, method_inputs
from .model import ExecutorchModel, missing_kernels, run_delegate

Given = Callable[[str, Sequence[MethodInput]], Sequence[NDArray[Any]]]


@dataclass(frozen=True, slots=True, eq=False)
class Simulated:
    """What one inference gave; `outputs` are None where only delegates were run."""

    method: Method
    calls: tuple[EthosUCall, ...]
    stats: tuple[RunStats, ...]
    outputs: tuple[NDArray[Any], ...] | None
    missing: tuple[str, ...]  # operators that are not run here

    @property
    def operators(self) -> list[str]:
        """The method's own operators, in its order."""
        return [i.name for i in self.method.instructions if isinstance(i, KernelCall)]

    @property
    def copied_bytes(self) -> tuple[int, int]:
        """Bytes that the runtime copies into the scratch and out of it, each call once."""
        tensors = [(c.network.tensors, c.call) for c in self.calls]
        return (
            sum(t[i].size_bytes for t, call in tensors for i in call.inputs),
            sum(t[i].size_bytes for t, call in tensors for i in call.outputs),
        )

    @property
    def scratch_bytes(self) -> int:
        """What the temporary allocator needs: the calls come one after another."""
        return max((c.blocks.scratch_bytes for c in self.calls), default=0)


def simulate(program: ExecutorchProgram, method: Method, given: Given, where: MemoryMap, checks: bool) -> Simulated:
    """Run `method` on what `given` makes for its inputs; errors of `NpuModel.run`."""
    calls = tuple(one for one in npu_calls(program) if one.method is method)
    missing = tuple(missing_kernels(method))
    if not missing:
        inputs = given(program.name, method_inputs(method, calls))
        ran = ExecutorchModel(program, method, checks, where).run(inputs)
        return Simulated(method, calls, ran.stats, ran.outputs, ())
    stats = []
    for one in calls:
        wanted = delegate_inputs(one)
        values = [np.ascontiguousarray(value).reshape(-1).view(np.uint8) for value in given(one.network.name, wanted)]
        model = NpuModel(one.call.accelerator, checks, where)
        stats.append(run_delegate(one, model, values)[0])
    return Simulated(method, calls, tuple(stats), None, missing)


def fast_scratch_bytes(one: EthosUCall) -> int:
    """Bytes that the stream touches behind base pointer 2, which the firmware has to give."""
    if not one.uses_fast_scratch:
        return 0
    return extents(NpuModel(one.call.accelerator, checks=False).prepare(one.call.words)).get(2, 0)
