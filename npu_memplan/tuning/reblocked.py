"""The program of a candidate in blocks that suit its stream, once that is known.

Invariant: nothing but blocks changes, and no model of time has more cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import gt

from ..ethosu.schedule.prefetch.context_blocks import in_context
from ..ethosu.time import MODELS
from .candidate import Moved, ProgramCandidate, cycles_by_model, with_copies
from .ranking import Ranking
from .rebuild import called_once


def reblocked(candidate: ProgramCandidate, rank: Ranking, reference: Sequence[int]) -> ProgramCandidate | None:
    """What the clock of the model makes of `candidate` in which it takes most of the cycles of the `reference`; None
    where that is no gain.
    """
    own = cycles_by_model(candidate, rank)
    worst = max(range(len(MODELS)), key=lambda index: own[index] / max(1, reference[index]))
    made = _reblocked(candidate, rank, rank.under(MODELS[worst]))
    return made if made is not None and made.cycles != own and not any(map(gt, made.cycles, own)) else None


def _reblocked(candidate: ProgramCandidate, rank: Ranking, clock: Ranking) -> ProgramCandidate | None:
    """The program by one clock; None where no blocks change."""
    plain, known = candidate.plain, {moved.call.first: moved for moved in candidate.moved}
    old = [known.get(call.first, Moved(call, call.program, {})) for call in called_once(plain.extracted)]
    new = []
    for moved in old:
        places = moved.call.places(plain.extracted.problem, plain.plan)
        places |= {name: (candidate.fast + 1, at) for name, at in moved.places.items()}
        demand_cache = clock.demand_cache(moved.program.accelerator)
        new.append(Moved(moved.call, in_context(moved.program, places.__getitem__, demand_cache), moved.places))
    if all(one.program is other.program for one, other in zip(new, old, strict=True)):
        return None
    return with_copies(plain, new, candidate.fast, rank)
