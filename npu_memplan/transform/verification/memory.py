"""Memories, the owners of their bytes, and what can be wrong with a memory plan.

Invariant: the owned spans of a memory are in order, disjoint, and each has one owner: the storage that was written
there last. A byte in no span has never been written, or its content is no longer certain. What a storage wrote and
another one has overwritten since is `lost`; what it never wrote has no content that a plan could spoil. A fault says
where (function, call), whose bytes, and the numbers; two of the same kind at the same place are one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ...errors import NpuMemplanError


class FaultKind(Enum):
    """Kinds of faults, with what each means."""

    OVERWRITTEN = "bytes are read that another write has changed since"
    UNDEFINED = "bytes are read that were never written"
    MOVED = "one storage lies in two places"
    OUTSIDE = "a storage reaches beyond its memory"
    MISALIGNED = "an offset is no multiple of its elements' size"
    NO_MEMORY = "a memory is used where it does not exist"
    FREED = "a memory is used after it was freed"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: `where` is the function and the call, `text` the storages and the numbers."""

    kind: FaultKind
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


class MemoryPlanError(NpuMemplanError):
    """The plan of a module is wrong; `faults` are all that were found."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self.faults = faults
        shown = "".join(f"\n  {fault}" for fault in faults[:SHOWN])
        more = f"\n  and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        super().__init__(f"the memory plan of this module is wrong, {count}:{shown}{more}")


SHOWN = 8
"""Faults that the text of an error lists."""


@dataclass(eq=False, slots=True)
class OwnedMemory:
    """Something with bytes: a pool, a storage of TVM's planner, a tensor of its own. `size_bytes` None: not known."""

    name: str
    size_bytes: int | None
    freed: bool = False


@dataclass(slots=True)  # thousands are made: not frozen
class OwnedBytes:
    """The place of a storage: bytes [start, stop) of `memory`; `shape` in elements, where it is known."""

    memory: OwnedMemory
    start: int
    stop: int
    owner: Any  # whose bytes these are: its identity
    name: str = ""  # the same for people
    shape: tuple[int, ...] | None = None

    def meets(self, other: OwnedBytes) -> bool:
        """Whether the two share a byte."""
        return self.memory is other.memory and self.start < other.stop and other.start < self.stop

    def __str__(self) -> str:
        return f"{self.name!r} at [{self.start}, {self.stop}) of {self.memory.name!r}"


@dataclass(slots=True)
class Owners:
    """The owner of each byte, in every memory; `known` are all that were ever written."""

    spans: dict[OwnedMemory, list[tuple[int, int, Any, str]]] = field(default_factory=dict)
    known: set[Any] = field(default_factory=set)
    lost: dict[Any, tuple[tuple[int, int, str], ...]] = field(default_factory=dict)  # owner -> bytes, whose

    def copy(self) -> Owners:
        """A copy that changes apart from this."""
        spans = {memory: list(spans) for memory, spans in self.spans.items()}
        return Owners(spans, set(self.known), dict(self.lost))

    def spans_within(self, memory: OwnedMemory, start: int, stop: int) -> Iterator[tuple[int, int, Any, str]]:
        """The owned spans of [start, stop), cut to it."""
        spans = self.spans.get(memory, [])
        for first, last, owner, name in spans[slice(*_range_of(spans, start, stop))]:
            yield max(first, start), min(last, stop), owner, name

    def write(self, place: OwnedBytes, start: int | None = None, stop: int | None = None) -> None:
        """`place`'s bytes [start, stop) of its memory (all of them when left out) are its own from now on."""
        start, stop = place.start if start is None else start, place.stop if stop is None else stop
        self.known.add(place.owner)
        if start >= stop:
            return
        spans = self.spans.setdefault(place.memory, [])
        low, high = _range_of(spans, start, stop)
        kept = [(start, stop, place.owner, place.name)]
        for first, last, owner, name in spans[low:high]:
            if owner != place.owner:
                self.lost[owner] = (*self.lost.get(owner, ()), (max(first, start), min(last, stop), place.name))
            if first < start:
                kept.insert(0, (first, start, owner, name))
            if stop < last:
                kept.append((stop, last, owner, name))
        spans[low:high] = kept
        if gone := self.lost.get(place.owner):
            self.lost[place.owner] = tuple(part for one in gone for part in _outside(one, start, stop))

    def clear(self, memory: OwnedMemory, start: int, stop: int) -> None:
        """Take the owners of these bytes away."""
        spans = self.spans.get(memory, [])
        low, high = _range_of(spans, start, stop)
        kept = []
        for first, last, owner, name in spans[low:high]:
            if first < start:
                kept.append((first, start, owner, name))
            if stop < last:
                kept.append((stop, last, owner, name))
        spans[low:high] = kept

    def stolen_spans(self, place: OwnedBytes, start: int, stop: int) -> Iterator[tuple[int, int, str]]:
        """The spans of [start, stop) in which a read of `place` finds another's bytes, and whose they are."""
        if place.owner in self.known:
            found = self.lost.get(place.owner, ())
        else:
            found = tuple((first, last, name) for first, last, _, name in self.spans_within(place.memory, start, stop))
        for first, last, name in found:
            if max(first, start) < min(last, stop):
                yield max(first, start), min(last, stop), name

    def join(self, other: Owners) -> Owners:
        """After a branch: a byte whose owner is the same on both sides keeps it; what one side lost is lost."""
        found = Owners(known=self.known | other.known, lost=dict(self.lost))
        for owner, gone in other.lost.items():
            own = self.lost.get(owner, ())
            if own is not gone:  # most of it was lost before the branch
                found.lost[owner] = tuple(dict.fromkeys((*own, *gone)))
        for memory, spans in self.spans.items():
            for start, stop, owner, name in spans:
                for first, last, same, _ in other.spans_within(memory, start, stop):
                    if same == owner:
                        found.spans.setdefault(memory, []).append((first, last, owner, name))
        return found


def _range_of(spans: list[tuple[int, int, Any, str]], start: int, stop: int) -> tuple[int, int]:
    """The places of the spans, which are in order, that have a byte of [start, stop)."""
    low, high = bisect_left(spans, (start,)), bisect_left(spans, (stop,))
    if low and spans[low - 1][1] > start:
        low -= 1
    return (low, high) if start < stop else (low, low)


def _outside(gone: tuple[int, int, str], start: int, stop: int) -> Iterator[tuple[int, int, str]]:
    """The parts of bytes that lie outside [start, stop)."""
    first, last, name = gone
    if first < min(start, last):
        yield first, min(start, last), name
    if max(stop, first) < last:
        yield max(stop, first), last, name
