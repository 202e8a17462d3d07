"""The bytes of a `.pte` file as an `ExecutorchProgram`.

Invariant: every offset, vector and string that is followed is inside the file, and every index is in range; what is
wrong is a `NetworkError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..file import NetworkError
from ..flatbuffer import FlatbufferError, FlatTable
from .program import (
    ELEMENT_TYPES,
    Delegate,
    DelegateCall,
    ExecutorchProgram,
    FreeCall,
    JumpFalseCall,
    KernelCall,
    Method,
    MethodInstruction,
    MethodValue,
    MoveCall,
    PlannedPlace,
    ValueList,
    ValueTensor,
)
from .segments import BUNDLE, FileParts, bundled_program, is_program, open_parts

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
    """Where constants begin in one segment."""

    segment: memoryview
    offsets: tuple[int, ...]


class _Reader:
    def __init__(self, parts: FileParts, external: Mapping[str, memoryview]) -> None:
        self.root, self.parts = parts.root, parts
        self.segments = parts.segments(4)
        self.named_data = {**external, **parts.named_data(7, self.segments)}
        self.inline = [table.byte_span(0) for table in self.root.tables(3)]
        self.constants = [table.byte_span(0) for table in self.root.tables(2)]
        constant = self.root.table(5)
        self.constant_segment = None if constant is None else self._offsets(constant)
        self.initial = [self._offsets(table) for table in self.root.tables(6)]

    def methods(self) -> tuple[Method, ...]:
        found = tuple(self._method(table) for table in self.root.tables(1))
        if not found:
            raise FlatbufferError("it has no method: there is nothing to run")
        return found

    # -- bytes --------------------------------------------------------------------------------------

    def _offsets(self, table: FlatTable) -> _Offsets | None:
        offsets = tuple(table.numbers("<Q", 1))
        if len(offsets) <= 1:  # the first stands for tensors without data
            return None
        return _Offsets(self.parts.part(_at(self.segments, table.number("<I", 0), "segment")), offsets)

    def _content(self, where: _Offsets | None, index: int, size: int) -> memoryview:
        if where is None:
            return _cut(self.parts.part(_at(self.constants, index, "constant")), 0, size, index)
        return _cut(where.segment, _at(where.offsets, index, "constant"), size, index)

    # -- methods ------------------------------------------------------------------------------------

    def _method(self, table: FlatTable) -> Method:
        name = table.text(0)
        values = tuple(self._value(value) for value in table.tables(2))
        for value in values:
            if isinstance(value, ValueList) and not all(-1 <= item < len(values) for item in value.items):
                raise FlatbufferError(f"a list of method {name!r} names value {max(value.items)} of {len(values)}")
        operators = [".".join(filter(None, (o.text(0), o.text(1)))) for o in table.tables(6)]
        delegates = tuple(self._delegate(delegate) for delegate in table.tables(7))
        chains = list(table.tables(5))
        if len(chains) > 1:
            raise FlatbufferError(f"method {name!r} has {len(chains)} chains of instructions; one is run")
        listed = list(chains[0].tables(2)) if chains else []
        instructions = tuple(_instruction(one, operators, len(delegates), len(values), len(listed)) for one in listed)
        sizes = list(table.numbers("<q", 8))
        planned = {memory: size for memory, size in enumerate(sizes) if memory}
        if any(size < 0 for size in planned.values()):
            raise FlatbufferError(f"method {name!r} has planned buffers of {list(planned.values())} bytes")
        inputs, outputs = (_indices(table, slot, len(values)) for slot in (3, 4))
        return Method(name, values, inputs, outputs, instructions, delegates, planned)

    def _delegate(self, table: FlatTable) -> Delegate:
        place = table.table(1)
        if place is None:
            raise FlatbufferError(f"delegate {table.text(0)!r} says nowhere where its data is")
        inline = place.number("<b", 0) != _SEGMENT
        span = _at(self.inline if inline else self.segments, place.number("<I", 1), "data of a delegate")
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
            data = self._content(self.constant_segment, index, size)
        elif index:
            number = 0 if extra is None else extra.number("<Q", 0)
            data = self._content(_at(self.initial, number, "initial data"), index, size)
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


def _instruction(
    table: FlatTable, operators: Sequence[str], delegates: int, values: int, instructions: int
) -> MethodInstruction:
    kind, held = table.number("<B", 0), table.table(1)
    if held is None or not 1 <= kind <= 5:
        raise FlatbufferError(f"an instruction is of kind {kind}, which does not exist")
    first, second = (held.number("<i", slot) for slot in (0, 1)) if kind > 2 else (held.number("<i", 0), 0)
    if kind == 1:
        return KernelCall(_at(operators, first, "operator"), _indices(held, 1, values))
    if kind == 2:
        if not 0 <= first < delegates:
            raise FlatbufferError(f"an instruction calls delegate {first}; there are {delegates}")
        return DelegateCall(first, _indices(held, 1, values))
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


def _indices(table: FlatTable, slot: int, values: int) -> tuple[int, ...]:
    found = tuple(table.numbers("<i", slot))
    if not all(0 <= index < values for index in found):
        raise FlatbufferError(f"a list names value {next(i for i in found if not 0 <= i < values)}; there are {values}")
    return found


def _at(items: Sequence[_Item], index: int, what: str) -> _Item:
    if not 0 <= index < len(items):
        raise FlatbufferError(f"{what} {index} does not exist; there are {len(items)}")
    return items[index]


def _cut(data: memoryview, start: int, size: int, index: int) -> memoryview:
    if start + size > len(data):
        raise FlatbufferError(f"constant {index} ends at byte {start + size} of {len(data)}")
    return data[start : start + size]
