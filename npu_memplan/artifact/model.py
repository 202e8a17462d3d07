"""A compiled model as data: the contents of `plan.json`, and the names of the files next to it.

Invariant: `Artifact.load(directory)` gives back exactly the object that was saved, so runners and reports need nothing
but the directory. The same model, options and installation give the same values: no times, no paths, nothing of the
machine but which reference is installed. Values that no compile could have written are refused here alone: the types
are those of `Document` (`schemas`), the rest is `_check`. The schema is `schemas.json_schema("artifact")`, explained in
docs/reference.md; its version changes when a reader would have to.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from ..errors import NpuMemplanError
from ..exactness import UNKNOWN, Claim
from ..files.paths import check_folder, read_text
from ..files.schema import check_schema, from_values, json_values
from ..options import CompileOptions
from ..problem import (
    AccessHistory,
    Agent,
    AliasGroup,
    AllowedOverlap,
    BranchPoints,
    Buffer,
    BufferAccess,
    BufferKind,
    Count,
    Placement,
    Plan,
    PlanStatus,
    Point,
    Pool,
    PoolUsage,
    Problem,
)
from ..problem.json import row_to_json
from ..problem.model import ProblemError
from ..problem.validation import validate
from .timing import HostLayer, Layer, Timing

if TYPE_CHECKING:
    from ..ethosu.time import MemoryMap


SCHEMA = "npu_memplan.artifact/1"
FILE_NAME = "plan.json"
ElementType = Annotated[str, Meta(pattern="^(bool|u?int(8|16|32|64)|float(16|32|64))$")]
ZeroPoint = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]


class ArtifactError(NpuMemplanError):
    """A directory is not an artifact of this package, or of another version of it."""


@dataclass(frozen=True, slots=True)
class TensorSlot:
    """A graph input, output or state tensor on its planned bytes."""

    name: str
    dtype: ElementType  # numpy's name, e.g. "int8"
    shape: tuple[Count, ...]
    pool: str
    offset_bytes: Count
    size_bytes: Count
    scale: float  # 0.0 when the tensor is not quantised
    zero_point: ZeroPoint  # state tensors start at it
    index_range: tuple[int, int] | None = None  # of an input that is an index: its values, half-open


@dataclass(frozen=True, slots=True)
class Call:
    """One call of main, in program order, over the points `points`; cycles and MACs are of the NPU's calls."""

    function: str
    agent: Agent
    reads: tuple[str, ...]  # buffer names
    writes: tuple[str, ...]
    points: tuple[Point, Point]
    estimated_cycles: Count | None = None
    macs: Count | None = None
    operators: tuple[int, ...] = ()  # of the source model, that each NPU operation works for; -1: not known
    conditional: bool = False  # in a branch of an `if`: it may not run


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of the source model: what runs it, why it is not the NPU if it is not, and what its results are."""

    name: str  # the name of its first output tensor
    kind: str  # e.g. "CONV_2D"
    agent: Agent
    reason: str = ""
    claim: Claim = UNKNOWN


class CheckVerdict(Enum):
    """How the results of a compiled program relate to its reference's, on the inputs that were run."""

    EQUAL = "equal"  # every element of every output
    AS_CLAIMED = "as claimed"  # they differ, no further than the claim of the operator that differs first
    DIFFERS = "differs"  # further than is claimed, or the run was stopped
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first operator whose output differs from the reference's, as far as it could be seen."""

    input: str  # as `run --input` takes it
    operator: int = -1  # of the source model; -1: not known
    kind: str = ""
    name: str = ""  # of its first output tensor
    elements: Count = 0  # that were seen
    mismatches: Count = 0
    max_abs_diff: float | None = None  # in `unit`s; None: not a number
    unit: str = ""  # "LSB" of integers; of floats it is the tensor's own
    hidden: tuple[int, ...] = ()  # operators before it whose outputs were not seen
    stopped: str = ""  # why the run had no result


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A program of the same model that was compiled before, and not taken because of its results."""

    flags: tuple[str, ...]  # the options of compile that make it
    reference: str
    difference: FirstDifference


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check. Elements are counted over all outputs and inputs."""

    verdict: CheckVerdict = CheckVerdict.NOT_CHECKED
    reason: str = ""  # why it was not checked
    runner: str = ""  # what ran the program
    reference: str = ""
    reference_version: str = ""
    inputs: tuple[str, ...] = ()  # as `run --input` takes them
    elements: Count = 0
    mismatches: Count = 0
    max_abs_diff: float | None = 0.0  # of all outputs, in `unit`s; None: not a number
    unit: str = ""
    first: FirstDifference | None = None
    given_up: tuple[GivenUp, ...] = ()
    references_disagree: str = ""  # of results that differ: which operators two references make otherwise


NOT_REQUESTED = CheckResult(reason="the check is off")


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
        **_shared_fields(problem, Document),
        **_shared_fields(plan, Document),
        **_shared_fields(artifact, Document),
        "pools": [
            _pool_row(pool, region, usage[pool.name])
            for pool, region in zip(problem.pools, artifact.regions, strict=True)
        ],
        "buffers": [_buffer_row(b, placed[b.name]) for b in problem.buffers],
        "accesses": [_access_row(known) for known in problem.accesses],
    }
    document: dict[str, Any] = {"schema": SCHEMA}
    for known in fields(Document):
        document[known.name] = values[known.name]
        if known.name == "npu_operations":
            document |= {name: getattr(artifact, name) for name in _TOTALS}
    return _compact_rows(msgspec.to_builtins(document, enc_hook=str.__str__))  # of strings of TVM's


def _shared_fields(values: object, kind: type) -> dict[str, Any]:
    """The fields of `kind` that `values` has too, with its values."""
    return {one.name: getattr(values, one.name) for one in fields(kind) if hasattr(values, one.name)}


def artifact_from_json(kind: type[Artifact], text: str, where: str = FILE_NAME) -> Artifact:
    """The artifact (`kind` makes it) in the text of plan.json; `ArtifactError` names `where` and what is wrong."""
    values = json_values(text, where, ArtifactError)
    check_schema(values, SCHEMA, where, ArtifactError)
    artifact = _new_artifact(kind, from_values(values, Document, where, ArtifactError))
    try:
        validate(artifact.problem)
        _check_fields(artifact)
    except ProblemError as error:
        raise ArtifactError(f"{where} is damaged: {error}; compile the model again") from None
    return artifact


def _new_artifact(kind: type[Artifact], d: Document) -> Artifact:
    pools = tuple(replace(Pool(**_shared_fields(row, Pool)), size_bytes=row.capacity_bytes) for row in d.pools)
    buffers = tuple(Buffer(**_shared_fields(row, Buffer)) for row in d.buffers)
    placements = tuple(Placement(row.name, row.pool, row.offset_bytes) for row in d.buffers)
    usage = tuple(PoolUsage(row.name, row.used_bytes, row.lower_bound_bytes) for row in d.pools)
    return kind(
        **_shared_fields(d, kind),
        problem=Problem(**{**_shared_fields(d, Problem), "buffers": buffers, "pools": pools}),
        plan=Plan(placements, usage, **_shared_fields(d, Plan)),
        regions=tuple(row.region for row in d.pools),
    )


def _check_fields(artifact: Artifact) -> None:
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
        if call.points[1] > len(artifact.problem.points):
            raise ProblemError(
                f"call {call.function!r} lasts to point {call.points[1]}; there are {len(artifact.problem.points)}"
            )


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

    def short_row(access: BufferAccess) -> tuple[Any, ...]:
        runs = [run[:2] if run[2:] == (1, 0) else run for run in access.runs]
        return (access.point, runs) if runs else (access.point,)

    both = {"reads": [*map(short_row, known.reads)], "writes": [*map(short_row, known.writes)]}
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


@dataclass(frozen=True, slots=True, repr=False)
class Artifact:
    """A compiled model. `regions[i]` is the NPU region of `problem.pools[i]`; `target` is all options."""

    name: str
    source: str  # file name of the model, without folders
    source_sha256: str
    target: CompileOptions  # resolved
    problem: Problem
    plan: Plan
    regions: tuple[int, ...]
    inputs: tuple[TensorSlot, ...]
    outputs: tuple[TensorSlot, ...]
    states: tuple[TensorSlot, ...] = ()
    calls: tuple[Call, ...] = ()
    operators: tuple[Operator, ...] = ()
    constants_bytes: int = 0  # weights, scales and tables in read-only memory
    stream_bytes: int = 0  # command streams
    limit_bytes: Mapping[str, int] = field(default_factory=dict)  # by pool, within which the program was chosen
    vela_arena_bytes: Mapping[str, int] = field(default_factory=dict)  # by pool, Vela's own, of the same buffers
    backend: str = ""  # what made the NPU's operations, as `tuning` names it, where several compete
    npu_operations: int = 0  # kernels and DMAs in the command streams
    timing: Timing | None = None  # of the NPU's calls, estimated
    layers: tuple[Layer, ...] = ()  # the same by operator of the source model
    host_layers: tuple[HostLayer, ...] = ()  # of the host's calls, roughly
    files: Mapping[str, str] = field(default_factory=dict)  # role -> path relative to the directory
    check: CheckResult = NOT_REQUESTED  # of its results
    notes: tuple[str, ...] = ()  # what the user should know of this compile

    def __repr__(self) -> str:
        """One line: `<Artifact kws: ethos-u55-256, sram 22,096 bytes, optimal, about 41,966 NPU cycles, 0 on host>`."""
        where = self.target.board or self.target.accelerator
        pools = ", ".join(f"{pool.name} {self.pool_bytes(pool.name):,} bytes" for pool in self.run_pools)
        cycles = "" if self.estimated_cycles is None else f"about {self.estimated_cycles:,} NPU cycles, "
        status = self.plan.status.value
        return f"<Artifact {self.name}: {where}, {pools}, {status}, {cycles}{self.host_operations} on host>"

    @property
    def host_operations(self) -> int:
        """Calls of main that run on the CPU."""
        return sum(call.agent is Agent.HOST for call in self.calls)

    @property
    def estimated_cycles(self) -> int | None:
        """Estimated NPU cycles of one inference; None without NPU calls."""
        return _known_total(call.estimated_cycles for call in self.calls)

    @property
    def host_cycles(self) -> int | None:
        """Rough cycles of the host's calls, of its own clock; None without any."""
        return _known_total(row.cycles for row in self.host_layers)

    @property
    def unknown_calls(self) -> int:
        """The number of the CPU's calls without an estimate: C that is not ours, and operators that are C alone."""
        known = {row.function for row in self.host_layers}
        return sum(call.agent is Agent.HOST and call.function not in known for call in self.calls)

    @property
    def host_clock_hz(self) -> float:
        """The host's clock: the board's, else taken as the NPU's; 0: unknown."""
        return self.target.cpu_clock_hz or (self.timing.clock_hz if self.timing is not None else 0.0)

    @property
    def npu_milliseconds(self) -> tuple[float, ...]:
        """The time of the NPU's calls, first by the nominal estimate, then under each model of a printed range."""
        timing, cycles = self.timing, self.estimated_cycles
        return () if timing is None or not cycles else tuple(timing.each_milliseconds(cycles))

    @property
    def host_milliseconds(self) -> float | None:
        """The time of the CPU's calls, estimated; None where that or the CPU's clock is unknown."""
        cycles, clock = self.host_cycles, self.host_clock_hz
        return 1000 * cycles / clock if cycles is not None and clock else None

    @property
    def total_milliseconds(self) -> tuple[float, ...]:
        """The time of one inference, NPU and CPU one after the other, as `npu_milliseconds`; empty: not known."""
        host = self.host_milliseconds
        if host is None:
            return self.npu_milliseconds if self.host_cycles is None else ()
        return tuple(host + npu for npu in self.npu_milliseconds) or (host,)

    @property
    def total_cycles(self) -> int | None:
        """The cycles of NPU and CPU, of the NPU's clock, without NPU calls of the CPU's; None: nothing is known."""
        if self.timing is None or not self.host_cycles:
            return self.estimated_cycles if self.estimated_cycles is not None else self.host_cycles
        return (self.estimated_cycles or 0) + round(self.host_cycles * self.timing.clock_hz / self.host_clock_hz)

    @property
    def vela_milliseconds(self) -> float | None:
        """The time of Vela's own stream in its own arena, with what Vela leaves to the CPU; None: there is none."""
        timing = self.timing
        if timing is None or not timing.vela_stream_bounds:
            return None
        host = 1000 * (timing.vela_host_cycles or 0) / self.host_clock_hz
        return timing.milliseconds(sum(timing.vela_stream_bounds.values())) + host

    @property
    def npu_macs(self) -> int | None:
        """Multiply-accumulates of one inference on the NPU; None without NPU calls."""
        return _known_total(call.macs for call in self.calls)

    @property
    def memory_map(self) -> MemoryMap | None:
        """The memory of each of the NPU's regions; None without an NPU."""
        from ..ethosu.time import Needs

        regions = dict(zip(self.regions, (p.name for p in self.problem.pools), strict=True))
        used = {usage.pool: usage.used_bytes for usage in self.plan.usage}
        return self.target.memory_map(regions, Needs(used, self.constants_bytes + self.stream_bytes))

    @property
    def run_pools(self) -> tuple[Pool, ...]:
        """The pools that the caller of `run` provides; read-only ones are in the generated code."""
        return tuple(pool for pool in self.problem.pools if not pool.read_only)

    @property
    def resident_bytes(self) -> int:
        """Constants in writable pools, which `<name>_init` puts there once."""
        return sum(buffer.size_bytes for buffer in self.problem.buffers if buffer.kind is BufferKind.RESIDENT)

    @property
    def init_cycles(self) -> int:
        """Cycles of the NPU's clock that reading these from the memory of constants takes at least, once."""
        from ..ethosu.time import Traffic

        size, memory_map = self.resident_bytes, self.memory_map
        if not size or memory_map is None:
            return 0
        return math.ceil(memory_map.regions[0].cycles(Traffic(size, -(-size // 16), -(-size // 64)), False, 1))

    @property
    def has_init(self) -> bool:
        """Whether `<name>_init` is to be called before the first run."""
        return self.resident_bytes > 0

    def pool_bytes(self, pool: str) -> int:
        """Bytes that pool `pool` must have for this plan."""
        for usage in self.plan.usage:
            if usage.pool == pool:
                return usage.used_bytes
        raise ArtifactError(f"{self.name} has no pool called {pool!r}")

    to_json = artifact_to_json
    from_json = classmethod(artifact_from_json)

    @classmethod
    def load(cls, directory: Path | str) -> Artifact:
        """The artifact in `directory`; `ArtifactError` when there is none."""
        path = Path(directory) / FILE_NAME
        if path.is_symlink():
            check_folder(Path(directory))
        try:
            text = read_text(path)
        except (OSError, UnicodeDecodeError) as error:
            if Path(directory).is_file():
                text = f"{directory} is a file, not the directory of a compiled model; {_use_of(directory)}"
                raise ArtifactError(text) from None
            reason = error.strerror if isinstance(error, OSError) else "not text"
            if Path(directory).suffix and not Path(directory).exists():  # the name of a program
                raise ArtifactError(f"cannot read {directory}: {reason}") from None
            parent = Path(directory).parent
            has_it = (parent / FILE_NAME).is_file()
            advice = f"give {parent}" if has_it else f"make one with: npu-memplan compile MODEL.tflite -o {directory}"
            raise ArtifactError(f"{directory} is no compiled model: cannot read {path} ({reason}); {advice}") from None
        check_folder(Path(directory))
        return cls.from_json(text, str(path))

    @classmethod
    def load_verified(cls, directory: Path | str) -> Artifact:
        """`load`, and `VerificationError` when the plan violates a constraint: for reports and explanations."""
        from ..verify import check

        artifact = cls.load(directory)
        check(artifact.problem, artifact.plan)
        return artifact

    def save(self, directory: Path | str) -> None:
        """Write plan.json into an existing `directory`."""
        (Path(directory) / FILE_NAME).write_text(self.to_json(), encoding="utf-8")


def _known_total(values: Iterable[int | None]) -> int | None:
    """The sum of what is known; None when nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _use_of(file: Path | str) -> str:
    """What takes a file that is no artifact."""
    match Path(file).suffix.lower():
        case ".elf" | ".axf":
            return f"firmware of your own runs with: npu-memplan run --elf {file} --board BOARD"
        case ".tflite":
            vela = f"what Vela compiled runs with: npu-memplan simulate {file}"
            return f"make one with: npu-memplan compile {file} -o DIRECTORY; {vela}"
        case ".onnx" | ".pt2" | ".tosa":
            return f"make one with: npu-memplan compile {file} -o DIRECTORY"
    return "make one with: npu-memplan compile MODEL.tflite -o DIRECTORY"
