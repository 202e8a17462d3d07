"""The artifact of a compiled program: what the problem, the plan and the module say together.

Invariant: nothing here is decided, only read: placements come from the plan, calls and points
from the program that the problem was extracted from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..codegen.npu_c import NpuLaunch
from ..ethosu.time import MemoryMap, estimate
from ..extract.program import Internal, Invoke, Program, Step, steps
from ..frontend.attributes import Quantised
from ..frontend.attributes import operators_of as source_operators_of
from ..problem import Agent, Problem
from .model import Artifact
from .parts import Call, Operator, TensorSlot
from .timing import Timing, bounds_of, layers_of


def calls_of(program: Program, problem: Problem) -> tuple[Call, ...]:
    """The calls of main in program order, with the planned buffers that each reads and writes."""
    planned = {buffer.name for buffer in problem.buffers}
    return tuple(_call(call, planned) for call in program.calls)


def _call(call: Invoke, planned: set[str]) -> Call:
    ordered: list[Step] = list(steps(call.nodes))
    points = [step.point for step in ordered]
    outside = [a for step in ordered for a in step.accesses if not isinstance(a.storage, Internal)]
    return Call(
        function=call.function,
        agent=call.agent,
        reads=_names((a.storage.name for a in outside if not a.writes), planned),
        writes=_names((a.storage.name for a in outside if a.writes), planned),
        points=(min(points), max(points) + 1) if points else (0, 0),
    )


def timed(artifact: Artifact, launches: Mapping[str, NpuLaunch], where: MemoryMap) -> Artifact:
    """The artifact with the estimated time of its NPU calls, whose streams are `launches`, by function."""
    made = {name: estimate(launch.commands, launch.accelerator, where) for name, launch in launches.items()}
    found = [(call, made.get(call.function)) for call in artifact.calls]
    runs = [(made[call.function], launches[call.function].operators) for call, time in found if time is not None]
    return replace(
        artifact,
        calls=tuple(
            call if time is None else replace(call, estimated_cycles=time.total, macs=time.macs) for call, time in found
        ),
        timing=Timing(where.clock_hz, bounds_of(time for time, _ in runs)) if runs else None,
        layers=layers_of(runs, [(operator.name, operator.kind) for operator in artifact.operators]),
    )


def _names(names: Iterable[str], planned: set[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name in planned))


def slots_of(entries: Iterable[Any], tensors: Sequence[Quantised]) -> tuple[TensorSlot, ...]:
    """Slots of a planned main's `npu.placed_*` attribute, with names and quantisation of the model's `tensors`."""
    return tuple(
        TensorSlot(
            name=tensor.name,
            dtype=str(entry["dtype"]),
            shape=tuple(int(n) for n in entry["shape"]),
            pool=str(entry["pool"]),
            offset_bytes=int(entry["offset_bytes"]),
            size_bytes=int(entry["size_bytes"]),
            scale=tensor.scale,
            zero_point=tensor.zero_point,
        )
        for entry, tensor in zip(entries, tensors, strict=True)
    )


def operators_of(main: Any) -> tuple[Operator, ...]:
    """The source model's operators, as `main` describes them."""
    return tuple(
        Operator(o.name, o.kind, Agent.NPU if o.on_npu else Agent.HOST, o.reason, o.claim)
        for o in source_operators_of(main)
    )
