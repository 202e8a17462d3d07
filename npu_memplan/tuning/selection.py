"""Select a program of both backends, native lowering also in stripes: those that fit, then fewest cycles, then fewest
bytes.

Invariant: every candidate is a program like any other, planned and verified; the one taken, and the runner-up, are
stated in one line. Native lowering is not made where Vela's stream takes hardly more cycles than the port needs for the
constants and all its results are claimed to be exact, or where it takes no more at all. The plan of a stream's compiler
has that compiler's offset for every buffer and violates no constraint; else there is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import gt

from .. import planners, verify
from ..errors import RefusalError
from ..ethosu.program.program import NpuProgram
from ..ethosu.schedule.constants import constant_blocks, in_place
from ..ethosu.schedule.order import chain_kernels, reorder_operations
from ..ethosu.time import NOMINAL, SEARCHED, MemoryMap
from ..exactness import Exactness
from ..frontend.attributes import operators_of
from ..frontend.load import FormatError
from ..options import CompileOptions
from ..planners import PlanningError, prefetch
from ..planners.bounds import with_bounds
from ..problem import BufferKind, Placement, Plan, PlanStatus, Problem
from ..process.incidents import Attempts
from ..stages import Extracted, Planned
from .candidate import (
    BUDGETS,
    PrefetchCandidate,
    ProgramCandidate,
    SearchBudget,
    called_once,
    cycles_by_model,
    further_budget,
    npu_programs,
    rebuild_problem,
)
from .cascades import STRIPES, CascadeCache
from .ranking import ModelCache, Ranking, npu_calls, port_bound
from .weight_prefetch import (
    SearchResult,
    fast_pool,
    in_better_blocks,
    is_ended,
    make_best,
    prefer_bytes,
    read_in_place,
    report_missing_search,
    search_programs,
)

ORIGINAL = "the offsets are those of the stream's compiler"


def original_plan(planned: Planned) -> Planned | None:
    """The program with its compiler's own offsets; None where a buffer had none, or they violate a constraint. It
    names the planner and seed of `planned`, with which it is planned again.
    """
    extracted = planned.extracted
    problem = extracted.problem
    found: dict[str, Placement] = {}
    for call in npu_calls(extracted.program):
        for buffer in call.program.buffers:
            storage, pool = call.storages.get(buffer.name), buffer.original_region - 1
            if storage is not None and 0 <= pool < len(problem.pools) and buffer.original_offset >= 0:
                found[storage] = Placement(storage, problem.pools[pool].name, buffer.original_offset)
    if any(buffer.name not in found for buffer in problem.buffers):
        return None
    placements = tuple(found[buffer.name] for buffer in problem.buffers)
    own = planned.plan
    made = Plan(placements, (), PlanStatus.FEASIBLE, own.planner, own.seed, note=ORIGINAL)
    plan = with_bounds(problem, made)
    return None if verify.verify(problem, plan) else Planned(extracted, plan)


VELA, SMALL, OURS = "Vela's stream", "Vela's stream for Size", "native lowering"
COMPILERS = {VELA: "vela", SMALL: "vela", OURS: "tvm", STRIPES: "tvm"}  # backend -> what --npu-compiler calls it
_CLOSE = 1.03  # times the port's bound, which is the same for all: no other is made
_CLOSEST = 1.001  # the same, where some results are not claimed to be exact
_HOPE = 1.5  # times that limit: what takes more without a search is not searched alone
_AT_ONCE = (1.0,)  # share of the pool for stripes where `--effort` has none, and nothing fits whole
_FEW = 64  # operations
_FEW_COPIED = 8  # a part of all constants
_NODES = 20_000  # of a plan of native lowering: there are some to compare


def select_fastest(
    options: CompileOptions, memory_map: MemoryMap, models: ModelCache, slack: float = 1.0, enough: float = 0
) -> Planned:
    """The best program of the backends requested, in pools of the sizes given. `slack`: of programs within so many
    times the fewest cycles, the one with the fewest bytes; `enough` as for `search_backends`.

    Raises what the first backend raises where none can be planned.
    """
    return build_best(search_backends(options, memory_map, models, enough), options, memory_map, models, slack)


@dataclass(frozen=True, slots=True)
class BackendSearch:
    """The result of a search of all backends."""

    result: SearchResult
    theirs: Sequence[int]  # cycles of Vela's stream in its own arena by model; empty: not to be compared
    budget: SearchBudget


@planners.gc_paused()  # what programs leave behind in cycles are some tens of megabytes
def search_backends(
    options: CompileOptions, memory_map: MemoryMap, models: ModelCache, enough: float = 0, always_stripes: bool = True
) -> BackendSearch:
    """The programs of the backends requested. `always_stripes`: native lowering is made in stripes at every `--effort`.
    What is slower than Vela's stream, whether that fits or not, is searched further where it takes more than `enough`
    cycles.

    Raises what the first backend raises where none can be planned.
    """
    nominal, budget = models.ranking(memory_map), BUDGETS[options.effort]
    search = partial(_search, options, nominal, models, always_stripes)
    found, theirs = search(budget)
    while theirs and found.ratio > 1 and found.cycles[0] > enough and (more := further_budget(budget)) is not None:
        budget = more
        found = min(search(budget)[0], found, key=lambda one: one.ratio)
    return BackendSearch(found, theirs, budget)


@planners.gc_paused()
def build_best(
    found: BackendSearch, options: CompileOptions, memory_map: MemoryMap, models: ModelCache, slack: float
) -> Planned:
    """The best program found, with the fewest bytes that `slack` allows, in the blocks that suit its stream."""
    rank = models.ranking(memory_map).with_assumptions(SEARCHED)
    result = in_better_blocks(prefer_bytes(found.result, slack, rank, found.budget), rank, found.budget)
    return _make_explained(result, rank, options, bool(found.theirs))


def _search(
    options: CompileOptions, nominal: Ranking, models: ModelCache, always_stripes: bool, budget: SearchBudget
) -> tuple[SearchResult, Sequence[int]]:
    """The result of `search_backends` within one budget, and the cycles of Vela's stream."""
    memory_map, rank, attempts = nominal.memory_map, nominal.with_assumptions(SEARCHED), Attempts()
    lifted: list[Planned] = []
    ours: list[Planned] = []
    theirs: Sequence[int] = ()  # of Vela's stream in its own arena, whether that fits here or not
    reference: Sequence[float] = ()
    known = attempts if options.npu_compiler != "tvm" else Attempts()
    requested = replace(options, npu_compiler="vela", stripes=False)
    with known.attempt_by(VELA):
        theirs = rank.vela_cycles(models.lower(requested))
        extracted = models.extract(requested, VELA)
        lifted = _with_original(_plan_lifted(extracted), rank)
    reference = reference_cycles(theirs, lifted, bool(lifted) and lifted[-1].extracted is extracted, rank)
    if options.npu_compiler == "tvm":  # it is compared by the same limits
        known.settle_errors(True, (RefusalError,))
        theirs, lifted = (), []
    if lifted:
        bound = port_bound(lifted[0], memory_map)
        near = nominal(lifted[0])[0] <= _HOPE * _CLOSE * bound
        searched = search_programs(lifted, rank, budget, reference) if near else None
        if searched is not None and searched.cycles[0] <= _enough(lifted[0]) * bound:
            return searched, theirs
    if options.npu_compiler != "vela":
        most = (rank.untimed_calls(lifted[0].extracted.loaded), rank(lifted[0])[0]) if lifted else None
        with attempts.attempt_by(OURS):
            native = replace(options, npu_compiler="tvm", stripes=False)
            for made in _plan_native(models, native, rank, most, always_stripes, budget):
                ours.append(made)  # they stay if a later one fails
    # programs that fit, and are read, are compared
    plain = PlanningError, FormatError
    attempts.settle_errors(bool(lifted or ours), plain, least=(FormatError,), most=(PlanningError,))
    found = search_programs([*lifted, *ours], rank, budget, reference)
    if ours and _reads_in_place(found, memory_map):
        far, attempts = replace(options, npu_compiler="tvm", stripes=False, objective="bytes", max_ms=None), Attempts()
        with attempts.attempt_by(OURS):
            other = _plan_lifted(models.extract(far, OURS, reorder_programs))
            found = _join_results(found, search_programs((other,), rank, budget, found.reference))
        attempts.settle_errors(True, (PlanningError,))
    return found, theirs


def reference_cycles(
    theirs: Sequence[int], lifted: Sequence[Planned], is_whole: bool, rank: Ranking
) -> Sequence[float]:
    """The cycles that programs are compared with: where one operation runs at a time none takes more than Vela's
    stream, if that is a program here with all its copies.
    """
    own = rank.by_model(lifted[0]) if lifted else ()
    compared = theirs or own
    return (*compared[:-1], own[-1] if is_whole else math.inf) if compared else ()


def _reads_in_place(found: SearchResult, memory_map: MemoryMap) -> bool:
    """Whether the best is a program of native lowering that copies few of its constants out of a slower memory, and
    takes longer than to read them: blocks that were chosen as if constants were copied may not suit them.
    """
    best, plain = found.best, found.best.plain
    if _lifts(best) or fast_pool(plain.extracted.problem.pools, memory_map) is None:
        return False
    calls = npu_calls(plain.extracted.program)
    constants = sum(one.size_bytes for call in calls for one in constant_blocks(in_place(call.program)))
    copied = sum(b.size_bytes for moved in best.moved for b in moved.program.buffers if b.name in moved.places)
    return _FEW_COPIED * copied < constants and found.cycles[0] > _CLOSEST * port_bound(plain, memory_map)


def _join_results(found: SearchResult, other: SearchResult) -> SearchResult:
    """`found` with the candidates of the `other`, whose best is taken where it is faster by all models."""
    candidates, estimated = found.candidates + other.candidates, found.estimated + other.estimated
    found = replace(found, candidates=candidates, estimated=estimated)
    if other.cycles == found.cycles or any(map(gt, other.cycles, found.cycles)):
        return found
    return replace(found, best=other.best, others=(found.best, *found.others), cycles=other.cycles)


def _enough(planned: Planned) -> float:
    """The times of the port's bound within which nothing else is made; the fewer, where results may not be exact."""
    loaded = planned.extracted.loaded
    operators = operators_of(loaded.module[loaded.request.function])
    exact = all(operator.claim.exactness is Exactness.EXACT for operator in operators)
    return _CLOSE if exact else _CLOSEST


def _for_options(planned: Planned, options: CompileOptions) -> Planned:
    loaded = planned.extracted.loaded
    loaded = replace(loaded, request=replace(loaded.request, options=options))
    return replace(planned, extracted=replace(planned.extracted, loaded=loaded))


def _plan_lifted(extracted: Extracted) -> Planned:
    """The program as its compiler made it; without the copies that it makes where they do not fit."""
    options = extracted.loaded.request.options
    try:
        nodes = None if options.time_limit_s else _NODES
        return Planned(
            extracted, prefetch.plan(extracted.problem, options.planner, options.time_limit_s, node_budget=nodes)
        )
    except PlanningError:
        without = read_in_place(extracted)
        if without is extracted:
            raise
        return Planned(without, planners.plan(without.problem, options.planner, options.time_limit_s))


def _with_original(lifted: Planned, rank: Ranking) -> list[Planned]:
    """The program, and before it its compiler's own plan where the stream takes fewer cycles there under some model:
    operations may depend on each other less, and set fewer registers.
    """
    loaded = lifted.extracted.loaded
    host = rank.host_cycles(loaded)
    theirs = [cycles + host for cycles in loaded.vela_stream_cycles]
    ours = rank.by_model(lifted)
    original = original_plan(lifted) if any(map(gt, ours, theirs)) else None
    return [lifted] if original is None else [original, lifted]


def _plan_native(
    models: ModelCache,
    options: CompileOptions,
    rank: Ranking,
    most: tuple[int, int] | None,
    always_stripes: bool,
    budget: SearchBudget,
) -> Iterator[Planned]:
    """Native lowering, whole and in stripes that keep ever fewer bytes alive; an error only where nothing fits. No
    programs where it leaves more calls without an estimate to the CPU, or calls of more cycles, than `most`.

    It is lowered for few cycles; what is lowered for few bytes stands in where that does not fit, or is slower: the
    operators that it takes are the same.
    """
    found: list[Planned] = []
    missed: PlanningError | None = None
    nodes = _NODES if options.time_limit_s is None else None
    for made in _lower_native(models, options, rank, most, always_stripes, budget, found):
        if found and is_ended():
            break
        try:
            plan = planners.plan(made.problem, options.planner, options.time_limit_s, node_budget=nodes)
        except PlanningError as error:
            missed = missed or error
        else:
            found.append(Planned(made, plan))
            yield found[-1]
    if not found and missed is not None:
        raise missed


def _lower_native(
    models: ModelCache,
    options: CompileOptions,
    rank: Ranking,
    most: tuple[int, int] | None,
    always_stripes: bool,
    budget: SearchBudget,
    found: Sequence[Planned],
) -> Iterator[Extracted]:
    """Native lowering for few cycles, that for few bytes unless there is a plan in `found` by then, and their stripes.

    That for few bytes is made where the other has maps outside the fast pool; for its stripes else, where pools have
    sizes, or the budget says so.
    """
    forms: list[Extracted] = []
    memory_map = rank.memory_map

    def all_spill() -> bool:
        """Whether no plan has all maps in the fast pool."""
        return all(_spills(planned.extracted.problem, planned.plan, memory_map) for planned in found)

    for requested in (options, replace(options, objective="bytes", max_ms=None)):
        loaded = models.extract(requested, OURS).loaded
        if most and (rank.untimed_calls(loaded) > most[0] or rank.host_cycles(loaded) > most[1]):
            break
        made = models.extract(requested, OURS, reorder_programs)
        if forms and _size(forms[0]) == _size(made):
            break
        forms.append(made)
        if not found:
            yield made
            other = models.extract(requested, OURS, reorder_programs, _chain_programs)
            if other.program is not made.program:
                yield other
        if not all_spill():
            if not (budget.stripes or always_stripes) or not _may_gain(found[0], rank, budget):
                return
            if not (budget.stripes and (budget.both_lowerings or always_stripes)):
                break
    if not forms:
        return
    if always_stripes and not budget.shares and all_spill():
        budget = replace(budget, in_place_shares=_AT_ONCE)
    if budget.stripes or always_stripes:
        yield from cascade_cache(models, memory_map).cut_forms(forms, budget)


def cascade_cache(models: ModelCache, memory_map: MemoryMap) -> CascadeCache:
    """What is known of a model's stripes in some memories, under the model of time that these have."""
    return models.keep((CascadeCache, repr(memory_map)), lambda: CascadeCache(memory_map, models.decoded))


def _may_gain(planned: Planned, rank: Ranking, budget: SearchBudget) -> bool:
    """Whether stripes of a program may save the share of cycles that the budget asks for; half of that for few
    operations, since trying takes less work.
    """
    pools = planned.extracted.problem.pools
    fast = fast_pool(pools, rank.memory_map) if budget.least_gain else None
    limit = None if fast is None else pools[fast].size_bytes
    operations = sum(len(call.program.operations) for call in called_once(planned.extracted))
    if fast is None or limit is None:
        return True
    least_gain = budget.least_gain / 2 if operations < _FEW else budget.least_gain
    return PrefetchCandidate(planned, rank, fast, limit).possible_gain >= least_gain


def _spills(problem: Problem, plan: Plan, memory_map: MemoryMap) -> bool:
    """Whether a plan has maps of the NPU in another pool than the fast one, where they may lie."""
    fast = fast_pool(problem.pools, memory_map)
    if fast is None:
        return False
    name, kinds = problem.pools[fast].name, (BufferKind.NPU_INTERNAL, BufferKind.ROLLING)
    inner = {b.name for b in problem.buffers if b.kind in kinds and name in (b.pools or (name,))}
    return any(placement.buffer in inner and placement.pool != name for placement in plan.placements)


def reorder_programs(extracted: Extracted) -> Extracted:
    """The same with independent operations in the order that leaves more bytes to constants."""
    return _change_programs(extracted, reorder_operations)


def _chain_programs(extracted: Extracted) -> Extracted:
    """The same with chains where they pay; stripes are made of what has none."""
    return _change_programs(extracted, chain_kernels)


def _change_programs(extracted: Extracted, change: Callable[[NpuProgram, MemoryMap], NpuProgram]) -> Extracted:
    """The same with each NPU program as `change` makes it for constants that lie near; itself where that is the same
    program for all.
    """
    memory_map = extracted.loaded.request.options.memory_map()
    assert memory_map is not None
    near = memory_map.with_constants_near()
    made = {v.name_hint: (p, change(p, near)) for v, p in npu_programs(extracted).items()}
    changed = {name: new for name, (old, new) in made.items() if new is not old}
    return rebuild_problem(extracted, changed) if changed else extracted


def _size(extracted: Extracted) -> list[tuple[int, list[int]]]:
    """Operations, and bytes of buffers, of each function."""
    programs = npu_programs(extracted).values()
    return [(len(p.operations), sorted(buffer.size_bytes for buffer in p.buffers)) for p in programs]


def _make_explained(found: SearchResult, rank: Ranking, requested: CompileOptions, beside_vela: bool) -> Planned:
    """The best for the options requested, with the line that says why; `beside_vela`: it was compared with Vela's own
    stream.
    """
    found, made = make_best(found, rank)
    best = found.best
    others = [candidate for candidate in found.candidates if _lifts(candidate) != _lifts(best)]
    text = f"{_name_backend(best)}, {_figures(best, rank)}"
    text += f", at least {port_bound(made, rank.memory_map):,} to read its constants once"
    if others:
        other = min(others, key=lambda candidate: candidate.rank)
        estimated = [one for one in found.estimated if _lifts(one) != _lifts(best)]
        most = min(estimated, key=lambda one: one.optimistic_cycles, default=None)
        if most is not None and most.optimistic_cycles < other.rank[0]:  # it was not searched further
            text += f"; {_name_backend(most)}, about {most.with_assumptions(NOMINAL).optimistic_cycles:,}"
        else:
            text += f"; {_name_backend(other)}, {_figures(other, rank)}"
    if found.cycles and (beside_vela or _lifts(found.candidates[0])):
        low, high = min(found.cycles[:-1]), max(found.cycles[:-1])
        text += f"; {low:,} to {high:,} by how memories are shared"
        text += f", at most {found.ratio:.3f} of Vela's own" if beside_vela else ""
    loaded = made.extracted.loaded
    loaded = loaded.with_selection(text)
    report_missing_search()
    return _for_options(replace(made, extracted=replace(made.extracted, loaded=loaded)), requested)


def _backend(one: ProgramCandidate | PrefetchCandidate) -> str:
    return one.plain.extracted.loaded.backend


def _name_backend(one: ProgramCandidate | PrefetchCandidate) -> str:
    """The compiler of its operations; Vela's stream in our plan and in Vela's own are told apart."""
    if _lifts(one):
        return f"{VELA} in its own plan" if one.plain.plan.note == ORIGINAL else f"{VELA} re-planned"
    return _backend(one)


def _lifts(one: ProgramCandidate | PrefetchCandidate) -> bool:
    return _backend(one) == VELA


def _figures(one: ProgramCandidate, rank: Ranking) -> str:
    """Nominal cycles, and bytes."""
    host = rank.host_cycles(one.plain.extracted.loaded)
    on_cpu = f" ({host:,} on the CPU)" if host else ""
    return f"{cycles_by_model(one, rank)[0]:,} cycles{on_cpu} in {one.rank[1]:,} bytes"
