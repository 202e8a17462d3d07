"""The program with the fewest bytes of all that can be made: of `--objective bytes`, and where no other fits.

Invariant: the program taken is verified; the error where it does not fit says what it needs. Programs of equally many
bytes are compared by their cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from .. import planners, verify
from ..frontend.load import FormatError
from ..knobs import ON_HOST
from ..options import CompileOptions, OptionError
from ..planners import PlanningError, prefetch
from ..problem import Plan, PlanStatus
from ..process.incidents import Attempts, report_phase
from ..request import Loaded
from ..stages import Extracted, Planned
from .cascades import STRIPES
from .ranking import ModelCache, Ranking, beside_vela
from .selection import OURS, SMALL, VELA
from .weight_prefetch import read_in_place, search_prefetching

HOST = "the host alone"  # the backend
_WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    (VELA, {"npu_compiler": "vela"}),
    (SMALL, {"npu_compiler": "vela", "optimise": "Size"}),
    (OURS, {"npu_compiler": "tvm"}),
    (STRIPES, {"npu_compiler": "tvm", "stripes": True}),
    (HOST, dict(ON_HOST)),
)


def smallest(options: CompileOptions, models: ModelCache, extract: Callable[[Loaded], Extracted]) -> Planned:
    """The program with the fewest bytes for resolved `options`, of all backends; `extract` states its problem.

    Raises `PlanningError` where that does not fit, and what the first backend raises where none makes a program.
    """
    report_phase("searching the fewest bytes")
    attempts, found, missed = Attempts(), list[Planned](), list[PlanningError]()
    for backend, extracted in _programs(options, models, extract, attempts):
        with attempts.attempt_by(backend):
            try:
                found.append(Planned(extracted, _plan(extracted)))
            except PlanningError as error:
                missed.append(_with_height(error, extracted))
    if missed and not found:
        raise min(missed, key=lambda error: error.required_bytes)
    attempts.settle_errors(bool(found), (FormatError,), least=(FormatError,))
    memory_map = options.memory_map()
    assert memory_map is not None
    rank = Ranking(memory_map)
    ordered = sorted(found, key=lambda planned: rank(planned)[::-1])
    best = next(planned for planned in ordered if all(_may_win(planned, other) for other in ordered))
    verify.check_own(best.extracted.problem, best.plan)
    loaded = best.extracted.loaded
    least: dict[str, int] = {}
    for planned in found:
        backend = planned.extracted.loaded.backend
        least[backend] = min(rank(planned)[1], least.get(backend, rank(planned)[1]))
    others = ", ".join(f"{backend} {size:,}" for backend, size in least.items() if backend != loaded.backend)
    text = f"taken: {loaded.backend}, {rank(best)[1]:,} bytes{f'; {others}' if others else ''}"
    loaded = replace(loaded, notes=(*loaded.notes, text), request=loaded.request.with_options(options))
    best = replace(best, extracted=replace(best.extracted, loaded=loaded))
    if options.for_cycles and options.planner in prefetch.SEARCHING:  # in the room that the pools leave
        best = search_prefetching(best, rank)
        verify.check_own(best.extracted.problem, best.plan)
    return beside_vela(best, models)


def _programs(
    options: CompileOptions, models: ModelCache, extract: Callable[[Loaded], Extracted], attempts: Attempts
) -> Iterator[tuple[str, Extracted]]:
    """The program of each backend, and of a stream that copies constants the same without its copies."""
    for backend, changes in _WAYS:
        try:
            wanted = replace(options, objective="bytes", max_ms=None, **changes).resolve_defaults()
        except OptionError:  # another option forbids this way
            continue
        with attempts.attempt_by(backend):
            extracted = extract(replace(models.lower(wanted), backend=backend))
            yield backend, extracted
            if backend in (VELA, SMALL) and (without := read_in_place(extracted)) is not extracted:
                yield backend, without


def _plan(extracted: Extracted) -> Plan:
    options = extracted.loaded.request.options
    return prefetch.plan(extracted.problem, options.planner, options.time_limit_s)


def _with_height(error: PlanningError, extracted: Extracted) -> PlanningError:
    """The same error with the bytes that a plan needs of the pool, which may be more than the bound that it states."""
    options = extracted.loaded.request.options
    pools = tuple(replace(p, size_bytes=None) if p.name == error.pool else p for p in extracted.problem.pools)
    try:
        plan = planners.plan(replace(extracted.problem, pools=pools), options.planner, options.time_limit_s)
    except PlanningError:  # another pool is too small as well
        return replace(error, problem=extracted.problem)
    height = next(usage.used_bytes for usage in plan.usage if usage.pool == error.pool)
    proven = plan.status is PlanStatus.OPTIMAL
    source = "" if proven else f"a plan of {plan.planner}"
    return replace(error, required_bytes=height, proven=proven, source=source, problem=extracted.problem)


def _may_win(planned: Planned, other: Planned) -> bool:
    """Whether it is not the host alone, or needs no more of any pool than the `other`: of two pools, the host has all
    maps in the slower one.
    """
    if planned.extracted.loaded.backend != HOST or other is planned:
        return True
    return all(own.used_bytes <= its.used_bytes for own, its in zip(planned.plan.usage, other.plan.usage, strict=True))
