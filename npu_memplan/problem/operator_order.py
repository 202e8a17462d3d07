"""The order of operators that keeps the fewest bytes alive at the worst of them.

Invariant: the result is a topological order whose peak is no higher than the given order's; where no order has a lower
one, it is the given order itself. `is_optimal` says whether no order at all has a lower peak.

A state is a set of operators that have run; what is alive then does not depend on their order. The search goes from
state to state by the lowest peak so far, so the first complete one is the best. Where the graph is one operator wide
the orders before and after it are looked for apart, and only in parts that make the peak. An operator that needs no
more than the peak so far, and leaves no more bytes alive than were alive before, is always a best next one: it frees
at least as much, and makes at most as much, whatever runs before it. Past a number of steps a beam of the most
promising states goes on, whose work is limited as well.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

STEPS = 100_000
"""Steps from state to state that are looked at for a proven best order of one graph; past them, the beam decides."""
BEAM = 48
"""States kept of each number of operators."""
BEAM_STEPS = 200_000
"""Steps that the beam looks at in one graph, about: fewer states are kept where many operators may come next."""
_LEAST_BEAM = 4
_CROWD = 8
"""Of more operators that touch one storage it only counts whether none or all of the others have run."""
_CHANGES = 256
"""Changes of bytes by an operator that are remembered: one for each state of the operators near it."""


@dataclass(frozen=True, slots=True)
class GraphStorage:
    """Bytes that are alive from the first operator that touches them to the last one."""

    size_bytes: int
    given: bool = False  # alive before the first operator
    kept: bool = False  # alive after the last one


@dataclass(frozen=True, slots=True)
class InPlace:
    """Bytes that storage `born` may share with `dying`, if one's life begins with the operator and the other's ends."""

    dying: int
    born: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class GraphOperator:
    """An operator that runs at once: the storages that it touches, and the earlier operators it comes after."""

    storages: tuple[int, ...]
    after: tuple[int, ...] = ()
    scratch_bytes: int = 0  # beside the storages, meanwhile
    in_place: tuple[InPlace, ...] = ()  # of which one may be made use of


@dataclass(frozen=True, slots=True)
class OperatorOrder:
    """Indices of operators in the order to run them."""

    operators: tuple[int, ...]
    peak_bytes: int
    given_peak_bytes: int  # of the order that they were given in
    is_optimal: bool


@dataclass(frozen=True)
class OperatorGraph:
    """Operators in a given order, which is topological, and storages."""

    operators: tuple[GraphOperator, ...]
    storages: tuple[GraphStorage, ...]

    @cached_property
    def users_by_storage(self) -> tuple[tuple[int, ...], ...]:
        """Operators that touch each storage, in the given order."""
        found: list[list[int]] = [[] for _ in self.storages]
        for index, operator in enumerate(self.operators):
            for storage in dict.fromkeys(operator.storages):
                found[storage].append(index)
        return tuple(tuple(users) for users in found)

    def peak_bytes(self, order: Sequence[int]) -> int:
        """Most bytes alive at once when operators run in `order`."""
        return max(self._live_levels(order)[1], default=self._live_levels(order)[0][0])

    def _live_levels(self, order: Sequence[int]) -> tuple[list[int], list[int]]:
        """Bytes alive before each operator and after the last one; the most while each one runs."""
        left = [len(users) for users in self.users_by_storage]
        level = sum(s.size_bytes for s, users in zip(self.storages, self.users_by_storage, strict=True)
                    if s.given and (users or s.kept))  # fmt: skip
        before, during = [], []
        for index in order:
            operator = self.operators[index]
            born, dying = set(), set()
            for name in dict.fromkeys(operator.storages):
                storage = self.storages[name]
                if left[name] == len(self.users_by_storage[name]) and not storage.given:
                    born.add(name)
                left[name] -= 1
                if not left[name] and not storage.kept:
                    dying.add(name)
            shared = (p.shared_bytes for p in operator.in_place if p.dying in dying and p.born in born)
            high = level + sum(self.storages[name].size_bytes for name in born)
            before.append(level)
            during.append(high + operator.scratch_bytes - max(shared, default=0))
            level = high - sum(self.storages[name].size_bytes for name in dying)
        return [*before, level], during

    @property
    def _peak_floor(self) -> int:
        """A lower bound of the peak of every order: what each operator touches is alive with it."""
        needed = (
            sum(self.storages[name].size_bytes for name in set(o.storages))
            + o.scratch_bytes
            - max((p.shared_bytes for p in o.in_place), default=0)
            for o in self.operators
        )
        return max(needed, default=0)

    def best_order(self, steps: int = STEPS, beam: int = BEAM) -> OperatorOrder:
        """The order with the lowest peak; the given one where none is lower."""
        count = len(self.operators)
        levels, during = self._live_levels(range(count))
        given_peak = max(during, default=levels[0])
        order, peak, optimal = list(range(count)), self._peak_floor, True
        parts = [(max(during[start:stop]), start, stop) for start, stop in self._independent_parts()]
        for high, start, stop in sorted(parts, key=lambda part: (-part[0], part[1])):
            if high <= peak:
                break  # what other parts need is no less
            search = _Search(self, start, stop, levels[start])
            found, reached, proven, looked_at = search.best_order(peak, high, steps, beam)
            steps -= looked_at
            order[start:stop] = found
            peak, optimal = max(peak, reached), optimal and (proven or reached <= peak)
        if peak >= given_peak:
            return OperatorOrder(tuple(range(count)), given_peak, given_peak, optimal)
        return OperatorOrder(tuple(order), self.peak_bytes(order), given_peak, optimal)

    def _independent_parts(self) -> Iterator[tuple[int, int]]:
        """Ranges of the given order, cut where every order has the same operators before and behind the cut."""
        count = len(self.operators)
        following, preceding = [count] * count, [-1] * count  # the first that comes after, the last that comes before
        for index, operator in enumerate(self.operators):
            for earlier in operator.after:
                following[earlier] = min(following[earlier], index)
                preceding[index] = max(preceding[index], earlier)
        least = [count] * (count + 1)  # of what the operators from one on come after
        for index in range(count - 1, -1, -1):
            least[index] = min(least[index + 1], preceding[index])
        start, reach = 0, 0
        for index in range(count):
            if reach <= index <= least[index + 1]:
                yield start, index + 1
                start = index + 1
            reach = max(reach, following[index])
        if start < count:
            yield start, count


class _State(NamedTuple):
    """Operators that have run, as bits. Of two with the same peak, the one that is further goes first."""

    peak: int
    left: int  # operators that have not run
    level: int  # bytes alive
    done: int
    ready: int  # operators that may be next


class _Search:
    """Orders of the operators `start` to `stop`, where `level` bytes are alive before them."""

    def __init__(self, graph: OperatorGraph, start: int, stop: int, level: int) -> None:
        self._start, self._count, self._level = start, stop - start, level
        operators = graph.operators[start:stop]
        self._needs = [sum(1 << i - start for i in set(o.after) if i >= start) for o in operators]
        self._opens: list[list[int]] = [[] for _ in operators]
        for index, operator in enumerate(operators):
            for earlier in {i for i in operator.after if i >= start}:
                self._opens[earlier - start].append(index)
        users = {name: graph.users_by_storage[name] for o in operators for name in o.storages}
        given = {name: graph.storages[name].given or found[0] < start for name, found in users.items()}
        kept = {name: graph.storages[name].kept or found[-1] >= stop for name, found in users.items()}
        bits = {name: sum(1 << i - start for i in found if start <= i < stop) for name, found in users.items()}
        sizes = {name: graph.storages[name].size_bytes for name in users}
        self._scratch = [o.scratch_bytes for o in operators]
        # of each operator: storages that it may be the first, or the last, to touch, and who else does
        self._births = [[(bits[n], sizes[n]) for n in dict.fromkeys(o.storages) if not given[n]] for o in operators]
        self._deaths = [[(bits[n], sizes[n]) for n in dict.fromkeys(o.storages) if not kept[n]] for o in operators]
        self._shares = [
            [
                (bits[pair.dying], bits[pair.born], pair.shared_bytes)
                for pair in o.in_place
                if not kept[pair.dying] and not given[pair.born]
            ]
            for o in operators
        ]

        # of each operator: those whose having run changes what it needs, of many that touch one storage apart, and
        # its changes that are known
        self._near, self._crowds = [0] * len(operators), [list[int]() for _ in operators]
        for index in range(len(operators)):
            touching = [mask for mask, _ in (*self._births[index], *self._deaths[index])]
            touching += [mask for dying, born, _ in self._shares[index] for mask in (dying, born)]
            for mask in dict.fromkeys(touching):
                if mask.bit_count() > _CROWD:
                    self._crowds[index].append(mask & ~(1 << index))
                else:
                    self._near[index] |= mask
        self._changes: list[dict[Any, tuple[int, int]]] = [{} for _ in operators]

    def best_order(self, floor: int, given_peak: int, steps: int, beam: int) -> tuple[list[int], int, bool, int]:
        """An order, its peak, whether none is lower but for what is below `floor`, and how many steps that took."""
        found, looked_at = self._exact_search(floor, given_peak, steps)
        proven = found is not None or looked_at <= steps
        if not proven:
            found = self._beam_search(floor, given_peak, beam)
        if found is None:
            return list(range(self._start, self._start + self._count)), given_peak, proven, looked_at
        order, peak = found
        return [self._start + index for index in order], peak, proven, looked_at

    def _first_state(self, floor: int) -> _State:
        ready = sum(1 << index for index, needs in enumerate(self._needs) if not needs)
        return _State(floor, self._count, self._level, 0, ready)

    def _change(self, index: int, before: int) -> tuple[int, int]:
        """Bytes that an operator needs more than are alive when those of `before` have run, and those left behind."""
        known = self._changes[index]
        key: Any = before & self._near[index]
        for others in self._crowds[index]:  # it counts whether none or all of them have run
            met = before & others
            key = key, bool(met) + (met == others)
        if key in known:
            return known[key]
        done = before | 1 << index
        high = sum(size for users, size in self._births[index] if not users & before)
        free = (size for dying, born, size in self._shares[index] if not born & before and not dying & ~done)
        level = high - sum(size for users, size in self._deaths[index] if not users & ~done)
        found = high + self._scratch[index] - max(free, default=0), level
        if len(known) < _CHANGES:
            known[key] = found
        return found

    def _next_steps(self, state: _State) -> list[tuple[int, int, int]]:
        """The operators that may come next, each with the peak and the bytes alive then; a best one alone."""
        found = []
        peak, _, alive, done, rest = state
        near, crowds, changes = self._near, self._crowds, self._changes
        while rest:
            bit = rest & -rest
            rest ^= bit
            index = bit.bit_length() - 1
            change = None if crowds[index] else changes[index].get(done & near[index])  # spares most calls
            more, left = change or self._change(index, done)
            high = alive + more
            if high <= peak:
                if left <= 0:
                    return [(index, peak, alive + left)]
                high = peak
            found.append((index, high, alive + left))
        return found

    def _state_after(self, state: _State, index: int, peak: int, level: int) -> _State:
        """The state that an operator leaves."""
        done = state.done | 1 << index
        ready = state.ready ^ 1 << index
        for later in self._opens[index]:
            if not self._needs[later] & ~done:
                ready |= 1 << later
        return _State(peak, state.left - 1, level, done, ready)

    def _exact_search(self, floor: int, given_peak: int, steps: int) -> tuple[tuple[list[int], int] | None, int]:
        """The first complete state with a peak below the given one, and how many steps were looked at."""
        first = self._first_state(floor)
        queue, closed, looked_at = [first], set[int](), 0
        before: dict[int, tuple[int, int, int]] = {0: (floor, -1, 0)}  # of a state: its peak, how it was reached
        while queue:
            state = heapq.heappop(queue)
            if state.done in closed:
                continue
            if not state.left:
                return (_trace_order(before, state.done), state.peak), looked_at
            closed.add(state.done)
            if looked_at > steps:
                return None, looked_at
            for index, peak, level in self._next_steps(state):
                looked_at += 1
                done = state.done | 1 << index
                known = before.get(done)
                if peak < given_peak and (known is None or peak < known[0]):
                    before[done] = peak, index, state.done
                    heapq.heappush(queue, self._state_after(state, index, peak, level))
        return None, looked_at

    def _beam_search(self, floor: int, given_peak: int, beam: int) -> tuple[list[int], int] | None:
        """The best order among the `beam` most promising states of every number of operators."""
        front = [self._first_state(floor)]
        before: dict[int, tuple[int, int, int]] = {0: (floor, -1, 0)}
        for _ in range(self._count):
            found: dict[tuple[int, int], list[tuple[int, _State]]] = {}  # by peak and bytes alive
            looked_at = 0
            for state in front:
                following = self._next_steps(state)
                looked_at += len(following)
                for index, peak, level in following:
                    if peak < given_peak:
                        found.setdefault((peak, level), []).append((index, state))
            most = BEAM_STEPS * len(front) // (self._count * max(1, looked_at))
            front = self._least_states(found, max(_LEAST_BEAM, min(beam, most)), before)
        return (_trace_order(before, front[0].done), front[0].peak) if front else None

    def _least_states(
        self,
        found: dict[tuple[int, int], list[tuple[int, _State]]],
        count: int,
        before: dict[int, tuple[int, int, int]],
    ) -> list[_State]:
        """The least `count` states that steps lead to, which `before` has then; others are not made."""
        least: dict[int, _State] = {}
        for (peak, level), steps in sorted(found.items()):
            reached: dict[int, tuple[int, _State]] = {}
            for index, state in steps:
                reached.setdefault(state.done | 1 << index, (index, state))
            for done in heapq.nsmallest(count - len(least), reached.keys() - least.keys()):
                index, state = reached[done]
                before[done] = peak, index, state.done
                least[done] = self._state_after(state, index, peak, level)
            if len(least) == count:
                break
        return list(least.values())


def _trace_order(before: dict[int, tuple[int, int, int]], done: int) -> list[int]:
    """The operators in the order in which the state `done` was reached."""
    order = []
    while done:
        _, index, done = before[done]
        order.append(index)
    return order[::-1]
