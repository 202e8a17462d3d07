"""What a planner says when a problem does not fit.

Invariant: `required - available == excess > 0`, and the message names the peak, the
largest buffers there and what would make it fit.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from ..errors import NpuMemplanError, RefusalError
from ..problem import Problem


class PlannerUseError(NpuMemplanError):
    """A planner is requested by an unknown name, or with an unusable budget."""


class OutOfTime(Exception):
    """A time limit is over in the middle of something that is of no use unless it is finished.

    Never seen by callers of `plan`: it answers with the best layout in hand, or a quick one.
    """


@dataclass(eq=False, repr=False)
class PlanningError(RefusalError):
    """No plan fits the pools.

    `required_bytes` is what pool `pool` would need (a proven bound when `proven`, else the height of a plan that was
    found: `source` says which), `available_bytes` its hard size. `point` and `point_label` say when
    memory is fullest; `largest` are up to five (buffer name, bytes) live there, largest first;
    `subset` names buffers that cannot be together in the pool (all needed for it), when known;
    `problem` is the one that needs the fewest bytes, where several were planned.
    """

    message: str
    _: KW_ONLY
    pool: str = ""
    required_bytes: int = 0
    available_bytes: int = 0
    point: int | None = None
    point_label: str = ""
    largest: tuple[tuple[str, int], ...] = ()
    proven: bool = False
    source: str = ""
    subset: tuple[str, ...] = ()
    problem: Problem | None = None

    def __post_init__(self) -> None:
        super().__init__(self.message)

    @property
    def excess_bytes(self) -> int:
        """What the pool lacks."""
        return self.required_bytes - self.available_bytes
