"""ExecuTorch programs made byte by byte with FlatBuffers' builder: as small as a test needs, in every container."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers

TYPES = {"uint8": 0, "int8": 1, "int16": 2, "int32": 3, "int64": 4, "float32": 6, "bool": 11}


@dataclass(frozen=True)
class Tensor:
    """`place`: (memory id, offset)."""

    dtype: str
    shape: tuple[int, ...]
    place: tuple[int, int] | None = None
    constant: int = 0  # index of its data; 0: none
    order: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Calls:
    """A method. Instructions: ("kernel", name, arguments), ("delegate", number, arguments) or (kind number, a, b)."""

    values: Sequence[Any]  # Tensor, int, float, list of indices, None
    inputs: Sequence[int]
    outputs: Sequence[int]
    instructions: Sequence[tuple[Any, ...]]
    planned: Sequence[int]  # by memory id; the first is not used
    delegates: Sequence[tuple[str, int]] = ()  # backend, number of its data
    name: str = "forward"


def pte_file(
    methods: Sequence[Calls],
    data: Sequence[bytes] = (),
    *,
    inline: bool = False,
    constants: Sequence[bytes] = (),
    named: Mapping[str, bytes] | None = None,
    header: bool = True,
) -> bytes:
    """A program: `data` of its delegates inline or as segments, `named` data as segments. Without `header` it lists an
    empty segment, as ExecuTorch writes it where all data is inline.
    """
    named = named or {}
    write = _Writer()
    segments = [*([] if inline else data), *(named.values())]
    spans, at = [], 0
    for one in segments:
        spans.append(write.table({0: ("Uint64", at), 1: ("Uint64", len(one))}))
        at += -(-len(one) // 128) * 128
    if not header:
        spans.append(write.table({0: ("Uint64", 0), 1: ("Uint64", 0)}))
    first_named = 0 if inline else len(data)
    names = [write.table({0: write.text(k), 1: ("Uint32", first_named + i)}) for i, k in enumerate(named)]
    inlined = [write.table({0: write.raw(one)}) for one in data] if inline else []
    held = [write.table({0: write.raw(one)}) for one in (b"", *constants)] if constants else []
    plans = [write.method(one, inline) for one in methods]
    none = write.table({1: write.numbers("Int64", [0])})  # as ExecuTorch writes it for no constants
    root = write.table({
        **({} if constants else {5: none}), 1: write.offsets(plans), 2: write.offsets(held),
        3: write.offsets(inlined), 4: write.offsets(spans), 7: write.offsets(names),
    })  # fmt: skip
    program = write.finish(root, b"ET12")
    if not header:
        return program
    size = len(program) + 32
    base = -(-size // 128) * 128 if segments else 0
    header = struct.pack("<4sIQQQ", b"eh00", 32, size, base, at)
    start = struct.unpack("<I", program[:4])[0] + 32
    whole = struct.pack("<I", start) + program[4:8] + header + program[8:]
    if segments:
        whole += bytes(base - size) + b"".join(one + bytes(-len(one) % 128) for one in segments)
    return whole


def bundle(program: bytes) -> bytes:
    """A bundled program without test cases."""
    write = _Writer()
    return write.finish(write.table({2: write.raw(program, 32)}), b"BP08")


def ptd_file(named: Mapping[str, bytes]) -> bytes:
    """A `.ptd` file."""
    write = _Writer()
    spans, names, at = [], [], 0
    for number, (key, one) in enumerate(named.items()):
        spans.append(write.table({0: ("Uint64", at), 1: ("Uint64", len(one))}))
        names.append(write.table({0: write.text(key), 1: ("Uint32", number)}))
        at += -(-len(one) // 16) * 16
    tables = write.finish(write.table({1: write.offsets(spans), 2: write.offsets(names)}), b"FT01")
    size = len(tables) + 40
    base = -(-size // 16) * 16
    header = struct.pack("<4sIQQQQ", b"FH01", 40, 8, size, base, at)
    start = struct.unpack("<I", tables[:4])[0] + 40
    whole = struct.pack("<I", start) + tables[4:8] + header + tables[8:] + bytes(base - size)
    return whole + b"".join(one + bytes(-len(one) % 16) for one in named.values())


class _Writer:
    """Fields are offsets, or (type, value) of numbers."""

    def __init__(self) -> None:
        self.builder = flatbuffers.Builder(1024)

    def finish(self, root: int, identifier: bytes) -> bytes:
        self.builder.Finish(root, identifier)
        return bytes(self.builder.Output())

    def text(self, value: str) -> int:
        return int(self.builder.CreateString(value))

    def raw(self, value: bytes, alignment: int = 16) -> int:
        self.builder.StartVector(1, len(value), alignment)
        self.builder.head -= len(value)
        self.builder.Bytes[self.builder.head : self.builder.head + len(value)] = value
        return int(self.builder.EndVector())

    def numbers(self, kind: str, values: Sequence[float]) -> int:
        width = {"Int32": 4, "Int64": 8, "Uint8": 1, "Float64": 8, "Uint64": 8}[kind]
        self.builder.StartVector(width, len(values), width)
        for value in reversed(values):
            getattr(self.builder, f"Prepend{kind}")(value)
        return int(self.builder.EndVector())

    def offsets(self, tables: Sequence[int]) -> int:
        self.builder.StartVector(4, len(tables), 4)
        for table in reversed(tables):
            self.builder.PrependUOffsetTRelative(table)
        return int(self.builder.EndVector())

    def table(self, fields: Mapping[int, int | tuple[str, float]]) -> int:
        self.builder.StartObject(12)
        for slot, value in fields.items():
            if isinstance(value, tuple):
                getattr(self.builder, f"Prepend{value[0]}Slot")(slot, value[1], 0)
            else:
                self.builder.PrependUOffsetTRelativeSlot(slot, value, 0)
        return int(self.builder.EndObject())

    def value(self, value: Any) -> int:
        if value is None:
            return self.table({0: ("Uint8", 1), 1: self.table({})})
        if isinstance(value, Tensor):
            kind, held = 5, self.tensor(value)
        elif isinstance(value, int):
            kind, held = 2, self.table({0: ("Int64", value)})
        elif isinstance(value, float):
            kind, held = 4, self.table({0: ("Float64", value)})
        else:
            kind, held = 10, self.table({0: self.numbers("Int32", value)})
        return self.table({0: ("Uint8", kind), 1: held})

    def tensor(self, value: Tensor) -> int:
        order = range(len(value.shape)) if value.order is None else value.order
        fields: dict[int, Any] = {0: ("Int8", TYPES[value.dtype]), 2: self.numbers("Int32", value.shape)}
        fields |= {3: self.numbers("Uint8", list(order)), 5: ("Uint32", value.constant)}
        if value.place is not None:
            memory, offset = value.place
            fields[6] = self.table(
                {0: ("Uint32", memory), 1: ("Uint32", offset & 0xFFFFFFFF), 2: ("Uint32", offset >> 32)}
            )
        return self.table(fields)

    def method(self, method: Calls, inline: bool) -> int:
        names: list[str] = []
        instructions = []
        for kind, first, second in method.instructions:
            if kind == "kernel":
                names.append(first)
                held = self.table({0: ("Int32", len(names) - 1), 1: self.numbers("Int32", second)})
            elif kind == "delegate":
                held = self.table({0: ("Int32", first), 1: self.numbers("Int32", second)})
            else:
                held = self.table({0: ("Int32", first), 1: ("Int32", second)})
            code = {"kernel": 1, "delegate": 2}.get(kind, kind)
            instructions.append(self.table({0: ("Uint8", code), 1: held}))
        operators = []
        for name in names:
            base, _, overload = name.partition(".")
            operators.append(self.table({0: self.text(base), 1: self.text(overload)}))
        delegates = []
        for backend, number in method.delegates:
            place = self.table({0: ("Int8", 0 if inline else 1), 1: ("Uint32", number)})
            delegates.append(self.table({0: self.text(backend), 1: place}))
        chain = self.table({2: self.offsets(instructions)})
        return self.table({
            0: self.text(method.name), 2: self.offsets([self.value(v) for v in method.values]),
            3: self.numbers("Int32", method.inputs), 4: self.numbers("Int32", method.outputs),
            5: self.offsets([chain]), 6: self.offsets(operators), 7: self.offsets(delegates),
            8: self.numbers("Int64", method.planned),
        })  # fmt: skip
