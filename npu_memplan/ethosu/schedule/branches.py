"""Independent operations in the order that keeps fewer bytes alive for less time, which leaves them to constants.

Invariant: two operations of which one writes what the other touches keep their order, as do all that load or read
look-up tables; the most bytes alive at once are no more than before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..program.chains import chain_bounds
from ..program.program import BufferRole, NpuProgram
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
        for name, written in program.touched(index):
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
        self._touched, self._cycles = touched, cycles
        self._sizes = {b.name: b.size_bytes for b in program.buffers} | {_TABLES: 0}
        self._given = {b.name for b in program.buffers if b.role in (BufferRole.INPUT, BufferRole.STATE)}
        self._kept = {b.name for b in program.buffers if b.role in (BufferRole.OUTPUT, BufferRole.STATE)}
        self._tied = [{j for j in range(len(touched)) if self._tie(i, j)} for i in range(len(touched))]

    def _tie(self, one: int, other: int) -> bool:
        a, b = self._touched[one], self._touched[other]
        return any(name in b and (written or b[name]) for name, written in a.items())

    def best(self) -> list[int]:
        order = list(range(len(self._touched)))
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
        first = dict.fromkeys(self._given, 0)
        last = dict.fromkeys(self._kept, len(order) - 1)
        for place, index in enumerate(order):
            for name in self._touched[index]:
                first.setdefault(name, place)
                if name not in self._kept:
                    last[name] = place
        change = [0] * (len(order) + 1)
        for name, begin in first.items():
            if name in last:
                change[begin] += self._sizes[name]
                change[last[name] + 1] -= self._sizes[name]
        alive, peak, area = 0, 0, 0.0
        for place, index in enumerate(order):
            alive += change[place]
            peak, area = max(peak, alive), area + alive * self._cycles[index]
        return _Cost(peak, area)
