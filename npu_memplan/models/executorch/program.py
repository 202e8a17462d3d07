"""An ExecuTorch program read from the bytes of its file, and the file written again.

Invariant: every span, offset, vector and string that is followed is inside the file, and every index in a method (of
values, operators, delegates, instructions) is in range; else there is a `NetworkError`. A file that is written is read
back as the same program with the changes. Data that has grown beyond its place stands after the flatbuffer, and its
offset leads there; segments keep their order and alignment.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from ...errors import NpuMemplanError
from ..flatbuffer import FlatbufferError, FlatTable, NetworkError, number_at, target_at

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

    def segment_spans(self, slot: int) -> tuple[range, ...]:
        """The spans of the segments that are listed in the vector of DataSegment in `slot`."""
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
            found |= _read_named_data(data)
        except FlatbufferError as error:
            raise NetworkError(
                f"{name} is a damaged or truncated .ptd file ({len(data)} bytes): {error}; get the file again"
            ) from error
    return found


def _read_named_data(data: bytes) -> dict[str, memoryview]:
    if data[8:12] != _DATA_HEADER:
        raise FlatbufferError(f"bytes 8 to 12 must be FH01, but are {bytes(data[8:12])!r}")
    size = number_at(data, "<Q", 24)
    base, used = number_at(data, "<Q", 32), number_at(data, "<Q", 40)
    if size > len(data) or base + used > len(data):
        raise FlatbufferError(f"its header says {size} bytes of tables and segments up to byte {base + used}")
    parts = FileParts(FlatTable(data, number_at(data, "<I", 0)), memoryview(data), base, base + used)
    return parts.named_data(2, parts.segment_spans(1))


class MethodNameError(NpuMemplanError):
    """A program has no method of that name."""


# enum ScalarType -> numpy's name (bfloat16: PyTorch's) and bytes of an element.
ELEMENT_TYPES: Mapping[int, tuple[str, int]] = {
    0: ("uint8", 1), 1: ("int8", 1), 2: ("int16", 2), 3: ("int32", 4), 4: ("int64", 8), 5: ("float16", 2),
    6: ("float32", 4), 7: ("float64", 8), 8: ("complex32", 4), 9: ("complex64", 8), 10: ("complex128", 16),
    11: ("bool", 1), 12: ("int8", 1), 13: ("uint8", 1), 14: ("int32", 4), 15: ("bfloat16", 2), 16: ("uint8", 1),
    17: ("uint8", 1), 22: ("uint16", 2), 27: ("uint16", 2), 28: ("uint32", 4), 29: ("uint64", 8),
}  # fmt: skip


VIEW = "executorch_prim::et_view.default"  # gives its output the memory of its input


@dataclass(frozen=True, slots=True)
class PlannedPlace:
    """The place that memory planning gave a tensor: a byte of the buffer called `memory_id` (1 is the first)."""

    memory_id: int
    offset_bytes: int


@dataclass(frozen=True, slots=True)
class ValueTensor:
    """A tensor of a method. It is a constant, or planned, or gets its memory from the caller (`place` None)."""

    dtype: str
    element_bytes: int
    shape: tuple[int, ...]  # of a dynamic tensor: its upper bound
    dim_order: tuple[int, ...]  # outermost first; empty: in the order of the shape
    place: PlannedPlace | None = None
    data: memoryview | None = field(default=None, repr=False)  # what it starts with; all of it, for a constant
    name: str = ""  # fully qualified, where the file gives one
    is_dynamic: bool = False
    has_data: bool = False  # also where the bytes are in a `.ptd` file that was not given

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole tensor."""
        return math.prod(self.shape) * self.element_bytes

    @property
    def is_constant(self) -> bool:
        """Whether nothing writes it."""
        return self.has_data and self.place is None


@dataclass(frozen=True, slots=True)
class ValueList:
    """A list of other values, by index; -1 is None."""

    items: tuple[int, ...]


Scalar: TypeAlias = "int | float | bool | str | tuple[float | bool, ...] | None"
MethodValue: TypeAlias = "ValueTensor | ValueList | Scalar"


@dataclass(frozen=True, slots=True)
class KernelCall:
    """An operator that the CPU runs; `name` as it is registered, such as `quantized_decomposed::add.out`."""

    name: str
    arguments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DelegateCall:
    """A call of a delegate: its inputs, then its outputs."""

    delegate: int
    arguments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MoveCall:
    """A value takes the place of another."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class JumpFalseCall:
    """Goes on at `destination` where `condition` does not hold."""

    condition: int
    destination: int


@dataclass(frozen=True, slots=True)
class FreeCall:
    """The end of a tensor whose memory the runtime made."""

    value: int


MethodInstruction: TypeAlias = "KernelCall | DelegateCall | MoveCall | JumpFalseCall | FreeCall"


@dataclass(frozen=True, slots=True, eq=False)
class Delegate:
    """The data that a backend made of a part of the method."""

    backend: str  # such as EthosUBackend
    data: memoryview = field(repr=False)
    file_offset: int  # of `data` in the program
    inline: bool  # in the flatbuffer; else a segment of its own
    specs: Mapping[str, bytes] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Method:
    """One entry point."""

    name: str
    values: tuple[MethodValue, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    instructions: tuple[MethodInstruction, ...]
    delegates: tuple[Delegate, ...]
    planned_bytes: Mapping[int, int]  # size of each planned buffer, by its memory id

    def tensors_in(self, index: int) -> Iterator[int]:
        """The tensors that value `index` is or holds."""
        value = self.values[index]
        if isinstance(value, ValueTensor):
            yield index
        elif isinstance(value, ValueList):
            for item in value.items:
                if item >= 0 and isinstance(self.values[item], ValueTensor):
                    yield item

    def tensor(self, index: int) -> ValueTensor | None:
        """Value `index` where it is a tensor."""
        value = self.values[index]
        return value if isinstance(value, ValueTensor) else None


@dataclass(frozen=True, slots=True, eq=False)
class ExecutorchProgram:
    """A `.pte` file."""

    name: str
    file_bytes: int
    methods: tuple[Method, ...]
    named_data: Mapping[str, memoryview] = field(default_factory=dict, repr=False)
    bundled: bool = False  # a bundled program held it, with inputs and expected outputs

    def method(self, name: str) -> Method:
        """The method called `name`, the first for an empty name; `MethodNameError` when there is none."""
        for method in self.methods:
            if name in ("", method.name):
                return method
        raise MethodNameError(f"{self.name} has no method {name!r}; it has {', '.join(m.name for m in self.methods)}")


def values_of(instruction: MethodInstruction) -> tuple[int, ...]:
    """The values that an instruction names."""
    if isinstance(instruction, (KernelCall, DelegateCall)):
        return instruction.arguments
    if isinstance(instruction, MoveCall):
        return instruction.source, instruction.target
    return (instruction.condition if isinstance(instruction, JumpFalseCall) else instruction.value,)


_LARGEST_BYTES = 1 << 48  # of a tensor
_LARGEST_RANK = 32
_EXTERNAL, _SEGMENT = 1, 1
_Item = TypeVar("_Item")


def read_program(
    data: bytes, name: str = "program", external: Mapping[str, memoryview] | None = None
) -> ExecutorchProgram:
    """Read a `.pte` file or a bundled program; `external` is the data of its `.ptd` files.

    `NetworkError` says what is wrong with it.
    """
    if not is_program(data):
        raise NetworkError(
            f"{name} is not an ExecuTorch program: bytes 4 to 8 must be ET12 (or BP08, for a bundled one), but are "
            f"{bytes(data[4:8])!r} ({len(data)} bytes in all); give a .pte file"
        )
    try:
        bundled = data[4:8] == BUNDLE
        inner = bundled_program(data) if bundled else data
        if not is_program(inner) or inner[4:8] == BUNDLE:
            raise FlatbufferError(f"the bundled program begins with {bytes(inner[4:8])!r}, not with ET12")
        reader = _Reader(open_parts(inner), external or {})
        return ExecutorchProgram(name, len(data), reader.methods(), reader.named_data, bundled)
    except FlatbufferError as error:
        raise NetworkError(
            f"{name} is a damaged or truncated .pte file ({len(data)} bytes): {error}; get the file again"
        ) from error


@dataclass(frozen=True, slots=True)
class _Offsets:
    """The first bytes of constants in one segment."""

    segment: memoryview
    offsets: tuple[int, ...]


class _Reader:
    def __init__(self, parts: FileParts, external: Mapping[str, memoryview]) -> None:
        self.root, self.parts = parts.root, parts
        self.segment_spans = parts.segment_spans(4)
        self.named_data = {**external, **parts.named_data(7, self.segment_spans)}
        self.inline = [table.byte_span(0) for table in self.root.tables(3)]
        self.constants = [table.byte_span(0) for table in self.root.tables(2)]
        constant = self.root.table(5)
        self.constant_segment = None if constant is None else self._read_offsets(constant)
        self.initial = [self._read_offsets(table) for table in self.root.tables(6)]

    def methods(self) -> tuple[Method, ...]:
        found = tuple(self._read_method(table) for table in self.root.tables(1))
        if not found:
            raise FlatbufferError("it has no method: there is nothing to run")
        return found

    # -- bytes --------------------------------------------------------------------------------------

    def _read_offsets(self, table: FlatTable) -> _Offsets | None:
        offsets = tuple(table.numbers("<Q", 1))
        if len(offsets) <= 1:  # the first stands for tensors without data
            return None
        return _Offsets(self.parts.part(_item_at(self.segment_spans, table.number("<I", 0), "segment")), offsets)

    def _read_content(self, where: _Offsets | None, index: int, size: int) -> memoryview:
        if where is None:
            return _cut(self.parts.part(_item_at(self.constants, index, "constant")), 0, size, index)
        return _cut(where.segment, _item_at(where.offsets, index, "constant"), size, index)

    # -- methods ------------------------------------------------------------------------------------

    def _read_method(self, table: FlatTable) -> Method:
        name = table.text(0)
        values = tuple(self._value(value) for value in table.tables(2))
        for value in values:
            if isinstance(value, ValueList) and not all(-1 <= item < len(values) for item in value.items):
                raise FlatbufferError(f"a list of method {name!r} names value {max(value.items)} of {len(values)}")
        operators = [".".join(filter(None, (o.text(0), o.text(1)))) for o in table.tables(6)]
        delegates = tuple(self._read_delegate(delegate) for delegate in table.tables(7))
        chains = list(table.tables(5))
        if len(chains) > 1:
            raise FlatbufferError(f"method {name!r} has {len(chains)} chains of instructions; one is run")
        listed = list(chains[0].tables(2)) if chains else []
        instructions = tuple(
            _read_instruction(one, operators, len(delegates), len(values), len(listed)) for one in listed
        )
        sizes = list(table.numbers("<q", 8))
        planned = {memory: size for memory, size in enumerate(sizes) if memory}
        if any(size < 0 for size in planned.values()):
            raise FlatbufferError(f"method {name!r} has planned buffers of {list(planned.values())} bytes")
        inputs, outputs = (_value_indices(table, slot, len(values)) for slot in (3, 4))
        return Method(name, values, inputs, outputs, instructions, delegates, planned)

    def _read_delegate(self, table: FlatTable) -> Delegate:
        place = table.table(1)
        if place is None:
            raise FlatbufferError(f"delegate {table.text(0)!r} says nowhere where its data is")
        inline = place.number("<b", 0) != _SEGMENT
        span = _item_at(self.inline if inline else self.segment_spans, place.number("<I", 1), "data of a delegate")
        specs = {spec.text(0): bytes(self.parts.part(spec.byte_span(1))) for spec in table.tables(2)}
        return Delegate(table.text(0), self.parts.part(span), span.start, inline, specs)

    # -- values -------------------------------------------------------------------------------------

    def _value(self, table: FlatTable) -> MethodValue:
        kind, held = table.number("<B", 0), table.table(1)
        if held is None or kind <= 1:
            return None
        if kind == 5:
            return self._tensor(held)
        if kind in (2, 3, 4, 6):
            return (held.number("<q", 0) if kind == 2 else bool(held.number("<B", 0)) if kind == 3
                    else held.number("<d", 0) if kind == 4 else held.text(0))  # fmt: skip
        if kind in (7, 10, 11):
            return ValueList(tuple(held.numbers("<q" if kind == 7 else "<i", 0)))
        if kind == 8:
            return tuple(held.numbers("<d", 0))
        if kind == 9:
            return tuple(map(bool, held.numbers("<B", 0)))
        raise FlatbufferError(f"a value is of kind {kind}, which does not exist")

    def _tensor(self, table: FlatTable) -> ValueTensor:
        code, shape = table.number("<b", 0), tuple(table.numbers("<i", 2))
        if code not in ELEMENT_TYPES:
            raise FlatbufferError(f"a tensor has element type {code}, which does not exist")
        dtype, element_bytes = ELEMENT_TYPES[code]
        order, size = tuple(table.numbers("<B", 3)), element_bytes
        for extent in shape:
            size *= extent
            if extent < 0 or size > _LARGEST_BYTES or len(shape) > _LARGEST_RANK:
                raise FlatbufferError(f"a tensor has the shape {list(shape[:8])}")
        if order and sorted(order) != list(range(len(shape))):
            raise FlatbufferError(f"a tensor of shape {list(shape)} has its dimensions in the order {list(order)}")
        place, extra, index = self._place(table), table.table(9), table.number("<I", 5)
        name = "" if extra is None else extra.text(1)
        is_external = extra is not None and extra.number("<b", 2) == _EXTERNAL
        data: memoryview | None = None
        if is_external:
            data = self.named_data.get(name)
            data = None if data is None else _cut(data, 0, size, 0)
        elif index and place is None:
            data = self._read_content(self.constant_segment, index, size)
        elif index:
            number = 0 if extra is None else extra.number("<Q", 0)
            data = self._read_content(_item_at(self.initial, number, "initial data"), index, size)
        return ValueTensor(
            dtype,
            element_bytes,
            shape,
            order,
            place,
            data,
            name,
            bool(table.number("<b", 8)),
            bool(index) or is_external,
        )

    def _place(self, table: FlatTable) -> PlannedPlace | None:
        details = table.table(6)
        if details is None:
            return None
        low, high = details.number("<I", 1), details.number("<I", 2)
        return PlannedPlace(details.number("<I", 0), low | high << 32)


def _read_instruction(
    table: FlatTable, operators: Sequence[str], delegates: int, values: int, instructions: int
) -> MethodInstruction:
    kind, held = table.number("<B", 0), table.table(1)
    if held is None or not 1 <= kind <= 5:
        raise FlatbufferError(f"an instruction is of kind {kind}, which does not exist")
    first, second = (held.number("<i", slot) for slot in (0, 1)) if kind > 2 else (held.number("<i", 0), 0)
    if kind == 1:
        return KernelCall(_item_at(operators, first, "operator"), _value_indices(held, 1, values))
    if kind == 2:
        if not 0 <= first < delegates:
            raise FlatbufferError(f"an instruction calls delegate {first}; there are {delegates}")
        return DelegateCall(first, _value_indices(held, 1, values))
    checked = (first, second) if kind == 3 else (first,)
    if not all(0 <= value < values for value in checked):
        raise FlatbufferError(f"an instruction names value {max(checked)}; there are {values}")
    if kind == 3:
        return MoveCall(first, second)
    if kind == 5:
        return FreeCall(first)
    if not 0 <= second <= instructions:
        raise FlatbufferError(f"an instruction jumps to instruction {second}; there are {instructions}")
    return JumpFalseCall(first, second)


def _value_indices(table: FlatTable, slot: int, values: int) -> tuple[int, ...]:
    found = tuple(table.numbers("<i", slot))
    if not all(0 <= index < values for index in found):
        raise FlatbufferError(f"a list names value {next(i for i in found if not 0 <= i < values)}; there are {values}")
    return found


def _item_at(items: Sequence[_Item], index: int, what: str) -> _Item:
    if not 0 <= index < len(items):
        raise FlatbufferError(f"{what} {index} does not exist; there are {len(items)}")
    return items[index]


def _cut(data: memoryview, start: int, size: int, index: int) -> memoryview:
    if start + size > len(data):
        raise FlatbufferError(f"constant {index} ends at byte {start + size} of {len(data)}")
    return data[start : start + size]


_SMALLEST, _LARGEST = 16, 4096  # alignment of segments, in bytes
_METHODS, _INLINE, _SEGMENTS = 1, 3, 4  # slots of the program's table
_VALUES, _SIZES = 2, 8  # of a method's
_PLACE = 6  # of a tensor's: its AllocationDetails


class RewriteError(NpuMemplanError):
    """A file cannot hold the changes."""


@dataclass(frozen=True, slots=True)
class ProgramChanges:
    """The changes of a program; methods by their number."""

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
            start = span.start if len(new) == len(span) else self._append_bytes(4 + len(new), _SMALLEST, 4) + 4
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
            at = self._append_bytes(28, 4)
            low, high = new.offset_bytes & 0xFFFFFFFF, new.offset_bytes >> 32
            struct.pack_into("<5HxxiIII", self._head, at, 10, 16, 4, 8, 12, 12, new.memory_id, low, high)
            struct.pack_into("<I", self._head, place, at + 12 - place)

    def _append_bytes(self, size: int, alignment: int, before: int = 0) -> int:
        """The place of `size` new bytes, of which those after the first `before` are aligned."""
        start = len(self._head) + -(len(self._head) + before) % alignment
        self._head.extend(bytes(start + size - len(self._head)))
        return start

    def _with_segments(self, changed: Mapping[tuple[int, int], bytes]) -> bytes:
        """`changed`: the new bytes of segments, by the byte of the file at which they began, and their size."""
        tables = list(self._parts.root.tables(_SEGMENTS))
        spans = self._parts.segment_spans(_SEGMENTS)
        if self._has_header:
            struct.pack_into("<Q", self._head, 16, len(self._head))
        if not spans or not (self._has_header and number_at(self._data, "<Q", 24)):
            return bytes(self._head)  # a file whose header names no segments may list empty ones
        alignment = _LARGEST
        while alignment > _SMALLEST and any(span.start % alignment for span in spans):
            alignment //= 2
        base = -(-max(len(self._head), self._parts.base) // alignment) * alignment
        self._append_bytes(base - len(self._head), 1)
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
