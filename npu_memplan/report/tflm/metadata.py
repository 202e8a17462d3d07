"""Add one metadata entry to a .tflite without rewriting the model.

Invariant: the original bytes stay in the file, unchanged and equally aligned. FlatBuffers
offsets are relative and point forward, so a new root table in front of the old file can
refer to everything in it, and add one buffer and one metadata entry.
"""

from __future__ import annotations

import struct

from ...errors import NpuMemplanError
from ...models.flatbuffer import fields_of
from ...models.flatbuffer_copy import BUFFER_ALIGNMENT, TableWriter

_ALIGN = 64  # of the old file in the new one; no TFLite buffer asks for more than 16


class TfliteFileError(NpuMemplanError):
    """A .tflite cannot be extended."""


def with_metadata(model: bytes, name: str, content: bytes) -> bytes:
    """`model`, which `read_network` takes, with metadata entry `name` whose buffer is `content` (16-byte aligned); an
    entry of that name is replaced. Raises `TfliteFileError` for files this cannot be done to."""
    import tflite

    root, old = _target(model, 0), tflite.Model.GetRootAs(model, 0)
    if any(getattr(old.Buffers(i), "Offset", lambda: 0)() > 1 for i in range(old.BuffersLength())):
        raise TfliteFileError("the model keeps its weights outside the flatbuffer; save it without that option")
    writer = TableWriter(model)
    builder = writer.builder
    builder.Prep(_ALIGN, len(model))
    builder.head = builder.Head() - len(model)
    builder.Bytes[builder.Head() : builder.Head() + len(model)] = model
    end = builder.Offset()  # the builder counts from the end: what is at p of the old file is at end - p
    places = {field.name: writer.field("Model", root, field.name) for field in fields_of("Model")}
    values = {field: end - _target(model, at) for field, at in places.items() if at and field != "Version"}
    values["Version"] = old.Version()
    kept = [
        table
        for i, table in enumerate(_tables(model, places["Metadata"]))
        if (old.Metadata(i).Name() or b"").decode() != name
    ]
    buffers = [end - table for table in _tables(model, places["Buffers"])]
    entry = writer.table("Metadata", {"Name": writer.text(name), "Buffer": len(buffers)})
    added = writer.table("Buffer", {"Data": writer.data_vector(content, alignment=BUFFER_ALIGNMENT)})
    values["Buffers"] = writer.tables([*buffers, added])
    values["Metadata"] = writer.tables([*(end - table for table in kept), entry])
    builder.Finish(writer.table("Model", values), b"TFL3")
    return bytes(builder.Output())


def _target(model: bytes, at: int) -> int:
    """Where the offset at `at` leads to."""
    return at + int(struct.unpack_from("<I", model, at)[0])


def _tables(model: bytes, field: int) -> list[int]:
    """Positions of the tables in a vector of tables; `field` is where the field stands, 0 for none."""
    if not field:
        return []
    at = _target(model, field)
    count = struct.unpack_from("<I", model, at)[0]
    return [_target(model, slot) for slot in range(at + 4, at + 4 + 4 * count, 4)]
