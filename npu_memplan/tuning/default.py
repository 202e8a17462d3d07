"""The program of a compile that names neither a size, a board nor a time: as fast as Vela's memory allows.

Objective: the fewest cycles within the arena of Vela's Performance mode; then, among programs within `_SLACK` of
those cycles, the fewest bytes. Where Vela's arena counts other things than a plan does (host operators have scratch,
states lie outside), the limit is the bytes of the best plan of Vela's stream; where Vela refuses the model, those of
native lowering's plan.

Invariant: the result is a verified plan within the limit; no pool keeps the limit as its own size.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from .. import planners
from ..errors import RefusalError
from ..ethosu.time import MemoryMap
from ..options import CompileOptions
from ..planners import PlanningError
from ..request import Loaded
from ..stages import Extracted, Planned
from .models import ENDLESS, ModelCache, beside_vela, without_limits
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
    sizes = {pool.name: pool.size_bytes for pool in options.planned_pools()}
    free = [name for name, size in sizes.items() if size is None]
    models = ModelCache(load, {**options.pools, **dict.fromkeys(free, ENDLESS)})
    limits = _limits(models, options, free, extract)
    if not limits:
        return None
    sized = replace(options, pools={**options.pools, **limits})
    slack = _SLACK if options.objective == "auto" else 1.0
    try:
        best = select_fastest(sized, memory_map, models.loaded, slack, extract, always_stripes=False)
    except PlanningError:
        return None
    rank = Ranking(memory_map)
    if not rank(best)[0]:
        return None  # nothing runs on the NPU
    best = _compacted(best, int(rank(best)[0] * slack), rank)
    best = without_limits(best, options, sizes)
    loaded = replace(best.extracted.loaded, limit_bytes=limits)
    return beside_vela(replace(best, extracted=replace(best.extracted, loaded=loaded)), models)


def _limits(
    models: ModelCache, options: CompileOptions, free: Collection[str], extract: Callable[[Loaded], Extracted]
) -> Mapping[str, int]:
    """Bytes by pool, of the pools `free`, which have no size of their own."""
    for compiler in ("vela", "tvm"):
        try:
            loaded = models.loaded(replace(options, npu_compiler=compiler))
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
