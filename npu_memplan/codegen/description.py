"""The artifact of a compiled program: what the problem, the plan and the module say together.

Invariant: nothing here is decided, only read: placements come from the plan, calls and points
from the program that the problem was extracted from, bytes and times from the printed sources.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..artifact.model import Artifact, Call, Operator, TensorSlot
from ..artifact.timing import HostLayer, Timing, layers_of
from ..ethosu.program.primfunc import from_primfunc
from ..ethosu.time import estimate, printed_cycles, sum_bounds
from ..extract.program import Choose, Internal, Invoke, Program, Statement, Step, steps
from ..frontend.attributes import MADE, MADE_BY, Quantised, operators_of, quantised_tensors
from ..host_time import costs_for, host_work, works_in_turn
from ..models.flatbuffer import read_file
from ..names import printable_text
from ..problem import Agent, Plan, Problem
from ..request import Loaded
from ..sizes import count_text
from ..vocabulary import BY_LIBRARY, ORDER_PEAKS, PLACED_INPUTS, PLACED_OUTPUTS, PLACED_STATES, ROWS, is_npu
from .printed import Sources


def describe_artifact(loaded: Loaded, program: Program, problem: Problem, plan: Plan, module: Any) -> Artifact:
    """The artifact of the planned `module`, without what only its printed sources say."""
    main = module["main"]
    npu = [f for f in loaded.module.functions.values() if is_npu(f)]
    return Artifact(
        name=loaded.name,
        source=printable_text(loaded.path.name),
        source_sha256=hashlib.sha256(
            read_file(loaded.path) if loaded.request.options.io != "file" else loaded.data
        ).hexdigest(),
        target=loaded.request.options,
        problem=replace(problem, name=loaded.name),  # the function it came from is called main
        plan=plan,
        regions=tuple(0 if pool.read_only else i + 1 for i, pool in enumerate(problem.pools)),
        inputs=tensor_slots(main.attrs[PLACED_INPUTS], quantised_tensors(main, "input")),
        outputs=tensor_slots(main.attrs[PLACED_OUTPUTS], quantised_tensors(main, "output")),
        states=tensor_slots(main.attrs[PLACED_STATES], quantised_tensors(main, "state")),
        calls=calls_of(program, problem),
        operators=tuple(
            Operator(o.name, o.kind, Agent.NPU if o.on_npu else Agent.HOST, o.reason, o.claim)
            for o in operators_of(main)
        ),
        backend=loaded.backend,
        limit_bytes=_pool_limits(loaded, problem),
        vela_arena_bytes=loaded.vela_arena_bytes,
        npu_operations=sum(len(from_primfunc(f).operations) for f in npu),
        notes=(
            *loaded.notes,
            *_vela_notes(loaded),
            *_order_notes(main),
            *_by_library(loaded, program),
            *((plan.note,) if plan.note else ()),
        ),
    )


def _vela_notes(loaded: Loaded) -> list[str]:
    """Why no figure is compared with Vela's, where its program does not have all that Vela would run."""
    kinds = ", ".join(loaded.kept_from_vela)
    return [f"not compared with Vela's own program: {kinds} would be part of it, and was kept from it"] if kinds else []


def _order_notes(main: Any) -> list[str]:
    """Notes on what another order than the model's saves."""
    found = {str(name): [int(n) for n in peaks] for name, peaks in (main.attrs.get(ORDER_PEAKS) or {}).items()}
    return [
        f"independent operators{'' if name == 'main' else f' of {name}'} run in another order than the model's, which "
        f"saves {before - after:,} of {before:,} bytes"
        for name, (before, after) in found.items()
    ]


def _by_library(loaded: Loaded, program: Program) -> list[str]:
    """The host calls that CMSIS-NN runs, where it was asked for."""
    if not loaded.request.options.host_kernels:
        return []
    names = [re.sub(r"_\d+$", "", call.function) for call in program.calls if call.agent is Agent.HOST]
    theirs = Counter(name.removeprefix(BY_LIBRARY) for name in names if name.startswith(BY_LIBRARY))
    ours = Counter(name for name in names if not name.startswith(BY_LIBRARY))
    listed = [", ".join(f"{count} {name.upper()}" for name, count in sorted(kinds.items())) for kinds in (theirs, ours)]
    others = f"; our C: {listed[1]}" if ours else ""
    calls = count_text(len(names), "host call")
    return [f"CMSIS-NN runs {sum(theirs.values())} of {calls}: {listed[0] or 'none'}{others}"]


def _pool_limits(loaded: Loaded, problem: Problem) -> dict[str, int]:
    """The size given for each writable pool, or the limit that the tuning kept."""
    given = {pool.name: pool.size_bytes for pool in problem.pools if not pool.read_only}
    sizes = {name: loaded.limit_bytes.get(name) if size is None else size for name, size in given.items()}
    return {name: size for name, size in sizes.items() if size is not None}


def calls_of(program: Program, problem: Problem) -> tuple[Call, ...]:
    """The calls of main in program order, with the planned buffers that each reads and writes."""
    planned = {buffer.name for buffer in problem.buffers}
    chosen = set(_in_branches(program.statements))
    return tuple(_artifact_call(call, planned, call.index in chosen) for call in program.calls)


def _in_branches(statements: Iterable[Statement]) -> Iterator[int]:
    """Indices of the calls that run in a branch of an `if` only."""
    for choice in statements:
        if isinstance(choice, Choose):
            sides = (*choice.then, *choice.other)
            yield from (inner.index for inner in sides if isinstance(inner, Invoke))
            yield from _in_branches(sides)


def _artifact_call(call: Invoke, planned: set[str], conditional: bool) -> Call:
    ordered: list[Step] = list(steps(call.nodes))
    points = [step.point for step in ordered]
    outside = [a for step in ordered for a in step.accesses if not isinstance(a.storage, Internal)]
    return Call(
        function=call.function,
        agent=call.agent,
        reads=_planned_names((a.storage.name for a in outside if not a.writes), planned),
        writes=_planned_names((a.storage.name for a in outside if a.writes), planned),
        points=(min(points), max(points) + 1) if points else (0, 0),
        conditional=conditional,
    )


def with_sources(artifact: Artifact, sources: Sources, loaded: Loaded) -> Artifact:
    """`artifact` with the bytes of the printed `sources`, and the estimated time of NPU calls compared with Vela's."""
    artifact = replace(
        artifact,
        constants_bytes=sources.constants_bytes,
        stream_bytes=sources.stream_bytes,
        host_layers=_host_layers(artifact, loaded.module),
    )
    memory_map, launches = artifact.memory_map, sources.launches
    if memory_map is None:
        return artifact
    made = {name: estimate(launch.commands, launch.accelerator, memory_map) for name, launch in launches.items()}
    found = [(call, made.get(call.function)) for call in artifact.calls]
    runs = [(made[call.function], launches[call.function].operators) for call, time in found if time is not None]
    timing = Timing(memory_map.clock_hz, sum_bounds(time for time, _ in runs)) if runs else None
    if timing is not None:
        ran = [launches[call.function] for call, time in found if time is not None]
        by_model = printed_cycles([(launch.commands, launch.accelerator) for launch in ran], memory_map)
        timing = replace(timing, by_model=by_model)
    if timing is not None and loaded.vela_cycles and not loaded.kept_from_vela:
        theirs = artifact.host_cycles if loaded.vela_host_cycles is None else loaded.vela_host_cycles
        timing = replace(
            timing,
            vela_cycles=loaded.vela_cycles,
            vela_stream_bounds=loaded.vela_stream_bounds,
            vela_host_cycles=theirs,
        )
    return replace(
        artifact,
        calls=tuple(
            call
            if time is None
            else replace(call, estimated_cycles=time.total, macs=time.macs, operators=launches[call.function].operators)
            for call, time in found
        ),
        timing=timing,
        layers=layers_of(runs, [(operator.name, operator.kind) for operator in artifact.operators]),
    )


def _host_layers(artifact: Artifact, module: Any) -> tuple[HostLayer, ...]:
    """The cost of each operator in an estimated call of the host. The operator is the one behind what the call makes,
    as main says it; else the next of its kind: functions are named after the kinds of theirs."""
    waiting = [(i, o) for i, o in enumerate(artifact.operators) if o.agent is Agent.HOST]
    functions = {variable.name_hint: function for variable, function in module.functions.items()}
    rows, costs = [], costs_for(artifact.target.cpu)
    attributes = module["main"].attrs or {}
    made_by = dict(zip(map(str, attributes.get(MADE, ())), map(int, attributes.get(MADE_BY, ())), strict=True))
    for call in artifact.calls:
        if call.agent is not Agent.HOST or call.function not in functions:  # a copy that an `if` needs is no operator
            continue
        function = functions[call.function]
        kind = re.sub(r"_\d+$", "", call.function.removeprefix(BY_LIBRARY))
        in_turn = ROWS in (function.attrs or {})
        works = works_in_turn(function, costs) if in_turn else [(kind, host_work(function, costs))]
        for kind, work in works:
            known = next((made_by[name] for name in call.writes if made_by.get(name, -1) >= 0), -1)
            found = (known, artifact.operators[known]) if known >= 0 else None
            if found is None:
                found = next((entry for entry in waiting if entry[1].kind.lower() == kind.lower()), None)
            if found in waiting:
                waiting.remove(found)
            index, name, kind = (-1, "", kind.upper()) if found is None else (found[0], found[1].name, found[1].kind)
            if work.known:
                numbers = round(work.cycles), round(work.operations), round(work.bytes)
                rows.append(HostLayer(index, name, kind, call.function, *numbers))
    return tuple(rows)


def _planned_names(names: Iterable[str], planned: set[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name in planned))


def tensor_slots(entries: Iterable[Any], tensors: Sequence[Quantised]) -> tuple[TensorSlot, ...]:
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
            index_range=tensor.index_range,
        )
        for entry, tensor in zip(entries, tensors, strict=True)
    )
