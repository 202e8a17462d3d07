"""TOSA files of several operators with attributes and constants, as `tosa.fbs` numbers them.

Invariant: what is written is a sound file that TOSA's reference model reads; numbers are the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flatbuffers
import numpy as np

from npu_memplan.models.tosa import OPERATORS

from .tosa_file import table, texts, vector

SINGLE, DOUBLE = 1, 3  # RoundingMode
_TYPES = {"bool": 1, "int8": 3, "int16": 4, "int32": 5, "int48": 6}
_VECTOR_BYTES = 8  # alignment of bytes

Attribute = dict[int, "int | bool | tuple[int, ...] | bytes"]


class TosaFile:
    """One block: tensors are called t0, t1, ..., shapes s0, s1, ..."""

    def __init__(self) -> None:
        self._tensors: list[tuple[str, tuple[int, ...], str, bytes]] = []
        self._shapes: list[tuple[str, tuple[int, ...]]] = []
        self._operators: list[tuple[str, list[str], list[str], Attribute]] = []
        self.inputs: list[tuple[str, tuple[int, ...], str]] = []

    def _tensor(self, shape: Sequence[int], dtype: str, data: bytes = b"") -> str:
        self._tensors.append((f"t{len(self._tensors)}", tuple(shape), dtype, data))
        return self._tensors[-1][0]

    def input(self, *shape: int, dtype: str = "int8") -> str:
        name = self._tensor(shape, dtype)
        self.inputs.append((name, shape, dtype))
        return name

    def constant(self, values: Any, dtype: str) -> str:
        array = np.asarray(values, "int64" if dtype == "int48" else dtype)
        data = array.tobytes()
        if dtype == "int48":
            data = array.astype("<i8").reshape(-1, 1).view(np.uint8)[:, :6].tobytes()
        name = self._tensor(array.shape or (1,), dtype, data)
        self._operators.append(("CONST", [], [name], {}))
        return name

    def shape(self, *values: int) -> str:
        name = f"s{len(self._shapes)}"
        self._shapes.append((name, values))
        self._operators.append(("CONST_SHAPE", [], [name], {}))
        return name

    def operator(
        self, kind: str, inputs: Sequence[str], shape: Sequence[int], dtype: str = "int8", attribute: Any = None
    ) -> str:
        name = self._tensor(shape, dtype)
        self._operators.append((kind, list(inputs), [name], attribute or {}))
        return name

    def rescale(
        self, source: str, shape: Sequence[int], scales: Sequence[tuple[int, int]], zeros: tuple[int, int],
        dtypes: tuple[str, str] = ("int32", "int8"), rounding: int = SINGLE,
    ) -> str:  # fmt: skip
        """RESCALE of one scale, or one for each channel."""
        wide = dtypes[0] == "int48"
        multipliers = self.constant([m for m, _ in scales], "int16" if wide else "int32")
        numbers = multipliers, self.constant([s for _, s in scales], "int8")
        ends = [self.constant([zero], dtype) for zero, dtype in zip(zeros, dtypes, strict=True)]
        attribute = {0: not wide, 1: rounding, 2: len(scales) > 1}
        return self.operator("RESCALE", [source, *numbers, *ends], shape, dtypes[1], attribute)

    def finish(self, *outputs: str) -> bytes:
        """The file, whose outputs are these tensors."""
        made = flatbuffers.Builder(4096)
        tensors = [self._write_tensor(made, *tensor) for tensor in self._tensors]
        shapes = []
        for name, values in self._shapes:
            label, data = made.CreateString(name), _bytes(made, np.array(values, "<i8").tobytes())
            shapes.append(table(made, {0: ("at", label), 1: ("u4", len(values)), 2: ("at", data)}))
        operators = [self._write_operator(made, *operator) for operator in self._operators]
        parts = vector(made, operators), vector(made, tensors)
        ends = texts(made, tuple(name for name, _, _ in self.inputs)), texts(made, outputs)
        all_shapes, name = vector(made, shapes), made.CreateString("main")
        fields = [name, *parts, *ends, all_shapes]
        blocks = vector(made, [table(made, {slot: ("at", at) for slot, at in enumerate(fields)})])
        regions = vector(made, [table(made, {0: ("at", name), 1: ("at", blocks)})])
        version = table(made, {0: ("i4", 1), 1: ("i4", 0), 2: ("i4", 0), 3: ("bool", False)})
        made.Finish(table(made, {0: ("at", version), 1: ("at", regions)}), file_identifier=b"TOSA")
        return bytes(made.Output())

    def _write_tensor(
        self, made: flatbuffers.Builder, name: str, shape: tuple[int, ...], dtype: str, data: bytes
    ) -> int:
        label, extents = made.CreateString(name), _numbers(made, shape)
        fields = {0: ("at", label), 1: ("at", extents), 2: ("u4", _TYPES[dtype])}
        if data:
            fields[3] = ("at", _bytes(made, data))
        return table(made, fields)

    def _write_operator(
        self, made: flatbuffers.Builder, kind: str, inputs: list[str], outputs: list[str], attribute: Attribute
    ) -> int:
        fields: dict[int, tuple[str, int]] = {}
        for slot, value in attribute.items():
            if isinstance(value, bool):
                fields[slot] = ("bool", value)
            elif isinstance(value, int):
                fields[slot] = ("u4", value)
            elif isinstance(value, bytes):
                fields[slot] = ("at", _bytes(made, value))
            else:
                fields[slot] = ("at", _numbers(made, value))
        code = OPERATORS.index(kind) + 1
        what, taken, given = table(made, fields), texts(made, tuple(inputs)), texts(made, tuple(outputs))
        return table(made, {0: ("u4", code), 1: ("u1", code), 2: ("at", what), 3: ("at", taken), 4: ("at", given)})


def _bytes(made: flatbuffers.Builder, data: bytes) -> int:
    made.StartVector(1, len(data), _VECTOR_BYTES)
    for byte in reversed(data):
        made.PrependByte(byte)
    return made.EndVector()


def _numbers(made: flatbuffers.Builder, values: Sequence[int]) -> int:
    made.StartVector(4, len(values), 4)
    for value in reversed(values):
        made.PrependInt32(value)
    return made.EndVector()
