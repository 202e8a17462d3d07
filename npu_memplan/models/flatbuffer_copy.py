"""Copies tables of a TFLite file into a new one, field by field, whatever they hold.

Invariant: a copied table says what the original said, but for the fields that the caller replaces; the original passed
`verify_flatbuffer`. Each table is written once for every use of it: what is not asked for is not in the new file.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from .flatbuffer import TableField, fields_of, union_members

BUFFER_ALIGNMENT = 16  # of a buffer's bytes in the file, as TFLite's schema asks


class TableWriter:
    """Writes tables with a flatbuffers.Builder; positions are those in `data`, the file that is copied from."""

    def __init__(self, data: bytes) -> None:
        import flatbuffers

        self.data = data
        self.builder = flatbuffers.Builder(len(data) + 4096)

    def field(self, name: str, at: int, field: str) -> int:
        """Position of a field of the `name` table at `at`; 0 when it is absent."""
        (found,) = (f for f in fields_of(name) if f.name == field)
        return self._place(at, found)

    def copy(self, name: str, at: int, replaced: Mapping[str, int] | None = None) -> int:
        """Write the `name` table at `at` again; `replaced`: value, or written offset, of fields (0: left out)."""
        replaced = replaced or {}
        offsets: dict[str, int] = {}
        for field in fields_of(name):
            place = self._place(at, field)
            if field.name not in replaced and place and _is_offset(field) and self._leads_somewhere(name, field, at):
                offsets[field.name] = self._copied(name, field, at, place)
        self.builder.StartObject(_slots(name))
        for field in fields_of(name):
            place = self._place(at, field)
            if field.name in replaced:
                if replaced[field.name]:
                    self._slot(field, replaced[field.name], _is_offset(field))
            elif field.name in offsets:
                self._slot(field, offsets[field.name], True)
            elif place and not _is_offset(field):
                self._slot(field, int.from_bytes(self.data[place : place + field.width], "little"), False)
        return int(self.builder.EndObject())

    def table(self, name: str, values: Mapping[str, int]) -> int:
        """Write a `name` table with these values or written offsets."""
        known = {field.name: field for field in fields_of(name)}
        self.builder.StartObject(_slots(name))
        for field_name, value in values.items():
            self._slot(known[field_name], value, _is_offset(known[field_name]))
        return int(self.builder.EndObject())

    def data_vector(self, content: bytes, element_bytes: int = 1, alignment: int = 0) -> int:
        """Write a vector of numbers given as bytes."""
        builder = self.builder
        count = len(content) // element_bytes
        builder.StartVector(element_bytes, count, max(alignment, element_bytes))
        builder.head = builder.Head() - len(content)
        builder.Bytes[builder.Head() : builder.Head() + len(content)] = content
        return int(builder.EndVector())

    def numbers(self, values: Sequence[int]) -> int:
        """Write a vector of int32."""
        return self.data_vector(struct.pack(f"<{len(values)}i", *values), 4)

    def tables(self, written: Sequence[int]) -> int:
        """Write a vector of tables (or strings) that are written already."""
        self.builder.StartVector(4, len(written), 4)
        for offset in reversed(written):
            self.builder.PrependUOffsetTRelative(offset)
        return int(self.builder.EndVector())

    def text(self, text: str) -> int:
        """Write a string."""
        return int(self.builder.CreateString(text))

    # -- one field ----------------------------------------------------------------------------------

    def _slot(self, field: TableField, value: int, is_offset: bool) -> None:
        if is_offset:
            self.builder.PrependUOffsetTRelative(value)
        else:
            unsigned = value & (1 << 8 * field.width) - 1
            put = {1: "PrependUint8", 2: "PrependUint16", 4: "PrependUint32", 8: "PrependUint64"}[field.width]
            getattr(self.builder, put)(unsigned)
        self.builder.Slot(field.slot)

    def _place(self, at: int, field: TableField) -> int:
        layout = at - struct.unpack_from("<i", self.data, at)[0]
        size = struct.unpack_from("<H", self.data, layout)[0]
        entry = 4 + 2 * field.slot
        offset = struct.unpack_from("<H", self.data, layout + entry)[0] if entry + 2 <= size else 0
        return at + offset if offset else 0

    def _leads_somewhere(self, name: str, field: TableField, at: int) -> bool:
        """False of a union that is NONE: nobody may ask what its offset leads to."""
        kind = self.field(name, at, f"{field.name}Type") if field.union else 0
        return not field.union or bool(kind and self.data[kind])

    def _copied(self, name: str, field: TableField, at: int, place: int) -> int:
        """The written offset of what an offset field leads to."""
        target = place + struct.unpack_from("<I", self.data, place)[0]
        if field.union:
            kind = self.data[self.field(name, at, f"{field.name}Type")]
            return self.copy(union_members(field.union)[kind], target)
        if not field.element_bytes:
            return self.copy(field.table, target)
        count = struct.unpack_from("<I", self.data, target)[0]
        first = target + 4
        if field.table or field.texts:
            starts = [
                slot + struct.unpack_from("<I", self.data, slot)[0] for slot in range(first, first + 4 * count, 4)
            ]
            if field.table:
                return self.tables([self.copy(field.table, start) for start in starts])
            return self.tables([self._string(start) for start in starts])
        content = self.data[first : first + count * field.element_bytes]
        if field.element_bytes == 1 and name != "Buffer":  # a string, or bytes that may end with a zero too
            return int(self.builder.CreateString(content))
        return self.data_vector(content, field.element_bytes, BUFFER_ALIGNMENT if name == "Buffer" else 0)

    def _string(self, at: int) -> int:
        count = struct.unpack_from("<I", self.data, at)[0]
        return int(self.builder.CreateString(self.data[at + 4 : at + 4 + count]))


def _slots(name: str) -> int:
    return 1 + max((field.slot for field in fields_of(name)), default=-1)


def _is_offset(field: TableField) -> bool:
    return bool(field.element_bytes or field.table or field.union)
