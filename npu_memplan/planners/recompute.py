"""Which values to compute again, so that fewer bytes are live: a greedy search.

Invariant: a schedule is judged by `live_bytes` alone. It is a sequence of tasks in which each occurs at least once, the
first times in the given order; a task reads what was made last of each value, and between its last read and the next
time that it is made, a value is not live. Every move of the search lowers the bytes above the limit, summed over the
schedule, so it ends.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise


@dataclass(frozen=True, slots=True)
class Task:
    """One task: values that it reads and makes, bytes that it needs meanwhile, cost, whether it may run again."""

    reads: tuple[int, ...]
    makes: tuple[int, ...]
    scratch_bytes: int = 0
    cost: float = 1.0
    repeatable: bool = True


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """Tasks in order; value v has `sizes_bytes[v]`, those that no task makes are not counted, `kept` live on."""

    tasks: tuple[Task, ...]
    sizes_bytes: tuple[int, ...]
    kept: frozenset[int] = frozenset()

    @property
    def producers(self) -> dict[int, int]:
        """The task that makes each value that is made."""
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


DEPTHS = (0, 1, 2, 4, 8, 1 << 30)
"""How far back what is no longer live is made again; beyond, it lives on."""
LOOKS = 10
"""Moves that a search looks at for each task of the graph, before it ends without a schedule."""
EXPONENTS = (1.0, 0.5)
"""What is saved is weighed against its cost to this power; the cheapest schedule counts."""


def evict(graph: TaskGraph, limit_bytes: int) -> tuple[int, ...] | None:
    """A schedule that never has more than `limit_bytes` live, or None: no move helps any more, or `LOOKS` are over."""
    found = [s for e in EXPONENTS if (s := _Search(graph, limit_bytes, e).run()) is not None]
    return min(found, key=lambda schedule: extra_cost(graph, schedule), default=None)


@dataclass(frozen=True, slots=True)
class _Move:
    """Runs `tasks` before a reader."""

    tasks: tuple[int, ...]
    cost: float
    saved_bytes: int  # above the limit, over all positions


class _Search:
    def __init__(self, graph: TaskGraph, limit_bytes: int, exponent: float) -> None:
        self.graph, self.limit, self.exponent = graph, limit_bytes, exponent
        self.producers = graph.producers
        self.looks = 0
        self.runs: list[int] = list(range(len(graph.tasks)))  # what the schedule has, by number
        self.task_of = list(range(len(graph.tasks)))  # of each of these numbers
        self._measure()

    def _measure(self) -> None:
        """Everything that follows from the schedule."""
        schedule = [self.task_of[run] for run in self.runs]
        self.position = {run: i for i, run in enumerate(self.runs)}
        self.touches: dict[int, list[int]] = {}
        for i, index in enumerate(schedule):
            task = self.graph.tasks[index]
            for value in {*task.reads, *task.makes}:
                self.touches.setdefault(value, []).append(i)
        self.spans: dict[int, list[tuple[int, int]]] = {}
        found = list(spans(self.graph, schedule))
        for value, first, last in found:
            self.spans.setdefault(value, []).append((first, last))
        self.live = live_bytes(self.graph, schedule, found)
        self.over = [max(0, level - self.limit) for level in self.live]
        self.sums = [0, *accumulate(self.over)]

    def run(self) -> tuple[int, ...] | None:
        queue: list[tuple[float, int, int]] = []
        while self.sums[-1]:
            if self.looks > LOOKS * len(self.graph.tasks):
                return None
            if not queue:
                queue = self._candidates()
                if not queue:
                    return None
            _, value, reader = heapq.heappop(queue)
            move = self._best(value, reader)
            if move is None:
                continue
            score = self._score(move)
            if queue and score > queue[0][0]:  # the schedule has changed since it was put there
                heapq.heappush(queue, (score, value, reader))
                continue
            self._apply(move, reader)
        self._shorten()
        return tuple(self.task_of[run] for run in self.runs)

    def _score(self, move: _Move) -> float:
        weight: float = max(move.cost, 1e-9) ** self.exponent
        return -move.saved_bytes / weight

    def _candidates(self) -> list[tuple[float, int, int]]:
        """(score, value, reader) wherever a value lives on for a later reader while too much is live."""
        found = []
        for value, positions in self.touches.items():
            producer = self.producers.get(value)
            if producer is None or not self.graph.sizes_bytes[value] or not self.graph.tasks[producer].repeatable:
                continue
            for before, at in pairwise(positions):
                if self.sums[at] - self.sums[before + 1] > 0:
                    move = self._best(value, self.runs[at])
                    if move is not None:
                        found.append((self._score(move), value, self.runs[at]))
        heapq.heapify(found)
        return found

    def _best(self, value: int, reader: int) -> _Move | None:
        """The best way to make `value` again before `reader`; None where that saves nothing."""
        moves = []
        self.looks += 1
        seen: set[tuple[int, ...]] = set()
        at = self.position[reader]
        if value not in self.graph.tasks[self.task_of[reader]].reads:
            return None
        for depth in DEPTHS:
            tasks = self._chain(value, at, depth)
            if tasks in seen:
                break
            seen.add(tasks)
            saved = self._saved_bytes(value, at, tasks)
            if saved > 0:
                moves.append(_Move(tasks, sum(self.graph.tasks[t].cost for t in tasks), saved))
        return min(moves, key=self._score, default=None)

    def _is_live(self, value: int, at: int) -> bool:
        """Whether `value` is there when the task at a position begins."""
        found = self.spans.get(value)
        if value not in self.producers or found is None:
            return True
        return any(first < at <= last for first, last in found)

    def _chain(self, value: int, at: int, depth: int) -> tuple[int, ...]:
        """Tasks that make `value` again at a position, in their order."""
        found: set[int] = set()
        level = [self.producers[value]]
        while level:
            found.update(level)
            depth -= 1
            if depth < 0:
                break
            dead = {v for task in level for v in self.graph.tasks[task].reads if not self._is_live(v, at)}
            level = [t for t in {self.producers[v] for v in dead} - found if self.graph.tasks[t].repeatable]
        return tuple(sorted(found))

    def _saved_bytes(self, value: int, at: int, tasks: Sequence[int]) -> int:
        """Bytes above the limit that go when `tasks` run again at a position, less those that come."""
        graph, sizes = self.graph, self.graph.sizes_bytes
        made = {v for task in tasks for v in graph.tasks[task].makes}
        touches = self.touches[value]
        changes: list[tuple[int, int]] = [(touches[bisect_left(touches, at) - 1] + 1, -sizes[value])]
        longer = 0
        for other in {v for task in tasks for v in graph.tasks[task].reads} - made:
            if not self._is_live(other, at):
                start = max(last for first, last in self.spans[other] if first < at) + 1
                changes.append((start, sizes[other]))
                longer += sizes[other]
        changes.sort()
        saved = level = 0
        for number, (start, change) in enumerate(changes):
            level += change
            stop = changes[number + 1][0] if number + 1 < len(changes) else at
            if level < 0:
                saved += sum(min(over, -level) for over in self.over[start:stop] if over)
            elif level > 0:
                saved -= sum(max(0, live + level - self.limit) for live in self.live[start:stop])
                saved += self.sums[stop] - self.sums[start]
        return saved - self._excess_of(value, at, tasks, longer)

    def _excess_of(self, value: int, at: int, tasks: Sequence[int], longer: int) -> int:
        """Bytes above the limit while `tasks` run before a position, summed over them."""
        graph, sizes = self.graph, self.graph.sizes_bytes
        reader = graph.tasks[self.task_of[self.runs[at]]]
        level = self.live[at] - reader.scratch_bytes - sum(sizes[v] for v in reader.makes) - sizes[value] + longer
        last = {v: i for i, task in enumerate(tasks) for v in (*graph.tasks[task].makes, *graph.tasks[task].reads)}
        own = {v for task in tasks for v in graph.tasks[task].makes if not self._is_live(v, at)} | {value}
        freed = [0] * len(tasks)  # bytes of those whose last use is there
        for v in own - {value}:
            freed[last[v]] += sizes[v]
        excess = 0
        for i, index in enumerate(tasks):
            task = graph.tasks[index]
            level += sum(sizes[v] for v in task.makes if v in own)
            excess += max(0, level + task.scratch_bytes - self.limit)
            level -= freed[i]
        return excess

    def _apply(self, move: _Move, reader: int) -> None:
        at = self.position[reader]
        first = len(self.task_of)
        self.task_of += move.tasks
        self.runs[at:at] = range(first, first + len(move.tasks))
        self._measure()

    def _shorten(self) -> None:
        """Remove repeated tasks that save nothing."""
        again = [run for run in self.runs if run >= len(self.graph.tasks)]
        for run in sorted(again, key=lambda run: (-self.graph.tasks[self.task_of[run]].cost, run)):
            fewer = [other for other in self.runs if other != run]
            if max(live_bytes(self.graph, [self.task_of[r] for r in fewer]), default=0) <= self.limit:
                self.runs = fewer


@dataclass(frozen=True, slots=True)
class TaskSchedule:
    """Tasks in the order in which they run, some more than once."""

    order: tuple[int, ...]
    extra_cost: float
    peak_bytes: int


def recompute(graph: TaskGraph, limit_bytes: int) -> TaskSchedule | None:
    """A schedule that never has more than `limit_bytes` live; None when none was found."""
    order = evict(graph, limit_bytes)
    if order is None:
        return None
    return TaskSchedule(order, extra_cost(graph, order), max(live_bytes(graph, order), default=0))
