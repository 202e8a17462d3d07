"""What programs are compared by: their estimated cycles, then their bytes.

Invariant: the cycles of a program are estimated once, however often it is compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ethosu.time import MemoryMap
from ..stages import Planned
from .placed import cycles_of


@dataclass(frozen=True, slots=True)
class Ranking:
    """Called with a planned program: (cycles, bytes), the smaller the better."""

    where: MemoryMap
    known: dict[Planned, tuple[int, int]] = field(default_factory=dict)

    def __call__(self, planned: Planned) -> tuple[int, int]:
        """Cycles, then bytes."""
        if planned not in self.known:
            cycles = cycles_of(planned.posed.program, planned.posed.problem, planned.plan, self.where)
            self.known[planned] = cycles, sum(usage.used_bytes for usage in planned.plan.usage)
        return self.known[planned]
