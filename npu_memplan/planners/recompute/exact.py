"""The cheapest schedule within a limit, for certain: best first over (tasks begun, values held).

Invariant: a value is dropped only to make room for the task that runs next, which is never worse than to drop it
earlier. The first complete state that leaves the queue has the least cost.
"""

from __future__ import annotations

import heapq
import itertools

from .graph import TaskGraph

_State = tuple[int, int]  # tasks run for the first time; bit set of values held


def least_cost(graph: TaskGraph, limit_bytes: int, states: int) -> tuple[tuple[int, ...] | None, bool]:
    """A schedule of least cost that never has more than `limit_bytes` live, and whether the search came to its end.

    None when there is none, or when more than `states` states were looked at.
    """
    return _Search(graph, limit_bytes).run(states)


class _Search:
    def __init__(self, graph: TaskGraph, limit_bytes: int) -> None:
        self.graph, self.limit = graph, limit_bytes
        made = graph.producers
        self.reads = [sum({1 << v for v in task.reads if v in made}) for task in graph.tasks]
        self.makes = [sum(1 << v for v in task.makes) for task in graph.tasks]
        self.kept = sum(1 << v for v in graph.kept if v in made)
        self.sizes: dict[int, int] = {0: 0}
        # what may still be read once so many tasks have begun
        self.useful = [0] * (len(graph.tasks) + 1)
        self.useful[-1] = self.kept
        for count in range(len(graph.tasks), 0, -1):
            self.useful[count - 1] = self.useful[count] | self._ancestors(self.reads[count - 1])
        self.useful = [found | self.kept for found in self.useful]

    def _ancestors(self, values: int) -> int:
        """`values`, and whatever is needed to make them again."""
        made, found = self.graph.producers, 0
        open_values = list(_bits(values))
        while open_values:
            value = open_values.pop()
            if not found >> value & 1:
                found |= 1 << value
                task = made[value]
                if self.graph.tasks[task].repeatable:
                    open_values += _bits(self.reads[task])
        return found

    def bytes_of(self, values: int) -> int:
        """Bytes of a set of values."""
        if values not in self.sizes:
            self.sizes[values] = sum(self.graph.sizes_bytes[v] for v in _bits(values))
        return self.sizes[values]

    def run(self, states: int) -> tuple[tuple[int, ...] | None, bool]:
        tasks, start = self.graph.tasks, (0, 0)
        costs: dict[_State, float] = {start: 0.0}
        before: dict[_State, tuple[_State, int]] = {}
        queue: list[tuple[float, int, _State]] = [(0.0, 0, start)]
        closed: set[_State] = set()
        while queue:
            cost, _, state = heapq.heappop(queue)
            if state in closed:
                continue
            closed.add(state)
            count, held = state
            if count == len(tasks) and not self.kept & ~held:
                return self._schedule(state, before), True
            if len(closed) > states:
                return None, False
            again = [i for i in range(count) if tasks[i].repeatable and self.makes[i] & ~held]
            for index in (*range(count, min(count + 1, len(tasks))), *again):
                if self.reads[index] & ~held:
                    continue
                paid = cost + (tasks[index].cost if index < count else 0.0)
                for after in self._held_after(index, state):
                    if paid < costs.get(after, float("inf")):
                        costs[after] = paid
                        before[after] = state, index
                        heapq.heappush(queue, (paid, -after[0], after))
        return None, True

    def _held_after(self, index: int, state: _State) -> list[_State]:
        """The states after a task: one for each least set of values that has to go for it."""
        count, held = state
        count = max(count, index + 1)
        needed = self.reads[index] | self.makes[index]
        room = self.limit - self.graph.tasks[index].scratch_bytes - self.bytes_of(needed)
        others = held & ~needed
        if room < 0:
            return []
        if self.bytes_of(others) <= room:
            return [(count, (others | needed) & self.useful[count])]
        going = self._least_sets(others, self.bytes_of(others) - room)
        return [(count, (others & ~gone | needed) & self.useful[count]) for gone in going]

    def _least_sets(self, values: int, bytes_needed: int) -> list[int]:
        """Sets of `values` with so many bytes, of which none can be left out."""
        ordered = sorted(_bits(values), key=lambda v: -self.graph.sizes_bytes[v])
        rest = [*[*itertools.accumulate(self.graph.sizes_bytes[v] for v in reversed(ordered))][::-1], 0]
        found = []
        open_sets = [(0, 0, bytes_needed)]
        while open_sets:
            position, gone, missing = open_sets.pop()
            if missing <= 0:
                found.append(gone)
            elif rest[position] >= missing:
                value = ordered[position]
                open_sets.append((position + 1, gone, missing))
                open_sets.append((position + 1, gone | 1 << value, missing - self.graph.sizes_bytes[value]))
        return found

    def _schedule(self, state: _State, before: dict[_State, tuple[_State, int]]) -> tuple[int, ...]:
        found = []
        while state in before:
            state, index = before[state]
            found.append(index)
        return tuple(found[::-1])


def _bits(values: int) -> list[int]:
    found = []
    while values:
        low = values & -values
        found.append(low.bit_length() - 1)
        values ^= low
    return found
