"""A TOSA file of one operator with two operands, built by slot as `tosa.fbs` numbers them."""

from __future__ import annotations

import functools

import flatbuffers

INT32, ADD = 5, 15
_SHAPE = (2, 3)


@functools.cache
def tosa_file(
    operator: int = ADD, dtype: int = INT32, inputs: tuple[str, ...] = (), names: tuple[str, str, str] = ("a", "b", "c")
) -> bytes:
    """`c = operator(a, b)` of 2 x 3 numbers; `inputs` are what the graph says that it takes, if not the first two."""
    made = flatbuffers.Builder(512)
    tensors = [_tensor(made, name, dtype) for name in names]
    attribute = table(made, {})
    taken, given = texts(made, names[:2]), texts(made, names[2:])
    what = table(
        made, {0: ("u4", operator), 1: ("u1", operator), 2: ("at", attribute), 3: ("at", taken), 4: ("at", given)}
    )
    operators, all_tensors = vector(made, [what]), vector(made, tensors)
    ins, outs, name = texts(made, inputs or names[:2]), texts(made, names[2:]), made.CreateString("main")
    block = table(
        made, {0: ("at", name), 1: ("at", operators), 2: ("at", all_tensors), 3: ("at", ins), 4: ("at", outs)}
    )
    blocks = vector(made, [block])
    region = table(made, {0: ("at", name), 1: ("at", blocks)})
    regions = vector(made, [region])
    version = table(made, {0: ("i4", 1), 1: ("i4", 0), 2: ("i4", 0), 3: ("bool", False)})
    made.Finish(table(made, {0: ("at", version), 1: ("at", regions)}), file_identifier=b"TOSA")
    return bytes(made.Output())


def _tensor(made: flatbuffers.Builder, name: str, dtype: int) -> int:
    label = made.CreateString(name)
    made.StartVector(4, len(_SHAPE), 4)
    for extent in reversed(_SHAPE):
        made.PrependInt32(extent)
    shape = made.EndVector()
    return table(made, {0: ("at", label), 1: ("at", shape), 2: ("u4", dtype)})


def table(made: flatbuffers.Builder, fields: dict[int, tuple[str, int]]) -> int:
    made.StartObject(max(fields, default=-1) + 1)
    for slot, (kind, value) in fields.items():
        if kind == "at":
            made.PrependUOffsetTRelativeSlot(slot, value, 0)
        elif kind == "u1":
            made.PrependUint8Slot(slot, value & 0xFF, 0)
        elif kind == "u4":
            made.PrependUint32Slot(slot, value, 0)
        elif kind == "i4":
            made.PrependInt32Slot(slot, value, -1)
        else:
            made.PrependBoolSlot(slot, bool(value), None)  # written also where it is the default
    return made.EndObject()


def texts(made: flatbuffers.Builder, texts: tuple[str, ...]) -> int:
    return vector(made, [made.CreateString(text) for text in texts])


def vector(made: flatbuffers.Builder, places: list[int]) -> int:
    made.StartVector(4, len(places), 4)
    for place in reversed(places):
        made.PrependUOffsetTRelative(place)
    return made.EndVector()
