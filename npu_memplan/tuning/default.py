"""The program of a compile that names neither a size, a board nor a time: as fast as Vela's memory allows.

Objective: the fewest cycles within the arena of Vela's Performance mode; then, among programs within `_SLACK` of
those cycles, the fewest bytes. Where Vela's arena counts other things than a plan does (host operators have scratch,
states lie outside), the limit is the bytes of the best plan of Vela's stream; where Vela refuses the model, those of
native lowering's plan.

Invariant: the result is a verified plan within the limit; no pool keeps the limit as a size that was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from .. import planners, verify
from ..errors import RefusalError
from ..ethosu.time import MemoryMap
from ..options import CompileOptions
from ..planners import PlanningError
from ..request import Loaded
from ..stages import Extracted, Planned
from .limit_search import ENDLESS
from .ranking import Ranking
from .selection import select_fastest

_SLACK = 1.01  # of the fewest cycles
_NODES = 20_000  # of the plan that gives a limit, and of the one that makes the result small


def tune_within_vela(
    options: CompileOptions,
    memory_map: MemoryMap,
    load: Callable[[CompileOptions], Loaded],
    extract: Callable[[Loaded], Extracted],
) -> Planned | None:
    """The program for resolved `options`; None where nothing fits the limit. `load` and `extract` as for
    `select_fastest`.
    """
    models = _Models(options, load)
    limits = _limits(models, extract)
    if not limits:
        return None
    sized = replace(options, pools={**options.pools, **limits})
    slack = _SLACK if options.objective == "auto" else 1.0
    try:
        best = select_fastest(sized, memory_map, models.loaded, slack, extract)
    except PlanningError:
        return None
    rank = Ranking(memory_map)
    if not rank(best)[0]:
        return None  # nothing runs on the NPU
    best = _compacted(best, int(rank(best)[0] * slack), rank)
    return _beside_vela(_as_requested(best, options), models)


class _Models:
    """The model as each backend makes it, read once: nothing that is read or lowered follows from a pool's size."""

    def __init__(self, options: CompileOptions, load: Callable[[CompileOptions], Loaded]) -> None:
        self.options, self._load = options, load
        self._known: dict[tuple[str, bool], Loaded | RefusalError] = {}

    def loaded(self, wanted: CompileOptions) -> Loaded:
        key = wanted.npu_compiler, wanted.for_cycles
        if key not in self._known:
            try:
                pools = {**wanted.pools, **{p.name: ENDLESS for p in wanted.planned_pools() if p.size_bytes is None}}
                self._known[key] = self._load(replace(wanted, pools=pools))
            except RefusalError as refused:
                self._known[key] = refused
        known = self._known[key]
        if isinstance(known, RefusalError):
            raise known
        return replace(known, request=replace(known.request, options=wanted, pools=wanted.planned_pools()))


def _limits(models: _Models, extract: Callable[[Loaded], Extracted]) -> Mapping[str, int]:
    """Bytes by pool, of those that have no size of their own."""
    free = [pool.name for pool in models.options.planned_pools() if pool.size_bytes is None]
    for compiler in ("vela", "tvm"):
        try:
            loaded = models.loaded(replace(models.options, npu_compiler=compiler))
        except RefusalError:
            continue
        arenas = {name: size for name, size in loaded.vela_arena_bytes.items() if name in free and size}
        if arenas:
            return arenas
        try:
            plan = planners.plan(extract(loaded).problem, node_budget=_NODES)
        except PlanningError:
            continue
        return {usage.pool: usage.used_bytes for usage in plan.usage if usage.pool in free and usage.used_bytes}
    return {}


def _compacted(planned: Planned, most_cycles: int, rank: Ranking) -> Planned:
    """The same program in the fewest bytes, where that costs no more than `most_cycles`."""
    problem, plan = planned.extracted.problem, planned.plan
    try:
        smaller = Planned(planned.extracted, planners.plan(problem, "auto", seed=plan.seed, node_budget=_NODES))
    except PlanningError:
        return planned
    cycles, used = rank(smaller)
    if used >= rank(planned)[1] or cycles > most_cycles:
        return planned
    loaded = planned.extracted.loaded
    notes = (*loaded.notes, f"planned again for fewer bytes: {used:,} bytes, {cycles:,} cycles")
    return replace(smaller, extracted=replace(smaller.extracted, loaded=replace(loaded, notes=notes)))


def _beside_vela(planned: Planned, models: _Models) -> Planned:
    """With Vela's own figures, whichever program was taken."""
    try:
        vela = models.loaded(replace(models.options, npu_compiler="vela"))
    except RefusalError:
        return planned
    loaded = replace(
        planned.extracted.loaded,
        vela_arena_bytes=vela.vela_arena_bytes,
        vela_cycles=vela.vela_cycles,
        vela_stream_bounds=vela.vela_stream_bounds,
    )
    return replace(planned, extracted=replace(planned.extracted, loaded=loaded))


def _as_requested(planned: Planned, options: CompileOptions) -> Planned:
    """With the pools and options that were asked for, in place of the limits."""
    loaded = planned.extracted.loaded
    loaded = replace(loaded, request=replace(loaded.request, options=options, pools=options.planned_pools()))
    sizes = {pool.name: pool.size_bytes for pool in options.planned_pools()}
    problem = planned.extracted.problem
    pools = tuple(replace(p, size_bytes=sizes.get(p.name, p.size_bytes)) for p in problem.pools)
    problem = replace(problem, pools=pools)
    verify.check_own(problem, planned.plan)
    return replace(planned, extracted=replace(planned.extracted, loaded=loaded, problem=problem))
