"""Which values to compute again, so that fewer bytes are live: exact on small graphs, greedy on others.

Invariant: a schedule is judged by `live_bytes` alone, whatever search found it. A graph is tasks and sizes.
"""

from __future__ import annotations

from .exact import least_cost
from .graph import Task, TaskGraph, extra_cost, least_live_bytes, live_bytes
from .greedy import evict
from .search import TaskSchedule, recompute

__all__ = [
    "Task",
    "TaskGraph",
    "TaskSchedule",
    "evict",
    "extra_cost",
    "least_cost",
    "least_live_bytes",
    "live_bytes",
    "recompute",
]
