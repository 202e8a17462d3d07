"""`--emit vela-tflite`: networks planned for TFLite Micro, each written as Vela's container, also for a shared arena.

Invariant: a file's streams were encoded at the planned places, and every tensor that the plan has is in the file's
metadata at its place; the plan was verified. The file appears whole or not at all; what is printed is what its firmware
has to provide. What `link` writes of a network is what `compile` writes of it alone; the planned part of the shared
arena is the largest of theirs, as TFLite Micro's allocator reserves as much as the largest plan that it is given, and
every interpreter's tensors begin at its start.

The kernel `ethos-u` hands every input after the arena to the driver as a base pointer of its own, so resident
constants, a second tensor of constants which firmware may place by itself, are base pointer 3, wherever their bytes
are. The file alone is whole: it runs from one memory, too. The assembly source next to it makes the same file of two
sections, whose distance the linker puts into the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import to_builtins

from .. import pipeline, planners, verify
from ..artifact.model import CheckResult, Operator
from ..codegen.program import ConstantArgument, read_program
from ..errors import RefusalError
from ..ethosu.arch import accelerator
from ..ethosu.program.primfunc import encode_primfunc
from ..ethosu.schedule.constants import GRAIN
from ..ethosu.stream.encode import build_payload, payload_of
from ..ethosu.time import JUDGED, MemoryMap, cycles_by_model, milliseconds_between, printed_cycles
from ..extract.program import Invoke, View
from ..files.paths import OutputError, check_file_place, write_whole
from ..frontend.load import FormatError, decoded_streams, stream_bounds
from ..models.edits import read_source
from ..models.flatbuffer import FlatTable, fields_of, target_at
from ..models.network import CpuOperator
from ..models.tflite import read_network
from ..models.vela import LEAST_STRUCTURE_BYTES
from ..models.vela_file import ArenaPlan, NpuOperator, rebuild_file
from ..names import model_name
from ..options import AUTO, NO_NPU, CompileOptions
from ..planners.bounds import with_bounds
from ..problem import BufferKind, Placement, Plan, Pool
from ..report.text.compile_result import does_not_fit, result_lines
from ..request import Loaded, request, short_note
from ..rewrite import rewrite
from ..rewrite.pools import pools_of
from ..sizes import count_text
from ..stages import Extracted, Planned
from ..tuning.ranking import Ranking
from ..tuning.selection import COMPILERS, SMALL
from ..tuning.tune import make_resident, prefetch_weights, tune
from ..vocabulary import ACCELERATOR, OPERATORS
from .parts import Divided, NpuPart, as_module, as_network, divide_network, step_name

REGION = 3  # of the first input after the arena
_POOL, _UNUSED = "resident", "scratch_fast"
_NODES = 20_000  # of the plan of an arena without them
_LENGTH_BYTES = 4  # of a vector, before its bytes


def in_pool_of_their_own(planned: Planned, memory_map: MemoryMap) -> tuple[Planned, bytes, dict[str, int]]:
    """`planned` with its resident constants in the pool that is base pointer 3, what that pool holds, and the NPU's
    cycles under each model of a printed range.

    What they leave of the arena is used by the other buffers, unless that makes the program slower.
    """
    rank = Ranking(memory_map)
    problem, plan = planned.extracted.problem, planned.plan
    kept = {b.name: b for b in problem.buffers if b.kind is BufferKind.RESIDENT}
    if not kept:
        return planned, b"", _printed_cycles(planned, rank)
    own = tuple(pool.name for pool in problem.pools)
    (home,) = {place.pool for place in plan.placements if place.buffer in kept}
    between = [Pool(_UNUSED)] * (REGION - 1 - len(own))  # base pointer 2, where it is the arena's again
    problem = replace(
        problem,
        pools=(*problem.pools, *between, Pool(_POOL)),
        buffers=tuple(replace(b, pools=(_POOL,) if b.name in kept else b.pools or own) for b in problem.buffers),
    )
    placements, at = [], 0
    for place in plan.placements:
        if place.buffer in kept:
            place = Placement(place.buffer, _POOL, at)
            at += -(-kept[place.buffer].size_bytes // GRAIN) * GRAIN
        placements.append(place)
    moved = with_bounds(problem, Plan(tuple(placements), (), plan.status, plan.planner, plan.seed))
    again = planners.plan(problem, plan.planner, seed=plan.seed, node_budget=_NODES, incumbent=moved)
    there = replace(memory_map, regions={**memory_map.regions, REGION: memory_map.regions[1 + own.index(home)]})
    extracted, rank = replace(planned.extracted, problem=problem), Ranking(there)
    found = [Planned(extracted, one) for one in (again, moved)]
    best = found[0] if rank(found[0])[0] <= rank(found[1])[0] else found[1]
    verify.check_own(problem, best.plan)
    held, _ = pools_of(problem, best.plan, extracted.program)
    return best, held[-1].image().tobytes(), _printed_cycles(best, rank)


def _printed_cycles(planned: Planned, rank: Ranking) -> dict[str, int]:
    streams = [(commands, call.program.accelerator) for call, commands in rank.streams(planned)]
    return printed_cycles(streams, rank.memory_map)


@dataclass(frozen=True, slots=True)
class Distance:
    """The place where a file says how far after it its vector of resident bytes, the last of the file, begins."""

    at: int  # of the 32-bit number
    start: int  # of the vector: its length, then its bytes
    stop: int


def distance_in(content: bytes, resident: bytes) -> Distance:
    """The place in the file `content`, one of whose buffers holds `resident`."""
    slot = next(field.slot for field in fields_of("Model") if field.name == "Buffers")
    data = next(field.slot for field in fields_of("Buffer") if field.name == "Data")
    for buffer in FlatTable(content, target_at(content, 0)).tables(slot):
        span = buffer.byte_span(data)
        if content[span.start : span.stop] == resident:
            assert not content[span.stop :].strip(b"\0"), "nothing lies behind them"
            return Distance(buffer.place(data), span.start - _LENGTH_BYTES, span.stop)
    raise AssertionError("the file was written with its resident constants")


def assembly_source(name: str, file: str, content: bytes, resident: bytes) -> str:
    """A source for GNU assemblers: the model as two sections, in any order, at a 32-bit distance that wraps."""
    place = distance_in(content, resident)
    upper = name.upper()
    lead = -_LENGTH_BYTES % 16
    return f"""/* {name}: a model for TFLite Micro whose resident constants lie in a section of their own.
   Made by npu_memplan; preprocess and assemble it where {file} is found (-I or -Wa,-I).

   The sections are yours to choose: -D{upper}_SECTION=..., -D{upper}_RESIDENT_SECTION=...
   The second one has {len(resident):,} bytes, which lie in fast memory before the first Invoke: start-up code copies
   sections .data* from flash there, as it does for variables. Do not pass the model to flatbuffers' verifier.

   extern const unsigned char {name}_model[];  tflite::GetModel({name}_model) */
#ifndef {upper}_SECTION
#define {upper}_SECTION .rodata.npu_memplan.{name}
#endif
#ifndef {upper}_RESIDENT_SECTION
#define {upper}_RESIDENT_SECTION .data.npu_memplan.{name}
#endif
#define NPU_MEMPLAN_TEXT(words) #words
#define NPU_MEMPLAN_NAME(section) NPU_MEMPLAN_TEXT(section)

  .section NPU_MEMPLAN_NAME({upper}_SECTION), "a"
  .balign 16
  .global {name}_model
{name}_model:
  .incbin "{file}", 0, {place.at}
  .long .Lresident - .
  .incbin "{file}", {place.at + 4}, {place.start - place.at - 4}

  .section NPU_MEMPLAN_NAME({upper}_RESIDENT_SECTION), "aw"
  .balign 16
  .skip {lead}
  .global {name}_resident
{name}_resident:
.Lresident:
  .incbin "{file}", {place.start}, {place.stop - place.start}

#if defined(__linux__) && defined(__ELF__)
  .section .note.GNU-stack, "", %progbits
#endif
"""


DESCRIPTION = "Planned by npu_memplan, in the form of Vela's output"
_ARENA_ALIGNMENT = 16  # of tensors in TFLite Micro's arena


class EmitError(RefusalError):
    """The request has no form in Vela's container."""


@dataclass(frozen=True, slots=True, eq=False)
class Emitted:
    """A file for TFLite Micro, and the figures that its firmware needs."""

    content: bytes = field(repr=False)
    planned: Planned
    accelerator: str
    arena_bytes: int  # of the planned tensors; TFLite Micro adds its own structures and the scratch of kernels
    fast_bytes: int  # of memory to give to the driver's ethosu_init; 0: none
    resident: bytes = field(repr=False)  # constants for fast memory, in the file too
    vela_arena_bytes: int  # Vela's own; 0: unknown
    by_model: Mapping[str, int]  # cycles of the NPU for one inference, estimated under each model of a printed range
    vela_stream_cycles: int  # of Vela's own file; 0: unknown
    clock_hz: float
    payload_bytes: int
    constants_bytes: int
    operators: tuple[str, ...]  # to register, by TFLite's names; the NPU's first
    notes: tuple[str, ...] = ()
    unknown_calls: int = 0  # of TFLite Micro's kernels on the CPU
    served: tuple[tuple[int, ...], ...] = ()  # of each call for the NPU, the model's operator of each of its operations
    operators_of_model: tuple[Operator, ...] = ()  # with their claims, where it was checked
    check: CheckResult = field(default_factory=CheckResult)

    @property
    def cycles(self) -> int:
        """The NPU's cycles by the nominal estimate."""
        return next(iter(self.by_model.values()), 0)

    @property
    def available_bytes(self) -> int | None:
        """The bytes that the arena may have: the board's memory or --pool; None without a limit."""
        return self.planned.extracted.problem.pools[0].size_bytes


def emit(model: Path, options: CompileOptions) -> Emitted:
    """The file of `model` in memory. Raises what `compile_model` raises, and `EmitError`."""
    data = read_source(model, options.io)
    if options.npu_compiler == AUTO and not options.stripes and read_network(data, model.name).npu_calls:
        options = replace(options, npu_compiler="vela")  # there is nothing left to lower
    options = options.resolve_defaults()
    _check(options, model)
    if (subgraphs := len(read_network(data, model.name).subgraphs)) > 1:
        raise EmitError(f"{model.name} has {subgraphs} subgraphs; --emit vela-tflite writes files of one")
    if options.accelerator == NO_NPU:
        return _emit_for_cpu(model, data, options)
    forms: dict[tuple[str, str], Divided] = {}

    def load(wanted: CompileOptions) -> Loaded:
        if wanted.accelerator == NO_NPU:
            raise FormatError("a file without NPU operators needs no plan of ours")
        requested = request(wanted)
        parts = divide_network(data, model.name, requested)
        if not any(isinstance(step, NpuPart) for step in parts.steps):
            raise EmitError(f"nothing of {model.name} runs on the NPU; --accelerator none plans it for the CPU alone")
        forms[wanted.npu_compiler, wanted.optimise] = parts
        arena = {requested.pools[0].name: parts.vela_arena_bytes} if parts.vela_arena_bytes else {}
        memory_map = wanted.memory_map()
        loaded = Loaded(requested, model, data, as_module(parts), arena, parts.notes, kept_from_vela=parts.kept)
        if (streams := decoded_streams(parts.network.npu_calls)) and memory_map:
            by_model = tuple(cycles_by_model(streams, memory_map, JUDGED).values())
            bounds = stream_bounds(streams, memory_map)
            loaded = replace(loaded, vela_stream_bounds=bounds, vela_stream_cycles=by_model)
        return pipeline.lower(loaded)

    alone = replace(options, npu_compiler="vela") if options.npu_compiler == AUTO else options
    extracted: Extracted | None = None
    try:
        planned = tune(options, load, model.name, _extract_network)
        if planned is None:
            planned = pipeline.plan(extracted := _extract_network(load(alone)))
            planned = make_resident(prefetch_weights(planned), lambda: planned)
        else:
            planned = make_resident(
                planned, lambda: tune(options, load, model.name, _extract_network, constants_near=True)
            )
    except planners.PlanningError as error:
        problem = error.problem if extracted is None else extracted.problem
        if problem is None:
            raise
        named = replace(problem, name=model_name(model.stem))
        raise does_not_fit(error, named, str(model), options, needs_npu=True) from None
    memory_map = options.memory_map()
    assert memory_map is not None  # there is an NPU
    planned, resident, by_model = in_pool_of_their_own(planned, memory_map)
    backend = planned.extracted.loaded.backend
    optimise = "Size" if backend == SMALL else options.optimise
    parts = forms[COMPILERS.get(backend, alone.npu_compiler), optimise]
    return _written(parts, planned, resident, by_model, memory_map.clock_hz)


def _emit_for_cpu(model: Path, data: bytes, options: CompileOptions) -> Emitted:
    """The file of a model for the CPU alone: its own operators, with places for their tensors."""
    network = read_network(data, model.name)
    if network.npu_calls:
        raise FormatError(f"{model.name} is compiled for an NPU; name it with --accelerator")
    parts = Divided(data, network, network.cpu_operators, 0)
    loaded = pipeline.lower(Loaded(request(options), model, data, as_module(parts), {}))
    return _written(parts, pipeline.plan(_extract_network(loaded)), b"", {}, 0.0)


def _extract_network(loaded: Loaded) -> Extracted:
    return pipeline.extract_problem(loaded).under_terms(_for_tflite_micro)


def _check(options: CompileOptions, model: Path) -> None:
    if options.constant_pools:
        raise EmitError(
            "--emit vela-tflite keeps constants in the file, where base pointer 0 is; leave --constant-pool out"
        )
    if options.host_kernels:
        raise EmitError(
            "--emit vela-tflite is a file for TFLite Micro, whose build chooses the kernels of the host; leave "
            "cmsis-nn=DIR of --host-ops out"
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


def _written(
    parts: Divided, planned: Planned, resident: bytes, by_model: Mapping[str, int], clock_hz: float
) -> Emitted:
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
    served: list[tuple[int, ...]] = []
    for number in _run_order(parts, [order[call.function] for call in extracted.program.calls]):
        part = parts.steps[number]
        if isinstance(part, NpuPart):
            payload, constants, operators = streams[step_name(number)]
            served.append(operators)
            steps.append(NpuOperator(payload, constants, part.inputs, part.outputs))
        else:
            steps.append(part)
    places = {p.buffer: p.offset_bytes for p in plan.placements}
    offsets = _arena_offsets(parts, calls, places)
    network, plan_ = parts.network, ArenaPlan(arena_bytes, fast_bytes, offsets)
    listed = read_network(parts.data, "").tensors
    added = {tensor.index: tensor for tensor in network.tensors[len(listed) :]}
    for index in network.outputs:  # Vela leaves constants without their bytes, and changes ranks
        tensor = network.tensors[index]
        if (tensor.data is not None and listed[index].data is None) or tensor.shape != listed[index].shape:
            added[index] = tensor
    content = rebuild_file(parts.data, steps, network.inputs, network.outputs, plan_, DESCRIPTION, added, resident)
    npu = [step for step in steps if isinstance(step, NpuOperator)]
    options = vela.request.options
    return Emitted(
        content, planned, options.accelerator, arena_bytes, fast_bytes, resident,
        0 if vela.kept_from_vela else sum(vela.vela_arena_bytes.values()), by_model,
        0 if vela.kept_from_vela else sum(vela.vela_stream_bounds.values()), clock_hz,
        sum(len(step.payload) for step in npu), sum(len(step.constants) for step in npu),
        (*(["ethos-u"] if npu else []), *sorted({step.name for step in steps if isinstance(step, CpuOperator)})),
        vela.notes, sum(isinstance(step, CpuOperator) for step in steps), tuple(served),
    )  # fmt: skip


def _streams(module: Any) -> Iterator[tuple[str, tuple[bytes, bytes, tuple[int, ...]]]]:
    """Function -> payload, constants and the model's operator of each operation of each call for the NPU."""
    program = read_program(module)
    for call in program.calls:
        if call.is_npu:
            target = accelerator(str(call.primfunc.attrs[ACCELERATOR]))
            payload = build_payload(payload_of(target, encode_primfunc(call.primfunc)))
            constants = [program.constants[a.index] for a in call.arguments if isinstance(a, ConstantArgument)]
            operators = tuple(int(index) for index in call.primfunc.attrs.get(OPERATORS, ()))
            yield call.function, (payload, b"".join(np.ascontiguousarray(c).tobytes() for c in constants), operators)


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


def _arena_offsets(parts: Divided, calls: Mapping[str, Invoke], places: Mapping[str, int]) -> dict[int, int]:
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
        in_file = len(parts.network.tensors)
        found |= {tensor: place for tensor, place in zip(tensors, placed, strict=True) if tensor < in_file}
    for one, other in (*views, *((b, a) for a, b in reversed(views)), *views):
        if one in found:
            found.setdefault(other, found[one])
    homes = {network.tensors[t].arena_offset: offset for t, offset in found.items() if network.tensors[t].is_variable}
    for tensor in network.tensors:  # other versions of a state
        if tensor.is_variable and tensor.arena_offset >= 0 and tensor.arena_offset in homes:
            found.setdefault(tensor.index, homes[tensor.arena_offset])
    return found


Make = Callable[[Path, CompileOptions], Emitted]


def emit_file(model: Path, output: Path, options: CompileOptions, force: bool, as_json: bool, make: Make = emit) -> str:
    """Write the file `output` that `make` makes of `model`; what its firmware needs, in words or as JSON."""
    if output.suffix != ".tflite":
        raise EmitError(
            f"--emit vela-tflite writes one file: give --output a name that ends in .tflite, not {output.name!r}"
        )
    assembly_path = output.with_suffix(".S")
    files = (output, assembly_path) if options.resident != "none" else (output,)
    for path in files:
        _check_free(path, force)
    emitted = make(model, options)
    for path in files:
        _check_free(path, force)  # it has taken a while
    if emitted.resident:
        text = assembly_source(model_name(output.stem), output.name, emitted.content, emitted.resident)
        write_whole(assembly_path, text.encode())
    write_whole(output, emitted.content)
    if as_json:
        files_written = {"file": str(output), **({"assembly": str(assembly_path)} if emitted.resident else {})}
        return json.dumps({**summary(emitted), **files_written})
    return "\n".join(_lines(emitted, output))


def _check_free(path: Path, force: bool) -> None:
    """`OutputError` when there is such a file already, unless `force`, or when none can be there."""
    check_file_place(path)
    if path.exists() and not force:
        raise OutputError(f"{path} exists already; give --force to replace it, or another --output")


def summary(emitted: Emitted) -> dict[str, Any]:
    """The object for --json."""
    return {
        "accelerator": emitted.accelerator,
        "arena_bytes": emitted.arena_bytes,
        "available_bytes": emitted.available_bytes,
        "fast_memory_bytes": emitted.fast_bytes,
        "resident_bytes": len(emitted.resident),
        "vela_arena_bytes": emitted.vela_arena_bytes or None,  # null: unknown
        "estimated_cycles": emitted.cycles,
        "estimated_ms": 1000 * emitted.cycles / emitted.clock_hz if emitted.by_model else None,  # of the NPU
        "unknown_calls": emitted.unknown_calls,
        "estimated_ms_by_model": {name: 1000 * n / emitted.clock_hz for name, n in emitted.by_model.items()},
        "vela_stream_cycles": emitted.vela_stream_cycles or None,
        "status": emitted.planned.plan.status.value,
        "planner": emitted.planned.plan.planner,
        "file_bytes": len(emitted.content),
        "payload_bytes": emitted.payload_bytes,
        "constants_bytes": emitted.constants_bytes,
        "operators": list(emitted.operators),
        "check": to_builtins(emitted.check),
        "notes": list(emitted.notes),
    }


def _time(emitted: Emitted) -> str:
    """The time of an inference; of TFLite Micro's kernels, which the build chooses, nothing is known."""
    if not emitted.by_model:
        return f"time       CPU: {count_text(emitted.unknown_calls, 'call')} of TFLite Micro's kernels, not estimated"
    theirs = emitted.vela_stream_cycles
    vela = f"; Vela's own stream by the same estimate: {theirs:,}" if theirs else ""
    spent = milliseconds_between(emitted.by_model.values(), emitted.clock_hz)
    npu = f"about {spent} (estimated), {emitted.cycles:,} cycles{vela}"
    return f"time       {_with_kernels(npu, emitted.unknown_calls)}"


def _with_kernels(npu: str, calls: int) -> str:
    """The NPU's time, and how many calls of the CPU come on top of it."""
    if not calls:
        return f"NPU alone, {npu}"
    return f"NPU {npu}; CPU: {count_text(calls, 'call')} of TFLite Micro's kernels, not estimated"


def _room(emitted: Emitted) -> list[str]:
    """The bytes that the arena has at most, where a board or --pool says so; no plan is larger."""
    size, options = emitted.available_bytes, emitted.planned.extracted.loaded.request.options
    if size is None:
        return []
    board = "" if options.pools else options.board
    there = f"{board or '--pool'} has"
    if board and size - emitted.arena_bytes < LEAST_STRUCTURE_BYTES:
        return [
            f"full       {emitted.arena_bytes:,} of {size:,} bytes that {there}; TFLite Micro took at least "
            f"{LEAST_STRUCTURE_BYTES} more",
            "           in Arm's firmware: give --pool a size that leaves them",
        ]
    return [f"fits       {emitted.arena_bytes:,} of {size:,} bytes that {there}"]


def _arena_advice(emitted: Emitted) -> list[str]:
    """What keeps the arena that a firmware has for Vela's file, where that of this one is larger."""
    extracted, theirs = emitted.planned.extracted, emitted.vela_arena_bytes
    if not theirs or emitted.arena_bytes <= theirs or extracted.loaded.request.options.pools:
        return []
    return [
        f"           larger than Vela's, for fewer cycles: --pool {extracted.problem.pools[0].name}={theirs} keeps that"
    ]


def _lines(emitted: Emitted, output: Path) -> list[str]:
    vela = f"; Vela's own: {emitted.vela_arena_bytes:,}" if emitted.vela_arena_bytes else ""
    lines = [
        f"{output.name}: {emitted.accelerator if emitted.by_model else 'CPU alone'}, {len(emitted.content):,} bytes",
        f"arena      {emitted.arena_bytes:,} bytes planned ({emitted.planned.plan.status.value}){vela}",
        *_arena_advice(emitted),
        *_room(emitted),
        "           TFLite Micro adds its own structures and the scratch of its kernels",
        _time(emitted),
        f"operators  {', '.join(emitted.operators)}: the resolver has to know these",
    ]
    if emitted.by_model:
        lines.append(
            f"NPU        {emitted.payload_bytes:,} bytes of payloads and {emitted.constants_bytes:,} of constants"
        )
    if emitted.fast_bytes:
        lines.append(f"driver     ethosu_init is to get at least {emitted.fast_bytes:,} bytes of fast memory,")
        lines.append("           which TFLite Micro counts in its arena, too")
    if emitted.resident:
        beside = output.with_suffix(".S").name
        lines.append(
            f"resident   {len(emitted.resident):,} bytes of constants are to lie in fast memory: assemble {beside}"
        )
        lines.append("           in place of the file; the time is that of a run with them there")
    lines += [f"note       {short_note(note)}" for note in emitted.notes]
    for number, line in enumerate(result_lines(emitted.operators_of_model, emitted.check)):
        lines.append(line.replace("Results: ", "results    ") if not number else f"         {line}")
    return [*lines, f"written to {output}"]


FILE_NAME = "arena.json"


def write_files(models: Sequence[Path], options: CompileOptions, folder: Path, make: Make = emit) -> dict[str, Any]:
    """Write NAME.tflite of every model, and what their firmware needs, into an empty directory; the latter."""
    if options.resident not in ("none", "all"):
        raise EmitError(
            f"--resident {options.resident} would be of every network by itself; give --resident all, or compile each: "
            "compile --emit vela-tflite --resident SIZE"
        )
    made: dict[str, Emitted] = {}
    for model in models:
        name = model_name(model.stem)
        if model.is_dir():
            raise EmitError(f"{model} is an artifact; --emit vela-tflite takes models")
        if name in made:
            raise EmitError(f"two networks would be called {name}; rename the file {model}")
        made[name] = make(model, options)
        _check_states(made[name].content, model)
        (folder / f"{name}.tflite").write_bytes(made[name].content)
        if resident := made[name].resident:
            text = assembly_source(name, f"{name}.tflite", made[name].content, resident)
            (folder / f"{name}.S").write_text(text, encoding="utf-8")
    needs = _needs(made)
    (folder / FILE_NAME).write_text(json.dumps(needs, indent=1) + "\n", encoding="utf-8")
    return needs


def _check_states(content: bytes, model: Path) -> None:
    """`EmitError` where states are in the planned part, which the next interpreter overwrites."""
    states = [t.name for t in read_network(content, model.name).tensors if t.is_variable and t.arena_offset >= 0]
    if states:
        raise EmitError(
            f"{model.name} keeps {states[0]!r} in the planned part of the arena, which other interpreters overwrite; "
            "give its interpreter an arena of its own: compile --emit vela-tflite"
        )


def _needs(made: Mapping[str, Emitted]) -> dict[str, Any]:
    planned = [one.arena_bytes for one in made.values()]
    return {
        "planned_bytes": max(planned),
        "apart_bytes": sum(planned),
        "fast_memory_bytes": max(one.fast_bytes for one in made.values()),
        "resident_bytes": sum(len(one.resident) for one in made.values()),
        "operators": list(dict.fromkeys(operator for one in made.values() for operator in one.operators)),
        "networks": [{"file": f"{name}.tflite", **summary(one)} for name, one in made.items()],
    }


def format_needs(needs: Mapping[str, Any], output: Path) -> str:
    """The result of `write_files`, for people."""
    lines = [
        f"{output.name}: {count_text(len(needs['networks']), 'network')}; one arena, "
        f"{needs['planned_bytes']:,} bytes planned ({needs['apart_bytes']:,} apart)",
        "           TFLite Micro adds its own structures of every interpreter, and the scratch of its kernels",
        *(
            f"  {one['file']}: {one['arena_bytes']:,} bytes ({one['status']}); "
            + _with_kernels(f"about {one['estimated_ms']:.3f} ms (estimated)", one["unknown_calls"])
            for one in needs["networks"]
        ),
        f"operators  {', '.join(needs['operators'])}: the resolver has to know these",
    ]
    if needs["fast_memory_bytes"]:
        lines.append(f"driver     ethosu_init is to get at least {needs['fast_memory_bytes']:,} bytes of fast memory")
    if needs["resident_bytes"]:
        lines.append(
            f"resident   {needs['resident_bytes']:,} bytes of constants are to lie in fast memory: NAME.S of each"
        )
    return "\n".join([*lines, f"written to {output}"])
