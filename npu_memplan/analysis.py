"""The memory that a module needs, computed without changing it.

Invariant: all answers come from the same lifetimes that `PlanMemory` plans with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .extract import ExtractionError, extract
from .problem import Lifetime, Pool, Problem
from .problem.spans import MemoryPressure, pressure_of

if TYPE_CHECKING:
    from .transform.comparison import Comparison

__all__ = ["Liveness", "MemoryPressure", "compare", "conflict_graph", "liveness", "memory_pressure", "problem"]


@dataclass(frozen=True, slots=True)
class Liveness:
    """Half-open lifetimes of every buffer; `points[t]` says what happens at point t."""

    points: tuple[str, ...]
    lifetimes: Mapping[str, tuple[Lifetime, ...]]
    sizes_bytes: Mapping[str, int]

    def live_at(self, point: int) -> tuple[str, ...]:
        """Names of the buffers live at `point`, in the problem's order."""
        return tuple(name for name, lives in self.lifetimes.items() if any(x.first <= point < x.last for x in lives))


def problem(module: Any, *, function: str = "main", io_in_pools: bool = True, overlaps: bool = True) -> Problem:
    """The planning problem of one Relax function on one unbounded pool."""
    from .transform.legalize import legalize
    from .vocabulary import POOLS

    for gv, f in module.functions.items():
        if gv.name_hint == function and POOLS in f.attrs:
            raise ExtractionError(f"{function!r} is planned already; analyse the module as it was before PlanMemory")
    return extract(legalize(module), [Pool("workspace")], function=function, io_in_pools=io_in_pools, overlaps=overlaps)


def liveness(module: Any, *, function: str = "main", io_in_pools: bool = True) -> Liveness:
    """The lifetimes of each tensor and of each allocation inside PrimFuncs."""
    found = problem(module, function=function, io_in_pools=io_in_pools, overlaps=False)
    sizes = {b.name: b.size_bytes for b in found.buffers}
    return Liveness(found.points, {b.name: b.lifetimes for b in found.buffers}, sizes)


def memory_pressure(module: Any, *, function: str = "main", io_in_pools: bool = True) -> MemoryPressure:
    """Bytes live at every point, the peak of which no plan without overlaps is below."""
    return pressure_of(problem(module, function=function, io_in_pools=io_in_pools, overlaps=False))


def conflict_graph(module: Any, *, function: str = "main", io_in_pools: bool = True) -> dict[str, frozenset[str]]:
    """Name of each buffer -> names of the buffers that may not share bytes with it; symmetric."""
    found = problem(module, function=function, io_in_pools=io_in_pools, overlaps=False)
    group = {name: g.name for g in found.aliases for name, _ in g.members}
    edges: dict[str, set[str]] = {b.name: set() for b in found.buffers}
    starts = sorted((life.first, life.last, b.name) for b in found.buffers for life in b.lifetimes)
    active: list[tuple[int, str]] = []
    for first, last, name in starts:
        active = [(end, other) for end, other in active if end > first]
        for _, other in active:
            if other != name and not (name in group and group.get(other) == group[name]):
                edges[name].add(other)
                edges[other].add(name)
        active.append((last, name))
    for a, b in found.conflicts:
        edges[a].add(b)
        edges[b].add(a)
    return {name: frozenset(others) for name, others in edges.items()}


def compare(module: Any, symbols: Mapping[str, int] | None = None, **given: Any) -> Comparison:
    """Bytes of a module as TVM plans it and as `PlanMemory` does with the parameters `given`, and the bound of any
    plan.

    `symbols` are values of shape symbols; those left out are their bounds, if they have any. The rows of the result
    have the bytes by function and device, its `table()` is Markdown.
    """
    from .transform.comparison import compare

    return compare(module, symbols, **given)
