"""Where the parts of an ExecuTorch file are: its flatbuffer, its segments, its data by name; a program in its bundle.

Invariant: every span that is given is inside the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..file import NetworkError
from ..flatbuffer import FlatbufferError, FlatTable, number_at

PROGRAM, BUNDLE, DATA = b"ET12", b"BP08", b"FT01"  # file identifiers
PROGRAM_HEADER, _DATA_HEADER = b"eh00", b"FH01"  # magic of the extended headers, at byte 8
_SEGMENT_INDEX, _KEY = 1, 0  # slots of NamedData


def is_program(data: bytes) -> bool:
    """Whether the bytes of a file say that they are a program of ExecuTorch, in a bundle or not."""
    return data[4:8] in (PROGRAM, BUNDLE)


@dataclass(frozen=True, slots=True)
class FileParts:
    """A file's flatbuffer, and where its segments begin."""

    root: FlatTable
    view: memoryview
    base: int  # byte of the file that offsets of segments count from
    end: int  # after the last byte of a segment

    def segments(self, slot: int) -> tuple[range, ...]:
        """Where the segments are that are listed in the vector of DataSegment in `slot`."""
        found = []
        for number, table in enumerate(self.root.tables(slot)):
            start, size = self.base + table.number("<Q", 0), table.number("<Q", 1)
            if start + size > self.end:
                raise FlatbufferError(f"segment {number} ends at byte {start + size} of {self.end}")
            found.append(range(start, start + size))
        return tuple(found)

    def part(self, span: range) -> memoryview:
        """The bytes of a span."""
        return self.view[span.start : span.stop]

    def named_data(self, slot: int, segments: Sequence[range]) -> dict[str, memoryview]:
        """The vector of NamedData in `slot`."""
        found = {}
        for table in self.root.tables(slot):
            index = table.number("<I", _SEGMENT_INDEX)
            if index >= len(segments):
                raise FlatbufferError(f"data {table.text(_KEY)!r} is in segment {index}; there are {len(segments)}")
            found[table.text(_KEY)] = self.part(segments[index])
        return found


def open_parts(data: bytes) -> FileParts:
    """The parts of a program."""
    base = end = len(data)
    if data[8:12] == PROGRAM_HEADER:
        length = number_at(data, "<I", 12, "the extended header")
        if length < 24:
            raise FlatbufferError(f"the extended header has {length} bytes, at least 24 are needed")
        program_bytes, base = number_at(data, "<Q", 16), number_at(data, "<Q", 24)
        if program_bytes > len(data):
            raise FlatbufferError(f"its header says {program_bytes} bytes of program, the file has {len(data)}")
        if base:
            used = number_at(data, "<Q", 32) if length >= 32 else 0
            end = base + used if used else len(data)
            if end > len(data):
                raise FlatbufferError(f"its header says that segments end at byte {end} of {len(data)}")
    return FileParts(FlatTable(data, number_at(data, "<I", 0)), memoryview(data), base, end)


def bundled_program(data: bytes) -> bytes:
    """The program in a bundle."""
    span = FlatTable(data, number_at(data, "<I", 0)).byte_span(2)
    return data[span.start : span.stop]


def read_named_data(files: Iterable[tuple[str, bytes]]) -> Mapping[str, memoryview]:
    """The data of `.ptd` files (name, bytes) by its key; `NetworkError` says what is wrong with a file."""
    found: dict[str, memoryview] = {}
    for name, data in files:
        if data[4:8] != DATA:
            raise NetworkError(f"{name} is not a .ptd file: bytes 4 to 8 must be FT01, but are {bytes(data[4:8])!r}")
        try:
            found |= _named(data)
        except FlatbufferError as error:
            raise NetworkError(
                f"{name} is a damaged or truncated .ptd file ({len(data)} bytes): {error}; get the file again"
            ) from error
    return found


def _named(data: bytes) -> dict[str, memoryview]:
    if data[8:12] != _DATA_HEADER:
        raise FlatbufferError(f"bytes 8 to 12 must be FH01, but are {bytes(data[8:12])!r}")
    size = number_at(data, "<Q", 24)
    base, used = number_at(data, "<Q", 32), number_at(data, "<Q", 40)
    if size > len(data) or base + used > len(data):
        raise FlatbufferError(f"its header says {size} bytes of tables and segments up to byte {base + used}")
    parts = FileParts(FlatTable(data, number_at(data, "<I", 0)), memoryview(data), base, base + used)
    return parts.named_data(2, parts.segments(1))
