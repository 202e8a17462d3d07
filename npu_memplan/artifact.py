"""What a compiled model is: `plan.json`, and the names of the files beside it.

Invariant: `Artifact.load(directory)` gives back exactly the object that was saved, so runners
and reports need nothing but the artifact directory. The schema is documented in
docs/reference.md; its version changes when a reader would have to.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .errors import NpuMemplanError
from .options import CompileOptions
from .problem import Agent, Buffer, Placement, Plan, PlanStatus, Pool, PoolUsage, Problem, ProblemError
from .problem_json import PROBLEM_SCHEMA, buffer_to_json, pool_to_json, problem_from_json

SCHEMA = "npu_memplan.artifact/1"
FILE_NAME = "plan.json"


class ArtifactError(NpuMemplanError):
    """A directory is not an artifact of this package, or of another version of it."""


@dataclass(frozen=True, slots=True)
class TensorSlot:
    """A graph input, output or state tensor on its planned bytes."""

    name: str
    dtype: str  # numpy's name, e.g. "int8"
    shape: tuple[int, ...]
    pool: str
    offset_bytes: int
    size_bytes: int
    scale: float  # 0.0 when the tensor is not quantised
    zero_point: int  # state tensors start at it


@dataclass(frozen=True, slots=True)
class Call:
    """One call of main, in program order; `points` is its half-open range of time.

    Of the NPU's calls: estimated cycles (see `ethosu.cycles`) and multiply-accumulates; nobody estimates the host's.
    """

    function: str
    agent: Agent
    reads: tuple[str, ...]  # buffer names
    writes: tuple[str, ...]
    points: tuple[int, int]
    estimated_cycles: int | None = None
    macs: int | None = None


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of the source model: who runs it, and why it is not the NPU if it is not."""

    name: str  # the name of its first output tensor
    kind: str  # e.g. "CONV_2D"
    agent: Agent
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled model. `regions[i]` is the NPU region of `problem.pools[i]`; `target` is everything that was asked."""

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
    vela_arena_bytes: Mapping[str, int] = field(default_factory=dict)  # pool name -> what Vela itself uses
    npu_operations: int = 0  # kernels and DMAs in the command streams
    files: Mapping[str, str] = field(default_factory=dict)  # role -> path relative to the directory
    notes: tuple[str, ...] = ()  # what the user should know of this compile

    @property
    def host_operations(self) -> int:
        """Calls of main that run on the CPU."""
        return sum(call.agent is Agent.HOST for call in self.calls)

    @property
    def estimated_cycles(self) -> int | None:
        """Estimated NPU cycles of one inference; None without NPU calls."""
        return _total(call.estimated_cycles for call in self.calls)

    @property
    def npu_macs(self) -> int | None:
        """Multiply-accumulates of one inference on the NPU; None without NPU calls."""
        return _total(call.macs for call in self.calls)

    @property
    def run_pools(self) -> tuple[Pool, ...]:
        """The pools that the caller of `run` provides; read-only ones are in the generated code."""
        return tuple(pool for pool in self.problem.pools if not pool.read_only)

    def pool_bytes(self, pool: str) -> int:
        """Bytes that pool `pool` must have for this plan."""
        for usage in self.plan.usage:
            if usage.pool == pool:
                return usage.used_bytes
        raise ArtifactError(f"{self.name} has no pool called {pool!r}")

    def to_json(self) -> str:
        """The text of plan.json: one fixed order of keys, the same bytes for the same plan."""
        placed = {p.buffer: p for p in self.plan.placements}
        usage = {u.pool: u for u in self.plan.usage}
        document = {
            "schema": SCHEMA,
            "name": self.name,
            "source": self.source,
            "source_sha256": self.source_sha256,
            "target": asdict(self.target),
            "status": self.plan.status.value,
            "planner": self.plan.planner,
            "seed": self.plan.seed,
            "budget": self.plan.budget,
            "stopped_early": self.plan.stopped_early,
            "pools": [
                _pool_row(pool, region, usage[pool.name])
                for pool, region in zip(self.problem.pools, self.regions, strict=True)
            ],
            "vela_arena_bytes": dict(self.vela_arena_bytes),
            "constants_bytes": self.constants_bytes,
            "stream_bytes": self.stream_bytes,
            "npu_operations": self.npu_operations,
            "host_operations": self.host_operations,
            "estimated_cycles": self.estimated_cycles,
            "npu_macs": self.npu_macs,
            "inputs": [asdict(slot) for slot in self.inputs],
            "outputs": [asdict(slot) for slot in self.outputs],
            "states": [asdict(slot) for slot in self.states],
            "buffers": [_buffer_row(b, placed[b.name]) for b in self.problem.buffers],
            "conflicts": [list(pair) for pair in self.problem.conflicts],
            "aliases": [asdict(group) for group in self.problem.aliases],
            "overlaps": [asdict(overlap) for overlap in self.problem.overlaps],
            "points": list(self.problem.points),
            "calls": [{**asdict(call), "agent": call.agent.value} for call in self.calls],
            "operators": [{**asdict(op), "agent": op.agent.value} for op in self.operators],
            "files": dict(self.files),
            "notes": list(self.notes),
        }
        return _compact_rows(document)

    @classmethod
    def from_json(cls, text: str, where: str = FILE_NAME) -> Artifact:
        """Parse the text of plan.json; `ArtifactError` names `where` and what is wrong."""
        try:
            d = json.loads(text)
        except ValueError as error:
            raise ArtifactError(f"{where} is not JSON ({error}); compile the model again") from None
        found = d.get("schema") if isinstance(d, dict) else None
        if found != SCHEMA:
            raise ArtifactError(f"{where} has schema {found!r}, this version reads {SCHEMA!r}; compile the model again")
        try:
            return cls._of(d)
        except ProblemError as error:
            raise ArtifactError(f"{where} is damaged: {error}; compile the model again") from None
        except (KeyError, TypeError, ValueError) as error:
            raise ArtifactError(f"{where} is damaged ({error!r}); compile the model again") from None

    @classmethod
    def _of(cls, d: dict[str, Any]) -> Artifact:
        problem = _problem_of(d)
        plan = Plan(
            placements=tuple(Placement(row["name"], row["pool"], row["offset_bytes"]) for row in d["buffers"]),
            usage=tuple(PoolUsage(row["name"], row["used_bytes"], row["lower_bound_bytes"]) for row in d["pools"]),
            status=PlanStatus(d["status"]),
            planner=d["planner"],
            seed=d["seed"],
            budget=d["budget"],
            stopped_early=d["stopped_early"],
        )
        target = dict(d["target"])
        target["host_ops"] = tuple(target["host_ops"])
        return cls(
            name=d["name"],
            source=d["source"],
            source_sha256=d["source_sha256"],
            target=CompileOptions(**target),
            problem=problem,
            plan=plan,
            regions=tuple(row["region"] for row in d["pools"]),
            inputs=tuple(_slot_of(row) for row in d["inputs"]),
            outputs=tuple(_slot_of(row) for row in d["outputs"]),
            states=tuple(_slot_of(row) for row in d["states"]),
            calls=tuple(
                Call(
                    c["function"],
                    Agent(c["agent"]),
                    tuple(c["reads"]),
                    tuple(c["writes"]),
                    (c["points"][0], c["points"][1]),
                    c.get("estimated_cycles"),  # absent from plans of versions that did not estimate
                    c.get("macs"),
                )
                for c in d["calls"]
            ),
            operators=tuple(Operator(o["name"], o["kind"], Agent(o["agent"]), o["reason"]) for o in d["operators"]),
            constants_bytes=d["constants_bytes"],
            stream_bytes=d["stream_bytes"],
            vela_arena_bytes=d["vela_arena_bytes"],
            npu_operations=d["npu_operations"],
            files=d["files"],
            notes=tuple(d["notes"]),
        )

    @classmethod
    def load(cls, directory: Path | str) -> Artifact:
        """The artifact in `directory`; `ArtifactError` when there is none."""
        path = Path(directory) / FILE_NAME
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            if Path(directory).is_file():
                raise ArtifactError(
                    f"{directory} is a file, not the directory of a compiled model; "
                    "make one with: npu-memplan compile MODEL.tflite -o DIRECTORY"
                ) from None
            reason = error.strerror if isinstance(error, OSError) else "not text"
            raise ArtifactError(
                f"{directory} is no compiled model: cannot read {path} ({reason}); "
                f"make one with: npu-memplan compile MODEL.tflite -o {directory}"
            ) from None
        return cls.from_json(text, str(path))

    def save(self, directory: Path | str) -> None:
        """Write plan.json into an existing `directory`."""
        (Path(directory) / FILE_NAME).write_text(self.to_json(), encoding="utf-8")


def _total(values: Iterable[int | None]) -> int | None:
    """The sum of what is known; None when nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _pool_row(pool: Pool, region: int, usage: PoolUsage) -> dict[str, Any]:
    row = pool_to_json(pool)
    return {
        "name": row.pop("name"),
        "region": region,
        "capacity_bytes": row.pop("size_bytes"),
        "used_bytes": usage.used_bytes,
        "lower_bound_bytes": usage.lower_bound_bytes,
        **row,
    }


def _buffer_row(buffer: Buffer, placement: Placement) -> dict[str, Any]:
    row = buffer_to_json(buffer)
    return {"name": row.pop("name"), "pool": placement.pool, "offset_bytes": placement.offset_bytes, **row}


def _problem_of(d: dict[str, Any]) -> Problem:
    """The problem in plan.json, whose pools have their capacity and their use apart."""
    pools = [{**row, "size_bytes": row["capacity_bytes"]} for row in d["pools"]]
    return problem_from_json({**d, "schema": PROBLEM_SCHEMA, "pools": pools})


def _slot_of(row: dict[str, Any]) -> TensorSlot:
    return TensorSlot(**{**row, "shape": tuple(row["shape"])})


def _compact_rows(document: dict[str, Any]) -> str:
    """JSON with one top-level key, or one row of a top-level list, a line: small and diffable."""
    lines = []
    for key, value in document.items():
        if isinstance(value, list) and value and not isinstance(value[0], str):
            rows = ",\n".join("  " + json.dumps(row) for row in value)
            lines.append(f" {json.dumps(key)}: [\n{rows}\n ]")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
