"""Copies constants to faster memory while the DMA port is idle, into bytes that the plan has free then.

Invariant: the pools stay within their sizes, or within what the plan without this needs where they have none; of the
programs with and without the copies that their compiler made and ours, the one with the fewest estimated cycles is
taken; its plan is a plan like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import le

from ..clock import is_over
from ..compiled import compiled
from ..errors import InternalError
from ..ethosu.program.program import NpuProgram
from ..ethosu.schedule.prefetch.compact import compact
from ..ethosu.schedule.prefetch.reads import in_place
from ..ethosu.schedule.prefetch.slices import Slices
from ..ethosu.schedule.prefetch.tables import loaded_early
from ..ethosu.time import MODELS, SEARCHED, MemoryMap, Traffic
from ..problem import Pool
from ..process.incidents import Fallback, contained, fall_back
from ..stages import Extracted, Planned
from .budget import BUDGETS, SearchBudget
from .candidate import ProgramCandidate, cycles_by_model
from .placed import npu_calls
from .prefetch_candidate import PrefetchCandidate, planned_again
from .ranking import Rank, Ranking
from .reblocked import reblocked
from .rebuild import Cutters, called_once, rebuild_problem, slicers

_PART, _OTHER_PARTS = 8, (4, 16, 64)  # of the pool: weights of a slice
_LEAST_SLICE, _LEAST_POOL = 2048, 32 * 1024  # bytes: smaller pools have slices as if they were so large
_WHOLE = 1 << 40  # bytes of a slice: more than any weights
_HOPE = 2  # a candidate is taken to lose at least this part of the smallest allocation penalty seen
_FINALISTS = 8  # besides the first program, by their cycles under the model of the search
_SLOWER = 4  # candidates searched under all models at any effort, where the best is slower than the reference
_SAMPLE = Traffic(1024, 64, 16)  # some bytes in whole bursts


def search_prefetching(planned: Planned, rank: Ranking) -> Planned:
    """The fastest of `planned` and the same with its constants copied otherwise.

    A pool that has no size is no larger than `planned` makes it.
    """
    searched = rank.under(SEARCHED)
    made = in_better_blocks(search_programs((planned,), searched, budget_of(planned)), searched).made
    report_missing_search()
    return made


def budget_of(planned: Planned) -> SearchBudget:
    """How far to search, as the compile's options say."""
    return BUDGETS[planned.extracted.loaded.request.options.effort]


def report_missing_search() -> None:
    """Say so where copies of constants could not be searched."""
    if missing := compiled().missing:
        text = f"the compiled searches are not available, so no copies of constants were searched: {missing}"
        fall_back(Fallback.SEARCH, text)


def is_ended() -> bool:
    """Whether no further program is compared: `--time-limit` is over, which is reported."""
    if is_over():
        fall_back(Fallback.TIME, "--time-limit ended the search for the fastest program: the best so far was taken")
    return is_over()


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Programs of one model that were compared; `made` is the plan of the `best`, which satisfies the constraints."""

    best: ProgramCandidate
    made: Planned
    candidates: tuple[ProgramCandidate, ...]  # the first program as its compiler made it comes first
    estimated: tuple[PrefetchCandidate, ...]  # all that were searched for copies, some of them not to the end
    cycles: tuple[int, ...]  # of the best, under each model of what no count decides
    reference: tuple[int, ...]  # Vela's own stream, or the first program, under the same models

    @property
    def ratio(self) -> float:
        """Cycles of the best to the reference's, under the model where that is worst."""
        return _worst_ratio(self.cycles, self.reference)


def search_programs(
    programs: Sequence[Planned], rank: Ranking, budget: SearchBudget, reference: Sequence[int] = ()
) -> SearchResult:
    """The fastest of `programs`, each as it is and with its constants copied otherwise.

    A program whose optimistic cycles cannot beat the best is not allocated. A pool without a size is no larger than
    the largest of the programs makes it. `rank` has the model of time that is searched under; `reference`: cycles
    that all are compared with under each model, if not those of Vela's own stream that the first program comes from, or
    its own.
    """
    incumbent = _Incumbent([ProgramCandidate(program, rank(program)) for program in programs], rank, reference)
    fast = fast_pool(programs[0].extracted.problem.pools, rank.memory_map)
    estimated: list[PrefetchCandidate] = []
    if fast is not None:
        limit = max(_limit(program, fast) for program in programs)
        forms = _cut_forms(_different(programs, fast, limit), rank, fast, limit, budget)
        estimated = sorted(forms, key=_optimistic_cycles)
        _search_copies(forms, incumbent, budget)
        _search_under_all(sorted(forms, key=_optimistic_cycles), incumbent, rank, budget)
    return _settle(incumbent, tuple(estimated), rank)


def prefer_bytes(result: SearchResult, slack: float, rank: Ranking) -> SearchResult:
    """With the program of the fewest bytes as the best, of those within `slack` times its cycles by each model, which
    are above the reference's nowhere unless the best's are.
    """
    most = result.best.rank[0] * slack
    near = [one for one in result.candidates if one.rank[0] <= most and one.rank[1] < result.best.rank[1]]
    for candidate in sorted(near, key=lambda one: (one.rank[1], one.rank[0])):
        cycles = cycles_by_model(candidate, rank)
        if any(one > slack * best for one, best in zip(cycles, result.cycles, strict=True)):
            continue
        if _worst_ratio(cycles, result.reference) > max(1, result.ratio):
            continue
        made = _made(candidate, rank)
        if made is not None:
            return replace(result, best=candidate, made=made, cycles=cycles)
    return result


def in_better_blocks(result: SearchResult, rank: Ranking) -> SearchResult:
    """With the best in blocks that suit its stream, where those are a gain."""
    other = reblocked(result.best, rank)
    made = None if other is None else _made(other, rank)
    return result if other is None or made is None else replace(result, best=other, made=made, cycles=other.cycles)


def _made(candidate: ProgramCandidate, rank: Ranking) -> Planned | None:
    """The program of a candidate; None, and the fault is reported, where its plan violates a constraint."""
    with contained(f"{candidate.plain.extracted.loaded.backend or 'the program'} with copies of constants"):
        return candidate.made(rank)
    return None


class _Incumbent:
    """The best candidate so far, by its cycles under the model of the search, and all that it was compared with."""

    def __init__(self, candidates: Sequence[ProgramCandidate], rank: Ranking, reference: Sequence[int]) -> None:
        self.candidates, self._ranking = list(candidates), rank
        theirs = reference or candidates[0].plain.extracted.loaded.comparable_cycles
        self.reference = tuple(theirs) or cycles_by_model(candidates[0], rank)
        self.added: list[ProgramCandidate] = []  # that were searched for under all models
        self.best = min(candidates, key=_rank)
        self.made = self.best.plain

    def enter(self, candidates: Sequence[ProgramCandidate]) -> None:
        """Compare more; the plan of one that becomes the best is verified first."""
        for candidate in sorted(candidates, key=_rank):
            if candidate.rank < self.best.rank:
                made = _made(candidate, self._ranking)
                if made is None:
                    continue
                self.made, self.best = made, candidate
            self.candidates.append(candidate)

    def add(self, candidates: Iterable[ProgramCandidate]) -> None:
        """More, which are compared under all models only, in the end."""
        self.added += candidates


def _settle(incumbent: _Incumbent, estimated: tuple[PrefetchCandidate, ...], rank: Ranking) -> SearchResult:
    """Of the finalists, the best is that whose worst ratio to Vela's own stream, or to the first program, is least.
    The first program, as its compiler made it, is replaced only where all models agree.
    """
    first, *others = incumbent.candidates
    finalists = [first, *sorted(others, key=_rank)[:_FINALISTS], *incumbent.added]
    known = [(one, cycles_by_model(one, rank)) for one in finalists]
    stays = known[0][1]
    reference = incumbent.reference
    agreed = [(_worst_ratio(cycles, reference), one, cycles) for one, cycles in known if all(map(le, cycles, stays))]
    for _, one, cycles in sorted(agreed, key=lambda row: (row[0], row[1].rank)):
        made = incumbent.made if one is incumbent.best else _made(one, rank)
        if made is not None:
            compared = (*incumbent.candidates, *incumbent.added)
            return SearchResult(one, made, compared, estimated, cycles, reference)
    raise InternalError("the first program, which needs no new plan, was not among the finalists")


def _search_copies(forms: _Forms, incumbent: _Incumbent, budget: SearchBudget) -> None:
    """Search in rounds for copies of ever fewer candidates, and allocate those of the last round."""
    searched = sorted(forms, key=_optimistic_cycles)
    for count, work in budget.rounds:
        searched = sorted(searched, key=_optimistic_cycles)[:count]
        for candidate in searched:
            if not is_ended():
                candidate.search(work)
    found = sorted(searched, key=_optimistic_cycles)
    tuned = found and budget.tunes_slices and not is_ended()
    found = [*(_with_tuned_slices(found[0], forms, budget) if tuned else ()), *found]
    penalties: dict[PrefetchCandidate, float] = {}  # the part of its estimate that each lost when it was allocated
    for candidate in found:
        _allocate(candidate, penalties, incumbent, budget)
    for candidate in found[:1] if budget.last_work and not is_ended() else ():
        before = candidate.optimistic_cycles
        candidate.search(budget.last_work)
        if candidate.optimistic_cycles < before:
            _allocate(candidate, penalties, incumbent, budget)


def _search_under_all(
    searched: Sequence[PrefetchCandidate], incumbent: _Incumbent, rank: Ranking, budget: SearchBudget
) -> None:
    """Search for copies of the best candidates once more, under all models at once, by which programs are taken in the
    end; where the model of the search is that in which the best program gains least, that was done. The best of
    them are allocated, as long as they may gain more.
    """
    reference = incumbent.reference
    cycles = cycles_by_model(incumbent.best, rank)
    worst = max(range(len(MODELS)), key=lambda index: cycles[index] / max(1, reference[index]))
    if MODELS[worst] == rank.memory_map.assumptions:
        return
    least = _worst_ratio(cycles, reference)
    count = budget.under_all if least <= 1 else max(budget.under_all, _SLOWER)
    others = []
    for candidate in searched[:count]:
        if candidate.optimistic_cycles and not is_ended():
            others.append(candidate.under_all(reference))
            others[-1].search(budget.rounds[-1][1])
    for other in sorted(others, key=lambda one: one.cost)[: count // 2]:
        if is_ended() or other.cost >= least:
            break
        made = list(other.candidates(budget))
        least = min([least, *(_worst_ratio(cycles_by_model(found, rank), reference) for found in made)])
        incumbent.add(made)


def _allocate(
    candidate: PrefetchCandidate,
    penalties: dict[PrefetchCandidate, float],
    incumbent: _Incumbent,
    budget: SearchBudget,
) -> None:
    """Allocate a candidate whose optimistic cycles, plus its own allocation penalty or half the smallest one seen, beat
    the best.
    """
    optimistic = candidate.optimistic_cycles
    if not optimistic:
        return  # nothing runs on the NPU
    hoped = optimistic * (1 + penalties.get(candidate, min(penalties.values(), default=0) / _HOPE))
    if hoped < incumbent.best.rank[0]:
        made = list(candidate.candidates(budget))
        incumbent.enter(made)
        if made:
            penalties[candidate] = max(0, min(one.rank[0] for one in made) / optimistic - 1)


def _cut_forms(programs: Sequence[Planned], rank: Ranking, fast: int, limit: int, budget: SearchBudget) -> _Forms:
    """All programs, whole and with much weight in slices, the best of them in slices of other sizes."""
    slices: dict[bytes, Slices] = {}
    forms: _Forms = {}
    whole = sorted((PrefetchCandidate(program, rank, fast, limit) for program in programs), key=_optimistic_cycles)
    for one in whole:
        forms[one] = _Uncut(one, slicers(one.plain.extracted, slices), []), _WHOLE

    def cut(form: _Uncut, parts: Sequence[int]) -> None:
        for part in parts:
            most = max(limit // part, _LEAST_POOL // part, _LEAST_SLICE)
            made = form.cut(most, {})
            if made is not None:
                forms[made] = form, most

    for one in whole:
        cut(forms[one][0], (_PART,))
    best_first = (forms[one][0] for one in sorted(forms, key=_optimistic_cycles))
    for form in list(dict.fromkeys(best_first))[: budget.sliced_forms]:
        cut(form, _OTHER_PARTS)
    return forms


def _with_tuned_slices(
    candidate: PrefetchCandidate, forms: _Forms, budget: SearchBudget
) -> Iterator[PrefetchCandidate]:
    """The same with slices of other sizes for some operations, if that estimates less."""
    form, most = forms[candidate]
    others = form.whole.tune_slices(form.cutters, most, candidate)
    made = form.cut(most, others) if any(others.values()) else None
    if made is not None:
        made.search(budget.rounds[-1][1])
        if made.optimistic_cycles < candidate.optimistic_cycles:
            yield made


@dataclass(frozen=True, eq=False, slots=True)
class _Uncut:
    """A program whose convolutions are whole, and what cuts them into slices."""

    whole: PrefetchCandidate
    cutters: Cutters
    seen: list[object]  # operations that were made of it

    def cut(self, most_bytes: int, others: Mapping[str, Mapping[int, int]]) -> PrefetchCandidate | None:
        """With convolutions of more weight in slices of at most so much, in `others` functions for single operations;
        None where that changes nothing, was seen, or does not fit.
        """
        made = {name: slicer.sliced(most_bytes, others.get(name)) for name, (_, slicer) in self.cutters.items()}
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
        return self.whole.instead(rebuild_problem(self.whole.plain.extracted, changed, constants)) if changed else None


_Forms = dict[PrefetchCandidate, tuple[_Uncut, int]]  # what each is cut from, and into slices of how many bytes


def _different(programs: Sequence[Planned], fast: int, limit: int) -> list[Planned]:
    """The programs that read their constants in place, each once, in pools that are no larger."""
    found: list[tuple[list[NpuProgram], Planned]] = []
    for program in programs:
        made = _read_in_place(program, fast, limit)
        if made is not None:
            calls = [call.program for call in npu_calls(made.extracted.program)]
            if all(calls != known for known, _ in found):
                found.append((calls, made))
    return [made for _, made in found]


def _worst_ratio(cycles: Sequence[int], reference: Sequence[int]) -> float:
    return max(one / other if other else 1.0 for one, other in zip(cycles, reference, strict=True))


def _rank(candidate: ProgramCandidate) -> Rank:
    return candidate.rank


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


def _read_in_place(planned: Planned, fast: int, limit: int) -> Planned | None:
    """The same of a plan, in pools that are no larger; None where that cannot be planned."""
    without = read_in_place(planned.extracted)
    return planned if without is planned.extracted else planned_again(planned, without, fast, limit)
