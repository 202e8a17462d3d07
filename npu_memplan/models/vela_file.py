"""Read Vela's raw output (`--output-format raw`, one NPU call in a NumPy archive), and write its TFLite container.

Invariant: nothing in the archive is unpickled, and what is missing or of no known type is a `NetworkError`. Operators
that stay on the CPU, their tensors and their constants are those of the source file, field by field; constants that no
operator names any more are not in the new file. The container, a .tflite whose NPU operators are `ethos-u`, has Vela's
form, as TFLite Micro's kernel takes it: inputs are the driver payload, the constants (base pointer 0), the arena (1)
and the NPU's own memory (2; the arena again where there is none), resident constants (3) where there are some, then
what the NPU reads; offsets in the arena are the metadata `OfflineMemoryAllocation`. Resident constants are the last
bytes of the file.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from ..ethosu.stream.encode import parse_payload
from .checks import DamagedError, check_tensor
from .flatbuffer import BUFFER_ALIGNMENT, NetworkError, TableWriter
from .network import CpuOperator, Network
from .tensor import SIGNED, Tensor
from .vela import NpuCall, uses_region

_LARGEST_BYTES = 1 << 30  # of all entries unpacked
# What zipfile, zlib and numpy raise for archives that are damaged, and we for entries that are missing or odd.
_FAULTS = (KeyError, ValueError, TypeError, OSError, EOFError, IndexError, NotImplementedError, zipfile.BadZipFile,
           zlib.error, DamagedError)  # fmt: skip


def read_raw(data: bytes, name: str) -> Network:
    """The network in the bytes of an archive; `NetworkError` says what is wrong with it."""
    try:
        unpacked = sum(entry.file_size for entry in zipfile.ZipFile(io.BytesIO(data)).infolist())
        if unpacked > _LARGEST_BYTES:
            raise ValueError(f"its entries have {unpacked} bytes; at most {_LARGEST_BYTES} are read")
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            # The quantisation entries are pickled objects; they are left out rather than trusted.
            fields = {k: archive[k] for k in archive.files if not k.endswith("_quantization")}
            payload = parse_payload(fields["cmd_data"].tobytes())
            constants = np.frombuffer(fields["weight_data"].tobytes(), np.uint8)
            scratch, fast = int(fields["scratch_size"]), int(fields["scratch_fast_size"])
            if not uses_region(payload.words, 2):
                fast = 0
            kinds = ("input", "variable", "output")
            listed = [(kind, *entry) for kind in kinds for entry in _raw_tensors(fields, kind)]
        tensors = tuple(
            Tensor(
                index,
                f"{kind}_{index}",
                shape,
                SIGNED[element_bytes],
                is_variable=kind == "variable",
                arena_offset=offset if region == 1 else -1,
            )
            for index, (kind, shape, element_bytes, region, offset) in enumerate(listed)
        )
        for tensor in tensors:
            check_tensor(tensor)
    except _FAULTS as error:
        lacking = f"it has no array {error}" if isinstance(error, KeyError) else error
        raise NetworkError(
            f"{name} is no raw Vela network (.npz): {lacking}; give Vela's raw output, or a .tflite"
        ) from error
    addresses = tuple((region, offset) for *_, region, offset in listed)
    inputs = sum(kind == "input" for kind, *_ in listed)
    given = sum(kind != "output" for kind, *_ in listed)
    call = NpuCall(
        index=0,
        payload=payload,
        read_only=constants,
        scratch_bytes=scratch,
        scratch_fast_bytes=fast,
        inputs=tuple(range(given)),
        outputs=tuple(range(given, len(listed))),
        input_addresses=addresses[:given],
        output_addresses=addresses[given:],
    )
    return Network(name, tensors, (call,), call.inputs[:inputs], call.outputs, True)


def _raw_tensors(fields: dict[str, Any], kind: str) -> list[tuple[tuple[int, ...], int, int, int]]:
    columns = (fields[f"{kind}_{what}"] for what in ("shape", "elem_size", "region", "offset"))
    shapes, sizes, regions, offsets = columns
    return [
        (tuple(int(d) for d in shape), int(sizes[i]), int(regions[i]), int(offsets[i]))
        for i, shape in enumerate(shapes)
    ]


CUSTOM_CODE = "ethos-u"
OFFLINE_PLAN = "OfflineMemoryAllocation"
_OPTIONS = bytes((1, 4, 1))  # the flexbuffer of the integer 1: "an Ethos-U's"
_CUSTOM, _UINT8, _VERSION = 32, 3, 3  # BuiltinOperator.CUSTOM, TensorType.UINT8, of TFLite's schema
_PLAN_HEADER = (0, 1)  # version of the metadata, number of subgraphs
_RESIDENT = 1  # the buffer after the empty one, where there are resident constants
_NOTHING = bytes(BUFFER_ALIGNMENT)  # the constants of a stream without any: a tensor must have bytes


@dataclass(frozen=True, slots=True, eq=False)
class NpuOperator:
    """An `ethos-u` operator to write. Tensors are those of the source file, by index there."""

    payload: bytes = field(repr=False)  # COP1
    constants: bytes = field(repr=False)
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ArenaPlan:
    """The places of tensors: `offsets` in the arena by index in the source file; the run time places others."""

    arena_bytes: int
    fast_bytes: int = 0  # of the NPU's own memory; 0: there is none
    offsets: Mapping[int, int] = field(default_factory=dict)


def rebuild_file(
    source: bytes,
    steps: Sequence[CpuOperator | NpuOperator],
    inputs: Sequence[int],
    outputs: Sequence[int],
    plan: ArenaPlan | None = None,
    description: str = "",
    added: Mapping[int, Tensor] = MappingProxyType({}),
    resident: bytes = b"",
) -> bytes:
    """The .tflite with these steps: operators of the `source`, and new ones for the NPU.

    `source` was read by `read_network`. `inputs` and `outputs` are tensors of it; `added` are tensors
    that it does not have, each by an index after its own, constants whose bytes it does not have, and others whose
    shape it has otherwise. Without a `plan`
    the file has none. `resident`: constants that all NPU operators read through a base pointer of their own.
    """
    writer = _Writer(source, added, resident)
    write = writer.write
    inputs, outputs = writer.renumber(inputs), writer.renumber(outputs)
    arena: tuple[int, ...] = ()
    if plan is not None and any(isinstance(step, NpuOperator) for step in steps):
        scratch = writer.bytes_tensor("scratch", plan.arena_bytes)
        arena = (scratch, writer.bytes_tensor("scratch_fast", plan.fast_bytes) if plan.fast_bytes else scratch)
    more = (writer.bytes_tensor("resident", len(resident), _RESIDENT),) if resident else ()
    operators = [
        writer.npu(step, (*arena, *more), number) if isinstance(step, NpuOperator) else writer.write_cpu_operator(step)
        for number, step in enumerate(steps)
    ]
    metadata = writer.metadata(plan, arena)
    graph = write.table("SubGraph", {
        "Tensors": write.tables(writer.tensors), "Inputs": write.numbers(inputs), "Outputs": write.numbers(outputs),
        "Operators": write.tables(operators), "Name": write.text("main"),
    })  # fmt: skip
    root = write.table("Model", {
        "Version": _VERSION, "OperatorCodes": write.tables(writer.codes), "Subgraphs": write.tables([graph]),
        "Description": write.text(description), "Buffers": write.tables(writer.buffers),
        "Metadata": write.tables(metadata),
    })  # fmt: skip
    write.builder.Finish(root, b"TFL3")
    return bytes(write.builder.Output())


def offline_plan(offsets: Sequence[int]) -> bytes:
    """Content of the metadata `OFFLINE_PLAN`: of each tensor its offset, -1 where the run time places it."""
    words = (*_PLAN_HEADER, len(offsets), *offsets)
    return struct.pack(f"<{len(words)}i", *words)


class _Writer:
    def __init__(self, source: bytes, added: Mapping[int, Tensor], resident: bytes = b"") -> None:
        import tflite

        self.write, self.added = TableWriter(source), added
        self.model = tflite.Model.GetRootAsModel(source, 0)
        self.graph = self.model.Subgraphs(0)
        # a file is written from its end, where resident constants are
        held = self.write.data_vector(resident, alignment=BUFFER_ALIGNMENT) if resident else 0
        self.buffers: list[int] = [self.write.table("Buffer", {})]  # the first one is empty, by convention
        if resident:
            self.buffers.append(self.write.table("Buffer", {"Data": held}))
        self.tensors: list[int] = []
        self.codes: list[int] = []
        self._tensor_of: dict[int, int] = {}  # index in the source -> in the new file
        self._buffer_of: dict[int, int] = {}
        self._code_of: dict[int, int] = {}
        self._named: dict[bytes, int] = {}  # constants of the NPU's operators -> tensor

    # -- tensors ------------------------------------------------------------------------------------

    def renumber(self, indices: Sequence[int]) -> list[int]:
        return [self._tensor(index) if index >= 0 else -1 for index in indices]

    def _tensor(self, index: int) -> int:
        if index in self._tensor_of:
            return self._tensor_of[index]
        more = self.added.get(index)
        if more is not None and index >= self.graph.TensorsLength():
            self._tensor_of[index] = self.bytes_tensor(more.name, more.size_bytes)
            return self._tensor_of[index]
        table = self.graph.Tensors(index)
        if more is None or more.data is None:
            replaced = {"Buffer": self._buffer(table.Buffer())}
        else:
            replaced = {"Buffer": self.new_buffer(more.data.tobytes())}
        if more is not None:
            replaced["Shape"] = self.write.numbers(more.shape)
        self._tensor_of[index] = len(self.tensors)
        self.tensors.append(self.write.copy("Tensor", table._tab.Pos, replaced))
        return self._tensor_of[index]

    def _buffer(self, index: int) -> int:
        """The new file's buffer for buffer `index` of the source; the first, where it has no bytes."""
        buffer = self.model.Buffers(index)
        if not buffer.DataLength():
            return 0
        if index not in self._buffer_of:
            self._buffer_of[index] = len(self.buffers)
            self.buffers.append(self.write.copy("Buffer", buffer._tab.Pos))
        return self._buffer_of[index]

    def new_buffer(self, content: bytes) -> int:
        """Add a buffer with `content`; returns its index."""
        self.buffers.append(
            self.write.table("Buffer", {"Data": self.write.data_vector(content, alignment=BUFFER_ALIGNMENT)})
        )
        return len(self.buffers) - 1

    def bytes_tensor(self, name: str, size_bytes: int, buffer: int = 0) -> int:
        write = self.write
        fields = {"Shape": write.numbers([size_bytes]), "Name": write.text(name)}
        self.tensors.append(write.table("Tensor", {**fields, "Type": _UINT8, "Buffer": buffer}))
        return len(self.tensors) - 1

    def _constant(self, name: str, content: bytes) -> int:
        if content not in self._named:
            self._named[content] = self.bytes_tensor(name, len(content), self.new_buffer(content))
        return self._named[content]

    # -- operators ----------------------------------------------------------------------------------

    def write_cpu_operator(self, operator: CpuOperator) -> int:
        table, write = self.graph.Operators(operator.index), self.write
        code = table.OpcodeIndex()
        if code not in self._code_of:
            self._code_of[code] = len(self.codes)
            self.codes.append(write.copy("OperatorCode", self.model.OperatorCodes(code)._tab.Pos))
        # A network's variables are states, so its VAR_HANDLE makes nothing; the file's makes the handle.
        handles = tuple(table.Outputs(i) for i in range(table.OutputsLength())) if operator.name == "VAR_HANDLE" else ()
        replaced = {
            "Inputs": write.numbers(self.renumber(operator.inputs)),
            "Outputs": write.numbers(self.renumber(operator.outputs or handles)),
        }
        if operator.intermediates:
            replaced["Intermediates"] = write.numbers(self.renumber(operator.intermediates))
        return write.copy("Operator", table._tab.Pos, {**replaced, "OpcodeIndex": self._code_of[code]})

    def npu(self, step: NpuOperator, given: tuple[int, ...], number: int) -> int:
        write = self.write
        if -1 not in self._code_of:
            self._code_of[-1] = len(self.codes)
            text = write.text(CUSTOM_CODE)
            values = {"DeprecatedBuiltinCode": _CUSTOM, "BuiltinCode": _CUSTOM, "Version": 1, "CustomCode": text}
            self.codes.append(write.table("OperatorCode", values))
        stream = self._constant(f"npu{number}_command_stream", step.payload)
        constants = self._constant(f"npu{number}_flash", step.constants or _NOTHING)
        inputs = [stream, constants, *given, *self.renumber(step.inputs)]
        values = {"Inputs": write.numbers(inputs), "Outputs": write.numbers(self.renumber(step.outputs))}
        values |= {"CustomOptions": write.data_vector(_OPTIONS), "OpcodeIndex": self._code_of[-1]}
        return write.table("Operator", values)

    # -- metadata -----------------------------------------------------------------------------------

    def metadata(self, plan: ArenaPlan | None, arena: Sequence[int]) -> list[int]:
        write, found = self.write, []
        for i in range(self.model.MetadataLength()):
            entry = self.model.Metadata(i)
            if entry.Name() != OFFLINE_PLAN.encode() and entry.Buffer() < self.model.BuffersLength():
                buffer = self._buffer(entry.Buffer())
                found.append(write.copy("Metadata", entry._tab.Pos, {"Buffer": buffer}))
        if plan is not None:
            placed = {self._tensor_of[i]: offset for i, offset in plan.offsets.items() if i in self._tensor_of}
            offsets = placed | dict.fromkeys(arena, 0)
            buffer = self.new_buffer(offline_plan([offsets.get(i, -1) for i in range(len(self.tensors))]))
            found.append(write.table("Metadata", {"Name": write.text(OFFLINE_PLAN), "Buffer": buffer}))
        return found
