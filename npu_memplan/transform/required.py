"""What a program needs, by a plan of it.

Invariant: the sizes of pools are no limit here.
"""

from __future__ import annotations

from dataclasses import replace

from .. import planners
from ..request import Loaded
from ..stages import extract_problem


def required_bytes(loaded: Loaded, planner: str = "auto", node_budget: int | None = None) -> int:
    """Bytes that all pools together need, whatever they have."""
    problem = extract_problem(loaded).problem
    unlimited = replace(problem, pools=tuple(replace(pool, size_bytes=None) for pool in problem.pools))
    return sum(usage.used_bytes for usage in planners.plan(unlimited, planner, node_budget=node_budget).usage)
