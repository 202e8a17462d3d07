"""Independent operations in the order that keeps fewer bytes alive for less time, which leaves them to constants.

Invariant: two operations of which one writes what the other touches keep their order, as do all that load or read
look-up tables; the most bytes alive at once are no more than before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..program.program import BufferRole, NpuProgram, chain_bounds
from ..time import MemoryMap, ResourceUseCache

_LONGEST = 4  # operations that move together
_TRIES = 2_000  # orders that are weighed at most
_GAIN = 1e-3  # what is gained by less is not worth another order
_TABLES = "look-up tables"


def reordered(program: NpuProgram, memory_map: MemoryMap) -> NpuProgram:
    """`program` in the better order; itself where there is none. `memory_map`: memories, with constants near."""
    if any(first != last for first, last in chain_bounds(program.operations)):
        return program  # nothing comes between the operations of a chain
    touched = _touched(program)
    if not program.accelerator.lut_reserved and any(_TABLES in names for names in touched):
        return program  # tables do not survive operations between
    if not any(touched):
        return program
    order = _Order(program, touched, _cycles(program, memory_map)).best()
    if order == list(range(len(order))):
        return program
    return replace(program, operations=tuple(program.operations[i] for i in order))


def _cycles(program: NpuProgram, memory_map: MemoryMap) -> list[float]:
    """Of each operation alone."""
    known = ResourceUseCache(program.accelerator, memory_map)
    return [known(program.at_zero(index)).floor for index in range(len(program.operations))]


def _touched(program: NpuProgram) -> list[dict[str, bool]]:
    """What each operation touches and whether it writes it, constants left out."""
    roles = {b.name: b.role for b in program.buffers}
    found: list[dict[str, bool]] = []
    for index in range(len(program.operations)):
        names: dict[str, bool] = {}
        for name, written in program.buffers_of(index):
            if roles[name] is BufferRole.LUT:
                names[_TABLES] = True
            elif roles[name] is not BufferRole.CONSTANTS:
                names[name] = names.get(name, False) or written
        found.append(names)
    return found


@dataclass(frozen=True, slots=True)
class _Cost:
    peak: int  # bytes
    area: float  # bytes times cycles


class _Order:
    def __init__(self, program: NpuProgram, touched: Sequence[dict[str, bool]], cycles: Sequence[float]) -> None:
        self._count, self._cycles = len(touched), np.array(cycles)
        sizes = {b.name: b.size_bytes for b in program.buffers} | {_TABLES: 0}
        given = {b.name for b in program.buffers if b.role in (BufferRole.INPUT, BufferRole.STATE)}
        kept = {b.name for b in program.buffers if b.role in (BufferRole.OUTPUT, BufferRole.STATE)}
        users: dict[str, list[int]] = {}
        for index, names in enumerate(touched):
            for name in names:
                users.setdefault(name, []).append(index)
        self._users = np.array([index for found in users.values() for index in found])
        self._starts = np.cumsum([0, *(len(found) for found in users.values())])[:-1]  # of each name's users
        self._sizes = np.array([sizes[name] for name in users])
        self._given, self._kept = (np.array([name in some for name in users]) for some in (given, kept))
        self._always = sum(sizes[name] for name in given & kept if name not in users)
        self._tied: list[set[int]] = [set() for _ in touched]
        for name, found in users.items():
            for writer in (index for index in found if touched[index][name]):
                self._tied[writer].update(found)
                for user in found:
                    self._tied[user].add(writer)

    def best(self) -> list[int]:
        order = list(range(self._count))
        known, left = self._cost(order), _TRIES
        improved = True
        while improved:
            improved = False
            for length in range(1, _LONGEST + 1):
                for begin in range(len(order) - length + 1):
                    tried = []
                    for other in self._moved(order, begin, length):
                        left -= 1
                        if left < 0:
                            return order
                        tried.append((self._cost(other), other))
                    fitting = [one for one in tried if one[0].peak <= known.peak]
                    cost, other = min(fitting, key=lambda one: one[0].area, default=(known, order))
                    if cost.area < known.area * (1 - _GAIN):
                        known, order, improved = cost, other, True
        return order

    def _moved(self, order: list[int], begin: int, length: int) -> Iterator[list[int]]:
        """Orders with `length` operations elsewhere."""
        moved = order[begin : begin + length]
        tied = set().union(*(self._tied[i] for i in moved))
        rest = order[:begin] + order[begin + length :]
        for step in (-1, 1):
            at = begin
            while 0 <= at + min(step, 0) < len(rest) and rest[at + min(step, 0)] not in tied:
                at += step
                yield rest[:at] + moved + rest[at:]

    def _cost(self, order: Sequence[int]) -> _Cost:
        places = np.empty(self._count, np.int64)
        places[order] = np.arange(self._count)
        used = places[self._users]
        first = np.where(self._given, 0, np.minimum.reduceat(used, self._starts))
        last = np.where(self._kept, self._count - 1, np.maximum.reduceat(used, self._starts))
        change = np.bincount(first, self._sizes, self._count) - np.bincount(last + 1, self._sizes, self._count + 1)[:-1]
        alive = np.cumsum(change) + self._always
        area = np.cumsum(alive * self._cycles[order])  # one after the other, as its rounding shall not depend on numpy
        return _Cost(int(alive.max()), float(area[-1]))
