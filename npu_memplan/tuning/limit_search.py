"""The fastest programs of one model at several limits of its last pool, and the one with the fewest bytes.

Invariant: no larger limit has more cycles than a smaller one requested before: what won there fits here, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from .. import verify
from ..errors import RefusalError
from ..ethosu.time import MemoryMap
from ..options import CompileOptions
from ..planners import PlanningError
from ..request import Loaded
from ..stages import Planned, extract_problem
from .models import ENDLESS, ModelCache, beside_vela
from .ranking import Ranking
from .selection import select_fastest
from .smallest import smallest


@dataclass(frozen=True, slots=True)
class Winner:
    """The program that won at a limit; `size_bytes` of the pool are what it needs."""

    limit_bytes: int
    planned: Planned
    cycles: int
    size_bytes: int


class LimitSearch:
    """The fastest of the programs that resolved `options` ask for; `load` reads and lowers the model, once for each."""

    def __init__(
        self, options: CompileOptions, memory_map: MemoryMap, load: Callable[[CompileOptions], Loaded]
    ) -> None:
        self.options, self.memory_map = options, memory_map
        self.pool = options.planned_pools()[-1].name
        self.error: RefusalError | None = None  # of the last limit at which nothing could be made
        self._models = ModelCache(load, {**options.pools, self.pool: ENDLESS})
        self.loaded = self._models.loaded
        self._won: list[Winner] = []

    def at(self, limit_bytes: int) -> Winner | None:
        """The fastest in so many bytes; None where nothing fits, or no program can be made."""
        requested = replace(self.options, pools={**self.options.pools, self.pool: limit_bytes})
        try:
            best = self._best(requested)
        except RefusalError as error:
            self.error = error
        else:
            self._won.append(self._winner(limit_bytes, best))
        fitting = [winner for winner in self._won if winner.size_bytes <= limit_bytes]
        return min(fitting, key=lambda w: (w.cycles, w.size_bytes, w.limit_bytes), default=None)

    def least(self) -> Winner | None:
        """That in the fewest bytes that any program needs; None where one backend makes all, or other pools are too
        small.
        """
        if not self.options.competes:
            return None
        try:
            found = smallest(replace(self.options, objective="bytes", max_ms=None), self._models, extract_problem)
        except RefusalError as error:
            self.error = error
            return None
        return self.at(self._winner(0, found).size_bytes)

    def _best(self, requested: CompileOptions) -> Planned:
        """As a compile of the same options selects it."""
        try:
            best = select_fastest(requested, self.memory_map, self.loaded)
        except PlanningError:
            if not requested.competes:
                raise
            return smallest(requested, self._models, extract_problem)
        verify.check_own(best.extracted.problem, best.plan)
        return beside_vela(best, self._models) if requested.competes else best

    def _winner(self, limit_bytes: int, planned: Planned) -> Winner:
        cycles, _ = Ranking(self.memory_map)(planned)
        used = next(usage.used_bytes for usage in planned.plan.usage if usage.pool == self.pool)
        return Winner(limit_bytes, planned, cycles, used)
