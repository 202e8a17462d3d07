"""A plan for TFLite-Micro users: tensor offsets as OfflineMemoryAllocation metadata in the .tflite.

Invariant: the offsets obey TFLite-Micro's own lifetimes (a tensor lives from the operator that
makes it to its last reader, graph inputs from the start, graph outputs to the end) and no two
live tensors share a byte: its kernels store before they have read everything, so the in-place
and overlap freedoms of our own programs do not hold there. Scratch that kernels ask for stays
with its online planner (-1 for everything that is not planned here).
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..artifact import Artifact
from ..planners import plan as make_plan
from ..problem import Buffer, BufferKind, Lifetime, Plan, Pool, Problem
from ..whole_file import write_whole
from .files import ReportError
from .memory import both
from .tflm_file import with_metadata

METADATA = "OfflineMemoryAllocation"
_VERSION, _SUBGRAPHS = 0, 1  # the two words in front of the tensor count, as Vela writes them
_ALIGNMENT = 16  # of buffers in TFLite-Micro's arena


@dataclass(frozen=True, slots=True)
class TflmModel:
    """A model's bytes, its planning problem, and which tensor each buffer is."""

    content: bytes
    problem: Problem
    tensors: tuple[int, ...]  # tensor index of problem.buffers[i]
    tensor_count: int


@dataclass(frozen=True, slots=True)
class TflmBridge:
    """What was written: `arena_bytes` is the non-persistent part ("head") of TFLite-Micro's arena."""

    path: str
    tensors: int
    arena_bytes: int
    lower_bound_bytes: int
    status: str

    def to_dict(self) -> dict[str, Any]:
        """For --json."""
        return {
            "path": self.path,
            "tensors": self.tensors,
            "arena_bytes": self.arena_bytes,
            "lower_bound_bytes": self.lower_bound_bytes,
            "status": self.status,
        }

    def to_text(self) -> str:
        """One line for people."""
        return (
            f"tflm     {self.path}  ({self.tensors} tensors in {both(self.arena_bytes)}, {self.status}; "
            "TFLite-Micro adds its persistent part and kernel scratch)"
        )


def read_model(path: Path, artifact: Artifact | None = None) -> TflmModel:
    """Read a .tflite; with `artifact`, `ReportError` unless it is the file that was compiled."""
    try:
        content = path.read_bytes()
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
    import tflite

    if content[4:8] != b"TFL3":
        raise ReportError(f"{name} is not a .tflite file: it does not begin with a TFL3 flatbuffer")
    model = tflite.Model.GetRootAs(content, 0)
    if model.SubgraphsLength() != 1:
        raise ReportError(
            f"{name} has {model.SubgraphsLength()} subgraphs; TFLite-Micro reads offline plans of one subgraph only"
        )
    graph = model.Subgraphs(0)
    count = graph.OperatorsLength()
    inputs = {graph.Inputs(i) for i in range(graph.InputsLength())}
    outputs = {graph.Outputs(i) for i in range(graph.OutputsLength())}
    first: dict[int, int] = dict.fromkeys(inputs, 0)
    last: dict[int, int] = {}
    for i in range(count):
        operator = graph.Operators(i)
        for k in range(operator.OutputsLength()):
            first.setdefault(operator.Outputs(k), i)
            last[operator.Outputs(k)] = i
        for k in range(operator.InputsLength()):
            last[operator.Inputs(k)] = i
    last.update(dict.fromkeys(outputs, max(count - 1, 0)))
    buffers, tensors, names = [], [], set()
    for index in range(graph.TensorsLength()):
        tensor = graph.Tensors(index)
        data = model.Buffers(tensor.Buffer())
        if index not in first or tensor.IsVariable() or data.DataLength():
            continue  # constant, persistent or unused: TFLite-Micro does not plan it
        text = (tensor.Name() or b"").decode("utf-8", "replace") or f"tensor{index}"
        unique = text if text not in names else f"{text}#{index}"
        names.add(unique)
        kind = BufferKind.INPUT if index in inputs else BufferKind.OUTPUT if index in outputs else BufferKind.TENSOR
        life = Lifetime(first[index], last.get(index, first[index]) + 1)
        buffers.append(Buffer(unique, _size(tensor, name), (life,), _ALIGNMENT, kind=kind))
        tensors.append(index)
    problem = Problem(tuple(buffers), (Pool("arena"),), name=name)
    return TflmModel(content, problem, tuple(tensors), graph.TensorsLength())


def offline_plan(model: TflmModel) -> Plan:
    """A verified plan of the model's tensors in one arena."""
    return make_plan(model.problem)


def with_plan(model: TflmModel, plan: Plan) -> bytes:
    """The model's file with `plan` in it."""
    offsets = [-1] * model.tensor_count
    placed = {p.buffer: p.offset_bytes for p in plan.placements}
    for buffer, index in zip(model.problem.buffers, model.tensors, strict=True):
        offsets[index] = placed[buffer.name]
    words = (_VERSION, _SUBGRAPHS, model.tensor_count, *offsets)
    return with_metadata(model.content, METADATA, struct.pack(f"<{len(words)}i", *words))


def write_tflm(model: TflmModel, path: Path) -> TflmBridge:
    """Plan the model for TFLite-Micro and write it to `path`."""
    plan = offline_plan(model)
    write_whole(path, with_plan(model, plan))
    usage = plan.usage[0]
    return TflmBridge(
        str(path), len(model.tensors), usage.used_bytes, usage.lower_bound_bytes, plan.status.value
    )  # fmt: skip


def _size(tensor: Any, name: str) -> int:
    import tflite

    sizes = {
        tflite.TensorType.INT8: 1, tflite.TensorType.UINT8: 1, tflite.TensorType.BOOL: 1, tflite.TensorType.INT16: 2,
        tflite.TensorType.FLOAT16: 2, tflite.TensorType.INT32: 4, tflite.TensorType.UINT32: 4,
        tflite.TensorType.FLOAT32: 4, tflite.TensorType.INT64: 8, tflite.TensorType.FLOAT64: 8,
    }  # fmt: skip
    element = sizes.get(tensor.Type())
    if element is None:
        text = (tensor.Name() or b"").decode("utf-8", "replace")
        raise ReportError(f"{name}: tensor {text!r} has element type {tensor.Type()}, whose size is not known")
    size = element
    for i in range(tensor.ShapeLength()):
        size *= max(1, int(tensor.Shape(i)))
    return size
