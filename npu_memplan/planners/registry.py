"""The table of planners, the context that a planner gets, and the message of a problem that does not fit.

Invariant: a planner is a function from `(problem, context)` to placements; what it returns is verified before anybody
sees it, so a wrong planner can not do harm. The message only describes. The subset of buffers that it names is
infeasible by itself, and no member can be left out (as far as `infeasible` can tell).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ..clock import clock_s
from ..compiled import c_library
from ..problem import Placement, Plan, Problem
from ..process.incidents import Fallback, fall_back
from .bounds import Peak, forced_pools, load_peak
from .model import Item, Model, PlannerUseError, PlanningError

DEFAULT_NODES = 200_000  # what a planner may spend when neither time nor nodes are limited


@dataclass(slots=True)
class Context:
    """The means that a planner may use besides the problem.

    `seed` is the only source of chance. `nodes` counts down units of work (one placed buffer,
    roughly); with only a node budget the answer never depends on a clock. A planner should
    return its best plan when `is_exhausted()` turns true, never raise for it.
    """

    model: Model
    seed: int = 0
    nodes: int | None = None
    deadline: float | None = None  # of `clock.now`
    started: float = field(default_factory=clock_s)
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

    def is_exhausted(self) -> bool:
        """True once the budget is used up; remembered in the plan."""
        if (self.nodes is not None and self.nodes <= 0) or (self.deadline is not None and clock_s() >= self.deadline):
            self.stopped_early = True
            return True
        return False

    def note(self, text: str) -> None:
        """Let the plan say `text`, once."""
        if text not in self.notes:
            self.notes.append(text)

    def has_compiled(self) -> bool:
        """Whether the compiled searches can be called; where they cannot, the plan says why."""
        missing = c_library().missing
        if missing:
            text = f"the compiled searches are not available: {missing}"
            self.note(text)
            fall_back(Fallback.SEARCH, text)
        return not missing

    def share(self, part: float) -> Context:
        """A context with `part` of what is left of this one's budget; `spend` here what was spent there."""
        nodes = None if self.nodes is None else int(max(0, self.nodes) * part)
        left = self.remaining_s()
        deadline = None if left is None else clock_s() + left * part
        return Context(self.model, self.seed, nodes, deadline, self.started)

    def remaining_s(self) -> float | None:
        """Seconds left, None without a time limit."""
        return None if self.deadline is None else max(0.0, self.deadline - clock_s())


Planner = Callable[[Problem, Context], Iterable[Placement]]
_P = TypeVar("_P", bound=Planner)
_PLANNERS: dict[str, Planner] = {}
USMP_PLANNERS = {name.replace("-", "_"): name for name in ("greedy-by-size", "greedy-by-conflicts", "hill-climb")}


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


_T = TypeVar("_T")


def irreducible(whole: Sequence[_T], infeasible: Callable[[list[_T]], bool], stop: Callable[[], bool]) -> list[_T]:
    """Members of `whole`, which is infeasible, that are so together; `stop` ends the work early."""
    kept = list(whole)
    chunk = max(1, len(kept) // 2)
    while kept and not stop():
        removed = False
        start = 0
        while start < len(kept):
            trial = kept[:start] + kept[start + chunk :]
            if infeasible(trial):
                kept, removed = trial, True
            else:
                start += chunk
        if chunk > 1:
            chunk = max(1, chunk // 2)
        elif not removed:
            break
    return kept


@dataclass(frozen=True, slots=True)
class NeededHeight:
    """Height of a pool in bytes, and which plan has it; an empty `source` says that no plan has less."""

    bytes: int
    source: str = ""


def live_at(model: Model, point: int, pool: int) -> list[tuple[str, int]]:
    """(buffer name, bytes) of all buffers live at `point` that may be in `pool`, largest first."""
    found = [
        (buffer.name, buffer.size_bytes)
        for item in model.items
        if item.first <= point < item.last and pool in item.pools
        for buffer, _ in item.parts
        if buffer.lives_at(point)
    ]
    return sorted(found, key=lambda entry: (-entry[1], entry[0]))


def overfull(model: Model, point: int, pool: int) -> list[str]:
    """Buffers that overfill `pool` at `point`, none to spare; empty where some may overlap."""
    room = model.capacity[pool]
    must = [item for item in model.items if item.pools == (pool,) and item.size]
    live = [item for item in must if any(first <= point < last for first, last in item.lifetimes)]
    if room is None or any(item.index in model.special for item in live):
        return []
    chosen: list[str] = []
    total = 0
    for item in sorted(live, key=lambda item: (-item.size, item.index)):
        chosen.append(item.name)
        total += item.size
        if total > room:
            return sorted(chosen)
    return []


Limits = Sequence[int | None]
Place = Callable[[Limits], tuple[Sequence[int], str] | None]


def does_not_fit(context: Context, item: int, place: Place) -> PlanningError:
    """The error of a problem in which `item` found no place, within what was tried.

    `place` gives heights of the pools when these are their limits, and how they were reached; None when that found no
    place either. It is only computed where nothing is proven.
    """
    proof = _overfilled_pool_error(context.model)
    if proof is not None:
        return proof
    model = context.model
    pool, need = _need(context, item, place)
    entry = model.items[item]
    lines = [f"  {entry.name!r} ({entry.size} bytes) found no place"]
    if context.stopped_early:
        lines.append("  the budget ended the search before it had a plan, or a proof that there is none")
    lines += [f"  {note}" for note in context.notes]
    return _error(model, pool, load_peak(model, pool), need, lines)


def _need(context: Context, item: int, place: Place) -> tuple[int, NeededHeight]:
    """A pool that would hold a plan if it were larger, and how large that is."""
    model = context.model
    bounded = [pool for pool in reversed(model.items[item].pools) if model.capacity[pool] is not None]
    if context.least_found is not None:
        return 0, NeededHeight(context.least_found, "least height found")
    for pools in (*([pool] for pool in bounded), range(len(model.capacity))):
        limits = [None if k in pools else size for k, size in enumerate(model.capacity)]
        if (placed := place(limits)) is not None:
            heights, source = placed
            excess = {p: heights[p] - size for p in pools if (size := model.capacity[p]) is not None}
            most = max(excess, key=lambda p: (excess[p], -p))
            if excess[most] > 0:
                return most, NeededHeight(heights[most], source)
    # out of time: another plan might have fitted
    return bounded[0], NeededHeight((model.capacity[bounded[0]] or 0) + 1, "or less: no plan was found in time")


def proven(context: Context, least: int, items: Iterable[Item]) -> PlanningError:
    """The error of a problem with one pool that provably needs `least` bytes; `items` already do."""
    model = context.model
    subset = sorted(buffer.name for item in items for buffer, _ in item.parts)
    return _overfilled_pool_error(model, subset) or _error(
        model, 0, load_peak(model, 0), NeededHeight(least), [], subset
    )


def _overfilled_pool_error(model: Model, subset: Sequence[str] = ()) -> PlanningError | None:
    """The error of the pool that is furthest overfilled by buffers with no other choice, which is proof."""
    only = forced_pools(model)
    bounded = [(pool, size) for pool, size in enumerate(model.capacity) if size is not None]
    peaks = [(load_peak(model, pool, only), pool, size) for pool, size in bounded]
    peak, pool, size = max(peaks, key=lambda of: of[0].bytes - of[2], default=(Peak(0, None), 0, 0))
    if peak.bytes <= size:
        return None
    if not subset and peak.point is not None:
        subset = overfull(model, peak.point, pool)
    return _error(model, pool, peak, NeededHeight(peak.bytes), [], subset)


def _error(
    model: Model, pool: int, peak: Peak, need: NeededHeight, more: Sequence[str], subset: Sequence[str] = ()
) -> PlanningError:
    """The error: numbers, the peak, `more` lines, what cannot be together, and the next step."""
    available = model.capacity[pool] or 0
    excess = need.bytes - available
    name = model.pool_names[pool]
    points = model.problem.points
    label = points[peak.point] if peak.point is not None and 0 <= peak.point < len(points) else ""
    largest = (
        tuple(live_at(model, peak.point, pool)[:5])
        if peak.point is not None
        else tuple((model.items[i].name, model.items[i].size) for i in peak.members[:5])
    )
    lines = [
        f"the buffers of problem {model.problem.name!r} do not fit pool {name!r}: required {need.bytes} bytes"
        f"{f' ({need.source})' if need.source else ''}, available {available}, excess {excess}"
    ]
    if peak.point is not None:
        lines.append(
            f"  memory is fullest at point {peak.point}{f' ({label})' if label else ''}; largest buffers there:"
        )
    elif largest:
        lines.append("  these conflict with each other; the largest:")
    lines.extend(f"    {buffer}: {size} bytes" for buffer, size in largest)
    lines += more
    if subset:
        shown = ", ".join(subset[:12]) + (f" and {len(subset) - 12} more" if len(subset) > 12 else "")
        lines.append(f"  these {len(subset)} cannot be together in {available} bytes: {shown}")
    lines.append("  " + _remedy(model, pool, excess, not need.source, largest))
    return PlanningError(
        "\n".join(lines),
        pool=name,
        required_bytes=need.bytes,
        available_bytes=available,
        point=peak.point,
        point_label=label,
        largest=largest,
        proven=not need.source,
        source=need.source,
        subset=tuple(subset),
    )


def _remedy(model: Model, pool: int, excess: int, proven: bool, largest: Sequence[tuple[str, int]]) -> str:
    """The next step that has a chance."""
    name = model.pool_names[pool]
    options = [f"enlarge pool {name!r} by {excess} bytes"]
    others = [p for p in model.pool_names if p != name]
    single = [b for b, _ in largest if b in {i.name for i in model.items if len(i.pools) == 1}]
    if others and single:
        options.append(f"let {single[0]!r} live in {others[-1]!r} too")
    elif not others:
        options.append("add a second pool that buffers may spill to")
    if not proven:
        options.append("give the planner more time or nodes (a better plan may exist)")
    else:
        options.append("make the buffers at the peak smaller or shorter-lived")
    return "to make it fit: " + ", or ".join(options)
