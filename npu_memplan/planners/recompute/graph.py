"""Tasks that make and read values, and the bytes that are live while they run in some order, some of them again.

Invariant: a schedule is a sequence of tasks in which each occurs at least once, the first times in the given order. A
task reads what was made last of each value; between its last read and the next time that it is made, a value is not
live.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Task:
    """One task: the values that it reads and makes (by number), the bytes that it needs meanwhile, and its cost.

    `repeatable` says that it may run again, with the same result.
    """

    reads: tuple[int, ...]
    makes: tuple[int, ...]
    scratch_bytes: int = 0
    cost: float = 1.0
    repeatable: bool = True


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """Tasks in their order. Value v has `sizes_bytes[v]`; those that no task makes are always there and not counted.

    `kept` values live on after the last task.
    """

    tasks: tuple[Task, ...]
    sizes_bytes: tuple[int, ...]
    kept: frozenset[int] = frozenset()

    @property
    def producers(self) -> dict[int, int]:
        """Of each value that is made, the task that makes it."""
        return {value: index for index, task in enumerate(self.tasks) for value in task.makes}

    @property
    def order(self) -> tuple[int, ...]:
        """The schedule in which nothing runs twice."""
        return tuple(range(len(self.tasks)))


def spans(graph: TaskGraph, schedule: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(value, first, last) of each time that a value is live: positions in the schedule, both included."""
    open_spans: dict[int, tuple[int, int]] = {}
    for position, index in enumerate(schedule):
        task = graph.tasks[index]
        for value in task.reads:
            if value in open_spans:
                open_spans[value] = open_spans[value][0], position
        for value in task.makes:
            if value in open_spans:
                yield value, *open_spans[value]
            open_spans[value] = position, position
    for value, (first, last) in open_spans.items():
        yield value, first, len(schedule) - 1 if value in graph.kept else last


def live_bytes(
    graph: TaskGraph, schedule: Sequence[int], found: Iterable[tuple[int, int, int]] | None = None
) -> list[int]:
    """Bytes live while each task of a schedule runs, its scratch included; `found` are its spans, if known."""
    steps = [0] * (len(schedule) + 1)
    for value, first, last in spans(graph, schedule) if found is None else found:
        steps[first] += graph.sizes_bytes[value]
        steps[last + 1] -= graph.sizes_bytes[value]
    level, levels = 0, []
    for index, step in zip(schedule, steps, strict=False):
        level += step
        levels.append(level + graph.tasks[index].scratch_bytes)
    return levels


def least_live_bytes(graph: TaskGraph) -> int:
    """Bytes below which no schedule is: what the hungriest task reads and makes, and its scratch."""
    made = graph.producers
    return max(
        (t.scratch_bytes + sum(graph.sizes_bytes[v] for v in {*t.reads, *t.makes} if v in made) for t in graph.tasks),
        default=0,
    )


def extra_cost(graph: TaskGraph, schedule: Sequence[int]) -> float:
    """Cost of what a schedule runs again."""
    return sum(graph.tasks[index].cost for index in schedule) - sum(task.cost for task in graph.tasks)
