"""The comparison of programs: where their buffers lie under a plan, their estimated cycles, then their bytes.

Cycles are those of the NPU's clock, of the NPU and of the CPU's calls together.

Invariant: what is estimated is the stream that `codegen` would print for the same plan. The stream and the cycles of a
program are worked out once, however often it is compared, as is what a kernel needs for all programs. A bound is never
an estimate. Nothing that is read or lowered follows from the size of a pool, so one reading serves every limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from .. import verify
from ..errors import RefusalError
from ..ethosu.arch import Architecture
from ..ethosu.program.hazards import stream_of
from ..ethosu.program.program import BufferRole, NpuProgram
from ..ethosu.schedule.constants import DecodedWeights, constant_blocks, in_place
from ..ethosu.schedule.prefetch.timed_program import DemandCache, port_cycles
from ..ethosu.stream.decode import Command
from ..ethosu.time import JUDGED, Assumptions, MemoryMap, ResourceUseCache, cycles_by_model, timeline
from ..ethosu.time.span import Stream
from ..options import CompileOptions
from ..problem import Plan, Problem
from ..request import Loaded
from ..stages import Extracted, Planned, extract_problem

if TYPE_CHECKING:
    from ..extract.program import Invoke, Program, Step


@dataclass(frozen=True, slots=True, eq=False)
class PlacedCall:
    """One call of an NPU function: its operations are the points `[first, first + operations)` of the program."""

    invoke: Invoke
    program: NpuProgram
    storages: Mapping[str, str]  # buffer of the function -> buffer of the problem
    first: int

    def places(self, problem: Problem, plan: Plan) -> dict[str, tuple[int, int]]:
        """NPU region and address of every buffer; constants that are planned nowhere are region 0."""
        regions = {pool.name: 0 if pool.read_only else i + 1 for i, pool in enumerate(problem.pools)}
        placed = {p.buffer: (regions[p.pool], p.offset_bytes) for p in plan.placements}
        found = {}
        for buffer in self.program.buffers:
            if buffer.role is BufferRole.LUT:
                found[buffer.name] = (buffer.original_region, buffer.original_offset)
            else:
                found[buffer.name] = placed[self.storages[buffer.name]] if buffer.name in self.storages else (0, 0)
        return found


def npu_calls(program: Program) -> tuple[PlacedCall, ...]:
    """The NPU's calls, in program order."""
    return tuple(_calls(program))


def _calls(program: Program) -> Iterator[PlacedCall]:
    from ..extract.program import Fixed, View, steps

    for invoke in program.calls:
        if (npu := invoke.npu) is None:
            continue
        parameters = [b.name for b in npu.buffers if b.role.is_parameter]
        storages = {
            name: argument.tensor.name
            for name, argument in zip(parameters, invoke.arguments, strict=True)
            if isinstance(argument, View)
        }
        storages |= {str(i.allocation.buffer.name): i.name for i in invoke.internals}
        if any(not isinstance(a, View | Fixed) for a in invoke.arguments):
            continue
        ordered: list[Step] = list(steps(invoke.nodes))
        if len(ordered) == len(npu.operations) and ordered:
            yield PlacedCall(invoke, npu, storages, ordered[0].point)


def stream_cycles(
    program: NpuProgram,
    places: Mapping[str, tuple[int, int]],
    memory_map: MemoryMap,
    known: ResourceUseCache | None = None,
) -> int:
    """Estimated cycles of one call whose buffers lie at `places`."""
    return timeline(stream_of(program, places.__getitem__), program.accelerator, memory_map, known).total


T = TypeVar("T")
Rank = tuple[int, int]  # cycles, bytes
Streams = tuple[tuple[PlacedCall, Sequence[Command]], ...]
DecodedConstants = dict[bytes, dict[object, DecodedWeights]]  # the weights of constants, by these, then by operation


@dataclass(frozen=True, slots=True)
class Ranking:
    """Called with a planned program: (cycles, bytes), the smaller the better."""

    memory_map: MemoryMap
    _known: dict[Planned, Rank] = field(default_factory=dict)
    _streams: dict[Planned, Streams] = field(default_factory=dict)
    _demand_caches: dict[tuple[str, str], DemandCache] = field(default_factory=dict)
    decoded: DecodedConstants = field(default_factory=dict)
    _by_model: dict[Planned, tuple[int, ...]] = field(default_factory=dict)
    in_place: dict[Extracted, Extracted] = field(default_factory=dict)  # `read_in_place` of programs

    def __call__(self, planned: Planned) -> Rank:
        """Cycles, then bytes."""
        if planned not in self._known:
            if planned in self._by_model and self.memory_map.assumptions in JUDGED:
                cycles = self._by_model[planned][JUDGED.index(self.memory_map.assumptions)]
            else:
                (cycles,) = self.time_streams(planned, self._npu_streams(planned), (self.memory_map.assumptions,))
            self.note(planned, (cycles, sum(usage.used_bytes for usage in planned.plan.usage)))
        return self._known[planned]

    def by_model(self, planned: Planned) -> tuple[int, ...]:
        """The cycles under each model of `JUDGED`, since making the stream takes longer than timing it under four."""
        if planned not in self._by_model:
            self._by_model[planned] = self.time_streams(planned, self._npu_streams(planned), JUDGED)
        return self._by_model[planned]

    def time_streams(
        self, planned: Planned, streams: Iterable[Stream], models: Sequence[Assumptions]
    ) -> tuple[int, ...]:
        """The cycles of `streams`, with those of the CPU's calls of a program, under each of `models`."""
        host = self.host_cycles(planned.extracted.loaded)
        found = cycles_by_model(streams, self.memory_map, models, lambda npu: self.demand_cache(npu).resource_uses)
        return tuple(cycles + host for cycles in found.values())

    def _npu_streams(self, planned: Planned) -> Iterator[Stream]:
        return ((commands, call.program.accelerator) for call, commands in self.streams(planned))

    def streams(self, planned: Planned) -> Streams:
        """The NPU's calls, and the stream of each, which depends on no model of time."""
        if planned not in self._streams:
            problem, plan = planned.extracted.problem, planned.plan
            self._streams[planned] = tuple(
                (call, stream_of(call.program, call.places(problem, plan).__getitem__))
                for call in npu_calls(planned.extracted.program)
            )
        return self._streams[planned]

    def with_assumptions(self, assumptions: Assumptions) -> Ranking:
        """The ranking by cycles under another model of time, with all that is known of programs under every model."""
        memory_map = replace(self.memory_map, assumptions=assumptions)
        return replace(self, memory_map=memory_map, _known={})

    def host_cycles(self, loaded: Loaded) -> int:
        """The cycles of the CPU's calls, of the NPU's clock; calls without an estimate count 0."""
        clock = loaded.request.options.cpu_clock_hz or self.memory_map.clock_hz
        cycles, _ = _calls_work(loaded)
        return round(cycles * self.memory_map.clock_hz / clock)

    def untimed_calls(self, loaded: Loaded) -> int:
        """The number of the CPU's calls without an estimate."""
        return _calls_work(loaded)[1]

    def npu_cycles(self, planned: Planned) -> int:
        """The cycles of the NPU's calls."""
        return self(planned)[0] - self.host_cycles(planned.extracted.loaded)

    def vela_cycles(self, loaded: Loaded) -> tuple[int, ...]:
        """The cycles of a program that Vela made, its own stream in its own arena with the CPU's calls, under each
        model; empty where that cannot be compared.
        """
        host = self.host_cycles(loaded) if loaded.comparable_cycles else 0
        return tuple(cycles + host for cycles in loaded.comparable_cycles)

    def note(self, planned: Planned, rank: Rank) -> None:
        """Remember what is known of a program."""
        self._known[planned] = rank

    def demand_cache(self, accelerator: Architecture, assumptions: Assumptions | None = None) -> DemandCache:
        """The needs of kernels on this NPU; under other `assumptions` than the ranking's, if given."""
        assumptions = assumptions or self.memory_map.assumptions
        key = accelerator.name, assumptions.name
        if key not in self._demand_caches:
            shared = (
                cache
                for (name, _), cache in self._demand_caches.items()
                if name == accelerator.name
                and cache.memory_map.assumptions.in_flight_share == assumptions.in_flight_share
            )
            like = next(shared, None)  # nothing else of a model changes what kernels need
            memory_map = replace(self.memory_map, assumptions=assumptions)
            self._demand_caches[key] = DemandCache(accelerator, memory_map, like)
        return self._demand_caches[key]


def port_bound(planned: Planned, memory_map: MemoryMap) -> int:
    """Cycles of the port for each constant once, of all NPU calls."""
    total = 0
    for call in npu_calls(planned.extracted.program):
        program = in_place(call.program)
        size_bytes = sum(constant.size_bytes for constant in constant_blocks(program))
        total += round(port_cycles(size_bytes, program.accelerator, memory_map))
    return total


ENDLESS = 1 << 40  # bytes of a pool whose size does not matter


def endless_pools(options: CompileOptions) -> dict[str, int]:
    """The sizes of pools in `options`, with one that does not matter for pools that have none."""
    free = (pool.name for pool in options.planned_pools() if pool.size_bytes is None)
    return {**options.pools, **dict.fromkeys(free, ENDLESS)}


class ModelCache:
    """The results of reading, lowering and extracting one model, each computed once.

    `load` reads and lowers the model for some options, `extract` states its planning problem, with pools of the sizes
    `pools`. Results that searches in pools of several sizes share are kept as well.
    """

    def __init__(
        self,
        load: Callable[[CompileOptions], Loaded],
        pools: Mapping[str, int],
        extract: Callable[[Loaded], Extracted] = extract_problem,
    ) -> None:
        self._load, self._pools, self._extract = load, pools, extract
        self._known: dict[object, Loaded | RefusalError] = {}
        self._extracted: dict[object, Extracted] = {}
        self._kept: dict[object, Any] = {}
        self.decoded: DecodedConstants = {}

    def lower(self, wanted: CompileOptions) -> Loaded:
        """The model for `wanted`; raises the same error again where it was refused before."""
        key = _reading(wanted)
        if key not in self._known:
            try:
                self._known[key] = self._load(replace(wanted, pools=self._pools))
            except RefusalError as refused:
                self._known[key] = refused
        known = self._known[key]
        if isinstance(known, RefusalError):
            raise known
        return replace(known, request=known.request.with_options(wanted))

    def extract(self, wanted: CompileOptions, backend: str, *changes: Callable[[Extracted], Extracted]) -> Extracted:
        """The problem of the model for `wanted`, by `backend`, after `changes`, each of which is made once."""
        key = (_reading(wanted), backend, changes)
        if key not in self._extracted:
            if changes:
                made = changes[-1](self.extract(wanted, backend, *changes[:-1]))
            else:
                made = self._extract(replace(self.lower(wanted), backend=backend))
            self._extracted[key] = made
        return resize_pools(self._extracted[key], wanted)

    def ranking(self, memory_map: MemoryMap) -> Ranking:
        """A ranking that keeps what earlier ones know of programs, and the resource uses of their kernels."""
        known = self.keep((Ranking, repr(memory_map)), lambda: Ranking(memory_map, decoded=self.decoded))
        return known.with_assumptions(memory_map.assumptions)

    def keep(self, key: object, make: Callable[[], T]) -> T:
        """The result of `make`, made once for each key."""
        if key not in self._kept:
            self._kept[key] = make()
        known: T = self._kept[key]
        return known


def _reading(wanted: CompileOptions) -> object:
    """A key of the options on which reading and lowering depend."""
    return wanted.npu_compiler, wanted.optimise, wanted.for_cycles, wanted.stripes, wanted.accelerator


def planned_sizes(options: CompileOptions) -> dict[str, int | None]:
    """The sizes of the pools that `options` plan, by name; None: no limit."""
    return {pool.name: pool.size_bytes for pool in options.planned_pools()}


def resize_pools(extracted: Extracted, options: CompileOptions) -> Extracted:
    """`extracted` for `options` that differ from its own in the sizes of pools."""
    loaded = extracted.loaded
    loaded = replace(loaded, request=loaded.request.with_options(options))
    sizes = {pool.name: pool.size_bytes for pool in loaded.request.pools}
    pools = tuple(replace(p, size_bytes=sizes.get(p.name, p.size_bytes)) for p in extracted.problem.pools)
    return replace(extracted, loaded=loaded, problem=replace(extracted.problem, pools=pools))


def without_limits(
    planned: Planned, options: CompileOptions, sizes: Mapping[str, int | None], notes: Sequence[str] = ()
) -> Planned:
    """`planned`, which was found under limits, with the options and sizes of pools requested; verified."""
    extracted = planned.extracted
    loaded = extracted.loaded
    loaded = replace(loaded, notes=(*loaded.notes, *notes), request=replace(loaded.request, options=options))
    pools = tuple(replace(p, size_bytes=sizes.get(p.name, p.size_bytes)) for p in extracted.problem.pools)
    problem = replace(extracted.problem, pools=pools)
    verify.check_own(problem, planned.plan)
    return replace(planned, extracted=replace(extracted, loaded=loaded, problem=problem))


def _calls_work(loaded: Loaded) -> tuple[float, int]:
    from ..host_time import calls_work  # with TVM, which delegates of ExecuTorch are made without

    return calls_work(loaded.module, loaded.request.function, loaded.request.options.cpu)


def beside_vela(planned: Planned, models: ModelCache) -> Planned:
    """`planned` with Vela's own bytes and cycles, whichever program was taken; without where Vela refuses the model."""
    loaded = planned.extracted.loaded
    try:
        vela = models.lower(replace(loaded.request.options, npu_compiler="vela", stripes=False))
    except RefusalError:
        return planned
    loaded = replace(
        loaded,
        vela_arena_bytes=vela.vela_arena_bytes,
        vela_cycles=vela.vela_cycles,
        vela_stream_bounds=vela.vela_stream_bounds,
        vela_host_cycles=round(_calls_work(vela)[0]),
        kept_from_vela=vela.kept_from_vela,
    )
    return replace(planned, extracted=replace(planned.extracted, loaded=loaded))
