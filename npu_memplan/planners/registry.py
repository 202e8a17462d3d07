"""The table of planners, and what one gets to work with.

Invariant: a planner is a function from `(problem, context)` to placements; what it
returns is verified before anybody sees it, so a wrong planner can not do harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from ..clock import now
from ..compiled import compiled
from ..problem import Placement, Plan, Problem
from ..process.incidents import Fallback, fall_back
from .errors import PlannerUseError
from .model import Model

DEFAULT_NODES = 200_000  # what a planner may spend when neither time nor nodes are limited


@dataclass(slots=True)
class Context:
    """What a planner may use besides the problem.

    `seed` is the only source of chance. `nodes` counts down units of work (one placed buffer,
    roughly); with only a node budget the answer never depends on a clock. A planner should
    return its best plan when `exhausted()` turns true, never raise for it.
    """

    model: Model
    seed: int = 0
    nodes: int | None = None
    deadline: float | None = None  # of `clock.now`
    started: float = field(default_factory=now)
    stopped_early: bool = False
    cost_proven: bool = False  # a planner proved that no assignment to pools costs less
    incumbent: Plan | None = None  # a valid plan to start from
    bounds: dict[int, int] = field(default_factory=dict)  # pool index -> proven height, better than max-live
    least_found: int | None = None  # least height that was found for a pool that cannot hold it
    notes: list[str] = field(default_factory=list)  # what the plan should say about how it was made

    def spend(self, nodes: int) -> None:
        """Count `nodes` units of work."""
        if self.nodes is not None:
            self.nodes -= nodes

    def exhausted(self) -> bool:
        """True once the budget is used up; remembered in the plan."""
        if (self.nodes is not None and self.nodes <= 0) or (self.deadline is not None and now() >= self.deadline):
            self.stopped_early = True
            return True
        return False

    def note(self, text: str) -> None:
        """Let the plan say `text`, once."""
        if text not in self.notes:
            self.notes.append(text)

    def has_compiled(self) -> bool:
        """Whether the compiled searches can be called; where they cannot, the plan says why."""
        missing = compiled().missing
        if missing:
            text = f"the compiled searches are not available: {missing}"
            self.note(text)
            fall_back(Fallback.SEARCH, text)
        return not missing

    def share(self, part: float) -> Context:
        """A context with `part` of what is left of this one's budget; `spend` here what was spent there."""
        nodes = None if self.nodes is None else int(max(0, self.nodes) * part)
        left = self.remaining_s()
        deadline = None if left is None else now() + left * part
        return Context(self.model, self.seed, nodes, deadline, self.started)

    def remaining_s(self) -> float | None:
        """Seconds left, None without a time limit."""
        return None if self.deadline is None else max(0.0, self.deadline - now())


Planner = Callable[[Problem, Context], Iterable[Placement]]
_P = TypeVar("_P", bound=Planner)
_PLANNERS: dict[str, Planner] = {}


def register(name: str) -> Callable[[_P], _P]:
    """Decorator: make a function available as planner `name` (replacing an earlier one of that name).

    >>> @register("mine")
    ... def mine(problem, context):
    ...     return [Placement(...), ...]
    """

    def add(planner: _P) -> _P:
        _PLANNERS[name] = planner
        return planner

    return add


def planner_names() -> tuple[str, ...]:
    """Names of all planners, sorted."""
    return tuple(sorted(_PLANNERS))


def find(name: str) -> Planner:
    """The planner called `name`; `PlannerUseError` when there is none."""
    try:
        return _PLANNERS[name]
    except KeyError:
        raise PlannerUseError(f"no planner is called {name!r}; there are: {', '.join(planner_names())}") from None
