"""Writing, reading and checking files: app.json, problems and plans.

Invariant: reading what was written gives an equal object (of MiniMalloc's CSV: what its columns can say), and a file
appears whole or not at all. A network of an application is an artifact in the folder of its name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import NpuMemplanError
from ..files.paths import check_folder, read_text, write_whole
from ..files.schema import check_schema, from_values, json_values
from ..problem import BufferKind
from ..problem.csv import ProblemFileError, plan_csv, plan_from_csv, problem_from_csv
from ..problem.json import plan_from_json, plan_to_json, problem_from_json
from ..problem.model import Plan, Problem, ProblemError
from ..problem.validation import validate
from ..sizes import parse_named_size, parse_size
from . import Artifact
from .model import SCHEMA as ARTIFACT_SCHEMA

if TYPE_CHECKING:
    from .model import Artifact


def read_problem(path: str | Path, capacity_bytes: int | None = None) -> Problem:
    """The problem in `path` (`.json`, else CSV); `capacity_bytes` bounds its first pool."""
    path = Path(path)
    text = _read_file_text(path)
    if path.suffix.lower() == ".json":
        document = _read_document(path, text)
        problem = document.problem if isinstance(document, Artifact) else problem_from_json(document, str(path))
    else:
        problem = problem_from_csv(path, text)
    if capacity_bytes is not None and problem.pools:
        problem = with_capacity(problem, problem.pools[0].name, capacity_bytes)
    validate(problem)
    return problem


def with_capacity(problem: Problem, pool: str, capacity_bytes: int) -> Problem:
    """`problem` with another hard size for one pool."""
    problem.pool(pool)
    pools = tuple(replace(p, size_bytes=capacity_bytes) if p.name == pool else p for p in problem.pools)
    return replace(problem, pools=pools)


def with_capacities(problem: Problem, texts: Iterable[str]) -> Problem:
    """`problem` with the sizes of `texts`: `"96KiB"` for its first pool, `"sram=96KiB"` for a named one."""
    for text in texts:
        if "=" not in text and not problem.pools:
            raise ProblemError(f"problem {problem.name!r} has no pool that could have capacity {text!r}")
        name, size = parse_named_size(text) if "=" in text else (problem.pools[0].name, parse_size(text))
        problem = with_capacity(problem, name, size)
    return problem


def read_plan(path: str | Path, problem: Problem) -> Plan:
    """The plan in `path` (`.json`, else CSV with columns id, offset and, with several pools, pool)."""
    path = Path(path)
    text = _read_file_text(path)
    if path.suffix.lower() == ".json":
        document = _read_document(path, text)
        return document.plan if isinstance(document, Artifact) else plan_from_json(document, str(path))
    return plan_from_csv(path, text, problem)


def write_plan(path: str | Path, problem: Problem, plan: Plan) -> None:
    """Write `plan` to `path`: JSON with everything, or MiniMalloc's CSV with a column `offset`."""
    path = Path(path)
    as_json = path.suffix.lower() == ".json"
    text = json.dumps(plan_to_json(plan), indent=1) + "\n" if as_json else plan_csv(problem, plan)
    write_whole(path, text.encode())


def _read_document(path: Path, text: str) -> object:
    """The JSON values; of the plan.json of a compiled model, which has both a problem and its plan, an `Artifact`."""
    document = json_values(text, str(path), ProblemFileError)
    compiled = isinstance(document, dict) and document.get("schema") == ARTIFACT_SCHEMA
    return Artifact.from_json(text, str(path)) if compiled else document


def _read_file_text(path: Path) -> str:
    try:
        return read_text(path, encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ProblemFileError(f"cannot read {path}: {reason}; give a .csv or .json file") from None


APPLICATION_FILE = "app.json"
APPLICATION_SCHEMA = "npu_memplan.application/1"


class ApplicationError(NpuMemplanError):
    """Networks cannot be linked as requested, or a directory is no application."""


@dataclass(frozen=True, slots=True)
class LinkedNetwork:
    """One network, and its figures beside the others."""

    name: str  # in C
    rate: float  # how often it runs beside the others
    estimated_cycles: int | None
    alone_bytes: dict[str, int]  # by pool
    kept_bytes: int  # states and resident constants
    npu: str = ""  # the board of its NPU, where the application has several
    contention: Contention | None = None  # its time beside networks of the others
    total_ms: float | None = None  # of NPU and CPU for one inference, estimated; None: unknown
    host_ms: float | None = None  # the CPU's part
    unknown_calls: int = 0  # of the CPU, which are in neither
    total_ms_least: float | None = None  # its range, by how memories are shared
    total_ms_most: float | None = None


@dataclass(frozen=True, slots=True)
class Contention:
    """Cycles of a network's NPU for one run, by timing model: alone, and at most beside networks of other NPUs."""

    least_cycles: int
    most_cycles: int
    clock_hz: float
    others: tuple[str, ...]  # networks
    memories: tuple[str, ...]

    def __str__(self) -> str:
        least, most = (f"{1000 * cycles / self.clock_hz:.3f}" for cycles in (self.least_cycles, self.most_cycles))
        return f"{least} to {most} ms while {' or '.join(self.others)} uses {' and '.join(self.memories)} too"


@dataclass(frozen=True, slots=True)
class Application:
    """Networks in the order in which they were given."""

    name: str
    networks: tuple[LinkedNetwork, ...]
    together: tuple[tuple[str, str], ...] = ()  # pairs that may run at the same time
    connected: tuple[tuple[str, str], ...] = ()  # outputs and the inputs that have their bytes, as NETWORK/BUFFER

    def save(self, folder: Path) -> None:
        """Write app.json into an existing folder."""
        text = json.dumps({"schema": APPLICATION_SCHEMA, **asdict(self)}, indent=1)
        (folder / APPLICATION_FILE).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Application:
        """The application in `folder`; `ApplicationError` where its file is damaged."""
        check_folder(folder)
        path = folder / APPLICATION_FILE
        try:
            values = json_values(read_text(path), str(path), ApplicationError)
        except (OSError, UnicodeDecodeError) as error:
            raise ApplicationError(f"cannot read {path}: {error}; link the networks again") from None
        check_schema(values, APPLICATION_SCHEMA, str(path), ApplicationError)
        return from_values(values, cls, str(path), ApplicationError)


def joint_name(network: str, buffer: str) -> str:
    """The name of a buffer of `network` in the joint plan."""
    return f"{network}/{buffer}"


def tensor_buffers(artifact: Artifact, kind: BufferKind) -> dict[str, str]:
    """Names of the inputs or outputs of `artifact` -> their buffers; without those that are a part of one."""
    slots = artifact.inputs if kind is BufferKind.INPUT else artifact.outputs
    sizes = {b.name: b.size_bytes for b in artifact.problem.buffers if b.kind is kind}
    at = {(p.pool, p.offset_bytes, sizes[p.buffer]): p.buffer for p in artifact.plan.placements if p.buffer in sizes}
    found = {slot.name: at.get((slot.pool, slot.offset_bytes, slot.size_bytes)) for slot in slots}
    return {name: buffer for name, buffer in found.items() if buffer is not None}


def is_application(folder: Path) -> bool:
    """Whether `folder` has linked networks."""
    return (folder / APPLICATION_FILE).is_file()
