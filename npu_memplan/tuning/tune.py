"""A compile that compares candidates: the fewest cycles, with prefetched constants, or the fewest bytes.

Invariant: the program taken is verified; in the fewest bytes, it takes the fewest cycles that were found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .. import verify
from ..options import CompileOptions, Objective, OptionError
from ..planners import PlanningError, prefetch
from ..process.incidents import report_phase
from ..request import Loaded
from ..stages import Extracted, Planned

if TYPE_CHECKING:
    from ..ethosu.time import MemoryMap


def tune(
    options: CompileOptions,
    load: Callable[[CompileOptions], Loaded],
    name: str,
    extract: Callable[[Loaded], Extracted],
    constants_near: bool = False,
) -> Planned | None:
    """The best of all programs of a model; None where the options leave one only, or none fits.

    `load` reads and lowers the model, called `name`, as the options it is given ask; `extract` states its problem.
    `constants_near`: the best for constants that lie in the fastest memory. Raises `SpeedError` where none is as fast
    as was requested.
    """
    options = options.resolve_defaults()
    objective = options.resolved_objective
    memory_map = _memories(options)
    if memory_map is not None and constants_near:
        memory_map = memory_map.with_constants_near()
    if objective is Objective.BYTES_IN_TIME:
        if memory_map is None:
            known = " or ".join(prefetch.SEARCHING)
            raise OptionError(
                f"--max-ms chooses among programs by their time, with --planner {known}; "
                f"--planner {options.planner} and {options.accelerator} were requested"
            )
        from .limits import fast_enough

        return fast_enough(options, memory_map, load, name)
    from .ranking import ModelCache, endless_pools

    models = ModelCache(load, endless_pools(options), extract)
    in_velas_bytes = objective is Objective.CYCLES_IN_VELAS_BYTES
    if memory_map is not None and in_velas_bytes and not options.board:
        from .limits import tune_within_vela

        return tune_within_vela(options, memory_map, models)
    if options.has_rivals and objective is Objective.BYTES:
        from .smallest import smallest

        return smallest(options, models)
    compares = options.has_rivals or in_velas_bytes or (options.stripes and options.has_size)
    if memory_map is None or not compares:
        return None
    from .limits import select_in_pools, tune_on_board

    try:
        return (tune_on_board if in_velas_bytes else select_in_pools)(options, memory_map, models)
    except PlanningError:
        if options.has_rivals:
            raise
        return None


def prefetch_weights(planned: Planned) -> Planned:
    """The stage `prefetch_weights`: the same program with constants copied to SRAM while the DMA port is idle."""
    options = planned.extracted.loaded.request.options
    memory_map = _memories(options)
    if memory_map is None:
        return planned
    report_phase("moving weights when the port is idle")
    from .ranking import Ranking
    from .weight_prefetch import search_prefetching

    faster = search_prefetching(planned, Ranking(memory_map))
    verify.check_own(faster.extracted.problem, faster.plan)
    return faster


def make_resident(planned: Planned, select_near: Callable[[], Planned | None]) -> Planned:
    """The stage `make_resident`: constants in the fast pool for good, as far as `--resident` asks for; `select_near`
    gives the best program for constants that lie there.
    """
    options = planned.extracted.loaded.request.options
    if options.resident == "none":
        return planned
    from .resident import make_resident

    return make_resident(planned, select_near)


def _memories(options: CompileOptions) -> MemoryMap | None:
    """The memories that cycles are counted with, where cycles are what counts; None where bytes are."""
    return options.memory_map() if options.for_cycles and options.planner in prefetch.SEARCHING else None
