"""TFLite flatbuffers: reading, verifying and copying them, and the errors of files that cannot be read.

Invariant: after `verify_flatbuffer` no accessor of the `tflite` package reads outside of the file, whatever its bytes
are, as long as vectors are read within their lengths and unions as their type field says. A copied table equals the
original, but for the fields that the caller replaces; each is written once for every use of it, and tables that are not
copied are not in the new file. A model that cannot be used is a `NetworkError` (the file) or an `UnsupportedModelError`
(what it needs).

FlatBuffers has such a verifier for C++ and none for Python. What a table looks like comes from the `tflite` package:
its builder functions (`TensorAddShape`, `TensorStartShapeVector`) are run on a recorder that notes slot, width and kind
of each field.
"""

from __future__ import annotations

import functools
import importlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import NpuMemplanError, RefusalError
from ..files.paths import read_bytes
from ..names import printable_text


class NetworkError(NpuMemplanError):
    """A file is not a readable TFLite or Vela raw network."""


class UnsupportedModelError(RefusalError):
    """A model has operators that neither the NPU nor the host can run."""


def read_file(path: Path) -> bytes:
    """The bytes of a model file; `NetworkError` when it cannot be read."""
    try:
        return read_bytes(path)
    except OSError as error:
        raise NetworkError(f"cannot read {path}: {error.strerror or error}") from None


_WIDTHS = {"Bool": 1, "Byte": 1, "Int8": 1, "Uint8": 1, "Int16": 2, "Uint16": 2, "Int32": 4, "Uint32": 4, "Float32": 4,
           "Int64": 8, "Uint64": 8, "Float64": 8}  # fmt: skip
# The enumerations of unions whose field is not called after them.
_UNIONS = {"ArraySegments": "SparseIndexVector", "ArrayIndices": "SparseIndexVector", "Details": "QuantizationDetails"}


class FlatbufferError(NpuMemplanError):
    """Something of the file is outside of it; the message says what and where."""


@dataclass(frozen=True, slots=True)
class TableField:
    """A field of a table: a number of `width` bytes, or (`width` 4) an offset to something."""

    name: str
    slot: int
    width: int
    element_bytes: int = 0  # of a vector or string
    table: str = ""  # class of the table, or of the tables in the vector
    texts: bool = False  # a vector of strings
    union: str = ""  # the enumeration that numbers the tables of a union


def number_at(data: bytes, form: str, at: int, what: str = "a number") -> int:
    """The number of this `struct` form at byte `at`."""
    if not 0 <= at <= len(data) - struct.calcsize(form):
        raise FlatbufferError(f"{what} is at byte {at} of {len(data)}")
    value: int = struct.unpack_from(form, data, at)[0]
    return value


def target_at(data: bytes, place: int) -> int:
    """The byte that the offset at byte `place` leads to."""
    return place + number_at(data, "<I", place)


def span_at(data: bytes, start: int, width: int, what: str = "{} elements") -> range:
    """The span of elements of `width` bytes whose number is at `start`; `what` they are, for a message."""
    count = number_at(data, "<I", start)
    if start + 4 + count * width > len(data):
        raise FlatbufferError(f"{what.format(count)} at byte {start} of {len(data)}")
    return range(start + 4, start + 4 + count * width, width)


def text_at(data: bytes, start: int) -> bytes:
    """The string at `start`."""
    span = span_at(data, start, 1, "a string of {} bytes")
    return data[span.start : span.stop]


@dataclass(frozen=True, slots=True)
class FlatTable:
    """A table at a byte of the file; fields are read by slot, absent ones are 0 or empty."""

    data: bytes
    at: int

    def place(self, slot: int) -> int:
        """The byte of a field; 0: it is absent."""
        layout = self.at - number_at(self.data, "<i", self.at)
        entry = 4 + 2 * slot
        known = entry + 2 <= number_at(self.data, "<H", layout)
        offset = number_at(self.data, "<H", layout + entry) if known else 0
        return self.at + offset if offset else 0

    def number(self, form: str, slot: int) -> int:
        """A number of this `struct` form."""
        place = self.place(slot)
        return number_at(self.data, form, place) if place else 0

    def text(self, slot: int) -> str:
        """A string."""
        place = self.place(slot)
        return printable_text(text_at(self.data, target_at(self.data, place))) if place else ""

    def texts(self, slot: int) -> Iterator[str]:
        """A vector of strings."""
        return (printable_text(text_at(self.data, target_at(self.data, place))) for place in self.elements(slot, 4))

    def table(self, slot: int) -> FlatTable | None:
        """A table; None: it is absent."""
        place = self.place(slot)
        return FlatTable(self.data, target_at(self.data, place)) if place else None

    def byte_span(self, slot: int) -> range:
        """The span of a vector of bytes in the file."""
        return self.elements(slot, 1)

    def tables(self, slot: int) -> Iterator[FlatTable]:
        """A vector of tables."""
        return (FlatTable(self.data, target_at(self.data, place)) for place in self.elements(slot, 4))

    def numbers(self, form: str, slot: int) -> Iterator[int]:
        """A vector of numbers of this `struct` form."""
        return (number_at(self.data, form, place) for place in self.elements(slot, struct.calcsize(form)))

    def elements(self, slot: int, width: int) -> range:
        """The bytes at which the elements of a vector stand, each of `width` bytes."""
        place = self.place(slot)
        return span_at(self.data, target_at(self.data, place), width) if place else range(0)


def verify_flatbuffer(data: bytes) -> None:
    """Raise `FlatbufferError` unless every table of the model in `data` is inside it."""
    if len(data) < 8:
        raise FlatbufferError(f"{len(data)} bytes hold no flatbuffer")
    _Verifier(data).follow("Model", struct.unpack_from("<I", data)[0])


class _Verifier:
    """The tables to look at, each once: shared ones do not multiply."""

    def __init__(self, data: bytes) -> None:
        self.data, self.size = data, len(data)
        self.waiting: list[tuple[str, int]] = []
        self.seen: set[tuple[str, int]] = set()

    def follow(self, name: str, at: int) -> None:
        self.waiting.append((name, at))
        while self.waiting:
            entry = self.waiting.pop()
            if entry not in self.seen:
                self.seen.add(entry)
                self._table(*entry)

    def _number(self, form: str, at: int, what: str) -> int:
        return number_at(self.data, form, at, what)

    def _table(self, name: str, at: int) -> None:
        what = f"a {name}"
        layout = at - self._number("<i", at, what)
        layout_bytes = self._number("<H", layout, f"the layout of {what}")
        table_bytes = self._number("<H", layout + 2, f"the layout of {what}")
        if layout_bytes < 4 or layout_bytes % 2 or layout + layout_bytes > self.size:
            raise FlatbufferError(f"the layout of {what} at byte {layout} has {layout_bytes} bytes")
        if table_bytes < 4 or at + table_bytes > self.size:
            raise FlatbufferError(f"{what} at byte {at} of {self.size} has {table_bytes} bytes")
        places = {}
        for field in fields_of(name):
            entry = 4 + 2 * field.slot
            offset = self._number("<H", layout + entry, what) if entry + 2 <= layout_bytes else 0
            if offset and not 4 <= offset <= table_bytes - field.width:
                raise FlatbufferError(f"{name}.{field.name} is at byte {offset} of a table of {table_bytes}")
            places[field.name] = at + offset if offset else 0
        for field in fields_of(name):
            if places[field.name] and (field.element_bytes or field.table or field.union):
                self._offset(name, field, places)

    def _offset(self, name: str, field: TableField, places: dict[str, int]) -> None:
        what = f"{name}.{field.name}"
        place = places[field.name]
        target = place + self._number("<I", place, what)
        if field.union:
            kind = self.data[places[f"{field.name}Type"]] if places.get(f"{field.name}Type") else 0
            if kind == 0:
                return  # NONE: the offset means nothing
            if kind not in union_members(field.union):
                raise FlatbufferError(f"{what} is of kind {kind}, which does not exist")
            self.waiting.append((union_members(field.union)[kind], target))
        elif not field.element_bytes:
            self.waiting.append((field.table, target))
        else:
            count = self._number("<I", target, what)
            if target + 4 + count * field.element_bytes > self.size:
                raise FlatbufferError(f"{what} at byte {target} of {self.size} has {count} elements")
            for at in range(target + 4, target + 4 + 4 * count, 4) if field.table or field.texts else ():
                inner = at + self._number("<I", at, what)
                if field.table:
                    self.waiting.append((field.table, inner))
                elif inner + 4 + self._number("<I", inner, what) > self.size:
                    raise FlatbufferError(f"a string of {what} at byte {inner} of {self.size} does not end")


class _Recorder:
    """A stand-in for flatbuffers.Builder that keeps the last call."""

    def __init__(self) -> None:
        self.call: tuple[str, tuple[Any, ...]] = ("", ())

    def __getattr__(self, method: str) -> Any:
        def record(*arguments: Any) -> None:
            self.call = (method, arguments)

        return record


@functools.cache
def fields_of(name: str) -> tuple[TableField, ...]:
    """The fields of the table `name` that the schema has."""
    module = importlib.import_module(f"tflite.{name}")
    adders = {
        key.removeprefix(f"{name}Add"): value for key, value in vars(module).items() if key.startswith(f"{name}Add")
    }
    return tuple(_field(module, name, field, adder) for field, adder in adders.items())


def _field(module: Any, name: str, field: str, adder: Any) -> TableField:
    recorder = _Recorder()
    adder(recorder, 0)
    method, arguments = recorder.call
    kind, slot = method.removeprefix("Prepend").removesuffix("Slot"), arguments[0]
    if kind in _WIDTHS:
        return TableField(field, slot, _WIDTHS[kind])
    accessor = getattr(module, name).__dict__[field]
    names = accessor.__code__.co_names
    table = next((n.removeprefix("tflite.") for n in names if n.startswith("tflite.")), "")
    start = getattr(module, f"{name}Start{field}Vector", None)
    if start is not None:
        start(recorder, 0)
        return TableField(field, slot, 4, element_bytes=recorder.call[1][0], table=table, texts="String" in names)
    if "Union" in names:
        return TableField(field, slot, 4, union=_UNIONS.get(field, field))
    return TableField(field, slot, 4, table=table) if table else TableField(field, slot, 4, element_bytes=1)


@functools.cache
def union_members(union: str) -> dict[int, str]:
    """Number -> table of the members of a union; NONE is not one."""
    values = vars(getattr(importlib.import_module(f"tflite.{union}"), union))
    return {value: name for name, value in values.items() if isinstance(value, int) and value}


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
                values[field.name] = self._copy_field(name, field, place, self.data[kind])
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

    def _copy_field(self, name: str, field: TableField, place: int, kind: int) -> int:
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
