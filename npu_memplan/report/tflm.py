"""A plan for TFLite-Micro users: tensor offsets as OfflineMemoryAllocation metadata in the .tflite.

Invariant: the offsets obey TFLite-Micro's own lifetimes (a tensor lives from the operator that
makes it to its last reader, graph inputs from the start, graph outputs to the end) and no two
live tensors share a byte: its kernels store before they have read everything, so the in-place
and overlap freedoms of our own programs do not hold there. Scratch that kernels ask for stays
with its online planner (-1 for everything that is not planned here).
The model's own bytes stay in the file, unchanged and equally aligned: FlatBuffers offsets are relative and point
forward, so a new root table before the old file can refer to everything in it, and add to it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from ..artifact import Artifact
from ..errors import NpuMemplanError
from ..files.paths import read_bytes, write_whole
from ..models.flatbuffer import BUFFER_ALIGNMENT, FlatTable, TableWriter, fields_of, target_at
from ..models.tflite import read_network
from ..models.vela_file import OFFLINE_PLAN, offline_plan
from ..planners import plan
from ..problem import Buffer, BufferKind, Lifetime, Plan, Pool, Problem
from ..sizes import bytes_and_kib
from .files import ReportError

_ALIGNMENT = 16  # of buffers in TFLite-Micro's arena
_ALIGN = 64  # of the old file in the new one; no TFLite buffer needs more than 16


class TfliteFileError(NpuMemplanError):
    """A .tflite cannot be extended."""


@dataclass(frozen=True, slots=True)
class TflmModel:
    """A model's bytes, its planning problem, and which tensor each buffer is."""

    content: bytes
    problem: Problem
    tensors: tuple[int, ...]  # tensor index of problem.buffers[i]
    tensor_count: int


@dataclass(frozen=True, slots=True)
class TflmBridge:
    """The files that were written: `arena_bytes` is the non-persistent part ("head") of TFLite-Micro's arena."""

    path: str
    tensors: int
    arena_bytes: int
    lower_bound_bytes: int
    status: str

    def to_text(self) -> str:
        return (
            f"tflm     {self.path}  ({self.tensors} tensors in {bytes_and_kib(self.arena_bytes)}, {self.status}; "
            "TFLite-Micro adds its persistent part and kernel scratch)"
        )


def read_model(path: Path, artifact: Artifact | None = None) -> TflmModel:
    """Read a .tflite; with `artifact`, `ReportError` unless it is the file that was compiled."""
    try:
        content = read_bytes(path)
    except OSError as error:
        raise ReportError(f"cannot read the model {path}: {error.strerror}") from None
    if artifact is not None and hashlib.sha256(content).hexdigest() != artifact.source_sha256:
        raise ReportError(
            f"{path} is not the {artifact.source} that {artifact.name} was compiled from; "
            "give the compiled file, or compile this one"
        )
    return tflm_model(content, path.stem)


def tflm_model(content: bytes, name: str) -> TflmModel:
    """The planning problem that TFLite-Micro has with a model."""
    network = read_network(content, name)
    end = max(len(network.operators) - 1, 0)
    first = dict.fromkeys(network.inputs, 0)
    last: dict[int, int] = {}
    for operator in network.operators:
        for index in operator.outputs:
            first.setdefault(index, operator.index)
        last.update(dict.fromkeys((*operator.inputs, *operator.outputs), operator.index))
    last.update(dict.fromkeys(network.outputs, end))
    buffers, tensors, names = [], [], set()
    for tensor in network.tensors:
        index = tensor.index
        if index not in first or tensor.is_variable or tensor.data is not None:
            continue  # constant, persistent or unused: TFLite-Micro does not plan it
        text = tensor.name or f"tensor{index}"
        unique = text if text not in names else f"{text}#{index}"
        names.add(unique)
        kinds = ((network.inputs, BufferKind.INPUT), (network.outputs, BufferKind.OUTPUT))
        kind = next((kind for members, kind in kinds if index in members), BufferKind.TENSOR)
        life = Lifetime(first[index], last.get(index, first[index]) + 1)
        buffers.append(Buffer(unique, tensor.size_bytes, (life,), _ALIGNMENT, kind=kind))
        tensors.append(index)
    problem = Problem(tuple(buffers), (Pool("arena"),), name=name)
    return TflmModel(content, problem, tuple(tensors), len(network.tensors))


def with_plan(model: TflmModel, plan: Plan) -> bytes:
    """The model's file with `plan` in it."""
    offsets = [-1] * model.tensor_count
    placed = {p.buffer: p.offset_bytes for p in plan.placements}
    for buffer, index in zip(model.problem.buffers, model.tensors, strict=True):
        offsets[index] = placed[buffer.name]
    return with_metadata(model.content, OFFLINE_PLAN, offline_plan(offsets))


def write_tflm(model: TflmModel, path: Path) -> TflmBridge:
    """Plan the model for TFLite-Micro and write it to `path`."""
    made = plan(model.problem)
    write_whole(path, with_plan(model, made))
    usage = made.usage[0]
    return TflmBridge(str(path), len(model.tensors), usage.used_bytes, usage.lower_bound_bytes, made.status.value)


def with_metadata(model: bytes, name: str, content: bytes) -> bytes:
    """`model`, which `read_network` takes, with metadata entry `name` whose buffer is `content` (16-byte aligned); an
    entry of that name is replaced. Raises `TfliteFileError` for files this cannot be done to."""
    import tflite

    root, old = FlatTable(model, target_at(model, 0)), tflite.Model.GetRootAs(model, 0)
    if any(getattr(old.Buffers(i), "Offset", lambda: 0)() > 1 for i in range(old.BuffersLength())):
        raise TfliteFileError("the model keeps its weights outside the flatbuffer; save it without that option")
    writer = TableWriter(model)
    builder = writer.builder
    builder.Prep(_ALIGN, len(model))
    builder.head = builder.Head() - len(model)
    builder.Bytes[builder.Head() : builder.Head() + len(model)] = model
    end = builder.Offset()  # the builder counts from the end: what is at p of the old file is at end - p
    slots = {field.name: field.slot for field in fields_of("Model")}
    places = {field: root.place(slot) for field, slot in slots.items()}
    values = {field: end - target_at(model, at) for field, at in places.items() if at and field != "Version"}
    values["Version"] = old.Version()
    kept = [
        end - table.at
        for i, table in enumerate(root.tables(slots["Metadata"]))
        if (old.Metadata(i).Name() or b"").decode() != name
    ]
    buffers = [end - table.at for table in root.tables(slots["Buffers"])]
    entry = writer.table("Metadata", {"Name": writer.text(name), "Buffer": len(buffers)})
    added = writer.table("Buffer", {"Data": writer.data_vector(content, alignment=BUFFER_ALIGNMENT)})
    values["Buffers"] = writer.tables([*buffers, added])
    values["Metadata"] = writer.tables([*kept, entry])
    builder.Finish(writer.table("Model", values), b"TFL3")
    return bytes(builder.Output())
