"""plan.json: what is written of an `Artifact`, and how it is read and checked.

Invariant: reading what was written gives an equal object, and values that no compile could have written are
refused here, in one place: the types are those of `Document` (`schemas`), the rest is `_check`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from ..files.schema import check_schema, from_values, json_values
from ..options import CompileOptions
from ..problem import (
    AccessHistory,
    AliasGroup,
    AllowedOverlap,
    BranchPoints,
    Buffer,
    BufferAccess,
    Count,
    Placement,
    Plan,
    PlanStatus,
    Pool,
    PoolUsage,
    Problem,
    ProblemError,
    RowStream,
    validate,
)
from ..problem.json import row_to_json
from .check import NOT_REQUESTED, CheckResult
from .parts import FILE_NAME, SCHEMA, ArtifactError, Call, Operator, TensorSlot
from .timing import HostLayer, Layer, Timing

if TYPE_CHECKING:
    from .model import Artifact

LARGEST_POOL_ALIGNMENT = 1 << 16  # bytes; runners reserve it next to a pool, and no linker places coarser

_TOTALS = ("host_operations", "estimated_cycles", "npu_macs")  # of an artifact, written after its NPU operations

Region = Annotated[int, Meta(ge=0, le=7)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRow(Pool):
    """A pool in plan.json: its capacity (which `Pool` calls `size_bytes`) and its use."""

    region: Region
    capacity_bytes: Count | None
    used_bytes: Count
    lower_bound_bytes: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferRow(Buffer):
    """A buffer in plan.json, and where it is."""

    pool: str
    offset_bytes: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """plan.json as it is written; what follows from the rest (`host_operations`, totals) is not read back."""

    name: str
    source: str
    source_sha256: str
    target: CompileOptions
    status: PlanStatus
    planner: str
    seed: int
    budget: str
    stopped_early: bool
    backend: str = ""
    pools: tuple[PoolRow, ...]
    limit_bytes: Mapping[str, Count] = field(default_factory=dict)
    vela_arena_bytes: Mapping[str, Count]
    constants_bytes: Count
    stream_bytes: Count
    npu_operations: Count
    inputs: tuple[TensorSlot, ...]
    outputs: tuple[TensorSlot, ...]
    states: tuple[TensorSlot, ...]
    buffers: tuple[BufferRow, ...]
    conflicts: tuple[tuple[str, str], ...]
    aliases: tuple[AliasGroup, ...]
    overlaps: tuple[AllowedOverlap, ...]
    points: tuple[str, ...]
    accesses: tuple[AccessHistory, ...] = ()
    branches: tuple[BranchPoints, ...] = ()
    streams: tuple[RowStream, ...] = ()  # left out where there are none
    calls: tuple[Call, ...]
    operators: tuple[Operator, ...]
    timing: Timing | None = None
    layers: tuple[Layer, ...] = ()
    host_layers: tuple[HostLayer, ...] = ()
    files: Mapping[str, str]
    check: CheckResult = NOT_REQUESTED
    notes: tuple[str, ...]


def artifact_to_json(artifact: Artifact) -> str:
    """The text of plan.json: one fixed order of keys, the same bytes for the same plan."""
    problem, plan = artifact.problem, artifact.plan
    placed = {p.buffer: p for p in plan.placements}
    usage = {u.pool: u for u in plan.usage}
    values = {
        **_shared(problem, Document),
        **_shared(plan, Document),
        **_shared(artifact, Document),
        "pools": [
            _pool_row(pool, region, usage[pool.name])
            for pool, region in zip(problem.pools, artifact.regions, strict=True)
        ],
        "buffers": [_buffer_row(b, placed[b.name]) for b in problem.buffers],
        "accesses": [_access_row(known) for known in problem.accesses],
    }
    document: dict[str, Any] = {"schema": SCHEMA}
    for known in fields(Document):
        if known.name == "streams" and not problem.streams:
            continue
        document[known.name] = values[known.name]
        if known.name == "npu_operations":
            document |= {name: getattr(artifact, name) for name in _TOTALS}
    return _compact_rows(msgspec.to_builtins(document, enc_hook=str.__str__))  # of strings of TVM's


def _shared(values: object, kind: type) -> dict[str, Any]:
    """The fields of `kind` that `values` has too, with its values."""
    return {one.name: getattr(values, one.name) for one in fields(kind) if hasattr(values, one.name)}


def artifact_from_json(kind: type[Artifact], text: str, where: str = FILE_NAME) -> Artifact:
    """The artifact (`kind` makes it) in the text of plan.json; `ArtifactError` names `where` and what is wrong."""
    values = json_values(text, where, ArtifactError)
    check_schema(values, SCHEMA, where, ArtifactError)
    artifact = _artifact(kind, from_values(values, Document, where, ArtifactError))
    try:
        validate(artifact.problem)
        _check(artifact)
    except ProblemError as error:
        raise ArtifactError(f"{where} is damaged: {error}; compile the model again") from None
    return artifact


def _artifact(kind: type[Artifact], d: Document) -> Artifact:
    pools = tuple(replace(Pool(**_shared(row, Pool)), size_bytes=row.capacity_bytes) for row in d.pools)
    buffers = tuple(Buffer(**_shared(row, Buffer)) for row in d.buffers)
    placements = tuple(Placement(row.name, row.pool, row.offset_bytes) for row in d.buffers)
    usage = tuple(PoolUsage(row.name, row.used_bytes, row.lower_bound_bytes) for row in d.pools)
    return kind(
        **_shared(d, kind),
        problem=Problem(**{**_shared(d, Problem), "buffers": buffers, "pools": pools}),
        plan=Plan(placements, usage, **_shared(d, Plan)),
        regions=tuple(row.region for row in d.pools),
    )


def _check(artifact: Artifact) -> None:
    """`ProblemError` at what no field alone shows: names, tensors outside their pools, time that runs backwards."""
    used = {usage.pool: usage.used_bytes for usage in artifact.plan.usage}
    for pool in artifact.problem.pools:
        if pool.alignment > LARGEST_POOL_ALIGNMENT:
            raise ProblemError(
                f"pool {pool.name!r} has alignment {pool.alignment}; at most {LARGEST_POOL_ALIGNMENT} is possible"
            )
    for placement in artifact.plan.placements:
        if placement.pool not in used:
            raise ProblemError(
                f"buffer {placement.buffer!r} lies in pool {placement.pool!r}; there are: {', '.join(used) or 'none'}"
            )
    for slot in (*artifact.inputs, *artifact.outputs, *artifact.states):
        size = math.prod(slot.shape) * element_bytes(slot.dtype)
        if artifact.stream is not None and slot is artifact.inputs[artifact.stream[0]]:
            size = artifact.problem.buffer(artifact.stream[1].buffer).size_bytes
        if slot.size_bytes != size:
            raise ProblemError(
                f"tensor {slot.name!r} has {slot.size_bytes} bytes, {slot.dtype}{list(slot.shape)} needs {size}"
            )
        if slot.offset_bytes + size > used.get(slot.pool, -1):
            raise ProblemError(
                f"tensor {slot.name!r} lies at bytes [{slot.offset_bytes}, {slot.offset_bytes + size}) of pool "
                f"{slot.pool!r}, of which the plan uses {used.get(slot.pool, 'nothing')}"
            )
        if slot.index_range is not None and slot.index_range[0] >= slot.index_range[1]:
            raise ProblemError(f"tensor {slot.name!r} has the empty index range {list(slot.index_range)}")
    for call in artifact.calls:
        if call.points[0] > call.points[1]:
            raise ProblemError(f"call {call.function!r} lasts from point {call.points[0]} to {call.points[1]}")


def _pool_row(pool: Pool, region: int, usage: PoolUsage) -> dict[str, Any]:
    row = row_to_json(pool)
    return {
        "name": row.pop("name"),
        "region": region,
        "capacity_bytes": row.pop("size_bytes"),
        "used_bytes": usage.used_bytes,
        "lower_bound_bytes": usage.lower_bound_bytes,
        **row,
    }


def _buffer_row(buffer: Buffer, placement: Placement) -> dict[str, Any]:
    row = row_to_json(buffer)
    return {"name": row.pop("name"), "pool": placement.pool, "offset_bytes": placement.offset_bytes, **row}


def _access_row(known: AccessHistory) -> dict[str, Any]:
    """Without what is as it is by default: most accesses are to all of a buffer, or to one run."""

    def short(access: BufferAccess) -> tuple[Any, ...]:
        runs = [run[:2] if run[2:] == (1, 0) else run for run in access.runs]
        return (access.point, runs) if runs else (access.point,)

    both = {"reads": [*map(short, known.reads)], "writes": [*map(short, known.writes)]}
    return {"buffer": known.buffer, **{key: accesses for key, accesses in both.items() if accesses}}


def element_bytes(dtype: str) -> int:
    """Bytes of one element of numpy's type `dtype`."""
    return 1 if dtype == "bool" else int(dtype.lstrip("uintfloa")) // 8


def _compact_rows(document: dict[str, Any]) -> str:
    """JSON with one top-level key, or one row of a top-level list, a line: small and diffable."""
    lines = []
    for key, value in document.items():
        if isinstance(value, (list, tuple)) and value and not isinstance(value[0], str):
            rows = ",\n".join("  " + json.dumps(row) for row in value)
            lines.append(f" {json.dumps(key)}: [\n{rows}\n ]")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
