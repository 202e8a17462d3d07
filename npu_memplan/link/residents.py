"""Resident constants of several networks in the room that they leave of one pool.

Invariant: what stays in the pool is chosen by cycles saved in all networks together, each counted as often as it runs;
no network's other buffers are moved for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..artifact.application import ApplicationError
from ..options import Resident
from ..problem import Plan
from ..stages import Planned
from ..tuning.resident import share_room


def with_residents(
    networks: Mapping[str, Planned], plan: Plan, requested: Resident, weights: Mapping[str, float]
) -> dict[str, Planned]:
    """The networks with resident constants in what their joint `plan` leaves of the fast pool."""
    made = share_room(list(networks.values()), plan, requested, [weights[name] for name in networks])
    if made is None:
        raise ApplicationError(
            "--resident all does not fit beside the networks, or the pool has no size for --resident auto; give "
            "--pool NAME=SIZE, or leave the choice to --resident auto"
        )
    return dict(zip(networks, made, strict=True))
