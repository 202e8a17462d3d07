"""Plans a network for TFLite Micro and writes it as Vela's container.

Invariant: the file's streams were encoded at the planned places, and every tensor that the plan has is in the file's
metadata at its place; the plan was verified.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import pipeline
from ..artifact.check import CheckResult
from ..artifact.parts import Operator
from ..codegen.program import ConstantArgument, read_program
from ..errors import RefusalError
from ..ethosu.arch import accelerator
from ..ethosu.program.primfunc import encode_primfunc
from ..ethosu.stream.container import build_payload, payload_of
from ..ethosu.time import cycles_by_model
from ..extract.program import Invoke, View
from ..frontend.load import decoded_streams, stream_bounds
from ..models.file import read_file
from ..models.network import CpuOperator
from ..models.tflite import read_network
from ..models.vela_file import ArenaPlan, NpuOperator, rebuilt
from ..options import AUTO, NO_NPU, CompileOptions
from ..problem import BufferKind
from ..request import Loaded, request
from ..rewrite import rewrite
from ..stages import Extracted, Planned
from ..tuning.selection import COMPILERS
from ..tuning.tune import make_resident, prefetch_weights, tune
from ..vocabulary import ACCELERATOR
from .module import as_module, step_name
from .parts import Divided, NpuPart, as_network, divided
from .resident import in_pool_of_their_own

DESCRIPTION = "Planned by npu_memplan, in the form of Vela's output"
_ARENA_ALIGNMENT = 16  # of tensors in TFLite Micro's arena


class EmitError(RefusalError):
    """What was requested has no form in Vela's container."""


@dataclass(frozen=True, slots=True, eq=False)
class Emitted:
    """A file for TFLite Micro and what its firmware must know."""

    content: bytes = field(repr=False)
    planned: Planned
    accelerator: str
    arena_bytes: int  # of the planned tensors; TFLite Micro adds its own structures and the scratch of kernels
    fast_bytes: int  # of memory to give to the driver's ethosu_init; 0: none
    resident: bytes = field(repr=False)  # constants for fast memory, in the file too
    vela_arena_bytes: int  # Vela's own; 0: unknown
    cycles: int  # of the NPU for one inference, estimated
    vela_cycles: int  # the same of Vela's own file; 0: unknown
    clock_hz: float
    payload_bytes: int
    constants_bytes: int
    operators: tuple[str, ...]  # to register, by TFLite's names; the NPU's first
    notes: tuple[str, ...] = ()
    operators_of_model: tuple[Operator, ...] = ()  # with their claims, where it was checked
    check: CheckResult = field(default_factory=CheckResult)

    @property
    def available_bytes(self) -> int | None:
        """What the arena may have: the board's memory or --pool; None without a limit."""
        return self.planned.extracted.problem.pools[0].size_bytes


def emit(model: Path, options: CompileOptions) -> Emitted:
    """The file of `model` in memory. Raises what `compile_model` raises, and `EmitError`."""
    data = read_file(model)
    if options.npu_compiler == AUTO and not options.stripes and read_network(data, model.name).npu_calls:
        options = replace(options, npu_compiler="vela")  # there is nothing left to lower
    options = options.resolved()
    _check(options, model)
    if (subgraphs := len(read_network(data, model.name).subgraphs)) > 1:
        raise EmitError(f"{model.name} has {subgraphs} subgraphs; --emit vela-tflite writes files of one")
    forms: dict[str, Divided] = {}

    def load(wanted: CompileOptions) -> Loaded:
        requested = request(wanted)
        parts = divided(data, model.name, requested)
        if not any(isinstance(step, NpuPart) for step in parts.steps):
            raise EmitError(
                f"nothing of {model.name} runs on the NPU, so there is nothing to plan for it; run it as it is"
            )
        forms[wanted.npu_compiler] = parts
        arena = {requested.pools[0].name: parts.vela_arena_bytes} if parts.vela_arena_bytes else {}
        memory_map = wanted.memory_map()
        loaded = Loaded(requested, model, data, as_module(parts), arena, parts.notes)
        if (streams := decoded_streams(parts.network.npu_calls)) and memory_map:
            by_model = tuple(cycles_by_model(streams, memory_map).values())
            bounds = stream_bounds(streams, memory_map)
            loaded = replace(loaded, vela_stream_bounds=bounds, vela_stream_cycles=by_model)
        return pipeline.lower(loaded)

    planned = tune(options, load, model.name, _extracted)
    alone = replace(options, npu_compiler="vela") if options.npu_compiler == AUTO else options
    if planned is None:
        planned = pipeline.plan(_extracted(load(alone)))
        planned = make_resident(prefetch_weights(planned), lambda: planned)
    else:
        planned = make_resident(planned, lambda: tune(options, load, model.name, _extracted, constants_near=True))
    memory_map = options.memory_map()
    assert memory_map is not None  # there is an NPU
    planned, resident, cycles = in_pool_of_their_own(planned, memory_map)
    parts = forms[COMPILERS.get(planned.extracted.loaded.backend, alone.npu_compiler)]
    return _written(parts, planned, resident, cycles, memory_map.clock_hz)


def _extracted(loaded: Loaded) -> Extracted:
    return pipeline.extract_problem(loaded).under_terms(_for_tflite_micro)


def _check(options: CompileOptions, model: Path) -> None:
    if options.accelerator == NO_NPU:
        raise EmitError("--emit vela-tflite is a file with NPU operators; choose an --accelerator")
    if options.constant_pools:
        raise EmitError(
            "--emit vela-tflite keeps constants in the file, where base pointer 0 is; leave --constant-pool out"
        )
    if options.host_kernels:
        raise EmitError(
            "--emit vela-tflite is a file for TFLite Micro, whose build chooses the kernels of the host; leave "
            "--host-kernels out"
        )
    if options.stream_input:
        raise EmitError(
            "--emit vela-tflite is a file for TFLite Micro, which has the whole input before it runs; leave "
            "--stream-input out"
        )
    if model.suffix.lower() in (".onnx", ".pt2"):
        raise EmitError(f"--emit vela-tflite needs a TFLite model; {model.name} is none")


# -- the problem ----------------------------------------------------------------------------------------


def _for_tflite_micro(extracted: Extracted) -> Any:
    """The problem without what only our own C may do: see the package's invariant."""
    npu = {call.function for call in extracted.program.calls if call.primfunc.attrs.get(ACCELERATOR) is not None}
    views = (v for call in extracted.program.calls for v in call.arguments if isinstance(v, View))
    outside = {v.tensor.name for v in views if v.tensor.kind is not BufferKind.RESIDENT}
    touched = [
        {v.tensor.name for v in call.arguments if isinstance(v, View)}
        for call in extracted.program.calls
        if call.function not in npu
    ]
    problem = extracted.problem
    arena = problem.pools[0].name
    return replace(
        problem,
        buffers=tuple(replace(b, pools=(arena,)) if b.name in outside else b for b in problem.buffers),
        overlaps=tuple(o for o in problem.overlaps if not any({o.first, o.second} <= names for names in touched)),
    )


# -- the file -------------------------------------------------------------------------------------------


def _written(parts: Divided, planned: Planned, resident: bytes, cycles: int, clock_hz: float) -> Emitted:
    plan, extracted = planned.plan, planned.extracted
    vela = extracted.loaded
    module = rewrite(vela.module, extracted.problem, plan)
    used = [usage.used_bytes for usage in plan.usage]
    arena_bytes = -(-used[0] // _ARENA_ALIGNMENT) * _ARENA_ALIGNMENT
    fast_bytes = used[1] if len(used) > 1 else 0
    order = {step_name(number): number for number in range(len(parts.steps))}
    calls = {call.function: call for call in extracted.program.calls}
    streams = dict(_streams(module))
    steps: list[CpuOperator | NpuOperator] = []
    for number in _run_order(parts, [order[call.function] for call in extracted.program.calls]):
        part = parts.steps[number]
        if isinstance(part, NpuPart):
            payload, constants = streams[step_name(number)]
            steps.append(NpuOperator(payload, constants, part.inputs, part.outputs))
        else:
            steps.append(part)
    places = {p.buffer: p.offset_bytes for p in plan.placements}
    offsets = _offsets(parts, calls, places)
    network, plan_ = parts.network, ArenaPlan(arena_bytes, fast_bytes, offsets)
    listed = len(read_network(parts.data, "").tensors)
    added = {tensor.index: tensor for tensor in network.tensors[listed:]}
    content = rebuilt(parts.data, steps, network.inputs, network.outputs, plan_, DESCRIPTION, added, resident)
    npu = [step for step in steps if isinstance(step, NpuOperator)]
    (target,) = {str(f.attrs[ACCELERATOR]) for f in module.functions.values() if ACCELERATOR in (f.attrs or {})}
    return Emitted(
        content, planned, accelerator(target).name, arena_bytes, fast_bytes, resident,
        sum(vela.vela_arena_bytes.values()), cycles, sum(vela.vela_stream_bounds.values()), clock_hz,
        sum(len(step.payload) for step in npu), sum(len(step.constants) for step in npu),
        ("ethos-u", *sorted({step.name for step in steps if isinstance(step, CpuOperator)})), vela.notes,
    )  # fmt: skip


def _streams(module: Any) -> Iterator[tuple[str, tuple[bytes, bytes]]]:
    """Function -> payload and constants of each call for the NPU."""
    program = read_program(module)
    for call in program.calls:
        if call.is_npu:
            target = accelerator(str(call.primfunc.attrs[ACCELERATOR]))
            payload = build_payload(payload_of(target, encode_primfunc(call.primfunc)))
            constants = [program.constants[a.index] for a in call.arguments if isinstance(a, ConstantArgument)]
            yield call.function, (payload, b"".join(np.ascontiguousarray(c).tobytes() for c in constants))


def _run_order(parts: Divided, called: list[int]) -> Iterator[int]:
    """Every step: those that are calls in the order of the calls, the others as soon as what they read is made."""
    network = parts.network
    producers = {
        t: n for n, step in enumerate(parts.steps) for t in (step.writes if isinstance(step, NpuPart) else step.outputs)
    }
    idle = [n for n in range(len(parts.steps)) if n not in set(called)]
    done: set[int] = set()

    def ready(number: int) -> bool:
        step = parts.steps[number]
        reads = step.reads if isinstance(step, NpuPart) else step.inputs
        return all(producers[t] in done or network.tensors[t].is_variable for t in reads if t in producers)

    for number in (*called, -1):
        while (free := next((n for n in idle if ready(n)), None)) is not None:
            idle.remove(free)
            done.add(free)
            yield free
        if number >= 0:
            done.add(number)
            yield number


def _offsets(parts: Divided, calls: Mapping[str, Invoke], places: Mapping[str, int]) -> dict[int, int]:
    """Tensor of the network -> its offset in the arena."""
    found: dict[int, int] = {}
    network = as_network(parts)
    views: list[tuple[int, int]] = []  # reshapes that are no calls: both tensors are the same bytes
    for number, step in enumerate(network.operators):
        call = calls.get(step_name(number))
        tensors = (*step.inputs, *step.outputs)
        if call is None:
            views += [tensors] if len(tensors) == 2 else []
            continue
        views_ = (a for a in call.arguments if isinstance(a, View))
        placed = [places[a.tensor.name] for a in views_ if a.tensor.kind is not BufferKind.RESIDENT]
        found |= dict(zip(tensors, placed, strict=True))
    for one, other in (*views, *((b, a) for a, b in reversed(views)), *views):
        if one in found:
            found.setdefault(other, found[one])
    homes = {network.tensors[t].arena_offset: offset for t, offset in found.items() if network.tensors[t].is_variable}
    for tensor in network.tensors:  # other versions of a state
        if tensor.is_variable and tensor.arena_offset >= 0 and tensor.arena_offset in homes:
            found.setdefault(tensor.index, homes[tensor.arena_offset])
    return found
