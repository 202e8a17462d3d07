"""Add one metadata entry to a .tflite without rewriting the model.

Invariant: the original bytes stay in the file, unchanged and equally aligned. FlatBuffers
offsets are relative and point forward, so a new root table in front of the old file can
refer to everything in it, and add one buffer and one metadata entry.
"""

from __future__ import annotations

import struct
from typing import Any

from ...errors import NpuMemplanError

_FIELDS = 8  # version, operator_codes, subgraphs, description, buffers, metadata_buffer, metadata, signature_defs
_SUBGRAPHS, _BUFFERS, _METADATA = 2, 4, 6
_ALIGN = 64  # of the old file in the new one; no TFLite buffer asks for more than 16


class TfliteFileError(NpuMemplanError):
    """A .tflite cannot be read, or cannot be extended."""


def with_metadata(model: bytes, name: str, content: bytes) -> bytes:
    """`model` with metadata entry `name` whose buffer is `content` (16-byte aligned); an entry of
    that name is replaced. Raises `TfliteFileError` for files this cannot be done to."""
    root, old = _root(model)
    if any(_buffer_is_outside(old, i) for i in range(old.BuffersLength())):
        raise TfliteFileError("the model keeps its weights outside the flatbuffer; save it without that option")
    fields = [_field(model, root, i) for i in range(_FIELDS)]
    buffers = _vector(model, fields[_BUFFERS])
    kept = [
        target for i, target in enumerate(_vector(model, fields[_METADATA]))
        if (old.Metadata(i).Name() or b"").decode() != name
    ]  # fmt: skip
    return _Writer(model, name, content, buffers, kept, fields).file()


def _root(model: bytes) -> tuple[int, Any]:
    import tflite

    if len(model) < 8 or model[4:8] != b"TFL3":
        raise TfliteFileError("not a .tflite file: it does not begin with a TFL3 flatbuffer")
    return struct.unpack_from("<I", model)[0], tflite.Model.GetRootAs(model, 0)


def _buffer_is_outside(model: Any, index: int) -> bool:
    buffer = model.Buffers(index)
    return bool(getattr(buffer, "Offset", lambda: 0)() > 1)


def _field(model: bytes, table: int, index: int) -> int:
    """Position of field `index` of a table; 0 when it is absent."""
    vtable = table - struct.unpack_from("<i", model, table)[0]
    size = struct.unpack_from("<H", model, vtable)[0]
    slot = 4 + 2 * index
    relative = struct.unpack_from("<H", model, vtable + slot)[0] if slot < size else 0
    return table + relative if relative else 0


def _vector(model: bytes, field: int) -> list[int]:
    """Positions of the tables in a vector of tables; `field` is where the field stands, 0 for none."""
    if not field:
        return []
    at = field + struct.unpack_from("<I", model, field)[0]
    count = struct.unpack_from("<I", model, at)[0]
    slots = range(at + 4, at + 4 + 4 * count, 4)
    return [slot + struct.unpack_from("<I", model, slot)[0] for slot in slots]


class _Writer:
    """Lays out the new front part; positions in the old file move by the length of the front."""

    def __init__(
        self, model: bytes, name: str, content: bytes, buffers: list[int], metadata: list[int], fields: list[int]
    ) -> None:
        self.model, self.fields = model, fields
        text = name.encode()
        # header 8, vtable of the root 20 (padded to 4), root 36, then vectors, tables and the content
        self.vtable = 8
        self.table = self.vtable + 4 + 2 * _FIELDS
        self.buffers_at = self.table + 4 + 4 * _FIELDS
        self.metadata_at = self.buffers_at + 4 + 4 * (len(buffers) + 1)
        self.entry_vtable = self.metadata_at + 4 + 4 * (len(metadata) + 1)
        self.entry = self.entry_vtable + 8
        self.name_at = self.entry + 12
        self.buffer_vtable = -(-(self.name_at + 4 + len(text) + 1) // 4) * 4
        self.buffer = self.buffer_vtable + 8  # vtable of 6 bytes, padded
        self.content_at = -(-(self.buffer + 8 + 4) // 16) * 16 - 4  # length word, then aligned bytes
        self.old = -(-(self.content_at + 4 + len(content)) // _ALIGN) * _ALIGN
        self.out = bytearray(self.old)
        self._root()
        self._offsets(self.buffers_at, [*(self.old + b for b in buffers), self.buffer])
        self._offsets(self.metadata_at, [*(self.old + m for m in metadata), self.entry])
        self._entry(text, len(buffers))
        struct.pack_into("<HHH", self.out, self.buffer_vtable, 6, 8, 4)
        struct.pack_into("<iI", self.out, self.buffer, self.buffer - self.buffer_vtable, 0)
        self._offset(self.buffer + 4, self.content_at)
        struct.pack_into("<I", self.out, self.content_at, len(content))
        self.out[self.content_at + 4 : self.content_at + 4 + len(content)] = content

    def file(self) -> bytes:
        """The new file."""
        return bytes(self.out) + self.model

    def _root(self) -> None:
        struct.pack_into("<I4s", self.out, 0, self.table, b"TFL3")
        present = [bool(f) or i in (_BUFFERS, _METADATA) for i, f in enumerate(self.fields)]
        slots = [4 + 4 * i if there else 0 for i, there in enumerate(present)]
        struct.pack_into(f"<HH{_FIELDS}H", self.out, self.vtable, 4 + 2 * _FIELDS, 4 + 4 * _FIELDS, *slots)
        struct.pack_into("<i", self.out, self.table, self.table - self.vtable)
        for i, field in enumerate(self.fields):
            at = self.table + 4 + 4 * i
            if i == _BUFFERS:
                self._offset(at, self.buffers_at)
            elif i == _METADATA:
                self._offset(at, self.metadata_at)
            elif field and i == 0:  # version: a number, not an offset
                self.out[at : at + 4] = self.model[field : field + 4]
            elif field:
                self._offset(at, self.old + field + struct.unpack_from("<I", self.model, field)[0])

    def _entry(self, text: bytes, buffer_index: int) -> None:
        struct.pack_into("<HHHH", self.out, self.entry_vtable, 8, 12, 4, 8)
        struct.pack_into("<i", self.out, self.entry, self.entry - self.entry_vtable)
        self._offset(self.entry + 4, self.name_at)
        struct.pack_into("<I", self.out, self.entry + 8, buffer_index)
        struct.pack_into("<I", self.out, self.name_at, len(text))
        self.out[self.name_at + 4 : self.name_at + 4 + len(text)] = text

    def _offset(self, at: int, target: int) -> None:
        struct.pack_into("<I", self.out, at, target - at)

    def _offsets(self, at: int, targets: list[int]) -> None:
        struct.pack_into("<I", self.out, at, len(targets))
        for i, target in enumerate(targets):
            self._offset(at + 4 + 4 * i, target)
