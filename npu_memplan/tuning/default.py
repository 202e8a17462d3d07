"""The program of a compile that names neither a size, a board nor a time: as fast as Vela's memory allows.

Objective: the fewest cycles within the arena of Vela's Performance mode; then, among programs within `_SLACK` of
those cycles, the fewest bytes. Where Vela's arena counts other things than a plan does (host operators have scratch,
states lie outside), the limit is the bytes of the best plan of Vela's stream; where Vela refuses the model, those of
native lowering's plan. A pool that has a size of its own (Dedicated_Sram's) may be used up to it, as long as all pools
together take no more bytes than Vela's.

Invariant: the result is a verified plan within the limit; no pool keeps the limit as its own size.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from operator import gt

from .. import planners
from ..errors import RefusalError
from ..ethosu.time import MemoryMap
from ..options import CompileOptions
from ..planners import PlanningError
from ..request import Loaded
from ..stages import Extracted, Planned
from .candidate import ProgramCandidate, cycles_by_model
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
    theirs = _velas_bytes(models, options, free, extract)
    limits = {name: theirs[name] for name in free if theirs.get(name)}
    if not limits:
        return None
    slack, rank = _SLACK if options.objective == "auto" else 1.0, Ranking(memory_map)

    def found(pools: Mapping[str, int]) -> Planned | None:
        """The program with pools of these sizes; None where nothing fits, or nothing runs on the NPU."""
        sized = replace(options, pools={**options.pools, **pools})
        try:
            best = select_fastest(sized, memory_map, models.loaded, slack, extract, always_stripes=False)
        except PlanningError:
            return None
        return _compacted(best, _stream_cycles(models, options), slack, rank) if rank(best)[0] else None

    best = found(limits)
    if best is not None and rank(best)[1] > sum(theirs.values()):
        best = found({name: theirs.get(name, 0) for name in sizes}) or best
    if best is None:
        return None
    best = without_limits(best, options, sizes)
    loaded = replace(best.extracted.loaded, limit_bytes=limits)
    return beside_vela(replace(best, extracted=replace(best.extracted, loaded=loaded)), models)


def _velas_bytes(
    models: ModelCache, options: CompileOptions, free: Collection[str], extract: Callable[[Loaded], Extracted]
) -> Mapping[str, int]:
    """Bytes by pool of Vela's arena, or of a plan; nothing where that takes none of the pools `free`, which have no
    size of their own.
    """
    for compiler in ("vela", "tvm"):
        try:
            loaded = models.loaded(replace(options, npu_compiler=compiler))
        except RefusalError:
            continue
        if any(loaded.vela_arena_bytes.get(name) for name in free):
            return loaded.vela_arena_bytes
        try:
            plan = planners.plan(extract(loaded).problem, node_budget=_NODES)
        except PlanningError:
            continue
        return {usage.pool: usage.used_bytes for usage in plan.usage}
    return {}


def _stream_cycles(models: ModelCache, options: CompileOptions) -> Sequence[int]:
    """Vela's, where they can be compared; nothing where it refuses the model."""
    try:
        return models.loaded(replace(options, npu_compiler="vela")).comparable_cycles
    except RefusalError:
        return ()


def _compacted(planned: Planned, theirs: Sequence[int], slack: float, rank: Ranking) -> Planned:
    """The same program in the fewest bytes, where that takes at most `slack` times its cycles by each timing model, and
    does not rise above `theirs`.
    """
    problem, plan = planned.extracted.problem, planned.plan
    try:
        smaller = Planned(planned.extracted, planners.plan(problem, "auto", seed=plan.seed, node_budget=_NODES))
    except PlanningError:
        return planned
    own, cycles = (cycles_by_model(ProgramCandidate(one, rank(one)), rank) for one in (planned, smaller))
    most = [max(one, min(slack * one, other)) for one, other in zip(own, theirs or own, strict=True)]
    used = rank(smaller)[1]
    if used >= rank(planned)[1] or any(map(gt, cycles, most)):
        return planned
    loaded = planned.extracted.loaded
    notes = (*loaded.notes, f"planned again for fewer bytes: {used:,} bytes, {cycles[0]:,} cycles")
    return replace(smaller, extracted=replace(smaller.extracted, loaded=replace(loaded, notes=notes)))
