"""A `.pte` file with other delegate data and another memory plan: everything else of it stays, byte for byte.

Invariant: what is written is read back as the same program with the changes. What has no room where it was stands
after the flatbuffer, and its offset leads there; segments keep their order and alignment.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...errors import NpuMemplanError
from ..flatbuffer import FlatTable, number_at, target_at
from .program import BUNDLE, PROGRAM_HEADER, Delegate, ExecutorchProgram, PlannedPlace, open_parts

_SMALLEST, _LARGEST = 16, 4096  # alignment of segments, in bytes
_METHODS, _INLINE, _SEGMENTS = 1, 3, 4  # slots of the program's table
_VALUES, _SIZES = 2, 8  # of a method's
_PLACE = 6  # of a tensor's: its AllocationDetails


class RewriteError(NpuMemplanError):
    """A file cannot hold the changes."""


@dataclass(frozen=True, slots=True)
class ProgramChanges:
    """What is to be another; methods by their number."""

    delegates: Mapping[Delegate, bytes] = field(default_factory=dict)
    places: Mapping[int, Mapping[int, PlannedPlace]] = field(default_factory=dict)  # by method, then by value
    planned_bytes: Mapping[int, Mapping[int, int]] = field(default_factory=dict)  # by method, then by memory id


def rewrite_program(data: bytes, program: ExecutorchProgram, changes: ProgramChanges) -> bytes:
    """`data`, from which `program` was read, with `changes`."""
    if data[4:8] == BUNDLE:
        raise RewriteError(f"{program.name} is a bundled program; give the .pte file that it was made of")
    return _Rewriter(data).rewrite(changes)


class _Rewriter:
    def __init__(self, data: bytes) -> None:
        self._data, self._parts = data, open_parts(data)
        self._has_header = data[8:12] == PROGRAM_HEADER
        self._head = bytearray(data[: number_at(data, "<Q", 16)] if self._has_header else data)

    def rewrite(self, changes: ProgramChanges) -> bytes:
        self._write_inline({one.file_offset: new for one, new in changes.delegates.items() if one.inline})
        for number, method in enumerate(self._parts.root.tables(_METHODS)):
            self._write_places(method, changes.places.get(number, {}))
            for memory, size in changes.planned_bytes.get(number, {}).items():
                held = method.elements(_SIZES, 8)
                if memory < len(held):
                    struct.pack_into("<q", self._head, held[memory], size)
                elif size:
                    raise RewriteError(f"method {number} plans no buffer {memory}, which is to have {size:,} bytes")
        outside = {(one.file_offset, len(one.data)): new for one, new in changes.delegates.items() if not one.inline}
        return self._with_segments(outside)

    def _write_inline(self, changed: Mapping[int, bytes]) -> None:
        """`changed`: the new bytes of delegates in the flatbuffer, by the byte at which they began."""
        for table in self._parts.root.tables(_INLINE) if changed else ():
            span = table.byte_span(0)
            if span.start not in changed:
                continue
            new = changed[span.start].ljust(len(span), b"\0")
            start = span.start if len(new) == len(span) else self._append(4 + len(new), _SMALLEST, 4) + 4
            struct.pack_into("<I", self._head, start - 4, len(changed[span.start]))
            self._head[start : start + len(new)] = new
            place = table.place(0)
            struct.pack_into("<I", self._head, place, start - 4 - place)

    def _write_places(self, method: FlatTable, changed: Mapping[int, PlannedPlace]) -> None:
        places = method.elements(_VALUES, 4)
        for value, new in changed.items():
            tensor = FlatTable(self._data, target_at(self._data, places[value])).table(1)
            place = 0 if tensor is None else tensor.place(_PLACE)
            if not place:
                raise RewriteError(f"value {value} has no planned memory, so none can be given to it")
            at = self._append(28, 4)
            low, high = new.offset_bytes & 0xFFFFFFFF, new.offset_bytes >> 32
            struct.pack_into("<5HxxiIII", self._head, at, 10, 16, 4, 8, 12, 12, new.memory_id, low, high)
            struct.pack_into("<I", self._head, place, at + 12 - place)

    def _append(self, size: int, alignment: int, before: int = 0) -> int:
        """Where `size` new bytes begin, of which those after the first `before` are aligned."""
        start = len(self._head) + -(len(self._head) + before) % alignment
        self._head.extend(bytes(start + size - len(self._head)))
        return start

    def _with_segments(self, changed: Mapping[tuple[int, int], bytes]) -> bytes:
        """`changed`: the new bytes of segments, by the byte of the file at which they began, and their size."""
        tables = list(self._parts.root.tables(_SEGMENTS))
        spans = self._parts.segments(_SEGMENTS)
        if self._has_header:
            struct.pack_into("<Q", self._head, 16, len(self._head))
        if not spans or not (self._has_header and number_at(self._data, "<Q", 24)):
            return bytes(self._head)  # a file whose header names no segments may list empty ones
        alignment = _LARGEST
        while alignment > _SMALLEST and any(span.start % alignment for span in spans):
            alignment //= 2
        base = -(-max(len(self._head), self._parts.base) // alignment) * alignment
        self._append(base - len(self._head), 1)
        body = bytearray()
        for number in sorted(range(len(spans)), key=lambda i: (spans[i].start, len(spans[i]))):
            span = spans[number]
            new = changed.get((span.start, len(span)), self._data[span.start : span.stop])
            body += bytes(-len(body) % alignment)
            self._put(tables[number], 0, len(body))
            self._put(tables[number], 1, len(new))
            body += new
        struct.pack_into("<Q", self._head, 24, base)
        if number_at(self._data, "<I", 12) >= 32:
            struct.pack_into("<Q", self._head, 32, len(body))
        return bytes(self._head + body)

    def _put(self, table: FlatTable, slot: int, value: int) -> None:
        """A number of 64 bits of a DataSegment; 0 is what an absent one says."""
        place = table.place(slot)
        if place:
            struct.pack_into("<Q", self._head, place, value)
        elif value:
            raise RewriteError("a segment that began at byte 0, or was empty, cannot move or grow")
