"""How far the tuning searches, by `--effort`; one record, with the origin of each number.

Invariant: all limits are units of work, never seconds, so that an effort gives the same program on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..ethosu.schedule.prefetch.search import WORK

# Tried by hand on the benchmark networks, whose winners lie at all of them; nothing says that they are the best.
_SHARES = (1.0, 0.85, 0.75, 0.6, 0.45, 0.3, 0.2)


@dataclass(frozen=True, slots=True)
class SearchBudget:
    """`work` is in the units of `prefetch.search.WORK`."""

    rounds: tuple[tuple[int, int], ...]  # so many of the best candidates are searched on, to so much work each
    allocation_work: int  # of copies that get addresses
    plan_nodes: int  # of each plan of maps and copies
    last_work: int  # of the best candidate, once some have addresses; 0: none
    shares: tuple[float, ...]  # of the pool, for stripes whose weights are prefetched
    in_place_shares: tuple[float, ...]  # the same, whose weights are read in place
    read_once_shares: tuple[float, ...]  # the same, whose weights are prefetched where they are read again
    both_lowerings: bool  # for few bytes too, for its stripes, in a default compile whose maps are in the fast pool
    sliced_forms: int  # candidates that are cut into slices of other sizes
    tunes_slices: bool = False  # of single operations
    least_gain: float = 0.0  # part of the cycles: stripes are made where about so much may be gained

    @property
    def stripes(self) -> bool:
        """Whether operations are cut into stripes."""
        return bool(self.shares or self.in_place_shares or self.read_once_shares)


# `normal` is successive halving: fewer candidates, each with more work. `quick` is its first round, with no stripes but
# those of pools with a size. `normal` has three of the shares: on the benchmark networks they find what all find.
BUDGETS = {
    "quick": SearchBudget(((4, WORK // 10),), WORK // 16, 20_000, 0, (), (), (), False, 0),
    "normal": SearchBudget(
        ((16, WORK // 10), (8, WORK // 4), (4, WORK // 2)), WORK // 4, 4_000, 0, (1.0, 0.85, 0.6), (), (), False, 2,
        least_gain=0.07,
    ),
    "max": SearchBudget(
        ((32, WORK // 4), (16, WORK), (8, 2 * WORK)), WORK, 20_000, 8 * WORK,
        (1.0, 0.92, 0.85, 0.8, 0.75, 0.67, 0.6, 0.52, 0.45, 0.37, 0.3, 0.25, 0.2), _SHARES[:4], _SHARES[:3], True, 4,
        tunes_slices=True,
    ),
}  # fmt: skip

# By which a search goes on whose program is slower than Vela's stream: with stripes that leave their constants in place
_MORE_STRIPES = replace(
    BUDGETS["normal"],
    shares=_SHARES,
    in_place_shares=_SHARES[:2],
    read_once_shares=_SHARES[1:2],
    tunes_slices=True,
    least_gain=0.0,
)


def further_budget(budget: SearchBudget) -> SearchBudget | None:
    """The budget of a second search, where a program is slower than Vela's stream; None where there is none."""
    later = {BUDGETS["quick"]: BUDGETS["normal"], BUDGETS["normal"]: _MORE_STRIPES}
    return later.get(budget)
