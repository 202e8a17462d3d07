"""Copies tables of a TFLite file into a new one, field by field, whatever they hold.

Invariant: a copied table says what the original said, but for the fields that the caller replaces; the original passed
`verify_flatbuffer`. Each table is written once for every use of it: what is not requested is not in the new file.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from .flatbuffer import FlatTable, TableField, fields_of, span_at, target_at, text_at, union_members

BUFFER_ALIGNMENT = 16  # of a buffer's bytes in the file, as TFLite's schema requires


class TableWriter:
    """Writes tables with a flatbuffers.Builder; positions are those in `data`, the file that is copied from."""

    def __init__(self, data: bytes) -> None:
        import flatbuffers

        self.data = data
        self.builder = flatbuffers.Builder(len(data) + 4096)

    def copy(self, name: str, at: int, replaced: Mapping[str, int] | None = None) -> int:
        """Write the `name` table at `at` again; `replaced`: value, or written offset, of fields (0: left out)."""
        values: dict[str, int] = {}
        source = FlatTable(self.data, at)
        places = {field.name: source.place(field.slot) for field in fields_of(name)}
        for field in fields_of(name):
            place, kind = places[field.name], places[f"{field.name}Type"] if field.union else 0
            if replaced and field.name in replaced:
                values |= {field.name: replaced[field.name]} if replaced[field.name] else {}
            elif place and not _is_offset(field):
                values[field.name] = int.from_bytes(self.data[place : place + field.width], "little")
            elif place and (not field.union or (kind and self.data[kind])):  # of NONE the offset means nothing
                values[field.name] = self._copied(name, field, place, self.data[kind])
        return self.table(name, values)

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

    def _copied(self, name: str, field: TableField, place: int, kind: int) -> int:
        """The written offset of what an offset field leads to; a union's table is of this `kind`."""
        target = target_at(self.data, place)
        if field.union:
            return self.copy(union_members(field.union)[kind], target)
        if not field.element_bytes:
            return self.copy(field.table, target)
        elements = span_at(self.data, target, field.element_bytes)
        if field.table:
            return self.tables([self.copy(field.table, target_at(self.data, at)) for at in elements])
        if field.texts:
            texts = (text_at(self.data, target_at(self.data, at)) for at in elements)
            return self.tables([int(self.builder.CreateString(text)) for text in texts])
        content = self.data[elements.start : elements.stop]
        if field.element_bytes == 1 and name != "Buffer":  # a string, or bytes that may end with a zero too
            return int(self.builder.CreateString(content))
        return self.data_vector(content, field.element_bytes, BUFFER_ALIGNMENT if name == "Buffer" else 0)


def _slots(name: str) -> int:
    return 1 + max((field.slot for field in fields_of(name)), default=-1)


def _is_offset(field: TableField) -> bool:
    return bool(field.element_bytes or field.table or field.union)
