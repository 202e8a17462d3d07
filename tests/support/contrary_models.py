"""Models that can be read and contradict themselves: sound files with some fields of their structure changed.

Invariant: a model follows from the sound file and the generator alone, and is a complete flatbuffer; what was changed
is named. Numbers of operands, types, shapes, ranks, quantisation, flags, options, versions and edges change, and values
of small constants, which are axes and shapes.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npu_memplan.models.flatbuffer import (
    BUFFER_ALIGNMENT,
    FlatTable,
    TableField,
    TableWriter,
    fields_of,
    target_at,
    union_members,
)

_TYPES = (0, 1, 2, 3, 4, 6, 7, 9, 15)
_SCALES = (0.0, -1.0, math.nan, math.inf, -math.inf, 1e-45, 1e-30, 1e30, 3.4e38, 1.0)
_ZEROS = (-(1 << 63), -(1 << 31), -32769, -129, -128, -1, 1, 11, 127, 128, 255, 256, 32767, 65536, 1 << 31, 1 << 40)
_EXTENTS = (-1, 0, 1, 2, 3, 5, 7, 16, 300, 65536, 1 << 30, (1 << 31) - 1)
_NUMBERS = (-(1 << 31), -7, -1, 0, 1, 2, 3, 4, 5, 7, 16, 77, 127, 255, 65536, (1 << 31) - 1)
_SMALL_BYTES = 64  # of constants that are changed


@dataclass
class Record:
    """A table of a flatbuffer: numbers as they stand in it, bytes of vectors and strings, tables and lists of them."""

    kind: str
    values: dict[str, Any] = field(default_factory=dict)

    def numbers(self, name: str, form: str) -> list[Any]:
        """A vector of numbers of a `struct` form."""
        content = self.values.get(name, b"")
        return list(struct.unpack(f"<{len(content) // struct.calcsize(form)}{form}", content))

    def put(self, name: str, form: str, values: Sequence[Any]) -> None:
        """Replace a vector of numbers."""
        self.values[name] = struct.pack(f"<{len(values)}{form}", *values)


def read_record(data: bytes, kind: str = "Model", at: int | None = None) -> Record:
    """The table `kind` at byte `at` of a sound file, with all that it leads to."""
    table = FlatTable(data, target_at(data, 0) if at is None else at)
    found = Record(kind)
    for known in fields_of(kind):
        place = table.place(known.slot)
        if place:
            value = _value(data, table, known, place, kind)
            if value is not None:
                found.values[known.name] = value
    return found


def _value(data: bytes, table: FlatTable, known: TableField, place: int, kind: str) -> Any:
    if known.union:
        number = next(f for f in fields_of(kind) if f.name == f"{known.name}Type")
        member = union_members(known.union).get(data[table.place(number.slot)])
        return read_record(data, member, target_at(data, place)) if member else None
    if known.texts:
        return [text.encode() for text in table.texts(known.slot)]
    if known.element_bytes and known.table:
        return [read_record(data, known.table, t.at) for t in table.tables(known.slot)]
    if known.element_bytes:
        span = table.elements(known.slot, known.element_bytes)
        return data[span.start : span.stop]
    if known.table:
        return read_record(data, known.table, target_at(data, place))
    return int.from_bytes(data[place : place + known.width], "little")


def write_record(record: Record) -> bytes:
    """The file of a `Model`."""
    write = TableWriter(bytes(1 << 16))
    write.builder.Finish(_written(write, record), b"TFL3")
    return bytes(write.builder.Output())


def _written(write: TableWriter, record: Record) -> int:
    values: dict[str, int] = {}
    for known in fields_of(record.kind):
        value = record.values.get(known.name)
        if isinstance(value, Record):
            values[known.name] = _written(write, value)
        elif isinstance(value, list):
            items = [_written(write, v) if isinstance(v, Record) else int(write.builder.CreateString(v)) for v in value]
            values[known.name] = write.tables(items)
        elif isinstance(value, bytes):
            aligned = BUFFER_ALIGNMENT if record.kind == "Buffer" else 0
            text = known.element_bytes == 1 and record.kind != "Buffer"
            made = write.builder.CreateString(value) if text else write.data_vector(value, known.element_bytes, aligned)
            values[known.name] = int(made)
        elif value is not None:
            values[known.name] = value
    return write.table(record.kind, values)


def contrary_model(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """What was changed, and the changed file."""
    model = read_record(data)
    done: list[str] = []
    while not done:
        for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
            change = rng.choice(_CHANGES)
            try:
                done.append(change(model, rng))
            except (IndexError, KeyError, ValueError):
                continue  # the model has nothing of that kind
    return "; ".join(done), write_record(model)


def contrary_models(files: Sequence[Path], count: int, rng: random.Random, folder: Path) -> Iterator[tuple[str, Path]]:
    """`count` `.tflite` files made of `files` in turn."""
    sources = [(f.name, f.read_bytes()) for f in files]
    path = folder / "m.tflite"
    for i in range(count):
        name, data = sources[i % len(sources)]
        what, changed = contrary_model(data, rng)
        path.write_bytes(changed)
        yield f"{i} of {name}: {what}", path


# ------------------------------------------------------------------ parts of a model


def _graph(model: Record, rng: random.Random) -> Record:
    return rng.choice(model.values["Subgraphs"])


def _operator(model: Record, rng: random.Random) -> tuple[Record, Record, str]:
    graph = _graph(model, rng)
    operators = graph.values["Operators"]
    place = rng.randrange(len(operators))
    return graph, operators[place], f"operator {place}"


def _tensor(model: Record, rng: random.Random) -> tuple[Record, str]:
    tensors = _graph(model, rng).values["Tensors"]
    place = rng.randrange(len(tensors))
    return tensors[place], f"tensor {place}"


# ------------------------------------------------------------------ changes


def _change_operands(model: Record, rng: random.Random) -> str:
    graph, operator, what = _operator(model, rng)
    name = rng.choice(("Inputs", "Inputs", "Outputs"))
    numbers, count = operator.numbers(name, "i"), len(graph.values["Tensors"])
    kind = rng.randrange(5)
    if kind == 0 and numbers:
        del numbers[rng.randrange(len(numbers))]
    elif kind == 1:
        numbers.insert(rng.randrange(len(numbers) + 1), rng.randrange(-1, count))
    elif kind == 2:
        rng.shuffle(numbers)
    elif kind == 3:
        numbers[rng.randrange(len(numbers))] = -1
    else:
        numbers[rng.randrange(len(numbers))] = rng.randrange(count)
    operator.put(name, "i", numbers)
    return f"{what} {name} {numbers}"


def _change_type(model: Record, rng: random.Random) -> str:
    tensor, what = _tensor(model, rng)
    tensor.values["Type"] = rng.choice(_TYPES)
    return f"{what} type {tensor.values['Type']}"


def _change_shape(model: Record, rng: random.Random) -> str:
    tensor, what = _tensor(model, rng)
    shape = tensor.numbers("Shape", "i")
    kind = rng.randrange(6)
    if kind == 0:
        del shape[rng.randrange(len(shape))]
    elif kind == 1:
        shape.insert(rng.randrange(len(shape) + 1), rng.choice(_EXTENTS))
    elif kind == 2:
        shape[rng.randrange(len(shape))] = rng.choice(_EXTENTS)
    elif kind == 3:
        rng.shuffle(shape)
    elif kind == 4:
        shape = [1] * rng.randrange(1, 9) + shape
    else:
        place = rng.randrange(len(shape))
        shape[place] = max(shape[place] + rng.choice((-1, 1)), 0)
    tensor.put("Shape", "i", shape)
    tensor.values.pop("ShapeSignature", None)
    return f"{what} shape {shape}"


def _change_ranks(model: Record, rng: random.Random) -> str:
    ones = [1] * rng.randrange(1, 9)
    for tensor in _graph(model, rng).values["Tensors"]:
        if tensor.numbers("Shape", "i"):
            tensor.put("Shape", "i", [*ones, *tensor.numbers("Shape", "i")])
    return f"{len(ones)} more dimensions everywhere"


def _change_quantisation(model: Record, rng: random.Random) -> str:
    tensor, what = _tensor(model, rng)
    found = tensor.values.setdefault("Quantization", Record("QuantizationParameters"))
    scales, zeros = found.numbers("Scale", "f"), found.numbers("ZeroPoint", "q")
    kind = rng.randrange(6)
    if kind == 0:
        scales[rng.randrange(len(scales))] = rng.choice(_SCALES)
    elif kind == 1:
        zeros[rng.randrange(len(zeros))] = rng.choice(_ZEROS)
    elif kind == 2:
        scales = scales[:1] * rng.randrange(5)
    elif kind == 3:
        zeros = zeros[:1] * rng.randrange(5)
    elif kind == 4:
        found.values["QuantizedDimension"] = rng.choice(_NUMBERS) & 0xFFFFFFFF
    else:
        del tensor.values["Quantization"]
    found.put("Scale", "f", scales)
    found.put("ZeroPoint", "q", zeros)
    return f"{what} scales {scales[:3]} zero points {zeros[:3]} of kind {kind}"


def _change_flag(model: Record, rng: random.Random) -> str:
    tensor, what = _tensor(model, rng)
    tensor.values["IsVariable"] = 1 - tensor.values.get("IsVariable", 0)
    return f"{what} variable {tensor.values['IsVariable']}"


def _change_buffer(model: Record, rng: random.Random) -> str:
    tensor, what = _tensor(model, rng)
    tensor.values["Buffer"] = rng.choice((0, rng.randrange(len(model.values["Buffers"]))))
    return f"{what} buffer {tensor.values['Buffer']}"


def _change_constant(model: Record, rng: random.Random) -> str:
    small = [b for b in model.values["Buffers"] if 0 < len(b.values.get("Data", b"")) <= _SMALL_BYTES]
    content = rng.choice(small).values
    data = bytearray(content["Data"])
    at = rng.randrange(len(data)) & ~3
    data[at : at + 4] = struct.pack("<i", rng.choice(_NUMBERS))[: len(data) - at]
    content["Data"] = bytes(data)
    return f"constant {content['Data'].hex()}"


def _change_option(model: Record, rng: random.Random) -> str:
    _, operator, what = _operator(model, rng)
    if rng.randrange(8) == 0:
        operator.values.pop("BuiltinOptions")
        operator.values.pop("BuiltinOptionsType")
        return f"{what} without options"
    options = operator.values["BuiltinOptions"]
    known = rng.choice([f for f in fields_of(options.kind) if not (f.element_bytes or f.table or f.union)])
    value = rng.choice(_NUMBERS) & ((1 << 8 * known.width) - 1)
    options.values[known.name] = value
    return f"{what} {known.name} {value}"


def _swap_options(model: Record, rng: random.Random) -> str:
    _, one, what = _operator(model, rng)
    _, other, which = _operator(model, rng)
    for name in ("BuiltinOptions", "BuiltinOptionsType"):
        one.values[name] = other.values[name]
    return f"{what} with the options of {which}"


def _change_code(model: Record, rng: random.Random) -> str:
    code = rng.choice(model.values["OperatorCodes"]).values
    if rng.randrange(2):
        code["Version"] = rng.choice(_NUMBERS) & 0xFFFFFFFF
        return f"version {code['Version']}"
    code["BuiltinCode"] = rng.randrange(207)
    code["DeprecatedBuiltinCode"] = min(code["BuiltinCode"], 127)
    return f"kind {code['BuiltinCode']}"


def _change_kind(model: Record, rng: random.Random) -> str:
    _, operator, what = _operator(model, rng)
    operator.values["OpcodeIndex"] = rng.randrange(len(model.values["OperatorCodes"]))
    return f"{what} of code {operator.values['OpcodeIndex']}"


def _change_order(model: Record, rng: random.Random) -> str:
    operators = _graph(model, rng).values["Operators"]
    kind, place = rng.randrange(3), rng.randrange(len(operators))
    if kind == 0:
        rng.shuffle(operators)
        return "operators in another order"
    if kind == 1:
        operators.append(operators[place])
        return f"operator {place} twice"
    del operators[place]
    return f"no operator {place}"


def _change_ends(model: Record, rng: random.Random) -> str:
    graph = _graph(model, rng)
    name = rng.choice(("Inputs", "Outputs"))
    numbers = graph.numbers(name, "i")
    if rng.randrange(3) == 0:
        del numbers[rng.randrange(len(numbers))]
    elif rng.randrange(2):
        numbers.append(rng.randrange(len(graph.values["Tensors"])))
    else:
        numbers[rng.randrange(len(numbers))] = rng.randrange(len(graph.values["Tensors"]))
    graph.put(name, "i", numbers)
    return f"{name} {numbers}"


_CHANGES: tuple[Callable[[Record, random.Random], str], ...] = (
    _change_operands, _change_operands, _change_type, _change_shape, _change_shape, _change_ranks,
    _change_quantisation, _change_quantisation, _change_flag, _change_buffer, _change_constant, _change_option,
    _change_option, _swap_options, _change_code, _change_kind, _change_order, _change_ends,
)  # fmt: skip
