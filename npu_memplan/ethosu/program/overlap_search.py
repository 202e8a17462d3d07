"""Which buffers of an NPU program may overlap: proven from the accesses of all operations that meet both.

Invariant: a pair of buffers is compared only where the output can lie over bytes of the input that no later operation
reads. What remains to be read of every buffer is followed from operation to operation, so buffers that are alive for
long and untouched cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...problem import AllowedOverlap
from ..hazards.inplace import in_place_distances
from ..stream.groups import FEATURE_MAPS
from ..stream.isa import Register
from .overlap import NOTHING, Span, allowed_distances
from .program import BufferRole, NpuBuffer, NpuProgram

_ALWAYS_LIVE = (BufferRole.STATE, BufferRole.CONSTANTS, BufferRole.RESIDENT, BufferRole.STREAMED)
_LIVE_BEFORE = (BufferRole.INPUT, *_ALWAYS_LIVE)
_LIVE_AFTER = (BufferRole.OUTPUT, BufferRole.LUT, *_ALWAYS_LIVE)


@dataclass(frozen=True, slots=True)
class Overlap:
    """What operations `operation` (at which `second` is born) to `last` (at which `first` dies) allow."""

    allowed: AllowedOverlap
    operation: int
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class _Touches:
    """Operations that read one buffer, or that write it, in order, and the bytes from first to last of each."""

    operations: NDArray[np.int64]  # [n]
    spans: NDArray[np.int64]  # [n, 2]
    remaining: NDArray[np.int64]  # [n + 1, 2]: bytes from first to last of each operation and all after it

    @classmethod
    def of(cls, found: dict[int, Span]) -> _Touches:
        """From the span of each operation, in order."""
        spans = np.array([*found.values(), NOTHING], np.int64)
        first = np.minimum.accumulate(spans[::-1, 0])[::-1]
        stop = np.maximum.accumulate(spans[::-1, 1])[::-1]
        return cls(np.array(list(found), np.int64), spans[:-1], np.column_stack([first, stop]))

    def remaining_from(self, operations: NDArray[np.int64]) -> NDArray[np.int64]:
        """What each of `operations` and those after it touch."""
        return self.remaining[np.searchsorted(self.operations, operations)]


_NONE = _Touches.of({})


def find_overlaps(program: NpuProgram) -> tuple[Overlap, ...]:
    """Every permission to overlap, in the order in which the second buffers are born.

    The caller must still check that nothing outside this program uses `first` afterwards.
    """
    return tuple(_Search(program).run())


class _Search:
    """One pass over the operations of a program."""

    def __init__(self, program: NpuProgram) -> None:
        self.program, self.count = program, len(program.operations)
        self.live = program.live_ranges()
        self.rank = {name: place for place, name in enumerate(self.live)}  # in the order of the first touches
        self.read_by = [tuple(n for n, is_write in program.touched(i) if not is_write) for i in range(self.count)]
        spans: tuple[dict[str, dict[int, Span]], ...] = ({}, {})
        for index in range(self.count):
            for name, found, is_write in program.accesses(index):
                of = spans[is_write].setdefault(name, {})
                low, high = of.get(index, NOTHING)
                of[index] = (min(low, found[0][0]), max(high, found[-1][1]))
        self.reads, self.writes = ({name: _Touches.of(of) for name, of in some.items()} for some in spans)
        self.complete_at = {n: i + 1 for i in range(self.count) for n, is_write in program.touched(i) if is_write}
        self.in_place: dict[int, dict[str, int]] = {}

    def run(self) -> Iterator[Overlap]:
        """Go through the operations, with the buffers of which some bytes are dead."""
        dead_in_part: dict[str, None] = {}
        complete: dict[str, None] = {}  # every buffer that is alive and written to its end
        ending: list[list[str]] = [[] for _ in range(self.count)]
        ready: list[list[str]] = [[] for _ in range(self.count)]
        for name, (first, last) in self.live.items():
            if self.complete_at.get(name, first) <= last:  # it is read after its last write
                ready[self.complete_at.get(name, first)].append(name)
                ending[last].append(name)
        for index in range(self.count):
            complete.update(dict.fromkeys(ready[index]))
            for name in (*ready[index], *(self.read_by[index - 1] if index else ())):
                if name in complete and self._is_dead_in_part(name, index):
                    dead_in_part[name] = None
            yield from self._born_at(index, complete, dead_in_part)
            for name in ending[index]:
                del complete[name]
                dead_in_part.pop(name, None)

    def _is_dead_in_part(self, name: str, index: int) -> bool:
        """Some bytes of a complete buffer are not read by operation `index`, nor by a later one."""
        first, stop = self.reads.get(name, _NONE).remaining_from(np.array([index]))[0]
        return (first, stop) != (0, self.program.buffer(name).size_bytes)

    def _born_at(self, index: int, complete: dict[str, None], dead_in_part: dict[str, None]) -> Iterator[Overlap]:
        """Permissions of the buffer whose life begins with operation `index`."""
        place = self.program.operations[index].addresses.get(Register.OFM_BASE0)
        if place is None or self.live[place[0]][0] != index:
            return
        target = self.program.buffer(place[0])
        if target.role in _LIVE_BEFORE or target.name not in self.writes:
            return
        writes = self.writes[target.name]
        end = self.count if target.role is BufferRole.OUTPUT else self.live[target.name][1]
        if tuple(writes.remaining[0]) == (0, target.size_bytes):
            read = (name for i in range(index, int(writes.operations[-1]) + 1) for name in self.read_by[i])
            sources = {**dead_in_part, **dict.fromkeys(name for name in read if name in complete)}
        else:
            sources = complete
        now = {name: place for place, name in enumerate(self.read_by[index])}
        for source in sorted(sources, key=lambda name: (now.get(name, self.count), self.rank[name])):
            last = self.live[source][1]
            if source == target.name or last > end or self.program.buffer(source).role in _LIVE_AFTER:
                continue
            allowed = self._distances(source, target, writes)
            if allowed is not None:
                lowest, highest = allowed
                reason = self._reason(index, last, lowest == highest)
                yield Overlap(AllowedOverlap(source, target.name, lowest, highest, reason), index, last)

    def _distances(self, source: str, target: NpuBuffer, writes: _Touches) -> tuple[int | None, int | None] | None:
        until = int(np.searchsorted(writes.operations, self.live[source][1], side="right"))
        operations, reads = writes.operations[:until], self.reads.get(source, _NONE)
        agreed: set[int | None] = {None}
        if np.isin(operations, reads.operations).all():
            agreed = {self._in_place(int(index)).get(source) for index in operations}
        return allowed_distances(
            writes.spans[:until],
            reads.remaining_from(operations),
            reads.remaining_from(operations + 1),
            agreed.pop() if len(agreed) == 1 else None,
            (self.program.buffer(source).size_bytes, target.size_bytes),
        )

    def _in_place(self, index: int) -> dict[str, int]:
        """Buffers that operation `index` may write its output over."""
        if index not in self.in_place:
            operation = self.program.operations[index]
            views = {name: operation.addresses.get(view.bases[0]) for name, view in FEATURE_MAPS.items()}
            holder = {view: place[0] for view, place in views.items() if place is not None}
            found = in_place_distances(self.program.at_zero(index), holder)
            self.in_place[index] = {str(name): distance for name, distance in found.items()}
        return self.in_place[index]

    def _reason(self, index: int, last: int, in_place: bool) -> str:
        if in_place:
            kind = self.program.operations[index].op.name.lower()
            return f"operation {index} ({kind}) writes its output over its input"
        return f"operations {index} to {last} write over rows that none of them reads any more"
