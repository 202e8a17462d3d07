"""The program with the fewest bytes of all that can be made: for `--objective bytes`, and where no other fits.

Invariant: the program taken is verified; the error where it does not fit says what it needs. Programs of equally many
bytes are compared by their cycles. What the search for the fewest cycles finds in pools of the size that it takes is
not better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from .. import planners, verify
from ..errors import RefusalError
from ..frontend.load import FormatError
from ..knobs import ON_HOST
from ..options import CompileOptions, OptionError
from ..planners import PlanningError, prefetch
from ..problem import Plan, PlanStatus
from ..process.incidents import Attempts, report_phase
from ..stages import Extracted, Planned
from .cascades import STRIPES
from .ranking import ModelCache, Ranking, beside_vela, planned_sizes, without_limits
from .selection import OURS, SMALL, VELA, cascade_cache, reorder_programs, select_fastest
from .weight_prefetch import is_ended, read_in_place, search_prefetching

HOST = "the host alone"  # the backend
_ROUNDS = 6  # of a search in pools that are no larger than what the one before takes
_ALIGNMENT = 16  # bytes
_WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    (VELA, {"npu_compiler": "vela"}),
    (SMALL, {"npu_compiler": "vela", "optimise": "Size"}),
    (OURS, {"npu_compiler": "tvm"}),
    (STRIPES, {"npu_compiler": "tvm", "stripes": True}),
    (HOST, dict(ON_HOST)),
)


def smallest(options: CompileOptions, models: ModelCache) -> Planned:
    """The program with the fewest bytes for resolved `options`, of all backends.

    Raises `PlanningError` where that does not fit, and what the first backend raises where none makes a program.
    """
    report_phase("searching the fewest bytes")
    attempts, found, missed = Attempts(), list[Planned](), list[tuple[PlanningError, Extracted]]()
    for backend, extracted in _programs(options, models, attempts):
        with attempts.attempt_by(backend):
            try:
                found.append(Planned(extracted, _plan(extracted)))
            except PlanningError as error:
                missed.append((error, extracted))
    memory_map = options.memory_map()
    assert memory_map is not None
    rank = models.ranking(memory_map)
    if missed and not found:
        best = _find_beyond_size(missed, options, models, rank)
        best = _note_backends(without_limits(best, options, planned_sizes(options)), [best], rank)
        return beside_vela(best, models)
    attempts.settle_errors(bool(found), (FormatError,), least=(FormatError,))
    ordered = sorted(found, key=lambda planned: rank(planned)[::-1])
    best = next(planned for planned in ordered if all(_may_win(planned, other) for other in ordered))
    verify.check_own(best.extracted.problem, best.plan)
    if not options.for_cycles:
        best = _shrink_program(best, options, models, rank)
    best = _note_backends(without_limits(best, options, planned_sizes(options)), found, rank)
    if options.for_cycles and options.planner in prefetch.SEARCHING:  # in the room that the pools leave
        best = search_prefetching(best, rank)
        verify.check_own(best.extracted.problem, best.plan)
    return beside_vela(best, models)


def _shrink_program(planned: Planned, options: CompileOptions, models: ModelCache, rank: Ranking) -> Planned:
    """`planned`, or what the search for the fewest cycles finds in pools of its size, and in ever smaller ones; each
    program in pools of some size, which it need not fill.
    """
    if options.planner not in prefetch.SEARCHING:
        return planned
    best, last = planned, next(reversed(planned_sizes(options)))

    def select_smaller(less: int, enough: float) -> Planned | None:
        """In pools of the sizes that the best takes, the last `less` bytes smaller; None where nothing fits."""
        sizes = {name: _height(best.plan, name) for name in planned_sizes(options)}
        if sizes[last] <= less:
            return None
        sized = replace(options, objective="auto", max_ms=None, pools={**sizes, last: sizes[last] - less})
        try:
            return select_fastest(sized, rank.memory_map, models, enough=enough)
        except PlanningError:
            return None if less else search_prefetching(without_limits(best, sized, planned_sizes(sized)), rank)

    for _ in range(_ROUNDS):
        made = None if is_ended() else select_smaller(_ALIGNMENT, inf)
        if made is None or rank(made)[::-1] >= rank(best)[::-1]:
            break
        best = made
    made = None if is_ended() else select_smaller(0, 0)
    return best if made is None else min(made, best, key=lambda one: rank(one)[::-1])


def _find_beyond_size(
    missed: Sequence[tuple[PlanningError, Extracted]], options: CompileOptions, models: ModelCache, rank: Ranking
) -> Planned:
    """The program with the fewest bytes where nothing fits at first: that of the same options without a size, so that
    both are one answer; with two pools, of which one may be too small alone, what the smallest shrinks to. Raises
    `PlanningError` where that does not fit either.
    """
    best = None
    if options.pools and len(planned_sizes(options)) == 1:
        free = replace(options, objective="bytes", max_ms=None, pools={})
        best = models.keep("the fewest bytes", lambda: smallest(free, models))
        if _fits(best, options):
            return best
    measured = [_measure_excess(*one) for one in missed]
    least, planned = min(measured, key=lambda one: one[0].required_bytes)
    if best is None and planned is not None:
        best = _shrink_program(planned, options, models, rank)
    if best is not None and _fits(best, options):
        return best
    made = [one for one in (*(one for _, one in measured), best) if one is not None]
    least = replace(least, by_backend=_backend_bytes(made, least.pool))
    if best is None or best is planned:
        raise least
    raise replace(
        least, required_bytes=_height(best.plan, least.pool), proven=False, source="the smallest program found"
    )


def _programs(options: CompileOptions, models: ModelCache, attempts: Attempts) -> Iterator[tuple[str, Extracted]]:
    """The program of each backend; of a stream that copies constants also without its copies, and of native lowering,
    for few bytes and for few cycles, in another order, and so in stripes.
    """
    for backend, changes in _WAYS:
        try:
            wanted = replace(options, objective="bytes", max_ms=None, **changes).resolve_defaults()
        except OptionError:  # another option forbids this way
            continue
        with attempts.attempt_by(backend):
            extracted = models.extract(wanted, backend)
            yield backend, extracted
            if backend in (VELA, SMALL) and (without := read_in_place(extracted)) is not extracted:
                yield backend, without
    yield from _reordered_programs(options, models, attempts)


def smallest_stripes(options: CompileOptions, models: ModelCache, rank: Ranking) -> Planned | None:
    """The fastest program in stripes that need the fewest bytes; None where none fits the pools."""
    attempts, found = Attempts(), list[Planned]()
    for backend, extracted in _reordered_programs(options, models, attempts):
        with attempts.attempt_by(backend):
            if backend == STRIPES:
                found.append(Planned(extracted, _plan(extracted)))
    attempts.settle_errors(True, (RefusalError,))
    best = min(found, key=rank, default=None)
    return best and _note_backends(without_limits(best, options, planned_sizes(options)), found, rank)


def _reordered_programs(
    options: CompileOptions, models: ModelCache, attempts: Attempts
) -> Iterator[tuple[str, Extracted]]:
    """The programs of native lowering whose operations have the order that the search for the fewest cycles takes."""
    if (memory_map := options.memory_map()) is None:
        return
    stripes = cascade_cache(models, memory_map)
    for objective in ("bytes", "cycles"):
        wanted = replace(options, objective=objective, max_ms=None, npu_compiler="tvm").resolve_defaults()
        with attempts.attempt_by(OURS):
            made = models.extract(wanted, OURS, reorder_programs)
            yield OURS, made
            if (cut := stripes.fewest_bytes(made)) is not None:
                yield STRIPES, cut


def _plan(extracted: Extracted) -> Plan:
    options = extracted.loaded.request.options
    return prefetch.plan(extracted.problem, options.planner, options.time_limit_s)


def _measure_excess(error: PlanningError, extracted: Extracted) -> tuple[PlanningError, Planned | None]:
    """The same error with the bytes that a plan needs of the pool, which may be more than the bound that it states, and
    that plan; None where another pool is too small as well.
    """
    options = extracted.loaded.request.options
    pools = tuple(replace(p, size_bytes=None) if p.name == error.pool else p for p in extracted.problem.pools)
    problem = replace(extracted.problem, pools=pools)
    try:
        plan = planners.plan(problem, options.planner, options.time_limit_s)
    except PlanningError:
        return replace(error, problem=extracted.problem), None
    proven = plan.status is PlanStatus.OPTIMAL
    source = "" if proven else f"a plan of {plan.planner}"
    needed = _height(plan, error.pool)
    error = replace(error, required_bytes=needed, proven=proven, source=source, problem=extracted.problem)
    return error, Planned(replace(extracted, problem=problem), plan)


def _backend_bytes(found: Sequence[Planned], pool: str) -> tuple[tuple[str, int], ...]:
    """The bytes of `pool` that the smallest of the programs `found` needs, by backend, the fewest first."""
    least: dict[str, int] = {}
    for planned in found:
        backend, size = planned.extracted.loaded.backend, _height(planned.plan, pool)
        least[backend] = min(size, least.get(backend, size))
    return tuple(sorted(least.items(), key=lambda one: one[1]))


def _height(plan: Plan, pool: str) -> int:
    return next(usage.used_bytes for usage in plan.usage if usage.pool == pool)


def _fits(planned: Planned, options: CompileOptions) -> bool:
    """Whether no pool takes more than its size."""
    sizes = planned_sizes(options)
    return all(size is None or _height(planned.plan, pool) <= size for pool, size in sizes.items())


def _note_backends(best: Planned, found: Sequence[Planned], rank: Ranking) -> Planned:
    """`best` with a note of what the programs `found` need by their backends."""
    loaded = best.extracted.loaded
    least: dict[str, int] = {}
    for planned in found:
        backend = planned.extracted.loaded.backend
        least[backend] = min(rank(planned)[1], least.get(backend, rank(planned)[1]))
    others = ", ".join(f"{backend} {size:,}" for backend, size in least.items() if backend != loaded.backend)
    text = f"{loaded.backend}, {rank(best)[1]:,} bytes{f'; {others}' if others else ''}"
    return replace(best, extracted=replace(best.extracted, loaded=loaded.with_selection(text)))


def _may_win(planned: Planned, other: Planned) -> bool:
    """Whether it is not the host alone, or needs fewer bytes than the `other`, and no more of any pool: of two pools,
    the host has all maps in the slower one. For as many it is not taken: its estimate has no wait states of memories.
    """
    if planned.extracted.loaded.backend != HOST or other is planned:
        return True
    uses = [(own.used_bytes, its.used_bytes) for own, its in zip(planned.plan.usage, other.plan.usage, strict=True)]
    return all(own <= its for own, its in uses) and any(own < its for own, its in uses)
