"""Memories and the owners of their bytes.

Invariant: the owned spans of a memory are in order, disjoint, and each has one owner: the storage that was
written there last. A byte in no span has never been written, or its content is no longer certain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False, slots=True)
class OwnedMemory:
    """Something with bytes: a pool, a storage of TVM's planner, a tensor of its own. `size_bytes` None: not known."""

    name: str
    size_bytes: int | None
    freed: bool = False


@dataclass(frozen=True, slots=True)
class OwnedBytes:
    """Where a storage is: bytes [start, stop) of `memory`; `shape` in elements, where it is known."""

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
    """Whose each byte is, in every memory; `known` are all that were ever written."""

    spans: dict[OwnedMemory, list[tuple[int, int, Any, str]]] = field(default_factory=dict)
    known: set[Any] = field(default_factory=set)

    def copy(self) -> Owners:
        """The same, to be changed apart."""
        return Owners({memory: list(spans) for memory, spans in self.spans.items()}, set(self.known))

    def within(self, memory: OwnedMemory, start: int, stop: int) -> Iterator[tuple[int, int, Any, str]]:
        """The owned spans of [start, stop), cut to it."""
        for first, last, owner, name in self.spans.get(memory, ()):
            if first < stop and start < last:
                yield max(first, start), min(last, stop), owner, name

    def write(self, place: OwnedBytes, start: int | None = None, stop: int | None = None) -> None:
        """`place`'s bytes [start, stop) of its memory (all of them when left out) are its own from now on."""
        start, stop = place.start if start is None else start, place.stop if stop is None else stop
        self.clear(place.memory, start, stop)
        self.known.add(place.owner)
        if start < stop:
            spans = self.spans.setdefault(place.memory, [])
            spans.append((start, stop, place.owner, place.name))
            spans.sort(key=lambda span: span[0])

    def clear(self, memory: OwnedMemory, start: int, stop: int) -> None:
        """Nobody owns these bytes any more."""
        kept = []
        for span in self.spans.get(memory, ()):
            first, last, owner, name = span
            if last <= start or stop <= first:
                kept.append(span)
                continue
            if first < start:
                kept.append((first, start, owner, name))
            if stop < last:
                kept.append((stop, last, owner, name))
        self.spans[memory] = kept

    def join(self, other: Owners) -> Owners:
        """After a branch: a byte whose owner is the same on both sides keeps it."""
        found = Owners(known=self.known | other.known)
        for memory, spans in self.spans.items():
            for start, stop, owner, name in spans:
                for first, last, same, _ in other.within(memory, start, stop):
                    if same == owner:
                        found.spans.setdefault(memory, []).append((first, last, owner, name))
        return found
