"""The result of a case, as one line of JSON in a file that grows.

Invariant: everything but `cost` follows from the case alone, so that two machines write the same facts; a result that a
limit ended says which limit, and holds only for one that is not larger. A line is whole or no JSON: half a line of a
killed process is left out.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import msgspec

from ..files.whole_file import OutputError
from ..problem import Count
from ..process.incidents import FAULT


class Outcome(Enum):
    """How a case ended."""

    FITS = "fits"
    NO_ROOM = "no room"
    REFUSED = "refused"  # the model or the options cannot be compiled, and the reason says why
    CRASHED = "crashed"  # the compiler, or its process
    TIMED_OUT = "timed out"
    OUT_OF_MEMORY = "out of memory"
    NOT_TRIED = "not tried"  # no worker could; never kept


LIMITED = frozenset((Outcome.TIMED_OUT, Outcome.OUT_OF_MEMORY))


@dataclass(frozen=True, slots=True)
class CaseLimits:
    """What one case may take: wall time in seconds, bytes of writable memory of its process and of each it starts."""

    seconds: float = 300.0
    memory_bytes: int = 4 << 30


@dataclass(frozen=True, slots=True)
class Shortage:
    """The pool that is too small."""

    pool: str
    required_bytes: Count
    available_bytes: Count


@dataclass(frozen=True, slots=True)
class Runs:
    """The artifact against its reference."""

    runner: str
    seeds: Count
    exact: Count  # seeds whose every output element equals the reference's
    largest_difference: float = 0.0  # in units of the outputs
    reference: str = ""
    stopped: str = ""  # a check or the time limit ended the run, and why


@dataclass(frozen=True, slots=True)
class Cost:
    """What the result took; a matter of the machine, in no table."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_bytes: Count = 0  # most that was seen
    said: str = ""  # the last output of a process that crashed


@dataclass(frozen=True, slots=True)
class Result:
    """One line of a sweep. Sizes are bytes; cycles are the NPU's, estimated (None: no NPU call)."""

    key: str
    outcome: Outcome
    reason: str = ""
    limit: float = 0  # seconds or bytes, of an outcome of `LIMITED`
    shortage: Shortage | None = None
    pools: Mapping[str, Count] = field(default_factory=dict)
    constants_bytes: Count = 0
    stream_bytes: Count = 0
    vela_bytes: Count = 0  # of Vela's own arenas, where they hold the same buffers; 0: unknown
    cycles: Count | None = None
    most_cycles: Count | None = None  # under the slowest model of shared memories
    clock_hz: float = 0
    npu_operations: Count = 0
    host_operations: Count = 0
    host_cycles: Count | None = None  # theirs, roughly, of the host's clock; in no sum
    host_clock_hz: float = 0
    plan: str = ""  # "optimal" or "feasible"
    operators: Mapping[str, Count] = field(default_factory=dict)  # how many are exact, within a step, unproven
    runs: Runs | None = None
    incidents: tuple[str, ...] = ()  # faults of ours that ended a part alone, and fallbacks, as `compile` reports them
    cost: Cost = field(default_factory=Cost)

    @property
    def faulty(self) -> bool:
        """Whether something of ours failed, though there is a result."""
        return any(line.startswith(FAULT) for line in self.incidents)

    def line(self) -> bytes:
        return msgspec.json.encode(self) + b"\n"

    @classmethod
    def of_line(cls, line: bytes) -> Result | None:
        """The result of a line; None for half a line, which is never JSON, or another version's."""
        try:
            return msgspec.json.decode(line, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def holds_for(self, limits: CaseLimits) -> bool:
        """Whether nothing else can come out under `limits`."""
        if self.outcome is Outcome.TIMED_OUT:
            return limits.seconds <= self.limit
        if self.outcome is Outcome.OUT_OF_MEMORY:
            return limits.memory_bytes <= self.limit
        return self.outcome is not Outcome.NOT_TRIED


def read_results(path: Path, keys: Collection[str], limits: CaseLimits) -> dict[str, Result]:
    """Key -> result of `keys` in the file at `path`; without those that may come out otherwise under `limits`."""
    wanted = frozenset(keys)
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    found = [result for line in lines if line and (result := Result.of_line(line)) is not None]
    return {result.key: result for result in found if result.key in wanted and result.holds_for(limits)}


def append_result(path: Path, result: Result) -> None:
    """Add a line to the file at `path`, by one write; after half a line of a killed process it begins anew."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab+", buffering=0) as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
            whole = file.read(1) in (b"", b"\n")
            file.write((b"" if whole else b"\n") + result.line())
    except OSError as error:
        raise OutputError(f"cannot write to {path}: {error.strerror}; the results before are kept") from None
