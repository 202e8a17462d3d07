"""The cheapest schedule that the searches know for a limit.

Invariant: exact where the graph is small enough for its budget, which the schedule then says; no clock is asked.
"""

from __future__ import annotations

from dataclasses import dataclass

from .exact import least_cost
from .graph import TaskGraph, extra_cost, live_bytes
from .greedy import evict

TASKS, STATES = 24, 5_000
"""Graphs up to so many tasks are searched exactly, up to so many states."""


@dataclass(frozen=True, slots=True)
class TaskSchedule:
    """Tasks in the order in which they run, some more than once; `optimal`: nothing within the limit costs less."""

    order: tuple[int, ...]
    extra_cost: float
    peak_bytes: int
    optimal: bool


def recompute(graph: TaskGraph, limit_bytes: int) -> TaskSchedule | None:
    """A schedule that never has more than `limit_bytes` live; None when none was found."""
    order, optimal = None, False
    if len(graph.tasks) <= TASKS:
        order, optimal = least_cost(graph, limit_bytes, STATES)
    if order is None and not optimal:
        order = evict(graph, limit_bytes)
    if order is None:
        return None
    return TaskSchedule(order, extra_cost(graph, order), max(live_bytes(graph, order), default=0), optimal)
