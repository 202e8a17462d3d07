"""The function with the least extra cost whose plan fits the pools.

Invariant: a schedule is found by bytes that are live, and accepted by the bytes of its plan. In place and overlapping
tensors need fewer than are live, so the limit of the search is moved until the plan just fits.
"""

from __future__ import annotations

from typing import Any

from ...planners.errors import PlanningError
from ...planners.recompute import TaskSchedule, least_live_bytes, live_bytes, recompute
from ...request import Loaded, Request
from ...vocabulary import RECOMPUTED
from ..required import required_bytes
from .tasks import CallTasks

ATTEMPTS = 6
CLOSE = 1.02
"""Limits of the search this near to each other count as equal."""


QUICK = "first-fit"
"""The planner that judges schedules: a plan needs no more than it says."""


def fit(module: Any, requested: Request) -> Any:
    """`module` (in legal form) with calls of the requested function run again, so that its plan fits the pools.

    The module itself where it fits as it is. `PlanningError` where no schedule that fits was found.
    """
    sizes = [pool.size_bytes for pool in requested.pools]
    available = sum(size or 0 for size in sizes)
    required = required_bytes(Loaded.given(requested, module), requested.options.planner)
    if None in sizes or required <= available:
        return module
    tasks = CallTasks(module, requested.function, requested)
    graph = tasks.graph
    limit = peak = max(live_bytes(graph, graph.order), default=0)
    best, above, least = None, peak, required
    floor = least_live_bytes(graph)
    limit = max(floor, int(peak * available / required))
    below = 0
    for _ in range(ATTEMPTS):
        schedule = recompute(graph, limit)
        if schedule is None:
            below = max(below, limit)
            limit = (limit + above) // 2
        else:
            changed = tasks.scheduled(schedule.order)
            used = required_bytes(Loaded.given(requested, changed), QUICK)
            least = min(least, used)
            if used <= available:
                below, best = limit, (changed, schedule)
            else:
                above = limit
            near = int(limit * available / used)
            limit = max(floor, near if below < near < above else (below + above) // 2)
        if below and above <= below * CLOSE:
            break
    if best is None:
        raise PlanningError(
            f"{requested.function!r} needs {required} bytes, {least} with what can be computed again (its largest call"
            f" alone has {floor} live); the pools have {available}, {least - available} too few; give larger pools, or"
            " one without a size behind them",
            pool=requested.pools[0].name,
            required_bytes=least,
            available_bytes=available,
        )
    return _described(*best, requested.function, sum(task.cost for task in graph.tasks))


def _described(module: Any, schedule: TaskSchedule, name: str, cost: float) -> Any:
    """The module with what runs again in an attribute of its function."""
    gv = module.get_global_var(name)
    extra = len(schedule.order) - len(set(schedule.order))
    percent = f"{100 * schedule.extra_cost / cost:.1f}"
    module.update_func(gv, module[gv].with_attr(RECOMPUTED, [str(extra), percent]))
    return module
