"""Copies constants to faster memory while the DMA port is idle, into bytes that the plan has free then.

Invariant: the pools stay within their sizes, or within what the plan without copies needs where they have none; of the
programs without copies, with their compiler's copies and with ours, the one with the fewest estimated cycles is taken;
its plan is a plan like any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import le

from ..clock import is_over
from ..compiled import c_library
from ..errors import InternalError
from ..ethosu.program.program import NpuProgram
from ..ethosu.schedule.constants import Slices, compact, in_place, loaded_early
from ..ethosu.time import SEARCHED, MemoryMap, Traffic
from ..problem import Pool
from ..process.incidents import Fallback, contain_faults, fall_back
from ..stages import Extracted, Planned
from .candidate import (
    BUDGETS,
    Cutters,
    PrefetchCandidate,
    ProgramCandidate,
    SearchBudget,
    called_once,
    cycles_by_model,
    planned_again,
    reblock_worst,
    rebuild_problem,
    slicers,
)
from .ranking import Rank, Ranking, npu_calls

_PART, _OTHER_PARTS = 8, (4, 16, 64)  # of the pool: weights of a slice
_LEAST_SLICE, _LEAST_POOL = 2048, 32 * 1024  # bytes: smaller pools have slices as if they were so large
_NO_GAIN = 0.998  # of the cycles of the best: what takes so much in any case is not cut into slices
_LEAST_GAIN = 0.02  # of a program's cycles: what could save less is not cut into slices
_HOPE = 2  # a candidate is taken to lose at least this part of the smallest allocation penalty seen
_ROUNDS, _STEP, _CLOSE = 2, 3, 64  # of a search in fewer bytes: parts of what copies take, and of all bytes
_FINALISTS = 8  # besides the first program, by their cycles under the model of the search
_SAMPLE = Traffic(1024, 64, 16)  # some bytes in whole bursts


def search_prefetching(planned: Planned, rank: Ranking) -> Planned:
    """The fastest of `planned` and the same with its constants copied otherwise, in pools of the same size."""
    searched = rank.with_assumptions(SEARCHED)
    budget = budget_of(planned)
    found = in_better_blocks(search_programs((planned,), searched, budget), searched, budget)
    _, made = make_best(found, searched)
    report_missing_search()
    return made


def budget_of(planned: Planned) -> SearchBudget:
    """The budget of the search that the compile's options ask for."""
    return BUDGETS[planned.extracted.loaded.request.options.effort]


def report_missing_search() -> None:
    """Say so where copies of constants could not be searched."""
    if missing := c_library().missing:
        text = f"the compiled searches are not available, so no copies of constants were searched: {missing}"
        fall_back(Fallback.SEARCH, text)


def is_ended() -> bool:
    """Whether no further program is compared: the seconds of `--effort` are over, which is reported."""
    if is_over():
        fall_back(Fallback.TIME, "--effort ended the search for the fastest program: the best so far was taken")
    return is_over()


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The programs of one model that were compared; their modules are not made yet."""

    best: ProgramCandidate
    others: tuple[ProgramCandidate, ...]  # that are taken, in this order, where the best violates a constraint
    candidates: tuple[ProgramCandidate, ...]  # the first program as its compiler made it comes first
    estimated: tuple[PrefetchCandidate, ...]  # all that were searched for copies, some of them not to the end
    cycles: tuple[int, ...]  # of the best, under each model of `JUDGED`
    reference: tuple[float, ...]  # Vela's own stream, or the first program, under the same models

    @property
    def ratio(self) -> float:
        """Cycles of the best to the reference's, under the model where that is worst."""
        return _worst_ratio(self.cycles, self.reference)


def search_programs(
    programs: Sequence[Planned], rank: Ranking, budget: SearchBudget, reference: Sequence[float] = ()
) -> SearchResult:
    """The fastest of `programs`, each as it is and with its constants copied otherwise.

    A program whose optimistic cycles cannot beat the best is not allocated. A pool without a size is no larger than
    the largest of the programs makes it. `rank` has the model of time that is searched under; `reference`: cycles
    that all are compared with under each model, if not those of Vela's own stream that the first program comes from, or
    its own. The last is not compared: nothing may take more cycles under that model.
    """
    for program in programs:
        rank.by_model(program)  # all are compared under every model: this times them once
    incumbent = _Incumbent([ProgramCandidate(program, rank(program)) for program in programs], rank, reference)
    fast = fast_pool(programs[0].extracted.problem.pools, rank.memory_map)
    estimated: list[PrefetchCandidate] = []
    if fast is not None:
        limit = max(_limit(program, fast) for program in programs)
        forms = _cut_forms(_different(programs, fast, limit, rank), rank, fast, limit, budget, incumbent.reference[-1])
        estimated = sorted(forms, key=_optimistic_cycles)
        _search_copies(forms, incumbent, budget)
    return _settle(incumbent, tuple(estimated), rank)


def prefer_bytes(result: SearchResult, slack: float, rank: Ranking, budget: SearchBudget) -> SearchResult:
    """The result with the program of the fewest bytes as the best, of those within `slack` times its cycles by each
    model, which are above the reference's nowhere unless the best's are. The form of that program is searched in fewer
    bytes, too; one without copies for copies in the bytes that it takes.
    """
    preferred = _select_fewest_bytes(result, slack, rank)
    plain = preferred.best.plain
    fast = fast_pool(plain.extracted.problem.pools, rank.memory_map)
    if slack <= 1 or fast is None:
        return preferred
    budget = replace(budget, rounds=budget.rounds[-1:], sliced_forms=0, last_work=0)
    if not preferred.best.moved:
        if preferred.best is result.best:
            return preferred
        more = _search_within(plain, fast, _used_bytes(preferred.best, fast), result.reference, rank, budget)
        known = [(one, cycles_by_model(one, rank)) for one in more if one.rank[1] <= preferred.best.rank[1]]
        agreed = [
            (one.rank, one, cycles)
            for one, cycles in known
            if all(map(le, cycles[:-1], preferred.cycles)) and not _is_above(cycles, result.reference)
        ]
        if not agreed:
            return preferred
        _, best, cycles = min(agreed, key=lambda row: row[0])
        return replace(preferred, best=best, others=(preferred.best, *preferred.others), cycles=cycles)
    low, high = (_used_bytes(one, fast) for one in (ProgramCandidate(plain, rank(plain)), preferred.best))
    for _ in range(_ROUNDS):
        limit = high - (high - low) // _STEP
        if is_ended() or high - limit <= high // _CLOSE:
            break
        more = _search_within(plain, fast, limit, result.reference, rank, budget)
        result = replace(result, candidates=(*result.candidates, *more))
        smaller = _select_fewest_bytes(result, slack, rank)
        if smaller.best.rank[1] < preferred.best.rank[1]:
            preferred, high = smaller, min(limit, _used_bytes(smaller.best, fast))
        else:
            low = limit
    return preferred


def _select_fewest_bytes(result: SearchResult, slack: float, rank: Ranking) -> SearchResult:
    """The result with the best of `prefer_bytes` among its own candidates."""
    most = result.best.rank[0] * slack
    near = [one for one in result.candidates if one.rank[0] <= most and one.rank[1] < result.best.rank[1]]
    for candidate in sorted(near, key=lambda one: (one.rank[1], one.rank[0])):
        cycles = cycles_by_model(candidate, rank)
        if any(one > slack * best for one, best in zip(cycles[:-1], result.cycles, strict=False)):
            continue
        if _is_above(cycles, result.reference) or _worst_ratio(cycles, result.reference) > max(1, result.ratio):
            continue
        return replace(result, best=candidate, others=(result.best, *result.others), cycles=cycles)
    return result


def _search_within(
    plain: Planned, fast: int, limit: int, reference: Sequence[float], rank: Ranking, budget: SearchBudget
) -> tuple[ProgramCandidate, ...]:
    """The candidates of a form where its fast pool has `limit` bytes; none where that does not fit."""
    smaller = planned_again(plain, plain.extracted, fast, limit)
    if smaller is None:
        return ()
    problem = smaller.extracted.problem
    pools = tuple(replace(p, size_bytes=limit) if i == fast else p for i, p in enumerate(problem.pools))
    sized = replace(smaller, extracted=replace(smaller.extracted, problem=replace(problem, pools=pools)))
    return search_programs((sized,), rank, budget, reference).candidates


def _used_bytes(candidate: ProgramCandidate, fast: int) -> int:
    """The bytes that a program takes of a pool, with its copies."""
    pool = candidate.plain.extracted.problem.pools[fast].name
    others = sum(usage.used_bytes for usage in candidate.plain.plan.usage if usage.pool != pool)
    return candidate.rank[1] - others


def in_better_blocks(result: SearchResult, rank: Ranking, budget: SearchBudget) -> SearchResult:
    """The result with the best in blocks that suit its stream, where those are a gain; as it is with the quick budget,
    of whose work that would be a large part.
    """
    other = None if budget == BUDGETS["quick"] else reblock_worst(result.best, rank, result.reference)
    if other is None or _is_above(other.cycles, result.reference):
        return result
    return replace(result, best=other, others=(result.best, *result.others), cycles=other.cycles)


def make_best(result: SearchResult, rank: Ranking) -> tuple[SearchResult, Planned]:
    """The plan of the best, which is verified; of another, with the fault reported, where it violates one."""
    for one in (result.best, *result.others):
        with contain_faults(f"{one.plain.extracted.loaded.backend or 'the program'} with copies of constants"):
            made = one.build(rank)
            return (
                result if one is result.best else replace(result, best=one, cycles=cycles_by_model(one, rank))
            ), made
    raise InternalError("the first program, which needs no new plan, was not among those compared")


class _Incumbent:
    """The best candidate so far, by its worst ratio to the reference, and all that it was compared with."""

    def __init__(self, candidates: Sequence[ProgramCandidate], rank: Ranking, reference: Sequence[float]) -> None:
        self.candidates, self._ranking = list(candidates), rank
        loaded, own = candidates[0].plain.extracted.loaded, cycles_by_model(candidates[0], rank)
        theirs = reference or rank.vela_cycles(loaded) or own
        alone = theirs[-1] if reference else own[-1] if loaded.vela_stream_cycles else math.inf
        self.reference = (*theirs[:-1], alone)
        self._keys: dict[int, tuple[bool, float]] = {}  # by candidate, which all live as long
        self.best = min(candidates, key=self.key)

    def key(self, candidate: ProgramCandidate) -> tuple[bool, float, Rank]:
        """The key that candidates are compared by."""
        if id(candidate) not in self._keys:
            cycles = cycles_by_model(candidate, self._ranking)
            self._keys[id(candidate)] = _is_above(cycles, self.reference), _worst_ratio(cycles, self.reference)
        return *self._keys[id(candidate)], candidate.rank

    @property
    def ratio(self) -> float:
        """The worst ratio of the best."""
        return self.key(self.best)[1]

    def enter(self, candidates: Sequence[ProgramCandidate]) -> None:
        """Compare more."""
        self.candidates += candidates
        self.best = min((self.best, *candidates), key=self.key)


def _settle(incumbent: _Incumbent, estimated: tuple[PrefetchCandidate, ...], rank: Ranking) -> SearchResult:
    """The result whose best is the finalist with the least worst ratio to Vela's own stream, or to the first program.
    The first program, as its compiler made it, is replaced only where all models agree.
    """
    first, *others = incumbent.candidates
    finalists = [first, *sorted(others, key=incumbent.key)[:_FINALISTS]]
    known = [(one, cycles_by_model(one, rank)) for one in finalists]
    stays = known[0][1]
    reference = incumbent.reference
    allowed = known[:1] + [row for row in known[1:] if not _is_above(row[1], reference)]
    agreed = [
        (_worst_ratio(cycles, reference), one, cycles) for one, cycles in allowed if all(map(le, cycles[:-1], stays))
    ]
    ordered = sorted(agreed, key=lambda row: (row[0], row[1].rank))
    best, *rest = (one for _, one, _ in ordered)
    return SearchResult(best, tuple(rest), tuple(incumbent.candidates), estimated, ordered[0][2], reference)


def _search_copies(forms: _Forms, incumbent: _Incumbent, budget: SearchBudget) -> None:
    """Search in rounds for copies of ever fewer candidates, the last round under all models at once, by which programs
    are taken in the end, and allocate those of the last round.
    """
    searched = sorted(forms, key=_optimistic_cycles)
    *rounds, (count, last) = budget.rounds
    for most, work in rounds:
        searched = sorted(searched, key=_optimistic_cycles)[:most]
        for candidate in searched:
            if not is_ended():
                candidate.search(work)
    best = [one for one in sorted(searched, key=_optimistic_cycles)[:count] if one.optimistic_cycles > one.host_cycles]
    found = [one.under_all(incumbent.reference) for one in best]
    for candidate in found:
        if not is_ended():
            candidate.search(last)
    penalties: dict[PrefetchCandidate, float] = {}  # the part of its estimate that each lost when it was allocated
    for candidate in sorted(found, key=_cost):
        _allocate(candidate, penalties, incumbent, budget)
    for candidate in sorted(found, key=_cost)[:1] if budget.last_work and not is_ended() else ():
        before = candidate.cost
        candidate.search(budget.last_work)
        if candidate.cost < before:
            _allocate(candidate, penalties, incumbent, budget)


def _allocate(
    candidate: PrefetchCandidate,
    penalties: dict[PrefetchCandidate, float],
    incumbent: _Incumbent,
    budget: SearchBudget,
) -> None:
    """Allocate a candidate whose estimate, with its own or half the smallest penalty seen, beats the best."""
    if candidate.cost * (1 + penalties.get(candidate, min(penalties.values(), default=0) / _HOPE)) < incumbent.ratio:
        made = list(candidate.candidates(budget))
        incumbent.enter(made)
        if made:
            penalties[candidate] = max(0, min(incumbent.key(one)[1] for one in made) / candidate.cost - 1)


def _cut_forms(
    programs: Sequence[Planned], rank: Ranking, fast: int, limit: int, budget: SearchBudget, most_alone: float
) -> _Forms:
    """All programs, whole and with much weight in slices, the best of them in slices of other sizes, that may take at
    most `most_alone` cycles where one operation runs at a time.
    """
    slices: dict[bytes, Slices] = {}
    forms: _Forms = {}
    made = (PrefetchCandidate(program, rank, fast, limit, most_alone) for program in programs)
    whole = sorted((one for one in made if not one.is_hopeless), key=_optimistic_cycles)
    for one in whole:
        forms[one] = _Uncut(one, slicers(one.plain.extracted, slices, rank.decoded), [])

    def cut(form: _Uncut, parts: Sequence[int]) -> None:
        for part in parts:
            most = max(limit // part, _LEAST_POOL // part, _LEAST_SLICE)
            made = form.cut(most)
            if made is not None and not made.is_hopeless:
                forms[made] = form

    for one in whole:
        if _may_gain(one, forms):
            cut(forms[one], (_PART,))
    best_first = (forms[one] for one in sorted(forms, key=_optimistic_cycles))
    for form in list(dict.fromkeys(best_first))[: budget.sliced_forms]:
        if _may_gain(form.whole, forms):
            cut(form, _OTHER_PARTS)
    return forms


def _may_gain(whole: PrefetchCandidate, forms: Iterable[PrefetchCandidate]) -> bool:
    """Whether slices of a program, all of which are encoded, may take clearly less than the best so far, by what room
    for all copies saves.
    """
    best, gain = min(map(_optimistic_cycles, forms)), whole.possible_gain
    reachable = max(whole.least_cycles, (1 - gain) * whole.optimistic_cycles)
    return gain >= _LEAST_GAIN and reachable < _NO_GAIN * best


@dataclass(frozen=True, eq=False, slots=True)
class _Uncut:
    """A program whose convolutions are whole, and what cuts them into slices."""

    whole: PrefetchCandidate
    cutters: Cutters
    seen: list[object]  # operations that were made of it

    def cut(self, most_bytes: int) -> PrefetchCandidate | None:
        """The program with heavier convolutions in slices of at most so much; None: nothing new, or no room."""
        made = {name: slicer.slice_convolutions(most_bytes) for name, (_, slicer) in self.cutters.items()}
        operations = [program and program.operations for program in made.values()]
        if operations in self.seen:
            return None
        self.seen.append(operations)
        changed, constants = {}, []
        for name, (old, slicer) in self.cutters.items():
            program = made[name]
            if program is not None:
                changed[name], data = compact(program, slicer.slices.all)
                constants.append((old, data))
        return (
            self.whole.replan_program(rebuild_problem(self.whole.plain.extracted, changed, constants))
            if changed
            else None
        )


_Forms = dict[PrefetchCandidate, _Uncut]  # what each is cut from


def _different(programs: Sequence[Planned], fast: int, limit: int, rank: Ranking) -> list[Planned]:
    """The programs that read their constants in place, each once, in pools that are no larger."""
    found: list[tuple[list[NpuProgram], Planned]] = []
    for program in programs:
        made = _read_in_place(program, fast, limit, rank)
        if made is not None:
            calls = [call.program for call in npu_calls(made.extracted.program)]
            if all(calls != known for known, _ in found):
                found.append((calls, made))
    return [made for _, made in found]


def _worst_ratio(cycles: Sequence[int], reference: Sequence[float]) -> float:
    """The worst ratio under the models that programs are compared under."""
    compared = zip(cycles[:-1], reference[:-1], strict=True)
    return max(one / other if other else 1.0 for one, other in compared)


def _is_above(cycles: Sequence[int], reference: Sequence[float]) -> bool:
    """Whether a program takes more cycles than the reference where one operation runs at a time."""
    return cycles[-1] > reference[-1]


def _rank(candidate: ProgramCandidate) -> Rank:
    return candidate.rank


def _cost(prefetch_candidate: PrefetchCandidate) -> float:
    return prefetch_candidate.cost


def _optimistic_cycles(prefetch_candidate: PrefetchCandidate) -> int:
    return prefetch_candidate.optimistic_cycles


def fast_pool(pools: tuple[Pool, ...], memory_map: MemoryMap) -> int | None:
    """The index of the writable pool that is read fastest, the last one of several; None: constants lie as well."""

    def cycles(region: int) -> float:
        memory = memory_map.regions.get(region, memory_map.regions[1])
        return memory.cycles(_SAMPLE, False, 1)

    writable = [i for i, pool in enumerate(pools) if not pool.read_only and i + 1 in memory_map.regions]
    best = min(writable, key=lambda i: (cycles(i + 1), -i), default=None)
    return best if best is not None and cycles(best + 1) < cycles(0) else None


def _limit(planned: Planned, fast: int) -> int:
    pool = planned.extracted.problem.pools[fast]
    used = {usage.pool: usage.used_bytes for usage in planned.plan.usage}[pool.name]
    return used if pool.size_bytes is None else pool.size_bytes


def read_in_place(extracted: Extracted) -> Extracted:
    """The program without its compiler's copies, and with tables loaded early."""
    changed = {}
    for call in called_once(extracted):
        program = loaded_early(in_place(call.program))
        if program is not call.program:
            changed[call.invoke.function] = program
    return rebuild_problem(extracted, changed) if changed else extracted


def _read_in_place(planned: Planned, fast: int, limit: int, rank: Ranking) -> Planned | None:
    """`planned` as `read_in_place` makes it, planned in pools that are no larger; None where that cannot be planned."""
    if (without := rank.in_place.get(planned.extracted)) is None:
        without = rank.in_place[planned.extracted] = read_in_place(planned.extracted)
    return planned if without is planned.extracted else planned_again(planned, without, fast, limit)
